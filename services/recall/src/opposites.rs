//! Which words rule each other out? Who asks about the left knee is not answered by the right one, however
//! alike the two sentences are: they share every other word, and their vectors are near neighbours.

use std::sync::LazyLock;

use anamnesis_domain::tokens::is_han;
use regex::Regex;

/// Words of one row that mean different things; within a cell they mean the same. A word that is part of
/// another one of its row (甲 of 甲状腺) must not stand here.
const OPPOSITES: &[&[&[&str]]] = &[
    &[
        &[
            "左侧",
            "左边",
            "左手",
            "左脚",
            "左腿",
            "左臂",
            "左眼",
            "左耳",
            "左膝",
            "左肩",
            "左髋",
            "左肾",
            "左肺",
            "左乳",
            "左踝",
            "左腕",
            "左肘",
            "左下",
            "左上",
            "left knee",
            "left hip",
            "left shoulder",
            "left eye",
            "left ear",
            "left foot",
            "left leg",
            "left arm",
            "left hand",
            "left wrist",
            "left ankle",
            "left elbow",
            "left kidney",
            "left lung",
            "left breast",
            "left ovary",
            "left testicle",
            "left thyroid",
            "left side",
            "left-sided",
            "left one",
            "on the left",
            "on my left",
        ],
        &[
            "右侧",
            "右边",
            "右手",
            "右脚",
            "右腿",
            "右臂",
            "右眼",
            "右耳",
            "右膝",
            "右肩",
            "右髋",
            "右肾",
            "右肺",
            "右乳",
            "右踝",
            "右腕",
            "右肘",
            "右下",
            "右上",
            "right knee",
            "right hip",
            "right shoulder",
            "right eye",
            "right ear",
            "right foot",
            "right leg",
            "right arm",
            "right hand",
            "right wrist",
            "right ankle",
            "right elbow",
            "right kidney",
            "right lung",
            "right breast",
            "right ovary",
            "right testicle",
            "right thyroid",
            "right side",
            "right-sided",
            "right one",
            "on the right",
            "on my right",
        ],
    ],
    &[&["上肢", "upper limb"], &["下肢", "lower limb"]],
    &[&["房性", "atrial"], &["室性", "ventricular"]],
    &[
        &["收缩压", "高压", "systolic"],
        &["舒张压", "低压", "diastolic"],
    ],
    &[
        &[
            "空腹",
            "没吃东西",
            "没吃早饭",
            "没吃早餐",
            "早饭前",
            "早餐前",
            "fasting",
            "on an empty stomach",
            "before breakfast",
        ],
        &[
            "餐后",
            "饭后血糖",
            "吃完饭",
            "吃过饭",
            "postprandial",
            "after meals",
            "after a meal",
            "after eating",
        ],
    ],
    &[
        &["1型", "一型", "ⅰ型", "type 1", "type i", "type one"],
        &["2型", "二型", "ⅱ型", "type 2", "type ii", "type two"],
    ],
    &[
        &["甲肝", "甲型肝炎", "hepatitis a"],
        &["乙肝", "乙型肝炎", "hepatitis b"],
        &["丙肝", "丙型肝炎", "hepatitis c"],
    ],
    &[
        &["长效", "基础胰岛素", "long-acting", "basal"],
        &[
            "短效",
            "速效",
            "餐时",
            "short-acting",
            "rapid-acting",
            "bolus",
            "mealtime",
        ],
    ],
    &[
        &[
            "甲亢",
            "甲状腺功能亢进",
            "hyperthyroidism",
            "overactive thyroid",
        ],
        &[
            "甲减",
            "甲状腺功能减退",
            "hypothyroidism",
            "underactive thyroid",
        ],
    ],
    &[
        &["低血压", "hypotension", "low blood pressure"],
        &["高血压", "hypertension", "high blood pressure"],
    ],
    &[
        &["低血糖", "hypoglycemia", "hypoglycaemia"],
        &["高血糖", "hyperglycemia", "hyperglycaemia"],
    ],
    &[
        &["近视", "short-sighted", "nearsighted"],
        &["远视", "far-sighted", "farsighted", "long-sighted"],
    ],
    // What a disease is like: one and the same noun, told apart by nothing but this word.
    &[&["急性", "acute"], &["慢性", "chronic"]],
    &[
        &["病毒性", "viral"],
        &["细菌性", "bacterial"],
        &["真菌性", "fungal"],
    ],
    &[
        &["原发性", "primary hypertension"],
        &["继发性", "secondary hypertension"],
    ],
    &[&["良性", "benign"], &["恶性", "malignant"]],
    &[
        &["缺血性", "ischemic", "ischaemic"],
        &["出血性", "hemorrhagic", "haemorrhagic"],
    ],
    &[
        &["阻塞性睡眠", "obstructive sleep"],
        &["中枢性睡眠", "central sleep"],
    ],
    &[
        &["湿性", "wet macular", "wet amd"],
        &["干性", "dry macular", "dry amd"],
    ],
    &[
        &["湿咳", "productive cough", "wet cough"],
        &["干咳", "dry cough"],
    ],
    &[
        &[
            "内痔",
            "internal hemorrhoid",
            "internal haemorrhoid",
            "internal pile",
        ],
        &[
            "外痔",
            "external hemorrhoid",
            "external haemorrhoid",
            "external pile",
        ],
    ],
    // How something is given or done.
    &[
        &["口服", "oral"],
        &[
            "静脉注射",
            "静脉滴注",
            "静脉输注",
            "静脉用",
            "静脉铁",
            "iv",
            "intravenous",
        ],
        &["吸入", "inhaled"],
        &["外用", "topical"],
    ],
    &[
        &["胰岛素泵", "insulin pump"],
        &[
            "胰岛素注射",
            "胰岛素针",
            "insulin injection",
            "insulin shot",
            "insulin pen",
        ],
    ],
    &[
        &[
            "全麻",
            "全身麻醉",
            "general anesthesia",
            "general anaesthesia",
            "general anesthetic",
        ],
        &[
            "局麻",
            "局部麻醉",
            "local anesthesia",
            "local anaesthesia",
            "local anesthetic",
        ],
    ],
    &[
        &["剖宫产", "剖腹产", "c-section", "cesarean", "caesarean"],
        &["顺产", "自然分娩", "vaginal birth", "vaginal delivery"],
    ],
    &[
        &[
            "术前",
            "手术前",
            "before surgery",
            "before the surgery",
            "before my surgery",
            "preoperative",
        ],
        &[
            "术后",
            "手术后",
            "after surgery",
            "after the surgery",
            "after my surgery",
            "postoperative",
        ],
    ],
    &[
        &["尼古丁贴", "戒烟贴", "nicotine patch", "nicotine patches"],
        &["尼古丁口香糖", "戒烟口香糖", "nicotine gum"],
    ],
    // The vessel or duct that something is laid into.
    &[
        &["冠脉", "冠状动脉", "心脏支架", "coronary"],
        &["颈动脉", "carotid"],
        &["输尿管", "ureteral", "ureteric"],
        &["胆管", "胆道", "biliary", "bile duct"],
    ],
    // Where or when something was.
    &[&["门诊", "outpatient"], &["住院", "inpatient"]],
    &[
        &["夏天", "夏季", "in summer", "in the summer"],
        &["冬天", "冬季", "in winter", "in the winter"],
    ],
    &[
        &["家庭血压", "home blood pressure", "home reading"],
        &[
            "诊室血压",
            "office blood pressure",
            "clinic blood pressure",
            "office reading",
        ],
    ],
    &[
        &["静息心率", "resting heart rate", "resting pulse"],
        &["运动心率", "exercise heart rate", "exercise pulse"],
    ],
    &[&["增强", "with contrast"], &["平扫", "without contrast"]],
    &[&["胃镜", "gastroscopy"], &["肠镜", "colonoscopy"]],
];

/// What a word of a row stands in without meaning it: a chronic disease has acute phases.
const NOT_MEANT: [&str; 5] = [
    "急性加重",
    "急性发作",
    "acute exacerbation",
    "acute attack",
    "acute phase",
];

/// One row as patterns, one for each meaning.
static ROWS: LazyLock<Vec<Vec<Regex>>> = LazyLock::new(|| {
    let pattern = |words: &&[&str]| {
        let one = |word: &&str| {
            let escaped = regex::escape(word);
            if word.chars().any(is_han) || !word.is_ascii() {
                escaped
            } else {
                format!(r"\b{escaped}s?\b")
            }
        };
        let any: Vec<String> = words.iter().map(one).collect();
        Regex::new(&any.join("|")).expect("fixed words; every one is compiled by a test")
    };
    let row = |row: &&[&[&str]]| row.iter().map(pattern).collect();
    OPPOSITES.iter().map(row).collect()
});

/// The meanings that a question names, by row: the ones asked for in rows where it does not name all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Opposites(Vec<(usize, Vec<usize>)>);

impl Opposites {
    pub(crate) fn of(question: &str) -> Self {
        let question = plain(question);
        let rows = ROWS.iter().enumerate().filter_map(|(at, row)| {
            let named: Vec<usize> = named(row, &question);
            let tells = !named.is_empty() && named.len() < row.len();
            tells.then_some((at, named))
        });
        Self(rows.collect())
    }

    /// Whether a memory speaks of the other one and not of the one asked about.
    pub(crate) fn rule_out(&self, memory: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let memory = plain(memory);
        self.0.iter().any(|(at, asked)| {
            let told = named(&ROWS[*at], &memory);
            !told.is_empty() && told.iter().all(|one| !asked.contains(one))
        })
    }
}

fn plain(text: &str) -> String {
    let mut text = text.to_lowercase();
    for words in NOT_MEANT {
        if text.contains(words) {
            text = text.replace(words, " ");
        }
    }
    text
}

fn named(row: &[Regex], text: &str) -> Vec<usize> {
    let meanings = row.iter().enumerate();
    meanings
        .filter(|(_, words)| words.is_match(text))
        .map(|(meaning, _)| meaning)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(question: &str, memory: &str, is_ruled_out: bool) {
        let opposites = Opposites::of(question);
        assert_eq!(
            opposites.rule_out(memory),
            is_ruled_out,
            "{question} / {memory}"
        );
    }

    #[test]
    fn the_other_side_does_not_answer() {
        check("我左膝什么时候做的手术？", "右膝去年换了关节", true);
        check("我左膝什么时候做的手术？", "左膝前年做了关节镜", false);
        check(
            "Which shoulder hurts, the left one?",
            "My right shoulder hurts",
            true,
        );
        check(
            "What about my left hip?",
            "Left hip replaced, right hip is fine",
            false,
        );
        check("Is type 2 diabetes mine?", "I have type 1 diabetes", true);
        check("空腹血糖多少", "餐后血糖 9.1", true);
        check("我的舒张压", "收缩压 150", true);
        check("我的慢性胃炎有几年了", "国庆吃坏了，急性胃炎", true);
        check(
            "How was my acute bronchitis treated?",
            "I have chronic bronchitis",
            true,
        );
        check("早上没吃东西时血糖多少", "餐后血糖 9.1", true);
        check("Oral iron, how did I bear it?", "IV iron was fine", true);
        check(
            "How many insulin injections?",
            "I got my insulin pump",
            true,
        );
    }

    #[test]
    fn a_phase_of_a_disease_is_not_the_other_kind() {
        check("我的慢性阻塞性肺病怎么样", "慢阻肺急性加重住院", false);
        check(
            "How is my chronic COPD?",
            "COPD, acute exacerbation in May",
            false,
        );
    }

    #[test]
    fn who_names_both_or_none_rules_out_nothing() {
        check("左侧和右侧都做了吗", "右侧做了", false);
        check("膝盖做过手术吗", "右膝做了手术", false);
        check("Am I all right?", "The left knee hurts", false);
        check("left or right hip?", "my right hip", false);
    }
}
