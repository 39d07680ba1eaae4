//! Do the stories hold over the embedded stores too? The same files that are played over doubles.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anamnesis::config::Config;
use anamnesis::node::Node;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_testbed::story::{Ground, play_all};

#[tokio::test(flavor = "multi_thread")]
async fn every_story_holds_over_embedded_stores() {
    let scratch = tempfile::tempdir().unwrap();
    let made = AtomicUsize::new(0);
    let embedded = || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let data_dir = scratch.path().join(number.to_string());
        async move {
            let config = Config {
                data_dir,
                ..Config::default()
            };
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
            let node = Node::open_with(config, clock.clone()).await.unwrap();
            Ground {
                log: node.log.clone(),
                codec: node.codec.clone(),
                stores: node.stores.clone(),
                embed: node.embed.clone(),
                clock,
            }
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/testbed/stories");
    let wrong = play_all(&folder, embedded).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
