//! Does the text index on tantivy answer as the reference does?

mod folder;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_adapters::text::TantivyText;
use anamnesis_domain::ids::Hash;
use anamnesis_domain::ids::{EventTag, IdKey, LogId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::memory::{
    Claim, Intent, Kind, Memory, Permille, Polarity, Role, Source, Standing, Status,
};
use anamnesis_domain::owner::{OwnerScope, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{AsOf, Interval, Known, Timestamp};
use anamnesis_domain::tokens;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Cut, Filter, Hit, MemoryVersion, OwnerRows, OwnerView, Projection,
    StoreError, SubjectFilter, TextIndex, current,
};

const KEY: IdKey = IdKey::from_bytes([9; 32]);
const LOG: LogId = LogId::from_bytes([1; 16]);
const ONE: Feed = Feed {
    log_id: LOG,
    partitions: 1,
};
const LATE: Cut = Cut(u64::MAX);

fn owner(number: u8) -> OwnerKey {
    OwnerKey::from_bytes([number; 16])
}

fn scope(number: u8) -> OwnerScope {
    OwnerScope::of_log_record(owner(number))
}

fn memory_of(event_id: &str) -> MemoryId {
    KEY.memory(KEY.event(owner(1), "test", event_id, ""), 0)
}

fn at(day: i64) -> Timestamp {
    Timestamp::from_millis(day * 86_400_000)
}

/// A version of a memory with this text, recorded at `offset`.
fn version(owner: OwnerKey, id: MemoryId, offset: u64, text: &str) -> MemoryVersion {
    let claim = Claim {
        subject: Subject::Self_,
        kind: Kind::Fact,
        text: text.into(),
        attribute: None,
        value: None,
        quantity: None,
        schedule: None,
        polarity: Polarity::Positive,
        intent: Intent::Assert,
        quote: None,
        entities: Vec::new(),
        valid_from: at(0),
        valid_to: None,
        importance: Permille::new(500),
        confidence: Permille::new(900),
        explicit: false,
        namespace: None,
        key: None,
        context_tags: Vec::new(),
        language: "zh".to_owned(),
        source: Source {
            event: EventTag::from_bytes([0; 16]),
            source_tag: SourceTag::from_bytes([0; 16]),
            source: "test".to_owned(),
            event_id: String::new(),
            conversation_id: None,
            turn_id: None,
            message_id: None,
            role: Role::User,
            speaker: None::<Text>,
            at: at(0),
            zone_minutes: 480,
            extractor: "rules".to_owned(),
            model: None,
            prompt_version: None,
        },
    };
    let standing = Standing {
        status: Status::Active,
        valid_from: at(0),
        valid_to: None,
        superseded_by: None,
        conflict_with: None,
        confirms: None,
        rule: "first".to_owned(),
    };
    MemoryVersion {
        owner,
        memory: Memory {
            id,
            version: offset,
            claim,
            standing,
            protected: false,
            supersedes: Vec::new(),
            recorded_at: at(1),
            last_verified_at: None,
            confirmations: 0,
            access_count: 0,
            last_accessed_at: None,
            review: None,
        },
        recorded_from: offset,
        recorded_to: None,
        recorded_at: at(1),
    }
}

fn change(version: MemoryVersion) -> Change {
    Change::Version {
        version: Arc::new(version),
        vector: None,
    }
}

fn rewrite(owner: OwnerKey, versions: Vec<MemoryVersion>) -> Change {
    Change::Rewrite(Box::new(OwnerRows {
        owner,
        versions: versions
            .into_iter()
            .map(|version| (Arc::new(version), None))
            .collect(),
        decisions: Vec::new(),
        view: OwnerView {
            key: owner,
            owner: None,
            owner_seq: 0,
            head: Hash::NONE,
            consents: Vec::new(),
            tasks: std::collections::BTreeMap::new(),
            closed_through: 0,
            erasures: Vec::new(),
        },
    }))
}

fn next(next: u64) -> Checkpoint {
    Checkpoint { log_id: LOG, next }
}

fn now(scope: OwnerScope, cut: Cut) -> Filter {
    current(
        scope,
        cut,
        AsOf {
            valid: at(100),
            known: Known::Latest,
        },
    )
}

async fn ask(store: &dyn TextIndex, filter: &Filter, question: &str) -> Vec<Hit> {
    store
        .search(filter, &tokens::query_tokens(question), 10)
        .await
        .unwrap()
        .hits
}

/// An index of owner 1 with these texts, one memory each, in this order.
async fn with_texts(dir: &Path, texts: &[&str]) -> (TantivyText, Vec<MemoryId>) {
    let store = TantivyText::open(dir, ONE).unwrap();
    let ids: Vec<MemoryId> = texts.iter().map(|text| memory_of(text)).collect();
    let mut changes = Vec::new();
    for (number, (id, text)) in ids.iter().zip(texts).enumerate() {
        changes.push(change(version(owner(1), *id, number as u64, text)));
    }
    store
        .apply(0, 0, &changes, next(texts.len() as u64))
        .await
        .unwrap();
    (store, ids)
}

/// What every store and every text index must pass.
mod conformance {
    use anamnesis_pipeline::conformance::stores::{Backend, LOG_ID, PARTITIONS};

    use super::*;

    /// A folder, and the bound of the memory for rows where it is not the usual one.
    struct Place(tempfile::TempDir, Option<usize>);

    impl Backend for Place {
        type Store = dyn TextIndex;

        async fn open(&self) -> Result<Arc<dyn TextIndex>, StoreError> {
            let feed = Feed {
                log_id: LOG_ID,
                partitions: PARTITIONS,
            };
            let dir = self.0.path();
            Ok(Arc::new(match self.1 {
                Some(bytes) => TantivyText::open_with_cache(dir, feed, Duration::ZERO, bytes)?,
                None => TantivyText::open(dir, feed)?,
            }))
        }

        fn dir(&self) -> Option<&Path> {
            Some(self.0.path())
        }

        /// Words stand in dictionaries that are automata; [`holds`] reads those.
        fn is_plain(&self) -> bool {
            false
        }
    }

    fn fresh() -> Place {
        Place(tempfile::tempdir().unwrap(), None)
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::text_cases!(fresh);

    /// Rows of owners come and go while the answers stay the same.
    mod with_a_small_cache {
        use super::*;

        fn fresh() -> Place {
            Place(tempfile::tempdir().unwrap(), Some(6_000))
        }

        anamnesis_pipeline::projection_cases!(fresh);
        anamnesis_pipeline::text_cases!(fresh);
    }
}

#[tokio::test]
async fn chinese_drug_names_and_doses_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let texts = [
        "患者对头孢曲松钠皮试阳性",
        "阿莫西林克拉维酸钾 0.625g",
        "既往用过头孢克肟，无不适",
        "主管医生姓曲，叫曲松年",
    ];
    let (store, ids) = with_texts(dir.path(), &texts).await;
    let first = async |question: &str| {
        ask(&store, &now(scope(1), LATE), question)
            .await
            .first()
            .map(|hit| hit.memory_id)
    };
    assert!(
        ask(&store, &now(scope(1), LATE), "头孢")
            .await
            .iter()
            .any(|hit| hit.memory_id == ids[0])
    );
    assert_eq!(first("头孢曲松钠").await, Some(ids[0]));
    assert_eq!(first("克拉维酸").await, Some(ids[1]));
    assert_eq!(first("0.625g").await, Some(ids[1]));
    assert_eq!(first("0.625").await, Some(ids[1]));
    assert_eq!(first("０．６２５ｇ").await, Some(ids[1]));
    assert_eq!(first("头孢克肟").await, Some(ids[2]));
}

/// A small deterministic generator: the same history at every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}

const WORDS: &[&str] = &[
    "花生",
    "过敏",
    "头孢曲松钠",
    "二甲双胍",
    "500mg",
    "5 mg",
    "metformin",
    "peanuts",
    "CT",
    "MRI",
    "妈妈",
    "高血压",
    "twice daily",
    "0.625g",
    "INR",
    "。",
];

fn text(dice: &mut Dice) -> String {
    (0..dice.roll(9))
        .map(|_| *dice.pick(WORDS))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Versions, closings, rewrites; owners 1 to 4 over two partitions.
fn history(seed: u64, feed: Feed, partition: u32) -> Vec<(u64, Change)> {
    let mut dice = Dice(seed);
    let owners: Vec<OwnerKey> = (1..=4)
        .map(owner)
        .filter(|owner| feed.partition_of(*owner) == partition)
        .collect();
    let mut log = Vec::new();
    if owners.is_empty() {
        return log;
    }
    for offset in 1..160u64 {
        let owner = *dice.pick(&owners);
        if dice.roll(40) == 0 {
            let kept = (0..dice.roll(4)).map(|n| {
                let mut kept = version(owner, memory_of(&n.to_string()), n, &text(&mut dice));
                kept.recorded_to = (dice.roll(2) == 0).then_some(n + 3);
                kept
            });
            let kept = kept.collect();
            log.push((offset, rewrite(owner, kept)));
            continue;
        }
        let id = memory_of(&format!("{owner}{}", dice.roll(12)));
        let mut made = version(owner, id, offset, &text(&mut dice));
        made.memory.claim.kind = *dice.pick(Kind::ALL);
        made.memory.standing.status = *dice.pick(Status::ALL);
        made.memory.claim.subject = dice.pick(&[Subject::Self_, Subject::Mother]).clone();
        made.memory.standing.valid_from = at(dice.roll(50) as i64);
        if dice.roll(3) == 0 {
            made.memory.standing.valid_to = Some(at(50 + dice.roll(100) as i64));
        }
        if dice.roll(4) == 0 {
            made.memory.claim.context_tags = vec!["z-tag".to_owned(), "家".to_owned()];
        }
        if dice.roll(8) == 0 {
            made.memory.standing.confirms = Some(memory_of("0"));
        }
        log.push((offset, change(made)));
    }
    log
}

async fn play(store: &dyn Projection, partition: u32, log: &[(u64, Change)], batch: usize) {
    let mut from = 0;
    for records in log.chunks(batch) {
        let to = records.last().unwrap().0 + 1;
        let changes: Vec<Change> = records.iter().map(|(_, change)| change.clone()).collect();
        store
            .apply(partition, from, &changes, next(to))
            .await
            .unwrap();
        from = to;
    }
}

fn filters() -> Vec<Filter> {
    let mut filters = Vec::new();
    for number in 1..=5 {
        for cut in [Cut(0), Cut(40), Cut(120), LATE] {
            let usual = now(scope(number), cut);
            filters.push(Filter {
                valid_at: Some(at(20)),
                ..usual.clone()
            });
            filters.push(Filter {
                subject: SubjectFilter::Only(Subject::Mother),
                ..usual.clone()
            });
            filters.push(Filter {
                context_tags: Some(vec!["家".to_owned()]),
                kinds: Some(vec![Kind::Allergy, Kind::Fact, Kind::Event]),
                ..usual.clone()
            });
            filters.push(Filter {
                valid_at: None,
                time_range: Some(Interval::new(at(10), Some(at(30))).unwrap()),
                statuses: Status::ALL.to_vec(),
                ..usual
            });
        }
    }
    filters
}

#[tokio::test]
async fn answers_and_rows_equal_the_reference_bit_for_bit() {
    let feed = Feed {
        log_id: LOG,
        partitions: 2,
    };
    let questions = [
        "花生过敏",
        "metformin 500mg twice",
        "CT MRI 头孢",
        "5 mg 5 mg",
        "nothing",
    ];
    for (seed, batch) in [(1, 1), (2, 7), (3, 1000)] {
        let dir = tempfile::tempdir().unwrap();
        let reference = MemoryText::new(LOG, 2);
        let store = TantivyText::open(dir.path(), feed).unwrap();
        for partition in 0..2 {
            let log = history(seed, feed, partition);
            play(&reference, partition, &log, 11).await;
            play(&store, partition, &log, batch).await;
        }
        drop(store);
        for is_compacted in [false, true] {
            let store = TantivyText::open(dir.path(), feed).unwrap();
            if is_compacted {
                store.compact().await.unwrap();
            }
            assert_eq!(
                store.owners().await.unwrap(),
                reference.owners().await.unwrap()
            );
            for number in 1..=5 {
                let (rows, expected) = (
                    store.rows(scope(number)).await,
                    reference.rows(scope(number)).await,
                );
                assert_eq!(
                    rows.unwrap(),
                    expected.unwrap(),
                    "seed {seed}, owner {number}"
                );
            }
            let mut found = 0;
            for filter in filters() {
                for question in questions {
                    let terms: Vec<String> = tokens::index_tokens(question);
                    let answer = store.search(&filter, &terms, 7).await.unwrap();
                    assert_eq!(answer, reference.search(&filter, &terms, 7).await.unwrap());
                    found += answer.hits.len();
                }
            }
            assert!(found > 100, "the questions find something: {found}");
        }
    }
}

/// The pace is longer than any test: whoever waited for it would never end.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_all_partitions_and_large_ones_do_not_wait_for_the_pace() {
    let feed = Feed {
        log_id: LOG,
        partitions: 2,
    };
    let dir = tempfile::tempdir().unwrap();
    let store = TantivyText::open_paced(dir.path(), feed, Duration::from_secs(86_400)).unwrap();
    let apply = |partition, from, count: u64| {
        let owner = (1..9)
            .map(owner)
            .find(|one| feed.partition_of(*one) == partition);
        let version = version(owner.unwrap(), memory_of("a"), 5, "text");
        let changes = vec![change(version); count as usize];
        let store = store.clone();
        async move {
            let to = next(from + count);
            store.apply(partition, from, &changes, to).await.unwrap();
        }
    };
    // The first, two at once, and one that is large enough.
    apply(0, 0, 1).await;
    tokio::join!(apply(0, 1, 1), apply(1, 0, 1));
    apply(1, 1, 300).await;
    for (partition, at) in [(0, 2), (1, 301)] {
        let stands = store.checkpoint(partition).await.unwrap();
        assert_eq!(stands, Some(next(at)), "partition {partition}");
    }
}

#[tokio::test]
async fn one_document_per_version_whatever_the_ids_and_texts_are() {
    let long = "a".repeat(300);
    let blob = "x".repeat(200_000);
    let ids = ["a-17", "UPPER", "患者—记录", &long, "with space", "m-1/2"];
    let dir = tempfile::tempdir().unwrap();
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    let mut from = 0;
    for round in 0..3 {
        let changes: Vec<Change> = ids
            .iter()
            .map(|id| {
                let text = format!("round{round} {id} {long} {blob}");
                change(version(owner(1), memory_of(id), 5, &text))
            })
            .collect();
        store
            .apply(0, from, &changes, next(from + 1))
            .await
            .unwrap();
        from += 1;
        assert_eq!(store.rows(scope(1)).await.unwrap().len(), ids.len());
    }
    for (question, hits) in [
        ("round2", ids.len()),
        ("round1", 0),
        (&long, ids.len()),
        (&blob, ids.len()),
    ] {
        assert_eq!(
            ask(&store, &now(scope(1), LATE), question).await.len(),
            hits
        );
    }
    let reference = MemoryText::new(LOG, 1);
    let changes: Vec<Change> = ids
        .iter()
        .map(|id| {
            change(version(
                owner(1),
                memory_of(id),
                5,
                &format!("round2 {id} {long} {blob}"),
            ))
        })
        .collect();
    reference.apply(0, 0, &changes, next(3)).await.unwrap();
    assert_eq!(
        store.rows(scope(1)).await.unwrap(),
        reference.rows(scope(1)).await.unwrap()
    );

    store
        .apply(0, from, &[rewrite(owner(1), Vec::new())], next(from + 1))
        .await
        .unwrap();
    assert_eq!(store.rows(scope(1)).await.unwrap(), []);
    assert_eq!(store.owners().await.unwrap(), []);
}

#[tokio::test]
async fn a_batch_from_another_position_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ids) = with_texts(dir.path(), &["花生过敏"]).await;
    let again = [change(version(owner(1), ids[0], 0, "other"))];
    let moved = store.apply(0, 0, &again, next(2)).await;
    assert!(
        matches!(
            moved,
            Err(StoreError::Moved {
                expected: 0,
                found: 1,
                ..
            })
        ),
        "{moved:?}"
    );
    let other = Checkpoint {
        log_id: LogId::from_bytes([7; 16]),
        next: 2,
    };
    let foreign = store.apply(0, 1, &again, other).await;
    assert!(
        matches!(foreign, Err(StoreError::OtherLog { .. })),
        "{foreign:?}"
    );
    assert_eq!(store.checkpoint(0).await.unwrap(), Some(next(1)));
    assert_eq!(ask(&store, &now(scope(1), LATE), "花生").await.len(), 1);
}
