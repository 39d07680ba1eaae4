//! Numbers about the body: weight, height, blood pressure, laboratory values.

use anamnesis_domain::memory::{EntityKind, Kind, Quantity};

use crate::lexicon::Class;
use crate::pattern::fixed;
use crate::quantity::{micros, written};
use crate::scene::{Found, Scene};

fixed!(WEIGHT, r"体重|\bweigh(?:s|ed|t)?\b|\bbody weight\b");
fixed!(
    HEIGHT,
    r"身高|个子|\bheight\b|\bi(?:'m| am) \d(?:'|\.\d+ ?m|\d\d ?cm)|\btall\b"
);
fixed!(
    METRES,
    r"(?P<m>1|2|一|两)\s*米\s*(?P<cm>\d{1,2}|[一二三四五六七八九]{1,2})"
);
fixed!(
    FEET,
    r"(?P<ft>[3-7])\s*(?:'|ft\.?|feet|foot)\s*(?P<in>\d{1,2})?"
);
fixed!(
    PRESSURE,
    r"(?:血压|\bblood pressure\b|\bbp\b)[^\d,;]{0,24}?(?P<s>\d{2,3})\s*(?:/|over|比)\s*(?P<d>\d{2,3})"
);
fixed!(
    VALUE,
    r"^\s*(?:\([^)]{0,12}\))?\s*(?:(?:has |have )?(?:dropped|fell|rose|went (?:up|down)|increased|decreased|improved|从|由)\s*(?:from\s*)?\d+(?:\.\d+)?\s*(?:%|mmol/l|mg/dl)?\s*(?:to|到|降到|降至|升到|升至|变成|涨到)\s*)?(?:检查|测定|结果|水平|值|level|reading|result|count)?s?\s*(?:今天|今早|上次|昨天|现在|目前|最近|刚才|today|yesterday|this morning|last (?:week|month|time)|currently)?\s*(?:测(?:的|了|出来)?(?:是)?|查(?:的|出)?(?:是)?|量(?:的|了)?(?:是)?|是|为|有|到|达|高达|只有|升到|降到|了|:|=|was|is|of|at|came back(?: at)?|measured|reads?|are|were|has been|now|about|around|dropped to|rose to|went (?:up|down) to)*\s*(?P<n>\d{1,4}(?:\.\d{1,3})?)\s*(?P<unit>mmol/l|umol/l|μmol/l|mg/dl|mg/l|g/l|g/dl|u/l|iu/l|miu/l|ng/ml|pg/ml|mmhg|%|℃|°c|°f|度|bpm|次/分钟|次/分|次|x?10\^9/l|kg/m2)?"
);
// A goal or a limit is no measurement.
fixed!(
    GOAL,
    r"目标|控制在|不(?:要|能)超过|不超过|低于|高于|以下|以上|之间|范围|正常值|标准|\b(?:target|goal|below|under|above|limit|threshold|should be|supposed to be|normal range|less than|more than|aim|between)\b"
);

/// Tests whose number needs no unit to be understood.
const UNITLESS: [&str; 6] = [
    "inr",
    "hba1c",
    "bmi",
    "heart rate",
    "egfr",
    "oxygen saturation",
];

pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    if GOAL.is_match(scene.text) {
        return found;
    }
    weight(scene, &mut found);
    height(scene, &mut found);
    pressure(scene, &mut found);
    tests(scene, &mut found);
    found
}

fn weight(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let Some(cue) = WEIGHT.find(scene.text) else {
        return;
    };
    let amount = scene
        .amounts
        .iter()
        .find(|a| a.start >= cue.end() && a.quantity.unit == "kg" && !a.is_range);
    if let Some(amount) = amount.filter(|a| scene.text[cue.end()..a.start].chars().count() <= 20) {
        let quantity = last_of_change(scene, amount.quantity.clone(), "kg");
        found.push(
            measured(
                "weight",
                written(&quantity),
                quantity,
                cue.start(),
                "weight",
            )
            .intent(scene.intent()),
        );
    }
}

/// "from 80 kg to 72 kg": the new one.
fn last_of_change(scene: &Scene<'_>, first: Quantity, unit: &str) -> Quantity {
    let is_change = scene.text.contains('从') || scene.text.contains("from ");
    let last = scene
        .amounts
        .iter()
        .rfind(|a| a.quantity.unit == unit)
        .map(|a| a.quantity.clone());
    if is_change {
        last.unwrap_or(first)
    } else {
        first
    }
}

fn height(scene: &Scene<'_>, found: &mut Vec<Found>) {
    let Some(cue) = HEIGHT.find(scene.text) else {
        return;
    };
    let text = scene.text;
    let cm = |centimetres: i64| Quantity {
        micros: centimetres * 1_000_000,
        unit: "cm".to_owned(),
    };
    let quantity = if let Some(hit) = METRES.captures(text) {
        let whole = if matches!(&hit["m"], "1" | "一") {
            100
        } else {
            200
        };
        let part = &hit["cm"];
        let value = i64::from(crate::quantity::han_number(part).unwrap_or(0));
        // 1米7 is 170, 1米75 is 175.
        Some(cm(whole
            + if part.chars().count() == 1 {
                value * 10
            } else {
                value
            }))
    } else if let Some(hit) = FEET.captures(text) {
        let feet: i64 = hit["ft"].parse().unwrap_or(0);
        let inches: i64 = hit
            .name("in")
            .and_then(|m| m.as_str().parse().ok())
            .unwrap_or(0);
        Some(Quantity {
            micros: (feet * 12 + inches) * 2_540_000,
            unit: "cm".to_owned(),
        })
    } else {
        scene
            .amounts
            .iter()
            .find(|a| a.quantity.unit == "cm")
            .map(|a| a.quantity.clone())
    };
    let is_body = |q: &Quantity| (30_000_000..=260_000_000).contains(&q.micros);
    if let Some(quantity) = quantity.filter(is_body) {
        found.push(
            measured(
                "height",
                written(&quantity),
                quantity,
                cue.start(),
                "height",
            )
            .intent(scene.intent()),
        );
    }
}

fn pressure(scene: &Scene<'_>, found: &mut Vec<Found>) {
    for hit in PRESSURE.captures_iter(scene.text) {
        let anchor = hit.get(0).map_or(0, |m| m.start());
        for (group, name) in [
            ("s", "systolic blood pressure"),
            ("d", "diastolic blood pressure"),
        ] {
            let Some(micros) = micros(&hit[group]) else {
                continue;
            };
            let quantity = Quantity {
                micros,
                unit: "mmhg".to_owned(),
            };
            found.push(
                measured(
                    "measurement",
                    name.to_owned(),
                    quantity,
                    anchor,
                    "blood pressure",
                )
                .intent(scene.intent()),
            );
        }
    }
}

fn tests(scene: &Scene<'_>, found: &mut Vec<Found>) {
    for test in scene.of_class(Class::Test) {
        let Some(hit) = VALUE.captures(&scene.text[test.end..]) else {
            continue;
        };
        let number = hit.name("n").expect("the slot is not optional");
        let after = &scene.text[test.end + number.end()..];
        let unit = hit.name("unit").map(|m| m.as_str());
        let is_bare = unit.is_none();
        // "空腹血糖 2026年", "CT 3 次" and "a1c 7/2" name no value.
        let is_other = after.starts_with([
            '年', '月', '日', '号', '点', '天', '周', '个', '/', '-', ':', '+', '岁', '次', '项',
        ]);
        if is_bare
            && (!UNITLESS.contains(&test.name)
                && test.name != "blood glucose"
                && test.name != "fasting glucose"
                || is_other)
            || test.name == "blood pressure"
        {
            continue;
        }
        let Some(micros) = micros(number.as_str()) else {
            continue;
        };
        let unit = match (unit, test.name) {
            (Some("umol/l" | "μmol/l"), _) => "umol/l",
            (Some("℃" | "°c" | "度"), _) => "celsius",
            (Some("°f"), _) => "fahrenheit",
            (Some("次/分钟" | "次/分" | "次" | "bpm"), _) | (None, "heart rate") => "bpm",
            (Some("iu/l"), _) => "u/l",
            (Some("g/dl"), _) => "g/dl",
            (None, "hba1c" | "oxygen saturation") => "%",
            (Some(unit), _) => unit,
            (None, _) => "",
        };
        let quantity = Quantity {
            micros,
            unit: unit.to_owned(),
        };
        found.push(
            measured(
                "measurement",
                test.name.to_owned(),
                quantity,
                test.start,
                test.name,
            )
            .intent(scene.intent()),
        );
    }
}

fn measured(
    attribute: &'static str,
    value: String,
    quantity: Quantity,
    anchor: usize,
    test: &str,
) -> Found {
    let mut found =
        Found::new(Kind::Measurement, attribute, value, anchor).entity(EntityKind::Test, test);
    found.quantity = Some(quantity);
    found
}
