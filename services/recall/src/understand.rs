//! What does a question ask: about whom, about when, about which things, in which words?

use std::ops::Range;

use anamnesis_domain::input::Task;
use anamnesis_domain::memory::{Entity, Kind, Memory};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Interval, Timestamp};
use anamnesis_domain::tokens;
use anamnesis_pipeline::stores::SubjectFilter;
use chrono::{Datelike as _, Days, FixedOffset, NaiveDate, TimeZone as _};
use unicode_normalization::UnicodeNormalization as _;

use crate::days::days_named;
use crate::latest::is_about_now;
use crate::request::Ask;
use crate::terms::Terms;

/// Recognises things and persons in a question, with the same lexicons that read the turns: only then
/// do both sides give one thing one name.
///
/// Contract: pure (the same text gives the same answer); canonical names as in memories; `subject` is
/// the relative whom the text is about, `None` when it names none.
pub trait QueryReader: Send + Sync {
    fn entities(&self, text: &str) -> Vec<Entity>;

    fn subject(&self, text: &str) -> Option<Subject>;

    /// Where the text names such things, in bytes, in order, without overlaps.
    fn things(&self, text: &str) -> Vec<Range<usize>>;

    /// Where it names persons, the asker among them.
    fn persons(&self, text: &str) -> Vec<Range<usize>>;
}

/// The time that a question's own words ask about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Unsaid,
    /// "as of 2024": what held at that instant.
    AsOf(Timestamp),
    /// "last year": what held at some time in it.
    During(Interval),
}

/// A question as recall goes on with it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Understood {
    /// The question with references to the task filled in: what is searched.
    pub rewritten: Text,
    pub subject: SubjectFilter,
    pub when: When,
    pub terms: Terms,
    /// Kinds that the question asks for by a word.
    pub kinds: Vec<Kind>,
    /// Whether how things stand is asked for, so that the latest of several answers is meant.
    pub is_about_now: bool,
    /// Tokens for the text leg.
    pub search: Vec<String>,
    /// Those of them that the question does not have itself.
    pub added: Vec<String>,
}

impl Understood {
    /// How many of the question's tokens and things a memory has, without reading it closely.
    pub(crate) fn shared_with(&self, memory: &Memory) -> usize {
        let text = memory.claim.text.expose().to_lowercase();
        let said = self.search.iter().filter(|token| text.contains(*token));
        let things = memory.claim.entities.iter();
        said.count()
            + things
                .filter(|thing| self.terms.entities.contains(thing))
                .count()
    }
}

/// Longest part of a task that is put into a question, in characters: the question stays the question.
const TASK_CHARS_MAX: usize = 400;

pub(crate) fn understand(
    ask: &Ask,
    task: Option<&Task>,
    now: Timestamp,
    zone_minutes: i32,
    reader: &dyn QueryReader,
) -> Understood {
    let question = folded(&ask.query);
    let lower = question.to_lowercase();
    let from_task = match task {
        Some(task) if is_vague(&lower) => of_task(task),
        Some(_) | None => String::new(),
    };
    let rewritten = format!("{question}{from_task}");
    let subject = ask
        .subject
        .clone()
        .unwrap_or_else(|| about(&question, &lower, ask, reader));
    let (when, without_time) = when(&lower, now, zone_minutes);
    let named = days_named(&without_time);
    let mut telling = without_time;
    for (_, words) in &named {
        // Bytes for bytes: later ranges still point at their words.
        telling.replace_range(words.clone(), &" ".repeat(words.len()));
    }
    let telling = format!("{telling}{from_task}");
    let mut terms = Terms::of(&telling, reader.entities(&rewritten), reader);
    terms.days = named.into_iter().map(|(day, _)| day).collect();
    let mut search = tokens::query_tokens(&rewritten);
    let added = terms.added(&search);
    search.extend(added.iter().cloned());
    Understood {
        kinds: terms.kinds(),
        is_about_now: ask.as_of.is_none() && when == When::Unsaid && is_about_now(&question),
        when,
        rewritten: Text::new(rewritten),
        subject,
        terms,
        search,
        added,
    }
}

/// Whom the question is about. Without a relative in it, the owner: never "anybody".
fn about(question: &str, lower: &str, ask: &Ask, reader: &dyn QueryReader) -> SubjectFilter {
    if let Some(subject) = reader.subject(question) {
        return SubjectFilter::Only(subject);
    }
    let is_about_family = [
        "家族",
        "家里人",
        "遗传史",
        "family history",
        "runs in my family",
        "run in my family",
    ]
    .iter()
    .any(|cue| lower.contains(cue));
    if is_about_family {
        return SubjectFilter::Any;
    }
    SubjectFilter::Only(spoken_of(ask, reader).unwrap_or_default())
}

fn folded(query: &Text) -> String {
    let folded: String = query.expose().nfkc().collect();
    folded.trim().to_owned()
}

/// Whom the question's pronoun means: the one whom the words before it speak of last.
pub(crate) fn spoken_of(ask: &Ask, reader: &dyn QueryReader) -> Option<Subject> {
    if !has_pronoun(&folded(&ask.query).to_lowercase()) {
        return None;
    }
    let said = ask.said_before.last();
    said.and_then(|said| reader.subject(said.expose()))
        .or_else(|| ask.spoken_of.clone())
}

fn has_pronoun(lower: &str) -> bool {
    lower.contains(['他', '她'])
        || lower
            .split(|c: char| !c.is_alphanumeric() && c != '\'')
            .any(|word| {
                matches!(
                    word,
                    "he" | "she" | "him" | "his" | "her" | "he's" | "she's"
                )
            })
}

/// Whether the question points at something that only the task can name.
fn is_vague(lower: &str) -> bool {
    const HAN: &[&str] = &[
        "那个",
        "这个",
        "刚才",
        "继续",
        "接着",
        "上次那",
        "那件事",
        "那单",
    ];
    const LATIN: &[&str] = &[
        "that one",
        "this one",
        "continue",
        "carry on",
        "go on",
        "the same one",
        "where were we",
    ];
    HAN.iter().chain(LATIN).any(|cue| lower.contains(cue))
}

/// Goal, last constraint and last error of the task, to be put after the question.
fn of_task(task: &Task) -> String {
    let parts = [
        Some(&task.goal),
        task.constraints.last(),
        task.tool_error.as_ref(),
    ];
    let known: Vec<&str> = parts.into_iter().flatten().map(Text::expose).collect();
    let known: String = known.join("; ").chars().take(TASK_CHARS_MAX).collect();
    if known.is_empty() {
        known
    } else {
        format!(" ({known})")
    }
}

/// The time asked about, and the question without the words that say so.
fn when(lower: &str, now: Timestamp, zone_minutes: i32) -> (When, String) {
    let unsaid = || (When::Unsaid, lower.to_owned());
    let local = now.to_zone(zone_minutes);
    let today = local.date_naive();
    let Some(said) = relative_days(lower, today).or_else(|| named_days(lower)) else {
        return unsaid();
    };
    let offset = local.offset().to_owned();
    let (Some(from), Some(to)) = (midnight(said.first, offset), midnight(said.after, offset))
    else {
        return unsaid();
    };
    let mut without = lower.replace(said.words, " ");
    let mut when = Interval::new(from, Some(to)).map_or(When::Unsaid, When::During);
    for cue in ["as of", "截至", "截止"] {
        if without.contains(cue) {
            without = without.replace(cue, " ");
            when = When::AsOf(to.plus_millis(-1));
        }
    }
    (when, without)
}

fn midnight(day: NaiveDate, offset: FixedOffset) -> Option<Timestamp> {
    let at = offset
        .from_local_datetime(&day.and_hms_opt(0, 0, 0)?)
        .single()?;
    Some(Timestamp::from_millis(at.timestamp_millis()))
}

/// A time that a question names: its first day, the day after its last, and the words.
struct Said<'a> {
    first: NaiveDate,
    after: NaiveDate,
    words: &'a str,
}

fn relative_days(lower: &str, today: NaiveDate) -> Option<Said<'_>> {
    let find = |cues: &[&str]| {
        cues.iter()
            .find_map(|cue| lower.find(cue).map(|at| &lower[at..at + cue.len()]))
    };
    let said = |words, (first, after)| {
        Some(Said {
            first,
            after,
            words,
        })
    };
    if let Some(words) = find(&["前年"]) {
        return said(words, whole_year(today.year() - 2)?);
    }
    if let Some(words) = find(&["去年", "last year"]) {
        return said(words, whole_year(today.year() - 1)?);
    }
    if let Some(words) = find(&["上个月", "上月", "last month"]) {
        let last = today.with_day(1)?.pred_opt()?;
        return said(words, whole_month(last.year(), last.month())?);
    }
    if let Some(words) = find(&["上个星期", "上个礼拜", "上星期", "上周", "last week"])
    {
        let monday = today - Days::new(u64::from(today.weekday().num_days_from_monday()));
        return said(words, (monday - Days::new(7), monday));
    }
    if let Some(words) = find(&["前天", "the day before yesterday"]) {
        return said(words, (today - Days::new(2), today - Days::new(1)));
    }
    if let Some(words) = find(&["昨天", "yesterday"]) {
        return said(words, (today - Days::new(1), today));
    }
    None
}

/// `2024年`, `2024年3月`, `in 2024`, `march 2024`, `as of 2024`. A number that is not written as a time
/// (an order number) is none.
fn named_days(lower: &str) -> Option<Said<'_>> {
    const BEFORE_OR_AFTER: &[&str] = &["以前", "之前", "以后", "之后", "以来"];
    let bytes = lower.as_bytes();
    for (at, _) in lower.match_indices(|c: char| c.is_ascii_digit()) {
        let Some(digits) = lower.get(at..at + 4) else {
            continue;
        };
        let is_run = digits.bytes().all(|b| b.is_ascii_digit())
            && (at == 0 || !bytes[at - 1].is_ascii_digit())
            && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit);
        let year = digits
            .parse::<i32>()
            .ok()
            .filter(|year| is_run && (1900..2200).contains(year));
        let Some(year) = year else { continue };
        let (head, tail) = (&lower[..at], &lower[at + 4..]);
        if let Some(rest) = tail.strip_prefix('年') {
            if BEFORE_OR_AFTER.iter().any(|word| rest.contains(word)) {
                return None;
            }
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let after_month = rest[digits.len()..].strip_prefix('月');
            let ((first, after), left) = match (digits.parse::<u32>(), after_month) {
                (Ok(month), Some(left)) => (whole_month(year, month)?, left),
                (Ok(_) | Err(_), _) => (whole_year(year)?, rest),
            };
            return Some(Said {
                first,
                after,
                words: &lower[at..lower.len() - left.len()],
            });
        }
        let head = head.trim_end();
        let word = head
            .rsplit(|c: char| !c.is_alphabetic())
            .next()
            .unwrap_or_default();
        let words = &lower[head.len() - word.len()..at + 4];
        if let Some(month) = month_of(word) {
            let (first, after) = whole_month(year, month)?;
            return Some(Said {
                first,
                after,
                words,
            });
        }
        if matches!(word, "in" | "during" | "of") && !tail.starts_with(['-', '/', '.']) {
            let (first, after) = whole_year(year)?;
            let words = if word == "of" {
                &lower[at..at + 4]
            } else {
                words
            };
            return Some(Said {
                first,
                after,
                words,
            });
        }
    }
    None
}

pub(crate) fn month_of(word: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let place = MONTHS
        .iter()
        .position(|month| *month == word || (word.len() == 3 && month.starts_with(word)))?;
    u32::try_from(place + 1).ok()
}

fn whole_year(year: i32) -> Option<(NaiveDate, NaiveDate)> {
    Some((
        NaiveDate::from_ymd_opt(year, 1, 1)?,
        NaiveDate::from_ymd_opt(year + 1, 1, 1)?,
    ))
}

fn whole_month(year: i32, month: u32) -> Option<(NaiveDate, NaiveDate)> {
    let first = NaiveDate::from_ymd_opt(year, month, 1)?;
    Some((first, first.checked_add_months(chrono::Months::new(1))?))
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::input::TaskStatus;

    use super::*;
    use crate::fixture::Reader;

    const NOW: &str = "2026-11-02T04:00:00Z";

    fn read(question: &str) -> Understood {
        understand(
            &Ask::new(question),
            None,
            Timestamp::parse(NOW).unwrap(),
            480,
            &Reader,
        )
    }

    #[test]
    fn a_question_is_about_the_owner_unless_it_names_somebody() {
        for (question, subject) in [
            ("我对什么过敏", SubjectFilter::Only(Subject::Self_)),
            (
                "Am I allergic to penicillin?",
                SubjectFilter::Only(Subject::Self_),
            ),
            ("我爸对什么过敏", SubjectFilter::Only(Subject::Father)),
            (
                "What are my father's allergies?",
                SubjectFilter::Only(Subject::Father),
            ),
            (
                "Does my mother take aspirin",
                SubjectFilter::Only(Subject::Mother),
            ),
            ("我们家族有什么病史", SubjectFilter::Any),
            ("他对什么过敏", SubjectFilter::Only(Subject::Self_)),
        ] {
            assert_eq!(read(question).subject, subject, "{question}");
        }
    }

    #[test]
    fn a_pronoun_is_whom_the_last_message_named() {
        let mut ask = Ask::new("他对什么过敏？");
        ask.said_before = vec![Text::new("我爸要做手术")];
        let now = Timestamp::parse(NOW).unwrap();
        let understood = understand(&ask, None, now, 480, &Reader);
        assert_eq!(understood.subject, SubjectFilter::Only(Subject::Father));
        ask.subject = Some(SubjectFilter::Only(Subject::Self_));
        let understood = understand(&ask, None, now, 480, &Reader);
        assert_eq!(understood.subject, SubjectFilter::Only(Subject::Self_));
    }

    fn check(question: &str, expected: &str) {
        let zone = |at: Timestamp| at.to_zone(480).format("%Y-%m-%d").to_string();
        let shown = match read(question).when {
            When::Unsaid => "unsaid".to_owned(),
            When::AsOf(at) => format!("as of {}", zone(at)),
            When::During(range) => format!(
                "{} to {}",
                zone(range.from()),
                range.to().map_or(String::new(), zone)
            ),
        };
        assert_eq!(shown, expected, "{question}");
    }

    #[test]
    fn the_time_asked_about_is_read_from_the_words() {
        check("我去年吃什么药", "2025-01-01 to 2026-01-01");
        check("what did I take last year?", "2025-01-01 to 2026-01-01");
        check("上个月的血压", "2026-10-01 to 2026-11-01");
        check("昨天说了什么", "2026-11-01 to 2026-11-02");
        check("last week", "2026-10-26 to 2026-11-02");
        check("2024年3月我住哪里", "2024-03-01 to 2024-04-01");
        check("2024年住哪", "2024-01-01 to 2025-01-01");
        check("where did I live in 2024?", "2024-01-01 to 2025-01-01");
        check("my dose in March 2024", "2024-03-01 to 2024-04-01");
        check("my dose as of 2024", "as of 2024-12-31");
        check("截至2024年我的体重", "as of 2024-12-31");
    }

    #[test]
    fn a_number_that_is_no_time_says_nothing_about_time() {
        check("我现在吃什么药", "unsaid");
        check("order 20240618", "unsaid");
        check("order 2024-118", "unsaid");
        check("room 2024", "unsaid");
        check("2024年以前", "unsaid");
    }

    #[test]
    fn a_vague_reference_is_filled_from_the_task() {
        let task = Task {
            id: "t1".to_owned(),
            goal: Text::new("为订单 A-20391 申请退款"),
            status: TaskStatus::Active,
            decision: None,
            confirmed_facts: Vec::new(),
            constraints: vec![Text::new("退到尾号 3047 的卡")],
            open_questions: Vec::new(),
            tool_error: None,
            pending_confirmations: Vec::new(),
            expires_at: None,
            updated_at: Timestamp::default(),
        };
        let now = Timestamp::parse(NOW).unwrap();
        let vague = understand(&Ask::new("继续那个"), Some(&task), now, 0, &Reader);
        assert_eq!(
            vague.rewritten.expose(),
            "继续那个 (为订单 A-20391 申请退款; 退到尾号 3047 的卡)"
        );
        let clear = understand(&Ask::new("我对什么过敏"), Some(&task), now, 0, &Reader);
        assert_eq!(clear.rewritten.expose(), "我对什么过敏");
    }

    #[test]
    fn the_other_languages_words_are_searched_too() {
        let understood = read("What am I allergic to?");
        assert_eq!(understood.kinds, [Kind::Allergy]);
        assert!(understood.search.contains(&"过敏".to_owned()));
        assert!(!understood.added.contains(&"allergic".to_owned()));
    }
}
