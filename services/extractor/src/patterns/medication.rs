//! What is taken, how much and how often; what was started, changed or stopped.

use std::ops::Range;

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity, Quantity};
use regex::Regex;

use super::drug::{Drug, drugs, looks_like_drug, open_drug};
use crate::dates::Direction;
use crate::pattern::fixed;
use crate::quantity::Amount;
use crate::scene::{Found, Holds, Scene, changed_if};
use crate::schedule::schedule;

fixed!(
    TAKE,
    r"服用|口服|在吃|在用|在服|在打|吃着|用着|正在[吃用服打]|使用|注射|吸入|吃|服|打|开了|开的|给开|开始用|加了|加用|新加|加上|改用|改吃|换成|换为|换了|换上了?|用上|用的是|用药|处方|喂了|在喝|喝着|喝了|喝|抹了?|含了|含着|含服|备着|常备|给的|拿的|喷|涂|敷|滴|用|\b(?:take|takes|taking|took|on|using|uses?|used|prescribed|prescription for|put me on|put him on|put her on|start|started|starting|began|begin|switch(?:ed)? (?:me )?to|chang(?:ed|ing) to|inject(?:ing|s)?|given|gave me|added|add|adding|receiving|getting|carry|carries|carrying|gets|maintained on|medications?(?: are| is|:)|meds?(?: are| is|:))\b"
);
fixed!(
    STOP,
    r"停了|停掉|停用|停服|停吃|停止(?:服用|使用|吃)?|停药|停|不再(?:使用|服用|吃|用|打|注射|需要)?|不用再[吃用服打]|戒了|撤了|撤掉|断了|\b(?:no longer (?:take|takes|taking|on|use|using|need|prescribed)?|stop|stopped|stopping|quit|discontinue[sd]?|discontinuing|came off|come off|coming off|going off|went off|off of|got off|gave up|used to (?:take|be on|use)|weaned off|took me off|taken off|finished (?:my |the )?(?:course of )?|held)\b"
);
fixed!(
    STOP_AFTER,
    r"^[^,;]{0,16}?(?:已经?|都|就|上周|昨天|今天|早就|刚)?(?:停了|停掉|停用|停服|停药|停止|不再(?:吃|用|服)|不[吃用服打]了|没再[吃用服]|断了)|^\s*(?:\d[\w./ ]{0,12})?(?:tablets?|pills?)?\s*(?:has been|was|were|is|have been|got)?\s*\b(?:stopped|discontinued|withdrawn)\b"
);
fixed!(
    NOT_TAKING,
    r"(?:不|没有?|未)(?:再|怎么|能)?(?:服用|使用|吃|用|服|打|注射)|\b(?:don't|do not|doesn't|does not|not|never|haven't been|am not|'m not|isn't) (?:currently )?(?:take|taking|on|use|using|taken|been on)\b"
);
// What follows a drug that is taken: 我每天吃, "works for me", 没断过.
fixed!(
    TAKE_AFTER,
    r"^(?:片|胶囊|颗粒|喷雾|气雾剂|滴眼液|软膏)?是?(?:[我他她俺咱]\p{Han}{0,4}?)?(?:一直|还|还是|都|也|天天|每天|已经|现在|又|就|常|经常|断断续续|陆陆续续|在|总算|前前后后)*(?:(?:吃|喝|用|服|打|抹|喷|涂|贴|含|滴|备)(?:着|了|的|上)|在(?:吃|喝|用|服|打)|没断过|没停过|常备|备着|压得住|控制(?:着|住|得)|维持着?|顶着|快(?:吃|用)完了|(?:吃|用)完了)|^\s*(?:works? (?:well |fine |best )?for (?:me|him|her|my|his)|helps (?:me|him|her|my|his|with)|keeps? (?:me|him|her|it|my|his|things)|has (?:kept|helped)|kept|sorts (?:it|me|that)|controls|(?:is|are) running (?:out|low)|is (?:mine|his|hers)\b|is the only (?:thing|one))"
);
// A drug that belongs to somebody is theirs to take: "my valsartan", 我的是培哚普利, "hers is …".
fixed!(
    OWN_DRUG,
    r"(?:我|他|她|俺|家)的(?:\p{Han}{0,3}药)?是?$|\b(?:my|his|her|our|own|[a-z]+'s)\s+(?:(?:own|daily|usual|morning|evening|nightly|weekly|last|next|regular)\s+)*(?:(?:dose|doses|tablets?|pills?) of\s+)?$|\b(?:mine|his|hers|(?:my|his|her|[a-z]+'s) (?:pills?|tablets?|medication|medicine|meds|drug)) (?:is|are)\s*$"
);
// Behind a drug these make it no drug that is taken.
fixed!(
    NO_DRUG_AFTER,
    r"^\s*(?:levels?|resistance|allerg\w+|tests?|deficiency|intolerance|overdose|poisoning|side|effects?|prescription was|research|study)\b|^(?:浓度|水平|抵抗|过敏|中毒|不耐受|副作用|缺乏|的副作用|的作用|的说明书)"
);
// "I give my mother her …": the giver is not the taker.
fixed!(
    GIVES_TO,
    r"\b(?:i|we|i've|we've|i have)\s+(?:\w+\s+){0,2}?(?:give|gave|feed|fed|inject|put|rub|dole out|spoon)\s+[^,;]{2,40}$|(?:给|替|帮)[^,;]{1,8}(?:喂|打|抹|涂|滴|上|贴|喷)了?过?[^,;]{0,4}$"
);
// What makes a taking word no report of taking.
fixed!(
    NO_REPORT,
    r"(?:不能|不可以?|不可|不让|禁止|不许|避免|禁|不准|不宜|慎)(?:再)?(?:服用|使用|吃|用|服|打|注射)?$|(?:可以|能|能够|可|想|不想|想要|打算|准备|考虑|建议|推荐|忘了?|忘记|漏|漏了|少|多|拒绝|害怕|讨厌|喜欢|要不要|试过|懒得)(?:再|继续|开始|停)?(?:服用|使用|吃|用|服|打|注射|停用?)?$|\b(?:can|could|can't|cannot|could not|couldn't|should|should not|shouldn't|must not|mustn't|avoid|avoiding|want to|wants to|would like to|like to|hate|hates|forgot to|forget to|missed|allowed to|not supposed to|refuse to|try|tried|thinking about|thinking of|consider|considering|recommends?|recommended|suggests?|suggested|may|might|told not to|afraid to|depend|based|focus|information|advice|opinion|article|effects?|side effects of)(?: me)?(?: to)?(?: not)?(?: be)?(?: \w+)?\s*$"
);
fixed!(
    CHANGE_TO,
    r"(?:改成|改为|改到|调到|调整(?:为|到|成)|调成|调为|加到|加量到|加大到|增加到|增到|增至|减到|减至|减为|减量到|减少到|降到|降至|升到|升至|换成|变成|变为|应该是|应为|是|:)\s*$|\b(?:increased|decreased|reduced|raised|lowered|bumped|changed|changing|went|up|down|adjusted|switched|moved|titrated)(?:\s+(?:up|down|it|my dose|the dose|from .{1,24}))*\s+to\s*$|\bto\s*$|->\s*$"
);
fixed!(
    FROM,
    r"从\s*$|由\s*$|\bfrom\s*$|原来\s*$|不是\s*$|\bnot\s*$|\binstead of\s*$"
);
fixed!(
    DOSE_CHANGE,
    r"改成|改为|改到|调到|调整|调成|调为|加到|加量|加大|增加到|增到|增至|减到|减至|减为|减量|减少到|降到|降至|升到|剂量|一次吃|每次|\b(?:increased|decreased|reduced|raised|lowered|bumped|changed|adjusted|dose|dosage|titrated|went from)\b"
);
fixed!(
    OPEN_ZH,
    r"(?:服用|停用|不再使用|不再服用|开始使用|使用|注射|在吃|在用|开了|开的|改用|加了|加用|吃|用)(?:了|着|过|一种|的|是)*(?P<obj>[^,;:()\d\s。对于和的]{2,18})"
);
fixed!(
    OPEN_EN,
    r"\b(?P<cue>take|takes|taking|took|on|using|started|starting|prescribed|stopped|stop|no longer take|no longer taking|quit|put me on|switched to|discontinued|added)(?: me)?(?: (?:on|taking|using|to take))?\s+(?:my |the |a |an |some |this |that )?(?:(?:new )?(?:drug|medication|medicine|med|tablets?|pills?|capsules?|brand|injection|syrup)\s+(?:called\s+|named\s+|of\s+)?)?(?P<obj>[a-z][a-z0-9-]{3,30}(?: [a-z]{2,12})?)"
);
fixed!(
    DURATION,
    r"(?:[吃用服打]|连续|疗程|共)(?:上|满|够)?\s*(?P<n>\d{1,3}|[一二两三四五六七八九十]{1,3})\s*(?P<unit>天|周|个?星期|个?月)|\bfor (?:the next )?(?P<n2>\d{1,3}|an?|one|two|three|four|five|six|seven|ten) (?P<unit2>day|week|month)s?\b"
);
fixed!(
    TAKEN_FOR,
    r"[吃用服打]了\s*[\d一二两三四五六七八九十半]+\s*个?(?:年|月|周|星期|天)"
);
fixed!(
    SWAP_BEFORE,
    r"(?:从|把|将|由)\s*$|\b(?:switch(?:ed|ing)?|chang(?:ed|ing)|moved|went|replaced?|swapped)(?: me)?(?: over)?(?: from)?(?: my)?\s*$"
);
fixed!(
    SWAP_AFTER,
    r"^[^,;]{0,16}?(?:换成|换为|换到|改成|改为|改用|换了)|^[^,;]{0,16}?\b(?:to|with|for)\b"
);
fixed!(
    SWAP_INTO,
    r"\b(?:switch(?:ed|ing)?|chang(?:ed|ing)|replac(?:ed?|ing)|swapp?(?:ed|ing)?)\b[^,;.]{1,48}\b(?:for|with|to|by)\s+(?:the |a |my )?$"
);
fixed!(SWAP_ONLY, r"(?:换成|换为|改用)\S");
fixed!(
    WAS_TAKING,
    r"\b(?:was|were) (?:also |still |only )?(?:taking|on|using)\b|(?:之前|以前|原来|曾经?)(?:一直)?(?:在)?(?:吃|用|服)"
);
fixed!(
    ONCE_ONLY,
    r"^(?:took|gave|given)\b|^[吃用服打]了|^[吃用服打]过|^服用了|^口服了"
);

/// What the clause says about drugs being taken.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let is_allergy =
        scene.text.contains("过敏") || scene.text.contains("皮试") || scene.text.contains("allerg");
    if is_allergy {
        return Vec::new();
    }
    let mut named = drugs(scene.text, &scene.mentions);
    let mut is_open = false;
    if named.is_empty() {
        named = open_drugs(scene);
        is_open = !named.is_empty();
    }
    if named.is_empty() {
        return elliptic(scene).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut last: Option<Reading> = None;
    for (i, drug) in named.iter().enumerate() {
        let left = if i == 0 { 0 } else { named[i - 1].range.end };
        let right = named
            .get(i + 1)
            .map_or(scene.text.len(), |next| next.range.start);
        // In a list the first item's verb serves the others.
        let reading = read(scene, drug, left, right, is_open).or_else(|| {
            let gap = &scene.text[left..drug.range.start];
            let is_list =
                i > 0 && gap.chars().count() <= 24 && !TAKE.is_match(gap) && !STOP.is_match(gap);
            last.clone().filter(|_| is_list)
        });
        if let Some(reading) = &reading {
            let one = medication(scene, drug, left, right, reading);
            // A brand in brackets behind the name says the same again.
            let repeats = found.iter().any(|f: &Found| {
                f.value == one.value && f.polarity == one.polarity && one.quantity.is_none()
            });
            if !repeats {
                found.push(one);
            }
        }
        last = reading;
    }
    found
}

/// How the clause speaks of one drug.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Reading {
    polarity: Polarity,
    intent: Intent,
    anchor: usize,
    /// Said once in the past, with no word that it goes on.
    once: bool,
}

fn read(
    scene: &Scene<'_>,
    drug: &Drug,
    left: usize,
    right: usize,
    is_open: bool,
) -> Option<Reading> {
    let text = scene.text;
    let before = &text[left..drug.range.start];
    let after = &text[drug.range.end..right];
    let intent = scene.intent();
    let last = |regex: &Regex| {
        regex
            .find_iter(before)
            .last()
            .map(|m| (left + m.start(), left + m.end()))
    };
    let stop = last(&STOP);
    let take = last(&TAKE);
    let stopped = |anchor: usize| Reading {
        polarity: Polarity::Negative,
        intent: if intent == Intent::Correct {
            intent
        } else {
            Intent::Change
        },
        anchor,
        once: false,
    };
    let is_report = |end: usize| !NO_REPORT.is_match(&text[..end]);
    let no_stop = |at: usize| {
        scene.negated_before(at) && !text[at..].starts_with("不") && !text[at..].starts_with("no ")
    };
    if SWAP_INTO.is_match(&text[..drug.range.start])
        && is_report(drug.range.start)
        && !scene.negated_before(drug.range.start)
    {
        return Some(Reading {
            polarity: Polarity::Positive,
            intent: changed_if(intent, true),
            anchor: drug.range.start,
            once: false,
        });
    }
    if STOP_AFTER.is_match(after) {
        return Some(stopped(drug.range.start));
    }
    // "switched from X to Y", 把X换成Y: the first one ends.
    let has_next = right < text.len() || SWAP_ONLY.is_match(after);
    if has_next && SWAP_BEFORE.is_match(before) && SWAP_AFTER.is_match(after) {
        return Some(stopped(drug.range.start));
    }
    // In "stopped taking" the first verb rules; 停用 holds the verb of taking itself.
    let rules = |(at, end): &(usize, usize)| {
        take.is_none_or(|(t, e)| {
            let between = text.get(*end..t);
            t < *at || e <= *end || between.is_none_or(|words| words.trim().is_empty())
        })
    };
    if let Some((at, _)) = stop.filter(rules) {
        // "don't stop taking it" and 不能停 say that it goes on.
        let is_told = no_stop(at) || !is_report(at);
        return (!is_told).then(|| stopped(at));
    }
    if let Some(not) = NOT_TAKING.find_iter(before).last() {
        let anchor = left + not.start();
        if !is_report(left + not.end()) || not.as_str().contains('能') {
            return None;
        }
        let ends = text.contains('了') || scene.modality.changes || not.as_str().contains('再');
        let intent = changed_if(intent, ends);
        return Some(Reading {
            polarity: Polarity::Negative,
            intent,
            anchor,
            once: false,
        });
    }
    if let Some((at, end)) = take {
        if !is_report(at) || !is_report(end) || scene.negated_before(at) {
            return None;
        }
        let verb = &text[at..end];
        let is_change = [
            "加", "开始", "换", "改", "start", "switch", "put", "began", "add", "开",
        ]
        .iter()
        .any(|w| verb.contains(w));
        let intent = changed_if(intent, is_change);
        let once = is_once(scene, at);
        return Some(Reading {
            polarity: Polarity::Positive,
            intent,
            anchor: at,
            once,
        });
    }
    let is_other = NO_DRUG_AFTER.is_match(&text[drug.range.end..]);
    let behind = TAKE_AFTER.find(after);
    let is_given = GIVES_TO.is_match(before)
        && scene
            .persons
            .iter()
            .any(|p| !p.is_self && left <= p.start && p.end <= drug.range.start);
    let is_taken = behind.is_some() || belongs(before) || is_given;
    if is_taken
        && !is_other
        && !is_open
        && is_report(drug.range.start)
        && !scene.negated_before(drug.range.start)
    {
        // 佐匹克隆我吃了半年: whose it is may stand behind the name.
        let verb = behind.map_or(drug.range.start, |hit| drug.range.end + hit.end());
        let is_behind = scene
            .persons
            .iter()
            .any(|p| drug.range.end <= p.start && p.end <= verb);
        let anchor = if is_behind { verb } else { drug.range.start };
        let at = behind.and_then(|hit| hit.as_str().rfind(['吃', '用', '服', '打']));
        return Some(Reading {
            polarity: Polarity::Positive,
            intent,
            anchor,
            once: at.is_some_and(|at| is_once(scene, drug.range.end + at)),
        });
    }
    // "氨氯地平 每天 5 mg", "metformin 500 mg bid": a name with a dose or schedule is a report too.
    let corrected = scene.modality.corrects && scene.amounts.iter().any(is_dose);
    if corrected && is_report(drug.range.start) {
        return Some(Reading {
            polarity: Polarity::Positive,
            intent: Intent::Correct,
            anchor: drug.range.start,
            once: false,
        });
    }
    let has_range = scene
        .amounts
        .iter()
        .any(|a| is_dose(a) && a.start >= left && a.end <= right);
    let has_dose =
        has_range || dose(scene, drug, left, right).is_some() || schedule(after).is_some();
    (has_dose && !is_open && is_report(drug.range.start) && !scene.negated_before(drug.range.start))
        .then_some(Reading {
            polarity: Polarity::Positive,
            intent,
            anchor: drug.range.start,
            once: false,
        })
}

/// Whether somebody is said to have the drug that follows. "It's" and "that's" own nothing.
fn belongs(before: &str) -> bool {
    const NOBODY: [&str; 9] = [
        "it's", "that's", "what's", "here's", "there's", "who's", "let's", "he's", "she's",
    ];
    OWN_DRUG
        .find(before)
        .is_some_and(|hit| !NOBODY.iter().any(|word| hit.as_str().starts_with(word)))
}

/// "吃了一片布洛芬", "took ibuprofen this morning": once, unless something says that it goes on.
fn is_once(scene: &Scene<'_>, at: usize) -> bool {
    use crate::dates::Grain;
    let text = scene.text;
    let goes_on = [
        "年了", "月了", "开始", "起", "since", "started", "一直", "还在",
    ]
    .iter()
    .any(|w| text.contains(w))
        || TAKEN_FOR.is_match(text)
        || schedule(text).is_some();
    if goes_on || !ONCE_ONLY.is_match(&text[at..]) {
        return false;
    }
    let has_day = scene
        .moments(Direction::Past)
        .iter()
        .any(|m| matches!(m.grain, Grain::Day | Grain::Minute) && !m.attributive);
    has_day || !scene.amounts.iter().any(is_dose)
}

fn medication(
    scene: &Scene<'_>,
    drug: &Drug,
    left: usize,
    right: usize,
    reading: &Reading,
) -> Found {
    // Whose it is stands before the drug: "put me on …", "gave my son …".
    let anchor = reading.anchor.max(drug.range.start);
    let mut found = Found::new(Kind::Medication, "medication", drug.name.clone(), anchor)
        .polarity(reading.polarity)
        .intent(reading.intent)
        .entity(EntityKind::Drug, &drug.name);
    if reading.polarity == Polarity::Positive {
        found.quantity = dose(scene, drug, left, right);
        found.schedule = schedule(&scene.text[drug.range.end..right])
            .or_else(|| schedule(&scene.text[left..drug.range.start]))
            .or_else(|| schedule(scene.text));
        found.holds = duration(scene);
        // One day's dose among several is no schedule either.
        let near = |a: &&Amount| a.start >= left && a.end <= right && is_dose(a);
        let has_many = scene.amounts.iter().filter(near).count() > 1;
        if has_many && found.quantity.is_none() {
            found.schedule = None;
        }
    } else {
        found.quantity = dose(scene, drug, left, right);
    }
    if WAS_TAKING.is_match(scene.text) && reading.polarity == Polarity::Positive {
        // Perhaps over since.
        found.confidence_max = 800;
    }
    if reading.once {
        found.stability = -400;
    }
    found
}

const MASS: [&str; 6] = ["mg", "mg/ml", "mg/actuation", "iu", "unit", "ml"];
const COUNT: [&str; 7] = [
    "tablet", "capsule", "drop", "puff", "sachet", "ampoule", "pill",
];

fn is_dose(amount: &Amount) -> bool {
    MASS.contains(&amount.quantity.unit.as_str()) || COUNT.contains(&amount.quantity.unit.as_str())
}

/// The dose of one drug: what stands between it and its neighbours, the new one of two.
fn dose(scene: &Scene<'_>, drug: &Drug, left: usize, right: usize) -> Option<Quantity> {
    let is_near = |a: &&Amount| is_dose(a) && a.start >= left && a.end <= right;
    let after: Vec<&Amount> = scene
        .amounts
        .iter()
        .filter(is_near)
        .filter(|a| a.start >= drug.range.start)
        .collect();
    let before: Vec<&Amount> = scene
        .amounts
        .iter()
        .filter(is_near)
        .filter(|a| a.end <= drug.range.start)
        .collect();
    if after.iter().chain(&before).any(|a| a.is_range) {
        return None;
    }
    if scene.modality.corrects {
        // "I meant 5 mg, not 50 mg of …": any amount but the one that was wrong.
        let all: Vec<&Amount> = scene.amounts.iter().filter(is_near).collect();
        return choose(scene.text, &all, drug.parts);
    }
    let chosen = choose(scene.text, &after, drug.parts);
    // "500 mg of metformin", "两片阿司匹林": right before the name.
    chosen.or_else(|| {
        let close = before.last().filter(|a| {
            let gap = scene.text[a.end..drug.range.start].trim();
            matches!(gap, "" | "of" | "的" | "tablet of" | "tablets of")
        })?;
        Some(close.quantity.clone())
    })
}

fn choose(text: &str, amounts: &[&Amount], parts: usize) -> Option<Quantity> {
    let first_mass = |from: &[&Amount]| {
        from.iter()
            .find(|a| MASS.contains(&a.quantity.unit.as_str()))
            .or(from.first())
            .map(|a| a.quantity.clone())
    };
    if let Some(new) = amounts
        .iter()
        .find(|a| CHANGE_TO.is_match(&text[..a.start]))
    {
        return Some(new.quantity.clone());
    }
    let kept: Vec<&Amount> = amounts
        .iter()
        .filter(|a| !FROM.is_match(&text[..a.start]))
        .copied()
        .collect();
    // 250 mg/125 mg of a combination: the whole strength, as 0.625 g names it.
    let [first, second, ..] = kept.as_slice() else {
        return first_mass(&kept);
    };
    let gap = text.get(first.end..second.start).unwrap_or("");
    let is_strength = gap.trim() == "/" || (parts > 1 && gap.contains('/'));
    if is_strength && first.quantity.unit == second.quantity.unit {
        let micros = first.quantity.micros.checked_add(second.quantity.micros)?;
        return Some(Quantity {
            micros,
            unit: first.quantity.unit.clone(),
        });
    }
    // "2.5 mg on Monday and 5 mg on Tuesday": neither is the dose.
    let mut masses = kept
        .iter()
        .filter(|a| MASS.contains(&a.quantity.unit.as_str()));
    if let (Some(first), Some(second)) = (masses.next(), masses.next())
        && first.quantity.unit == second.quantity.unit
        && first.quantity != second.quantity
        && ALTERNATES.is_match(text)
    {
        return None;
    }
    first_mass(&kept)
}

fixed!(
    ALTERNATES,
    r"周[一二三四五六日天末]|星期[一二三四五六日天]|单日|双日|隔[天日]|交替|轮流|早|中午|晚|饭|到|至|或|~|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|alternat\w+|odd|even|weekdays?|weekends?|mornings?|evenings?|nights?|noon|lunch|dinner|breakfast|bedtime|or|to|other|then)\b|\s-\s|\d\s*(?:mg|g|mcg|units?|iu|ml)\s*-\s*\d"
);

/// "for 7 days", 连吃三天: the course ends.
fn duration(scene: &Scene<'_>) -> Holds {
    let text = scene.text;
    let is_backward =
        text.contains("have been") || text.contains("'ve been") || text.contains("has been");
    let Some(hit) = DURATION.captures(text).filter(|_| !is_backward) else {
        return Holds::State;
    };
    let whole = hit.get(0).expect("a match has a whole");
    if text[whole.end()..].starts_with(['了', '前']) || text[whole.end()..].starts_with(" ago") {
        return Holds::State;
    }
    let n = hit
        .name("n")
        .or_else(|| hit.name("n2"))
        .map_or("", |m| m.as_str());
    let n = crate::quantity::han_number(n).or(match n {
        "a" | "an" | "one" => Some(1),
        "two" => Some(2),
        "three" => Some(3),
        "four" => Some(4),
        "five" => Some(5),
        "six" => Some(6),
        "seven" => Some(7),
        "ten" => Some(10),
        _ => None,
    });
    let days = match hit
        .name("unit")
        .or_else(|| hit.name("unit2"))
        .map_or("", |m| m.as_str())
    {
        "天" | "day" => 1,
        "周" | "星期" | "个星期" | "week" => 7,
        _ => 30,
    };
    let Some(n) = n else { return Holds::State };
    let from = scene.clock.at();
    let to = from.plus_millis(i64::from(n) * days * anamnesis_domain::time::DAY_MS);
    Holds::Given { from, to: Some(to) }
}

/// A drug that the lexicon does not know, where the words around it or its own shape tell that it is
/// one.
fn open_drugs(scene: &Scene<'_>) -> Vec<Drug> {
    let has_mass = scene
        .amounts
        .iter()
        .any(|a| MASS.contains(&a.quantity.unit.as_str()));
    let regex = if scene.is_chinese() {
        &*OPEN_ZH
    } else {
        &*OPEN_EN
    };
    let mut found = Vec::new();
    for hit in regex.captures_iter(scene.text) {
        let obj = hit.name("obj").expect("the slot is not optional");
        let phrase = obj
            .as_str()
            .trim_end_matches(['了', '的', '每', '各'])
            .trim();
        // 药物Zyx1: the generic word is no part of the name, the digit is.
        let lead = ["药物", "药品", "一种叫", "叫做", "叫"]
            .iter()
            .find_map(|word| phrase.strip_prefix(word))
            .map_or(0, |rest| phrase.len() - rest.len());
        let start = obj.start() + lead;
        let phrase = &phrase[lead..];
        let is_latin = phrase.ends_with(|c: char| c.is_ascii_alphanumeric());
        let more = scene.text[start + phrase.len()..]
            .bytes()
            .take_while(|b| is_latin && b.is_ascii_digit())
            .count();
        let phrase = &scene.text[start..start + phrase.len() + more];
        let first = phrase.split_whitespace().next().unwrap_or(phrase);
        let is_sure = matches!(
            hit.name("cue").map(|m| m.as_str()),
            Some("prescribed" | "put me on")
        );
        let dosed = has_mass
            && scene
                .amounts
                .iter()
                .any(|a| a.start >= obj.start() && a.start - obj.end().min(a.start) <= 12);
        let phrase = if looks_like_drug(phrase) {
            phrase
        } else if looks_like_drug(first) || dosed || is_sure {
            first
        } else {
            continue;
        };
        let is_common = matches!(
            phrase,
            "the"
                | "that"
                | "this"
                | "medication"
                | "medicine"
                | "medications"
                | "about"
                | "some"
                | "time"
                | "drug"
                | "drugs"
                | "tablet"
                | "tablets"
                | "pill"
                | "pills"
                | "capsule"
                | "capsules"
                | "daily"
                | "twice"
                | "once"
                | "every"
                | "药片"
                | "药品"
                | "一种药"
                | "药"
                | "药物"
                | "care"
                | "turns"
                | "that's"
                | "them"
                | "these"
        );
        let known = crate::lexicon::mentions(phrase);
        if is_common || !known.is_empty() && !dosed {
            continue;
        }
        if let Some(name) = open_drug(phrase) {
            let range = start..start + phrase.len();
            found.push(Drug {
                name,
                range,
                parts: 1,
            });
        }
    }
    found
}

/// A new dose, or a stop, of the drug named before.
fn elliptic(scene: &Scene<'_>) -> Option<Found> {
    let (name, _) = scene.known.drug.as_ref()?;
    let text = scene.text;
    let drug = Drug {
        name: name.clone(),
        range: 0..0,
        parts: 1,
    };
    let amounts: Vec<&Amount> = scene.amounts.iter().filter(|a| is_dose(a)).collect();
    let is_dose_change =
        !amounts.is_empty() && (DOSE_CHANGE.is_match(text) || scene.modality.corrects);
    if is_dose_change
        && !scene
            .mentions
            .iter()
            .any(|m| m.class == crate::lexicon::Class::Test)
    {
        let intent = changed_if(scene.intent(), true);
        let reading = Reading {
            polarity: Polarity::Positive,
            intent,
            anchor: 0,
            once: false,
        };
        let mut found = medication(scene, &drug, 0, text.len(), &reading);
        found.quantity = choose(text, &amounts, 1);
        return Some(found);
    }
    let is_stop = [
        "停药",
        "停了药",
        "药停了",
        "不吃药了",
        "不吃了",
        "停了",
        "stopped taking it",
        "no longer take it",
        "stopped it",
        "off it",
        "don't take it any",
    ]
    .iter()
    .any(|words| text.contains(words));
    if is_stop && !NO_REPORT.is_match(text) && scene.mentions.is_empty() {
        let reading = Reading {
            polarity: Polarity::Negative,
            intent: Intent::Change,
            anchor: 0,
            once: false,
        };
        return Some(medication(scene, &drug, 0, 0, &reading));
    }
    None
}

/// Ranges of a clause that a drug's name takes; other patterns leave them alone.
pub(crate) fn drug_ranges(scene: &Scene<'_>) -> Vec<Range<usize>> {
    drugs(scene.text, &scene.mentions)
        .into_iter()
        .map(|drug| drug.range)
        .collect()
}
