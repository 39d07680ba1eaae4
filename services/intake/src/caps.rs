//! Limits of what one call may bring, each with its reason.

/// Longest text of one message, in bytes. A discharge letter is under 100 KiB; four such texts still
/// fit in one record of the log.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Longest body of one request. A batch of ordinary messages is far smaller; above this the sender
/// should split.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// Longest identifier (event, source, conversation, turn, message). Ids are URLs at worst, and the
/// bound keeps a hostile one from pushing a record over the log's limit.
pub const ID_BYTES_MAX: usize = 1024;

/// Longest name of a speaker, in bytes.
pub const SPEAKER_BYTES_MAX: usize = 512;

/// Tags on one message, and the length of each: they are compared one by one in every recall.
pub const CONTEXT_TAGS_MAX: usize = 32;
pub const CONTEXT_TAG_BYTES_MAX: usize = 100;

/// Injected ranges of one message: recall injects a few memories, not thousands.
pub const INJECTED_RANGES_MAX: usize = 1000;

/// How far a sender's clock may be ahead of ours. Well-kept clocks differ by seconds; a time further
/// ahead is a mistake of zone or unit and would outrank what is true now.
pub const FUTURE_TOLERANCE_MILLIS: i64 = 5 * 60 * 1000;

/// How long a record without consent waits for a grant before its key is destroyed.
pub const QUARANTINE_MILLIS: i64 = 72 * 60 * 60 * 1000;

/// Records appended in one go. One owner's messages are never split across two appends in another
/// order, so the bound only limits memory.
pub const APPEND_RECORDS_MAX: usize = 500;

/// Events of one record of `inbox`. Who has more has a file, and several records keep one bad event from
/// costing so many others a repeat.
pub const EVENTS_PER_RECORD_MAX: usize = 1_000;

/// Names of one coded thing: more than any catalogue gives.
pub const STRUCTURED_NAMES_MAX: usize = 32;

/// Longest time to live of one memory: what should stay longer has no end at all.
pub const TTL_MILLIS_MAX: i64 = 10 * 366 * 86_400_000;

/// Time to live of a task : an hour to 30 days.
pub const TASK_TTL_MILLIS: std::ops::RangeInclusive<i64> = 3_600_000..=30 * 86_400_000;
pub const TASK_TTL_MILLIS_DEFAULT: i64 = 7 * 86_400_000;

/// Statements of one task's state, and memories of one command: both travel in one record.
pub const TASK_ENTRIES_MAX: usize = 200;
pub const MEMORY_IDS_MAX: usize = 10_000;
