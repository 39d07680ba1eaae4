//! What does the extractor know beside the turn itself?

use std::sync::LazyLock;

use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::Role;
use anamnesis_domain::text::Text;
use regex::Regex;

use crate::fold::fold;
use crate::pattern::compile;

/// Which turns become a recallable episode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Episodes {
    /// Everybody's words; not those of systems and tools.
    #[default]
    All,
    UserOnly,
    Off,
}

/// One earlier turn of the same conversation, as a plain value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    pub role: Role,
    pub text: Text,
    /// An assistant's call of the tool that writes to memory.
    pub is_memory_write: bool,
    /// What came of it when it was read; `None` when that is not known, and the rules read it again.
    pub came: Option<Came>,
}

/// What came of a message that was read, as far as later ones need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Came {
    /// It asks for something to be written down.
    pub(crate) asks: bool,
    /// It asks, and says nothing that could be written down.
    pub(crate) is_bare: bool,
    /// Something was found in it because somebody asked.
    pub(crate) has_explicit: bool,
    /// Something was found in it beside that it was said.
    pub(crate) has_facts: bool,
}

impl From<&Turn> for Said {
    fn from(turn: &Turn) -> Self {
        Self {
            role: turn.role,
            text: turn.text.clone(),
            is_memory_write: turn.is_memory_write(),
            came: None,
        }
    }
}

/// Values that the shell hands over with a turn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// The last turns of the conversation, oldest first. Only the last [`RECENT_MAX`] are read.
    pub recent: Vec<Said>,
    pub episodes: Episodes,
}

/// An omitted word ("改成 10 mg", "不是我过敏") refers a few turns back, not further.
pub const RECENT_MAX: usize = 8;

/// Longest earlier turn that is read again: the short statements that one refers to are far shorter.
pub(crate) const SAID_BYTES_MAX: usize = 4_000;

/// Words that may refer to what was said before. Without one, the earlier turns are not read at all.
static REFERS: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"改|调|加到|减到|停|更正|纠正|不对|应该是|不过敏|不是我|是我|不再|不吃了|他|她|换|剂量|升到|降到|\b(?:not|no longer|any ?more|stop\w*|chang\w+|increas\w+|decreas\w+|reduc\w+|raised|lowered|correct\w*|meant|mean|dose|it|he|she|him|her|it's|switch\w*|up to|down to)\b",
    )
});

pub(crate) fn may_refer_back(text: &str) -> bool {
    REFERS.is_match(&fold(text))
}
