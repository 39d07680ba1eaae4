//! Which keys does a destruction take, and which must be saved from it by another wrapping?

use std::collections::BTreeSet;

use anamnesis_domain::ids::{EventTag, KeyId, MemoryId, SourceTag};
use anamnesis_domain::input::Target;

/// An open key of the owner.
#[derive(Clone, Debug)]
pub struct OpenKey {
    pub id: KeyId,
    /// The key that wraps it; `None`: the owner's.
    pub wrapped_by: Option<KeyId>,
    /// Made for a source. A key that was wrapped anew has no other key above it either, and is still
    /// no source's key.
    pub is_source_key: bool,
    pub event: EventTag,
    pub source: SourceTag,
    pub memory: Option<MemoryId>,
    pub is_expired: bool,
}

pub enum What<'a> {
    Target(&'a Target),
    Expired,
}

#[derive(Default, Debug, PartialEq, Eq)]
pub struct Plan {
    pub doomed: BTreeSet<KeyId>,
    /// To be wrapped by the owner's key.
    pub rewrapped: BTreeSet<KeyId>,
}

pub fn plan(open: &[OpenKey], what: &What<'_>) -> Plan {
    let ids = |is_wanted: &dyn Fn(&OpenKey) -> bool| -> BTreeSet<KeyId> {
        open.iter()
            .filter(|key| is_wanted(key))
            .map(|key| key.id)
            .collect()
    };
    let mut plan = match what {
        What::Expired => Plan {
            doomed: ids(&|key| key.is_expired),
            ..Plan::default()
        },
        What::Target(Target::Owner) => Plan {
            doomed: ids(&|_| true),
            ..Plan::default()
        },
        What::Target(Target::Message(event)) => Plan {
            doomed: ids(&|key| key.event == *event),
            ..Plan::default()
        },
        What::Target(Target::Source(source)) => Plan {
            doomed: ids(&|key| key.source == *source),
            ..Plan::default()
        },
        What::Target(Target::Memories(memories)) => of_memories(open, memories),
    };
    // What a destroyed key wraps is gone with it, and the books must say so.
    loop {
        let below = ids(&|key| {
            key.wrapped_by
                .is_some_and(|above| plan.doomed.contains(&above))
                && !plan.doomed.contains(&key.id)
                && !plan.rewrapped.contains(&key.id)
        });
        if below.is_empty() {
            return plan;
        }
        plan.doomed.extend(below);
    }
}

/// The transitions of the memories, and the sentences behind them; what else was derived from these
/// sentences is saved.
fn of_memories(open: &[OpenKey], memories: &[MemoryId]) -> Plan {
    let memories: BTreeSet<&MemoryId> = memories.iter().collect();
    let of_them = |key: &&OpenKey| key.memory.is_some_and(|memory| memories.contains(&memory));
    let mut doomed: BTreeSet<KeyId> = open.iter().filter(of_them).map(|key| key.id).collect();
    let events: BTreeSet<EventTag> = open.iter().filter(of_them).map(|key| key.event).collect();
    let is_sentence = |key: &&OpenKey| key.is_source_key && events.contains(&key.event);
    let sentences: BTreeSet<KeyId> = open.iter().filter(is_sentence).map(|key| key.id).collect();
    let is_saved = |key: &&OpenKey| {
        key.wrapped_by
            .is_some_and(|above| sentences.contains(&above))
            && !doomed.contains(&key.id)
    };
    let rewrapped = open.iter().filter(is_saved).map(|key| key.id).collect();
    doomed.extend(sentences);
    Plan { doomed, rewrapped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8, wrapped_by: u8, event: u8, memory: u8) -> OpenKey {
        let some = |byte: u8| (byte != 0).then_some([byte; 16]);
        OpenKey {
            id: KeyId::from_bytes([id; 16]),
            wrapped_by: some(wrapped_by).map(KeyId::from_bytes),
            is_source_key: wrapped_by == 0,
            event: EventTag::from_bytes([event; 16]),
            source: SourceTag::from_bytes([1; 16]),
            memory: some(memory).map(MemoryId::from_bytes),
            is_expired: id == 9,
        }
    }

    fn check(open: &[OpenKey], what: &What<'_>, doomed: &[u8], rewrapped: &[u8]) {
        let ids = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| KeyId::from_bytes([*byte; 16]))
                .collect()
        };
        let expected = Plan {
            doomed: ids(doomed),
            rewrapped: ids(rewrapped),
        };
        assert_eq!(plan(open, what), expected);
    }

    #[test]
    fn what_hangs_below_goes_along_and_siblings_are_saved() {
        // Event 1 has the source key 1 with memories 1 and 2 and something without a memory; below
        // the transition of memory 1 hangs another key. Event 2 is the expired key 9.
        let open = [
            key(1, 0, 1, 0),
            key(2, 1, 1, 1),
            key(3, 1, 1, 2),
            key(4, 1, 1, 0),
            key(5, 2, 1, 0),
            key(9, 0, 2, 0),
            key(8, 9, 3, 3),
        ];
        let memories = |byte| Target::Memories(vec![MemoryId::from_bytes([byte; 16])]);
        check(&open, &What::Target(&memories(1)), &[1, 2, 5], &[3, 4]);
        check(&open, &What::Target(&memories(7)), &[], &[]);
        let message = Target::Message(EventTag::from_bytes([1; 16]));
        check(&open, &What::Target(&message), &[1, 2, 3, 4, 5], &[]);
        check(&open, &What::Expired, &[8, 9], &[]);
        check(
            &open,
            &What::Target(&Target::Owner),
            &[1, 2, 3, 4, 5, 8, 9],
            &[],
        );
    }
}
