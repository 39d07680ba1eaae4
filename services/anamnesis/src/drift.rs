//! Do the stores still hold what the log says? Now and then one owner, drawn at random, is replayed and
//! compared with every store; whoever is found to differ is compared again until that is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anamnesis_audit::ledger::Ledger;
use anamnesis_audit::sample::{Sample, sample};
use anamnesis_domain::ids::OwnerKey;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::log::{Log, partition_of};
use anamnesis_pipeline::stores::Projection;
use tokio::time::Instant;

use crate::metrics::{DRIFT_MISMATCHES_TOTAL, DRIFT_OWNERS_TOTAL, DRIFT_ROWS_TOTAL};

/// Owners that are compared again and again. When so many differ, a store is to be rebuilt anyway.
const SUSPECTS_MAX: usize = 16;

pub struct Sampler {
    pub log: Log,
    pub codec: Codec,
    pub stores: Vec<Arc<dyn Projection>>,
    pub model: ModelIdentity,
    /// `None` for never.
    pub every: Option<Duration>,
    due: Instant,
    /// Owners that differed when they were last compared.
    suspects: BTreeSet<OwnerKey>,
}

impl Sampler {
    pub fn new(
        log: Log,
        codec: Codec,
        stores: Vec<Arc<dyn Projection>>,
        model: ModelIdentity,
        every: Option<Duration>,
    ) -> Self {
        Self {
            log,
            codec,
            stores,
            model,
            every,
            due: Instant::now(),
            suspects: BTreeSet::new(),
        }
    }

    /// Owners that are known to differ.
    pub fn drifting(&self) -> usize {
        self.suspects.len()
    }

    /// Compares, if it is time, the suspects and one owner more of these partitions.
    pub async fn look(&mut self, ledgers: &mut BTreeMap<u32, Ledger>) {
        let Some(every) = self.every else { return };
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + every;
        let partitions = self.log.partitions();
        // A partition that is no longer ours is somebody else's to compare.
        self.suspects
            .retain(|owner| ledgers.contains_key(&partition_of(*owner, partitions)));
        let mut owners = self.suspects.clone();
        owners.extend(drawn(ledgers));
        for owner in owners {
            let Some(ledger) = ledgers.get_mut(&partition_of(owner, partitions)) else {
                continue;
            };
            let found = self.compare(ledger, owner).await;
            self.note(owner, ledger.partition(), found);
        }
    }

    async fn compare(&self, ledger: &mut Ledger, owner: OwnerKey) -> Result<Sample, StageError> {
        sample(
            ledger,
            &*self.log,
            &self.codec,
            &self.stores,
            &self.model,
            owner,
        )
        .await
    }

    fn note(&mut self, owner: OwnerKey, partition: u32, found: Result<Sample, StageError>) {
        let outcome = match found {
            Ok(found) if found.rows.is_empty() => "skipped",
            Ok(found) => {
                for (store, rows) in &found.rows {
                    metrics::counter!(DRIFT_ROWS_TOTAL, "store" => store.as_str()).increment(*rows);
                }
                for drift in &found.drift {
                    metrics::counter!(DRIFT_MISMATCHES_TOTAL, "store" => drift.store.as_str())
                        .increment(1);
                }
                if found.drift.is_empty() {
                    self.suspects.remove(&owner);
                    "same"
                } else {
                    let stores: BTreeSet<&str> = found
                        .drift
                        .iter()
                        .map(|drift| drift.store.as_str())
                        .collect();
                    tracing::error!(
                        partition,
                        ?stores,
                        rows = found.drift.len(),
                        "a store differs from the log; audit diff names the rows"
                    );
                    if self.suspects.len() < SUSPECTS_MAX {
                        self.suspects.insert(owner);
                    }
                    "differs"
                }
            }
            Err(error) => {
                tracing::warn!(partition, %error, "an owner could not be compared with the log");
                "failed"
            }
        };
        metrics::counter!(DRIFT_OWNERS_TOTAL, "outcome" => outcome).increment(1);
    }
}

/// An owner at random: keys are hashes, so the first one from a random place on is.
fn drawn(ledgers: &BTreeMap<u32, Ledger>) -> Option<OwnerKey> {
    let mut random = [0; 20];
    if let Err(error) = getrandom::fill(&mut random) {
        tracing::warn!(%error, "no owner was drawn");
        return None;
    }
    let [a, b, c, d, key @ ..] = random;
    let inhabited: Vec<&Ledger> = ledgers.values().filter(|one| one.owners() > 0).collect();
    let place = u32::from_le_bytes([a, b, c, d]) as usize % inhabited.len().max(1);
    inhabited.get(place)?.owner_from(OwnerKey::from_bytes(key))
}
