//! A node in a temporary folder that a set is told to and asked: intake, stages, stores and recall as
//! they run in `serve`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anamnesis_audit::replay::each_record;
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::{CandidateSet, Topic, Turn};
use anamnesis_domain::memory::{Kind, Memory, Role, Status};
use anamnesis_domain::owner::{Owner, OwnerScope, Scope};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_intake::message::Message;
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::{Clock, ManualClock, SystemClock};
use anamnesis_pipeline::codec::Opened;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::Record;
use anamnesis_pipeline::stores::{Filter, Order, SubjectFilter};
use anamnesis_recall::answer::Answer;
use anamnesis_recall::request::{Ask, TOP_K_MAX};
use anamnesis_recall::service::Recall;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::Language;
use crate::commands::import::{self, Report};
use crate::config::{Config, Episodes, Period};
use crate::eval::score::share;
use crate::failure::Failure;
use crate::node::Node;
use crate::services::Flow;

/// Messages that are accepted before the stages catch up.
const CHUNK: usize = 2_000;
/// The legs' deadlines: what is measured is what is found, however busy the machine is.
const PATIENCE_SECONDS: u64 = 30;

pub struct World {
    pub node: Node,
    tenant: &'static str,
    flow: Flow,
    granted: BTreeSet<Owner>,
    recall: Arc<Recall>,
    stop: CancellationToken,
    writer: JoinHandle<()>,
    /// Last, so that the node is closed before its folder goes.
    _folder: TempDir,
}

/// Which units each leg, their fusion and the whole of recall return, best first, each unit once.
pub struct Ranked {
    pub rows: [(&'static str, Vec<String>); 5],
    /// Relevance of the best memory, 0 without one.
    pub relevance: f64,
    /// Whether it clears the floor that recall answers from.
    pub is_answered: bool,
}

impl Ranked {
    /// What recall returns, floor aside.
    pub fn full(&self) -> &[String] {
        &self.rows[4].1
    }
}

impl World {
    /// Opens an empty node whose clock stands at `now`, or runs.
    ///
    /// # Errors
    /// When the folder cannot be made or the node cannot be opened.
    pub async fn open(
        config: &Config,
        tenant: &'static str,
        episodes: Episodes,
        now: Option<Timestamp>,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::unreachable(format!("cannot make a folder: {error}")))?;
        let mut config = config.clone();
        config.data_dir = folder.path().to_owned();
        config.tenant = tenant.to_owned();
        config.extraction.set_episodes(episodes);
        config.recall.text_deadline = Period::secs(PATIENCE_SECONDS);
        config.recall.vector_deadline = Period::secs(PATIENCE_SECONDS);
        config.recall.graph_deadline = Period::secs(PATIENCE_SECONDS);
        let clock: Arc<dyn Clock> = match now {
            Some(now) => Arc::new(ManualClock::new(now)),
            None => Arc::new(SystemClock),
        };
        let node = Node::open_with(config, clock).await?;
        let flow = node.flow()?;
        let (recall, receipts) = node.recall();
        let stop = CancellationToken::new();
        let writer = tokio::spawn(receipts.run(stop.clone()));
        Ok(Self {
            flow,
            node,
            tenant,
            granted: BTreeSet::new(),
            recall,
            stop,
            writer,
            _folder: folder,
        })
    }

    /// Writes what is left of the receipts and closes the node.
    pub async fn close(self) {
        self.stop.cancel();
        // A writer that was stopped has nothing more to say.
        let _ = self.writer.await;
    }

    /// # Errors
    /// When an id of the set cannot be an owner's.
    pub fn owner(&self, id: &str) -> Result<Owner, Failure> {
        Owner::new(self.tenant, Scope::Patient, id).map_err(Failure::wrong_use)
    }

    fn scope(&self, owner: &Owner) -> OwnerScope {
        OwnerScope::of_verified_caller(self.node.codec.keys().id_key().owner(owner))
    }

    /// Imports files of the set as `anamnesis import --consent` does.
    ///
    /// # Errors
    /// When a file cannot be read or a line is turned down.
    pub async fn import(
        &self,
        files: Vec<std::path::PathBuf>,
        language: Option<Language>,
    ) -> Result<Report, Failure> {
        files.iter().try_for_each(|file| exists(file))?;
        let mut arguments = import::arguments(files);
        arguments.language = language;
        let report = import::import(&self.node, &arguments).await?;
        if report.rejected > 0 {
            return Err(Failure::wrong_use(format!(
                "{} lines of the set are not as expected",
                report.rejected
            )));
        }
        Ok(report)
    }

    /// Consents for whoever is new, accepts, decides and stores.
    ///
    /// # Errors
    /// When a message is turned down or something could not be made durable.
    pub async fn say(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        let owners: BTreeSet<Owner> = messages.iter().map(|m| m.owner.clone()).collect();
        let new: Vec<Owner> = owners.difference(&self.granted).cloned().collect();
        self.grant(&new).await?;
        self.granted.extend(new);
        let intake = self.node.intake();
        let caller = Caller::local(self.tenant);
        for chunk in messages.chunks(CHUNK) {
            let answer = intake.accept(&caller, chunk.to_vec()).await?;
            if let Some(rejected) = answer.rejected.first() {
                return Err(Failure::wrong_use(format!(
                    "a message of the set was turned down: {}",
                    rejected.detail
                )));
            }
            self.flow.settle().await?;
        }
        Ok(())
    }

    /// Writes a grant for each of these owners.
    ///
    /// # Errors
    /// When it could not be written or decided.
    pub async fn grant(&mut self, owners: &[Owner]) -> Result<(), Failure> {
        import::grant(&self.node, &mut self.flow, owners).await
    }

    /// Decides and stores what was accepted.
    ///
    /// # Errors
    /// When a stage fails.
    pub async fn settle(&mut self) -> Result<(), Failure> {
        Ok(self.flow.settle().await?)
    }

    /// # Errors
    /// When the authority cannot be asked.
    pub async fn ask(&self, owner: &Owner, ask: Ask) -> Result<Answer, Failure> {
        let answer = self
            .recall
            .recall(self.scope(owner), owner, "eval", ask)
            .await;
        answer.map_err(|error| Failure::unreachable(error.to_string()))
    }

    /// Asks once and reads each leg's ranking out of the explained answer. The floor is taken away, since
    /// rankings are compared; whether it would have been cleared is told beside them.
    ///
    /// # Errors
    /// As [`World::ask`].
    pub async fn ranked(
        &self,
        owner: &Owner,
        mut ask: Ask,
        units: &BTreeMap<MemoryId, String>,
    ) -> Result<Ranked, Failure> {
        ask.min_score = Some(0.0);
        ask.explain = true;
        ask.top_k = TOP_K_MAX as usize;
        let answer = self.ask(owner, ask).await?;
        let floor = self.node.config.recall.floor.share();
        let relevance = answer
            .memories
            .iter()
            .map(|one| one.score.relevance)
            .fold(0.0, f64::max);
        let returned = answer.memories.iter().map(|one| one.record.id);
        let full = distinct(returned, units);
        let proposed = answer
            .explain
            .map(|explain| explain.proposed)
            .unwrap_or_default();
        Ok(Ranked {
            rows: [
                ("text", distinct(proposed.text, units)),
                ("vector", distinct(proposed.vector, units)),
                ("graph", distinct(proposed.graph, units)),
                ("fused", distinct(proposed.fused, units)),
                ("full", full),
            ],
            relevance,
            is_answered: relevance >= floor,
        })
    }

    /// Every memory of an owner, whatever its status, from the authority.
    ///
    /// # Errors
    /// When the authority cannot be asked.
    pub async fn memories(&self, owner: &Owner) -> Result<Vec<Memory>, Failure> {
        let records = &self.node.stores.records;
        let scope = self.scope(owner);
        let filter = Filter {
            scope,
            cut: records.cut(scope, Known::Latest).await?,
            valid_at: None,
            time_range: None,
            kinds: None,
            statuses: Status::ALL.to_vec(),
            subject: SubjectFilter::Any,
            context_tags: None,
        };
        let mut memories = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = records
                .list(&filter, Order::Valid, 500, cursor.as_deref())
                .await?;
            memories.extend(page.versions.into_iter().map(|version| version.memory));
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(memories);
            }
        }
    }

    /// The unit of each of an owner's memories.
    ///
    /// # Errors
    /// As [`World::memories`].
    pub async fn units(
        &self,
        owner: &Owner,
        unit: impl Fn(&Memory) -> String,
    ) -> Result<BTreeMap<MemoryId, String>, Failure> {
        let memories = self.memories(owner).await?;
        Ok(memories.iter().map(|one| (one.id, unit(one))).collect())
    }

    /// Every message as intake sealed it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn turns(&self) -> Result<Vec<Turn>, Failure> {
        let opened = self.opened(Topic::Conversation).await?.into_iter();
        let mut turns = Vec::new();
        for opened in opened {
            if let Opened::Turn { turn, .. } = opened {
                turns.push(*turn);
            }
        }
        Ok(turns)
    }

    /// What extraction found in each message.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn candidates(&self) -> Result<Vec<CandidateSet>, Failure> {
        let opened = self.opened(Topic::Candidates).await?.into_iter();
        let mut sets = Vec::new();
        for opened in opened {
            if let Opened::Candidates { set, .. } = opened {
                sets.push(*set);
            }
        }
        Ok(sets)
    }

    /// Share of the messages in which extraction found at least one fact; the turn itself is none.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn coverage(&self) -> Result<f64, Failure> {
        let sets = self.candidates().await?;
        let found: Vec<f64> = sets.iter().map(|set| share(has_fact(set))).collect();
        Ok(super::score::mean(&found))
    }

    async fn opened(&self, topic: Topic) -> Result<Vec<Opened>, Failure> {
        let mut records: Vec<Record> = Vec::new();
        for partition in 0..self.node.log.partitions() {
            each_record(&*self.node.log, topic, partition, &mut |record| {
                records.push(record.clone());
            })
            .await?;
        }
        let opened = self.node.codec.open(&records).await;
        let opened = opened.map_err(StageError::from)?.into_iter();
        Ok(opened.collect::<Result<_, _>>()?)
    }
}

pub fn has_fact(set: &CandidateSet) -> bool {
    let kinds = set.candidates.iter().map(|one| one.claim.kind);
    kinds.into_iter().any(|kind| kind != Kind::Episode)
}

fn distinct(
    ids: impl IntoIterator<Item = MemoryId>,
    units: &BTreeMap<MemoryId, String>,
) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let known = ids.into_iter().filter_map(|id| units.get(&id));
    known.filter(|unit| seen.insert(*unit)).cloned().collect()
}

/// # Errors
/// Names the file that is not there.
pub fn exists(file: &Path) -> Result<(), Failure> {
    if file.is_file() {
        return Ok(());
    }
    Err(Failure::wrong_use(format!(
        "{} is missing: --data names the folder that holds the sets",
        file.display()
    )))
}

/// One message of a set that has no shape of its own.
pub fn message(
    owner: &Owner,
    event_id: impl Into<String>,
    role: Role,
    at: Timestamp,
    text: &str,
) -> Message {
    Message {
        owner: owner.clone(),
        source: format!("eval/{}", owner.id()),
        event_id: event_id.into(),
        message: String::new(),
        conversation_id: Some(owner.id().to_owned()),
        turn_id: None,
        message_id: None,
        role,
        speaker: None,
        at,
        zone_minutes: 0,
        text: Text::new(text),
        context_tags: Vec::new(),
        injected: Vec::new(),
        structured: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_stands_where_it_comes_first() {
        let id = |n| MemoryId::from_bytes([n; 16]);
        let units = BTreeMap::from([
            (id(1), "turn-a".to_owned()),
            (id(2), "turn-b".to_owned()),
            (id(3), "turn-a".to_owned()),
        ]);
        let ranked = distinct([id(3), id(9), id(2), id(1)], &units);
        assert_eq!(ranked, ["turn-a", "turn-b"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let missing = exists(Path::new("no-such-folder/facts.jsonl")).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("no-such-folder/facts.jsonl")
        );
    }
}
