//! What does a speaker take back, or leave out, within one sentence?
//!
//! "5 mg, sorry, 3 mg" says 3 mg; "allergic to penicillin but not to amoxicillin" leaves "allergic" out;
//! a quoted "I" is somebody else.

use anamnesis_domain::input::RejectCode;
use anamnesis_domain::memory::{Entity, EntityKind, Kind, Quantity};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::{Text, normalise};

use crate::explicit::masked;
use crate::lexicon::{Class, lookup, mentions};
use crate::pattern::fixed;
use crate::quantity::amounts;
use crate::reading::{Heard, WHOLE};
use crate::scene::open_name;

/// The end of a sentence that takes back what stands right before it.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    /// The marker and what follows it, in bytes of the folded sentence.
    pub(crate) range: std::ops::Range<usize>,
    /// What was meant.
    meant: String,
    amount: Option<Quantity>,
    persons: Vec<Subject>,
}

fixed!(
    MARKER,
    r"\S\s*(?P<cut>(?:,\s*|\s+-\s+|\.{2,}\s*|…\s*)(?:(?:oh|ah|er|uh|um|哦|啊|呃)[, ]*)?(?:(?:no|不是|不|没有)\s*,|(?:sorry|i'm sorry|no wait|wait|i mean|i meant|or rather|rather|scratch that|correction|make that|my mistake|excuse me|不对|不不|错了|说错了|我说错了|口误|抱歉|对不起|更正)(?:\s*[,:]|\s))\s*(?:(?:no|wait|i mean|i meant|it's|it is|make that|make it|应该是|应该|我是说|我指的是|其实是|是)[, ]*)*(?P<meant>[^,;:]{1,40}?))[.。!\s]*$"
);
fixed!(
    NO_FRAGMENT,
    r"\b(?:i|i'm|i've|he|she|it|we|they|you|my|not|no|don't|is|are|was|have|has|take|takes|can|did|do|problem|thanks|thank|about|for|to)\b|我|他|她|你|不|没|有|过敏|了|吗|在|吃|住"
);

/// The repair that ends a folded sentence, if one does.
pub(crate) fn repair(folded: &str) -> Option<Repair> {
    let hit = MARKER.captures(folded)?;
    let (cut, meant) = (hit.name("cut")?, hit.name("meant")?);
    let persons: Vec<Subject> = crate::subject::persons(meant.as_str())
        .into_iter()
        .filter(|p| p.end - p.start == meant.as_str().trim().len())
        .flat_map(|p| p.who)
        .collect();
    let words = meant.as_str().trim();
    let is_fragment = words.split_whitespace().count() <= 4
        && (!persons.is_empty() || !NO_FRAGMENT.is_match(words));
    if !is_fragment || words.is_empty() {
        return None;
    }
    let amount = amounts(words).into_iter().next();
    // "sorry, losartan 50 mg": a name and an amount.
    let name = match &amount {
        Some(amount) => format!("{} {}", &words[..amount.start], &words[amount.end..]),
        None => words.to_owned(),
    };
    let amount = amount.map(|a| a.quantity);
    Some(Repair {
        range: cut.start()..meant.end(),
        meant: name.trim().to_owned(),
        amount,
        persons,
    })
}

/// Puts what was meant where the last finding has what was said. Where they do not fit together, the
/// finding is not kept: its speaker took it back.
pub(crate) fn apply(repair: &Repair, heard: &mut [(usize, Heard)]) {
    let Some((_, last)) = heard.last() else {
        return;
    };
    let last = last.found.clone();
    for (_, one) in heard.iter_mut().filter(|(_, h)| h.found == last) {
        if !is_repaired(repair, one) {
            one.refused = one.refused.or(Some(RejectCode::Unconfirmed));
        }
        WHOLE.clone_into(&mut one.quote);
    }
}

fn is_repaired(repair: &Repair, one: &mut Heard) -> bool {
    let found = &mut one.found;
    if let [who] = repair.persons.as_slice() {
        one.subject = who.clone();
        one.entities.retain(|e| e.kind != EntityKind::Person);
        if *who != Subject::Self_ {
            one.entities.push(Entity {
                kind: EntityKind::Person,
                name: Text::new(who.to_string()),
            });
        }
        return true;
    }
    if let Some(amount) = &repair.amount {
        let measured = found.kind == Kind::Measurement || found.kind == Kind::Fact;
        if measured {
            return false;
        }
        found.quantity = Some(amount.clone());
        if found.kind != Kind::Medication || repair.meant.is_empty() {
            return found.kind == Kind::Medication;
        }
    }
    let classes: &[Class] = match found.kind {
        Kind::Allergy | Kind::Contraindication | Kind::Preference => {
            &[Class::Allergen, Class::Drug, Class::Food]
        }
        Kind::Medication => &[Class::Drug],
        Kind::Condition => &[Class::Condition],
        Kind::Fact if found.attribute == Some("occupation") => &[Class::Occupation],
        Kind::Fact => &[],
        Kind::Procedure
        | Kind::Measurement
        | Kind::Event
        | Kind::Constraint
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => return false,
    };
    let known = lookup(&repair.meant, classes).map(str::to_owned);
    let is_open = matches!(
        found.attribute,
        Some("allergy" | "address" | "name" | "insurance")
    );
    let open = || match found.attribute {
        Some("allergy") => open_name(&repair.meant),
        Some(_) | None => Some(normalise(&repair.meant)),
    };
    let Some(value) = known.or_else(|| is_open.then(open).flatten()) else {
        return false;
    };
    let old = found.value.replace(value.clone()).unwrap_or_default();
    let rename = |entities: &mut Vec<Entity>| {
        let kinds: Vec<EntityKind> = entities
            .iter()
            .filter(|e| e.name.expose() == old)
            .map(|e| e.kind)
            .collect();
        // A class of the old drug is no class of the new one.
        entities.retain(|e| e.name.expose() != old && e.kind != EntityKind::Drug);
        for kind in kinds {
            let is_drug = lookup(&value, &[Class::Drug]).is_some();
            if kind != EntityKind::Drug || is_drug {
                entities.push(Entity {
                    kind,
                    name: Text::new(value.as_str()),
                });
            }
        }
    };
    rename(&mut found.entities);
    rename(&mut one.entities);
    for class in crate::lexicon::drug_classes(&value) {
        one.entities.push(Entity {
            kind: EntityKind::Drug,
            name: Text::new(class),
        });
    }
    true
}

fixed!(
    QUOTED,
    r#"(?P<who>[^",;.]{0,40}?)\s*(?:(?:said|says|saying|told|tells|replied|asked|wrote|texted|goes|shouted|yelled|cried|whispered|muttered|announced|called|added|explained|insisted|admitted|说|说道|道|讲|喊|嚷|叫|念叨|嘀咕|问|回答|告诉)(?P<to>[^",;.:]{0,24}?)\s*[,:]?|:)\s*(?P<words>"[^"]{1,200}"?)"#
);
fixed!(
    QUOTED_FIRST,
    r#"(?P<words>"[^"]{1,200}")\s*,?\s*(?P<who>[^",;.]{0,30}?)\s*\b?(?:said|says|saying|told|tells|replied|asked|wrote|texted|goes|shouted|yelled|cried|whispered|muttered|announced|called|added|explained|insisted|admitted|说|说道|道|讲|喊|嚷|叫|念叨|嘀咕|问|回答|告诉)"#
);
fixed!(
    OWN,
    r"(?:^|\b)(?:i|我|我刚才?|我之前)\s*$|^\s*我(?:刚才?|之前|就|也|又|直接|只好)?(?:跟|对|和|给|向|同).{1,12}$"
);
// "Your wife has …" is said of somebody whom only the listener can name.
fixed!(
    YOURS,
    r"[你您](?:的|家)?(?:太太|老婆|爱人|先生|丈夫|老公|媳妇|妈|爸|父|母|孩子|儿子|女儿)|\byour (?:wife|husband|partner|son|daughter|mother|mum|mom|father|dad|child|kid|baby)\b"
);
fixed!(FIRST_PERSON, r"我|\b(?:i|i'm|i've|my|me)\b");

/// The folded text with what others said of themselves blanked: `my friend said "I am …"`.
pub(crate) fn without_quotes(folded: &str) -> String {
    if !folded.contains('"') {
        return folded.to_owned();
    }
    let quoted = QUOTED.captures_iter(folded);
    let ranges: Vec<_> = quoted
        .chain(QUOTED_FIRST.captures_iter(folded))
        .filter(|hit| {
            let words = &hit["words"];
            !OWN.is_match(&hit["who"]) && (FIRST_PERSON.is_match(words) || YOURS.is_match(words))
        })
        .filter_map(|hit| hit.name("words").map(|m| m.range()))
        .collect();
    masked(folded, &ranges)
}

fixed!(
    TO_ALONE,
    r"^(?P<lead>(?:(?:and|but|yet|though|although|only|just|also|rather|instead)\s+)*(?:not\s+)?(?:(?:only|just|also|even)\s+)?)to\s+[a-z]"
);
fixed!(
    ZH_TO_ALONE,
    r"^(?:但是?|可是|而是?|只是?|也|还|仅|就|却|倒是?)*(?:不是?|不会)?对[^,;:]{1,16}$"
);

/// The clause with the word that it takes from the one before: "but not to amoxicillin".
pub(crate) fn completed(clause: &str, previous: &str) -> Option<String> {
    if previous.contains("allergic") && !clause.contains("allerg") {
        let hit = TO_ALONE.captures(clause)?;
        let at = hit.name("lead").map_or(0, |m| m.end());
        return Some(format!("{}allergic {}", &clause[..at], &clause[at..]));
    }
    let is_left_out = previous.contains("过敏") && !clause.contains("过敏");
    (is_left_out && ZH_TO_ALONE.is_match(clause)).then(|| format!("{clause}过敏"))
}

fixed!(
    ALLERGIC_TO_IT,
    r"^(?:(?:and|but|so|because)\s+)*(?:to this day\s+)?(?:i'm|i am|he's|she's|he is|she is)?\s*(?P<how>(?:not |badly |very |really |severely |quite )*allergic)(?: to (?:it|them|that|this))?$|^(?P<no>no allerg(?:y|ies))(?: (?:there|to (?:it|them|that)))?(?: at all)?$"
);
fixed!(
    ZH_ALLERGIC_TO_IT,
    r"^(?:我|他|她|俺)?(?P<how>(?:从来|从|一直|就|都|也|会|真的|特别|有点|还)*(?:不|没)?(?:会)?过敏)(?:的|啊|呢)*$"
);

/// The clause with the thing that the clause before it named, if that is one thing: `Kiwi is out, I'm
/// allergic`, 头孢打过好几回，不过敏.
pub(crate) fn allergic_to_it(clause: &str, previous: &str) -> Option<String> {
    const SLOT: [Class; 3] = [Class::Allergen, Class::Drug, Class::Food];
    if previous.contains("过敏") || previous.contains("allerg") {
        return None;
    }
    let clause = clause.trim().trim_matches(|c: char| !c.is_alphanumeric());
    let mut named: Vec<(usize, usize)> = mentions(previous)
        .iter()
        .filter(|m| SLOT.contains(&m.class))
        .map(|m| (m.start, m.end))
        .collect();
    named.dedup();
    let [(start, end)] = named.as_slice() else {
        return None;
    };
    let thing = &previous[*start..*end];
    if let Some(hit) = ALLERGIC_TO_IT.captures(clause) {
        let is_free = hit.name("no").is_some();
        return Some(if is_free {
            format!("i have no allergy to {thing}")
        } else {
            let how = hit.name("how")?;
            format!("{} to {thing}", &clause[..how.end()])
        });
    }
    let hit = ZH_ALLERGIC_TO_IT.captures(clause)?;
    let how = hit.name("how")?;
    let who = &clause[..how.start()];
    Some(format!("{who}对{thing}{}", how.as_str()))
}

/// What somebody else said of themselves, as it is quoted: the words, and who said them.
pub(crate) struct Quoted {
    pub(crate) words: String,
    pub(crate) who: Vec<Subject>,
}

/// The quoted words of relatives and others whom the sentence names: `my mum said "I have gout"`. Those of
/// the speaker and of nobody in particular are left out.
pub(crate) fn quoted(folded: &str) -> Vec<Quoted> {
    if !folded.contains('"') {
        return Vec::new();
    }
    let hits = QUOTED
        .captures_iter(folded)
        .chain(QUOTED_FIRST.captures_iter(folded));
    hits.filter(|hit| !OWN.is_match(&hit["who"]) && FIRST_PERSON.is_match(&hit["words"]))
        .filter_map(|hit| {
            let said_by = crate::subject::persons(&hit["who"]);
            let [person] = said_by.as_slice() else {
                return None;
            };
            let is_somebody = !person.is_self && !person.who.is_empty();
            let words = hit["words"].trim_matches('"').trim().to_owned();
            is_somebody.then(|| Quoted {
                words,
                who: person.who.clone(),
            })
        })
        .collect()
}
