//! The stories over doubles.

use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::LogId;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::codec::{Codec, identity_payload};
use anamnesis_pipeline::doubles::graph::MemoryGraph;
use anamnesis_pipeline::doubles::keyring::MemoryKeyring;
use anamnesis_pipeline::doubles::log::MemoryLog;
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_pipeline::stores::Stores;
use anamnesis_testbed::story::{Ground, play_all};

const LOG: LogId = LogId::from_bytes([5; 16]);
const PARTITIONS: u32 = 2;

async fn doubles() -> Ground {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
    let embed: Embed = Arc::new(HashEmbedder::new());
    let model = embed.identity().clone();
    Ground {
        log: Arc::new(MemoryLog::new(
            clock.clone(),
            PARTITIONS,
            LOG,
            identity_payload,
        )),
        codec: Codec::new(Arc::new(MemoryKeyring::new(7))),
        stores: Stores {
            records: Arc::new(MemoryRecords::new(LOG, PARTITIONS)),
            text: Arc::new(MemoryText::new(LOG, PARTITIONS)),
            vectors: Arc::new(MemoryVectors::new(LOG, PARTITIONS, model)),
            graph: Arc::new(MemoryGraph::new(LOG, PARTITIONS)),
        },
        embed,
        clock,
    }
}

#[tokio::test]
async fn every_story_holds_over_doubles() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("stories");
    let wrong = play_all(&folder, doubles).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
