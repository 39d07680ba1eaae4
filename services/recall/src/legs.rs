//! What do the stores propose, and what of it came in time?

use std::future::Future;
use std::time::Duration;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Entity;
use anamnesis_pipeline::embedder::{Embed, EmbedError, Purpose};
use anamnesis_pipeline::stores::{Filter, Hit, LegAnswer, StoreError, Stores};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::answer::LegReport;
use crate::fuse::{FUSED_MAX, merge};
use crate::metrics::{DEGRADED_TOTAL, EMBED_SECONDS, LEG_SECONDS};

/// How many of the best hits of the first two legs start the graph's hop.
const SEEDS_PER_LEG: usize = 5;

/// How long each leg may take; a later one is left out and the answer says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deadlines {
    pub text: Duration,
    /// With the embedding of the question.
    pub vector: Duration,
    pub graph: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LegError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

/// One leg's hits, and what is reported of it. No hits when it failed or was late.
#[derive(Debug)]
pub(crate) struct Leg {
    pub hits: Vec<Hit>,
    pub report: LegReport,
}

/// Text and vectors at once, each under its own deadline; no leg is gated by another's threshold.
pub(crate) async fn text_and_vector(
    stores: &Stores,
    embed: &Embed,
    filters: &[Filter],
    terms: &[String],
    question: &str,
    deadlines: Deadlines,
) -> (Leg, Leg) {
    let text = under("text", deadlines.text, async {
        over(filters, |filter| {
            stores.text.search(filter, terms, FUSED_MAX)
        })
        .await
    });
    let vector = under("vector", deadlines.vector, async {
        let started = Instant::now();
        let vectors = embed.embed(&[question], Purpose::Query).await?;
        metrics::histogram!(EMBED_SECONDS).record(started.elapsed().as_secs_f64());
        let query = vectors.first().map(Vec::as_slice).unwrap_or_default();
        over(filters, |filter| {
            stores.vectors.search(filter, query, FUSED_MAX)
        })
        .await
    });
    let (text, mut vector) = tokio::join!(text, vector);
    vector.report.model = Some(embed.identity().id.clone());
    vector.report.semantic = Some(embed.is_semantic());
    (text, vector)
}

/// One hop from the best hits and from what the question names.
pub(crate) async fn graph(
    stores: &Stores,
    filters: &[Filter],
    text: &Leg,
    vector: &Leg,
    entities: &[Entity],
    deadlines: Deadlines,
) -> Leg {
    let best = |leg: &Leg| {
        leg.hits
            .iter()
            .take(SEEDS_PER_LEG)
            .map(|hit| hit.memory_id)
            .collect()
    };
    let mut seeds: Vec<MemoryId> = best(text);
    let more: Vec<MemoryId> = best(vector);
    seeds.extend(more);
    seeds.sort();
    seeds.dedup();
    under("graph", deadlines.graph, async {
        over(filters, |filter| {
            stores.graph.neighbours(filter, &seeds, entities, FUSED_MAX)
        })
        .await
    })
    .await
}

/// Asks once per filter and merges.
async fn over<'a, F, Fut>(filters: &'a [Filter], ask: F) -> Result<LegAnswer, LegError>
where
    F: Fn(&'a Filter) -> Fut,
    Fut: Future<Output = Result<LegAnswer, StoreError>>,
{
    let answers = futures::future::try_join_all(filters.iter().map(ask)).await?;
    let position = answers
        .iter()
        .map(|answer| answer.position)
        .min()
        .unwrap_or_default();
    let hits = merge(answers.into_iter().map(|answer| answer.hits).collect());
    Ok(LegAnswer { hits, position })
}

async fn under(
    leg: &'static str,
    deadline: Duration,
    work: impl Future<Output = Result<LegAnswer, LegError>>,
) -> Leg {
    let started = Instant::now();
    let result = timeout(deadline, work).await;
    let spent = started.elapsed();
    metrics::histogram!(LEG_SECONDS, "leg" => leg).record(spent.as_secs_f64());
    let ms = (spent.as_secs_f64() * 1e5).round() / 100.0;
    let failed = |reason: &str| {
        metrics::counter!(DEGRADED_TOTAL, "part" => leg).increment(1);
        Leg {
            hits: Vec::new(),
            report: LegReport {
                ran: false,
                ms,
                reason: Some(reason.to_owned()),
                ..LegReport::default()
            },
        }
    };
    match result {
        Ok(Ok(answer)) => Leg {
            hits: answer.hits,
            report: LegReport {
                ran: true,
                ms,
                position: Some(answer.position),
                ..LegReport::default()
            },
        },
        Ok(Err(error)) => {
            warn!(leg, %error, "a leg of a recall failed");
            failed("failed")
        }
        Err(_) => {
            warn!(
                leg,
                deadline_ms = deadline.as_millis() as u64,
                "a leg of a recall was late"
            );
            failed("late")
        }
    }
}
