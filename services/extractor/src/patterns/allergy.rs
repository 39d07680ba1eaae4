//! Allergies, to anything: the slot of "对X过敏" and "allergic to X" is open.

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity};
use anamnesis_domain::owner::Subject;

use crate::lexicon::{Class, lookup, lookup_class, mentions};
use crate::pattern::fixed;
use crate::scene::{Found, Scene, changed_if, items, open_name};

const SLOT: [Class; 3] = [Class::Allergen, Class::Drug, Class::Food];

// What stands between the thing and 过敏 without belonging to its name.
fixed!(
    BETWEEN,
    r"(?:不再|不会|并不|并非|从不|从来不|从来没有?|没有|没|不|都|也|会|有|很|非常|特别|比较|严重|一直|从小就?|现在|已经|并|是|产生|发生|明显|轻度|重度|中度|有点|有些|曾经?|可能|好像|似乎|应该|还|就|容易|的|了|过|的话|什么的|\s)+$"
);
// What stands between the subject and the thing.
fixed!(
    BEFORE,
    r"^(?:其实|实际上|目前|现在|以前|一直|从小|已经|已|有|没有|没|无|否认|排除了?|是|不是|就是|对于|对|因|因为|由于|患有|患|说|发现|查出|确认|记录|的|了|我自己|自己|本人|另外|还|也|都|并|且|请记住|记住|记得|既往|只要|一|吃了?|喝了?|闻到?|碰到?|接触|用了?|打了?|注射|服用|使用|\s|:)+"
);
fixed!(
    ALLERGIC_AFTER,
    r"^(?:性|科|体质|原检|源检|检测|测试|试验|药|季|专科|门诊|休克怎么|的话)"
);
fixed!(
    REMOVED_AFTER,
    r"^(?:史|记录|这件事|的事|这个|反应)?(?:是)?(?:已经?|被|现在|早就|后来|都)*(?:排除|解除|好了|消失|没有了|取消|误诊|不成立|不再|脱敏成功|误报|不存在|作废)"
);
fixed!(REMOVED_BEFORE, r"(?:排除|解除|取消|推翻|否定)了?$");
fixed!(
    ZH_LIST,
    r"过敏(?:史|原|源|药物|记录|信息|物质?|情况)*(?:登记|记录|情况|包括|有)?\s*(?::|是|为|包括)\s*(?P<obj>[^:]{1,80})$"
);
fixed!(
    SKIN_TEST,
    r"(?P<obj>[^,:;\s]{0,16}?)\s*(?:皮试|皮肤试验|皮肤测试|过敏试验)(?:结果)?(?:呈|为|是|示|显示|:)?\s*(?P<result>阳性|阴性|\+|-)"
);
fixed!(
    EN_SKIN,
    r"\bskin (?:prick )?test(?:ed|ing)?\b.{0,20}\b(?P<result>positive|negative)\b(?:.{0,6}\b(?:for|to)\s+(?P<obj>[^,;:]{1,60}))?"
);
// A reaction told instead of its name.
fixed!(
    ZH_REACT,
    r"(?:吃|喝|碰|用|闻|打|接触)(?:了|到|过|完)?(?P<obj>[^,;:]{1,12}?)(?:之?后)?(?:就|会|都|也|又|还|满|浑|一|没多久|身上|身|全身|脸上|嘴角|嘴唇|嘴|舌头|舌|脖子|胳膊|手上|手|眼睛|喉咙|皮肤|立刻|马上)*(?:起(?:红|皮|风)?疹|起红疹|出疹|长疹|起荨麻疹|起风团|起包|发痒|痒|红肿|发红|发麻|肿|烂|喉头水肿|嘴肿|喉咙肿|呼吸困难|喘不上气|休克)|(?P<obj2>[^,;:我他她]{1,8}?)(?:我|他|她)?一(?:吃|喝|碰|用|擦|闻|沾|打|抹)(?:到|上)?就(?:满|浑|全|一|身上|身|脸上|脸|嘴|手上|手)*(?:起(?:红|皮|风)?疹|起包|发痒|痒|红|肿|喘)|对(?P<obj3>[^,;:]{1,10}?)(?:很|特别|比较|有点|非常|都)*敏感"
);
fixed!(
    EN_TO,
    r"\b(?:allerg(?:ic|y|ies)|anaphyla\w+|hypersensitiv\w+|allergic reactions?)(?:\s+reactions?)?\s+(?:to|from|against):?\s+(?P<obj>[^;:]{1,100})"
);
fixed!(
    EN_REACT,
    r"\b(?:reacted(?: badly| very badly)?|(?:bad|severe|serious) reactions?|sensitive|intolerant|break out in hives|broke out in hives|get hives|got hives|swells? up|swelled up|goe?s? red|come out in hives|comes out in hives|reacts?|anaphylactic shock)\s+(?:to|from|after|with|when i (?:eat|take|touch)|if i (?:eat|take|touch))\s+(?:eating |taking |touching )?(?P<obj>[^;:]{1,60})"
);
fixed!(
    EN_GIVES,
    r"(?P<obj>[a-z][a-z' -]{1,40}?)\s+(?:gives?|gave|causes?)\s+me\s+(?:a |an |bad |severe )*(?:hives|rash|rashes|anaphylaxis|allergic reaction|swelling)"
);
// The one who reacts stands behind the verb: "kiwi gives her hives".
fixed!(
    EN_MAKES,
    r"(?P<obj>[a-z][a-z' -]{1,40}?)\s+(?:gives?|gave|makes?|made|brings?|brought)\s+(?:me|him|her|us|my\s+(?:[a-z-]+\s+)?[a-z-]+)\s+(?:(?:a|an|bad|severe|nasty|itchy|terrible|out in|come out in|break out in|lips|throat|tongue|mouth|face|eyes|skin)\s+)*(?:hives|rash|rashes|itchy?|itching|swell(?:ing|s)?|swollen|tingle|tingly|wheeze|wheezy|anaphylaxis)\b"
);
fixed!(
    EN_COMPOUND,
    r"\b(?P<obj>(?:[a-z][a-z'-]*\s+){1,3})allerg(?:y|ies)\b"
);
fixed!(
    EN_LIST,
    r"\ballerg(?:y|ies)(?:\s+(?:recorded|on file|list|listed|history|noted|include|includes|are|is|documented))*\s*(?::|\binclude\b|\bare\b|\bis\b)\s*(?P<obj>[^:]{1,80})$"
);
fixed!(
    EN_NONE,
    r"\bn\.?k\.?d\.?a\b|\bn\.?k\.?a\b|\bno (?:known )?(?:(?P<what>drug|medication|medicine|food|environmental|other) )?allerg(?:y|ies)\b|\b(?:don't|do not|doesn't) have any (?:known )?(?:(?P<what2>drug|medication|medicine|food|environmental|other) )?allerg(?:y|ies)\b"
);
fixed!(
    EN_BARE,
    r"\b(?:am not|'m not|is not|isn't|not|no longer)\s+allergic\b(?:\s+(?:any ?more|any longer|now|after all))?\s*$"
);
fixed!(
    EN_REMOVED_AFTER,
    r"^\s*(?:no longer (?:applies|exists)|(?:has been|was|is|were) (?:ruled out|removed|disproved|disproven|a mistake|wrong|resolved|gone)|has resolved|went away|is over|does not apply|doesn't apply)"
);
fixed!(
    EN_REMOVED_BEFORE,
    r"\b(?:outgrew|outgrown|grew out of|ruled out|got over|no longer have|cured of)\s+(?:my|the|a|his|her)?\s*$"
);
fixed!(
    ZH_EXCEPT,
    r"除(?:了|去)?(?:对)?(?P<obj>[^,;:]{1,12}?)(?:以外|之外|外)?[,]?(?:我|本人|自己|对)*(?:都|别的|其他|其它|什么|没有|没|不)[^,;:]{0,10}$"
);
fixed!(
    EXCEPT,
    r"^\s*(?:except|but|other than|apart from|besides)\s+(?:for\s+|to\s+)?(?P<obj>[^;:,]{1,60})"
);
// Where the slot of an English pattern ends.
fixed!(
    EN_END,
    r"\s+(?:and (?:i|i'm|it|my|he|she|they|have|has|take|always|am|was|get|can|carry|carries|use|uses|avoid|had|keep|need|don't|do|cannot|also have|also take|did)|but|since|because|when|which|so|as i|for|in (?:the|my|19|20)|at|from|until|according|that|any ?more|any longer|too|now|either|though|after all|except|other than|apart from|besides|if|while|who|where|i|very|really|badly|severely|ever|these days|right|please|like my|like him|like her|is|are|was|were|has|have|no longer)\b.*$"
);

/// Everything in the clause that speaks of an allergy.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    if scene.text.contains("过敏") || scene.text.contains("皮试") || scene.text.contains("皮肤试验")
    {
        chinese(scene, &mut found);
    }
    if found.is_empty()
        && let Some(hit) = ZH_REACT.captures(scene.text)
    {
        let obj = ["obj", "obj2", "obj3"]
            .iter()
            .find_map(|name| hit.name(name));
        let (obj, anchor) = (
            obj.map_or("", |m| m.as_str()),
            hit.get(0).map_or(0, |m| m.start()),
        );
        let polarity = scene.polarity_before(anchor);
        push_items(
            scene,
            &mut found,
            obj,
            anchor,
            polarity,
            scene.intent(),
            false,
        );
        // Concluded, not said: a person looks at it.
        found.iter_mut().for_each(|f| f.confidence_max = 800);
    }
    if scene.text.contains("allerg")
        || scene.text.contains("anaphyla")
        || scene.text.contains("hypersens")
        || scene.text.contains("nka")
        || scene.text.contains("nkda")
        || EN_REACT.is_match(scene.text)
        || EN_GIVES.is_match(scene.text)
        || EN_MAKES.is_match(scene.text)
        || EN_SKIN.is_match(scene.text)
    {
        english(scene, &mut found);
    }
    found
}

fn chinese(scene: &Scene<'_>, found: &mut Vec<Found>) {
    if let Some(hit) = ZH_LIST.captures(scene.text) {
        let obj = hit.name("obj").expect("the slot is not optional");
        let whole = hit.get(0).expect("a match has a whole");
        if matches!(
            obj.as_str().trim(),
            "无" | "没有" | "否认" | "无过敏史" | "暂无" | "未发现" | "无特殊"
        ) {
            found.push(allergy(
                scene,
                whole.start(),
                "any".to_owned(),
                Polarity::Negative,
            ));
        } else if !obj.as_str().contains("过敏") {
            push_items(
                scene,
                found,
                obj.as_str(),
                whole.start(),
                Polarity::Positive,
                scene.intent(),
                true,
            );
        }
        if !found.is_empty() {
            return;
        }
    }
    for hit in SKIN_TEST.captures_iter(scene.text) {
        let obj = hit.name("obj").map_or("", |m| m.as_str());
        let obj = persons_off(obj);
        let obj = BEFORE.replace(&obj, "");
        let is_positive = matches!(&hit["result"], "阳性" | "+");
        let polarity = if is_positive {
            Polarity::Positive
        } else {
            Polarity::Negative
        };
        let anchor = hit.get(0).map_or(0, |m| m.end());
        push_items(scene, found, &obj, anchor, polarity, scene.intent(), false);
    }
    for (at, word) in scene.text.match_indices("过敏") {
        let (before, after) = (&scene.text[..at], &scene.text[at + word.len()..]);
        let is_other = ALLERGIC_AFTER.is_match(after)
            || before.ends_with(['抗', '脱', '防'])
            || ["皮肤", "鼻子", "眼睛", "容易"]
                .iter()
                .any(|w| before.ends_with(w));
        let is_nobody = before.contains("没有人") || before.contains("没人");
        if !is_other && !is_nobody {
            one_chinese(scene, found, at, before, after);
        }
    }
}

fn one_chinese(scene: &Scene<'_>, found: &mut Vec<Found>, at: usize, before: &str, after: &str) {
    // 除了青霉素都不过敏: what is left out is what one is allergic to.
    if let Some(except) = ZH_EXCEPT.captures(before) {
        push_items(
            scene,
            found,
            &except["obj"],
            at,
            Polarity::Positive,
            scene.intent(),
            true,
        );
        return;
    }
    let is_removed = REMOVED_AFTER.is_match(after);
    let stem = without_person_behind(&BETWEEN.replace(before, ""));
    let (obj, open, head) = match with_respect_to(&stem) {
        Some(from) => (stem[from..].to_owned(), true, from),
        None => bare_object(scene, &stem),
    };
    let is_removed = is_removed
        || REMOVED_BEFORE.is_match(&before[..head.min(before.len())])
        || BEFORE
            .find(before)
            .is_some_and(|m| m.as_str().contains("排除"));
    let negated = is_removed || scene.negated_before(at);
    let polarity = if negated {
        Polarity::Negative
    } else {
        Polarity::Positive
    };
    let ends = after.starts_with('了') || scene.modality.changes || is_removed;
    let intent = changed_if(scene.intent(), negated && ends);
    if obj.trim().is_empty() {
        // 其实我不过敏了: the thing was said before, if it was.
        let is_bare =
            stem.trim().is_empty() || persons_off(&BEFORE.replace(&stem, "")).trim().is_empty();
        if is_bare && negated && intent != Intent::Assert {
            found.extend(known_allergy(scene, at, intent));
        } else if after.starts_with('史') && negated {
            found.push(allergy(scene, at, "any".to_owned(), Polarity::Negative).intent(intent));
        }
        return;
    }
    // The person stands before 对; one inside the thing (我妈做的花生酱) is not meant.
    let anchor = if open {
        stem[..head].rfind('对').unwrap_or(at)
    } else {
        at
    };
    push_items(scene, found, &obj, anchor, polarity, intent, open);
}

/// 花生我已经不过敏了: the thing stands before the person.
fn without_person_behind(stem: &str) -> String {
    let persons = crate::subject::persons(stem);
    let behind = persons
        .last()
        .filter(|p| p.end == stem.len() && p.start > 0);
    let Some(person) = behind else {
        return stem.to_owned();
    };
    let before = BETWEEN.replace(&stem[..person.start], "");
    let names_thing =
        mentions(&before).iter().any(|m| SLOT.contains(&m.class)) || before.contains('对');
    if names_thing {
        before.into_owned()
    } else {
        stem.to_owned()
    }
}

/// Where the thing begins after 对; not after 不对, 反对, 针对, 绝对.
fn with_respect_to(stem: &str) -> Option<usize> {
    let (at, word) = stem.rmatch_indices('对').find(|(at, _)| {
        let before = &stem[..*at];
        let after = &stem[at + '对'.len_utf8()..];
        !before.ends_with(['反', '针', '绝', '面', '核', '校'])
            && !after.starts_with(['象', '比', '话', '不'])
            && !after.trim().is_empty()
    })?;
    let mut from = at + word.len();
    for lead in ["于", "的是"] {
        if let Some(rest) = stem[from..].strip_prefix(lead) {
            from = stem.len() - rest.len();
        }
    }
    Some(from)
}

/// The thing without 对: `青霉素过敏`, `吃芒果会过敏`. Gives also whether the slot may hold an unknown
/// word, and where the thing begins.
fn bare_object(scene: &Scene<'_>, stem: &str) -> (String, bool, usize) {
    // Only the last stretch without a mark can be the thing.
    let cut = stem
        .rfind([',', ':', ';', '"', '(', ' '])
        .map_or(0, |i| i + 1);
    let person = scene
        .persons
        .iter()
        .filter(|p| p.end <= stem.len())
        .map(|p| p.end)
        .max()
        .unwrap_or(0);
    let from = cut.max(person);
    let tail = &stem[from..];
    let lead = BEFORE.find(tail).map_or(0, |m| m.end());
    let obj = &tail[lead..];
    let has_intro = tail[..lead].contains(['有', '无', '没', '认', '除', '吃', '喝', '用', '是']);
    let is_known =
        lookup(obj, &SLOT).is_some() || items(obj).iter().all(|item| lookup(item, &SLOT).is_some());
    if is_known || (has_intro && obj.chars().count() <= 8) {
        return (obj.to_owned(), true, from + lead);
    }
    // A known word right before 过敏, whatever stands before it.
    let known = mentions(stem)
        .into_iter()
        .rfind(|m| m.end == stem.len() && SLOT.contains(&m.class));
    match known {
        Some(mention) => (stem[mention.start..].to_owned(), false, mention.start),
        None => (String::new(), false, from),
    }
}

fn persons_off(text: &str) -> String {
    let end = crate::subject::persons(text)
        .iter()
        .map(|p| p.end)
        .max()
        .unwrap_or(0);
    text[end..].trim_start_matches('对').to_owned()
}

fn english(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let text = scene.text;
    if let Some(hit) = EN_NONE.captures(text) {
        let what = hit
            .name("what")
            .or_else(|| hit.name("what2"))
            .map(|m| m.as_str());
        let is_to = text[hit.get(0).map_or(0, |m| m.end())..]
            .trim_start()
            .starts_with("to ");
        let value = match what {
            Some("food") => "food",
            Some("environmental") => "environment",
            Some("other") => "",
            Some(_) => "drug",
            None if text[hit.get(0).map_or(0, |m| m.start())..].starts_with("nkda") => "drug",
            None => "any",
        };
        let tail = &text[hit.get(0).map_or(0, |m| m.end())..];
        if let Some(except) = EXCEPT.captures(tail) {
            let but = EN_END.replace(except.name("obj").map_or("", |m| m.as_str()), "");
            let anchor = hit.get(0).map_or(0, |m| m.start());
            push_items(
                scene,
                found,
                &but,
                anchor,
                Polarity::Positive,
                scene.intent(),
                true,
            );
            return;
        }
        let is_drug_code = hit
            .get(0)
            .is_some_and(|m| m.as_str().replace('.', "") == "nkda");
        let value = if is_drug_code { "drug" } else { value };
        if !is_to && !value.is_empty() {
            let anchor = hit.get(0).map_or(0, |m| m.start());
            found.push(
                allergy(scene, anchor, value.to_owned(), Polarity::Negative).intent(scene.intent()),
            );
            return;
        }
    }
    if let Some(hit) = EN_LIST.captures(text) {
        let obj = &hit["obj"];
        if matches!(
            obj.trim().trim_end_matches('.'),
            "none" | "none known" | "no" | "nil" | "n/a"
        ) {
            found.push(allergy(scene, 0, "any".to_owned(), Polarity::Negative));
        } else {
            push_items(
                scene,
                found,
                obj,
                hit.get(0).map_or(0, |m| m.start()),
                Polarity::Positive,
                scene.intent(),
                true,
            );
        }
        return;
    }
    for (regex, open) in [(&*EN_TO, true), (&*EN_REACT, false), (&*EN_GIVES, false)] {
        for hit in regex.captures_iter(text) {
            let whole = hit.get(0).expect("a match has a whole");
            let obj = hit.name("obj").expect("the slot is not optional");
            let slot = EN_END.replace(obj.as_str(), "");
            let tail = &text[obj.start() + slot.len()..];
            let ruled_out = EN_REMOVED_AFTER.is_match(tail)
                || EN_REMOVED_BEFORE.is_match(&text[..whole.start()]);
            push_english(scene, found, &slot, whole.start(), ruled_out, open);
            if let Some(except) = EXCEPT.captures(tail) {
                let but = EN_END.replace(except.name("obj").map_or("", |m| m.as_str()), "");
                // What holds for all but one is no fact about all.
                found.retain(|f| !matches!(f.value.as_deref(), Some("any")));
                let negated = ruled_out || scene.negated_before(whole.start());
                let polarity = if negated {
                    Polarity::Positive
                } else {
                    Polarity::Negative
                };
                push_items(
                    scene,
                    found,
                    &but,
                    whole.start(),
                    polarity,
                    scene.intent(),
                    open,
                );
            }
        }
    }
    if found.is_empty()
        && let Some(hit) = EN_MAKES.captures(text)
    {
        let anchor = hit.get(0).map_or(0, |m| m.end());
        let words: Vec<&str> = hit["obj"].split_whitespace().collect();
        let known = (0..words.len())
            .map(|i| words[i..].join(" "))
            .find(|w| lookup(w, &SLOT).is_some());
        if let Some(known) = known {
            push_english(scene, found, &known, anchor, false, false);
            // Concluded, not said: a person looks at it.
            found.iter_mut().for_each(|f| f.confidence_max = 800);
        }
    }
    if found.is_empty() {
        for hit in EN_COMPOUND.captures_iter(text) {
            let (whole, obj) = (
                hit.get(0).expect("a match has a whole"),
                hit["obj"].trim().to_owned(),
            );
            // Longest known tail of the words before "allergy".
            let words: Vec<&str> = obj.split_whitespace().collect();
            let known = (0..words.len())
                .map(|i| words[i..].join(" "))
                .find(|w| lookup(w, &SLOT).is_some());
            let ruled_out = EN_REMOVED_AFTER.is_match(&text[whole.end()..])
                || EN_REMOVED_BEFORE.is_match(
                    text[..whole.end()
                        - "allergy".len()
                        - known.as_ref().map_or(0, String::len)
                        - 1]
                        .trim_end_matches(|c: char| c != ' '),
                );
            if let Some(known) = known {
                push_english(scene, found, &known, whole.start(), ruled_out, false);
            }
        }
    }
    if let Some(hit) = EN_SKIN.captures(text).filter(|_| found.is_empty())
        && let Some(obj) = hit.name("obj")
    {
        let is_positive = &hit["result"] == "positive";
        let polarity = if is_positive {
            Polarity::Positive
        } else {
            Polarity::Negative
        };
        let slot = EN_END.replace(obj.as_str(), "");
        push_items(scene, found, &slot, 0, polarity, scene.intent(), false);
    }
    if let Some(hit) = EN_BARE.find(text).filter(|_| found.is_empty()) {
        let is_change =
            scene.modality.changes || scene.modality.corrects || text.contains("actually");
        if is_change {
            let intent = if scene.modality.corrects {
                Intent::Correct
            } else {
                Intent::Change
            };
            found.extend(known_allergy(scene, hit.start(), intent));
        }
    }
}

fn push_english(
    scene: &Scene<'_>,
    found: &mut Vec<Found>,
    slot: &str,
    anchor: usize,
    ruled_out: bool,
    open: bool,
) {
    let negated = ruled_out || scene.negated_before(anchor);
    let polarity = if negated {
        Polarity::Negative
    } else {
        Polarity::Positive
    };
    let intent = changed_if(scene.intent(), ruled_out);
    push_items(scene, found, slot, anchor, polarity, intent, open);
}

fn push_items(
    scene: &Scene<'_>,
    found: &mut Vec<Found>,
    slot: &str,
    anchor: usize,
    polarity: Polarity,
    intent: Intent,
    open: bool,
) {
    let slot = slot
        .trim()
        .trim_matches(|c: char| !(c.is_alphanumeric() || c == ')'));
    let whole = lookup(slot, &SLOT).map(str::to_owned);
    let names: Vec<String> = match whole {
        Some(name) => vec![name],
        None => items(slot)
            .into_iter()
            .filter_map(|item| name(item, open))
            .collect(),
    };
    for name in names {
        // "I have a food allergy" and 对什么过敏 name nothing; only their denial tells something.
        let is_general = matches!(name.as_str(), "any" | "drug" | "food" | "environment");
        if is_general && polarity == Polarity::Positive {
            continue;
        }
        let is_new = found.iter().all(|f| f.value.as_deref() != Some(&name));
        if is_new {
            found.push(allergy(scene, anchor, name, polarity).intent(intent));
        }
    }
}

fn name(item: &str, open: bool) -> Option<String> {
    const NOT_NAMES: [&str; 28] = [
        "it",
        "that",
        "this",
        "them",
        "things",
        "something",
        "some things",
        "stuff",
        "these",
        "those",
        "me",
        "him",
        "her",
        "这个",
        "那个",
        "它",
        "东西",
        "某些东西",
        "自己",
        "我",
        "多种",
        "everything",
        "all",
        "别的",
        "其他",
        "其它",
        "什么",
        "这些",
    ];
    let item = BETWEEN.replace(item.trim(), "");
    let item = item.trim();
    if NOT_NAMES.contains(&item) {
        return None;
    }
    if let Some(known) = lookup(item, &SLOT) {
        return Some(known.to_owned());
    }
    if let Some(drug) = super::drug::canonical(item) {
        return Some(drug);
    }
    if open { open_name(item) } else { None }
}

// Told of the past: whether it still holds, a person decides.
fixed!(
    PAST,
    r"小时候|以前|曾经|小的时候|\b(?:as a (?:child|kid)|when i was (?:a (?:child|kid)|young|little)|in (?:my )?childhood|used to be)\b"
);

fn allergy(scene: &Scene<'_>, anchor: usize, name: String, polarity: Polarity) -> Found {
    let kind = lookup_class(&name, &[Class::Drug]).map(|_| EntityKind::Drug);
    let mut found = Found::new(Kind::Allergy, "allergy", name.clone(), anchor)
        .polarity(polarity)
        .intent(scene.intent())
        .entity(EntityKind::Allergen, &name);
    if let Some(kind) = kind {
        found = found.entity(kind, &name);
    }
    if polarity == Polarity::Positive && PAST.is_match(scene.text) {
        found.confidence_max = 800;
    }
    found
}

/// The allergy that "I'm not allergic any more" is about: the only one that this conversation has
/// named, of the speaker.
fn known_allergy(scene: &Scene<'_>, anchor: usize, intent: Intent) -> Option<Found> {
    let mut own: Vec<&String> = scene
        .known
        .allergies
        .iter()
        .filter(|(who, value, polarity)| {
            *polarity == Polarity::Positive && who.contains(&Subject::Self_) && value != "any"
        })
        .map(|(_, value, _)| value)
        .collect();
    own.dedup();
    match own.as_slice() {
        [value] => {
            Some(allergy(scene, anchor, (*value).clone(), Polarity::Negative).intent(intent))
        }
        _ => None,
    }
}
