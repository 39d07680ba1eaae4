//! What if the server did what it was asked, and the answer never came?

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anamnesis_pipeline::conformance::stores::model;
use anamnesis_pipeline::conformance::stores::script::{Script, id, memory, scope};
use anamnesis_pipeline::stores::{Projection, Store, StoreError};
use anamnesis_servers::qdrant::{Place, QdrantVectors};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{FEED, Fresh, GENERATION};

/// Forwards what a client says, and of what the server says only so many pieces more.
struct Proxy {
    url: String,
    pieces: Arc<AtomicI64>,
}

impl Proxy {
    async fn before(url: &str) -> Self {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let pieces = Arc::new(AtomicI64::new(i64::MAX));
        let left = pieces.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward(from_client, to_server, None));
                tokio::spawn(forward(from_server, to_client, Some(left.clone())));
            }
        });
        Self { url, pieces }
    }
}

async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    left: Option<Arc<AtomicI64>>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let is_lost = left
            .as_ref()
            .is_some_and(|left| left.fetch_sub(1, Ordering::SeqCst) <= 0);
        if !is_lost && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// the deadline passes after the server has done some, or all, of a batch. The caller cannot know,
/// asks for the position, and goes on from there; no version is doubled or lost, whatever was done.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_after_the_server_has_written_changes_nothing_twice() {
    let fresh = Fresh::new();
    let direct = fresh.opened().await;
    let proxy = Proxy::before(&fresh.config.url).await;
    let mut config = fresh.config.clone();
    config.url.clone_from(&proxy.url);
    config.write_deadline = Duration::from_millis(1_000);
    config.read_deadline = Duration::from_millis(1_000);
    let mut script = Script::default();
    let (mut lost, mut lost_when_done) = (0, 0);
    for pieces in 0..14 {
        // One that gets a new version each time, and one that is new, or erased again.
        let new = 10 + pieces as u8;
        let changed = memory(1, &"one ".repeat(1 + pieces as usize));
        script.decide(1, vec![changed, memory(new, "two")]);
        if pieces % 3 == 2 {
            script.erase(1, &[id(new)]);
        }
        proxy.pieces.store(i64::MAX, Ordering::SeqCst);
        let place = Place::Generation(GENERATION.to_owned());
        let store = QdrantVectors::open(&config, place, FEED, model())
            .await
            .unwrap();
        for batch in script.take(100) {
            proxy.pieces.store(pieces, Ordering::SeqCst);
            let applied = batch.apply(&store).await;
            let is_lost = applied.is_err();
            if let Err(error) = applied {
                assert!(
                    matches!(error, StoreError::Unavailable { .. }) && error.is_retryable(),
                    "{error}"
                );
            }
            let stands = direct.checkpoint(batch.partition).await.unwrap();
            let is_done = stands == Some(batch.next);
            assert!(is_lost || is_done);
            lost += usize::from(is_lost);
            lost_when_done += usize::from(is_lost && is_done);
            if is_done {
                let again = batch.apply(&direct).await;
                assert!(matches!(again, Err(StoreError::Moved { .. })), "{again:?}");
            } else {
                batch.apply(&direct).await.unwrap();
            }
        }
        let expected = script.expected(Store::Vectors, scope(1).key());
        assert_eq!(
            direct.rows(scope(1)).await.unwrap(),
            expected,
            "{pieces} pieces"
        );
    }
    assert!(
        lost > 2 && lost_when_done > 0,
        "{lost} lost, {lost_when_done} when all was done"
    );
}
