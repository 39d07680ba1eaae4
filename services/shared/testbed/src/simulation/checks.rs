//! What must hold after a run, and the run in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_audit::replay::{Step, read_partition};
use anamnesis_domain::digest;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::invariants;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::Known;
use anamnesis_domain::transition::PartBody;
use anamnesis_pipeline::codec::Opened;
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::{EventLog as _, Record};
use anamnesis_pipeline::stores::Projection;

use super::Ran;
use super::storm::Sim;
use crate::naive;
use crate::world::{START, believed};

impl Sim {
    async fn exact(&self) -> BTreeMap<OwnerKey, Hash> {
        let states = self.world.states().await;
        states
            .iter()
            .map(|(key, state)| (*key, digest::exact(state)))
            .collect()
    }

    async fn check(&mut self) -> Result<(), String> {
        for replayed in self.world.replay().await {
            for (owner, state) in &replayed.states {
                invariants::check(state)
                    .map_err(|violation| format!("{owner}: {violation}\n{:#?}", believed(state)))?;
            }
            if let Some((owner, broken)) = replayed.skeleton.broken_owners().next() {
                return Err(format!("{owner} is broken: {broken:?}"));
            }
        }
        self.check_balance().await?;
        let stores: Vec<Arc<dyn Projection>> = self
            .stores
            .iter()
            .map(|store| store.clone() as Arc<dyn Projection>)
            .collect();
        let diff = self.world.diff(&stores).await;
        if !diff.is_clean() {
            return Err(format!("the stores are not the fold: {diff:?}"));
        }
        let verified = self.world.verify().await;
        if !verified.is_good() {
            return Err(format!("the log does not verify: {:?}", verified.bad));
        }
        Ok(())
    }

    async fn check_balance(&self) -> Result<(), String> {
        let mut balance = self.world.balance().await;
        // A turn that was extracted twice and erased in between is answered a second time, by
        // `rejected(erased)`; the balance counts that as a fault.
        balance.answered_twice -= balance.answered_twice.min(self.extracted_twice().await);
        if !balance.is_exact() || balance.in_flight + balance.parked > 0 {
            return Err(format!("the balance is not exact: {balance:?}"));
        }
        Ok(())
    }

    /// Decisions that refuse, as erased, a turn that another candidates record had brought before.
    async fn extracted_twice(&self) -> u64 {
        let mut seen = BTreeMap::new();
        let mut count = 0;
        for partition in 0..self.world.calm.partitions() {
            let see = &mut |step: &Step<'_>| {
                if let (Folded::Decision(_, Verdict::Apply), Some(opened)) =
                    (&step.folded, step.decided)
                {
                    let cause = opened.decided.cause;
                    let first = *seen.entry(cause.origin).or_insert(cause.position);
                    let is_refused = opened.decided.outcome.code() == "rejected(erased)";
                    count += u64::from(first != cause.position && is_refused);
                }
            };
            let codec = &self.world.codec;
            let read =
                read_partition(&*self.world.calm, codec, partition, Known::Latest, see).await;
            read.expect("the log is readable");
        }
        count
    }

    async fn report(mut self) -> Result<Ran, String> {
        let mut ran = Ran::default();
        for replayed in self.world.replay().await {
            self.faults.fenced += replayed.skeleton.fenced;
            self.faults.repeats += replayed.skeleton.repeats;
            for (owner, state) in &replayed.states {
                ran.content.insert(*owner, digest::content(state));
                let beliefs = naive::read(state);
                let told = beliefs.iter().map(|belief| format!("{belief:?}")).collect();
                ran.believed.insert(*owner, told);
                debug_assert_eq!(beliefs.len(), believed(state).len());
            }
        }
        ran.faults = self.faults;
        for record in self.world.calm.dump() {
            let opened = self.world.codec.open(std::slice::from_ref(&record)).await;
            let opened = opened.map_err(|error| error.to_string())?.remove(0);
            let at = record.appended_at.millis() - START.millis();
            let told = match opened {
                Ok(Opened::Decided(opened)) => {
                    let decided = &opened.decided;
                    ran.outcomes
                        .entry(decided.cause.position)
                        .or_insert(decided.outcome.code());
                    let parts: Vec<String> = decided
                        .parts
                        .iter()
                        .map(|part| match &part.body {
                            PartBody::Open(body) => serde_json::to_string(body).unwrap_or_default(),
                            PartBody::Unreadable => format!("unreadable {}", part.code),
                        })
                        .collect();
                    format!(
                        "decided {} {} by {} on {} at {}: {} {parts:?} {:?}",
                        decided.owner,
                        decided.owner_seq,
                        decided.writer_epoch,
                        decided.cause.position,
                        decided.decided_at,
                        decided.outcome.code(),
                        decided.detail,
                    )
                }
                Ok(Opened::WriterStarted { at, .. }) => format!("writer started at {at}"),
                Ok(Opened::Turn { meta, .. }) => format!("turn {} {}", meta.event, meta.key_epoch),
                Ok(Opened::Candidates { meta, set }) => {
                    format!("candidates {} {}", meta.origin, set.candidates.len())
                }
                Ok(Opened::Command { meta, command }) => {
                    format!("{} {:?}", meta.event, command.command)
                }
                Ok(Opened::Erased { meta }) => format!("erased {} {}", meta.event, meta.code),
                Ok(Opened::Embedding {
                    memory_id, vector, ..
                }) => {
                    format!("vector of {memory_id}: {}", vector.is_some())
                }
                Ok(other) => format!("{other:?}"),
                Err(error) => format!("{error}"),
            };
            ran.log.push(format!("{} {at}: {told}", record.position));
        }
        Ok(ran)
    }
}

