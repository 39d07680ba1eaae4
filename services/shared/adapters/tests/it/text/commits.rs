//! Does an index of many small commits stay as small and as quick as one of a few large ones?

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anamnesis_adapters::text::TantivyText;
use anamnesis_pipeline::stores::Projection;

use super::folder::tantivy_files;
use super::{LATE, ONE, ask, change, memory_of, next, now, owner, scope, version};

/// `ANAMNESIS_COMMITS` asks for another number.
const COMMITS: u64 = 500;
/// Segments at any time: some tens of one document until they are merged, and a few of each size.
const SEGMENTS_MAX: usize = 60;
/// What a slow machine takes for a question whatever the index looks like.
const SLACK: Duration = Duration::from_millis(5);

/// How long a question takes: the median of some.
async fn asked(store: &TantivyText) -> Duration {
    let mut taken = Vec::new();
    for number in 0..21 {
        let started = Instant::now();
        let hits = ask(
            store,
            &now(scope(1), LATE),
            &format!("花生过敏 record{number}"),
        )
        .await;
        taken.push(started.elapsed());
        assert!(!hits.is_empty());
    }
    taken.sort();
    taken[taken.len() / 2]
}

/// commits of one document each. Segments stay few while merges run beside the commits, a question
/// takes no longer than it does at rest, and nothing is lost or doubled.
#[tokio::test(flavor = "multi_thread")]
async fn many_small_commits_leave_few_segments_and_quick_answers() {
    let commits = std::env::var("ANAMNESIS_COMMITS");
    let commits = commits.map_or(COMMITS, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    let (mut most, mut slowest) = (0, Duration::ZERO);
    for number in 0..commits {
        let id = memory_of(&number.to_string());
        let text = format!("record{number} 花生过敏");
        let change = change(version(owner(1), id, number, &text));
        store
            .apply(0, number, &[change], next(number + 1))
            .await
            .unwrap();
        if number % 100 == 99 {
            let (_, named) = tantivy_files(dir.path());
            most = most.max(named.len());
            slowest = slowest.max(asked(&store).await);
        }
    }
    assert!(most <= SEGMENTS_MAX, "{most} segments");
    let rows = store.rows(scope(1)).await.unwrap();
    let keys: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!((rows.len() as u64, keys.len() as u64), (commits, commits));
    drop(store);
    let store = TantivyText::open(dir.path(), ONE).unwrap();
    let rest = asked(&store).await;
    assert!(
        slowest <= rest * 2 + SLACK,
        "{slowest:?} beside commits, {rest:?} at rest"
    );
}
