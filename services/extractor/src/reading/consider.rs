//! What does a sentence make of a fact that a model offers for it?

use anamnesis_domain::input::RejectCode;
use anamnesis_domain::owner::Subject;

use super::{Heard, Part, Reader, WHOLE};
use crate::modality::Modality;
use crate::offer::{Offer, Outcome, is_same_person};
use crate::scene::Scene;

/// A clause as it was read, for what a model says about it.
pub(super) struct Clause {
    pub(super) text: String,
    pub(super) mood: Modality,
    /// Whom the clauses before it were about.
    pub(super) carried: Option<Vec<Subject>>,
}

impl Reader {
    /// Hears what a model offers for the touched clauses of a sentence, if the sentence states it.
    pub(super) fn consider(
        &self,
        offer: &mut Offer,
        touched: &[usize],
        clauses: &[Clause],
        parts: &[Part],
        is_repaired: bool,
        heard: &mut Vec<(usize, Heard)>,
    ) {
        if let Some(outcome) = offer.judged_by(heard) {
            offer.outcome = Some(outcome);
            return;
        }
        // Of two words the speaker took one back; only the rules know which.
        if is_repaired {
            offer.refuse(RejectCode::Unconfirmed);
            return;
        }
        let known = self.known.clone();
        let scene = |i: usize| {
            let clause = &clauses[i];
            Scene::read(&clause.text, clause.mood, self.clock, &known)
        };
        let (at, found) = if offer.is_free() {
            // What the rules took from these words is what they say.
            let is_read = |(i, h): &(usize, Heard)| touched.contains(i) && h.refused.is_none();
            if heard.iter().any(is_read) {
                offer.outcome = Some(Outcome::SameAsRules);
                return;
            }
            let refused = touched.iter().find_map(|i| clauses[*i].mood.refused);
            if let Some(code) = refused {
                offer.refuse(code);
                return;
            }
            let most_doubtful = touched.iter().rev().max_by_key(|i| clauses[**i].mood.hedge);
            let at = *most_doubtful.unwrap_or(&touched[0]);
            (at, offer.free(&scene(at)))
        } else {
            let in_clause = |i: usize| {
                let of_rules: Vec<&Heard> = heard
                    .iter()
                    .filter(|(at, h)| *at == i && h.found.offered.is_none())
                    .map(|(_, h)| h)
                    .collect();
                offer.found_in(&scene(i), &of_rules).map(|found| (i, found))
            };
            match touched.iter().find_map(|i| in_clause(*i)) {
                Some(found) => found,
                // Another sentence may name it; the quote may reach there.
                None => return,
            }
        };
        let found = match found {
            Ok(found) => found,
            Err(code) => {
                offer.refuse(code);
                return;
            }
        };
        offer.outcome = Some(Outcome::Heard);
        let scene = scene(at);
        let carried = clauses[at].carried.as_deref();
        let (mut who, is_guess) = self.whom(&found, &scene, &parts[at].persons, carried);
        let is_meant = |subject: &Subject| is_same_person(offer.fact.subject, subject);
        if who.iter().any(is_meant) {
            who.retain(is_meant);
        } else {
            who.truncate(1);
        }
        for subject in &who {
            let mut one = self.hear(&found, subject, &scene, is_guess);
            if touched.len() > 1 && offer.is_free() {
                one.quote = WHOLE.to_owned();
            }
            if one.refused.is_none() && !is_meant(subject) {
                one.refused = Some(RejectCode::OtherSpeaker);
            }
            heard.push((at, one));
        }
    }
}
