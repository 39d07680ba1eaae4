//! What did a model say of a turn, and what has become of it when all sentences are read?

use std::ops::Range;

use anamnesis_domain::input::{CandidateSet, RejectCode, Turn};
use anamnesis_domain::memory::Role;

use super::{REJECTS_MAX, kept_ranges, reject, spoken_ranges};
use crate::answer::Fact;
use crate::context::Context;
use crate::offer::{Offer, Outcome, Searchable};
use crate::reply::Reply;

/// What a model said of a turn, looked for in the turn's words.
pub(super) struct Said<'a> {
    pub(super) reply: Option<&'a Reply>,
    pub(super) offers: Vec<Offer>,
    judged: Option<Judged>,
    pub(super) secrets: Vec<Range<usize>>,
}

impl<'a> Said<'a> {
    pub(super) fn of(turn: &Turn, reply: Option<&'a Reply>) -> Self {
        let mut said = Self {
            reply,
            offers: Vec::new(),
            judged: None,
            secrets: Vec::new(),
        };
        let Some(reply) = reply else { return said };
        let words = Searchable::of(turn.text.expose());
        said.judged = Judged::of(turn, reply);
        let offer = |fact: &Fact| Offer {
            places: words.places(&fact.quote),
            fact: fact.clone(),
            outcome: None,
        };
        said.offers = reply.facts().iter().map(offer).collect();
        said
    }

    /// Whether a sentence asks to be kept, if the model judges that.
    pub(super) fn asks_to_keep(&self, sentence: &Range<usize>) -> Option<bool> {
        self.judged.as_ref()?.asks_to_keep(sentence)
    }

    /// What no sentence has answered. A reject never repeats words that were not found.
    pub(super) fn reject_the_rest(
        &self,
        turn: &Turn,
        context: &Context,
        kept: &[Range<usize>],
        set: &mut CandidateSet,
    ) {
        let text = turn.text.expose();
        for offer in &self.offers {
            let code = match offer.outcome {
                Some(Outcome::Heard | Outcome::SameAsRules) => continue,
                Some(Outcome::Refused(code)) => code,
                None if offer.places.is_empty() => elsewhere(&offer.fact.quote, context),
                None if offer.places.iter().any(|place| is_in(&self.secrets, place)) => {
                    reject(set, RejectCode::Secret, None);
                    continue;
                }
                None if !offer.places.iter().any(|place| is_in(kept, place)) => RejectCode::Echo,
                None => RejectCode::QuoteNotFound,
            };
            let words = offer.places.first().map(|place| &text[place.clone()]);
            reject(set, code, words);
        }
        let malformed = self.reply.map_or(0, Reply::malformed);
        for _ in 0..malformed.min(REJECTS_MAX) {
            reject(set, RejectCode::Malformed, None);
        }
    }
}

/// Which sentences a model takes for requests to write something down.
pub(crate) struct Judged {
    /// The words that it was shown. Of others it judges nothing.
    shown: Vec<Range<usize>>,
    asks: Vec<Range<usize>>,
}

impl Judged {
    /// `None` when it has not judged all that it was shown.
    pub(crate) fn of(turn: &Turn, reply: &Reply) -> Option<Self> {
        let asks = reply.asks()?;
        let text = turn.text.expose();
        let words = Searchable::of(text);
        Some(Self {
            shown: spoken_ranges(text, &kept_ranges(turn)),
            asks: asks.iter().flat_map(|quote| words.places(quote)).collect(),
        })
    }

    /// Whether a sentence of the turn asks to be kept, if the model judges that.
    pub(crate) fn asks_to_keep(&self, sentence: &Range<usize>) -> Option<bool> {
        is_in(&self.shown, sentence).then(|| is_in(&self.asks, sentence))
    }
}

fn is_in(ranges: &[Range<usize>], place: &Range<usize>) -> bool {
    ranges
        .iter()
        .any(|range| range.start < place.end && place.start < range.end)
}

/// Why a quote is not the speaker's: somebody else has said it, or nobody.
fn elsewhere(quote: &str, context: &Context) -> RejectCode {
    let is_others = |said: &crate::context::Said| {
        let is_own = matches!(said.role, Role::User | Role::Clinician | Role::Record);
        !is_own && !Searchable::of(said.text.expose()).places(quote).is_empty()
    };
    if context.recent.iter().any(is_others) {
        RejectCode::OtherSpeaker
    } else {
        RejectCode::QuoteNotFound
    }
}
