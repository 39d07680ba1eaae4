//! Where does each stage of this process stand, and since when has it been failing?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;

/// One stage in one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stand {
    /// The first offset of each input that is not answered; empty until the stage has begun once.
    pub positions: Vec<(Topic, u64)>,
    /// Set while beginning again has not helped.
    pub failing_since: Option<Timestamp>,
}

/// Told by every consumer after each turn, read by whoever reports lag and readiness.
#[derive(Clone, Default)]
pub struct Stands(Arc<Mutex<BTreeMap<(&'static str, u32), Stand>>>);

impl Stands {
    /// Names a stage that is going to run, so that one that never begins is seen.
    pub fn expect(&self, stage: &'static str, partition: u32) {
        self.change(stage, partition, |_| ());
    }

    /// Of a partition that is another process's from now on.
    pub fn forget(&self, stage: &'static str, partition: u32) {
        let mut stands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stands.remove(&(stage, partition));
    }

    pub fn advanced(&self, stage: &'static str, partition: u32, positions: Vec<(Topic, u64)>) {
        self.change(stage, partition, |stand| {
            stand.positions = positions;
            stand.failing_since = None;
        });
    }

    /// The positions stay: they are what is known of the output.
    pub fn failed(&self, stage: &'static str, partition: u32, now: Timestamp) {
        self.change(stage, partition, |stand| {
            stand.failing_since.get_or_insert(now);
        });
    }

    pub fn all(&self) -> Vec<(&'static str, u32, Stand)> {
        let stands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = stands.iter();
        each.map(|((stage, partition), stand)| (*stage, *partition, stand.clone()))
            .collect()
    }

    fn change(&self, stage: &'static str, partition: u32, change: impl FnOnce(&mut Stand)) {
        let mut stands = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(stands.entry((stage, partition)).or_default());
    }
}
