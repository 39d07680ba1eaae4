//! What does a topic have to do to be an [`Inbox`]? One case per line of its contract.
//!
//! A backend calls [`crate::inbox_conformance!`]; the macro holds the list of cases, so that no backend
//! can leave one out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::doubles::inbox::Produced;
use crate::inbox::{Damage, FRAME_BYTES_MAX, Inbox, InboxRecord};
use crate::log::{LogError, PAYLOAD_BYTES_MAX};

/// A way to make an inbox of two partitions, and to write to it as a platform would.
#[async_trait]
pub trait InboxBackend: Send + Sync {
    async fn make(&self) -> Arc<dyn Inbox>;

    /// Gives the record's offset.
    async fn produce(&self, partition: u32, produced: Produced) -> u64;

    /// Leaves at least one offset without a record.
    async fn leave_gap(&self, partition: u32);

    /// Lets retention pass every offset before this one.
    async fn drop_before(&self, partition: u32, offset: u64);
}

/// Runs every case of the inbox's contract over a backend.
#[macro_export]
macro_rules! inbox_conformance {
    ($backend:expr) => {
        $crate::inbox_conformance! { @each $backend;
            a_record_comes_back_as_it_was_written,
            a_read_starts_where_it_was_asked_to_and_keeps_its_limits,
            a_place_without_a_record_is_passed_over,
            what_is_too_large_comes_as_damaged,
            a_read_out_of_range_is_refused,
            a_waiter_wakes_when_something_comes_and_gives_up_in_time,
        }
    };
    (@each $backend:expr; $($case:ident,)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::conformance::inbox::$case(&$backend).await;
            }
        )+
    };
}

const BYTES: usize = 1 << 20;

/// Every record from `from` to the tail, in however many reads.
async fn read_all(inbox: &dyn Inbox, partition: u32, from: u64) -> Vec<InboxRecord> {
    let mut all = Vec::new();
    let mut next = from;
    loop {
        let batch = inbox.read(partition, next, 100, BYTES).await.unwrap();
        if batch.next == next {
            assert!(batch.records.is_empty());
            return all;
        }
        let is_within = |record: &InboxRecord| (next..batch.next).contains(&record.offset);
        assert!(batch.records.iter().all(is_within));
        next = batch.next;
        all.extend(batch.records);
    }
}

pub async fn a_record_comes_back_as_it_was_written(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    let mut with_null = Produced::of("{}")
        .with_key("会话-1")
        .with("ce_type", "turn");
    with_null.headers.push(("ce_note".to_owned(), None));
    with_null
        .headers
        .push(("ce_empty".to_owned(), Some(Bytes::new())));
    let with_null = with_null.with("ce_type", "又一次");
    let written = [
        with_null,
        Produced::default(),
        Produced::of(""),
        Produced::of("我对芒果过敏"),
        Produced::of(vec![0xff, 0x00, 0x01]).with_key(""),
        Produced::of(vec![7; PAYLOAD_BYTES_MAX]),
    ];
    let mut offsets = Vec::new();
    for produced in &written {
        offsets.push(backend.produce(1, produced.clone()).await);
    }
    let read = read_all(&*inbox, 1, offsets[0]).await;
    assert_eq!(read.len(), written.len());
    for ((record, produced), offset) in read.iter().zip(&written).zip(&offsets) {
        assert_eq!(record.offset, *offset);
        assert_eq!(record.key, produced.key, "at {offset}");
        assert_eq!(record.headers, produced.headers, "at {offset}");
        assert!(record.payload == produced.payload, "at {offset}");
        assert_eq!(record.damage, None, "at {offset}");
    }
    assert!(read.is_sorted_by_key(|record| record.appended_at));
    let other = inbox.end(0).await.unwrap();
    assert!(read_all(&*inbox, 0, other).await.is_empty());
}

pub async fn a_read_starts_where_it_was_asked_to_and_keeps_its_limits(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    let first = backend.produce(0, Produced::of("0")).await;
    for n in 1..10 {
        backend.produce(0, Produced::of(format!("{n}"))).await;
    }
    let from = first + 4;
    let mut next = from;
    while next < first + 10 {
        let batch = inbox.read(0, next, 3, BYTES).await.unwrap();
        assert!((1..=3).contains(&batch.records.len()));
        for (record, n) in batch.records.iter().zip(next - first..) {
            assert_eq!(record.payload.as_deref(), Some(format!("{n}").as_bytes()));
        }
        next = batch.next;
    }
    let one = inbox.read(0, from, 100, 0).await.unwrap();
    assert_eq!((one.records.len(), one.next), (1, from + 1));
    assert_eq!(inbox.end(0).await.unwrap(), first + 10);
    let tail = inbox.read(0, first + 10, 100, BYTES).await.unwrap();
    assert_eq!((tail.records.len(), tail.next), (0, first + 10));
}

pub async fn a_place_without_a_record_is_passed_over(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    let first = backend.produce(0, Produced::of("before")).await;
    backend.leave_gap(0).await;
    let last = backend.produce(0, Produced::of("after")).await;
    assert!(last > first + 1);
    backend.leave_gap(0).await;
    let read = read_all(&*inbox, 0, first).await;
    let offsets: Vec<u64> = read.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [first, last]);
}

pub async fn what_is_too_large_comes_as_damaged(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    let first = backend
        .produce(0, Produced::of(vec![1; PAYLOAD_BYTES_MAX + 1]))
        .await;
    let long = "x".repeat(FRAME_BYTES_MAX);
    backend
        .produce(0, Produced::of("{}").with("ce_note", &long))
        .await;
    backend.produce(0, Produced::of("good")).await;
    let read = read_all(&*inbox, 0, first).await;
    let damage: Vec<Option<Damage>> = read.iter().map(|record| record.damage).collect();
    assert_eq!(
        damage,
        [Some(Damage::TooLarge), Some(Damage::TooLarge), None]
    );
    assert!(read[0].payload.is_none() && read[1].headers.is_empty());
    assert_eq!(read[2].payload.as_deref(), Some(&b"good"[..]));
}

pub async fn a_read_out_of_range_is_refused(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    for n in 0..6 {
        backend.produce(0, Produced::of(format!("{n}"))).await;
    }
    let last = inbox.end(0).await.unwrap();
    backend.drop_before(0, last - 2).await;
    assert_eq!(inbox.start(0).await.unwrap(), last - 2);
    for offset in [last - 3, last + 1] {
        match inbox.read(0, offset, 10, BYTES).await {
            Err(LogError::OutOfRange {
                offset: told,
                start,
                end,
                ..
            }) => assert_eq!((told, start, end), (offset, last - 2, last)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read_all(&*inbox, 0, last - 2).await.len(), 2);
    for answer in [inbox.start(2).await, inbox.end(2).await] {
        assert!(matches!(answer, Err(LogError::NoPartition { .. })));
    }
}

pub async fn a_waiter_wakes_when_something_comes_and_gives_up_in_time(backend: &dyn InboxBackend) {
    let inbox = backend.make().await;
    let end = inbox.end(1).await.unwrap();
    inbox
        .wait_beyond(1, end, Duration::from_millis(20))
        .await
        .unwrap();
    assert_eq!(inbox.end(1).await.unwrap(), end);
    let at_most = Duration::from_secs(60);
    let waits = inbox.wait_beyond(1, end, at_most);
    let comes = backend.produce(1, Produced::of("{}"));
    let both = async { tokio::join!(waits, comes) };
    let within = tokio::time::timeout(at_most / 2, both).await;
    let (waited, offset) = within.expect("the waiter wakes");
    waited.unwrap();
    assert_eq!(offset, end);
    // What is there already is not waited for.
    let there = inbox.wait_beyond(1, end, at_most);
    tokio::time::timeout(at_most / 2, there)
        .await
        .expect("it is there")
        .unwrap();
}
