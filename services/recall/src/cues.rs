//! Which words of a question ask for a kind of memory, in both languages? Data, not rules: a word here
//! makes a question in one language meet a memory in the other, without any model.

use std::collections::BTreeMap;
use std::sync::OnceLock;

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
            "drug",
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
        ],
    ),
    (
        Kind::Constraint,
        &["constraint", "restriction", "要求", "限制", "忌口"],
    ),
    (Kind::Policy, &["policy", "规定", "政策", "制度"]),
    (Kind::Lesson, &["lesson", "教训", "经验"]),
];

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
