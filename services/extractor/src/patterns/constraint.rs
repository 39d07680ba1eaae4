//! What must or must not be done: rules for the assistant, and what a person may not be given.

use anamnesis_domain::memory::{EntityKind, Kind, Polarity};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::normalise;

use super::drug::drugs;
use crate::dates::{Direction, Grain};
use crate::lexicon::{Class, lookup};
use crate::pattern::fixed;
use crate::scene::{Found, Holds, Scene};

fixed!(
    CONTRAST,
    r"(?:增强|造影)的?\s*(?:ct|核磁(?:共振)?|磁共振|扫描|mri?)|(?:ct|核磁(?:共振)?|磁共振|mri)\s*(?:增强|造影)|\b(?:contrast(?:[- ]enhanced)?|enhanced|gadolinium) (?:ct|mri)\b|\b(?:ct|mri) (?:scans? )?with (?:contrast|gadolinium)\b"
);
fixed!(MAGNETIC, r"核磁|磁共振|mr");
// An examination without contrast that one may or may not have.
fixed!(PLAIN_MRI, r"核磁(?:共振)?|磁共振|\bmri(?: scans?)?\b");
// "an MRI, but not a CT": the examination itself is denied.
fixed!(
    NOT_RIGHT_BEFORE,
    r"(?:\bnot (?:an? |the |have an? )?|不[做打用])\s*$"
);
fixed!(
    MAY,
    r"可以|能够?[做打用]|可[做行]|允许|\b(?:can|may|could|allowed|okay|ok|fine|safe|able|cleared)\b"
);
fixed!(
    MAY_NOT,
    r"不可以?|不能|不得|不宜|不许|不允许|禁止|禁忌|严禁|别做|不要做|做不了|\b(?:can't|cannot|can not|may not|must not|mustn't|should not|shouldn't|not allowed|not supposed|never|not have|avoid|unable|contraindicated|no)\b"
);
fixed!(
    FORBIDDEN,
    r"(?:不能|不可以?|禁止|严禁|禁|不得|不宜|避免|不让我?|不许|忌|别给我|不要给我)(?:再|随便)?(?:吃|用|服用?|使用|打|注射|做|输|接触|碰)(?P<obj>[^,;:。]{1,30})|\b(?:can't|cannot|can not|must not|mustn't|should not|shouldn't|not allowed to|not supposed to|told not to|told me not to|avoid|never give me|don't give me|do not give me|must avoid|should avoid|have to avoid)\s+(?:ever )?(?:take|taking|use|using|have|having|eat|eating|receive|get|be given|any)?\s*(?P<en>[^,;:]{1,40})"
);
fixed!(
    CONTRAINDICATED,
    r"(?P<obj>[^,;:\s]{2,20})(?:禁忌|禁用)|禁用(?P<obj2>[^,;:\s]{2,20})|\b(?P<en>[a-z][a-z -]{2,30}?) (?:is|are) contraindicated\b"
);
// Told to the assistant: how to call, remind, book.
fixed!(
    ZH_RULE,
    r"(?P<not>(?:请|千万|以后|今天|今后|平时|麻烦|拜托|都|也|就|一定|先|临时|暂时)*(?:不要|别|不用|不必|不需要|无需|勿|不许|不准|禁止))(?:再|老|总|一直|随便|每天|在|给|打|发|把|自动|告诉|联系|通知|提醒|安排|预约|约|用|叫|问|推荐|让|跟|对|向|上午|下午|晚上|早上|周末|直接|擅自|私自|替)|(?P<do>请(?:一定|务必|始终|总是|每次)|务必|以后(?:都|请|一定|只)|今后(?:都|请|一定)|一定要|必须|只能|每次都?(?:要|请)|始终|只在|只用|优先|请(?:你|您|您们)?(?:只)?(?:在|于|等|到).{1,20}(?:联系|打电话|打给|通知|提醒|回复|来电|安排|再打|发))"
);
fixed!(
    EN_RULE,
    r"^(?:(?:please|and|but|so|also|just|for today|today|for now|from now on|in (?:the )?future|ok|okay)[, ]+)*(?P<not>(?:don't|do not|never|no need to|stop)\s+(?:ever |auto-?)?(?:call|phone|ring|text|email|contact|message|remind|send|book|schedule|submit|share|tell|ask|use|give|put|disturb|wake|recommend|suggest|assign|address|change|cancel|auto\w*|auto-\w+|show|mention|discuss|include|arrange|let|schedule|order|transfer)\b)|\b(?P<need>(?:don't|do not|doesn't) (?:need|want) (?:you |anyone |the \w+ |anybody |a )?(?:to )?(?:call|phone|text|email|contact|remind|send|book|schedule|share|tell|daily|reminder|reminders|calls?)\w*|\bi(?:'d| would) (?:rather|prefer)(?: you)?(?: to)? (?:not|didn't|don't)\b)|^(?:(?:please|and|but|so|also|just|from now on|in (?:the )?future)[, ]+)*(?P<do>always|make sure|must|be sure to|use only|from now on|only (?:give|take|eat|accept|offer|contact|remind|talk)|(?:call|contact|text|phone|email|remind|message) me (?:only |just |always )?(?:after|before|at|in|on|between|by))\b|\b(?P<only>only (?:call|text|email|contact|book|schedule|use|send)\b)|\bi (?:must|have to|need to) (?P<must>always|only|never)\b"
);
fixed!(
    THRESHOLD,
    r"目标|(?:要|需要?|必须|应该?|得)[^,;]{0,8}控制在|不(?:要|能)超过|\b(?:target|goal|threshold)\b|\b(?:should|must|needs? to) (?:be|stay|remain) (?:below|under|above|between)\b"
);
fixed!(
    PROMPT_ONLY,
    r"^(?:don't|do not) (?:worry|forget|know|think|have|understand|get|feel|like|see|remember|let me forget)"
);
fixed!(
    WHO,
    r"^(?:我|你|您|你们|请|麻烦|帮我|please|and|but|also|just|,|\s)+"
);

fixed!(
    REMIND,
    r"(?:提醒|叫)我(?P<zh>[^,;:。]{2,40})|\bremind me (?:to|about|of|that|when|at|on|in|tomorrow|next|before|every)\b(?P<en>[^;:]{2,60})"
);

pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    contrast(scene, &mut found);
    if found.is_empty() {
        forbidden(scene, &mut found);
    }
    if found.is_empty() {
        rules(scene, &mut found);
    }
    if found.is_empty() {
        reminder(scene, &mut found);
    }
    found
}

/// A reminder asked for; one with a day is over with that day.
fn reminder(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let Some(hit) = REMIND.captures(scene.text) else {
        return;
    };
    let at = hit.get(0).map_or(0, |m| m.start());
    // "My wife had to remind me" asks nobody for anything.
    let is_told = scene
        .persons
        .iter()
        .any(|person| person.start < at && !person.who.is_empty() && !person.is_self);
    if scene.negated_before(at) || is_told {
        return;
    }
    let value = normalise(hit.get(0).map_or("", |m| m.as_str()));
    let mut one = Found::new(Kind::Constraint, "constraint", value, at).intent(scene.intent());
    let day = scene
        .moments(Direction::Future)
        .into_iter()
        .find(|m| matches!(m.grain, Grain::Minute | Grain::Day));
    if let Some(day) = day {
        one.schedule = Some(scene.clock.written(&day));
        one.holds = Holds::Given {
            from: scene.clock.at(),
            to: Some(scene.clock.end_of_day(day.from.date())),
        };
    }
    found.push(one);
}

fn contrast(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let is_said = MAY.is_match(scene.text);
    let with_contrast: Vec<_> = CONTRAST.find_iter(scene.text).collect();
    for hit in &with_contrast {
        // "no contrast CT, contrast MRI is fine": the words beside the examination rule, if there are any.
        let from = scene.text[..hit.start()].rfind(',').map_or(0, |at| at + 1);
        let to = scene.text[hit.end()..]
            .find(',')
            .map_or(scene.text.len(), |at| hit.end() + at);
        let beside = &scene.text[from..to];
        let is_alone = !MAY.is_match(beside) && !MAY_NOT.is_match(beside);
        let words = if is_alone { scene.text } else { beside };
        let is_refused =
            MAY_NOT.is_match(words) || NOT_RIGHT_BEFORE.is_match(&scene.text[..hit.start()]);
        if !is_refused && !is_said {
            continue;
        }
        // Iodine and gadolinium, rays and magnets: what is said of one holds for that one alone.
        if MAGNETIC.is_match(hit.as_str()) {
            found.push(may_have(scene, "contrast mri", is_refused, hit.start()));
            continue;
        }
        let value = if is_refused { "not_allowed" } else { "allowed" };
        let is_new = found
            .iter()
            .all(|f| f.attribute != Some("contrast_ct") || f.value.as_deref() != Some(value));
        if is_new {
            found.push(
                Found::new(Kind::Contraindication, "contrast_ct", value, hit.start())
                    .intent(scene.intent())
                    .entity(EntityKind::Test, "contrast ct"),
            );
        }
    }
    let plain = PLAIN_MRI.find_iter(scene.text).find(|hit| {
        with_contrast
            .iter()
            .all(|other| hit.end() <= other.start() || other.end() <= hit.start())
    });
    if let Some(hit) = plain {
        let before = &scene.text[..hit.start()];
        let is_refused = MAY_NOT.is_match(before) || NOT_RIGHT_BEFORE.is_match(before);
        let after = &scene.text[hit.end()..];
        let is_refused = is_refused || MRI_REFUSED_AFTER.is_match(after);
        let is_allowed = MRI_ALLOWED_BEFORE.is_match(before) || MRI_ALLOWED_AFTER.is_match(after);
        if is_refused || is_allowed {
            found.push(may_have(scene, "mri", is_refused, hit.start()));
        }
    }
}

fixed!(
    MRI_REFUSED_AFTER,
    r"^(?:检查)?(?:[,:]|是|我)*(?:不能|不可以?|不得|不宜|禁止|禁忌|做不了)|^\s*(?:is|are) (?:not (?:safe|allowed|possible)|contraindicated|unsafe)\b"
);
fixed!(
    MRI_ALLOWED_BEFORE,
    r"(?:可以|能够?|允许|可)(?:再|去)?[做打拍行](?:普通|个|一个)*\s*$|\b(?:can|may|allowed to|able to|cleared (?:for|to have)|okay to have|ok to have|safe to have)\s+(?:safely )?(?:have |get |do |undergo )?(?:an? |the |plain )*$"
);
fixed!(
    MRI_ALLOWED_AFTER,
    r"^(?:检查)?(?:我)?(?:是)?(?:可以|能够?|允许)做|^\s*(?:is|are) (?:safe|allowed|ok|okay|fine)\b"
);

/// Not allowed is the contraindication; allowed is its denial.
fn may_have(scene: &Scene<'_>, name: &str, is_refused: bool, at: usize) -> Found {
    let polarity = if is_refused {
        Polarity::Positive
    } else {
        Polarity::Negative
    };
    Found::new(Kind::Contraindication, "contraindication", name, at)
        .polarity(polarity)
        .intent(scene.intent())
        .entity(EntityKind::Test, name)
}

fn forbidden(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let slot = [&*FORBIDDEN, &*CONTRAINDICATED]
        .into_iter()
        .find_map(|regex| {
            let hit = regex.captures(scene.text)?;
            let obj = ["obj", "obj2", "en"]
                .iter()
                .find_map(|name| hit.name(name))?;
            Some((hit.get(0)?.start(), obj.start(), obj.end()))
        });
    let Some((at, from, to)) = slot else { return };
    let obj = &scene.text[from..to];
    let inside: Vec<_> = scene
        .mentions
        .iter()
        .filter(|m| m.start >= from && m.end <= to)
        .copied()
        .collect();
    let mut names: Vec<(String, EntityKind)> = drugs(scene.text, &inside)
        .into_iter()
        .map(|d| (d.name, EntityKind::Drug))
        .collect();
    for mention in &inside {
        let kind = match mention.class {
            Class::Test | Class::Procedure => EntityKind::Test,
            Class::Allergen | Class::Food => EntityKind::Allergen,
            Class::Drug
            | Class::Condition
            | Class::Symptom
            | Class::Occupation
            | Class::Modifier(_) => continue,
        };
        let is_new = names.iter().all(|(name, _)| name != mention.name);
        if is_new
            && !matches!(
                mention.name,
                "drug" | "any" | "food" | "follow-up" | "doctor appointment"
            )
        {
            names.push((mention.name.to_owned(), kind));
        }
    }
    if names.is_empty() && super::drug::looks_like_drug(obj) {
        names.extend(super::drug::open_drug(obj).map(|name| (name, EntityKind::Drug)));
    }
    if names.is_empty() {
        names.extend(
            lookup(obj, &[Class::Food, Class::Allergen])
                .map(|name| (name.to_owned(), EntityKind::Allergen)),
        );
    }
    for (name, kind) in names {
        let one = Found::new(Kind::Contraindication, "contraindication", name.clone(), at)
            .intent(scene.intent())
            .entity(kind, &name);
        found.push(one);
    }
}

/// "我必须走了", "must have been hard", "always maintained": said of oneself or of others, no rule to
/// keep; a habit that somebody must keep is one.
fn is_own_resolve(scene: &Scene<'_>, at: usize, hit: &regex::Captures<'_>) -> bool {
    let text = scene.text;
    let end = hit.get(0).map_or(0, |m| m.end());
    let next = text[end..].split_whitespace().next().unwrap_or("");
    let is_past = next.ends_with("ed") || matches!(next, "have" | "be" | "been" | "was" | "had");
    let is_others =
        text.contains("yourself") || text.contains("your ") || text.contains("must have");
    let has_person = scene.persons.iter().any(|p| p.start <= at || p.start < end);
    let is_habit = text.contains('每')
        || text.contains("只能")
        || text.contains("every")
        || text.contains("always")
        || text.contains("never")
        || text.contains("only");
    (is_past && next != "be") || is_others || (has_person && !is_habit)
}

fn rules(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let text = scene.text;
    if PROMPT_ONLY.is_match(text.trim()) {
        return;
    }
    let is_threshold = THRESHOLD.is_match(text) && text.chars().any(|c| c.is_ascii_digit());
    let hit = [&*ZH_RULE, &*EN_RULE]
        .into_iter()
        .find_map(|regex| regex.captures(text));
    let (at, prohibits, from) = match &hit {
        Some(hit) => {
            let not = hit.name("not").or_else(|| hit.name("need"));
            let at = hit.get(0).map_or(0, |m| m.start());
            // 不要…, "don't …": the value is what is forbidden, the polarity says so.
            let from = hit.name("not").map_or(at, |m| m.end());
            (at, not.is_some(), from)
        }
        None if is_threshold => (0, false, 0),
        None => return,
    };
    let english_verb = hit
        .as_ref()
        .and_then(|h| h.name("not"))
        .filter(|m| m.as_str().is_ascii())
        .map(|m| {
            let words = m.as_str();
            let verb = words.rsplit(' ').next().unwrap_or(words);
            m.end() - verb.len()
        });
    if hit.as_ref().is_some_and(|hit| {
        hit.name("not").is_none() && hit.name("need").is_none() && is_own_resolve(scene, at, hit)
    }) {
        return;
    }
    let value = text[english_verb.unwrap_or(from)..].trim();
    let value = normalise(&WHO.replace(value, ""));
    if value.chars().count() < 2 || value.chars().count() > 120 {
        return;
    }
    let polarity = if prohibits {
        Polarity::Negative
    } else {
        Polarity::Positive
    };
    let mut one = Found::new(Kind::Constraint, "constraint", value, at)
        .polarity(polarity)
        .intent(scene.intent());
    // 不要给我妈打电话: whom the rule names is whom it is done to; it is the speaker's rule.
    let is_told = hit.is_some() && scene.persons.iter().all(|person| person.start >= at);
    if is_told && !scene.persons.is_empty() {
        one.subjects = Some(vec![Subject::Self_]);
    }
    found.push(one);
}
