//! Whom is a statement about?
//!
//! A predicate belongs to the nearest person named before it: in "我妈说我对花生过敏" that is 我, in "my
//! wife and I …" both.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anamnesis_domain::owner::Subject;
use regex::Regex;
use serde::Deserialize;

use crate::fold::is_han;
use crate::lexicon::mentions;
use crate::pattern::compile;

/// A person named in a folded text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Person {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Empty for a pronoun (他, she) that points back.
    pub(crate) who: Vec<Subject>,
    /// The speaker, or the patient of a record.
    pub(crate) is_self: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Relatives {
    father: Vec<String>,
    mother: Vec<String>,
    spouse: Vec<String>,
    child: Vec<String>,
    sibling: Vec<String>,
    parents: Vec<String>,
    other: Vec<String>,
    /// One canonical word for each relation, equal in both languages: two brothers are two persons.
    named: BTreeMap<String, Vec<String>>,
}

static RELATIVES: LazyLock<Relatives> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/relatives.json")).expect("checked by a test")
});

impl Relatives {
    fn all(&self) -> impl Iterator<Item = &String> {
        [
            &self.father,
            &self.mother,
            &self.spouse,
            &self.child,
            &self.sibling,
            &self.parents,
            &self.other,
        ]
        .into_iter()
        .flatten()
        .chain(self.named.values().flatten())
    }

    /// The canonical word of a relation, if it has one.
    fn canonical(&self, word: &str) -> Option<&str> {
        self.named
            .iter()
            .find(|(_, words)| words.iter().any(|w| w == word))
            .map(|(name, _)| name.as_str())
    }

    /// `adjectives` stand before an English word: "my older brother".
    fn subjects(&self, word: &str, adjectives: &str) -> Vec<Subject> {
        let is_in = |words: &[String]| words.iter().any(|w| w == word);
        if is_in(&self.father) {
            vec![Subject::Father]
        } else if is_in(&self.mother) {
            vec![Subject::Mother]
        } else if is_in(&self.spouse) {
            vec![Subject::Spouse]
        } else if is_in(&self.child) {
            match ranked("child", adjectives) {
                plain if plain == "child" => vec![Subject::Child],
                ranked => vec![Subject::Other(ranked)],
            }
        } else if is_in(&self.sibling) {
            vec![Subject::Sibling]
        } else if is_in(&self.parents) {
            vec![Subject::Father, Subject::Mother]
        } else {
            let name = self.canonical(word).unwrap_or(word);
            vec![Subject::Other(ranked(name, adjectives))]
        }
    }
}

/// "older", "second", "twin" tell one brother or daughter from another; "late" or "dear" do not.
fn ranked(name: &str, adjectives: &str) -> String {
    let is_sibling = matches!(name, "brother" | "sister");
    let is_child = matches!(name, "son" | "daughter" | "child");
    let is_grand = matches!(name, "grandmother" | "grandfather" | "uncle" | "aunt");
    let rank = adjectives.split_whitespace().find_map(|word| match word {
        "older" | "elder" | "big" if is_sibling => Some("older"),
        "oldest" | "eldest" | "first" if is_sibling => Some("oldest"),
        "younger" | "little" | "baby" | "kid" if is_sibling => Some("younger"),
        "youngest" if is_sibling => Some("youngest"),
        "older" | "elder" | "oldest" | "eldest" | "first" if is_child => Some("older"),
        "younger" | "youngest" if is_child => Some("younger"),
        "second" | "middle" if is_child => Some("second"),
        "twin" if is_sibling || is_child => Some("twin"),
        "maternal" if is_grand => Some("maternal"),
        _ => None,
    });
    match rank {
        Some(rank) => format!("{rank} {name}"),
        None => name.to_owned(),
    }
}

fn alternatives(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.map(|word| regex::escape(&word)).collect();
    // The longest first: 姑妈 before 妈.
    words.sort_by_key(|word| (std::cmp::Reverse(word.chars().count()), word.clone()));
    words.join("|")
}

/// Chinese: an optional possessor, a relative, and optionally that relative's own relative. A word of
/// one character (爸, 姐) needs the possessor, or it would be found inside other words.
static CHINESE: LazyLock<Regex> = LazyLock::new(|| {
    let is_chinese = |word: &&String| word.chars().any(is_han);
    let many = alternatives(
        RELATIVES
            .all()
            .filter(is_chinese)
            .filter(|w| w.chars().count() > 1)
            .cloned(),
    );
    let any = alternatives(RELATIVES.all().filter(is_chinese).cloned());
    compile(&format!(
        r"(?P<owner>他|她|我|咱|俺|本人)(?:们)?(?:的|家里的|家里|家的|家)?(?P<owned>{any})(?:(?:的|家|她|他)?(?P<chain1>{many}))?|(?P<bare>{many})(?:(?:的|家)?(?P<chain2>{many}))?"
    ))
});

static ENGLISH: LazyLock<Regex> = LazyLock::new(|| {
    let is_english = |word: &&String| !word.chars().any(is_han);
    let words = alternatives(RELATIVES.all().filter(is_english).cloned());
    let adjective = r"(?:(?:older|younger|elder|middle|late|own|elderly|old|little|big|dear|eldest|youngest|oldest|twin|best|close|good|next-door|identical|fraternal|maternal|paternal|great|biological|adoptive|first|second|only|grown|adult|teenage|other|new|kid|baby|wee|dear|poor|darling|\w+[- ]year[- ]old|\w+-month-old|whole|two|three|four|five|several)\s+){0,2}";
    compile(&format!(
        r"\b(?:(?P<owner>my|our|his|her|their|your|the|me|(?:both|all|one|each|neither|either)(?: of)? (?:my|our)|\w+'s)\s+(?P<adjectives>{adjective})(?P<owned>{words})|(?P<bare>mom|dad|mum|mommy|daddy|mother|father|grandma|grandpa|grandmother|grandfather))\b(?:'s\s+{adjective}(?P<chain>{words})\b)?"
    ))
});

/// At the start of a clause a relation stands without anybody's: "Husband has gout".
static ENGLISH_LEAD: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?:^|[,;:.]\s*|\b(?:and|but|so|while|because|since|that|says|said)\s+)(?:(?:big|little|older|younger|kid|baby|poor|old|dear)\s+)?(?P<bare>sis|bro|husband|wife|hubby|missus|son|daughter|brother|sister|nan|nana|gran|granny|gramps|granddad|grandad|papa|mama|pa|pops|mam|auntie|uncle|cousin)\b(?:'s\b)?",
    )
});

/// What stands behind a relative and makes it somebody else: a side of the family, an acquaintance whom
/// the list of relations does not hold ("my sister's tenant has", 我妈的牌友有).
static BEHIND: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^(?P<side>(?:'s|s')?\s+side\b(?: of the family)?|(?:他|她)?(?:那边|那头|这边|一边|那一支|娘家|家族)(?:的|亲戚|亲属)?)|^(?P<whose>'s\s+(?:[a-z-]+\s+){0,2}?[a-z-]+)\s+(?:also |just |now )?(?:has|have|takes|is allergic|is on|uses|suffers|was diagnosed|got diagnosed|developed|died)\b|^(?P<zh>的\p{Han}{1,3}[友员师生人客工徒长事])[有得患对是在吃用打也都做死]",
    )
});
/// What of a person has or shows something, without being another person.
static PART: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:heart|liver|kidneys?|lungs?|knees?|hips?|backs?|eyes?|skin|blood|pressure|sugar|tests?|scans?|results?|reports?|levels?|x-ray|mri|ct|biopsy|body|leg|arm|foot|hand|head|chest|stomach|throat|ear|neck|shoulder|spine|bones?|history|condition|disease|doctor|family)\b|病人|家人|人工|卫生|医师|先生|学生证",
    )
});

/// Words in which a relative's word names nobody: a drug, a dish, a day, a herb.
static NO_RELATIVE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"妈咪爱|老婆饼|夫妻肺片|老干妈|[父母]亲节|婆婆丁|太太乐|姑娘果|大姨妈(?:来|没来|又来|还没|刚来|推迟|提前|走了|期间|一直)",
    )
});
/// A name before a title: 孙子涵医生, 祖母绿 aside.
static TITLE: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"^\p{Han}{1,2}(?:医生|大夫|主任|医师|护士|教授|院长|药师|老师|女士|先生)")
});

static SELF: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"我们?(?:自己|本人)?|本人|俺|咱们?|患者(?:本人)?|病人|\b(?:i|i'm|i've|i'd|i'll|im|ive|me|my|mine|myself|we|we're|our|us|the patient|patient|pt)\b",
    )
});

/// Words for one's children that name nobody elsewhere: 老二 is a second one of anything.
static MY_CHILD: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?:我|咱|俺)们?家的?(?:老[大二三四幺]|小子|臭小子|小家伙|妞妞|妞)"));

/// "They found a polyp", "they want her on aspirin": the clinic, and nobody whom a fact is about.
static IMPERSONAL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^they(?:'ve|'re| have| had| also| then| just| finally| only)* (?:found|find|called?|calls|said|say|told|gave|put|took|take|want|wanted|diagnosed|did|think|prescribed?|removed|plated|fixed|repaired|operated|gave|saw|see|discovered|detected|confirmed|ruled)\b",
    )
});

static THIRD: LazyLock<Regex> =
    LazyLock::new(|| compile(r"他们?|她们?|\b(?:he|she|him|his|her|hers|they|he's|she's)\b"));

/// Persons in order of appearance, without overlaps.
pub(crate) fn persons(folded: &str) -> Vec<Person> {
    let mut found: Vec<Person> = Vec::new();
    for regex in [&*CHINESE, &*ENGLISH] {
        for hit in regex.captures_iter(folded) {
            let whole = hit.get(0).expect("a match has a whole");
            if names_nobody(folded, &hit) {
                continue;
            }
            let Some(who) = named(&hit) else { continue };
            let behind = behind(&folded[whole.end()..]);
            let end = whole.end() + behind;
            let who = match behind {
                0 => who,
                _ => vec![Subject::Other(folded[whole.start()..end].trim().to_owned())],
            };
            found.push(Person {
                start: whole.start(),
                end,
                who,
                is_self: false,
            });
        }
    }
    for hit in ENGLISH_LEAD.captures_iter(folded) {
        let word = hit.name("bare").expect("the pattern has the word");
        let is_free = found
            .iter()
            .all(|p| word.end() <= p.start || p.end <= word.start());
        if is_free {
            found.push(Person {
                start: word.start(),
                end: word.end(),
                who: RELATIVES.subjects(word.as_str(), ""),
                is_self: false,
            });
        }
    }
    for hit in MY_CHILD.find_iter(folded) {
        let is_free = found
            .iter()
            .all(|p| hit.end() <= p.start || p.end <= hit.start());
        if is_free {
            found.push(Person {
                start: hit.start(),
                end: hit.end(),
                who: vec![Subject::Child],
                is_self: false,
            });
        }
    }
    for (regex, is_self) in [(&*SELF, true), (&*THIRD, false)] {
        for hit in regex.find_iter(folded) {
            let is_free = found
                .iter()
                .all(|p| hit.end() <= p.start || p.end <= hit.start());
            if is_free && !is_other_word(folded, hit.start(), hit.end()) {
                let is_others = is_self && is_others_patient(folded, hit.start(), hit.end());
                let who = if is_others {
                    vec![Subject::Other(hit.as_str().to_owned())]
                } else if is_self {
                    vec![Subject::Self_]
                } else {
                    Vec::new()
                };
                found.push(Person {
                    start: hit.start(),
                    end: hit.end(),
                    who,
                    is_self: is_self && !is_others,
                });
            }
        }
    }
    found.sort_by_key(|person| person.start);
    join_listed(folded, found)
}

/// 其他, 吉他 and 他汀 hold no person, and "they" of "they found" is nobody.
fn is_other_word(folded: &str, start: usize, end: usize) -> bool {
    match &folded[start..end] {
        "他" => {
            folded[..start].ends_with(['其', '吉', '排', '维'])
                || (folded[..start].ends_with(['雷', '洛', '扎'])
                    && folded[end..].starts_with('定'))
                || ["汀", "莫昔", "克莫", "达拉", "扎罗"]
                    .iter()
                    .any(|rest| folded[end..].starts_with(rest))
        }
        "they" => IMPERSONAL.is_match(&folded[start..]),
        _ => false,
    }
}

/// Whether the word is part of another one, or of somebody's name.
fn names_nobody(folded: &str, hit: &regex::Captures<'_>) -> bool {
    let whole = hit.get(0).expect("a match has a whole");
    let is_in_word = NO_RELATIVE
        .find_iter(folded)
        .any(|word| word.start() < whole.end() && whole.start() < word.end());
    let is_name = hit.name("bare").is_some() && TITLE.is_match(&folded[whole.end()..]);
    is_in_word || is_name
}

/// A patient who is somebody's or one of several is not the patient of the record: 他有个病人.
fn is_others_patient(folded: &str, start: usize, end: usize) -> bool {
    const BEFORE: [&str; 12] = [
        "有个",
        "有位",
        "有一个",
        "有一位",
        "一个",
        "一位",
        "那个",
        "那位",
        "别的",
        "其他",
        "他的",
        "她的",
    ];
    const BEFORE_EN: [&str; 6] = ["a ", "another ", "his ", "her ", "their ", "other "];
    let before = &folded[..start];
    match &folded[start..end] {
        "病人" | "患者" => BEFORE.iter().any(|word| before.ends_with(word)),
        "patient" | "pt" => BEFORE_EN.iter().any(|word| before.ends_with(word)),
        _ => false,
    }
}

/// How many bytes behind a relative make it somebody else.
fn behind(rest: &str) -> usize {
    let Some(hit) = BEHIND.captures(rest) else {
        return 0;
    };
    if let Some(side) = hit.name("side") {
        return side.end();
    }
    let whose = hit.name("whose").or_else(|| hit.name("zh"));
    whose
        .filter(|whose| !PART.is_match(whose.as_str()) && mentions(whose.as_str()).is_empty())
        .map_or(0, |whose| whose.end())
}

fn named(hit: &regex::Captures<'_>) -> Option<Vec<Subject>> {
    let get = |name: &str| hit.name(name).map(|m| m.as_str());
    let word = get("owned").or_else(|| get("bare"))?;
    let owner = get("owner").unwrap_or("");
    let chain = ["chain", "chain1", "chain2"]
        .into_iter()
        .find_map(|name| hit.name(name));
    if let Some(chain) = chain {
        // 我老婆的妈妈, my wife's mother: somebody else.
        let whole = hit.get(0)?.as_str();
        let named = hit.name("adjectives").filter(|m| !m.is_empty());
        let start = named
            .or_else(|| hit.name("owned"))
            .or_else(|| hit.name("bare"))?
            .start()
            - hit.get(0)?.start();
        let end = chain.end() - hit.get(0)?.start();
        return Some(vec![Subject::Other(whole[start..end].to_owned())]);
    }
    // Her brother is not the speaker's: where the word alone would name the speaker's, hers is added.
    let others = || {
        let is_shared = RELATIVES.canonical(word).is_some();
        let gap = if word.chars().any(is_han) { "" } else { " " };
        let name = if is_shared {
            format!("{owner}{gap}{word}")
        } else {
            word.to_owned()
        };
        Some(vec![Subject::Other(name)])
    };
    match owner {
        "your" => None,
        "他" | "她" | "his" | "her" | "their" => others(),
        other if other.ends_with("'s") => others(),
        // "The girl next door" is nobody's child here.
        "the" if matches!(word, "boy" | "boys" | "girl" | "girls" | "lad" | "lass") => others(),
        _ => Some(RELATIVES.subjects(word, get("adjectives").unwrap_or(""))),
    }
}

/// `我和我爸`, `my wife and I`: one subject of two persons.
fn join_listed(folded: &str, persons: Vec<Person>) -> Vec<Person> {
    let mut joined: Vec<Person> = Vec::new();
    for person in persons {
        // "My dad's side of the family" takes in "the family", which is no second person.
        let is_inside = joined
            .last()
            .is_some_and(|last: &Person| person.start < last.end);
        if is_inside {
            continue;
        }
        if let Some(last) = joined.last_mut() {
            let gap = folded.get(last.end..person.start).unwrap_or("?").trim();
            let is_list = matches!(
                gap,
                "和" | "跟" | "与" | "、" | "and" | "&" | "以及" | "," | "nor"
            );
            if is_list && !person.who.is_empty() && !last.who.is_empty() {
                last.who.extend(
                    person
                        .who
                        .iter()
                        .filter(|w| !last.who.contains(w))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
                last.end = person.end;
                last.is_self |= person.is_self;
                continue;
            }
        }
        joined.push(person);
    }
    joined
}

/// Whether a pronoun may stand for a person, as far as the words tell he from she.
pub(crate) fn may_be(pronoun: &str, who: &Subject) -> bool {
    const MALE: [&str; 7] = [
        "father",
        "brother",
        "son",
        "uncle",
        "nephew",
        "husband",
        "boyfriend",
    ];
    const FEMALE: [&str; 8] = [
        "mother",
        "sister",
        "daughter",
        "aunt",
        "niece",
        "wife",
        "girlfriend",
        "fiancee",
    ];
    let name = who.to_string();
    let ends = |words: &[&str]| {
        words
            .iter()
            .any(|word| name.trim_end_matches(')').ends_with(word))
    };
    match pronoun {
        "他" | "he" | "him" | "his" | "he's" => !ends(&FEMALE),
        "她" | "she" | "her" | "hers" | "she's" => !ends(&MALE),
        _ => true,
    }
}

/// The nearest person named before `anchor`.
pub(crate) fn nearest(persons: &[Person], anchor: usize) -> Option<&Person> {
    persons.iter().rev().find(|person| person.start <= anchor)
}

/// Whom a question names: a relative if it names one, else the asker if it says 我 or "my".
pub(crate) fn of_query(text: &str) -> Option<Subject> {
    let folded = crate::fold::fold(text);
    let persons = persons(&folded);
    let relative = persons
        .iter()
        .flat_map(|p| &p.who)
        .find(|who| **who != Subject::Self_)
        .cloned();
    relative.or_else(|| persons.iter().any(|p| p.is_self).then_some(Subject::Self_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let folded = crate::fold::fold(text);
        let found: Vec<String> = persons(&folded)
            .iter()
            .map(|p| {
                if p.who.is_empty() {
                    "?".to_owned()
                } else {
                    p.who
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("+")
                }
            })
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn relatives_are_found_in_both_languages() {
        check("我爸对青霉素过敏", "father");
        check("我老婆怀孕了", "spouse");
        check("我小女儿对头孢过敏，不是我", "other(younger daughter) self");
        check("My younger sister is allergic", "other(younger sister)");
        check("Mom has diabetes", "mother");
        check("邻居对花生过敏", "other(邻居)");
        check("有个病人对花生过敏", "other(病人)");
        check("患者对花生过敏", "self");
        check("my uncle has gout", "other(uncle)");
        check("我爸妈都有高血压", "father+mother");
        check("孩子他爹有痛风", "spouse");
        check("家父早年有结核", "father");
        check("舍妹对虾过敏", "other(younger sister)");
        check("Hubby has gout", "spouse");
        check("and pa takes digoxin", "father");
        check("both our girls have asthma", "child");
        check("my kid brother has asthma", "other(younger brother)");
    }

    #[test]
    fn brothers_and_children_are_persons_of_their_own_in_both_languages() {
        for (chinese, english, who) in [
            ("我哥哥有痛风", "my older brother has gout", "older brother"),
            (
                "我弟弟有痛风",
                "my little brother has gout",
                "younger brother",
            ),
            ("我姐有痛风", "my elder sister has gout", "older sister"),
            (
                "我妹妹有痛风",
                "my younger sister has gout",
                "younger sister",
            ),
            ("我儿子有哮喘", "my son has asthma", "son"),
            (
                "我女儿有哮喘",
                "my 5-year-old daughter has asthma",
                "daughter",
            ),
            (
                "我大女儿有哮喘",
                "my eldest daughter has asthma",
                "older daughter",
            ),
            (
                "我小儿子有哮喘",
                "my youngest son has asthma",
                "younger son",
            ),
            (
                "我大哥有痛风",
                "my oldest brother has gout",
                "oldest brother",
            ),
            ("我奶奶有痛风", "my grandma has gout", "grandmother"),
            (
                "我外婆有痛风",
                "my maternal grandmother has gout",
                "maternal grandmother",
            ),
            (
                "我舅舅有痛风",
                "my maternal uncle has gout",
                "maternal uncle",
            ),
        ] {
            let expected = format!("other({who})");
            check(chinese, &expected);
            check(english, &expected);
            assert_eq!(of_query(chinese), of_query(english), "{chinese}");
        }
        check("my brother has gout", "other(brother)");
        check("我孩子有哮喘", "child");
        check("my kid has asthma", "child");
        check("her brother has gout", "other(her brother)");
        check("她弟弟有痛风", "other(她弟弟)");
    }

    #[test]
    fn a_relatives_relative_is_somebody_else() {
        check("我老婆的妈妈有高血压", "other(老婆的妈妈)");
        check("my wife's mother has gout", "other(wife's mother)");
        check("她妈妈", "other(妈妈)");
        check("my sister's tenant has gout", "other(my sister's tenant)");
        check("my sister's knee has arthritis", "other(sister)");
        check("my sister's gout is back", "other(sister)");
        check("我姑姑的牌友有痛风", "other(我姑姑的牌友)");
        check("on my mother's side", "other(my mother's side)");
        check("我妈那边有痛风", "other(我妈那边)");
        check("her mother", "other(mother)");
    }

    #[test]
    fn a_list_of_persons_is_one_subject() {
        check("我和我爸都对花生过敏", "self+father");
        check("my wife and I", "spouse+self");
    }

    #[test]
    fn words_that_hold_a_pronoun_name_nobody() {
        check("其他都好", "");
        check("吃了妈咪爱", "");
        check("大姨妈来了", "");
        check("孙子怡大夫开的药", "");
        check("the girl next door", "other(girl)");
        check("母亲节那天", "");
        check("the theme", "");
        check("姑娘", "");
    }

    #[test]
    fn a_question_names_a_relative_or_the_asker() {
        assert_eq!(of_query("我爸对什么过敏？"), Some(Subject::Father));
        assert_eq!(of_query("What am I allergic to?"), Some(Subject::Self_));
        assert_eq!(of_query("过敏史"), None);
    }
}
