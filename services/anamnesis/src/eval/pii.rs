//! Texts with marked personal data: how much of it does intake hide before anything is written, and what
//! does it hide that treatment needs?

use std::collections::BTreeMap;
use std::ops::Range;

use anamnesis_domain::memory::Role;
use anamnesis_domain::time::Timestamp;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, share};
use crate::eval::world::{World, message};
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const ON: &str = "2026-03-09T10:00:00+08:00";

#[derive(Deserialize)]
struct Sample {
    id: String,
    text: String,
    spans: Vec<Span>,
    #[serde(default)]
    must_keep: Vec<Span>,
}

/// In code points of the text.
#[derive(Deserialize)]
struct Span {
    #[serde(rename = "type")]
    kind: String,
    start: usize,
    end: usize,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("pii")?;
    let mut figures = Figures::default();
    let mut means = Means::default();
    for language in ["zh", "en"] {
        let mut samples: Vec<Sample> = read_lines(&folder.join(format!("{language}.jsonl")))?;
        samples.truncate(args.limit.unwrap_or(usize::MAX));
        figures.n += samples.len();
        let mut world = World::open(config, "pii", Episodes::All, None).await?;
        figures.model = world.node.embed.identity().to_string();
        let owner = world.owner(language)?;
        let at = Timestamp::parse(ON).map_err(Failure::wrong_use)?;
        let said = samples
            .iter()
            .map(|one| message(&owner, &one.id, Role::User, at, &one.text));
        world.say(said.collect()).await?;
        let turns = world.turns().await?.into_iter();
        let sealed: BTreeMap<String, String> = turns
            .map(|turn| (turn.event_id, turn.text.expose().to_owned()))
            .collect();
        for sample in &samples {
            let Some(sealed) = sealed.get(&sample.id) else {
                return Err(Failure::does_not_hold(format!(
                    "{} was accepted and is not in the log",
                    sample.id
                )));
            };
            let Some(hidden) = hidden(&sample.text, sealed) else {
                return Err(Failure::does_not_hold(format!(
                    "{} was altered elsewhere than at placeholders",
                    sample.id
                )));
            };
            measure_one(&mut means, language, sample, &hidden);
        }
        world.close().await;
    }
    figures.put(&means);
    Ok(figures)
}

fn measure_one(means: &mut Means, language: &str, sample: &Sample, hidden: &[Range<usize>]) {
    let characters: Vec<char> = sample.text.chars().collect();
    let is_hidden = |at: usize| hidden.iter().any(|range| range.contains(&at));
    for span in &sample.spans {
        let written = (span.start..span.end).filter(|at| {
            let c = characters.get(*at);
            c.is_some_and(|c| !c.is_whitespace())
        });
        let written: Vec<usize> = written.collect();
        let gone = written.iter().filter(|at| is_hidden(**at)).count();
        let is_gone = gone == written.len();
        let kind = &span.kind;
        means.add(format!("{language}.span_recall"), share(is_gone));
        means.add(format!("{language}.span_recall.{kind}"), share(is_gone));
        let is_exact = hidden.contains(&(span.start..span.end));
        means.add(format!("{language}.span_exact"), share(is_exact));
        for at in written {
            means.add(format!("{language}.char_recall"), share(is_hidden(at)));
        }
    }
    for range in hidden {
        let is_right = sample.spans.iter().any(|span| overlaps(span, range));
        means.add(format!("{language}.precision"), share(is_right));
    }
    for span in &sample.must_keep {
        let is_kept = !hidden.iter().any(|range| overlaps(span, range));
        means.add(format!("{language}.kept"), share(is_kept));
        means.add(format!("{language}.kept.{}", span.kind), share(is_kept));
    }
}

fn overlaps(span: &Span, range: &Range<usize>) -> bool {
    span.start < range.end && range.start < span.end
}

/// Which code points of `text` became placeholders in `sealed`; `None` when something else differs.
fn hidden(text: &str, sealed: &str) -> Option<Vec<Range<usize>>> {
    let mut kept = Vec::new();
    let mut rest = sealed;
    while let Some((before, after)) = next_placeholder(rest) {
        kept.push(before);
        rest = after;
    }
    let (Some((first, middle)), last) = (kept.split_first(), rest) else {
        return (text == sealed).then(Vec::new);
    };
    let mut hidden = Vec::new();
    let mut at = text.strip_prefix(first).map(|_| first.len())?;
    for (n, part) in middle.iter().chain([&last]).enumerate() {
        let is_last = n == middle.len();
        // What stands between is the shortest that fits; the last part ends the text.
        let found = if is_last {
            text.len().checked_sub(part.len())?
        } else {
            let after_one = text[at..].chars().next()?.len_utf8();
            let found = text.get(at + after_one..)?.find(part)?;
            at + after_one + found
        };
        if found < at || !text.get(found..)?.starts_with(part) {
            return None;
        }
        let point = |byte: usize| text[..byte].chars().count();
        hidden.push(point(at)..point(found));
        at = found + part.len();
    }
    Some(hidden)
}

/// What stands before the first `<KIND#0123abcd>` and after it.
fn next_placeholder(text: &str) -> Option<(&str, &str)> {
    for (at, _) in text.match_indices('<') {
        let Some((kind, rest)) = text[at + 1..].split_once('#') else {
            continue;
        };
        let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let Some((number, after)) = rest.split_once('>') else {
            continue;
        };
        if is_kind && number.len() == 8 && number.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some((&text[..at], after));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, sealed: &str, expected: &[&str]) {
        let points: Vec<char> = text.chars().collect();
        let found: Vec<String> = hidden(text, sealed)
            .unwrap()
            .into_iter()
            .map(|range| points[range].iter().collect())
            .collect();
        assert_eq!(found, expected, "{sealed}");
    }

    #[test]
    fn what_a_placeholder_stands_for_is_found() {
        check(
            "电话13912345678。",
            "电话<PHONE#00112233>。",
            &["13912345678"],
        );
        check(
            "a 1 and 2, a < b",
            "a <X#00112233> and <Y#00112233>, a < b",
            &["1", "2"],
        );
        check("12", "<X#00112233>", &["12"]);
        check("nothing <here>", "nothing <here>", &[]);
        check("1,1", "<X#00112233>,<X#00112233>", &["1", "1"]);
    }

    #[test]
    fn another_change_is_no_redaction() {
        assert_eq!(hidden("电话139", "电1话<PHONE#00112233>"), None);
        assert_eq!(hidden("a", "b"), None);
    }

    #[test]
    fn a_span_counts_when_nothing_of_it_is_left() {
        let sample: Sample = serde_json::from_value(serde_json::json!({
            "id": "x",
            "text": "call 123 456, 5 mg",
            "spans": [{"type": "PHONE", "start": 5, "end": 12}],
            "must_keep": [{"type": "DOSE", "start": 14, "end": 18}],
        }))
        .unwrap();
        let measured = |hidden: &[Range<usize>]| {
            let mut means = Means::default();
            measure_one(&mut means, "en", &sample, hidden);
            means.means()
        };
        let whole = measured(std::slice::from_ref(&(5..12)));
        assert_eq!(
            (
                whole["en.span_recall"],
                whole["en.span_exact"],
                whole["en.kept"]
            ),
            (1.0, 1.0, 1.0)
        );
        let apart = measured(&[5..8, 9..12, 14..18]);
        assert_eq!(
            (apart["en.span_recall"], apart["en.span_exact"]),
            (1.0, 0.0)
        );
        assert_eq!((apart["en.precision"], apart["en.kept"]), (2.0 / 3.0, 0.0));
        let half = measured(std::slice::from_ref(&(5..9)));
        assert_eq!((half["en.span_recall"], half["en.char_recall"]), (0.0, 0.5));
    }
}
