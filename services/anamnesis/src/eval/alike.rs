//! Of the project itself: how well does a model tell what belongs together from what does not, by the
//! language of the question and of what was said? These figures say how far its vectors are believed
//! (`recall::likeness`). `DIR/alike/questions.jsonl` holds a question and what answers it in both
//! languages, a pair a line; whatever answers another question is unrelated.

use anamnesis_pipeline::embedder::Purpose;
use anamnesis_pipeline::similarity;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{mean, share};
use crate::eval::world::World;
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

#[derive(Deserialize)]
struct Pair {
    asks_zh: String,
    says_zh: String,
    asks_en: String,
    says_en: String,
}

/// # Errors
/// When the file cannot be read or the model cannot be asked.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let mut pairs: Vec<Pair> = read_lines(&args.folder("alike")?.join("questions.jsonl"))?;
    pairs.truncate(args.limit.unwrap_or(usize::MAX));
    let world = World::open(config, "alike", Episodes::Off, None).await?;
    let embed = &world.node.embed;
    let vectors = async |texts: Vec<&str>, purpose| {
        let vectors = embed.embed(&texts, purpose).await;
        vectors.map_err(|error| Failure::unreachable(error.to_string()))
    };
    let questions = [
        (
            "zh",
            vectors(
                pairs.iter().map(|one| one.asks_zh.as_str()).collect(),
                Purpose::Query,
            )
            .await?,
        ),
        (
            "en",
            vectors(
                pairs.iter().map(|one| one.asks_en.as_str()).collect(),
                Purpose::Query,
            )
            .await?,
        ),
    ];
    let texts = [
        (
            "zh",
            vectors(
                pairs.iter().map(|one| one.says_zh.as_str()).collect(),
                Purpose::Passage,
            )
            .await?,
        ),
        (
            "en",
            vectors(
                pairs.iter().map(|one| one.says_en.as_str()).collect(),
                Purpose::Passage,
            )
            .await?,
        ),
    ];
    let mut figures = Figures {
        n: 2 * pairs.len(),
        model: embed.identity().to_string(),
        ..Figures::default()
    };
    for (asked, questions) in &questions {
        for (said, texts) in &texts {
            let cosines: Vec<Vec<f64>> = questions
                .iter()
                .map(|question| {
                    texts
                        .iter()
                        .map(|text| f64::from(similarity::dot(question, text)))
                        .collect()
                })
                .collect();
            let told = Told::of(&cosines);
            let key = if asked == said {
                (*asked).to_owned()
            } else {
                format!("{asked}_{said}")
            };
            for (name, value) in [
                ("related", told.related),
                ("unrelated", told.unrelated),
                ("unrelated_p95", told.unrelated_p95),
                ("first", told.first),
                ("apart", told.apart),
            ] {
                figures.metrics.insert(format!("{key}.{name}"), value);
            }
        }
    }
    world.close().await;
    Ok(figures)
}

/// Cosines of questions with what answers them and with what does not.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Medians, and the 95th percentile.
    related: f64,
    unrelated: f64,
    unrelated_p95: f64,
    /// Share of the questions whose own answer is nearest.
    first: f64,
    /// Between the two means, in standard deviations of the unrelated.
    apart: f64,
}

impl Told {
    /// Of the cosine of each question with each text; its own has its place.
    fn of(cosines: &[Vec<f64>]) -> Self {
        let (mut related, mut unrelated, mut first) = (vec![], vec![], vec![]);
        for (place, row) in cosines.iter().enumerate() {
            let own = row[place];
            let others: Vec<f64> = row
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != place)
                .map(|(_, cosine)| *cosine)
                .collect();
            first.push(share(others.iter().all(|other| *other < own)));
            related.push(own);
            unrelated.extend(others);
        }
        let (near, far) = (mean(&related), mean(&unrelated));
        let squares: Vec<f64> = unrelated.iter().map(|one| (one - far).powi(2)).collect();
        Self {
            apart: (near - far) / mean(&squares).sqrt(),
            related: percentile(related, 0.5),
            unrelated: percentile(unrelated.clone(), 0.5),
            unrelated_p95: percentile(unrelated, 0.95),
            first: mean(&first),
        }
    }
}

/// The value below which this share of the values lies; 0 of none.
fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (share * values.len() as f64) as usize;
    let last = values.len().saturating_sub(1);
    values.get(place.min(last)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_is_told_from_what_does_not() {
        let told = Told::of(&[
            vec![0.9, 0.1, 0.2],
            vec![0.3, 0.8, 0.1],
            vec![0.7, 0.2, 0.6],
        ]);
        assert_eq!(
            (told.related, told.unrelated, told.unrelated_p95),
            (0.8, 0.2, 0.7)
        );
        assert_eq!(told.first, 2.0 / 3.0);
        // Means 0.767 and 0.267; the unrelated spread by 0.206.
        assert!((told.apart - 2.433).abs() < 0.001, "{}", told.apart);
    }
}
