//! Diseases and complaints: had, not had, over.

use std::ops::Range;

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity};
use anamnesis_domain::owner::Subject;

use crate::lexicon::{Class, lookup, mentions};
use crate::pattern::fixed;
use crate::scene::{Found, Scene, changed_if, items};

// After these anything is a condition's name.
fixed!(
    STRONG,
    r"(?:新增诊断|临床诊断|初步诊断|出院诊断|诊断(?:结果)?)(?:[:\s]|为|是|了|出|成|得了|患有|有)+|确诊(?:[:\s]|为|是|了|得了|患有|有)*|(?:患有|患了|罹患|得的是|患上了?)|(?:检查出|检出|查出)(?:来)?(?:我)?(?:有|得了|患有|了|是)*|发现(?:我)?(?:有|得了|患有|了)+|(?:医生|大夫|医院|专家|主任)(?:说|告诉我?|讲)(?:我|是)*(?:有|得了|患有|是)|既往(?:史|有|病史)[:有]?|\b(?:diagnosed (?:me )?(?:with|as having)|diagnosis(?: is| of|:)|(?:was|been|were) told (?:that )?(?:i|he|she) (?:have|had|has)|(?:doctor|gp|specialist) (?:says|said|told me) (?:that )?i have|new problem(?: on the list)?:?|problem list:?|active problems?:?|suffer(?:s|ing|ed)? from|living with|tested positive for|past medical history(?: of|:)?|pmh:?|was found to have|came down with|known case of|k/c/o)\s*"
);
// After these only a known name is one.
fixed!(
    WEAK,
    r"有|得过|得了|患过|是|犯了|还有|合并|伴有|曾患|\b(?:have|has|had|'ve got|'ve|got|gets?|with|history of|hx of|am|is|being|develop(?:ed)?|battling|and|or)\b"
);
// Right before a name these tell that it is had.
fixed!(
    NEAR,
    r"(?:说(?:我|他|她)?(?:这|那)?是|长了|犯了?|(?:出|发|闹|害)过|生了|(?:死|走|倒)于|因)(?:个|一个|一次|的)?\s*$|\b(?:it's|it is|it was|he's|she's|was|were|found|finds|saw|showed|shows|showing|revealed|detected|came back as|turned out to be|turns out to be|calls? it|called it|diagnosed|down with|in with|in (?:the )?hospital with|the er with|covered in|born with|caught|catch|beat|survived|fought|fighting|died (?:of|from)|passed away (?:of|from)|lost (?:\w+ ){1,3}to|landed (?:\w+ ){0,5}with|wrestling with|struggl\w+ with|recovering from|carrying|carries|carrier of|what i(?:'ve| have)(?: got)? is|all (?:he|she) has is)\s*(?:(?:a|an|the|some|my|his|her|only|just|really|actually|a bit of|a touch of|a case of|severe|mild|moderate|bad|early|late|terrible|awful|nasty|recurrent|chronic|acute|full-blown|properly|\w+ly)\s+)*$"
);
// Had by whom it belongs to: "my ulcer", 我的偏头痛, "Granny's gout".
fixed!(
    OWNED,
    r"(?:我|他|她|咱|俺)(?:自己|本人)?(?:的|这个?|那个?)+\s*$|\b(?:my|his|her|our|their|[a-z]+'s|own|these|mine's (?:just|only))\s+(?:(?:own|old|bad|chronic|poor|severe|mild|recurrent|stupid|awful|terrible)\s+)*$"
);
// What stands before a name that is a whole statement: when, since when, how it is.
fixed!(
    OPENS,
    r"^(?:自己|本人|就是|只是|只有|只|就|还|又|也|都|这个?|那个?|一点|有点|点|轻度|中度|重度|严重|反复|老是|一直|从小|小时候|年轻时|后来|结果|说是|的|了|,|、|\s)*$"
);
// "a polyp in me", "glaucoma in her": whose it is stands behind.
fixed!(
    IN_WHOM,
    r"^\s+(?:was |were )?(?:found |seen |discovered )?in\s+(?P<who>me|(?:my|our)\s+[a-z-]+(?: [a-z-]+)?)\b"
);
fixed!(
    OVER_AFTER,
    r"^(?:病|症)?(?:已经?|被|给|都|完全|基本|也|现在|终于|就)*(?:痊愈|治愈|治好|康复|好了|消失|没有了|缓解了|恢复了|排除)|^\s*(?:has been|have been|had been|was|were|is|are) (?:now |finally |completely )?(?:ruled out|excluded)\b|^\s*(?:has|have|had|is|was|are)?\s*(?:now |finally |completely |fully )*(?:resolved|cleared(?: up)?|gone(?: away)?|over|cured|healed|in remission)\b|^\s*(?:went away|is over)"
);
fixed!(
    OVER_SLOT,
    r"^(?P<zh>[^,;:。]{2,30}?)(?:已经?|都|完全|基本|也|现在|终于|就)*(?:痊愈|治愈|治好了|康复|好了|消失了)|^(?:and |but |so |now |also )*(?:the |my |his |her |that )?(?P<en>[a-z][^,;:]{2,60}?)\s+(?:(?:has|have|had) (?:now |finally |completely |fully )?(?:resolved|cleared(?: up)?|gone(?: away)?|healed)|(?:is|was) (?:now |finally |completely )?(?:over|gone|cured|resolved|in remission)|went away)\b"
);
fixed!(
    OVER_BEFORE,
    r"(?:治好|治愈)了?(?:我的)?$|\b(?:no longer have|no longer has|recovered from|cured of|got over|get rid of|got rid of|beat|free of)\s*(?:my |the |any )?$"
);
fixed!(
    NOT_CONDITION_AFTER,
    r"^(?:药|科|医院|门诊|专家|饮食|食谱|知识|协会|风险|筛查|患者|病人|疫苗|专科|的药|用药|手术|检查|的风险|怎么)|^\s*(?:medications?|medicines?|meds|clinic|specialist|risk|doctor|diet|screening|test|vaccine|patients?|pills?|drugs?|association|education|research|awareness|shot|surgery|operation)\b"
);
fixed!(
    PURPOSE,
    r"(?:用于|用来治|治疗|治|预防|防止|针对|管理)[^,;]{0,12}$|\b(?:for|to treat|treating|to prevent|preventing|because of my|against)\s+(?:my |the |her |his |a )?(?:\w+\s)?$"
);
// To be looked for is not to be had.
fixed!(
    LOOKED_FOR,
    r"(?:查|筛查|检查|化验|问|咨询|了解|学习|研究|避免|防止|防)(?:一下|下|一查|查看)?(?:有没有|是不是|是否)?\s*$"
);
fixed!(HISTORY_AFTER, r"^(?:病)?史");
fixed!(
    PAST_ONLY,
    r"得过|患过|曾经?(?:有|得|患)|以前(?:有|得)|小时候|年轻时|做过|\b(?:had|used to have|as a (?:child|kid|teenager)|in (?:my )?childhood|history of|previously had)\b"
);
fixed!(
    HAVE_HAD,
    r"\b(?:have|has|'ve) (?:also |always |now )?had\b|\bsince\b"
);
fixed!(
    FAMILY,
    r"家族(?:史|中|里)?|遗传史|\bf(?:am)?\.?hx?\s*:|\bfamily (?:history|hx)\b|\b(?:runs )?in (?:my|the|our) family\b|\bgenerations of\b|\bgoes back generations\b|祖传|祖上|家里(?:祖上|长辈|几代)"
);
fixed!(
    LASTING_COMPLAINT,
    r"慢性|长期|经常|一直|总是|反复|老是|多年|年了|个月了|常年|\b(?:chronic|often|frequently|always|recurrent|constantly|for years|for months|every (?:day|week|month))\b"
);
fixed!(
    OPEN_END,
    r"(?:了|[\d一二两三四五六七八九十半]+(?:多)?(?:年|个月|天|周)|的|,|。|\.|;|并|需要|建议|要|开始|已|让|,|在医院).*$|\s(?:and (?:i|he|she|they|was|am|is|have|take|now|the)|but|since|because|when|which|so|in (?:the|my|19|20)\S*|at|from|last|this|by|two|three|yesterday|today|years? ago|a (?:year|month|week|few|couple|while|long)|about|after|for|that|who|as|on)\b.*$"
);
// A mood or complaint of these days.
fixed!(
    FEELS,
    r"(?:感到|觉得|感觉|有些|有点|比较|很|变得|特别)(?:有些|有点|很|非常|特别|十分|有|些)*$|\b(?:feel|feels|feeling|felt)\b[^,;]{0,24}$"
);
fixed!(
    LATELY,
    r"最近|这几天|这两天|今天|昨天|近来|\b(?:recently|lately|these days|today|yesterday|this week)\b"
);
fixed!(IS_A, r"(?:是|为)(?:一名|一个|个|名|位)?$");
fixed!(
    AM,
    r"\b(?:am|is|are|'m|i'm|he's|she's)\s+(?:(?:a|an|not|also|both|actually|now|still)\s+)*(?:type (?:1|2|one|two) )?(?P<what>diabetic|asthmatic|epileptic|obese|anemic|anaemic|hypertensive|prediabetic|depressed|autistic)\b"
);
fixed!(
    SHAPE,
    r"(?:病|症|炎|癌|瘤|综合征|不全|衰竭|结石|溃疡|硬化|梗死|增生|息肉|囊肿|结节|狭窄|障碍|缺乏|中毒|感染|疝)$|(?:itis|osis|emia|aemia|oma|pathy|algia|plegia|trophy|disease|syndrome|disorder|cancer|infection|failure|deficiency|tumou?r|insufficiency|stenosis|fibrosis|ulcer|cyst|polyps?|stones?)$"
);

/// Connectors inside a condition's name that name nothing.
const CONNECTORS: [&str; 22] = [
    "due to",
    "caused by",
    "associated with",
    "of",
    "the",
    "in",
    "a",
    "an",
    "my",
    "and",
    "引起的",
    "所致的",
    "所致",
    "导致的",
    "的",
    "伴",
    "合并",
    "性",
    "并",
    "部",
    "型",
    "with",
];

/// What the clause says about conditions.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut taken: Vec<Range<usize>> = super::medication::drug_ranges(scene);
    for hit in STRONG.find_iter(scene.text) {
        open_slot(scene, hit.start(), hit.end(), &mut taken, &mut found);
    }
    over_slot(scene, &mut taken, &mut found);
    for phrase in phrases(scene) {
        let is_taken = taken
            .iter()
            .any(|t| phrase.range.start < t.end && t.start < phrase.range.end);
        if !is_taken {
            known_phrase(scene, &phrase, &mut found);
        }
    }
    if let Some(hit) = AM.captures(scene.text).filter(|_| found.is_empty()) {
        let what = hit.name("what").expect("the slot is not optional");
        let value = lookup(what.as_str(), &[Class::Condition]).unwrap_or(match what.as_str() {
            "anemic" | "anaemic" => "anemia",
            "hypertensive" => "hypertension",
            "depressed" => "depression",
            "autistic" => "autism",
            other => other,
        });
        let at = hit.get(0).map_or(0, |m| m.start());
        found.push(condition(
            scene,
            value,
            at,
            scene.polarity_before(what.start()),
            scene.intent(),
        ));
    }
    found
}

/// A condition's name in a clause: known words side by side.
struct Phrase {
    range: Range<usize>,
    name: String,
    is_symptom: bool,
}

fn phrases(scene: &Scene<'_>) -> Vec<Phrase> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let known = &scene.mentions;
    for (i, mention) in known.iter().enumerate() {
        let is_part = matches!(
            mention.class,
            Class::Condition | Class::Symptom | Class::Modifier(_)
        );
        if !is_part
            || known
                .iter()
                .take(i)
                .any(|m| m.start == mention.start && matches!(m.class, Class::Condition))
        {
            continue;
        }
        let joins = groups.last().and_then(|g| g.last()).is_some_and(|last| {
            let gap = scene
                .text
                .get(known[*last].end..mention.start)
                .unwrap_or("?")
                .trim();
            gap.is_empty()
                || matches!(
                    gap,
                    "of the"
                        | "of"
                        | "due to"
                        | "of my"
                        | "in my"
                        | "in the"
                        | "性"
                        | "引起的"
                        | "所致"
                )
        });
        match groups.last_mut() {
            Some(group) if joins => group.push(i),
            Some(_) | None => groups.push(vec![i]),
        }
    }
    groups
        .into_iter()
        .filter_map(|group| {
            let names_one = group
                .iter()
                .any(|i| matches!(known[*i].class, Class::Condition | Class::Symptom));
            let (first, last) = (known[*group.first()?], known[*group.last()?]);
            let range = first.start..last.end;
            let name = compose(&scene.text[range.clone()])?;
            let is_symptom = group.iter().all(|i| known[*i].class != Class::Condition);
            names_one.then_some(Phrase {
                range,
                name,
                is_symptom,
            })
        })
        .collect()
}

/// The canonical name of a phrase that known words cover wholly: `急性细菌性鼻窦炎` and "acute bacterial
/// sinusitis" are the same.
fn compose(phrase: &str) -> Option<String> {
    const WHOLE: [Class; 3] = [Class::Condition, Class::Symptom, Class::Procedure];
    if let Some(name) = lookup(phrase, &WHOLE) {
        return Some(name.to_owned());
    }
    let parts = mentions(phrase);
    let (mut modifiers, mut names): (Vec<(u8, &'static str)>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut rest = String::new();
    let mut end = 0;
    for part in &parts {
        if part.start < end {
            continue;
        }
        match part.class {
            Class::Modifier(rank) => modifiers.push((rank, part.name)),
            Class::Condition | Class::Symptom => names.push(part.name),
            Class::Drug
            | Class::Allergen
            | Class::Test
            | Class::Procedure
            | Class::Food
            | Class::Occupation => continue,
        }
        rest.push_str(&phrase[end..part.start]);
        rest.push(' ');
        end = part.end;
    }
    rest.push_str(&phrase[end..]);
    let leftover = leftover(&rest, &mut modifiers);
    if !leftover.is_empty() || names.is_empty() {
        return None;
    }
    modifiers.sort_unstable();
    modifiers.dedup();
    names.sort_unstable();
    names.dedup();
    let words: Vec<&str> = modifiers.into_iter().map(|(_, name)| name).collect();
    Some(
        format!("{} {}", words.join(" "), names.join(" with "))
            .trim()
            .to_owned(),
    )
}

fn leftover(rest: &str, modifiers: &mut Vec<(u8, &'static str)>) -> String {
    let mut words: Vec<&str> = rest
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .collect();
    words.retain(|word| !CONNECTORS.contains(word));
    // 膝 and 左 are too short to be looked for, but not to be known.
    words.retain(|word| match crate::lexicon::modifier(word) {
        Some(known) => {
            modifiers.push(known);
            false
        }
        None => true,
    });
    let joined = words.join(" ");
    joined
        .strip_prefix("due to")
        .unwrap_or(&joined)
        .trim()
        .replace("due to", "")
}

fn open_slot(
    scene: &Scene<'_>,
    at: usize,
    from: usize,
    taken: &mut Vec<Range<usize>>,
    found: &mut Vec<Found>,
) {
    let text = scene.text;
    let slot = &text[from..];
    let slot = slot.split([',', ';', '(']).next().unwrap_or(slot);
    let slot = OPEN_END.replace(slot, "");
    let slot = slot.trim().trim_start_matches(['有', '是']).trim();
    if slot.is_empty() || slot.chars().count() > 60 {
        return;
    }
    let end = from + text[from..].find(slot).unwrap_or(0) + slot.len();
    let polarity = scene.polarity_before(at);
    let names: Vec<String> = match open_name(slot) {
        Some(name) if compose(slot).is_some() => vec![name],
        whole => {
            let parts: Vec<String> = items(slot).into_iter().filter_map(open_name).collect();
            let all_known = parts
                .iter()
                .all(|part| compose(part).is_some() || SHAPE.is_match(part));
            if parts.len() > 1 && all_known {
                parts
            } else {
                whole.into_iter().collect()
            }
        }
    };
    taken.push(at..end);
    for name in names {
        let looks_right = compose(&name).is_some()
            || lookup(&name, &[Class::Condition]).is_some()
            || SHAPE.is_match(&name);
        let ended = OVER_AFTER.is_match(text[end.min(text.len())..].trim_start());
        let polarity = if ended { Polarity::Negative } else { polarity };
        let mut one = condition(scene, &name, at, polarity, scene.intent());
        if !looks_right && !slot_is_sure(&text[at..from]) {
            one.confidence_max = 800;
        }
        found.push(one);
    }
}

/// "The … is over", "…已痊愈": named in whole, as it was when it began.
fn over_slot(scene: &Scene<'_>, taken: &mut Vec<Range<usize>>, found: &mut Vec<Found>) {
    let Some(hit) = OVER_SLOT.captures(scene.text) else {
        return;
    };
    let Some(obj) = hit.name("zh").or_else(|| hit.name("en")) else {
        return;
    };
    let from = scene
        .persons
        .iter()
        .filter(|p| p.end <= obj.end())
        .map(|p| p.end)
        .max()
        .unwrap_or(0)
        .max(obj.start());
    let slot = scene.text[from..obj.end()]
        .trim_start_matches("'s")
        .trim_start_matches(['的', ' ']);
    let names_one = scene.mentions.iter().any(|m| {
        matches!(m.class, Class::Condition | Class::Symptom)
            && m.start >= from
            && m.end <= obj.end()
    });
    let is_taken = taken.iter().any(|t| from < t.end && t.start < obj.end());
    if let Some(name) =
        open_name(slot).filter(|_| names_one && !is_taken && !scene.negated_before(obj.end()))
    {
        let intent = changed_if(scene.intent(), true);
        taken.push(from..obj.end());
        found.push(condition(scene, &name, from, Polarity::Negative, intent));
    }
}

fn slot_is_sure(intro: &str) -> bool {
    intro.contains("诊断")
        || intro.contains("diagnos")
        || intro.contains("problem")
        || intro.contains("确诊")
        || intro.contains("患")
}

fn open_name(slot: &str) -> Option<String> {
    let slot = slot.trim().trim_matches(|c: char| !c.is_alphanumeric());
    if let Some(rest) = slot
        .strip_prefix("history of ")
        .or_else(|| slot.strip_suffix('史').filter(|s| !s.ends_with('病')))
    {
        let rest = rest.strip_prefix("a ").unwrap_or(rest);
        return Some(format!(
            "history of {}",
            compose(rest).or_else(|| crate::scene::open_name(rest))?
        ));
    }
    if let Some(name) = compose(slot) {
        return Some(name);
    }
    let count = slot.split_whitespace().count();
    let is_name = (1..=8).contains(&count)
        && slot.chars().count() <= 60
        && slot.chars().any(char::is_alphabetic);
    is_name.then(|| crate::lexicon::strip_leading(slot).to_owned())
}

fn known_phrase(scene: &Scene<'_>, phrase: &Phrase, found: &mut Vec<Found>) {
    let text = scene.text;
    let (before, after) = (&text[..phrase.range.start], &text[phrase.range.end..]);
    // 我是糖尿病患者 says it, 糖尿病患者的饮食 does not.
    let is_patient =
        (after.starts_with("患者") || after.starts_with("病人")) && IS_A.is_match(before);
    let is_owned = OWNED.is_match(before);
    if (NOT_CONDITION_AFTER.is_match(after) && !is_patient)
        || (PURPOSE.is_match(before) && !is_owned)
        || LOOKED_FOR.is_match(before)
    {
        return;
    }
    let over = OVER_AFTER.is_match(after) || OVER_BEFORE.is_match(before);
    let cue = WEAK.find_iter(before).last();
    let person_right_before = scene.persons.iter().any(|p| {
        p.end <= phrase.range.start && text[p.end..phrase.range.start].chars().count() <= 4
    });
    let stands_alone = before.trim().is_empty()
        || before.trim() == "no"
        || person_right_before
        || HISTORY_AFTER.is_match(after)
        || FAMILY.is_match(before)
        || is_owned
        || (scene.is_chinese() && opens(scene, before))
        || before.trim_end().ends_with(['、', ':', '和', '及'])
        || [
            "denies",
            "denied",
            "否认",
            "没",
            "无",
            "没有",
            "排除",
            "排除了",
            "ruled out",
            "rules out",
        ]
        .iter()
        .any(|w| before.trim_end().ends_with(w));
    let near = NEAR.find(before);
    let has_cue =
        near.is_some() || cue.is_some_and(|cue| before[cue.end()..].chars().count() <= 40);
    if !(over || has_cue || stands_alone) {
        return;
    }
    let negated = scene.negated_before(phrase.range.start);
    // Whose it is may stand right before it: "her dad's gout".
    let anchor = match &near {
        _ if is_owned => phrase.range.start,
        Some(near) => near.start(),
        None => cue.map_or(phrase.range.start, |cue| cue.start()),
    };
    // "His gout and my asthma": whose it is stands between the cue and the thing.
    let is_named_later = scene
        .persons
        .iter()
        .any(|person| anchor < person.start && person.end <= phrase.range.start);
    let anchor = if is_named_later && !scene.is_chinese() {
        phrase.range.start
    } else {
        anchor
    };
    let anchor = if over { phrase.range.start } else { anchor };
    let (polarity, intent) = if over && !before.contains("不会") {
        (Polarity::Negative, changed_if(scene.intent(), true))
    } else if negated {
        (Polarity::Negative, scene.intent())
    } else {
        (Polarity::Positive, scene.intent())
    };
    // 高血压没有了 was handled as over; 没有再 and 不再有 too.
    let is_past = polarity == Polarity::Positive
        && PAST_ONLY.is_match(text)
        && !HAVE_HAD.is_match(text)
        && !HISTORY_AFTER.is_match(after);
    let name = if is_past {
        format!("history of {}", phrase.name)
    } else {
        phrase.name.clone()
    };
    let mut one = condition(scene, &name, anchor, polarity, intent);
    if is_past {
        one.entities = Vec::new();
        one = one.entity(EntityKind::Disease, &phrase.name);
    }
    if FAMILY.is_match(text) {
        let members = family_members(scene, phrase.range.clone());
        one.subjects = Some(if members.is_empty() {
            vec![Subject::Other("family".to_owned())]
        } else {
            members
        });
    }
    if let Some(who) = IN_WHOM
        .captures(after)
        .and_then(|hit| whom_it_is_in(&hit["who"]))
    {
        one.subjects = Some(who);
    }
    let is_complaint = phrase.is_symptom || FEELS.is_match(before);
    let lasts = LASTING_COMPLAINT.is_match(text) && !LATELY.is_match(text);
    if is_complaint && !lasts && (polarity == Polarity::Positive || phrase.is_symptom) {
        // Today's headache is no long-term memory.
        one.stability = -400;
    }
    if found.iter().all(|f| f.value != one.value) {
        found.push(one);
    }
}

/// Whether nothing but persons, times and degrees stands before a name: 去年房颤.
fn opens(scene: &Scene<'_>, before: &str) -> bool {
    let mut rest = before.to_owned();
    let times = scene.moments(crate::dates::Direction::Past);
    let mut cut: Vec<Range<usize>> = times.iter().map(|m| m.start..m.end).collect();
    cut.extend(scene.persons.iter().map(|p| p.start..p.end));
    for range in cut.into_iter().filter(|range| range.end <= before.len()) {
        rest.replace_range(range.clone(), &",".repeat(range.len()));
    }
    OPENS.is_match(&rest)
}

/// The person of "in me" and "in our baby".
fn whom_it_is_in(words: &str) -> Option<Vec<Subject>> {
    let persons = crate::subject::persons(words);
    let first = persons
        .first()
        .filter(|p| p.start == 0 && !p.who.is_empty())?;
    Some(first.who.clone())
}

fixed!(
    MEMBER_AFTER,
    r"^\s*(?:\(|-|:|,|\bin (?:my |his |her |the )?)\s*(?P<who>[^();]{1,40})"
);

/// Whom a line of family history names: `breast cancer (mother)`, `mother: breast cancer`.
fn family_members(scene: &Scene<'_>, phrase: Range<usize>) -> Vec<Subject> {
    let named = |text: &str| -> Vec<Subject> {
        crate::subject::persons(text)
            .into_iter()
            .filter(|p| !p.is_self)
            .flat_map(|p| p.who)
            .collect()
    };
    let after = MEMBER_AFTER.captures(&scene.text[phrase.end..]);
    let members: Vec<Subject> = after
        .iter()
        .flat_map(|hit| items(hit.name("who").map_or("", |m| m.as_str())))
        .flat_map(|item| {
            let item = item.trim_start_matches("my ").trim();
            let is_ascii = item.is_ascii();
            named(&if is_ascii {
                format!("my {item}")
            } else {
                item.to_owned()
            })
        })
        .collect();
    if !members.is_empty() {
        return members;
    }
    let before = FAMILY.replace_all(&scene.text[..phrase.start], "");
    let last = before.rsplit(',').next().unwrap_or("").trim();
    let last = last.trim_matches(|c: char| !c.is_alphanumeric());
    if last.is_ascii() && !last.is_empty() && !last.starts_with("my ") {
        named(&format!("my {last}"))
    } else {
        named(last)
    }
}

fn condition(
    scene: &Scene<'_>,
    name: &str,
    anchor: usize,
    polarity: Polarity,
    intent: Intent,
) -> Found {
    let attribute =
        if name.starts_with("chronic kidney disease stage") || name == "end-stage renal disease" {
            "ckd_stage"
        } else if matches!(name, "prediabetes" | "type 2 diabetes") {
            "glycaemic_status"
        } else {
            "condition"
        };
    let mut found = Found::new(Kind::Condition, attribute, name, anchor)
        .polarity(polarity)
        .intent(intent)
        .entity(EntityKind::Disease, name);
    for mention in scene.of_class(Class::Condition) {
        if mention.name != name && name.contains(mention.name) {
            found = found.entity(EntityKind::Disease, mention.name);
        }
    }
    found
}
