//! What must hold after a run, and the run in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_audit::replay::{Step, read_partition};
use anamnesis_domain::digest;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::Cause;
use anamnesis_domain::invariants;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::Known;
use anamnesis_domain::transition::PartBody;
use anamnesis_pipeline::codec::Opened;
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::EventLog as _;
use anamnesis_pipeline::stores::Projection;

use super::Ran;
use super::storm::Sim;
use crate::naive;
use crate::world::{START, believed};

impl Sim {
    /// Checks everything; gives the digest of every owner's state.
    pub(super) async fn check(&self) -> Result<BTreeMap<OwnerKey, Hash>, String> {
        let mut exact = BTreeMap::new();
        for replayed in self.world.replay().await {
            for (owner, state) in &replayed.states {
                exact.insert(*owner, digest::exact(state));
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
        Ok(exact)
    }

    async fn check_balance(&self) -> Result<(), String> {
        let balance = self.world.balance().await;
        if !balance.is_exact() || balance.in_flight + balance.parked > 0 {
            return Err(format!("the balance is not exact: {balance:?}"));
        }
        Ok(())
    }

    /// Shows every decision that counts: its cause and outcome.
    async fn each_decision(&self, see: &mut (dyn FnMut(Cause, String) + Send)) {
        for partition in 0..self.world.calm.partitions() {
            let step = &mut |step: &Step<'_>| {
                if let (Folded::Decision(_, Verdict::Apply), Some(opened)) =
                    (&step.folded, step.decided)
                {
                    see(opened.decided.cause, opened.decided.outcome.code());
                }
            };
            let codec = &self.world.codec;
            let read =
                read_partition(&*self.world.calm, codec, partition, Known::Latest, step).await;
            read.expect("the log is readable");
        }
    }

    /// What the run left behind; it must still have these digests.
    pub(super) async fn report(&mut self, exact: &BTreeMap<OwnerKey, Hash>) -> Result<Ran, String> {
        let mut ran = Ran::default();
        for replayed in self.world.replay().await {
            self.faults.fenced += replayed.skeleton.fenced;
            self.faults.repeats += replayed.skeleton.repeats;
            for (owner, state) in &replayed.states {
                if exact.get(owner) != Some(&digest::exact(state)) {
                    return Err("a replaced consumer changed something".to_owned());
                }
                ran.content.insert(*owner, digest::content(state));
                let beliefs = naive::read(state);
                let told = beliefs.iter().map(|belief| format!("{belief:?}")).collect();
                ran.believed.insert(*owner, told);
            }
        }
        ran.faults = self.faults;
        self.each_decision(&mut |cause, outcome| {
            ran.outcomes.entry(cause.origin).or_insert(outcome);
        })
        .await;
        Ok(ran)
    }

    /// The log in words, without what is drawn at random (nonces, ids of keys) or hashed from it.
    pub(super) async fn told(&self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        for record in self.world.calm.dump() {
            let opened = self.world.codec.open(std::slice::from_ref(&record)).await;
            let opened = opened.map_err(|error| error.to_string())?.remove(0);
            let at = record.appended_at.millis() - START.millis();
            let told = opened.map_or_else(|error| error.to_string(), |opened| tell(&opened));
            lines.push(format!("{} {at}: {told}", record.position));
        }
        Ok(lines)
    }
}

fn tell(opened: &Opened) -> String {
    match opened {
        Opened::Decided(opened) => {
            let decided = &opened.decided;
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
        Opened::WriterStarted { at, .. } => format!("writer started at {at}"),
        Opened::Turn { meta, .. } => format!("turn {} {}", meta.event, meta.key_epoch),
        Opened::Candidates { meta, set } => {
            format!("candidates {} {}", meta.origin, set.candidates.len())
        }
        Opened::Command { meta, command } => format!("{} {:?}", meta.event, command.command),
        Opened::Erased { meta } => format!("erased {} {}", meta.event, meta.code),
        Opened::Embedding {
            memory_id, vector, ..
        } => {
            format!("vector of {memory_id}: {}", vector.is_some())
        }
        Opened::Identity(_)
        | Opened::Parked(_)
        | Opened::Unparked(_)
        | Opened::Receipt(_)
        | Opened::InboxRead(_)
        | Opened::Access { .. } => format!("{opened:?}"),
    }
}
