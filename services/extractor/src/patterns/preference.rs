//! What somebody likes, avoids or wants spoken.

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity};

use crate::lexicon::{Class, lookup};
use crate::pattern::fixed;
use crate::scene::{Found, Scene, items};

fixed!(
    ZH_LIKE,
    r"(?P<verb>(?:最|很|更|比较|特别|非常|还是|挺|超|一直|都)*(?:不太|不怎么|不|从不|再也不)?(?:喜欢|喜爱|偏好|偏爱|爱吃|爱喝|习惯|讨厌|反感|受不了|吃不惯|喝不惯|吃不了|喝不了|倾向于?|更愿意|宁愿))(?:吃|喝|用|去|看|听|把|做|在|于)?(?P<obj>[^,;:。]{1,40})"
);
fixed!(
    ZH_EAT,
    r"(?P<verb>(?:从来不|从不|一口都不|一点都?不|一概不|基本不|不|忌|戒)(?:再)?(?:吃|喝|碰|沾|口))(?P<obj>[^,;:。]{1,20})"
);
fixed!(
    ZH_DIET,
    r"(?:我|他|她|一直|长期|现在|平时|是|爱人|爸|妈)?(?:吃素|素食(?:者|主义者)?|吃全素|清真(?:饮食)?|忌口(?P<obj>[^,;]{0,12})|生酮(?:饮食)?|低盐饮食|低糖饮食|无麸质饮食)"
);
fixed!(
    EN_LIKE,
    r"\b(?P<verb>(?:really |just |always |usually |absolutely |also |much |would |do )*(?:don't|do not|doesn't|does not|can't|cannot|never|no longer|not)?\s*(?:really |usually |much |ever )*(?:prefers?|likes?|loves?|enjoys?|dislikes?|hates?|stand|fond of|favou?r)|(?:am|is|'m|i'm) (?:really |very |not )*(?:fond of|into|a fan of))\s+(?:to |eating |drinking |having |taking |being )*(?P<obj>[^;:]{1,80})"
);
fixed!(
    EN_EAT,
    r"\b(?P<verb>(?:don't|do not|doesn't|does not|never|no longer|won't|can't|cannot) (?:ever )?(?:eat|drink|touch))\s+(?P<obj>[^,;:]{1,40})"
);
fixed!(
    EN_DIET,
    r"\b(?:am|is|'m|i'm|became|gone|went|been|being|as) (?:a |an |strictly |mostly |now )*(?P<diet>vegetarian|vegan|pescatarian|halal|kosher|gluten-free|keto)\b|\b(?:follow|eat|keep|on) (?:a |an )?(?:strict )?(?P<diet2>vegetarian|vegan|halal|kosher|gluten-free|keto|low-salt|low-sodium|low-carb)\b"
);
fixed!(
    EN_FAVOURITE,
    r"\bmy favou?rite (?P<what>[a-z ]{1,24}?) (?:is|are) (?P<obj>[^,;:]{1,40})"
);
fixed!(
    SOBER,
    r"戒(?:了|掉)?酒(?:了)?|\b(?:quit|stopped|gave up) drinking\b|\bi(?:'m| am) sober\b"
);
fixed!(
    LANGUAGE,
    r"(?:请|麻烦|希望|最好|以后|能)?(?:用|说|讲)(?P<zh>中文|英文|英语|普通话|粤语|广东话|上海话|四川话|日语|日文|韩语|法语|西班牙语|闽南语|客家话|方言)(?:跟我|和我|与我|沟通|交流|回复|说|讲|联系|回答)|(?:跟|和|与)我(?:说|讲|用)(?P<zh2>中文|英文|英语|普通话|粤语|广东话|日语|韩语|法语|西班牙语)|\b(?:speak|reply|answer|write|talk|communicate|respond)(?: to me)?(?: only)? in (?P<en>english|chinese|mandarin|cantonese|spanish|french|japanese|korean|german)\b|\bmy (?:preferred|native|first) language is (?P<en2>[a-z]+)"
);
fixed!(
    PLAN,
    r"(?:改用|采用|选择?|用|换成|改成|改为|就用|走)\s*(?P<zh>[a-z一二三甲乙丙\d])\s*(?:方案|计划|套餐)|(?:方案|计划)\s*(?P<zh2>[a-z一二三甲乙丙\d])\b|\b(?:go with|going with|use|switch to|choose|chose|pick|take|prefer)\s+(?:plan|option)\s+(?P<en>[a-z\d])\b"
);
fixed!(
    EN_END,
    r"\s+(?:but|because|since|when|so|and i|and my|if|although|though|at all|any ?more|any longer|very much|a lot|these days|now|either|anyway|please|unless|while)\b.*$"
);
fixed!(
    ZH_END,
    r"(?:这件事|的习惯|这一点|了|的|吧|啊|呢|呀|因为.*|所以.*|这个习惯)+$"
);
// "looks like", "so much love", "I'd love to": only somebody's own liking counts.
fixed!(
    LIKER,
    r"(?:^|\b)(?:i|we|he|she|i've|i have|he has|she has|i am|i'm|we both)(?:\s+(?:always|ever|still|both|all|now|currently|actually|personally|generally|mostly|mainly|strongly|also))*\s*$"
);
// A compliment or a remark on what is at hand, no lasting taste.
fixed!(
    AT_HAND,
    r"^(?:this|these|those|that|your|you|how|what|when|where|who|it|its|of|and|for|in|is|was|are|with|about|see|share|so|called|我们|你|您|这|那|里面|和|与|的|过|着|上了)\b|^(?:我们|你|您|这|那|里面|和|与|过|上了)"
);
fixed!(
    ZH_FAVOURITE,
    r"^的(?P<what>[^是,;:]{1,16})(?:是|有)(?P<obj>[^,;:]{1,40})$"
);

pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    let text = scene.text;
    if let Some(hit) = LANGUAGE.captures(text) {
        let name = ["zh", "zh2", "en", "en2"]
            .iter()
            .find_map(|name| hit.name(name))
            .map_or("", |m| m.as_str());
        let at = hit.get(0).map_or(0, |m| m.start());
        if !scene.negated_before(at) {
            found.push(
                Found::new(Kind::Preference, "language", language(name), at).intent(scene.intent()),
            );
        }
        return found;
    }
    if let Some(hit) = PLAN.captures(text) {
        let name = ["zh", "zh2", "en"]
            .iter()
            .find_map(|name| hit.name(name))
            .map_or("", |m| m.as_str());
        let at = hit.get(0).map_or(0, |m| m.start());
        if !scene.negated_before(at) {
            found.push(Found::new(Kind::Preference, "plan", name, at).intent(scene.intent()));
        }
        return found;
    }
    diets(scene, &mut found);
    if let Some(hit) = SOBER.find(text).filter(|_| found.is_empty()) {
        found.push(
            preference(scene, "alcohol", hit.start(), Polarity::Negative).intent(Intent::Change),
        );
    }
    if text.contains("过敏") || text.contains("allerg") {
        return found;
    }
    for regex in [&*ZH_EAT, &*ZH_LIKE, &*EN_EAT, &*EN_LIKE] {
        if !found.is_empty() {
            break;
        }
        for hit in regex.captures_iter(text) {
            let (verb, obj) = (
                hit.name("verb").expect("not optional"),
                hit.name("obj").expect("not optional"),
            );
            if regex.as_str() == EN_LIKE.as_str()
                && is_no_liking(scene, verb.start(), verb.as_str())
            {
                continue;
            }
            liked(scene, verb.as_str(), verb.start(), obj.as_str(), &mut found);
        }
    }
    if let Some(hit) = EN_FAVOURITE.captures(text).filter(|_| found.is_empty())
        && let Some(name) = name(&EN_END.replace(&hit["obj"], ""))
    {
        found.push(preference(scene, &name, 0, Polarity::Positive));
    }
    found
}

/// "like" needs its liker: "people like that" has none, nor has "Love the vase!".
fn is_no_liking(scene: &Scene<'_>, start: usize, verb: &str) -> bool {
    let before = &scene.text[..start];
    let is_would = verb.trim_start().starts_with("would");
    let is_stand = verb.trim_end().ends_with("stand") && !verb.contains("can");
    let names_person = scene
        .persons
        .iter()
        .any(|p| p.end <= start && scene.text[p.end..start].trim().is_empty());
    let has_liker = names_person || LIKER.is_match(before);
    // "Don't like cilantro", "prefer aisle seats": a note without its subject.
    let is_note = before.trim().is_empty()
        && (verb.contains("n't")
            || verb.contains("not")
            || verb.contains("prefer")
            || verb.contains("hate")
            || verb.contains("dislike"));
    let is_copula = verb.contains("fond") || verb.contains(" into") || verb.contains("fan of");
    is_would || is_stand || !(has_liker || is_note || is_copula)
}

fn liked(scene: &Scene<'_>, verb: &str, at: usize, obj: &str, found: &mut Vec<Found>) {
    let is_aversion = [
        "讨厌",
        "反感",
        "受不了",
        "不惯",
        "不了",
        "忌",
        "戒",
        "hate",
        "dislike",
        "stand",
    ]
    .iter()
    .any(|w| verb.contains(w));
    let denies = [
        "不太",
        "不怎么",
        "不喜",
        "不爱",
        "不习",
        "从不",
        "不吃",
        "不喝",
        "不碰",
        "不沾",
        "不再",
        "不偏",
        "don't",
        "do not",
        "doesn't",
        "does not",
        "never",
        "no longer",
        "not ",
        "can't",
        "cannot",
        "won't",
    ]
    .iter()
    .any(|w| verb.contains(w));
    // Only a negator right before the verb: 不吸烟不喝酒 denies twice, not nothing.
    let outer = scene
        .negators
        .iter()
        .any(|n| n.end <= at && scene.text[n.end..at].trim().is_empty());
    let negative =
        (is_aversion != (denies && !is_aversion)) != outer || (is_aversion && !denies && !outer);
    let polarity = if negative {
        Polarity::Negative
    } else {
        Polarity::Positive
    };
    let obj = EN_END.replace(obj, "");
    let obj = ZH_END.replace(&obj, "");
    let favourite = ZH_FAVOURITE
        .captures(&obj)
        .and_then(|hit| hit.name("obj"))
        .map(|m| m.as_str().to_owned());
    let obj = favourite.map_or(obj, std::borrow::Cow::Owned);
    if AT_HAND.is_match(obj.trim()) || obj.starts_with('的') {
        return;
    }
    // Not eating a drug is no taste, and not eating at all no preference.
    let speaks_of_drugs = crate::lexicon::mentions(&obj)
        .iter()
        .any(|m| m.class == Class::Drug)
        || obj.contains('药')
        || obj.contains("medic")
        || obj.contains("pill");
    let is_pronoun = matches!(
        obj.trim(),
        "it" | "that"
            | "this"
            | "them"
            | "him"
            | "her"
            | "you"
            | "me"
            | "饭"
            | "东西"
            | "它"
            | "他"
            | "她"
            | "这样"
            | "下"
            | "下去"
            | "什么"
            | "much"
            | "anything"
            | "to"
    );
    if speaks_of_drugs
        || is_pronoun
        || obj.starts_with(['完', '下', '上', '起', '得', '惯', '饱', '过'])
    {
        return;
    }
    let whole = name(&obj);
    let names: Vec<String> = if lookup(obj.trim(), &[Class::Food, Class::Allergen]).is_some() {
        whole.into_iter().collect()
    } else {
        let parts = items(&obj);
        let all_known = parts.len() > 1
            && parts
                .iter()
                .all(|p| lookup(p, &[Class::Food, Class::Allergen]).is_some());
        if all_known {
            parts.into_iter().filter_map(name).collect()
        } else {
            whole.into_iter().collect()
        }
    };
    for name in names {
        found.push(preference(scene, &name, at, polarity));
    }
}

fn diets(scene: &Scene<'_>, found: &mut Vec<Found>) {
    if let Some(hit) = EN_DIET.captures(scene.text) {
        let name = hit
            .name("diet")
            .or_else(|| hit.name("diet2"))
            .map_or("", |m| m.as_str());
        let at = hit.get(0).map_or(0, |m| m.start());
        found.push(preference(
            scene,
            &format!("{name} diet"),
            at,
            scene.polarity_before(at),
        ));
    }
    if let Some(hit) = ZH_DIET.find(scene.text) {
        let words = hit.as_str();
        let name = match () {
            () if words.contains("全素") => "vegan diet",
            () if words.contains('素') => "vegetarian diet",
            () if words.contains("清真") => "halal diet",
            () if words.contains("生酮") => "keto diet",
            () if words.contains("低盐") => "low-salt diet",
            () if words.contains("低糖") => "low-sugar diet",
            () if words.contains("麸质") => "gluten-free diet",
            () => return,
        };
        found.push(preference(
            scene,
            name,
            hit.start(),
            scene.polarity_before(hit.start()),
        ));
    }
}

fn preference(scene: &Scene<'_>, name: &str, at: usize, polarity: Polarity) -> Found {
    Found::new(Kind::Preference, "preference", name, at)
        .polarity(polarity)
        .intent(scene.intent())
        .entity(EntityKind::Thing, name)
}

fn name(obj: &str) -> Option<String> {
    let obj = obj.trim();
    if let Some(known) = lookup(obj, &[Class::Food, Class::Allergen]) {
        return Some(known.to_owned());
    }
    let plain = obj.trim_matches(|c: char| !c.is_alphanumeric());
    let is_short = plain.split_whitespace().count() <= 8 && plain.chars().count() <= 40;
    (is_short && plain.chars().any(char::is_alphabetic))
        .then(|| crate::lexicon::strip_leading(plain).to_owned())
}

fn language(name: &str) -> &str {
    match name {
        "中文" | "chinese" => "chinese",
        "普通话" | "mandarin" => "mandarin",
        "英文" | "英语" | "english" => "english",
        "粤语" | "广东话" | "cantonese" => "cantonese",
        "日语" | "日文" | "japanese" => "japanese",
        "韩语" | "korean" => "korean",
        "法语" | "french" => "french",
        "西班牙语" | "spanish" => "spanish",
        other => other,
    }
}
