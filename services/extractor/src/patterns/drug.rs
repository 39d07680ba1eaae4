//! What is a drug phrase called: with salts, forms and combinations, known or not?

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::lexicon::{Class, Mention, mentions};
use crate::pattern::compile;

/// One drug or one combination in a clause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Drug {
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
    /// How many known names make it up.
    pub(crate) parts: usize,
}

/// Between the parts of one combination stands a slash or plus, maybe with the first part's dose.
static JOINT: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"^(?:|\s*-\s*|(?:\s*\d+(?:\.\d+)?\s*(?:mg|mcg|g|μg|毫克|%)?)?\s*[/+]\s*)$")
});

static FORM: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?:缓释|控释|肠溶|分散|咀嚼|泡腾|口崩|软|硬|口服|吸入用?|雾化|外用|注射用|复方|滴眼|鼻用|自动注射)*(?:片剂|片|胶囊剂?|颗粒剂?|口服液|溶液|混悬液|糖浆|注射液|注射笔|针剂|针|粉针|滴眼液|滴丸|滴剂|软膏|乳膏|凝胶|贴剂?|喷雾剂?|气雾剂|粉吸入剂|吸入剂|栓剂?|丸剂?|散剂?|冲剂|合剂|酊|膏)$",
    )
});

static SALT: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^(?:盐酸|硫酸|马来酸|琥珀酸|苯磺酸|酒石酸|富马酸|磷酸|枸橼酸|醋酸|甲磺酸|氢溴酸|丙酸|糠酸|氢溴|二甲双胍盐)+",
    )
});

static EN_FORM: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:extended-release|extended release|sustained-release|delayed-release|chewable|oral|metered dose|dry powder|topical|er|xr|sr|cr|hydrochloride|hcl|sodium|potassium|calcium|maleate|succinate|tartrate|besylate|sulfate|phosphate|tablets?|pills?|capsules?|solution|suspension|injections?|inhaler|spray|cream|ointment|syrup|drops?|patch(?:es)?|auto-injector|shots?)\b",
    )
});

static DRUG_SHAPE: LazyLock<Regex> = LazyLock::new(|| {
    compile(concat!(
        r"(?:地平|普利|沙坦|洛尔|他汀|列汀|列净|格列\w|西林|霉素|沙星|拉唑|康唑|硝唑|替丁|替尼|单抗|韦|贝特|西泮|唑仑|昔布|洛芬|司琼|环素|鲁肽|那肽|双胍|噻嗪|松龙|米松|奈德|特罗|溴铵|司特|他定|拉敏|卡因|膦酸|膦酸钠|沙班|肝素|胰岛素|巴坦|胶囊|颗粒|口服液|注射液|滴眼液|软膏|缓释片|肠溶片|[^\s药刀图名照影唱]片|滴丸|地黄丸|止痛药|止咳糖浆)$",
        r"|(?:[a-z]{3,}pril|sartan|statin|olol|azole|cillin|mycin|micin|floxacin|gliptin|gliflozin|glutide|tidine|prazole|[a-z]mab|tinib|[a-z]vir|azepam|azolam|dipine|formin|triptan|setron|parin|xaban|oxetine|cycline|profen|thiazide|semide|fibrate|caine|barbital|solone|sone|tyline|ramine|tadine|dronate|glitazone|lukast|terol|tropium|quine|trozole|platin|taxel|rubicin|alol|afil|osin|amide|idone|apine)s?$",
    ))
});

/// Known drugs of a clause, combinations as one.
pub(crate) fn drugs(text: &str, known: &[Mention]) -> Vec<Drug> {
    let mut found: Vec<(Vec<&'static str>, Range<usize>)> = Vec::new();
    for mention in known.iter().filter(|m| m.class == Class::Drug) {
        if let Some((names, range)) = found.last_mut()
            && text
                .get(range.end..mention.start)
                .is_some_and(|gap| JOINT.is_match(gap))
        {
            names.push(mention.name);
            range.end = mention.end;
            continue;
        }
        found.push((vec![mention.name], mention.start..mention.end));
    }
    found
        .into_iter()
        .map(|(mut names, range)| {
            let parts = names.len();
            names.sort_unstable();
            names.dedup();
            Drug {
                name: names.join("-"),
                range,
                parts,
            }
        })
        .collect()
}

/// The canonical name of a phrase that is one known drug with its salt and form.
pub(crate) fn canonical(phrase: &str) -> Option<String> {
    let bare = without_form(phrase);
    let known = mentions(&bare);
    let found = drugs(&bare, &known);
    let [drug] = found.as_slice() else {
        return None;
    };
    let rest = format!("{} {}", &bare[..drug.range.start], &bare[drug.range.end..]);
    let rest: String = rest.chars().filter(|c| c.is_alphanumeric()).collect();
    rest.is_empty().then(|| drug.name.clone())
}

/// Whether an unknown word looks like a drug's name.
pub(crate) fn looks_like_drug(phrase: &str) -> bool {
    let phrase = phrase.trim();
    DRUG_SHAPE.is_match(phrase) || DRUG_SHAPE.is_match(&without_form(phrase))
}

/// An unknown drug's name in comparable form.
pub(crate) fn open_drug(phrase: &str) -> Option<String> {
    let bare = without_form(phrase);
    crate::scene::open_name(&bare).filter(|name| name.chars().count() >= 2)
}

fn without_form(phrase: &str) -> String {
    let phrase = phrase.trim();
    let no_salt = SALT.replace(phrase, "");
    let no_form = FORM.replace(&no_salt, "");
    let no_form = if no_form.trim().is_empty() {
        phrase.into()
    } else {
        no_form
    };
    EN_FORM
        .replace_all(&no_form, "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found: Vec<String> = drugs(text, &mentions(text))
            .into_iter()
            .map(|d| d.name)
            .collect();
        assert_eq!(found.join(", "), expected, "{text}");
    }

    #[test]
    fn a_combination_is_one_drug_in_both_languages() {
        check(
            "amoxicillin 250 mg / clavulanate 125 mg tablet",
            "amoxicillin-clavulanate",
        );
        check("阿莫西林克拉维酸钾片", "amoxicillin-clavulanate");
        check(
            "对乙酰氨基酚右美沙芬多西拉敏口服溶液",
            "acetaminophen-dextromethorphan-doxylamine",
        );
        check(
            "acetaminophen / dextromethorphan / doxylamine",
            "acetaminophen-dextromethorphan-doxylamine",
        );
        check(
            "sulfamethoxazole 800 mg / trimethoprim 160 mg",
            "sulfamethoxazole-trimethoprim",
        );
        check("metformin and aspirin", "metformin, aspirin");
    }

    #[test]
    fn salts_and_forms_do_not_make_another_drug() {
        assert_eq!(
            canonical("盐酸二甲双胍缓释片").as_deref(),
            Some("metformin")
        );
        assert_eq!(
            canonical("metoprolol succinate extended-release tablet").as_deref(),
            Some("metoprolol")
        );
        assert_eq!(canonical("花生"), None);
    }

    #[test]
    fn unknown_drugs_are_told_by_their_shape() {
        for word in ["塞利尼索胶囊", "zanubrutinib", "某某沙坦"] {
            assert!(looks_like_drug(word), "{word}");
        }
        for word in ["苹果", "照片", "vegetables", "the bus"] {
            assert!(!looks_like_drug(word), "{word}");
        }
    }
}
