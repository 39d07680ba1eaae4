//! "不是我过敏，是我爸": whose is it, if not mine?
//!
//! Such a sentence moves a fact that was stated just before, in the same sentence or conversation, to
//! another person. It never asserts anything about the speaker that was not said.

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity};
use anamnesis_domain::owner::Subject;

use crate::lexicon::mentions;
use crate::pattern::fixed;
use crate::scene::{Found, Known};
use crate::subject::persons;

fixed!(
    NOT_SELF,
    r"不是我(?:自己|本人)?(?:过敏|对.{0,12}过敏|的|有)?\s*(?:$|[,.。!])|不是我(?:自己|本人)?过敏|(?:的|过敏)不是我|\bnot (?:me|mine|myself)\b|\b(?:isn't|is not|wasn't|was not) (?:me|mine)\b|\bi(?:'m| am) not (?:the one|the allergic one)\b"
);
// The clause that only says who.
fixed!(
    ONLY_WHO,
    r"^(?:而)?(?:就)?是$|^$|^(?:but |and )?(?:it's|it is|that's|that is|it was)?$"
);
fixed!(
    ELLIPSIS,
    r"^(?:才)?(?:过敏的?|有的?|得的?|得了|患的?|在吃|对它过敏)?(?:的|啊|呢|哦)*$|^(?:is|does|has|did|was|who (?:is|does|has|was)(?: allergic)?|who's allergic|that is|is the one|is allergic)?(?: though| instead)?$"
);

/// A clause that names a person and nothing else: `是我爸`, "it's my dad", "my father does".
pub(crate) fn names_only(clause: &str) -> Option<Vec<Subject>> {
    let clause = clause
        .trim()
        .trim_matches(|c: char| !c.is_alphanumeric())
        .trim();
    let persons = persons(clause);
    let person = persons.iter().find(|p| !p.is_self && !p.who.is_empty())?;
    let (before, after) = (clause[..person.start].trim(), clause[person.end..].trim());
    let is_all = ONLY_WHO.is_match(before) && ELLIPSIS.is_match(after);
    is_all.then(|| person.who.clone())
}

fixed!(
    NOT_WHOM,
    r"(?:的|过敏|病)(?:人|那个)?(?:并|可)?不是\s*$|\b(?:isn't|is not|wasn't|was not|aren't|weren't|ain't)\s*$"
);

/// Whom a clause denies what it says: `打胰岛素的不是我`, "the gout wasn't Mum".
pub(crate) fn denies_whom(clause: &str) -> Option<Vec<Subject>> {
    let clause = clause
        .trim()
        .trim_end_matches(|c: char| !c.is_alphanumeric());
    let persons = persons(clause);
    let last = persons.last().filter(|p| !p.who.is_empty())?;
    let is_end = clause[last.end..].trim().is_empty();
    (is_end && NOT_WHOM.is_match(&clause[..last.start])).then(|| last.who.clone())
}

fixed!(
    SAME_NOT,
    r"^(?:就|也|倒|倒是|可|可是|都|自己|本人|从来|一直|到现在|现在|反正|却|但|但是|不过|而|好在|幸好|幸亏|至今|还)*(?:没有|没得|没得过|没患过|没有得过|没这(?:个)?(?:毛?病)|不过敏|不是|没吃|不吃|没用|不用|没打过?|没做过?|没查过?|没用过|没喝过?|没吃过|没割过|没住过)(?:的|了|过|啊|呢|哦|这个|这个?病|这毛病)*$|^(?:and|but|though|thankfully|luckily|fortunately|however|while|whereas)?\s*(?:don't|doesn't|do not|does not|didn't|haven't|hasn't|am not|isn't|is not|aren't|never did|never has|never have)(?: have (?:it|that|any|one))?(?: (?:myself|himself|herself|themselves|either|though|at all|luckily|thankfully))*$|^(?:and|but)?\s*(?:neither|nor)\s+(?:do|does|am|is|are|have|has|did)$|^(?:and|but)?\s*none of (?:do|does|are|is|have|has|did)$"
);
fixed!(
    SAME_TOO,
    r"^(?:现在|后来|其实|自己|没[两几]天|去年|今年)*(?:也|同样|跟着|跟|和|就|只有|都)+(?:也|就|都|只有)*(?:有|是|得了|得过|过敏|一样|在吃|吃|这样|患有?|查出来了?)(?:的|了|过|啊|呢)*$|^(?:倒是|倒|可是|却|还是|还|现在还|至今还|一直)+(?:得过|有过|有|在吃|吃着|在用|用着|在打|做过|打过|查过)(?:的|了|呢|啊)*$|^(?:and|but)?\s*(?:so)\s+(?:do|does|am|is|are|have|has|did)$|^(?:and)?\s*(?:(?:do|does|am|is|have|has|had|did)(?: it| one)?|has it|have it)?\s*(?:too|as well)$|^(?:only|just)$|^but\s+(?:do|does|did|am|is|are|have|has)(?:\s+(?:in|since|last|when|at|as|once)\b.*)?$|^(?:and\s+|but\s+)?still (?:on it|taking it|take it|use it|using it)$|^(?:exactly |just )?same as$"
);

// "But I'm not": the verb goes with the person.
fixed!(
    IS_NOT,
    r"^(?:(?:and|but|though|thankfully|luckily|fortunately|while|whereas)\s+)*(?:i'm|i am|(?:my|our)\s+(?:[a-z-]+\s+){0,2}[a-z-]+ (?:is|are))\s+(?:definitely |certainly |luckily )?not(?: though| luckily| at all| myself)?$"
);
fixed!(
    NOT_IT,
    r"^(?:(?:and|but|so)\s+)*(?:don't|do not|doesn't|does not|haven't|hasn't|never)\s+(?:have|had|got|take|need)\s+(?:it|that|one|any(?: of (?:it|them|that))?)$"
);

/// A clause without a person that denies what was said just before of whom it speaks: "and don't have it".
pub(crate) fn denies_it(clause: &str) -> bool {
    let clause = clause.trim().trim_matches(|c: char| !c.is_alphanumeric());
    NOT_IT.is_match(clause)
}

/// A clause that says of a person what was said just before, or denies it, and names nothing itself:
/// 我没有, 我弟也有, "I don't", "so does my aunt". Given are the person and whether it is denied.
pub(crate) fn says_the_same(clause: &str) -> Option<(Vec<Subject>, Polarity)> {
    let clause = clause.trim().trim_matches(|c: char| !c.is_alphanumeric());
    let persons = persons(clause);
    let person = persons.iter().find(|p| !p.who.is_empty())?;
    if IS_NOT.is_match(clause) {
        return Some((person.who.clone(), Polarity::Negative));
    }
    // 不是我 only says who it is not.
    if clause[..person.start].contains('不') {
        return None;
    }
    let mut rest = clause.to_owned();
    for one in persons.iter().rev() {
        rest.replace_range(one.start..one.end, " ");
    }
    let is_latin = clause.is_ascii();
    let rest = if is_latin {
        rest.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        rest.split_whitespace().collect()
    };
    let polarity = if SAME_NOT.is_match(&rest) {
        Polarity::Negative
    } else if SAME_TOO.is_match(&rest) {
        Polarity::Positive
    } else {
        return None;
    };
    Some((person.who.clone(), polarity))
}

fixed!(
    TOPIC_FIRST,
    r"^(?P<topic>[^我他她它你,;:]{2,14}?)(?P<who>我)(?:自己|本人)?(?:是|倒是|可是|可|倒|也|都|真|从来|一直|到现在)*(?P<not>没有过?|没得过?|没做过|没查过|没患过|不过敏|从没做过)(?:的|了|呢|啊|哦)*$"
);

/// The clause in its plain order where the thing stands first: 高血压我没有 → 我没有高血压.
pub(crate) fn in_plain_order(clause: &str) -> Option<String> {
    let hit = TOPIC_FIRST.captures(clause.trim())?;
    let (topic, who, not) = (&hit["topic"], &hit["who"], &hit["not"]);
    // 医生说我没有, 其实我不过敏: what stands first is no thing.
    let is_thing = mentions(topic)
        .iter()
        .any(|one| one.end == topic.len() && topic[..one.start].chars().count() <= 2);
    if !is_thing {
        return None;
    }
    Some(match not {
        "不过敏" => format!("{who}对{topic}不过敏"),
        not => format!("{who}{not}{topic}"),
    })
}

/// Whether a sentence says "not me".
pub(crate) fn denies_self(sentence: &str) -> bool {
    NOT_SELF.is_match(sentence)
}

/// What follows from "not me" and "my father" beside what the sentence itself states.
///
/// `stated` are the facts of this sentence with their subjects; `named` the person of a clause that
/// names only a person.
pub(crate) fn resolve(
    sentence: &str,
    stated: &[(Vec<Subject>, Found)],
    named: Option<&[Subject]>,
    known: &Known,
) -> Vec<(Vec<Subject>, Found)> {
    let denies = denies_self(sentence);
    let own = [Subject::Self_];
    let own_denied = stated
        .iter()
        .find(|(who, found)| who.as_slice() == own && found.polarity == Polarity::Negative);
    let mut moved: Vec<(Vec<Subject>, Found)> = Vec::new();
    if let (Some(named), Some((_, denied))) = (named, own_denied) {
        // 我没有高血压，是我父亲有
        let mut found = denied.clone();
        found.polarity = Polarity::Positive;
        found.intent = Intent::Assert;
        moved.push((named.to_vec(), found));
        return moved;
    }
    if !denies {
        return moved;
    }
    let value = match (named, known.allergies.as_slice()) {
        // Said in this sentence of the relative: 我女儿对头孢过敏，不是我
        _ if !stated.is_empty() => stated
            .iter()
            .find(|(_, found)| found.kind == Kind::Allergy && found.polarity == Polarity::Positive)
            .and_then(|(_, found)| found.value.clone()),
        (Some(_), allergies) => only_value(allergies),
        (None, _) => None,
    };
    let Some(value) = value else { return moved };
    let allergy = |polarity, intent| {
        Found::new(Kind::Allergy, "allergy", value.clone(), 0)
            .polarity(polarity)
            .intent(intent)
            .entity(EntityKind::Allergen, &value)
    };
    let was_own = known.allergies.iter().any(|(who, v, polarity)| {
        who.contains(&Subject::Self_) && *v == value && *polarity == Polarity::Positive
    });
    if was_own {
        moved.push((own.to_vec(), allergy(Polarity::Negative, Intent::Correct)));
    }
    if let Some(named) = named.filter(|_| stated.is_empty()) {
        moved.push((named.to_vec(), allergy(Polarity::Positive, Intent::Assert)));
    }
    moved
}

/// The one allergy that the conversation has named; `None` when there are several.
fn only_value(allergies: &[(Vec<Subject>, String, Polarity)]) -> Option<String> {
    let mut values: Vec<&String> = allergies
        .iter()
        .filter(|(_, value, polarity)| {
            *polarity == Polarity::Positive && !matches!(value.as_str(), "any" | "drug" | "food")
        })
        .map(|(_, value, _)| value)
        .collect();
    values.sort_unstable();
    values.dedup();
    match values.as_slice() {
        [value] => Some((*value).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_that_names_only_a_person_is_told() {
        for (clause, who) in [
            ("是我爸", "father"),
            ("it's my dad", "father"),
            ("my mother does", "mother"),
            ("是我父亲有", "father"),
        ] {
            let named = names_only(clause).unwrap_or_default();
            assert_eq!(
                named.first().map(ToString::to_string).as_deref(),
                Some(who),
                "{clause}"
            );
        }
        assert_eq!(names_only("我爸对青霉素过敏"), None);
        let denied = |clause: &str| {
            let who = denies_whom(clause).unwrap_or_default();
            who.iter().map(ToString::to_string).collect::<String>()
        };
        assert_eq!(denied("有痛风的不是我"), "self");
        assert_eq!(denied("the migraine wasn't my sister"), "other(sister)");
        assert_eq!(denied("我不是我爸"), "");
        assert_eq!(denied("我不吃药"), "");
    }

    #[test]
    fn an_echo_says_the_same_of_somebody_else() {
        let check = |clause: &str, expected: &str| {
            let told = says_the_same(clause).map_or(String::new(), |(who, polarity)| {
                let who: Vec<String> = who.iter().map(ToString::to_string).collect();
                format!("{} {polarity}", who.join("+"))
            });
            assert_eq!(told, expected, "{clause}");
        };
        check("我没有", "self -");
        check("我自己倒没得过", "self -");
        check("我姑姑也有", "other(aunt) +");
        check("只有我有", "self +");
        check("i don't have it", "self -");
        check("but my husband doesn't", "spouse -");
        check("so do i", "self +");
        check("my uncle does too", "other(uncle) +");
        check("我没有时间", "");
        check("不是我", "");
        check("我也去了", "");
        check("i don't know", "");
        check("i do", "");
        check("but i'm not", "self -");
        check("but i did in 1998", "self +");
        check("我倒是得过", "self +");
        check("none of my children are", "child -");
        // One person whose words take in another's.
        check("we met them from my dad's side of the family", "");
    }

    #[test]
    fn a_thing_that_stands_first_is_put_in_its_place() {
        let check = |clause: &str, expected: Option<&str>| {
            assert_eq!(in_plain_order(clause).as_deref(), expected, "{clause}");
        };
        check("痛风我是没有的", Some("我没有痛风"));
        check("花生我不过敏", Some("我对花生不过敏"));
        check("我没有痛风", None);
        check("医生说我没有", None);
        check("其实我不过敏", None);
        assert_eq!(names_only("i love my dad"), None);
    }
}
