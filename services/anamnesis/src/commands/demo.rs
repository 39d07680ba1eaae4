//! `demo`: a hospital conversation in two languages over two years, end to end in a temporary folder,
//! with what recall, as-of, audit and erasure answer. Nothing in it is fitted to the story: it goes
//! through the same intake, stages, stores and recall as everything else.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_audit::balance::balance;
use anamnesis_audit::diff::diff;
use anamnesis_audit::explain::explain;
use anamnesis_audit::replay::{Digests, digests};
use anamnesis_audit::verify::verify;
use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_intake::commands::Order;
use anamnesis_intake::message::Message;
use anamnesis_intake::request::{ForgetMode, Targets};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::{Clock, ManualClock};
use anamnesis_recall::answer::Answer;
use anamnesis_recall::request::RecallRequest;
use tokio_util::sync::CancellationToken;

use crate::cli::Exit;
use crate::commands::audit::{balance_text, diff_text, explanation_text, verified_text};
use crate::commands::import::grant;
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// The bundled conversation: time, who, what.
const STORY: &str = include_str!("../../data/demo.tsv");
const PATIENT: &str = "hospital-7/patient/p-1029";
const OTHER: &str = "hospital-7/patient/p-2040";
const SOURCE: &str = "/hospital-7/chat";

/// # Errors
/// When a step does not come out as it must.
pub async fn run() -> Result<Exit, Failure> {
    let started = Instant::now();
    let scratch = tempfile::tempdir()
        .map_err(|error| Failure::unreachable(format!("cannot make a folder: {error}")))?;
    let mut config = Config {
        tenant: "hospital-7".to_owned(),
        ..Config::default()
    };
    config.data_dir = scratch.path().join("data");
    let clock = Arc::new(ManualClock::new(at("2025-03-01T08:00:00+08:00")?));
    let demo = Demo {
        node: Node::open_with(config.clone(), clock.clone()).await?,
        clock,
    };

    demo.tell().await?;
    demo.ask().await?;
    demo.audit().await?;
    let demo = demo.rebuild(config).await?;
    demo.forget().await?;
    let Demo { node, .. } = demo;
    drop(node);
    kill_and_recover(scratch.path()).await?;
    crate::say!(
        "\n(done in {:.1} s; everything was in {} and is gone now)",
        started.elapsed().as_secs_f64(),
        scratch.path().display()
    );
    Ok(Exit::Fine)
}

fn at(text: &str) -> Result<Timestamp, Failure> {
    Timestamp::parse(text).map_err(Failure::wrong_use)
}

fn heading(text: &str) {
    crate::say!("\n== {text}");
}

struct Demo {
    node: Node,
    clock: Arc<ManualClock>,
}

impl Demo {
    fn owner(&self, text: &str) -> Result<Owner, Failure> {
        text.parse().map_err(Failure::wrong_use)
    }

    fn scope(&self, owner: &Owner) -> OwnerScope {
        OwnerScope::of_verified_caller(self.node.codec.keys().id_key().owner(owner))
    }

    /// Plays the conversation, with the clock standing where the story is.
    async fn tell(&self) -> Result<(), Failure> {
        heading("consent first, then what was said");
        let owners = [self.owner(PATIENT)?, self.owner(OTHER)?];
        grant(&self.node, &mut self.node.flow()?, &owners).await?;
        crate::say!("granted by {PATIENT} and {OTHER}");
        let caller = Caller::local("hospital-7");
        for (number, line) in STORY
            .lines()
            .filter(|line| !line.starts_with('#'))
            .enumerate()
        {
            let mut fields = line.split('\t');
            let (Some(when), Some(who), Some(text)) = (fields.next(), fields.next(), fields.next())
            else {
                return Err(Failure::wrong_use(format!(
                    "line {} of the story",
                    number + 1
                )));
            };
            let (said_at, zone_minutes) =
                Timestamp::parse_with_zone(when).map_err(Failure::wrong_use)?;
            self.clock.set(said_at);
            let (owner, role) = match who {
                "patient" => (PATIENT, Role::User),
                "clinician" => (PATIENT, Role::Clinician),
                "assistant" => (PATIENT, Role::Assistant),
                _ => (OTHER, Role::User),
            };
            crate::say!("  {when}  {who:<9}  {text}");
            let message = Message {
                owner: self.owner(owner)?,
                source: SOURCE.to_owned(),
                event_id: format!("evt-{number:03}"),
                message: String::new(),
                conversation_id: Some(when[..10].to_owned()),
                turn_id: Some(format!("t-{number}")),
                message_id: None,
                role,
                speaker: None,
                at: said_at,
                zone_minutes,
                text: Text::new(text),
                context_tags: Vec::new(),
                injected: Vec::new(),
                structured: None,
            };
            let answer = self.node.intake().accept(&caller, vec![message]).await?;
            if let Some(rejected) = answer.rejected.first() {
                return Err(Failure::does_not_hold(&rejected.detail));
            }
            self.node.settle().await?;
        }
        self.clock.set(at("2026-11-20T10:00:00+08:00")?);
        Ok(())
    }

    async fn recall(
        &self,
        query: &str,
        as_of: Option<&str>,
        known_at: Option<&str>,
    ) -> Result<Answer, Failure> {
        let request = RecallRequest {
            owner: PATIENT.to_owned(),
            query: Text::new(query),
            as_of: as_of.map(str::to_owned),
            known_at: known_at.map(str::to_owned),
            ..RecallRequest::default()
        };
        let (owner, ask) = request
            .validate(self.clock.now())
            .map_err(|problem| Failure::wrong_use(problem.detail))?;
        let (recall, receipts) = self.node.recall();
        let stop = CancellationToken::new();
        let writer = tokio::spawn(receipts.run(stop.clone()));
        let answer = recall.recall(self.scope(&owner), &owner, "demo", ask).await;
        stop.cancel();
        let _ = writer.await;
        answer.map_err(|error| Failure::unreachable(error.to_string()))
    }

    async fn show(
        &self,
        query: &str,
        as_of: Option<&str>,
        known_at: Option<&str>,
    ) -> Result<(), Failure> {
        let clocks = match (as_of, known_at) {
            (None, None) => String::new(),
            (Some(valid), None) => format!("   [as of {valid}]"),
            (None, Some(known)) => format!("   [known at {known}]"),
            (Some(valid), Some(known)) => format!("   [as of {valid}, known at {known}]"),
        };
        crate::say!("? {query}{clocks}");
        let answer = self.recall(query, as_of, known_at).await?;
        if !answer.answerable {
            crate::say!("    nothing that answers this");
        }
        for recalled in answer.memories.iter().take(3) {
            let record = &recalled.record;
            let until = record
                .valid_to
                .map_or(String::new(), |to| format!(" until {to}"));
            crate::say!(
                "    {:.2} [{} {} {}] since {}{until}: {}",
                recalled.score.final_score,
                record.kind,
                record.subject,
                record.status,
                record.valid_from,
                record.text.expose()
            );
        }
        Ok(())
    }

    async fn ask(&self) -> Result<(), Failure> {
        heading("recall, in both languages");
        crate::say!("(embedding: {})", self.node.embed.identity());
        self.show("我能吃花生酱吗？", None, None).await?;
        self.show("Am I allergic to peanuts?", None, None).await?;
        self.show("我爸有什么病？", None, None).await?;
        self.show("What dose of warfarin do I take?", None, None)
            .await?;
        self.show("早上可以给我打电话吗？", None, None).await?;
        self.show("What is my favourite opera?", None, None).await?;
        heading("the same questions as of last year, and as known then");
        self.show("我对花生过敏吗？", Some("2025-12-01T00:00:00+08:00"), None)
            .await?;
        self.show(
            "What dose of warfarin do I take?",
            Some("2025-08-01T00:00:00+08:00"),
            None,
        )
        .await?;
        self.show(
            "What dose of warfarin do I take?",
            None,
            Some("2025-12-31T00:00:00+08:00"),
        )
        .await
    }

    async fn audit(&self) -> Result<(), Failure> {
        heading("from the answer back to the sentence");
        let answer = self.recall("我对花生过敏吗？", None, None).await?;
        if let Some(first) = answer.memories.first() {
            let found = explain(&*self.node.log, &self.node.codec, first.record.id, None).await?;
            if let Some(explanation) = found {
                crate::say_text!("{}", explanation_text(&explanation));
            }
        }
        heading("the log verifies, every store equals the fold, nothing is lost");
        self.check().await
    }

    async fn check(&self) -> Result<(), Failure> {
        let node = &self.node;
        let verified = verify(&*node.log, &node.codec, None, Some(node.redecide())).await?;
        crate::say_text!("{}", verified_text(&verified));
        let found = diff(
            &*node.log,
            &node.codec,
            &node.stores.projections(),
            node.embed.identity(),
        )
        .await?;
        crate::say_text!("{}", diff_text(&found));
        let counted = balance(&*node.log, &node.codec).await?;
        crate::say_text!("{}", balance_text(&counted));
        if verified.is_good() && found.is_clean() && counted.is_exact() {
            return Ok(());
        }
        Err(Failure::does_not_hold("the demo's data does not verify"))
    }

    async fn digests(&self) -> Result<Digests, Failure> {
        Ok(digests(&*self.node.log, &self.node.codec).await?)
    }

    /// Deletes every store and starts again: the same digests, the same bytes of an answer.
    async fn rebuild(self, config: Config) -> Result<Self, Failure> {
        heading("all four stores deleted, and rebuilt from the log");
        let question = "What dose of warfarin do I take?";
        let before = self.recall(question, None, None).await?.settled();
        let digests_before = self.digests().await?;
        let Self { node, clock } = self;
        drop(node);
        let stores = config.data_dir.join("stores");
        std::fs::remove_dir_all(&stores)
            .map_err(|error| Failure::unreachable(format!("cannot delete the stores: {error}")))?;
        let demo = Self {
            node: Node::open_with(config, clock.clone()).await?,
            clock,
        };
        demo.node.settle().await?;
        let digests_after = demo.digests().await?;
        let after = demo.recall(question, None, None).await?.settled();
        crate::say!("exact digest   {}", digests_after.exact);
        crate::say!("content digest {}", digests_after.content);
        if digests_before != digests_after || before != after {
            return Err(Failure::does_not_hold(
                "the rebuilt stores answer otherwise",
            ));
        }
        crate::say!("both digests and the answer's bytes are the same");
        demo.check().await?;
        Ok(demo)
    }

    async fn forget(&self) -> Result<(), Failure> {
        heading("a patient asks to be forgotten");
        let others_before = self.owner_digest(PATIENT).await?;
        let owner = self.owner(OTHER)?;
        let caller = Caller::local("hospital-7");
        let order = Order {
            caller: &caller,
            owner: &owner,
            key: None,
        };
        let targets = Targets {
            all: Some(true),
            ..Targets::default()
        };
        let reason = Text::new("the patient asked");
        let ordered = self
            .node
            .intake()
            .forget(&order, &targets, ForgetMode::Erase, &reason)
            .await?;
        self.node.settle().await?;
        let words = ["kumquat", "金橘"];
        let found = files_holding(&self.node.config.data_dir, &words)?;
        crate::say!(
            "{OTHER}: erased under {}; \"{}\" stands in {found} files of the data folder",
            ordered.erasure.map(|id| id.to_string()).unwrap_or_default(),
            words.join("\", \"")
        );
        let others_after = self.owner_digest(PATIENT).await?;
        crate::say!(
            "the other patient's digest is unchanged: {}",
            others_before == others_after
        );
        if found > 0 || others_before != others_after {
            return Err(Failure::does_not_hold(
                "the erasure did not come out as it must",
            ));
        }
        self.check().await
    }

    async fn owner_digest(&self, owner: &str) -> Result<anamnesis_domain::ids::Hash, Failure> {
        let owner = self.owner(owner)?;
        let key = self.node.codec.keys().id_key().owner(&owner);
        let (state, ..) = anamnesis_audit::replay::replay_owner(
            &*self.node.log,
            &self.node.codec,
            key,
            anamnesis_domain::time::Known::Latest,
        )
        .await?;
        Ok(anamnesis_domain::digest::exact(&state))
    }
}

/// How many files under a folder hold one of these words as bytes.
fn files_holding(dir: &Path, words: &[&str]) -> Result<usize, Failure> {
    let failed = |error: std::io::Error| {
        Failure::unreachable(format!("cannot read {}: {error}", dir.display()))
    };
    let mut found = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found += files_holding(&path, words)?;
            continue;
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        let holds = |word: &&str| {
            bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes())
        };
        found += usize::from(words.iter().any(holds));
    }
    Ok(found)
}

/// Imports in a process of its own, kills it three times with SIGKILL, and counts.
async fn kill_and_recover(scratch: &Path) -> Result<(), Failure> {
    heading("kill -9 while importing, three times");
    let data = scratch.join("killed");
    let file = scratch.join("many.jsonl");
    std::fs::write(&file, many_events(600))
        .map_err(|error| Failure::unreachable(format!("cannot write: {error}")))?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::unreachable(format!("cannot find this program: {error}")))?;
    for (attempt, delay_ms) in [150, 350, 600].into_iter().enumerate() {
        let mut child = Command::new(&program)
            .args(["import", "--consent", "--tenant", "hospital-7", "--data"])
            .arg(&data)
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::unreachable(format!("cannot start a process: {error}")))?;
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        // SIGKILL: no handler runs, nothing is flushed.
        let killed = child.kill().and_then(|()| child.wait());
        let how = killed.map_or_else(|error| error.to_string(), |status| status.to_string());
        crate::say!("import {} after {delay_ms} ms: {how}", attempt + 1);
    }
    let mut config = Config {
        tenant: "hospital-7".to_owned(),
        ..Config::default()
    };
    config.data_dir = data;
    let clock: Arc<dyn Clock> = Arc::new(anamnesis_pipeline::clock::SystemClock);
    let node = Node::open_with(config, clock).await?;
    node.settle().await?;
    let mut arguments = crate::commands::import::arguments(vec![file]);
    arguments.tenant = Some("hospital-7".to_owned());
    crate::commands::import::import(&node, &arguments).await?;
    let first = digests(&*node.log, &node.codec).await?;
    crate::commands::import::import(&node, &arguments).await?;
    let second = digests(&*node.log, &node.codec).await?;
    crate::say_text!("{}", balance_text(&balance(&*node.log, &node.codec).await?));
    crate::say!(
        "a further import changes nothing: {}",
        first.content == second.content
    );
    let counted = balance(&*node.log, &node.codec).await?;
    if !counted.is_exact() || first.content != second.content {
        return Err(Failure::does_not_hold(
            "the balance is not exact after the kills",
        ));
    }
    Ok(())
}

/// Events of a few patients, for the kill.
fn many_events(count: usize) -> String {
    let drugs = ["metformin", "amlodipine", "atorvastatin", "omeprazole"];
    let mut lines = String::new();
    for n in 0..count {
        let drug = drugs[n % drugs.len()];
        let text = match n % 3 {
            0 => format!("I take {drug} {} mg every day.", 5 + n % 7),
            1 => format!("我每天吃{drug} {} mg。", 5 + n % 7),
            _ => format!("I like song number {n}."),
        };
        let minute = n % 60;
        let hour = (n / 60) % 24;
        let line = serde_json::json!({
            "event_id": format!("many-{n}"),
            "owner": format!("hospital-7/patient/k-{}", n % 5),
            "role": "user",
            "at": format!("2026-10-01T{hour:02}:{minute:02}:00+08:00"),
            "text": text,
        });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    lines
}
