//! Does the text index on tantivy answer as the reference does, and does it survive what disks, kills
//! and operators do to it?

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

    struct Place(tempfile::TempDir);

    impl Backend for Place {
        type Store = dyn TextIndex;

        async fn open(&self) -> Result<Arc<dyn TextIndex>, StoreError> {
            let feed = Feed {
                log_id: LOG_ID,
                partitions: PARTITIONS,
            };
            Ok(Arc::new(TantivyText::open(self.0.path(), feed)?))
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
        Place(tempfile::tempdir().unwrap())
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::text_cases!(fresh);
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

/// Whether a word stands in the folder: in a file's bytes, or in a dictionary, which the engine writes
/// in a form that a search of bytes does not see.
fn holds(dir: &Path, word: &str) -> bool {
    let has = |bytes: &[u8]| {
        bytes
            .windows(word.len())
            .any(|window| window == word.as_bytes())
    };
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let in_bytes = files.into_iter().any(|file| has(&fs::read(file).unwrap()));
    let index = tantivy::Index::open_in_dir(dir).unwrap();
    let field = index.schema().get_field("text").unwrap();
    let mut in_terms = false;
    for segment in index.reader().unwrap().searcher().segment_readers() {
        let inverted = segment.inverted_index(field).unwrap();
        let mut terms = inverted.terms().stream().unwrap();
        while let Some((term, _)) = terms.next() {
            in_terms |= has(term);
        }
    }
    in_bytes || in_terms
}

#[tokio::test]
async fn no_byte_of_the_erased_is_left_after_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    let canary = "zqxcanary7731";
    let mut subject = version(owner(1), memory_of("a"), 1, &format!("{canary} 花生"));
    subject.memory.claim.subject = Subject::Other("qqneighbour55".to_owned());
    let kept = version(owner(2), memory_of("b"), 2, "rahmsgehtkeinenwasan");
    store
        .apply(0, 0, &[change(subject), change(kept)], next(3))
        .await
        .unwrap();
    // All are there before, or the test would find nothing by looking wrongly.
    for word in [canary, "qqneighbour55", "rahmsgehtkeinenwasan"] {
        assert!(holds(dir.path(), word), "{word}");
    }
    let others = store.rows(scope(2)).await.unwrap();
    store
        .apply(0, 3, &[rewrite(owner(1), Vec::new())], next(4))
        .await
        .unwrap();
    assert_eq!(ask(&store, &now(scope(1), LATE), canary).await, []);
    store.compact().await.unwrap();
    for word in [canary, "qqneighbour55"] {
        assert!(!holds(dir.path(), word), "{word}");
    }
    assert!(holds(dir.path(), "rahmsgehtkeinenwasan"));
    assert_eq!(store.rows(scope(2)).await.unwrap(), others);

    // The last document of the index, and writing on.
    store
        .apply(0, 4, &[rewrite(owner(2), Vec::new())], next(5))
        .await
        .unwrap();
    store.compact().await.unwrap();
    assert!(!holds(dir.path(), "rahmsgehtkeinenwasan"));
    store
        .apply(
            0,
            5,
            &[change(version(owner(1), memory_of("a"), 6, "again"))],
            next(7),
        )
        .await
        .unwrap();
    assert_eq!(ask(&store, &now(scope(1), LATE), "again").await.len(), 1);
    drop(store);
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    assert_eq!(store.checkpoint(0).await.unwrap(), Some(next(7)));
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

#[tokio::test]
async fn a_folder_has_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = with_texts(dir.path(), &["花生过敏"]).await;
    let second = TantivyText::open(dir.path(), ONE);
    assert!(matches!(second, Err(StoreError::InUse { .. })));
    assert_eq!(ask(&first, &now(scope(1), LATE), "花生").await.len(), 1);
    drop(first);
    TantivyText::open(dir.path(), ONE).unwrap();
}

/// Opens a folder after `change` was done to it, and gives the error's text.
async fn opened_after(feed: Feed, change: impl FnOnce(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = with_texts(dir.path(), &["花生过敏", "头孢"]).await;
    drop(store);
    change(dir.path());
    match TantivyText::open(dir.path(), feed) {
        Ok(_) => "opened".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn file_with(dir: &Path, ending: &str) -> PathBuf {
    let mut files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files
        .find(|file| file.to_string_lossy().ends_with(ending))
        .unwrap()
}

fn in_meta(dir: &Path, from: &str, to: &str) {
    let meta = fs::read_to_string(dir.join("meta.json")).unwrap();
    assert!(meta.contains(from), "{meta}");
    fs::write(dir.join("meta.json"), meta.replacen(from, to, 1)).unwrap();
}

#[tokio::test]
async fn what_cannot_be_used_says_what_to_do() {
    let rebuild = "anamnesis rebuild --store text";
    let check = |error: String, words: &[&str]| {
        for word in words {
            assert!(error.contains(word), "{word:?} in {error:?}");
        }
    };
    assert_eq!(opened_after(ONE, |_| ()).await, "opened");
    let other = Feed {
        log_id: LogId::from_bytes([7; 16]),
        partitions: 1,
    };
    check(
        opened_after(other, |_| ()).await,
        &["belongs to log l-0101", "not l-0707", rebuild],
    );
    let wider = Feed {
        log_id: LOG,
        partitions: 4,
    };
    check(
        opened_after(wider, |_| ()).await,
        &["1 partitions", "has 4", rebuild],
    );
    let newer = |dir: &Path| in_meta(dir, r#"\"format\":1"#, r#"\"format\":9"#);
    check(
        opened_after(ONE, newer).await,
        &["newer version", "format 9", rebuild],
    );
    let tokenizer = |dir: &Path| in_meta(dir, r#"\"tokenizer\":1"#, r#"\"tokenizer\":0"#);
    check(
        opened_after(ONE, tokenizer).await,
        &["tokenizer 0", rebuild],
    );
    let no_position = |dir: &Path| in_meta(dir, r#""payload""#, r#""forgotten""#);
    check(
        opened_after(ONE, no_position).await,
        &["no position", rebuild],
    );
    let no_meta = |dir: &Path| fs::remove_file(dir.join("meta.json")).unwrap();
    check(
        opened_after(ONE, no_meta).await,
        &["meta.json is missing", rebuild],
    );
    for part in [".idx", ".term", ".fast"] {
        let half = |dir: &Path| fs::remove_file(file_with(dir, part)).unwrap();
        check(opened_after(ONE, half).await, &["half deleted", rebuild]);
        let flip = |dir: &Path| {
            let file = file_with(dir, part);
            let mut bytes = fs::read(&file).unwrap();
            bytes[3] ^= 1;
            fs::write(&file, bytes).unwrap();
        };
        check(opened_after(ONE, flip).await, &["checksum", rebuild]);
        let cut = |dir: &Path| fs::write(file_with(dir, part), b"").unwrap();
        check(opened_after(ONE, cut).await, &[rebuild]);
    }
    let all = |dir: &Path| {
        fs::read_dir(dir)
            .unwrap()
            .for_each(|f| fs::remove_file(f.unwrap().path()).unwrap())
    };
    assert_eq!(opened_after(ONE, all).await, "opened");
}

#[tokio::test]
async fn files_of_a_commit_that_never_was_are_collected() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = with_texts(dir.path(), &["花生过敏"]).await;
    drop(store);
    for name in ["0123456789abcdef0123456789abcdef.idx", ".tmpAb12"] {
        fs::write(dir.path().join(name), b"secret").unwrap();
    }
    fs::write(dir.path().join("notes.txt"), b"not ours").unwrap();
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    assert!(!holds(dir.path(), "secret"));
    assert!(holds(dir.path(), "not ours"));
    assert_eq!(ask(&store, &now(scope(1), LATE), "花生").await.len(), 1);
}

/// Set for the process that the next test kills: the folder to write to.
const WRITE_TO: &str = "ANAMNESIS_TEST_TEXT_WRITE_TO";

/// One record per commit, from wherever the index stands, until killed or at 200.
#[tokio::test]
async fn the_writer_that_is_killed() {
    let Some(dir) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let store = TantivyText::open(Path::new(&dir), ONE).unwrap();
    let mut from = store.checkpoint(0).await.unwrap().map_or(0, |at| at.next);
    while from < 200 {
        let id = memory_of(&(from % 20).to_string());
        let change = change(version(
            owner(1),
            id,
            from,
            &format!("record{from} 花生过敏"),
        ));
        store
            .apply(0, from, &[change], next(from + 1))
            .await
            .unwrap();
        from += 1;
        println!("committed {from}");
    }
}

#[tokio::test]
async fn after_a_kill_position_and_content_agree() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(4);
    let mut committed = 0;
    let mut kills = 0;
    while committed < 200 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "text::the_writer_that_is_killed", "--nocapture"])
            .env(WRITE_TO, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Killed after a number of commits, at whatever it is doing by then.
        let mut left = 5 + dice.roll(12);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(number) = line.unwrap().strip_prefix("committed ") {
                committed = number.parse().unwrap();
                left -= 1;
                if left == 0 {
                    // Some way into the next commit, and not always as far.
                    let (heard, wait) = (Instant::now(), Duration::from_micros(dice.roll(12_000)));
                    while heard.elapsed() < wait {
                        std::hint::spin_loop();
                    }
                    break;
                }
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;

        let store = TantivyText::open(dir.path(), ONE).unwrap();
        let position = store.checkpoint(0).await.unwrap().unwrap().next;
        assert!(
            position >= committed,
            "{committed} was acknowledged, and {position} is there"
        );
        let keys = store.rows(scope(1)).await.unwrap();
        let offsets: BTreeSet<u64> = keys
            .iter()
            .map(|row| row.key.rsplit_once('/').unwrap().1.parse().unwrap())
            .collect();
        assert_eq!(
            offsets,
            (0..position).collect(),
            "content is what the position says"
        );
        let known = tantivy_files(dir.path());
        assert_eq!(known.0, known.1, "no file is left that no segment has");
    }
    assert!(kills > 8, "{kills}");
}

/// Segments that files belong to, and segments that the last commit names.
fn tantivy_files(dir: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap());
    let stems = names.filter_map(|name| Some(name.split_once('.')?.0.to_owned()));
    let on_disk = stems.filter(|stem| stem.len() == 32).collect();
    let meta: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("meta.json")).unwrap()).unwrap();
    let named = meta["segments"].as_array().unwrap().iter();
    let named = named.map(|segment| segment["segment_id"].as_str().unwrap().replace('-', ""));
    (on_disk, named.collect())
}
