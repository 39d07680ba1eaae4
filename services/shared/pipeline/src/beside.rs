//! Which turns were said right before and right after which?
//!
//! An answer seldom repeats the words of its question. So the text index counts the words of the turns
//! beside a turn, less than its own. They are counted when a question is asked and never copied: what is
//! erased, restricted or beyond the cut says nothing, neither itself nor through its neighbours.

use anamnesis_domain::ids::{Hash, MemoryId};
use anamnesis_domain::memory::{Kind, Memory};
use serde::{Deserialize, Serialize};

/// Where a turn stands in its conversation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Of the source and the id that it gives to the conversation.
    pub conversation: u64,
    /// When it was said, in milliseconds.
    pub said_at: i64,
}

impl Place {
    /// `None` for what is no turn, or of no conversation.
    pub fn of(memory: &Memory) -> Option<Self> {
        let source = &memory.claim.source;
        let conversation = source.conversation_id.as_deref()?;
        if memory.claim.kind != Kind::Episode {
            return None;
        }
        let name = serde_json::to_vec(&(&source.source, conversation)).ok()?;
        let hash = Hash::of(&name);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.0[..8]);
        Some(Self {
            conversation: u64::from_be_bytes(first),
            said_at: source.at.millis(),
        })
    }
}

/// One version of the owner that was live at the cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stand {
    pub place: Option<Place>,
    /// Orders what was said at one time.
    pub recorded_from: u64,
    pub memory: MemoryId,
}

/// For each version the places in the list of those right before and right after it in its conversation.
pub fn neighbours(stands: &[Stand]) -> Vec<[Option<usize>; 2]> {
    let mut beside = vec![[None, None]; stands.len()];
    let mut order: Vec<usize> = (0..stands.len())
        .filter(|one| stands[*one].place.is_some())
        .collect();
    order.sort_by_key(|one| stands[*one]);
    let conversation = |one: usize| stands[one].place.map(|place| place.conversation);
    for pair in order.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if conversation(before) == conversation(after) {
            beside[before][1] = Some(after);
            beside[after][0] = Some(before);
        }
    }
    beside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_stand_beside_those_of_their_own_conversation() {
        let stand = |conversation: Option<u64>, said_at, recorded_from| Stand {
            place: conversation.map(|conversation| Place {
                conversation,
                said_at,
            }),
            recorded_from,
            memory: MemoryId::from_bytes([recorded_from as u8; 16]),
        };
        let beside = neighbours(&[
            stand(Some(7), 20, 3),
            stand(None, 15, 1),
            stand(Some(7), 10, 2),
            stand(Some(8), 12, 4),
            // Said at the same time as the first, and recorded later.
            stand(Some(7), 20, 9),
        ]);
        let expected = [
            [Some(2), Some(4)],
            [None, None],
            [None, Some(0)],
            [None, None],
            [Some(0), None],
        ];
        assert_eq!(beside, expected);
    }
}
