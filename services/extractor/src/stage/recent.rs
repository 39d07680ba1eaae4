//! What was said in each conversation just before, what came of it, and which requests are still unmet?

use std::collections::{BTreeMap, VecDeque};

use anamnesis_domain::ids::{EventTag, OwnerKey};
use anamnesis_domain::input::{RejectCode, Turn};
use anamnesis_domain::time::Timestamp;

use super::STAGE;
use crate::context::{Came, Context, Episodes, RECENT_MAX, Said};
use crate::{metrics, request};

/// Conversations whose last turns are kept at hand.
const CONVERSATIONS_MAX: usize = 10_000;
/// A conversation in which nobody has said anything for so long is over (`domain.md` §2).
const IDLE_MILLIS: i64 = 5 * 60 * 1_000;

/// Messages without a name for their conversation are one.
type Conversation = (OwnerKey, String);

fn conversation(owner: OwnerKey, turn: &Turn) -> Conversation {
    (owner, turn.conversation_id.clone().unwrap_or_default())
}

/// The last turns of each conversation.
#[derive(Default)]
pub(super) struct Recent {
    turns: BTreeMap<Conversation, VecDeque<Said>>,
    /// Conversations that wait for an answer to a request that nothing has come of, and since when.
    unmet: BTreeMap<Conversation, (Timestamp, EventTag)>,
    /// Turns that a model is asked about now, in order: said, and not read yet.
    under_way: VecDeque<(Conversation, Said)>,
}

impl Recent {
    /// What was said before a turn, and what came of it.
    pub(super) fn context(&self, owner: OwnerKey, turn: &Turn, episodes: Episodes) -> Context {
        let recent = self.turns.get(&conversation(owner, turn));
        Context {
            recent: recent.into_iter().flatten().cloned().collect(),
            episodes,
        }
    }

    /// The same for a turn about which a model is asked from now on: of what it is still asked about, only
    /// the words are known.
    pub(super) fn begin(&mut self, owner: OwnerKey, turn: &Turn, episodes: Episodes) -> Context {
        let conversation = conversation(owner, turn);
        let mut context = self.context(owner, turn, episodes);
        let under_way = self.under_way.iter().filter(|(of, _)| *of == conversation);
        context
            .recent
            .extend(under_way.map(|(_, said)| said.clone()));
        self.under_way.push_back((conversation, Said::from(turn)));
        context
    }

    /// Takes note of a turn that is read; turns are read in the order in which they were begun.
    pub(super) fn push(
        &mut self,
        owner: OwnerKey,
        turn: &Turn,
        came: Option<Came>,
        now: Timestamp,
    ) {
        self.under_way.pop_front();
        if self.turns.len() >= CONVERSATIONS_MAX {
            // Losing what was said before costs an omitted word, never a fact.
            self.turns.clear();
            self.unmet.clear();
        }
        let key = conversation(owner, turn);
        let turns = self.turns.entry(key.clone()).or_default();
        turns.push_back(Said {
            came,
            ..Said::from(turn)
        });
        while turns.len() > RECENT_MAX {
            turns.pop_front();
        }
        if request::is_unmet(turn, &self.context(owner, turn, Episodes::Off)) {
            self.unmet.insert(key, (now, turn.event));
        } else {
            // Met, or the answer is there and its own record says so.
            self.unmet.remove(&key);
        }
    }

    /// Tells of requests that nothing came of before their conversation went idle. There is no record that
    /// could say so: the next message may come in a year.
    pub(super) fn tell_idle(&mut self, now: Timestamp) {
        let is_over = |since: &Timestamp| now.millis() - since.millis() >= IDLE_MILLIS;
        self.unmet.retain(|_, (since, event)| {
            if is_over(since) {
                tracing::error!(
                    stage = STAGE,
                    %event,
                    code = RejectCode::NotStored.code(),
                    "somebody asked for something to be written down, and nothing was stored"
                );
                metrics::went_idle();
            }
            !is_over(since)
        });
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::memory::Role;

    use super::*;
    use crate::extract::tests::turn;

    #[test]
    fn a_request_that_nothing_came_of_is_told_once_when_its_conversation_goes_idle() {
        let owner = OwnerKey::from_bytes([3; 16]);
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        let mut recent = Recent::default();
        recent.push(owner, &turn(Role::User, "帮我记一下"), None, at(0));
        recent.tell_idle(at(4));
        assert_eq!(recent.unmet.len(), 1);
        recent.tell_idle(at(5));
        assert!(recent.unmet.is_empty());

        recent.push(
            owner,
            &turn(Role::User, "帮我记一下我对芒果过敏"),
            None,
            at(6),
        );
        assert!(recent.unmet.is_empty());
        recent.push(owner, &turn(Role::Assistant, "好的"), None, at(7));
        recent.push(owner, &turn(Role::User, "记一下"), None, at(8));
        recent.push(owner, &turn(Role::Assistant, "好的"), None, at(9));
        // The answer's own record says it.
        assert!(recent.unmet.is_empty());
    }
}
