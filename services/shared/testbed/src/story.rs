//! Stories: what was said, and what is then believed and recalled, as of when. A clinician can
//! read them. The same files are played over doubles and over real stores.

mod reviews;

use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{EventTag, OwnerKey};
use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::{Claim, Kind, Memory, Role, Status};
use anamnesis_domain::owner::{Owner, OwnerScope, Scope, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_extractor::stage::Extractor;
use anamnesis_extractor::{Episodes, query_entities, query_persons, query_subject, query_things};
use anamnesis_indexer::stage::Indexer;
use anamnesis_intake::commands::Order;
use anamnesis_intake::message::Message;
use anamnesis_intake::request::{ConsentChange, ForgetMode, Targets};
use anamnesis_intake::service::{Intake, Settings, StatementReader};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::{Clock, ManualClock};
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::{Consumer, Progress, Stage};
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::reviews::EXPIRES_MILLIS;
use anamnesis_pipeline::snapshots::{MemorySnapshots, Snaps};
use anamnesis_pipeline::stores::{Filter, Order as ListOrder, Stores, SubjectFilter};
use anamnesis_recall::answer::Answer;
use anamnesis_recall::request::RecallRequest;
use anamnesis_recall::reviews::LogRejects;
use anamnesis_recall::service::{Parts, Recall, RecallSettings};
use anamnesis_recall::understand::QueryReader;
use anamnesis_validity_manager::decide::Rules;
use anamnesis_validity_manager::stage::ValidityManager;
use serde::Deserialize;

const TENANT: &str = "scenario";

/// A file: a title and what happens, in order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    title: String,
    step: Vec<Step>,
}

/// One thing that happens, or one thing that is checked.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Step {
    /// The clock stands here from now on.
    at: Option<String>,
    /// Whose conversation; `p1` unless said otherwise.
    owner: Option<String>,
    /// Who speaks; the user unless said otherwise.
    by: Option<Role>,
    says: Option<String>,
    /// When it was said, if that is not when it arrives.
    said_at: Option<String>,
    /// Id of the event; numbered unless given. The same id again is the same event.
    event: Option<String>,
    /// Outcome that the decision on it must have.
    outcome: Option<String>,
    /// Makes the message of this event unreadable.
    erases: Option<String>,
    /// An event as a platform sends it, in JSON.
    sends: Option<String>,
    /// Code and field with which `sends` is refused.
    refused: Option<String>,

    /// Words of questions that wait for a person: of either side.
    asked_of_a_person: Vec<String>,
    /// How many wait.
    open_reviews: Option<usize>,
    /// What a person decides about the question that has these words.
    decides: Option<Decides>,

    asks: Option<String>,
    as_of: Option<String>,
    known_at: Option<String>,
    about: Option<Subject>,
    /// Words that stand in some answer.
    told: Vec<String>,
    /// Words that stand in no answer.
    not_told: Vec<String>,
    /// Words of the first answer.
    first: Option<String>,
    answerable: Option<bool>,
    /// How many erasures since the time asked about the answer names.
    erasures_told: Option<usize>,

    /// Words of memories (turns themselves aside) that hold at `as_of`, as `words` or `words (status)`.
    holds: Vec<String>,
    lacks: Vec<String>,
    /// How many memories hold.
    count: Option<usize>,
    /// Words of what is on record as never true.
    never_true: Vec<String>,
    /// Words of what waits for a person before it counts.
    waits: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decides {
    /// Words of the question.
    about: String,
    /// `open`, `decided`, `expired` or `rejected`; open unless said otherwise.
    state: Option<String>,
    verdict: String,
    by: String,
    /// Code of the problem that comes in place of a decision, or of the decision that turns it down.
    refused: Option<String>,
}

/// What a scenario is played over.
#[derive(Clone)]
pub struct Ground {
    pub log: Log,
    pub codec: Codec,
    pub stores: Stores,
    pub embed: Embed,
    pub clock: Arc<ManualClock>,
}

struct Lexicon;

impl QueryReader for Lexicon {
    fn entities(&self, text: &str) -> Vec<anamnesis_domain::memory::Entity> {
        query_entities(text)
    }

    fn subject(&self, text: &str) -> Option<Subject> {
        query_subject(text)
    }

    fn things(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        query_things(text)
    }

    fn persons(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        query_persons(text)
    }
}

impl StatementReader for Lexicon {
    fn read(&self, turn: &Turn) -> Vec<Claim> {
        anamnesis_extractor::statements(turn)
    }
}

/// Plays every file of a folder, each over a ground of its own, and says what does not hold.
///
/// # Panics
/// When the folder holds no scenario: a suite that plays nothing tests nothing.
pub async fn play_all<F>(folder: &Path, make: impl Fn() -> F) -> Vec<String>
where
    F: Future<Output = Ground>,
{
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of scenarios")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no scenario", folder.display());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a scenario can be read");
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match toml::from_str::<Scenario>(&text) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(scenario) => {
                let mut play = Play::new(make().await);
                for (number, step) in scenario.step.iter().enumerate() {
                    if let Err(what) = play.step(step).await {
                        wrong.push(format!(
                            "{name} ({}), step {}: {what}",
                            scenario.title,
                            number + 1
                        ));
                    }
                }
            }
        }
    }
    wrong
}

struct Play {
    ground: Ground,
    intake: Intake,
    recall: Arc<Recall>,
    consumers: Vec<Consumer>,
    granted: Vec<String>,
    events: usize,
    zone_minutes: i32,
}

impl Play {
    fn new(ground: Ground) -> Self {
        let snapshots: Snaps = Arc::new(MemorySnapshots::default());
        let clock: Arc<dyn Clock> = ground.clock.clone();
        let (log, codec) = (ground.log.clone(), ground.codec.clone());
        let stages: Vec<Arc<dyn Stage>> = vec![
            Arc::new(Extractor {
                log: log.clone(),
                codec: codec.clone(),
                episodes: Episodes::All,
                snapshots: snapshots.clone(),
                asker: None,
            }),
            Arc::new(ValidityManager {
                log: log.clone(),
                codec: codec.clone(),
                rules: Rules::default(),
                snapshots: snapshots.clone(),
            }),
            Arc::new(Indexer {
                log: log.clone(),
                codec: codec.clone(),
                embed: ground.embed.clone(),
                stores: ground.stores.projections(),
                snapshots,
                copy: None,
                is_on_server: false,
            }),
        ];
        let mut consumers = Vec::new();
        for stage in &stages {
            for partition in 0..log.partitions() {
                consumers.push(Consumer::new(
                    log.clone(),
                    stage.clone(),
                    partition,
                    clock.clone(),
                ));
            }
        }
        // Receipts stay in the queue: a scenario is about answers.
        let (recall, _receipts) = Recall::new(Parts {
            stores: ground.stores.clone(),
            embed: ground.embed.clone(),
            log: log.clone(),
            sealer: Arc::new(codec.clone()),
            rejects: Arc::new(LogRejects {
                log: log.clone(),
                codec: codec.clone(),
            }),
            review_expires_millis: EXPIRES_MILLIS,
            ids: codec.keys().id_key().clone(),
            clock: clock.clone(),
            reader: Arc::new(Lexicon),
            settings: RecallSettings::default(),
        });
        let intake = Intake {
            log,
            codec,
            records: ground.stores.records.clone(),
            clock,
            reader: Arc::new(Lexicon),
            settings: Settings::default(),
        };
        Self {
            ground,
            intake,
            recall,
            consumers,
            granted: Vec::new(),
            events: 0,
            zone_minutes: 0,
        }
    }

    async fn settle(&mut self) -> Result<(), String> {
        loop {
            let mut is_idle = true;
            for consumer in &mut self.consumers {
                match consumer.turn().await {
                    Ok(Progress::Idle) => (),
                    Ok(Progress::Began | Progress::Advanced(_)) => is_idle = false,
                    Err(error) => return Err(error.to_string()),
                }
            }
            if is_idle {
                return Ok(());
            }
        }
    }

    fn owner(&self, step: &Step) -> Result<Owner, String> {
        let id = step.owner.as_deref().unwrap_or("p1");
        Owner::new(TENANT, Scope::Patient, id).map_err(|error| error.to_string())
    }

    fn scope(&self, owner: &Owner) -> OwnerScope {
        OwnerScope::of_verified_caller(self.key(owner))
    }

    fn key(&self, owner: &Owner) -> OwnerKey {
        self.ground.codec.keys().id_key().owner(owner)
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        if let Some(at) = &step.at {
            let (at, zone) = Timestamp::parse_with_zone(at).map_err(|error| error.to_string())?;
            self.ground.clock.set(at);
            self.zone_minutes = zone;
        }
        let owner = self.owner(step)?;
        if let Some(text) = &step.says {
            self.say(step, &owner, text).await?;
        }
        if let Some(event) = &step.erases {
            self.erase(&owner, event).await?;
        }
        if let Some(event) = &step.sends {
            self.send(step, &owner, event).await?;
        }
        if let Some(decides) = &step.decides {
            self.decide(&owner, decides).await?;
        }
        if let Some(query) = &step.asks {
            self.ask(step, &owner, query).await?;
        }
        if !step.asked_of_a_person.is_empty() || step.open_reviews.is_some() {
            self.check_reviews(step, &owner).await?;
        }
        if !step.holds.is_empty() || !step.lacks.is_empty() || step.count.is_some() {
            self.check_state(step, &owner).await?;
        }
        for (wanted, status) in [
            (&step.never_true, Status::Retired),
            (&step.waits, Status::PendingReview),
        ] {
            if !wanted.is_empty() {
                self.check_status(step, &owner, wanted, status).await?;
            }
        }
        Ok(())
    }

    async fn grant(&mut self, owner: &Owner) -> Result<(), String> {
        if self.granted.contains(&owner.to_string()) {
            return Ok(());
        }
        let caller = Caller::local(TENANT);
        let order = Order {
            caller: &caller,
            owner,
            key: None,
        };
        let ask = ConsentChange {
            max_sensitivity: Some(4.into()),
            valid_from: Some(Timestamp::from_millis(0)),
            ..ConsentChange::default()
        };
        self.intake
            .consent(&order, &ask)
            .await
            .map_err(|error| error.to_string())?;
        self.granted.push(owner.to_string());
        self.settle().await
    }

    fn event(&self, owner: &Owner, id: &str) -> EventTag {
        self.ground
            .codec
            .keys()
            .id_key()
            .event(self.key(owner), "chat", id, "")
    }

    async fn say(&mut self, step: &Step, owner: &Owner, text: &str) -> Result<(), String> {
        self.grant(owner).await?;
        self.events += 1;
        let event_id = step
            .event
            .clone()
            .unwrap_or_else(|| format!("e{}", self.events));
        let said_at = match &step.said_at {
            Some(at) => Timestamp::parse(at).map_err(|error| error.to_string())?,
            None => self.ground.clock.now(),
        };
        let message = Message {
            owner: owner.clone(),
            source: "chat".to_owned(),
            event_id: event_id.clone(),
            message: String::new(),
            conversation_id: Some("c1".to_owned()),
            turn_id: None,
            message_id: None,
            role: step.by.unwrap_or(Role::User),
            speaker: None,
            at: said_at,
            zone_minutes: self.zone_minutes,
            text: Text::new(text),
            context_tags: Vec::new(),
            injected: Vec::new(),
            structured: None,
        };
        let caller = Caller::local(TENANT);
        let answer = self
            .intake
            .accept(&caller, vec![message])
            .await
            .map_err(|error| error.to_string())?;
        if let Some(rejected) = answer.rejected.first() {
            return Err(format!("rejected: {}", rejected.code));
        }
        self.settle().await?;
        if let Some(expected) = &step.outcome {
            let position = answer.accepted[0].position;
            let found = self.outcome_at(owner, position).await?;
            if found.as_deref() != Some(expected.as_str()) {
                return Err(format!("decided {found:?}, not {expected}"));
            }
        }
        Ok(())
    }

    /// The decision on one record, which for a repeat is not the decision on the event.
    async fn outcome_at(
        &self,
        owner: &Owner,
        origin: anamnesis_domain::input::Position,
    ) -> Result<Option<String>, String> {
        let mut found = None;
        anamnesis_audit::replay::read_partition(
            &*self.ground.log,
            &self.ground.codec,
            anamnesis_pipeline::log::partition_of(self.key(owner), self.ground.log.partitions()),
            Known::Latest,
            &mut |seen| {
                if let Some(decided) = seen.decided
                    && decided.decided.cause.origin == origin
                {
                    found = Some(decided.decided.outcome.code());
                }
            },
        )
        .await
        .map_err(|error| error.to_string())?;
        Ok(found)
    }

    async fn erase(&mut self, owner: &Owner, event: &str) -> Result<(), String> {
        let caller = Caller::local(TENANT);
        let order = Order {
            caller: &caller,
            owner,
            key: None,
        };
        let targets = Targets {
            message: Some(self.event(owner, event).to_string()),
            ..Targets::default()
        };
        let reason = Text::new("asked");
        self.intake
            .forget(&order, &targets, ForgetMode::Erase, &reason)
            .await
            .map_err(|error| error.to_string())?;
        self.settle().await
    }

    async fn ask(&self, step: &Step, owner: &Owner, query: &str) -> Result<(), String> {
        let request = RecallRequest {
            owner: owner.to_string(),
            query: Text::new(query),
            as_of: step.as_of.clone(),
            known_at: step.known_at.clone(),
            subject: step.about.as_ref().map(ToString::to_string),
            ..RecallRequest::default()
        };
        let (owner, ask) = request
            .validate(self.ground.clock.now())
            .map_err(|problem| problem.detail)?;
        let scope = self.scope(&owner);
        let answer = self
            .recall
            .recall(scope, &owner, "scenario", ask)
            .await
            .map_err(|error| error.to_string())?;
        check_answer(step, &answer)
    }

    async fn check_status(
        &self,
        step: &Step,
        owner: &Owner,
        wanted: &[String],
        status: Status,
    ) -> Result<(), String> {
        let shown = self.shown(step, owner, vec![status], None).await?;
        for wanted in wanted {
            if !shown.iter().any(|memory| fits(memory, wanted)) {
                return Err(format!("\"{wanted}\" is not {status}; what is: {shown:?}"));
            }
        }
        Ok(())
    }

    async fn check_state(&self, step: &Step, owner: &Owner) -> Result<(), String> {
        let statuses = vec![Status::Active, Status::Superseded, Status::Conflicted];
        let at = instant(&step.as_of)?.unwrap_or_else(|| self.ground.clock.now());
        let shown = self.shown(step, owner, statuses, Some(at)).await?;
        for wanted in &step.holds {
            if !shown.iter().any(|memory| fits(memory, wanted)) {
                return Err(format!("\"{wanted}\" does not hold; what holds: {shown:?}"));
            }
        }
        for unwanted in &step.lacks {
            if let Some(memory) = shown.iter().find(|memory| fits(memory, unwanted)) {
                return Err(format!("\"{unwanted}\" holds: {memory}"));
            }
        }
        match step.count {
            Some(count) if count != shown.len() => Err(format!(
                "{} memories hold, not {count}: {shown:?}",
                shown.len()
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// The owner's memories of these statuses, in words: those that hold at an instant, or all.
    async fn shown(
        &self,
        step: &Step,
        owner: &Owner,
        statuses: Vec<Status>,
        valid_at: Option<Timestamp>,
    ) -> Result<Vec<String>, String> {
        let records = &self.ground.stores.records;
        let scope = self.scope(owner);
        let known = instant(&step.known_at)?.map_or(Known::Latest, Known::At);
        let filter = Filter {
            scope,
            cut: records
                .cut(scope, known)
                .await
                .map_err(|error| error.to_string())?,
            valid_at,
            time_range: None,
            kinds: Some(
                Kind::ALL
                    .iter()
                    .copied()
                    .filter(|kind| *kind != Kind::Episode)
                    .collect(),
            ),
            statuses,
            subject: step
                .about
                .clone()
                .map_or(SubjectFilter::Any, SubjectFilter::Only),
            context_tags: None,
        };
        let page = records
            .list(&filter, ListOrder::Recorded, 500, None)
            .await
            .map_err(|error| error.to_string())?;
        Ok(page
            .versions
            .iter()
            .map(|version| show(&version.memory))
            .collect())
    }
}

fn instant(text: &Option<String>) -> Result<Option<Timestamp>, String> {
    text.as_deref()
        .map(Timestamp::parse)
        .transpose()
        .map_err(|error| error.to_string())
}

fn show(memory: &Memory) -> String {
    let claim = &memory.claim;
    let value = claim.value.as_deref().unwrap_or("");
    let schedule = claim.schedule.as_deref().unwrap_or("");
    format!(
        "{} {} {value} {} {schedule} {} ({})",
        claim.text.expose(),
        claim.kind,
        claim.polarity,
        memory.standing.valid_from,
        memory.standing.status
    )
}

/// Every word of `wanted` stands in what is shown.
fn fits(shown: &str, wanted: &str) -> bool {
    wanted.split_whitespace().all(|word| shown.contains(word))
}

fn check_answer(step: &Step, answer: &Answer) -> Result<(), String> {
    let shown: Vec<String> = answer
        .memories
        .iter()
        .map(|recalled| {
            let record = &recalled.record;
            format!(
                "{} [{} {}]",
                record.text.expose(),
                record.subject,
                record.status
            )
        })
        .collect();
    for wanted in &step.told {
        if !shown.iter().any(|memory| memory.contains(wanted)) {
            return Err(format!("\"{wanted}\" is not told; told: {shown:?}"));
        }
    }
    for unwanted in &step.not_told {
        if let Some(memory) = shown.iter().find(|memory| memory.contains(unwanted)) {
            return Err(format!("\"{unwanted}\" is told: {memory}"));
        }
    }
    if let Some(first) = &step.first
        && !shown.first().is_some_and(|memory| memory.contains(first))
    {
        return Err(format!("\"{first}\" is not first: {shown:?}"));
    }
    if let Some(expected) = step.erasures_told
        && expected != answer.erased.len()
    {
        return Err(format!(
            "{} erasures are told, not {expected}",
            answer.erased.len()
        ));
    }
    match step.answerable {
        Some(expected) if expected != answer.answerable => {
            Err(format!("answerable is {}: {shown:?}", answer.answerable))
        }
        Some(_) | None => Ok(()),
    }
}
