//! Which words name the same relative? A question for a grandmother must find what was said of 奶奶.
//!
//! Only for relatives that are kept by their own word; father, mother, spouse, child and sibling have
//! one name already.

use anamnesis_domain::owner::Subject;

const SAME: &[&[&str]] = &[
    &[
        "grandmother",
        "grandma",
        "奶奶",
        "祖母",
        "外婆",
        "姥姥",
        "外祖母",
    ],
    &[
        "grandfather",
        "grandpa",
        "granddad",
        "爷爷",
        "祖父",
        "外公",
        "姥爷",
        "外祖父",
    ],
    &[
        "aunt", "auntie", "aunty", "姑姑", "姑妈", "姑", "姨", "姨妈", "阿姨", "小姨", "大姨",
        "舅妈", "婶婶", "婶", "伯母",
    ],
    &[
        "uncle", "叔叔", "叔", "伯伯", "伯父", "大伯", "舅舅", "舅", "姑父", "姨父",
    ],
    &[
        "cousin", "表哥", "表弟", "表姐", "表妹", "堂哥", "堂弟", "堂姐", "堂妹",
    ],
    &["nephew", "侄子", "外甥"],
    &["niece", "侄女", "外甥女"],
    &["grandson", "孙子", "外孙"],
    &["granddaughter", "孙女", "外孙女"],
    &["father-in-law", "岳父", "公公", "老丈人"],
    &["mother-in-law", "岳母", "婆婆", "丈母娘"],
    &["brother-in-law", "姐夫", "妹夫"],
    &["sister-in-law", "嫂子", "弟媳"],
    &["son-in-law", "女婿"],
    &["daughter-in-law", "儿媳", "儿媳妇"],
    &["stepfather", "stepdad", "继父", "后爸"],
    &["stepmother", "stepmom", "继母", "后妈"],
    &["friend", "朋友", "好友", "闺蜜"],
    &["neighbor", "neighbour", "邻居"],
    &["colleague", "coworker", "co-worker", "同事"],
    &["roommate", "flatmate", "室友", "舍友"],
    &["classmate", "同学"],
    &["boyfriend", "男朋友", "男友"],
    &["girlfriend", "女朋友", "女友"],
    &["fiance", "未婚夫"],
    &["fiancee", "未婚妻"],
    &["caregiver", "护工"],
    &["nanny", "保姆"],
    &["landlord", "房东"],
];

/// The other words for the relative. A word that is one of two relatives (姑姑 is an aunt, an aunt may
/// be 姨妈) is asked for in one direction only: 姑姑 never brings what was said of 姨妈.
pub(crate) fn other_words(subject: &Subject) -> Vec<Subject> {
    let Subject::Other(word) = subject else {
        return Vec::new();
    };
    let word = word.to_lowercase();
    let is_english = word.is_ascii();
    SAME.iter()
        .filter(|same| same.contains(&word.as_str()))
        .flat_map(|same| same.iter())
        .filter(|other| **other != word && (is_english || other.is_ascii()))
        .map(|other| Subject::Other((*other).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, found: &str, is_found: bool) {
        let others = other_words(&Subject::Other(word.to_owned()));
        let found = Subject::Other(found.to_owned());
        assert_eq!(others.contains(&found), is_found, "{word}: {found}");
    }

    #[test]
    fn a_relative_is_found_under_the_other_languages_word() {
        check("grandmother", "奶奶", true);
        check("奶奶", "grandma", true);
        check("aunt", "姑姑", true);
        check("姑姑", "aunt", true);
    }

    #[test]
    fn another_relative_is_not_found() {
        check("姑姑", "姨妈", false);
        check("奶奶", "外婆", false);
        check("grandmother", "爷爷", false);
        assert!(other_words(&Subject::Mother).is_empty());
    }
}
