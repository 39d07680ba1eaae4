//! What does a short answer say, with the question before it in mind?
//!
//! "Any allergies?" "Penicillin." states what neither message states alone. The question gives the kind of
//! fact and whom it asks about; the words are the answer's. What a bare yes or no says is put in words of the
//! lexicon, never in those of the question: they belong to another message and are erased with it.

use crate::fold::fold;
use crate::lexicon::{Class, Mention, lookup, mentions, named_in};
use crate::negation::negators;
use crate::pattern::fixed;
use crate::scene::items;
use crate::sentence::sentences;
use crate::subject::persons;

/// A longer answer is a sentence of its own.
const ANSWER_CHARS_MAX: usize = 80;
/// More things in one question than anybody answers with one word.
const THINGS_MAX: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Topic {
    Allergy,
    Family,
    Operation,
    Medication,
    Smoking,
    Alcohol,
    Condition,
}

/// A question as it was put to the speaker of the next message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    topic: Topic,
    is_chinese: bool,
    /// What it names, as the lexicon calls it in the question's language.
    things: Vec<String>,
    /// The relative whom it asks about, as the one who answers would say: "my mother".
    person: Option<String>,
    /// "Have you ever …": a yes tells of the past.
    is_ever: bool,
    /// "Which …" and "any …" ask for names.
    is_open: bool,
    /// Of allergies: only of one sort.
    sort: Option<&'static str>,
}

/// The statement that question and answer make up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub(crate) text: String,
}

fixed!(
    ALLERGY,
    r"过敏|\b(?:allerg(?:y|ies|ic)|bad reactions? to|react to)\b"
);
fixed!(
    FAMILY,
    r"家族|家里(?:有没有)?人|亲属|直系|遗传|\b(?:family|relatives|runs in|blood relative)\b"
);
fixed!(
    OPERATION,
    r"手术|开过刀|动过刀|\b(?:surger(?:y|ies)|operations?|operated on|surgical)\b"
);
fixed!(
    MEDICATION,
    r"吃(?:着|过|了|哪些|哪种|的)?(?:什么|哪些)?药|用(?:着|过|了)?(?:什么|哪些)?药|什么药|哪些药|服药|服用|(?:在|还)(?:吃|用|打)|吃着|\b(?:medications?|medicines?|meds|drugs|pills|prescriptions?|supplements?|taking|do you take|are you (?:still )?on)\b"
);
fixed!(
    SMOKING,
    r"抽烟|吸烟|烟吗|\b(?:smoke|smoker|smoking|tobacco|cigarettes?)\b"
);
fixed!(ALCOHOL, r"喝酒|饮酒|\b(?:do you drink|alcohol|drinker)\b");
fixed!(
    CONDITION,
    r"病史|慢性病|基础病|基础疾病|什么病|哪些病|其他病|别的病|得过|患过|患有|有没有|有(?:过)?[^,;]{1,16}吗|\b(?:medical (?:problems?|conditions?|history|issues?)|health (?:problems?|conditions?|issues?)|chronic|illness(?:es)?|diagnosed|conditions?|diseases?|do(?:es)? [^,;]{2,30}? have|have you (?:ever )?had|did you (?:ever )?have|any history of|^any|^and any|do you suffer|are you (?:a )?)\b"
);
// A question for advice, for a reason, for a time or an amount: a name in its answer is no fact of its kind.
fixed!(
    OTHER_QUESTION,
    r"如果|为什么|怎么|如何|能不能|可不可以|可以|要不要|需不需要|应该|多久|几点|什么时候|多少|想不想|知不知道|\b(?:if|why|how|should|could|would|can|may|when|where|want|need|know|heard|think|worried|concern\w*|questions?)\b"
);
fixed!(
    OPEN,
    r"什么|哪些|哪种|有没有(?:别的|其他)|其他|别的|\b(?:what|which|any|anything|anybody|anyone|list)\b"
);
fixed!(EVER, r"过|曾|\b(?:ever|history|did you|had|in the past)\b");
// "You don't smoke, do you?": a yes may mean either.
fixed!(
    DENIES,
    r"^[^,]*(?:没有|没|不)[^,]{0,12}(?:吧|对吧|是吧|对吗|是吗)|\b(?:no|not|don't|doesn't|haven't|aren't|never|deny|denies)\b"
);
fixed!(
    BOTH_WAYS,
    r"有没有|是不是|会不会|吃没吃|抽不抽|喝不喝|有无|是否|没有得过|做没做过"
);
fixed!(
    YES,
    r"^(?:yes|yeah|yep|yup|yah|correct|right|that's (?:right|correct|true)|indeed|absolutely|definitely|uh-huh|mm-hmm|i do|i am|i have|i did|she does|he does|they do|she is|he is|she has|he has|she did|he did)(?:[, ]+(?:i do|i am|i have|i did|she does|he does|she has|he has|that's (?:right|correct|true)|indeed|doctor|sir|ma'am|unfortunately|sadly|both))*$|^(?:是|是的|对|对的|有|有的|有过|嗯|恩|没错|得过|患过|吃|在吃|抽|喝|吸|做过|会|过敏)(?:[,、 ]*(?:是的?|对的?|有的?|啊|呢|的|嗯|医生|大夫|我有))*$"
);
fixed!(
    NO,
    r"^(?:no|nope|nah|none|never|nothing|negative|not really|not (?:that )?i(?:'m| am) aware of|not (?:that )?i know(?: of)?|not at all|i don't|i do not|i'm not|i am not|i haven't|i have not|i never have|i never did|she doesn't|he doesn't|she hasn't|he hasn't|nobody|no one|none of them)(?:[,. ]+(?:i don't|i do not|i'm not|i am not|i haven't|none|never|nothing|no|not (?:that )?i(?:'m| am) aware of|(?:none |nothing |not )?(?:that )?i know(?: of)?|not at all|at all|doctor|sir|ma'am|thankfully|thank god|luckily|she doesn't|he doesn't|nope|not really))*$|^(?:没有|没|没有过|没得过|没患过|不是|不|不吃|没吃|没在吃|没做过|不抽|不吸|不喝|不会|从来没有|从没|从来不|都没有|无|没过敏|不过敏|否|没听说)(?:[,、 ]*(?:没有|没有过|没|不|都没有|从来没有|啊|呢|的|了|医生|大夫|我没有|都没))*$"
);
// What leads up to the names of an answer.
fixed!(
    LEAD,
    r"^(?:(?:yes|yeah|yep|well|um|uh|uhm|oh|ah|okay|so|just|only|mainly|mostly|also|currently|right now|sure|it's|it is|the|that would be|there's|有的?|对|是的?|嗯|恩|就|只有|就是|主要是?|只|那个|在吃|吃的?是?|用的?是?|得过|患过|做过|还有)[,、:. ]*)+"
);
// An answer that doubts, asks back or says more than names.
fixed!(
    NO_NAMES,
    r"\?|可能|好像|大概|不清楚|不知道|不记得|忘|应该|听说|\b(?:maybe|might|think|not|no|don't|never|unsure|sure|possibly|perhaps|guess|used to|stopped|was|were|what|why|how|my|he|she|they|it|you|is|are|allergic|used)\b|我|他|她|你|吗|不|没|停|以前"
);

impl Asked {
    /// The question at the end of a message; `None` when it asks for nothing of the kind, or for several
    /// things at once.
    pub(crate) fn of(message: &str) -> Option<Self> {
        let last = sentences(message).pop()?;
        let question = last.folded.as_str().trim();
        let is_chinese = crate::fold::language(question) == "zh";
        let is_marked = question.ends_with('?') || crate::modality::is_question(question);
        if !is_marked || OTHER_QUESTION.is_match(question) || question.chars().count() > 160 {
            return None;
        }
        let as_told = told_of_oneself(question);
        let person = persons(&as_told)
            .iter()
            .find(|p| !p.is_self && !p.who.is_empty())
            .map(|p| as_told[p.start..p.end].to_owned());
        // "Anyone in your family" is nobody yet.
        let person = person.filter(|_| !FAMILY.is_match(question));
        // 他 and "she": nobody knows who.
        let is_of_somebody = persons(question).iter().any(|p| p.who.is_empty());
        if is_of_somebody && person.is_none() {
            return None;
        }
        let topic = topic(question)?;
        let known = mentions(question);
        let mut things: Vec<String> = Vec::new();
        let mut end = 0;
        for mention in known
            .iter()
            .filter(|m| is_of(topic, m) && !is_general(m.name))
        {
            // A substance is a drug and an allergen: one thing.
            let name = named_in(mention, is_chinese);
            if mention.start >= end && !things.contains(&name) {
                things.push(name);
            }
            end = end.max(mention.end);
        }
        let both = BOTH_WAYS.replace_all(question, "");
        if DENIES.is_match(&both) || things.len() > THINGS_MAX {
            return None;
        }
        Some(Self {
            topic,
            is_chinese,
            things,
            person,
            is_ever: EVER.is_match(question),
            is_open: OPEN.is_match(question),
            sort: sort_of_allergy(question),
        })
    }

    /// What an answer's first sentence says; `None` when it is no short answer.
    pub(crate) fn answered_by(&self, answer: &str) -> Option<Answered> {
        let answer = fold(answer);
        let answer = answer
            .trim()
            .trim_matches(|c: char| !(c.is_alphanumeric() || c == ')' || c == '?'));
        if answer.is_empty() || answer.chars().count() > ANSWER_CHARS_MAX {
            return None;
        }
        let text = if YES.is_match(answer) {
            self.yes()?
        } else if NO.is_match(answer) {
            self.no()?
        } else {
            self.names(answer)?
        };
        Some(Answered { text })
    }

    fn who<'a>(&'a self, own: &'a str) -> &'a str {
        self.person.as_deref().unwrap_or(own)
    }

    /// A verb in the form that its person takes.
    fn verb<'a>(&self, own: &'a str, others: &'a str) -> &'a str {
        if self.person.is_some() { others } else { own }
    }

    fn yes(&self) -> Option<String> {
        let who = self.who(if self.is_chinese { "我" } else { "i" });
        let thing = match self.things.as_slice() {
            [one] => one.as_str(),
            // Of two things asked for, a yes may mean either.
            [] if matches!(self.topic, Topic::Smoking | Topic::Alcohol) => "",
            _ => return None,
        };
        Some(match (self.topic, self.is_chinese) {
            (Topic::Allergy, true) => format!("{who}对{thing}过敏"),
            (Topic::Allergy, false) => {
                format!("{who} {} allergic to {thing}", self.verb("am", "is"))
            }
            (Topic::Medication, true) => format!("{who}在吃{thing}"),
            (Topic::Medication, false) => format!("{who} {} {thing}", self.verb("take", "takes")),
            (Topic::Operation, true) => format!("{who}做过{thing}"),
            (Topic::Operation, false) => format!("{who} had {thing}"),
            (Topic::Condition, true) if self.is_ever => format!("{who}得过{thing}"),
            (Topic::Condition, true) => format!("{who}有{thing}"),
            (Topic::Condition, false) if self.is_ever => format!("{who} had {thing}"),
            (Topic::Condition, false) => format!("{who} {} {thing}", self.verb("have", "has")),
            (Topic::Family, true) => match &self.person {
                Some(person) => format!("{person}有{thing}"),
                None => format!("家族史:{thing}"),
            },
            (Topic::Family, false) => match &self.person {
                Some(person) => format!("{person} has {thing}"),
                None => format!("family history of {thing}"),
            },
            (Topic::Smoking, true) => format!("{who}抽烟"),
            (Topic::Smoking, false) => format!("{who} {}", self.verb("smoke", "smokes")),
            (Topic::Alcohol, true) => format!("{who}喝酒"),
            (Topic::Alcohol, false) => format!("{who} {} alcohol", self.verb("drink", "drinks")),
        })
    }

    fn no(&self) -> Option<String> {
        let own = if self.is_chinese { "我" } else { "i" };
        let who = self.who(own);
        let not = self.verb("don't", "doesn't");
        let is_smoking = matches!(self.topic, Topic::Smoking | Topic::Alcohol);
        if self.things.is_empty() && !is_smoking {
            // Only of allergies is "none at all" a fact of its own.
            let is_of_oneself = self.person.is_none();
            return (self.topic == Topic::Allergy && is_of_oneself).then(|| {
                match (self.is_chinese, self.sort) {
                    (true, Some("food")) => "我没有食物过敏".to_owned(),
                    (true, Some(_)) => "我没有药物过敏".to_owned(),
                    (true, None) => "过敏史:无".to_owned(),
                    (false, Some(sort)) => format!("i have no known {sort} allergies"),
                    (false, None) => "i have no known allergies".to_owned(),
                }
            });
        }
        let each = |form: &dyn Fn(&str) -> String| -> String {
            let all: Vec<String> = self.things.iter().map(|one| form(one)).collect();
            all.join(if self.is_chinese { "。" } else { ". " })
        };
        Some(match (self.topic, self.is_chinese) {
            (Topic::Allergy, true) => each(&|one| format!("{who}对{one}不过敏")),
            (Topic::Allergy, false) => {
                let is = self.verb("am", "is");
                each(&|one| format!("{who} {is} not allergic to {one}"))
            }
            (Topic::Medication, true) => each(&|one| format!("{who}没吃{one}")),
            (Topic::Medication, false) => each(&|one| format!("{who} {not} take {one}")),
            (Topic::Operation, true) => each(&|one| format!("{who}没做过{one}")),
            (Topic::Operation, false) => each(&|one| format!("{who} never had {one}")),
            (Topic::Condition, true) => each(&|one| format!("{who}没有{one}")),
            (Topic::Condition, false) => each(&|one| format!("{who} {not} have {one}")),
            (Topic::Family, true) => match &self.person {
                Some(person) => each(&|one| format!("{person}没有{one}")),
                None => each(&|one| format!("没有{one}家族史")),
            },
            (Topic::Family, false) => match &self.person {
                Some(person) => each(&|one| format!("{person} doesn't have {one}")),
                None => each(&|one| format!("no family history of {one}")),
            },
            (Topic::Smoking, true) => format!("{who}不抽烟"),
            (Topic::Smoking, false) => format!("{who} {not} smoke"),
            (Topic::Alcohol, true) => format!("{who}不喝酒"),
            (Topic::Alcohol, false) => format!("{who} {not} drink alcohol"),
        })
    }

    /// An answer that only names: things of the kind that was asked for, or the relative who has them.
    fn names(&self, answer: &str) -> Option<String> {
        if let Some(text) = self.names_relative(answer) {
            return Some(text);
        }
        let names = LEAD.replace(answer, "");
        let names = names.trim().trim_end_matches(['.', '。', ',']);
        let is_plain = !NO_NAMES.is_match(names)
            && negators(names, &mentions(names)).is_empty()
            && persons(names).is_empty()
            && names.split_whitespace().count() <= 14;
        if names.is_empty() || !is_plain || !self.is_open {
            return None;
        }
        let known = mentions(names);
        let is_named = |item: &str| match self.topic {
            Topic::Allergy => lookup(item, &[Class::Allergen, Class::Drug, Class::Food]).is_some(),
            Topic::Medication | Topic::Operation | Topic::Condition => {
                mentions(item).iter().any(|m| is_of(self.topic, m))
            }
            Topic::Family | Topic::Smoking | Topic::Alcohol => false,
        };
        let is_list = items(names).into_iter().all(is_named);
        if !is_list || !known.iter().any(|m| is_of(self.topic, m)) {
            return None;
        }
        let who = self.who(if self.is_chinese { "我" } else { "i" });
        Some(match (self.topic, self.is_chinese) {
            (Topic::Allergy, true) => format!("{who}对{names}过敏"),
            (Topic::Allergy, false) => {
                format!("{who} {} allergic to {names}", self.verb("am", "is"))
            }
            (Topic::Medication, true) => format!("{who}在吃{names}"),
            (Topic::Medication, false) => format!("{who} {} {names}", self.verb("take", "takes")),
            (Topic::Operation, true) => format!("{who}做过{names}"),
            (Topic::Operation, false) => format!("{who} had {names}"),
            (Topic::Condition, true) => format!("{who}有{names}"),
            (Topic::Condition, false) => format!("{who} {} {names}", self.verb("have", "has")),
            (Topic::Family | Topic::Smoking | Topic::Alcohol, _) => return None,
        })
    }

    /// "My mother." to the question whether somebody in the family has it.
    fn names_relative(&self, answer: &str) -> Option<String> {
        let [thing] = self.things.as_slice() else {
            return None;
        };
        let words = LEAD.replace(answer, "");
        let words = words.trim();
        let named = persons(words);
        let [person] = named.as_slice() else {
            return None;
        };
        let rest = format!("{}{}", &words[..person.start], &words[person.end..]);
        let is_alone = matches!(
            rest.trim(),
            "" | "有" | "does" | "did" | "do" | "had it" | "has it" | "得过"
        );
        let is_relative = !person.is_self && !person.who.is_empty();
        let is_asked = self.topic == Topic::Family && self.person.is_none();
        let whom = &words[person.start..person.end];
        (is_alone && is_relative && is_asked).then(|| {
            if self.is_chinese {
                format!("{whom}有{thing}")
            } else {
                format!("{whom} has {thing}")
            }
        })
    }
}

fn topic(question: &str) -> Option<Topic> {
    let all = [
        (Topic::Allergy, ALLERGY.is_match(question)),
        (Topic::Family, FAMILY.is_match(question)),
        (Topic::Operation, OPERATION.is_match(question)),
        (Topic::Smoking, SMOKING.is_match(question)),
        (Topic::Alcohol, ALCOHOL.is_match(question)),
        (Topic::Medication, MEDICATION.is_match(question)),
    ];
    let mut asked = all
        .into_iter()
        .filter(|(_, is)| *is)
        .map(|(topic, _)| topic);
    match (asked.next(), asked.next()) {
        // "Are you allergic to any medication" asks for one thing.
        (Some(Topic::Allergy), None | Some(Topic::Medication)) => Some(Topic::Allergy),
        (Some(one), None) => Some(one),
        (Some(_), Some(_)) => None,
        (None, _) => CONDITION
            .is_match(question)
            .then(|| topic_of_things(question))
            .flatten(),
    }
}

/// "Do you have …", "have you had …": what is named tells what is asked for.
fn topic_of_things(question: &str) -> Option<Topic> {
    let known = mentions(question);
    let has = |class: Class| known.iter().any(|m| m.class == class);
    if has(Class::Condition) {
        return Some(Topic::Condition);
    }
    if has(Class::Procedure) {
        return Some(Topic::Operation);
    }
    let is_general = !has(Class::Symptom) && !has(Class::Test);
    is_general.then_some(Topic::Condition)
}

fn is_of(topic: Topic, mention: &Mention) -> bool {
    match topic {
        Topic::Allergy => matches!(mention.class, Class::Allergen | Class::Drug | Class::Food),
        Topic::Medication => mention.class == Class::Drug,
        Topic::Operation => mention.class == Class::Procedure,
        Topic::Condition | Topic::Family => mention.class == Class::Condition,
        Topic::Smoking | Topic::Alcohol => false,
    }
}

/// "Any drug allergies" names no drug.
fn is_general(name: &str) -> bool {
    matches!(name, "any" | "drug" | "food" | "environment")
}

fn sort_of_allergy(question: &str) -> Option<&'static str> {
    fixed!(
        OF_DRUGS,
        r"药|\b(?:medications?|medicines?|drugs?|meds|antibiotics?)\b"
    );
    fixed!(OF_FOOD, r"食物|吃的|\bfoods?\b");
    match (OF_DRUGS.is_match(question), OF_FOOD.is_match(question)) {
        (true, false) => Some("drug"),
        (false, true) => Some("food"),
        _ => None,
    }
}

/// The question as the one who is asked would say it of themselves: "your mother" is "my mother".
fn told_of_oneself(question: &str) -> String {
    fixed!(YOUR, r"\byour\b");
    fixed!(YOU, r"\byou\b");
    let mine = YOUR.replace_all(question, "my");
    let mine = YOU.replace_all(&mine, "i");
    mine.replace(['您', '你'], "我")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(question: &str, answer: &str, expected: Option<&str>) {
        let text = Asked::of(question)
            .and_then(|asked| asked.answered_by(answer))
            .map(|answered| answered.text);
        assert_eq!(text.as_deref(), expected, "{question} {answer}");
    }

    #[test]
    fn a_name_answers_a_question_for_names() {
        check(
            "Do you have any allergies?",
            "Penicillin.",
            Some("i am allergic to penicillin"),
        );
        check("有没有什么过敏？", "青霉素。", Some("我对青霉素过敏"));
        check(
            "What medications are you on?",
            "Just metformin 500 mg.",
            Some("i take metformin 500 mg"),
        );
        check(
            "平时吃什么药？",
            "二甲双胍和阿司匹林",
            Some("我在吃二甲双胍和阿司匹林"),
        );
        check(
            "Any medical conditions?",
            "Asthma and gout.",
            Some("i have asthma and gout"),
        );
        check(
            "Have you had any surgeries?",
            "Appendectomy",
            Some("i had appendectomy"),
        );
        check(
            "Does anyone in your family have diabetes?",
            "My mother.",
            Some("my mother has diabetes"),
        );
        check("家里人有没有高血压？", "我爸有", Some("我爸有高血压"));
    }

    #[test]
    fn yes_and_no_answer_a_question_that_names_one_thing() {
        check(
            "Are you allergic to penicillin?",
            "Yes, I am.",
            Some("i am allergic to penicillin"),
        );
        check(
            "Are you allergic to penicillin?",
            "No.",
            Some("i am not allergic to penicillin"),
        );
        check("你对青霉素过敏吗？", "不过敏", Some("我对青霉素不过敏"));
        check(
            "Do you have high blood pressure?",
            "Nope.",
            Some("i don't have hypertension"),
        );
        check("您有高血压吗？", "没有。", Some("我没有高血压"));
        check("得过肺炎吗？", "得过", Some("我得过肺炎"));
        check(
            "Any diabetes or heart failure?",
            "No",
            Some("i don't have diabetes. i don't have heart failure"),
        );
        check("Do you smoke?", "No, never.", Some("i don't smoke"));
        check("抽烟吗？", "抽", Some("我抽烟"));
        check(
            "Does your mother have asthma?",
            "Yes",
            Some("my mother has asthma"),
        );
        check(
            "Any drug allergies?",
            "None that I know of.",
            Some("i have no known drug allergies"),
        );
        check("有没有药物过敏？", "没有", Some("我没有药物过敏"));
    }

    #[test]
    fn what_could_mean_either_says_nothing() {
        // A yes to two things, to a denial, to nothing that is named.
        check("Do you have diabetes or gout?", "Yes.", None);
        check("You don't smoke, do you?", "Yes.", None);
        check("没有过敏吧？", "对", None);
        check("Do you have any allergies?", "Yes.", None);
        check("Any medications?", "No.", None);
        // Doubt, and words that are no name.
        check("Do you have any allergies?", "Maybe penicillin.", None);
        check("Do you have any allergies?", "Not to penicillin.", None);
        check("有什么过敏？", "好像是青霉素", None);
        check("What medications are you on?", "The white ones.", None);
        // Advice, another person, no question.
        check("Should I take aspirin?", "Yes.", None);
        check("Does she have asthma?", "Yes.", None);
        check("You have asthma.", "Yes.", None);
        check("Any allergies? Any surgeries?", "Penicillin.", None);
        check("如果对青霉素过敏怎么办？", "有", None);
    }
}
