//! Which words of a question ask for a kind of memory, in both languages? Data, not rules: a word here
//! makes a question in one language meet a memory in the other, without any model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::tokens;

const CUES: &[(Kind, &[&str])] = &[
    (
        Kind::Allergy,
        &["allergy", "allergic", "allergen", "过敏", "eat", "能吃"],
    ),
    (
        Kind::Contraindication,
        &[
            "contraindication",
            "contraindicated",
            "禁忌",
            "慎用",
            "禁用",
        ],
    ),
    (
        Kind::Medication,
        &[
            "medication",
            "medicine",
            "med",
            "drug",
            "tablet",
            "pill",
            "prescription",
            "dose",
            "dosage",
            "taking",
            "药",
            "吃药",
            "用药",
            "服药",
            "服用",
            "药物",
            "剂量",
            "用量",
        ],
    ),
    (
        Kind::Condition,
        &[
            "condition",
            "disease",
            "illness",
            "diagnosis",
            "diagnosed",
            "病",
            "疾病",
            "病史",
            "毛病",
            "病症",
            "患病",
            "得病",
            "生病",
            "ill",
            "sick",
            "ailment",
            "诊断",
            "确诊",
            "慢病",
            "慢性",
        ],
    ),
    (
        Kind::Procedure,
        &["surgery", "operation", "procedure", "手术", "开刀"],
    ),
    (
        Kind::Measurement,
        &[
            "measurement",
            "reading",
            "指标",
            "化验",
            "检验",
            "测量",
            "数值",
        ],
    ),
    (
        Kind::Preference,
        &[
            "prefer",
            "preference",
            "favorite",
            "favourite",
            "like",
            "喜欢",
            "偏好",
            "爱好",
            "口味",
            "喜好",
        ],
    ),
    (
        Kind::Event,
        &[
            "appointment",
            "visit",
            "预约",
            "复查",
            "复诊",
            "就诊",
            "挂号",
            "看病",
            "checkup",
        ],
    ),
    (
        Kind::Constraint,
        &["constraint", "restriction", "要求", "限制", "忌口"],
    ),
    (Kind::Policy, &["policy", "规定", "政策", "制度"]),
    (Kind::Lesson, &["lesson", "教训", "经验"]),
];

/// Words that stand for kinds or attributes of memory wherever they stand in a question.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Cue {
    pub kinds: &'static [Kind],
    pub attributes: &'static [&'static str],
    /// Han words are found anywhere, Latin ones between word edges.
    words: &'static [&'static str],
}

const fn cue(
    kinds: &'static [Kind],
    attributes: &'static [&'static str],
    words: &'static [&'static str],
) -> Cue {
    Cue {
        kinds,
        attributes,
        words,
    }
}

/// Every attribute of the table that a question can ask for by a word of its own, and the longer words
/// for kinds. Attributes that are a kind's own (allergy, medication …) are asked for by the kind.
#[rustfmt::skip]
const PHRASES: &[Cue] = &[
    cue(&[], &["payout_account"], &[
        "退款到账", "退款", "退钱", "退到", "打款", "打到", "打给", "转到", "汇到", "返款", "报销款", "报销", "收款账户", "收款账号",
        "收款", "银行卡号", "银行卡", "卡号", "尾号", "哪张卡", "账户", "账号", "refund", "refunds", "refunded", "payout",
        "payouts", "reimburse", "reimbursed", "reimbursement", "bank account", "bank card", "card number",
        "card", "account", "account number",
    ]),
    cue(&[], &["address"], &[
        "家庭住址", "家庭地址", "住址", "地址", "住在哪里", "住在哪儿", "住在哪", "住哪里", "住哪儿", "住哪", "家在哪里", "家在哪", "住在", "居住地",
        "居住", "home address", "address", "live", "lives", "living", "reside",
    ]),
    cue(&[], &["weight"], &["体重", "多重", "几斤", "多少斤", "多少公斤", "weight", "weigh", "weighs", "how heavy"]),
    cue(&[], &["height"], &["身高", "多高", "个子", "height", "how tall", "tall"]),
    cue(&[], &["blood_type"], &["什么血型", "哪种血型", "血型", "blood type", "blood group"]),
    cue(&[], &["occupation", "employment_status"], &[
        "做什么工作", "什么工作", "工作单位", "工作", "职业", "上班", "就业", "退休", "occupation", "profession", "job", "work", "works",
        "for a living", "employment", "employed", "unemployed", "retired",
    ]),
    cue(&[], &["smoking_status"], &["吸烟史", "抽烟", "吸烟", "戒烟", "烟", "smoke", "smokes", "smoker", "smoking"]),
    cue(&[], &["pregnancy_status"], &[
        "怀孕", "备孕", "孕期", "哺乳期", "哺乳", "怀上", "pregnant", "pregnancy", "breastfeeding", "expecting",
    ]),
    cue(&[], &["insurance"], &["医疗保险", "医保", "保险", "参保", "insurance", "insured", "insurer"]),
    cue(&[], &["name"], &["叫什么名字", "叫什么", "名字", "姓名", "贵姓", "name", "full name", "called"]),
    cue(&[], &["language"], &["什么语言", "哪种语言", "语言", "language", "speak"]),
    cue(&[], &["plan"], &["套餐", "subscription plan", "subscription"]),
    cue(&[], &["ckd_stage"], &["肾病几期", "肾病分期", "几期", "分期", "ckd stage", "ckd", "kidney disease stage", "what stage"]),
    cue(&[], &["glycaemic_status"], &["血糖状态", "糖代谢", "prediabetic", "diabetic", "prediabetes"]),
    cue(&[Kind::Allergy], &[], &[
        "药物过敏史", "药物过敏", "食物过敏", "过敏史", "过敏原", "过敏源", "过敏药物", "过敏情况", "过敏", "allergies", "drug allergies",
        "drug allergy",
    ]),
    cue(&[Kind::Contraindication], &[], &["禁忌症", "禁忌", "慎用", "禁用"]),
    cue(&[Kind::Medication], &[], &[
        "吃什么药", "吃哪些药", "用什么药", "用药史", "用药情况", "吃药", "用药", "服药", "药物", "药品", "药", "多少毫克", "几毫克", "多大剂量",
        "剂量", "用量", "服用", "在吃", "在服", "每天吃", "吃多少", "吃几片", "吃几粒", "几片", "几粒", "how many mg", "how much mg",
        "how many milligrams", "how many pills", "how many tablets", "what dose", "what dosage", "meds",
    ]),
    cue(&[Kind::Condition], &[], &[
        "什么病", "哪些病", "既往病史", "既往史", "病史", "疾病", "慢性病", "慢病", "基础病", "毛病", "病症", "患病", "得病", "生病", "诊断", "确诊",
        "健康问题", "身体状况", "病", "medical history", "health problem", "health problems", "health issue",
        "health issues", "medical conditions", "health condition", "health conditions", "suffer from",
        "suffers from",
    ]),
    cue(&[Kind::Procedure], &[], &["手术史", "手术", "开刀"]),
    cue(&[Kind::Measurement], &[], &["化验结果", "检验结果", "检查结果", "指标", "化验", "检验", "测量", "数值", "test results", "lab results"]),
    cue(&[Kind::Event], &["appointment", "examination"], &[
        "复查时间", "复查", "复诊", "预约", "挂号", "就诊", "看医生", "看病", "随访", "门诊", "appointment", "appointments",
        "follow-up", "follow up", "followup", "see the doctor", "see my doctor", "doctor visit",
        "next visit",
    ]),
    // Question words that say nothing of what is asked for, but would be cut into pairs.
    cue(&[], &[], &[
        "什么时候", "什么时间", "啥时候", "几月几号", "几号", "几点", "哪一天", "哪天", "何时", "请帮我", "帮我", "给我", "有没有", "是不是", "会不会",
    ]),
];

/// Where a question has such words.
pub(crate) fn find(question: &str) -> Vec<(Range<usize>, &'static Cue)> {
    static TABLE: OnceLock<(AhoCorasick, Vec<&'static Cue>)> = OnceLock::new();
    let (automaton, cues) = TABLE.get_or_init(|| {
        let mut words: Vec<&'static str> = Vec::new();
        let mut cues: Vec<&'static Cue> = Vec::new();
        for cue in PHRASES {
            words.extend(cue.words);
            cues.extend(cue.words.iter().map(|_| cue));
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(words)
            .expect("some hundred short words fit an automaton");
        (automaton, cues)
    });
    automaton
        .find_iter(question)
        .filter(|hit| stands_alone(question, hit.range()))
        .map(|hit| (hit.range(), cues[hit.pattern().as_usize()]))
        .collect()
}

/// A Latin word is not part of a longer one.
fn stands_alone(text: &str, range: Range<usize>) -> bool {
    let is_latin = |c: char| c.is_alphanumeric() && !tokens::is_han(c);
    let joins = |inside: Option<char>, outside: Option<char>| {
        inside.is_some_and(is_latin) && outside.is_some_and(is_latin)
    };
    let word = &text[range.clone()];
    let before = text[..range.start].chars().next_back();
    let after = text[range.end..].chars().next();
    !joins(word.chars().next(), before) && !joins(word.chars().next_back(), after)
}

/// Whether somebody wants a drug, or wants to know whether it may be had. A question for its dose or
/// time is none.
pub(crate) fn is_request(question: &str) -> bool {
    const HAN: &[&str] = &[
        "能",
        "可以",
        "可否",
        "能否",
        "可不可",
        "开",
        "给我",
        "帮我",
        "想要",
        "想吃",
        "想用",
        "想买",
        "来点",
        "要不要",
        "需要",
        "适合",
        "安全",
        "行吗",
        "行不行",
        "该不该",
        "应该",
        "推荐",
        "过敏",
        "禁忌",
    ];
    const HAN_FACTS: &[&str] = &[
        "多少",
        "几",
        "什么时候",
        "怎么",
        "为什么",
        "哪天",
        "吃过",
        "用过",
    ];
    const LATIN: &[&str] = &[
        "can",
        "could",
        "may",
        "should",
        "safe",
        "prescribe",
        "prescription",
        "give",
        "get",
        "want",
        "need",
        "ok",
        "okay",
        "recommend",
        "suitable",
        "try",
        "fine",
        "avoid",
        "allowed",
    ];
    const LATIN_FACTS: &[&str] = &["how", "when", "what", "which", "why", "where"];
    let lower = question.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let says = |words: &[&str]| {
        lower
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| words.contains(&word))
    };
    (has(HAN) && !has(HAN_FACTS)) || (says(LATIN) && !says(LATIN_FACTS))
}

/// Words that say nothing more once a question has named a kind or a thing.
pub(crate) fn is_light(token: &str) -> bool {
    const HAN: &str = "食物品东西呀嘛么不儿者于从由此该将让先再已才只更各另且但而其之嗯哦啦咱俺来自己多大小老共总位份次性型量卡钱症原因些得患吃喝服打做过开给帮查列出正说讲史记录清单全部所最新结果水平下次日期时间号天每毫克片种类名称本人谁家里面能可以要会还在是有没的了吗呢吧我你您他她它都和与及对把被什么哪怎多少几个这那就又也很啥去到为用点张想请问看病情况现目前经常";
    const LATIN: &[&str] = &[
        "take",
        "took",
        "taken",
        "taking",
        "use",
        "used",
        "using",
        "go",
        "goes",
        "going",
        "come",
        "next",
        "due",
        "latest",
        "recent",
        "value",
        "level",
        "result",
        "history",
        "record",
        "recorded",
        "kind",
        "type",
        "sort",
        "file",
        "prescribe",
        "prescribed",
        "safe",
        "ok",
        "okay",
        "fine",
        "give",
        "given",
        "been",
        "need",
        "want",
        "known",
        "list",
        "show",
        "tell",
        "please",
        "suffer",
        "diagnosed",
        "time",
        "date",
        "day",
        "daily",
        "every",
        "per",
        "mg",
        "milligram",
        "now",
        "currently",
        "current",
        "any",
        "some",
        "all",
        "from",
        "by",
        "there",
        "ever",
        "still",
        "much",
        "many",
        "long",
        "old",
        "know",
        "remember",
        "get",
        "got",
        "allowed",
        "scheduled",
        "booked",
        "send",
        "sent",
        "paid",
        "food",
        "thing",
        "number",
        "bank",
        "problem",
        "issue",
        "home",
    ];
    if token.chars().all(tokens::is_han) {
        return token.chars().all(|c| HAN.contains(c));
    }
    static LATIN_TOKENS: OnceLock<BTreeSet<String>> = OnceLock::new();
    LATIN_TOKENS
        .get_or_init(|| LATIN.iter().filter_map(|word| cue_token(word)).collect())
        .contains(token)
}

/// The kinds that `token` (as the text index sees it) asks for.
pub(crate) fn kinds_of(token: &str) -> &'static [Kind] {
    static TABLE: OnceLock<BTreeMap<String, Vec<Kind>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: BTreeMap<String, Vec<Kind>> = BTreeMap::new();
        for (kind, words) in CUES {
            for token in words.iter().filter_map(|word| cue_token(word)) {
                table.entry(token).or_default().push(*kind);
            }
        }
        table
    });
    table.get(token).map_or(&[], Vec::as_slice)
}

/// Tokens of every cue word of a kind: what the other language would say.
pub(crate) fn tokens_of(kind: Kind) -> &'static [String] {
    static TABLE: OnceLock<BTreeMap<Kind, Vec<String>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: BTreeMap<Kind, Vec<String>> = BTreeMap::new();
        for (kind, words) in CUES {
            let mut tokens: Vec<String> = words.iter().filter_map(|word| cue_token(word)).collect();
            tokens.sort();
            tokens.dedup();
            table.insert(*kind, tokens);
        }
        table
    });
    table.get(&kind).map_or(&[], Vec::as_slice)
}

/// The one token that stands for a word: a Latin word's stem, a Han word's bigram or its only character.
fn cue_token(word: &str) -> Option<String> {
    tokens::index_tokens(word).pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cue_is_the_token_that_a_question_has() {
        for (question, kind) in [
            ("What am I allergic to?", Kind::Allergy),
            ("我的过敏史", Kind::Allergy),
            ("Which medicines am I taking", Kind::Medication),
            ("我在吃什么药", Kind::Medication),
            ("any surgeries", Kind::Procedure),
            ("做过手术吗", Kind::Procedure),
        ] {
            let tokens = tokens::query_tokens(question);
            let asked = tokens.iter().any(|token| kinds_of(token).contains(&kind));
            assert!(asked, "{question}: {tokens:?}");
        }
    }

    #[test]
    fn every_han_cue_is_one_token_long() {
        for (_, words) in CUES {
            for word in *words {
                let is_han = word.chars().all(tokens::is_han);
                assert!(
                    !is_han || word.chars().count() <= 2,
                    "{word} is more than one bigram"
                );
            }
        }
    }
}
