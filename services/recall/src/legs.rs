//! What do the stores propose, and what of it came in time?

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Entity;
use anamnesis_pipeline::embedder::{Embed, EmbedError, Purpose};
use anamnesis_pipeline::stores::{
    CheckedAnswer, Filter, Hit, LegAnswer, MemoryVersion, StoreError, Stores,
};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::answer::LegReport;
use crate::fuse::{FUSED_MAX, merge};
use crate::metrics::{DEGRADED_TOTAL, EMBED_SECONDS, LEG_SECONDS};

/// In `degraded`, and as the reason of a leg that was not asked: too many ask at once.
pub(crate) const OVERLOAD: &str = "overload";

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

/// What the authority has said of a leg's hits under one filter, when it came with them.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Of which memories it was asked.
    pub ids: BTreeSet<MemoryId>,
    /// Those that it admits.
    pub versions: Vec<MemoryVersion>,
}

/// One leg's hits, and what is reported of it. No hits when it failed or was late.
#[derive(Debug)]
pub(crate) struct Leg {
    pub hits: Vec<Hit>,
    /// One per filter, or none at all.
    pub checked: Vec<Checked>,
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
            stores.text.search_checked(filter, terms, FUSED_MAX)
        })
        .await
    });
    let vector = under("vector", deadlines.vector, async {
        let started = Instant::now();
        let vectors = embed.embed(&[question], Purpose::Query).await?;
        metrics::histogram!(EMBED_SECONDS).record(started.elapsed().as_secs_f64());
        let query = vectors.first().map(Vec::as_slice).unwrap_or_default();
        over(filters, async |filter| {
            unchecked(stores.vectors.search(filter, query, FUSED_MAX).await)
        })
        .await
    });
    let (text, mut vector) = tokio::join!(text, vector);
    vector.report.model = Some(embed.identity().id.clone());
    vector.report.semantic = Some(embed.is_semantic());
    (text, vector)
}

/// A leg that is not asked, because too many ask at once.
pub(crate) fn unasked(leg: &'static str) -> Leg {
    metrics::counter!(DEGRADED_TOTAL, "part" => leg).increment(1);
    Leg {
        hits: Vec::new(),
        checked: Vec::new(),
        report: LegReport {
            reason: Some(OVERLOAD.to_owned()),
            ..LegReport::default()
        },
    }
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
        over(filters, async |filter| {
            let neighbours = stores.graph.neighbours(filter, &seeds, entities, FUSED_MAX);
            unchecked(neighbours.await)
        })
        .await
    })
    .await
}

fn unchecked(answer: Result<LegAnswer, StoreError>) -> Result<CheckedAnswer, StoreError> {
    Ok(CheckedAnswer {
        answer: answer?,
        checked: None,
    })
}

/// Asks once per filter and merges.
async fn over<'a, F, Fut>(
    filters: &'a [Filter],
    ask: F,
) -> Result<(LegAnswer, Vec<Checked>), LegError>
where
    F: Fn(&'a Filter) -> Fut,
    Fut: Future<Output = Result<CheckedAnswer, StoreError>>,
{
    let answers = futures::future::try_join_all(filters.iter().map(ask)).await?;
    let positions = answers.iter().map(|one| one.answer.position);
    let position = positions.min().unwrap_or_default();
    let mut lists = Vec::with_capacity(answers.len());
    let mut all_checked = Vec::with_capacity(answers.len());
    for CheckedAnswer { answer, checked } in answers {
        all_checked.push(match checked {
            Some(versions) => Checked {
                ids: answer.hits.iter().map(|hit| hit.memory_id).collect(),
                versions,
            },
            None => Checked::default(),
        });
        lists.push(answer.hits);
    }
    let hits = merge(lists);
    Ok((LegAnswer { hits, position }, all_checked))
}

async fn under(
    leg: &'static str,
    deadline: Duration,
    work: impl Future<Output = Result<(LegAnswer, Vec<Checked>), LegError>>,
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
            checked: Vec::new(),
            report: LegReport {
                ran: false,
                ms,
                reason: Some(reason.to_owned()),
                ..LegReport::default()
            },
        }
    };
    match result {
        Ok(Ok((answer, checked))) => Leg {
            hits: answer.hits,
            checked,
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
