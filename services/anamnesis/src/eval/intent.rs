//! Of the project itself: does the judgement of requests to write something down hold on sentences that it
//! was not trained on? `DIR/intent/test.{zh,en}.tsv` holds a label (1 asks, 0 does not), a tab and a text a
//! line.

use anamnesis_extractor::intent::asks_to_keep;

use super::Figures;
use crate::cli::EvalArgs;
use crate::failure::Failure;

/// # Errors
/// When a file cannot be read or a line has no label.
pub fn measure(args: &EvalArgs) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for language in ["zh", "en"] {
        let path = args.folder("intent")?.join(format!("test.{language}.tsv"));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::wrong_use(format!("cannot read {}: {error}", path.display()))
        })?;
        let (mut right, mut wrong, mut missed) = (0, 0, 0);
        let limit = args.limit.unwrap_or(usize::MAX);
        for (number, line) in text.lines().take(limit).enumerate() {
            let asks = match line.split_once('\t') {
                Some(("1", _)) => true,
                Some(("0", _)) => false,
                Some(_) | None => {
                    let place = format!("{}:{}", path.display(), number + 1);
                    return Err(Failure::wrong_use(format!("{place}: no label 1 or 0")));
                }
            };
            figures.n += 1;
            match (asks, asks_to_keep(&line[2..])) {
                (true, true) => right += 1,
                (false, true) => wrong += 1,
                (true, false) => missed += 1,
                (false, false) => (),
            }
        }
        let share = |of: usize| f64::from(right) / f64::max(1.0, f64::from(right) + of as f64);
        let keys = [("precision", share(wrong)), ("recall", share(missed))];
        for (key, value) in keys {
            figures.metrics.insert(format!("{language}.{key}"), value);
        }
    }
    Ok(figures)
}
