//! What does a receipt keep of an answer, and is the same question answered the same again?
//!
//! No word of a memory is kept. A receipt is sealed under a key of its own, so a text that it copied
//! would stay readable when the memory, its message or its source was erased.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{Hash, MemoryId};
use anamnesis_domain::input::Target;
use anamnesis_domain::memory::Status;
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_pipeline::stores::{Cut, OwnerView};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Reason, Recalled};
use crate::context::Withheld;
use crate::receipts::ReceiptRequest;
use crate::score::Score;

/// An answer without the words in it: what was returned, why it came, and a digest of the whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptAnswer {
    pub answerable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Best first.
    pub memories: Vec<KeptMemory>,
    /// What a context left out of it; empty for a plain recall.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<Withheld>,
    pub degraded: Vec<String>,
    /// Of how the question was understood: it depends on the task, which may have gone on since.
    pub question: Hash,
    /// [`Answer::digest`].
    pub digest: Hash,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptMemory {
    pub id: MemoryId,
    pub version: u64,
    pub status: Status,
    pub score: Score,
    /// What it replaced, where the history was shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<MemoryId>,
}

impl KeptAnswer {
    pub fn of(answer: &Answer, withheld: &[Withheld]) -> Self {
        Self {
            answerable: answer.answerable,
            reason: answer.reason,
            memories: answer.memories.iter().map(KeptMemory::of).collect(),
            withheld: withheld.to_vec(),
            degraded: answer.degraded.clone(),
            question: answer.question_digest(),
            digest: answer.digest(),
        }
    }
}

impl KeptMemory {
    fn of(recalled: &Recalled) -> Self {
        Self {
            id: recalled.record.id,
            version: recalled.record.version,
            status: recalled.record.status,
            score: recalled.score,
            history: recalled.history.iter().map(|record| record.id).collect(),
        }
    }
}

/// How a question asked again compares with its receipt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The same bytes, but for ids and timings.
    Same,
    /// Something was erased since. These of the answer's memories are gone, and the others stand as the
    /// receipt says; none when what was erased was not in the answer.
    SameExceptErased { ids: Vec<MemoryId> },
    /// Stable codes: `receipt`, `question`, `degraded`, `answer`, or `<memory id>: missing`, `version`,
    /// `status`, `score`.
    Differs { what: Vec<String> },
}

/// Compares a receipt with its question asked again ([`crate::service::Recall::rerun`]).
///
/// While nothing was erased since, the digests must be equal. After an erasure they cannot be: the words
/// are gone, and with them their share in the statistics that words are weighed by. Then each memory
/// that was not erased is compared by what the receipt kept of its score.
pub fn compare(receipt: &RecallReceipt, rerun: &Answer, view: Option<&OwnerView>) -> Comparison {
    let kept: Result<KeptAnswer, _> = serde_json::from_str(receipt.answer.expose());
    let asked: Result<ReceiptRequest, _> = serde_json::from_str(receipt.request.expose());
    let (Ok(kept), Ok(asked)) = (kept, asked) else {
        return differs("receipt");
    };
    if kept.digest == rerun.digest() {
        return Comparison::Same;
    }
    if kept.question != rerun.question_digest() {
        return differs("question");
    }
    let without_parts = |parts: &[String]| -> BTreeSet<String> {
        parts.iter().filter(|part| *part != LATE).cloned().collect()
    };
    if without_parts(&kept.degraded) != without_parts(&rerun.degraded) {
        return differs("degraded");
    }
    match ErasedSince::of(view, asked.cut) {
        Some(erased) => survivors(&kept, rerun, &erased),
        None => Comparison::Differs {
            what: differences(&kept, rerun),
        },
    }
}

/// `wait_for` in `degraded`: says how long something took, and nothing of the answer.
pub(crate) const LATE: &str = "wait_for";

fn differs(what: &str) -> Comparison {
    Comparison::Differs {
        what: vec![what.to_owned()],
    }
}

/// What an owner lost after a receipt's cut.
struct ErasedSince {
    is_everything: bool,
    ids: BTreeSet<MemoryId>,
}

impl ErasedSince {
    /// `None` when nothing was erased.
    fn of(view: Option<&OwnerView>, cut: Cut) -> Option<Self> {
        let rows = view
            .map(|view| view.erasures.as_slice())
            .unwrap_or_default();
        let since: Vec<_> = rows.iter().filter(|row| row.offset >= cut.0).collect();
        (!since.is_empty()).then(|| Self {
            is_everything: since.iter().any(|row| row.target == Target::Owner),
            ids: since
                .iter()
                .flat_map(|row| row.memory_ids.iter().copied())
                .collect(),
        })
    }

    fn has(&self, id: MemoryId) -> bool {
        self.is_everything || self.ids.contains(&id)
    }
}

fn survivors(kept: &KeptAnswer, rerun: &Answer, erased: &ErasedSince) -> Comparison {
    let again = by_id(rerun);
    let (gone, left): (Vec<&KeptMemory>, Vec<&KeptMemory>) = kept
        .memories
        .iter()
        .partition(|memory| erased.has(memory.id) && !again.contains_key(&memory.id));
    let what: Vec<String> = left
        .iter()
        .filter_map(|memory| {
            let again = again.get(&memory.id)?;
            (!is_explained_by_erasure(memory, again)).then(|| difference(memory, again))
        })
        .chain(missing(left.iter().copied(), &again))
        .collect();
    if what.is_empty() {
        Comparison::SameExceptErased {
            ids: gone.iter().map(|memory| memory.id).collect(),
        }
    } else {
        Comparison::Differs { what }
    }
}

/// Whether an erasure of other memories can have made the one out of the other. Relevance and ranks may
/// move, because words are weighed over what the owner has. A confirmation that is gone makes a memory
/// older. The other side of a replacement or of a conflict that is gone sets a memory free.
fn is_explained_by_erasure(kept: &KeptMemory, again: &KeptMemory) -> bool {
    let is_set_free = again.status == Status::Active
        && matches!(kept.status, Status::Superseded | Status::Conflicted);
    kept.version == again.version
        && (kept.status == again.status || is_set_free)
        && is_equal(kept.score.importance, again.score.importance)
        && is_equal(kept.score.access, again.score.access)
        && is_equal(kept.score.protected, again.score.protected)
        && again.score.recency <= kept.score.recency + TOLERANCE
}

/// Scores have six decimals; reading one from JSON may move its last bit.
const TOLERANCE: f64 = 1e-9;

fn is_equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE
}

fn differences(kept: &KeptAnswer, rerun: &Answer) -> Vec<String> {
    let again = by_id(rerun);
    let mut what: Vec<String> = kept
        .memories
        .iter()
        .filter_map(|memory| {
            let again = again.get(&memory.id)?;
            let is_same = memory.version == again.version
                && memory.status == again.status
                && is_equal(memory.score.final_score, again.score.final_score);
            (!is_same).then(|| difference(memory, again))
        })
        .chain(missing(&kept.memories, &again))
        .collect();
    if what.is_empty() {
        // Another order, another memory beside them, or other words.
        what.push("answer".to_owned());
    }
    what
}

fn difference(kept: &KeptMemory, again: &KeptMemory) -> String {
    let part = if kept.version != again.version {
        "version"
    } else if kept.status != again.status {
        "status"
    } else {
        "score"
    };
    format!("{}: {part}", kept.id)
}

fn missing<'a>(
    kept: impl IntoIterator<Item = &'a KeptMemory>,
    again: &BTreeMap<MemoryId, KeptMemory>,
) -> Vec<String> {
    kept.into_iter()
        .filter(|memory| !again.contains_key(&memory.id))
        .map(|memory| format!("{}: missing", memory.id))
        .collect()
}

fn by_id(answer: &Answer) -> BTreeMap<MemoryId, KeptMemory> {
    answer
        .memories
        .iter()
        .map(|recalled| (recalled.record.id, KeptMemory::of(recalled)))
        .collect()
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::ids::ErasureId;
    use anamnesis_domain::memory::Kind;
    use anamnesis_domain::owner::Owner;
    use anamnesis_domain::text::Text;
    use anamnesis_pipeline::stores::ErasureRow;

    use super::*;
    use crate::admission::Depth;
    use crate::answer::{Legs, QueryView, Record};
    use crate::fixture::{at, claim, memory, owner};
    use crate::receipts;
    use crate::request::Ask;
    use crate::score::{Ranks, Staleness};

    const CUT: Cut = Cut(9);

    fn patient() -> Owner {
        owner("p1").0
    }

    fn recalled(text: &str) -> Recalled {
        Recalled {
            record: Record::of(&patient(), &memory(claim(Kind::Fact, text))),
            score: Score {
                final_score: 0.7,
                relevance: 0.8,
                strength: 0.6,
                recency: 0.9,
                importance: 0.5,
                access: 0.0,
                protected: 0.0,
                ranks: Ranks::default(),
            },
            staleness: Staleness {
                stale: false,
                age_days: 1.0,
                half_life_days: 365,
            },
            history: Vec::new(),
        }
    }

    fn answer(memories: Vec<Recalled>) -> Answer {
        Answer {
            recall_id: anamnesis_domain::ids::RecallId::from_bytes([1; 16]),
            answerable: true,
            reason: None,
            query: QueryView {
                original: Text::new("q"),
                rewritten: Text::new("q"),
                subject: "self".to_owned(),
                as_of: at("2026-01-01T00:00:00Z"),
                known_at: at("2026-01-01T00:00:00Z"),
                during: None,
                added_terms: Vec::new(),
            },
            memories,
            legs: Legs::default(),
            degraded: Vec::new(),
            erased: Vec::new(),
            explain: None,
        }
    }

    fn receipt(answer: &Answer) -> RecallReceipt {
        let request = ReceiptRequest::of(
            &Ask::new("q"),
            None,
            at("2026-01-01T00:00:00Z"),
            CUT,
            Depth::Whole,
        );
        receipts::receipt(
            &patient(),
            "test",
            answer.recall_id,
            &request,
            &KeptAnswer::of(answer, &[]),
        )
    }

    fn view(erased: &[(u64, Target, Vec<MemoryId>)]) -> OwnerView {
        OwnerView {
            key: owner("p1").1,
            owner: Some(patient()),
            owner_seq: 1,
            head: Hash::NONE,
            consents: Vec::new(),
            tasks: BTreeMap::new(),
            closed_through: 0,
            erasures: erased
                .iter()
                .map(|(offset, target, memory_ids)| ErasureRow {
                    erasure: ErasureId::from_bytes([8; 16]),
                    target: target.clone(),
                    memory_ids: memory_ids.clone(),
                    recorded_at: at("2026-02-01T00:00:00Z"),
                    offset: *offset,
                })
                .collect(),
        }
    }

    #[test]
    fn no_word_of_a_memory_is_kept() {
        let mut told = recalled("SECRET text");
        told.record.quote = Some(Text::new("SECRET quote"));
        told.record.value = Some("SECRET value".to_owned());
        told.history = vec![recalled("SECRET history").record];
        let receipt = receipt(&answer(vec![told]));
        assert!(!receipt.answer.expose().contains("SECRET"));
    }

    #[test]
    fn while_nothing_is_erased_one_byte_makes_a_difference() {
        let before = answer(vec![recalled("a"), recalled("b")]);
        let receipt = receipt(&before);
        let id = before.memories[0].record.id;
        let check = |change: &dyn Fn(&mut Answer), expected: Comparison| {
            let mut rerun = before.clone();
            change(&mut rerun);
            assert_eq!(compare(&receipt, &rerun, Some(&view(&[]))), expected);
        };
        check(
            &|rerun| rerun.recall_id = anamnesis_domain::ids::RecallId::from_bytes([2; 16]),
            Comparison::Same,
        );
        check(
            &|rerun| rerun.memories[0].record.text = Text::new("c"),
            differs("answer"),
        );
        check(&|rerun| rerun.memories.reverse(), differs("answer"));
        check(
            &|rerun| rerun.memories[0].record.version = 7,
            differs(&format!("{id}: version")),
        );
        check(
            &|rerun| _ = rerun.memories.remove(0),
            differs(&format!("{id}: missing")),
        );
        check(
            &|rerun| rerun.degraded.push("text".to_owned()),
            differs("degraded"),
        );
        check(
            &|rerun| rerun.degraded.push(LATE.to_owned()),
            Comparison::Same,
        );
        check(
            &|rerun| rerun.query.rewritten = Text::new("q (task)"),
            differs("question"),
        );
    }

    #[test]
    fn after_an_erasure_the_survivors_are_compared_by_what_was_kept() {
        let before = answer(vec![recalled("a"), recalled("b")]);
        let receipt = receipt(&before);
        let (gone, left) = (before.memories[0].record.id, before.memories[1].record.id);
        let erased = [(12, Target::Memories(vec![gone]), vec![gone])];
        let check = |change: &dyn Fn(&mut Answer), erased: &[_], expected: Comparison| {
            let mut rerun = before.clone();
            change(&mut rerun);
            assert_eq!(compare(&receipt, &rerun, Some(&view(erased))), expected);
        };
        let without = |rerun: &mut Answer| _ = rerun.memories.remove(0);
        let except = |ids: &[MemoryId]| Comparison::SameExceptErased { ids: ids.to_vec() };
        check(&without, &erased, except(&[gone]));
        check(
            &|rerun| {
                without(rerun);
                rerun.memories[0].score.relevance = 0.75;
                rerun.memories[0].score.final_score = 0.67;
            },
            &erased,
            except(&[gone]),
        );
        // What erasing something else cannot do.
        check(
            &|rerun| {
                without(rerun);
                rerun.memories[0].score.importance = 0.1;
            },
            &erased,
            differs(&format!("{left}: score")),
        );
        check(
            &|rerun| rerun.memories.clear(),
            &erased,
            differs(&format!("{left}: missing")),
        );
        // Erased before the question was asked: no excuse.
        let earlier = [(3, Target::Memories(vec![gone]), vec![gone])];
        check(&without, &earlier, differs(&format!("{gone}: missing")));
        // Something that the answer did not have.
        let other = recalled("c").record.id;
        let elsewhere = [(12, Target::Memories(vec![other]), vec![other])];
        check(
            &|rerun| rerun.memories[0].score.relevance = 0.81,
            &elsewhere,
            except(&[]),
        );
        let everything = [(12, Target::Owner, Vec::new())];
        check(
            &|rerun| rerun.memories.clear(),
            &everything,
            except(&[gone, left]),
        );
    }
}
