//! Single-valued facts about a person: work, smoking, pregnancy, address, account, name, insurance.

use std::sync::LazyLock;

use anamnesis_domain::memory::Kind;
use anamnesis_domain::text::normalise;
use regex::Regex;

use crate::lexicon::{Class, lookup};
use crate::pattern::fixed;
use crate::scene::{Found, Scene, changed_if};

/// A status that is told by a word, in the order in which the words are tried.
type Status = (&'static LazyLock<Regex>, &'static str);

fixed!(
    FORMER_SMOKER,
    r"戒(?:了)?烟|(?:已经?|早就|现在)?(?:不再|不)(?:抽烟?|吸烟)了|烟(?:已经?|早就|都)?戒了|以前(?:抽|吸)烟|\b(?:quit|stopped|gave up|given up) smoking\b|\b(?:ex|former)-?\s?smoker\b|\bused to smoke\b|\bno longer smoke\b|\bdon't smoke any ?more\b"
);
fixed!(
    NEVER_SMOKER,
    r"从(?:来)?(?:不|没有?|未)(?:抽|吸)(?:过)?烟|\bnever (?:smoked|been a smoker)\b|\b(?:am a )?never[- ]smoker\b"
);
fixed!(
    NON_SMOKER,
    r"(?:不|没有?|没在)(?:抽|吸)烟|无吸烟史|\b(?:don't|do not|doesn't|does not) smoke\b|\bnon-?smoker\b|\bnot a smoker\b"
);
fixed!(
    SMOKER,
    r"(?:我|他|她|爸|每天|一直|还|有|在|长期|经常|偶尔|开始|又)(?:在|都|还|也)?(?:抽|吸)(?:着)?烟|(?:抽|吸)烟(?:\d|[一二两三四五六七八九十]|史|多年|的习惯)|每天(?:抽|吸)?(?:\d|[一二两三半])+(?:包|根|支)烟?|\bi (?:still |currently |do )?smoke\b|\b(?:he|she) (?:still )?smokes\b|\b(?:am|is|'m) a (?:heavy |light |current )?smoker\b|\bsmok(?:e|es|ing) (?:a|one|two|half|\d+) (?:pack|packs|cigarettes)\b"
);

fixed!(
    PART_TIME,
    r"兼职|非全职|打零工|半职|\bworks? part[- ]?time\b|\bpart[- ]time (?:job|work|position)\b|\b(?:am|is|'m|now) (?:working |employed )?part[- ]time\b"
);
fixed!(
    NOT_IN_LABOR,
    r"未参加工作|不参加工作|没有?参加工作|不在劳动力|非劳动人口|\bnot in the labou?r force\b|\bout of the (?:labou?r|work)\s?force\b"
);
fixed!(
    UNEMPLOYED,
    r"失业(?:了|中|在家|$|,|。|状态)|待业|下岗|没有?工作(?:了|$|,|。)|没了工作|丢了工作|无业|被裁|\b(?:am|is|are|'m|'s|was|became|become|been|currently|now)\s+(?:\w+ )?unemployed\b|^unemployed|\blost (?:my|his|her) job\b|\bout of work\b|\blaid off\b|\b(?:between|looking for a) jobs?\b|\b(?:don't|do not) have a job\b|\bjobless\b"
);
fixed!(RETIRED, r"退休|离休|\bretired\b");
fixed!(
    STUDENT,
    r"(?:是|还是|在读|读)(?:一名|个)?(?:大|高中|中|小|初中|研究|博士|硕士)?学?生|在上(?:大学|高中|初中|学)|\b(?:am|is|'m) (?:still )?(?:a |an )?(?:full-time |college |university |high school |medical |phd |graduate )?student\b"
);
fixed!(
    SELF_EMPLOYED,
    r"自由职业|个体户|自己(?:开公司|创业|当老板)|\bself[- ]employed\b|\bfreelanc(?:e|er|ing)\b|\brun my own business\b"
);
fixed!(
    FULL_TIME,
    r"全职工作|全职上班|全职(?:$|,|。|\.)|\bworks? full[- ]?time\b|\bfull[- ]time (?:job|work|position|employee)\b|\b(?:am|is|'m|now) (?:working |employed )?full[- ]time\b"
);
fixed!(
    EMPLOYED,
    r"(?:找到|有)(?:了)?(?:新|一份)?工作|\b(?:got|found|started|have) a (?:new )?job\b"
);

fixed!(
    NOT_PREGNANT,
    r"(?:没有?|未|不是)怀孕|没怀(?:上|孕)|\bnot (?:actually |currently )?pregnant\b|\b(?:am|is|'m)n't pregnant\b"
);
fixed!(
    TRYING,
    r"备孕|准备怀孕|想要孩子|\btrying (?:to conceive|for a baby|to get pregnant)\b"
);
fixed!(
    BREASTFEEDING,
    r"哺乳期|喂奶|母乳喂养|\bbreast-?feeding\b|\bnursing (?:my|a) baby\b"
);
fixed!(
    POSTPARTUM,
    r"(?:刚|已经?|上个月|上周|昨天)?生(?:了|完)(?:孩子|宝宝|小孩|老大|老二|一个)|产后|流产了|\bgave birth\b|\bpostpartum\b|\bmiscarr\w+\b|\bhad (?:a|my|the) baby\b"
);
fixed!(
    PREGNANT,
    r"怀孕(?:了|\d|[一二两三四五六七八九十]|$|,)|已怀孕|孕(?:\d{1,2}|[一二三四五六七八九十]{1,3})周|有喜了|怀上(?:了|宝宝)|\b(?:am|is|be|was|were|'m|i'm|she's|got|became|currently|now) (?:\w+ ){0,3}pregnant\b|\b(?:am|is|'m|we're|are) expecting(?: a baby)?\b|\bpregnant with\b"
);

const SMOKING: [Status; 4] = [
    (&FORMER_SMOKER, "former_smoker"),
    (&NEVER_SMOKER, "never_smoker"),
    (&NON_SMOKER, "non_smoker"),
    (&SMOKER, "current_smoker"),
];
const EMPLOYMENT: [Status; 8] = [
    (&NOT_IN_LABOR, "not_in_labor_force"),
    (&UNEMPLOYED, "unemployed"),
    (&RETIRED, "retired"),
    (&PART_TIME, "part_time"),
    (&SELF_EMPLOYED, "self_employed"),
    (&FULL_TIME, "full_time"),
    (&STUDENT, "student"),
    (&EMPLOYED, "employed"),
];
const PREGNANCY: [Status; 5] = [
    (&NOT_PREGNANT, "not_pregnant"),
    (&TRYING, "trying_to_conceive"),
    (&BREASTFEEDING, "breastfeeding"),
    (&POSTPARTUM, "not_pregnant"),
    (&PREGNANT, "pregnant"),
];

fixed!(
    ADDRESS,
    r"(?:现在|目前|已经|以前)?(?:住在|住到|住址(?:是|改为|改成|变成|为|:)|地址(?:是|改为|改成|变更为|变成|为|:)|家住|搬(?:家)?(?:到|去|至|回)了?|现居|居住在|定居(?:在)?)\s*(?P<zh>[^,;:。]{2,40})|\b(?:live|lives|living|reside|residing) (?:in|at|on|near) (?P<en>[^,;]{2,60}(?:, [a-z ]{2,20})?)|\bmoved (?:back )?to (?P<en2>[^,;]{2,60})|\b(?:my )?(?:new |home |current )?address (?:is|:|has changed to|changed to) (?P<en3>[^;]{3,80})"
);
fixed!(
    OCCUPATION,
    r"(?:职业|工作)(?:是|:|为)(?:一名|一个|个|做)?(?P<zh>[^,;:。的]{2,12})|(?:我|他|她)?(?:是|当|做)(?:一名|一个|一位|个|了)?(?P<zh2>[^,;:。]{2,10}?)(?:的|工作)?$|\bwork(?:s|ing|ed)?(?: [a-z]+){0,5}? as (?:a|an|the) (?P<en>[a-z][a-z -]{2,30})|\b(?:my )?(?:occupation|profession|job) is (?:a |an )?(?P<en2>[a-z][a-z -]{2,30})|\b(?:am|is|'m|i'm|he's|she's) (?:a|an) (?P<en3>[a-z][a-z -]{2,24})"
);
fixed!(
    PAYOUT,
    r"(?:尾号|末四位|后四位|卡号(?:尾号|后四位)?)(?:是|为|:)?\s*(?P<zh>\d{3,6}|<[a-z_]+#[0-9a-z]+>)|\b(?:card|account)(?: \w+){0,2} (?:ending|ends)(?: in| with)?\s*(?P<en>\d{3,6})|\bending in (?P<en2>\d{3,6})|(?P<mark><(?:bank_)?(?:card|account)[a-z_]*#[0-9a-z]+>)"
);
fixed!(
    PAYOUT_CUE,
    r"退款|打款|打到|转到|汇到|返款|报销|收款|退到|退回|\b(?:refund|payout|reimburse\w*|pay me|deposit|transfer|send the money)\b"
);
fixed!(
    PAYOUT_CHANGE,
    r"改成|改为|改到|换成|换为|换到|更换|变更|\b(?:change|changed|switch|use|instead)\b"
);
fixed!(
    BLOOD_TYPE,
    r"(?P<zh>ab|a|b|o)\s*型(?:血)?(?:,|。|$|rh|的)?|血型(?:是|为|:)?\s*(?P<zh2>ab|a|b|o)|\bblood (?:type|group)(?: is|:)?\s*(?P<en>ab|a|b|o)\b"
);
fixed!(
    RHESUS,
    r"rh\s*(?:阴|-|neg)|熊猫血|\b(?:ab|a|b|o)\s*(?:-(?:\s|$|,|\.)|negative|neg\b)"
);
fixed!(
    RHESUS_POSITIVE,
    r"rh\s*(?:阳|\+|pos)|\b(?:ab|a|b|o)\s*(?:\+|positive|pos\b)"
);
fixed!(
    NAME,
    r"(?:我|本人)(?:改名叫|改名为|叫|的名字(?:是|叫)|姓名(?:是)?)(?:做)?\s*(?P<zh>\p{Han}{2,4}|[a-z][a-z' -]{1,30}?)了?(?:,|。|$)|^姓名[:是]\s*(?P<zh2>\p{Han}{2,4})|^(?:请)?叫我(?P<call>\p{Han}{1,4}|[a-z]{2,20})(?:就行|就好|吧)?$|\bmy (?:full )?name is (?P<en>[a-z][a-z'-]+(?: [a-z][a-z'-]+){0,2})|\b(?:please )?(?:call me|i go by) (?P<en2>[a-z]{2,20})$"
);
fixed!(
    INSURANCE,
    r"(?:医保|保险)(?:类型)?(?:是|为|改成|改为|:|在|用的是|参加的是)\s*(?P<zh>[^,;:。]{2,24})|(?:参加了?|参保的?(?:是)?|买了|投保了?|办了)(?P<zh2>[^,;:。]{0,16}(?:医保|保险|新农合|重疾险|医疗险))|\b(?:my )?(?:health )?insurance (?:is|:|provider is|changed to|is now|is with|is through)\s+(?P<en>[^,;:]{2,40})|\binsured (?:by|with|through) (?P<en2>[^,;:]{2,40})|\b(?:have|on|switched to) (?P<en3>medicare|medicaid|[a-z ]{2,24} insurance)\b"
);
fixed!(
    EN_END,
    r"\s+(?:and|but|because|since|when|so|with my|now|at the moment|for the|who|where|in case|by the way|these days|please|if|from|which|in (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|winter|the (?:spring|summer|fall|autumn|winter)|\d{4})|last|this|yesterday|today|recently|(?:\w+ )?\w+ (?:years?|months?|weeks?|days?) ago|on (?:mon|tues|wednes|thurs|fri|satur|sun))\w*.*$|\s*\.$"
);
fixed!(ZH_END, r"(?:了|的|吧|啊|呢|哦|呀)+$");
fixed!(
    CONDITIONAL_PLACE,
    r"^(?:哪|什么|这里?$|那里?$|院|the hospital|a hospital|hospital|pain|fear|constant|this|that|it|hope|my |him|her|them|me)"
);

pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    status(scene, "smoking_status", Kind::Fact, &SMOKING, &mut found);
    status(
        scene,
        "employment_status",
        Kind::Fact,
        &EMPLOYMENT,
        &mut found,
    );
    status(
        scene,
        "pregnancy_status",
        Kind::Condition,
        &PREGNANCY,
        &mut found,
    );
    address(scene, &mut found);
    occupation(scene, &mut found);
    payout(scene, &mut found);
    blood_type(scene, &mut found);
    named(scene, &mut found);
    found
}

fn status(
    scene: &Scene<'_>,
    attribute: &'static str,
    kind: Kind,
    table: &[Status],
    found: &mut Vec<Found>,
) {
    for (regex, value) in table {
        let Some(hit) = regex.find(scene.text) else {
            continue;
        };
        // Words that hold their own denial are listed; any other denied status tells nothing exact.
        let own_negation = hit.as_str();
        let outside = crate::negation::is_negated(scene.text, &scene.negators, 0..hit.start());
        if outside
            && !own_negation.contains(['不', '没', '无', '未'])
            && !own_negation.contains("not")
        {
            continue;
        }
        // "I was pregnant" tells nothing of today; it is looked for only to name what was refused.
        let is_past = (own_negation.starts_with("was ") || own_negation.starts_with("were "))
            && scene.modality.refused.is_none();
        if is_past {
            continue;
        }
        let is_other_smoke = ["二手", "大麻", "weed", "marijuana", "cannabis", "smoke pot"]
            .iter()
            .any(|w| scene.text.contains(w));
        if *value == "current_smoker" && is_other_smoke {
            continue;
        }
        found.push(Found::new(kind, attribute, *value, hit.start()).intent(scene.intent()));
        return;
    }
}

fn slot<'t>(hit: &regex::Captures<'t>, names: &[&str]) -> Option<regex::Match<'t>> {
    names.iter().find_map(|name| hit.name(name))
}

// Before "address": somewhere that a person is reached, not where they live.
fixed!(
    NOT_HOME,
    r"(?:邮寄|收货|寄件|收件|通信|通讯|快递|户籍|身份证|单位|公司|工作|邮箱|电子邮件)(?:的|上的)?$|\b(?:mailing|postal|shipping|delivery|billing|business|work|office|registered|legal|e-?mail|web)\s+$"
);

fn address(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let is_stay = [
        "计划",
        "打算",
        "旅行",
        "旅游",
        "出差",
        "酒店",
        "想住",
        "on vacation",
        "trip",
        "hotel",
        "want to live",
        "would love to",
    ]
    .iter()
    .any(|word| scene.text.contains(word));
    if is_stay {
        return;
    }
    let Some(hit) = ADDRESS.captures(scene.text) else {
        return;
    };
    let at = hit.get(0).map_or(0, |m| m.start());
    let Some(obj) = slot(&hit, &["zh", "en", "en2", "en3"]) else {
        return;
    };
    if NOT_HOME.is_match(&scene.text[..at]) {
        return;
    }
    let place = EN_END.replace(obj.as_str(), "");
    let place = ZH_END.replace(&place, "");
    let place = normalise(&place);
    if place.chars().count() < 2
        || CONDITIONAL_PLACE.is_match(&place)
        || scene.negated_before(at)
        || is_person(&place)
    {
        return;
    }
    let is_move = hit.get(0).is_some_and(|m| {
        m.as_str().contains('搬')
            || m.as_str().contains("moved")
            || m.as_str().contains('改')
            || m.as_str().contains('变')
    });
    let intent = changed_if(scene.intent(), is_move);
    found.push(Found::new(Kind::Fact, "address", place, at).intent(intent));
}

fn is_person(text: &str) -> bool {
    crate::subject::persons(text)
        .iter()
        .any(|p| p.start == 0 && p.end == text.len())
}

fn occupation(scene: &Scene<'_>, found: &mut Vec<Found>) {
    for hit in OCCUPATION.captures_iter(scene.text) {
        let at = hit.get(0).map_or(0, |m| m.start());
        let Some(obj) = slot(&hit, &["zh", "zh2", "en", "en2", "en3"]) else {
            continue;
        };
        let words = EN_END.replace(obj.as_str(), "");
        let words = ZH_END.replace(&words, "");
        let words = words.trim();
        let last_word = words.rsplit(' ').next().unwrap_or(words);
        let known =
            lookup(words, &[Class::Occupation]).or_else(|| lookup(last_word, &[Class::Occupation]));
        let is_told = hit.name("en").is_some() || scene.text.contains("职业");
        // "my teacher is a photographer" speaks of the teacher.
        let copula = hit.name("en3").map(|_| hit.get(0).map_or(0, |m| m.start()));
        let has_subject = copula.is_none_or(|at| {
            scene.text[at..].starts_with("i'm")
                || scene.text[at..].starts_with("he's")
                || scene.text[at..].starts_with("she's")
                || scene.persons.iter().any(|p| {
                    p.end <= at
                        && scene.text[p.end..at].trim().is_empty()
                        && &scene.text[p.start..p.end] != "my"
                })
        });
        if !has_subject {
            continue;
        }
        let value = match known {
            Some(name) => name.to_owned(),
            None if is_told => normalise(words),
            None => continue,
        };
        if !scene.negated_before(at) && value.chars().count() <= 30 {
            found.push(Found::new(Kind::Fact, "occupation", value, at).intent(scene.intent()));
            return;
        }
    }
}

fn payout(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let Some(hit) = PAYOUT.captures(scene.text) else {
        return;
    };
    let Some(obj) = slot(&hit, &["zh", "en", "en2", "mark"]) else {
        return;
    };
    let changes = PAYOUT_CHANGE.is_match(scene.text);
    if !(PAYOUT_CUE.is_match(scene.text) || changes) || scene.negated_before(obj.start()) {
        return;
    }
    let intent = changed_if(scene.intent(), changes);
    let at = hit.get(0).map_or(0, |m| m.start());
    found.push(Found::new(Kind::Fact, "payout_account", obj.as_str(), at).intent(intent));
}

fn blood_type(scene: &Scene<'_>, found: &mut Vec<Found>) {
    if !(scene.text.contains('血') || scene.text.contains("blood")) {
        return;
    }
    let Some(hit) = BLOOD_TYPE.captures(scene.text) else {
        return;
    };
    let Some(group) = slot(&hit, &["zh", "zh2", "en"]) else {
        return;
    };
    let rest = &scene.text[hit.get(0).map_or(0, |m| m.start())..];
    let sign = if RHESUS.is_match(rest) {
        " negative"
    } else if RHESUS_POSITIVE.is_match(rest) {
        " positive"
    } else {
        ""
    };
    if !scene.negated_before(group.start()) {
        found.push(
            Found::new(
                Kind::Fact,
                "blood_type",
                format!("{}{sign}", group.as_str()),
                group.start(),
            )
            .intent(scene.intent()),
        );
    }
}

fn named(scene: &Scene<'_>, found: &mut Vec<Found>) {
    if let Some(hit) = NAME.captures(scene.text)
        && let Some(name) = slot(&hit, &["zh", "zh2", "call", "en", "en2"])
        && !is_person(name.as_str())
    {
        let value = normalise(EN_END.replace(name.as_str(), "").trim_end_matches('了'));
        found.push(
            Found::new(
                Kind::Fact,
                "name",
                value,
                hit.get(0).map_or(0, |m| m.start()),
            )
            .intent(scene.intent()),
        );
    }
    if let Some(hit) = INSURANCE.captures(scene.text)
        && let Some(obj) = slot(&hit, &["zh", "zh2", "en", "en2", "en3"])
    {
        let at = hit.get(0).map_or(0, |m| m.start());
        let words = EN_END.replace(obj.as_str(), "");
        let value = normalise(&ZH_END.replace(&words, ""));
        if value.chars().count() >= 2 && !scene.negated_before(at) {
            found.push(Found::new(Kind::Fact, "insurance", value, at).intent(scene.intent()));
        }
    }
}
