//! What becomes of a request to write something down, beyond the message that makes it?
//!
//! What is to be kept may follow in the next message, or was said before; the assistant may call a tool for
//! it; and when the turn ends with nothing stored, that is an error which somebody has to see.

use std::ops::Range;
use std::sync::LazyLock;

use anamnesis_domain::input::{CandidateSet, RejectCode, Turn};
use anamnesis_domain::memory::{Claim, Kind, Role};
use anamnesis_domain::tokens::index_tokens;
use regex::Regex;

use crate::context::{Came, Context, Episodes, RECENT_MAX, Said};
use crate::explicit;
use crate::extract::{Judged, extract};
use crate::fold::fold;
use crate::intent;
use crate::pattern::compile;
use crate::reply::Reply;
use crate::sentence::sentences;

/// A message that only asks is short; a longer one says something.
const BARE_BYTES_MAX: usize = 200;

static NEGATORS: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"不|没|无|未|非|否|勿|别|\b(?:no|not|never|none|without|denies|cannot|nor|neither)\b|n't\b",
    )
});

/// What the candidates of a message tell about what came of it.
pub(crate) struct Recorded {
    has_explicit: bool,
    has_facts: bool,
    reply: Option<Reply>,
}

impl Recorded {
    pub(crate) fn of(set: &CandidateSet) -> Self {
        let has = |is: fn(&Claim) -> bool| set.candidates.iter().any(|one| is(&one.claim));
        Self {
            has_explicit: has(|claim| claim.explicit),
            has_facts: has(|claim| claim.kind != Kind::Episode),
            reply: Reply::recorded(set),
        }
    }

    /// What came of the message itself: its words tell whether it asks, unless a model has judged them.
    pub(crate) fn came(&self, turn: &Turn) -> Came {
        let judged = self
            .reply
            .as_ref()
            .and_then(|reply| Judged::of(turn, reply));
        let of_model = |sentence: &Range<usize>| judged.as_ref()?.asks_to_keep(sentence);
        let asked = if is_owners(turn.role) {
            Came::asked(turn.text.expose(), of_model)
        } else {
            Came::default()
        };
        Came {
            has_explicit: self.has_explicit,
            has_facts: self.has_facts,
            ..asked
        }
    }
}

impl Came {
    /// Whether a message asks, with nothing found in it. `judged` is another judgement than ours of each of
    /// its sentences, where there is one.
    fn asked(text: &str, judged: impl Fn(&Range<usize>) -> Option<bool>) -> Self {
        let (mut asks, mut says_something) = (false, false);
        for sentence in sentences(text) {
            let folded = sentence.folded.as_str();
            let cue = explicit::cue_if(folded, judged(&sentence.range));
            asks |= cue.is_some();
            says_something |= match cue {
                Some(cue) => !explicit::only_asks(folded, &cue),
                None => explicit::says_something(folded),
            };
        }
        Self {
            asks,
            is_bare: asks && !says_something && text.len() <= BARE_BYTES_MAX,
            ..Self::default()
        }
    }
}

/// Whether somebody who speaks for the owner asks in this message for something to be written down.
fn asks(said: &Said) -> bool {
    let judged = |came: Came| came.asks;
    is_own(said)
        && said
            .came
            .map_or_else(|| intent::asks_to_keep(said.text.expose()), judged)
}

fn is_own(said: &Said) -> bool {
    is_owners(said.role)
}

fn is_owners(role: Role) -> bool {
    matches!(role, Role::User | Role::Clinician)
}

/// A request, and nothing that it could be about.
fn is_bare(said: &Said) -> bool {
    let asked = || Came::asked(said.text.expose(), |_| None);
    is_own(said) && said.came.unwrap_or_else(asked).is_bare
}

fn recent(context: &Context) -> &[Said] {
    &context.recent[context.recent.len().saturating_sub(RECENT_MAX)..]
}

/// Whether the message before this one announced it: a request without anything to be kept, and either in
/// words for what follows or with nothing said before that it could mean.
pub(crate) fn is_announced(context: &Context) -> bool {
    let mut own = recent(context).iter().filter(|said| is_own(said)).rev();
    let Some(last) = own.next() else { return false };
    let is_about_before = own.next().is_some() && !explicit::looks_ahead(&fold(last.text.expose()));
    !is_about_before && is_bare(last)
}

/// The messages since the assistant last said something.
fn turn_of(context: &Context) -> std::ops::Range<usize> {
    let all = recent(context);
    let is_answer = |said: &Said| said.role == Role::Assistant && !said.is_memory_write;
    let from = all.iter().rposition(is_answer).map_or(0, |at| at + 1);
    from..all.len()
}

/// What came of one of the messages before `turn`.
fn came(turn: &Turn, context: &Context, at: usize) -> Came {
    let all = recent(context);
    let said = &all[at];
    if let Some(came) = said.came {
        return came;
    }
    let tool = anamnesis_domain::input::MEMORY_WRITE;
    let earlier = Turn {
        role: said.role,
        speaker: said.is_memory_write.then(|| tool.into()),
        text: said.text.clone(),
        injected: Vec::new(),
        structured: None,
        ..turn.clone()
    };
    let before = Context {
        recent: all[..at].to_vec(),
        episodes: Episodes::Off,
    };
    Recorded::of(&extract(&earlier, &before)).came(&earlier)
}

/// Whether the user asked in the turn that is over now for something to be written down, and nothing was
/// stored: neither from these words, nor what they point back to, nor by the assistant's tool.
pub(crate) fn is_unmet(turn: &Turn, context: &Context) -> bool {
    let all = recent(context);
    let over = turn_of(context);
    let Some(first) = over.clone().find(|at| asks(&all[*at])) else {
        return false;
    };
    if over.clone().any(|at| came(turn, context, at).has_explicit) {
        return false;
    }
    // "记一下" about what was said before: it is stored if it was understood then.
    let before = (0..first).rev().find(|at| is_own(&all[*at]));
    !(is_bare(&all[first]) && before.is_some_and(|at| came(turn, context, at).has_facts))
}

/// Whether an assistant may have `turn` written down, word for word what its user said: only if the user
/// asked for it, and if it was not stored from the user's own words.
///
/// # Errors
/// Why not.
pub(crate) fn may_write(turn: &Turn, context: &Context) -> Result<(), RejectCode> {
    let all = recent(context);
    let over = turn_of(context);
    if !over.clone().any(|at| asks(&all[at])) {
        return Err(RejectCode::NotUserAssertion);
    }
    let mut own = over.clone().filter(|at| is_own(&all[*at]));
    if own.any(|at| came(turn, context, at).has_explicit) {
        return Err(RejectCode::Echo);
    }
    let said: Vec<&Said> = all.iter().filter(|said| is_own(said)).collect();
    is_borne_out(turn.text.expose(), &said)
}

/// Whether what is to be written is what was said: its numbers, whether it denies, and most of its words.
fn is_borne_out(written: &str, said: &[&Said]) -> Result<(), RejectCode> {
    let mut spoken = Vec::new();
    let mut denies = false;
    for one in said {
        spoken.extend(index_tokens(one.text.expose()));
        denies |= NEGATORS.is_match(&fold(one.text.expose()));
    }
    let tokens = index_tokens(written);
    let is_number = |token: &&String| token.starts_with(|c: char| c.is_ascii_digit());
    if tokens
        .iter()
        .filter(is_number)
        .any(|token| !spoken.contains(token))
    {
        return Err(RejectCode::NumberChanged);
    }
    if NEGATORS.is_match(&fold(written)) != denies {
        return Err(RejectCode::NegationChanged);
    }
    let shared = tokens.iter().filter(|token| spoken.contains(token)).count();
    if shared * 2 < tokens.len() || tokens.is_empty() {
        return Err(RejectCode::NotUserAssertion);
    }
    Ok(())
}
