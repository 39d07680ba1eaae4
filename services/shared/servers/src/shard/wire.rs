//! What is asked and answered, as it travels: CBOR with named fields, every number exact.
//!
//! The domain's own types are used where they read what they write. A memory is written out, because a
//! flattened structure takes several times as long to read; a filter, because an owner scope is made
//! from a verified caller only: here the token verified that the caller is one of our own services.

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Claim, Kind, Memory, Standing, Status};
use anamnesis_domain::owner::{OwnerScope, Subject};
use anamnesis_domain::time::{Interval, Known, Timestamp};
use anamnesis_domain::transition::Review;
use anamnesis_pipeline::stores::{
    self, Checkpoint, Cut, DecisionRow, Hit, MemoryVersion, Order, OwnerView, RowDigest, Store,
    SubjectFilter,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) fn write(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("plain data is written to memory");
    bytes
}

/// `None` for what cannot be read. The reason is dropped: it would repeat a part of the text.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    ciborium::from_reader(bytes).ok()
}

/// A question, and how far a replica must be to answer it.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) question: Question,
    /// The first offset of the owner's partition that need not be applied.
    pub(super) at_least: u64,
    /// For looking at a copy as it is, however old: what a store holds, where it stands.
    pub(super) even_if_behind: bool,
}

/// Without `Debug`: there are words of a person in it.
#[derive(Serialize, Deserialize)]
pub(super) enum Question {
    /// Which partitions would be answered for.
    Current,
    Checkpoint {
        store: Store,
        partition: u32,
    },
    Owners {
        store: Store,
        partitions: Vec<u32>,
    },
    Rows {
        store: Store,
        owner: OwnerKey,
    },
    Cut {
        owner: OwnerKey,
        known_at: Option<i64>,
    },
    Check {
        filter: Filter,
        ids: Vec<MemoryId>,
    },
    History {
        owner: OwnerKey,
        id: MemoryId,
    },
    List {
        filter: Filter,
        order: Order,
        limit: u64,
        cursor: Option<String>,
    },
    Owner {
        owner: OwnerKey,
    },
    Decision {
        owner: OwnerKey,
        event: EventTag,
    },
    DecisionOffsets {
        owner: OwnerKey,
    },
    Counts {
        partitions: Vec<u32>,
    },
    Search {
        filter: Filter,
        terms: Vec<String>,
        top: u64,
        /// Whether the records' word on the hits is asked for as well.
        with_check: bool,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    Current(Vec<u32>),
    Checkpoint(Option<Checkpoint>),
    Owners(Vec<OwnerKey>),
    Rows(Vec<RowDigest>),
    Cut(Cut),
    Versions(Vec<Version>),
    Page {
        versions: Vec<Version>,
        cursor: Option<String>,
    },
    Owner(Option<Box<OwnerView>>),
    Decision(Option<DecisionRow>),
    Offsets(Vec<u64>),
    Counts(Vec<(Kind, Status, u64)>),
    Hits {
        hits: Vec<Hit>,
        position: u64,
        checked: Option<Vec<Version>>,
    },
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Filter {
    pub(super) owner: OwnerKey,
    cut: u64,
    /// Milliseconds, as all instants here: a filter may reach beyond what can be written as a date.
    valid_at: Option<i64>,
    time_range: Option<(i64, Option<i64>)>,
    kinds: Option<Vec<Kind>>,
    statuses: Vec<Status>,
    subject: Option<Subject>,
    context_tags: Option<Vec<String>>,
}

impl Filter {
    pub(super) fn of(filter: &stores::Filter) -> Self {
        let stores::Filter {
            scope,
            cut,
            valid_at,
            time_range,
            kinds,
            statuses,
            subject,
            context_tags,
        } = filter;
        Self {
            owner: scope.key(),
            cut: cut.0,
            valid_at: valid_at.map(Timestamp::millis),
            time_range: time_range
                .map(|range| (range.from().millis(), range.to().map(Timestamp::millis))),
            kinds: kinds.clone(),
            statuses: statuses.clone(),
            subject: match subject {
                SubjectFilter::Any => None,
                SubjectFilter::Only(subject) => Some(subject.clone()),
            },
            context_tags: context_tags.clone(),
        }
    }

    /// `None` when a range ends before it starts.
    pub(super) fn into_filter(self) -> Option<stores::Filter> {
        let time_range = match self.time_range {
            Some((from, to)) => {
                let to = to.map(Timestamp::from_millis);
                Some(Interval::new(Timestamp::from_millis(from), to).ok()?)
            }
            None => None,
        };
        Some(stores::Filter {
            scope: OwnerScope::of_verified_caller(self.owner),
            cut: Cut(self.cut),
            valid_at: self.valid_at.map(Timestamp::from_millis),
            time_range,
            kinds: self.kinds,
            statuses: self.statuses,
            subject: self.subject.map_or(SubjectFilter::Any, SubjectFilter::Only),
            context_tags: self.context_tags,
        })
    }
}

pub(super) fn known_at(known: Known) -> Option<i64> {
    match known {
        Known::Latest => None,
        Known::At(at) => Some(at.millis()),
    }
}

pub(super) fn known(at: Option<i64>) -> Known {
    at.map_or(Known::Latest, |millis| {
        Known::At(Timestamp::from_millis(millis))
    })
}

/// A version of a memory, its instants as they stand in its body.
#[derive(Serialize, Deserialize)]
pub(super) struct Version {
    owner: OwnerKey,
    id: MemoryId,
    version: u64,
    claim: Claim,
    standing: Standing,
    protected: bool,
    supersedes: Vec<MemoryId>,
    first_recorded_at: Timestamp,
    last_verified_at: Option<Timestamp>,
    confirmations: u32,
    access_count: u64,
    last_accessed_at: Option<Timestamp>,
    #[serde(default)]
    review: Option<Review>,
    recorded_from: u64,
    recorded_to: Option<u64>,
    recorded_at: Timestamp,
}

impl From<MemoryVersion> for Version {
    fn from(version: MemoryVersion) -> Self {
        let MemoryVersion {
            owner,
            memory,
            recorded_from,
            recorded_to,
            recorded_at,
        } = version;
        Self {
            owner,
            id: memory.id,
            version: memory.version,
            claim: memory.claim,
            standing: memory.standing,
            protected: memory.protected,
            supersedes: memory.supersedes,
            first_recorded_at: memory.recorded_at,
            last_verified_at: memory.last_verified_at,
            confirmations: memory.confirmations,
            access_count: memory.access_count,
            last_accessed_at: memory.last_accessed_at,
            review: memory.review,
            recorded_from,
            recorded_to,
            recorded_at,
        }
    }
}

impl From<Version> for MemoryVersion {
    fn from(version: Version) -> Self {
        Self {
            owner: version.owner,
            memory: Memory {
                id: version.id,
                version: version.version,
                claim: version.claim,
                standing: version.standing,
                protected: version.protected,
                supersedes: version.supersedes,
                recorded_at: version.first_recorded_at,
                last_verified_at: version.last_verified_at,
                confirmations: version.confirmations,
                access_count: version.access_count,
                last_accessed_at: version.last_accessed_at,
                review: version.review,
            },
            recorded_from: version.recorded_from,
            recorded_to: version.recorded_to,
            recorded_at: version.recorded_at,
        }
    }
}

pub(super) fn pack(versions: Vec<MemoryVersion>) -> Vec<Version> {
    versions.into_iter().map(Version::from).collect()
}

pub(super) fn unpack(versions: Vec<Version>) -> Vec<MemoryVersion> {
    versions.into_iter().map(MemoryVersion::from).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anamnesis_domain::ids::{ErasureId, Hash};
    use anamnesis_domain::input::{Consent, Position, Target, Task, TaskStatus, Topic};
    use anamnesis_domain::memory::{Permille, Quantity, Role};
    use anamnesis_domain::owner::{Owner, Scope};
    use anamnesis_domain::text::Text;
    use anamnesis_pipeline::conformance::stores::draw::Draw;
    use anamnesis_pipeline::conformance::stores::script::{
        Script, day, everything, id, memory_with, owner,
    };
    use anamnesis_pipeline::stores::{ErasureRow, RecordedConsent};

    use super::*;

    fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
        read(&write(value)).expect("it reads what it wrote")
    }

    fn there_and_back(version: &MemoryVersion) -> MemoryVersion {
        again(&Version::from(version.clone())).into()
    }

    #[test]
    fn a_version_with_everything_in_it_arrives_as_it_was() {
        let long = "一段很长的话。".repeat(20_000);
        let memory = memory_with(1, &long, |memory| {
            let claim = &mut memory.claim;
            claim.subject = Subject::Other("邻居 (next door)".to_owned());
            claim.attribute = Some("medication".to_owned());
            claim.value = Some(String::new());
            claim.quantity = Some(Quantity {
                micros: i64::MIN,
                unit: "mg".to_owned(),
            });
            claim.schedule = Some("twice_daily".to_owned());
            claim.quote = Some(Text::new("“quoted” \u{0} \u{10ffff}"));
            claim.valid_to = Some(day(-400_000));
            claim.importance = Permille::new(333);
            claim.namespace = Some("n".to_owned());
            claim.key = Some("k".to_owned());
            claim.context_tags = vec!["ward".to_owned(), String::new()];
            claim.source.conversation_id = Some("c".to_owned());
            claim.source.role = Role::Tool;
            claim.source.speaker = Some(Text::new("王医生"));
            claim.source.model = Some("m".to_owned());
            memory.standing.superseded_by = Some(id(2));
            memory.standing.conflict_with = Some(id(3));
            memory.standing.confirms = Some(id(4));
            memory.supersedes = vec![id(5), id(6)];
            memory.last_verified_at = Some(day(1).plus_millis(7));
            memory.confirmations = u32::MAX;
            memory.access_count = u64::MAX;
            memory.last_accessed_at = Some(day(2));
        });
        let version = MemoryVersion {
            owner: owner(1),
            memory,
            recorded_from: u64::MAX - 1,
            recorded_to: Some(u64::MAX),
            recorded_at: day(3),
        };
        assert_eq!(there_and_back(&version), version);
    }

    #[test]
    fn drawn_versions_arrive_as_they_were() {
        let mut script = Script::default();
        Draw::new(3).history(&mut script, 4, 80);
        for number in 1..=4 {
            for (version, _) in &script.rows_of(number).versions {
                assert_eq!(there_and_back(version), **version);
            }
        }
    }

    #[test]
    fn every_share_of_a_thousand_stays_what_it_is() {
        for thousandths in 0..=1000 {
            let share = Permille::new(thousandths);
            assert_eq!(again(&share), share);
        }
    }

    #[test]
    fn scores_keep_every_bit() {
        for score in [0.1, 1.0 / 3.0, f64::MIN_POSITIVE, f64::MAX, -0.0, 1e-320] {
            let hit = Hit {
                memory_id: id(1),
                version: 1,
                score,
            };
            assert_eq!(again(&hit).score.to_bits(), score.to_bits());
        }
    }

    #[test]
    fn an_owner_with_everything_arrives_as_it_was() {
        let task = Task {
            id: "t".to_owned(),
            goal: Text::new("复查"),
            status: TaskStatus::BlockedByToolError,
            decision: Some(Text::default()),
            confirmed_facts: vec![Text::new("a")],
            constraints: Vec::new(),
            open_questions: vec![Text::new("?")],
            tool_error: None,
            pending_confirmations: Vec::new(),
            expires_at: Some(day(1)),
            updated_at: day(0),
        };
        let target = |target| ErasureRow {
            erasure: ErasureId::from_bytes([9; 16]),
            target,
            memory_ids: vec![id(1)],
            recorded_at: day(2),
            offset: 7,
        };
        let view = OwnerView {
            key: owner(1),
            owner: Some(Owner::new("医院", Scope::Org, "p-1").unwrap()),
            owner_seq: 3,
            head: Hash::of(b"x"),
            consents: vec![RecordedConsent {
                consent: Consent {
                    purposes: vec!["care".to_owned()],
                    kinds: Some(vec![Kind::Allergy, Kind::Episode]),
                    max_sensitivity: 4,
                    valid_from: day(0),
                    valid_to: None,
                },
                recorded_from: 1,
                recorded_to: None,
            }],
            tasks: BTreeMap::from([("t".to_owned(), task)]),
            closed_through: 1,
            erasures: vec![
                target(Target::Owner),
                target(Target::Memories(vec![id(1), id(2)])),
            ],
        };
        assert_eq!(again(&view), view);
    }

    #[test]
    fn a_decision_arrives_as_it_was() {
        let position = Position {
            topic: Topic::Commands,
            partition: 3,
            offset: u64::MAX,
        };
        let row = DecisionRow {
            owner: owner(1),
            owner_seq: 4,
            offset: 5,
            hash: Hash::of(b"y"),
            recorded_at: day(9),
            outcome: "rejected(consent)".to_owned(),
            event: EventTag::from_bytes([3; 16]),
            cause: position,
            origin: position,
            memory_ids: vec![id(1)],
        };
        assert_eq!(again(&row), row);
    }

    #[test]
    fn a_filter_arrives_as_it_was() {
        let plain = everything(1, u64::MAX);
        let ends = [
            Timestamp::from_millis(i64::MIN),
            Timestamp::from_millis(i64::MAX),
        ];
        let full = stores::Filter {
            valid_at: Some(ends[1]),
            time_range: Some(Interval::new(ends[0], Some(ends[1])).unwrap()),
            kinds: Some(Kind::ALL.to_vec()),
            statuses: Vec::new(),
            subject: SubjectFilter::Only(Subject::Other("self".to_owned())),
            context_tags: Some(vec!["病房".to_owned()]),
            ..plain.clone()
        };
        for filter in [plain, full] {
            assert_eq!(again(&Filter::of(&filter)).into_filter(), Some(filter));
        }
    }

    #[test]
    fn nonsense_is_no_question() {
        for bytes in [
            &b""[..],
            b"{}",
            &[0xff; 40],
            // A list that claims to have 2^63 members.
            &[0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(read::<Asked>(bytes).is_none());
        }
        assert!(read::<Asked>(&[0x81; 100_000]).is_none(), "nested");
    }
}
