//! Which words of a turn may be read at all, by rules or by a model?

use std::ops::Range;

use anamnesis_domain::input::{RejectCode, Turn};
use anamnesis_domain::memory::Role;

use crate::directives::commands_assistant;
use crate::fold::fold;
use crate::gates;
use crate::sentence::sentences;

/// Why nothing at all of a text may be kept, if so: it was said off the record, or gives orders to an
/// assistant or its memory.
pub(super) fn closed(text: &str, kept: &[Range<usize>], role: Role) -> Option<RejectCode> {
    let any = |is: &dyn Fn(&str) -> bool| kept.iter().any(|range| is(&fold(&text[range.clone()])));
    if any(&gates::is_off_record) {
        return Some(RejectCode::Consent);
    }
    any(&|folded| commands_assistant(folded, role)).then_some(RejectCode::Unconfirmed)
}

/// Whether anything of a text may be kept.
pub(crate) fn is_open(text: &str, kept: &[Range<usize>], role: Role) -> bool {
    closed(text, kept, role).is_none()
}

/// The sentences of the kept ranges, without secrets.
pub(crate) fn spoken_ranges(text: &str, kept: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut spoken = Vec::new();
    for range in kept {
        for sentence in sentences(&text[range.clone()]) {
            if !gates::is_secret(sentence.folded.as_str()) {
                spoken.push(sentence.range.start + range.start..sentence.range.end + range.start);
            }
        }
    }
    spoken
}

/// Ranges of the text that recall put there, in order and without overlaps.
pub(super) fn injected_ranges(turn: &Turn) -> Vec<Range<usize>> {
    let text = turn.text.expose();
    let mut marked: Vec<Range<usize>> = gates::echoes(text);
    if !turn.injected.is_empty() {
        let mut starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        starts.push(text.len());
        let byte = |point: u32| starts.get(point as usize).copied().unwrap_or(text.len());
        marked.extend(
            turn.injected
                .iter()
                .map(|(from, to)| byte(*from)..byte(*to))
                .filter(|r| r.start < r.end),
        );
    }
    marked.sort_by_key(|range| (range.start, range.end));
    let mut injected: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for range in marked {
        if range.end > at {
            injected.push(range.start.max(at)..range.end);
            at = range.end;
        }
    }
    injected
}

/// Ranges of the text that are the speaker's own.
pub(crate) fn kept_ranges(turn: &Turn) -> Vec<Range<usize>> {
    between(turn.text.expose(), &injected_ranges(turn))
}

/// What is left beside the injected ranges, where it holds words.
pub(super) fn between(text: &str, injected: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut kept = Vec::new();
    let mut at = 0;
    for range in injected {
        kept.push(at..range.start);
        at = range.end;
    }
    kept.push(at..text.len());
    kept.retain(|range| {
        range.start < range.end && text[range.clone()].chars().any(char::is_alphanumeric)
    });
    kept
}
