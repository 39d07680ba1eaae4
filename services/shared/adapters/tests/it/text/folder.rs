//! Does the folder of the text index survive disks, kills and operators, and forget when it must?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis_adapters::text::TantivyText;
use anamnesis_domain::ids::LogId;
use anamnesis_domain::owner::Subject;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Projection, StoreError};

use super::{
    Dice, LATE, LOG, ONE, ask, change, memory_of, next, now, owner, rewrite, scope, version,
    with_texts,
};

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

/// R-39: the second is told, and the first goes on.
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

/// Opens a folder after `change` was done to it, and gives the error's text. R-40: what is refused is
/// left as it is, byte for byte, for whoever knows what to do with it.
async fn opened_after(feed: Feed, change: impl FnOnce(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = with_texts(dir.path(), &["花生过敏", "头孢"]).await;
    drop(store);
    change(dir.path());
    let before = content_of(dir.path());
    match TantivyText::open(dir.path(), feed) {
        Ok(_) => "opened".to_owned(),
        Err(error) => {
            assert_eq!(content_of(dir.path()), before, "{error}");
            error.to_string()
        }
    }
}

/// Every file of the index with its bytes. Files whose names begin with a dot are locks.
fn content_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        })
        .filter(|(name, _)| !name.starts_with('.'))
        .collect()
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
    let newer = |dir: &Path| in_meta(dir, r#"\"format\":2"#, r#"\"format\":9"#);
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
    // Killed while the folder was being made.
    let begun = |dir: &Path| {
        all(dir);
        fs::write(dir.join(".tmpAb12"), b"{").unwrap();
    };
    assert_eq!(opened_after(ONE, begun).await, "opened");
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

/// R-34: after a kill at any point of 200 commits, the folder opens, holds what its position says, and
/// no file that no segment has.
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
            .args([
                "--exact",
                "text::folder::the_writer_that_is_killed",
                "--nocapture",
            ])
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
pub(super) fn tantivy_files(dir: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
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
