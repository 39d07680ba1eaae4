//! What was done (examinations, operations) and what is due (appointments, with their time).

use anamnesis_domain::memory::{EntityKind, Intent, Kind};

use crate::dates::{Direction, Grain, Moment, time_alone};
use crate::lexicon::{Class, Mention};
use crate::pattern::fixed;
use crate::scene::{Found, Holds, Scene};

fixed!(
    DONE,
    r"[做查验抽拍打行动完测][了过的完]|了|过(?:敏)?|刚[做查验抽拍打]|接受(?:了|过)|去做|去查|已[做查行]|\b(?:had|did|got|underwent|went (?:for|through|in for)|went|completed|finished|received|has been|have had|'ve had|was|were|showed|shows|came back|done|took|removed|replaced)\b"
);
fixed!(
    DUE,
    r"预约|约了|约好|约在|挂了.{0,8}号|挂号|要去|要做|需要做|得去|将|打算做|准备做|安排|定在|定于|排在|复查|复诊|空腹|该[去做]|\b(?:appointment|scheduled|booked|due|will|going to|have (?:a|an|my)|'ll|need to|needs to|is on|is at|coming up|set for|moved to|rescheduled)\b"
);
fixed!(
    BLOOD,
    r"抽(?:的|了|过|完|个)?血|验(?:的|了|过)?血|\bblood (?:was |were |has been |got )?(?:just )?(?:drawn|taken)\b|\b(?:drew|took) (?:my |some )?blood\b"
);
fixed!(
    VACCINE,
    r"(?:打|接种|种)(?:了|过|完|的)(?:[^,;]{0,8})?(?:疫苗|预防针)|疫苗[^,;]{0,4}(?:打|接种|种)(?:了|过|完|的)|\b(?:was|were|been|got|am) (?:just )?(?:vaccinated|immuni[sz]ed)\b|\b(?:got|had|received) (?:my |a |the )?(?:\w+ )?(?:vaccine|vaccination|jab|booster)\b"
);
fixed!(
    FALL,
    r"摔(?:了|倒|跤|下|伤)|跌(?:了|倒|下|伤)|滑倒|\b(?:fell(?: down| over| off)?|had a (?:bad )?fall|slipped and fell)\b(?P<not> (?:asleep|ill|in love|behind|pregnant|apart))?"
);
fixed!(
    SURGERY,
    r"(?P<obj>[^,;\s做了过的行]{1,14})(?:手术|切除术|置换术|移植术|成形术|修补术|造影术|介入术|搭桥术|结扎术|融合术|消融术|引流术|根治术)|\b(?:had|underwent|got|received)\s+(?:an? |my |the )?(?P<en>(?:[a-z-]+ ){0,3}(?:surgery|operation|transplant|replacement|[a-z]+ectomy|[a-z]+plasty|[a-z]+otomy|bypass))\b"
);
// Denied for all time so far, and not of one occasion.
fixed!(
    NEVER,
    r"没有?(?:做|打|查|接种|用|割|拔|拍|抽|植|装)过|从(?:来)?(?:没|未)|还没(?:有)?(?:做|打|查|接种)|\bnever\b|\bhaven't (?:\w+ )?yet\b"
);
fixed!(
    NOT_YET,
    r"(?:可以|不能|能够?|可|想|要|需要|应该|打算|准备|考虑|建议|安排|让我?|得)(?:再|去|先|定期)*[做查验拍打行]?\s*$|\b(?:can|could|should|would|need|want|wants|have to|going to|plan to|recommend\w*|suggest\w*)\b[^,;]{0,20}$"
);
fixed!(
    CANCEL,
    r"取消|不去[^,;]{0,6}了|不用(?:去|做|来)|\b(?:cancel(?:l?ed)?|called off)\b"
);
fixed!(
    GENERAL,
    r"手术|检查|化验|\b(?:surgery|operation|scan|exam|examination|procedure)\b"
);
fixed!(
    APPOINTMENT_WORD,
    r"预约|约了|挂了.{0,12}号|\bappointment\b|\bsee (?:the |my |dr\.? )|\bvisit\b"
);

fixed!(
    SOME_SURGERY,
    r"(?:做|动|开)(?:了|过)手术|\b(?:had|underwent) (?:an? )?(?:surgery|operation)\b"
);
// What stays in the body is had as long as it is there.
fixed!(
    HAS_INSIDE,
    r"(?:有|装有|植入了?|安装了?)[^,;]{0,4}$|\b(?:have|has|'ve got|with|wears?)\s+(?:an? |my |two |three |a few )?$"
);

pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let known = named(scene);
    let is_past_verb = DONE.is_match(scene.text);
    let future = moment(scene, Direction::Future);
    let is_ahead = future.as_ref().is_some_and(|m| {
        scene.clock.instant(m.to.max(m.from)) > scene.clock.at()
            && !(m.is_now && m.grain == Grain::Day)
    });
    let is_due = is_ahead && (DUE.is_match(scene.text) || !is_past_verb);
    for (mention, kind) in &known {
        let (start, end) = (mention.start, mention.end);
        // "血压 150/95", "空腹血糖 7.8" are measurements; "CT科" is a place.
        let after = scene.text[end..].trim_start();
        let is_visit_word = matches!(
            mention.name,
            "doctor appointment" | "follow-up" | "dental appointment" | "blood test"
        );
        let value = after.trim_start_matches([':', '=', ' ']);
        let is_number = !is_visit_word
            && (value.starts_with(|c: char| c.is_ascii_digit())
                || (value.len() < after.len() && future.is_none()));
        if is_number
            || after.starts_with(['科', '室', '中'])
            || scene.text[end..].starts_with("阳性")
        {
            continue;
        }
        // "I don't have an appointment" or "was told about the check-up": only a dated visit was one.
        let is_general = matches!(
            mention.name,
            "doctor appointment" | "follow-up" | "dental appointment"
        );
        if let Some(moment) = future
            .as_ref()
            .filter(|_| is_due || (is_ahead && CANCEL.is_match(scene.text)))
        {
            found.extend(appointment(scene, mention.name, moment, start));
        } else if future.is_none() && CANCELLED.is_match(scene.text) {
            found.push(cancelled(mention.name, start));
        } else {
            let is_had = is_inside(mention.name) && HAS_INSIDE.is_match(&scene.text[..start]);
            let is_visit = is_past_verb
                && is_done(scene, start, end)
                && (!is_general || moment(scene, Direction::Past).is_some())
                && !CANCEL.is_match(scene.text);
            if is_had || is_visit {
                found.push(done(scene, mention.name, *kind, start));
            }
        }
    }
    if found.is_empty() {
        if let Some(hit) = BLOOD.find(scene.text) {
            match &future {
                Some(moment) if is_due => {
                    found.extend(appointment(scene, "blood test", moment, hit.start()))
                }
                Some(_) | None
                    if hit.as_str().contains(['的', '了', '过', '完'])
                        || hit.as_str().is_ascii() =>
                {
                    found.push(done(scene, "blood test", Kind::Event, hit.start()));
                }
                Some(_) | None => (),
            }
        } else if let Some(hit) = VACCINE.find(scene.text).filter(|_| !is_due) {
            let is_wish = NOT_YET.is_match(&scene.text[..hit.start()]);
            let is_done = !is_wish && !scene.negated_before(hit.start());
            found.extend(is_done.then(|| done(scene, "vaccination", Kind::Event, hit.start())));
        } else if let Some(hit) = FALL
            .captures(scene.text)
            .filter(|hit| hit.name("not").is_none() && moment(scene, Direction::Past).is_some())
        {
            let at = hit.get(0).map_or(0, |m| m.start());
            if !scene.negated_before(at) {
                let mut one = done(scene, "fall", Kind::Event, at);
                one.attribute = None;
                one.entities.clear();
                found.push(one);
            }
        } else if is_due && APPOINTMENT_WORD.is_match(scene.text) {
            let at = APPOINTMENT_WORD.find(scene.text).map_or(0, |m| m.start());
            found.extend(
                future
                    .as_ref()
                    .and_then(|m| appointment(scene, "doctor appointment", m, at)),
            );
        } else if let Some(hit) = GENERAL.find(scene.text).filter(|_| is_due) {
            let name = if hit.as_str().contains("手术")
                || hit.as_str().contains("surgery")
                || hit.as_str().contains("operation")
            {
                "surgery"
            } else {
                "examination"
            };
            found.extend(
                future
                    .as_ref()
                    .and_then(|m| appointment(scene, name, m, hit.start())),
            );
        } else if is_past_verb {
            found.extend(open_surgery(scene).or_else(|| some_surgery(scene)));
        }
    }
    // One appointment is named once: "复查" beats the general word beside it.
    if found.len() > 1 && found.iter().all(|f| f.attribute == Some("appointment")) {
        let is_general =
            |f: &Found| matches!(f.value.as_deref(), Some("doctor appointment" | "follow-up"));
        if !found.iter().all(is_general) {
            found.retain(|f| !is_general(f));
        }
    }
    found
}

fn is_inside(name: &str) -> bool {
    matches!(
        name,
        "pacemaker implantation"
            | "coronary stent"
            | "dental implant"
            | "knee replacement"
            | "hip replacement"
            | "heart valve replacement"
            | "kidney transplant"
            | "liver transplant"
    )
}

fn named<'a>(scene: &'a Scene<'_>) -> Vec<(&'a Mention, Kind)> {
    const VALUES: [&str; 14] = [
        "blood pressure",
        "systolic blood pressure",
        "diastolic blood pressure",
        "heart rate",
        "body temperature",
        "blood glucose",
        "fasting glucose",
        "hba1c",
        "total cholesterol",
        "ldl cholesterol",
        "creatinine",
        "uric acid",
        "bmi",
        "discharge",
    ];
    scene
        .mentions
        .iter()
        .filter_map(|m| match m.class {
            Class::Test if !VALUES.contains(&m.name) => Some((m, Kind::Event)),
            Class::Procedure => Some((m, Kind::Procedure)),
            Class::Test
            | Class::Drug
            | Class::Allergen
            | Class::Condition
            | Class::Symptom
            | Class::Food
            | Class::Occupation
            | Class::Modifier(_) => None,
        })
        .collect()
}

/// The verb stands near the thing that was done.
fn is_done(scene: &Scene<'_>, start: usize, end: usize) -> bool {
    let near = |hit: regex::Match<'_>| {
        let gap = if hit.end() <= start {
            &scene.text[hit.end()..start]
        } else {
            scene.text.get(end..hit.start()).unwrap_or("")
        };
        gap.chars().count() <= 24
    };
    // 可以做增强CT了 was not done.
    let is_wish = NOT_YET.is_match(&scene.text[..start]);
    !is_wish && DONE.find_iter(scene.text).any(near)
}

fn moment(scene: &Scene<'_>, direction: Direction) -> Option<Moment> {
    let moments = scene.moments(direction);
    moments
        .iter()
        .find(|m| m.grain == Grain::Minute && !m.attributive)
        .or_else(|| moments.iter().find(|m| !m.attributive))
        // 明天的复查: of a visit to come the date may be its attribute.
        .or_else(|| moments.iter().find(|_| direction == Direction::Future))
        .cloned()
        .or_else(|| time_alone(scene.text, scene.clock.today()))
}

fn appointment(scene: &Scene<'_>, name: &str, moment: &Moment, anchor: usize) -> Option<Found> {
    // A month or year is a plan, not a date to keep.
    if !matches!(moment.grain, Grain::Minute | Grain::Day) {
        return None;
    }
    let day = moment.from.date();
    let cancelled = CANCEL.is_match(scene.text);
    let polarity = if cancelled || scene.negated_before(anchor) {
        anamnesis_domain::memory::Polarity::Negative
    } else {
        anamnesis_domain::memory::Polarity::Positive
    };
    let mut found = Found::new(Kind::Event, "appointment", name, anchor)
        .polarity(polarity)
        .intent(if cancelled {
            Intent::Change
        } else {
            scene.intent()
        })
        .entity(EntityKind::Test, name);
    found.schedule = Some(scene.clock.written(moment));
    // Known from the moment it is said, over when its day is.
    found.holds = Holds::Given {
        from: scene.clock.at(),
        to: Some(scene.clock.end_of_day(day)),
    };
    Some(found)
}

// Said of the visit as a whole: no date is needed to end it.
fixed!(
    CANCELLED,
    r"取消了|[被已]取消|^取消|不去[^,;]{0,6}了|不用(?:去|来)?(?:复查|复诊)了|\b(?:is|was|been|has|got|i|we|they|he|she) cancel(?:l?ed)\b|\bcancel(?:l?ed)$|\bcalled off\b"
);

/// A visit that will not be, named without its date.
fn cancelled(name: &str, anchor: usize) -> Found {
    Found::new(Kind::Event, "appointment", name, anchor)
        .polarity(anamnesis_domain::memory::Polarity::Negative)
        .intent(Intent::Change)
        .entity(EntityKind::Test, name)
}

fn done(scene: &Scene<'_>, name: &str, kind: Kind, anchor: usize) -> Found {
    let attribute = if kind == Kind::Procedure {
        "procedure"
    } else {
        "examination"
    };
    let mut found = Found::new(kind, attribute, name, anchor)
        .polarity(scene.polarity_before(anchor))
        .entity(EntityKind::Test, name);
    // "Surgery" and "vaccination" name no one thing that could have been done or not.
    found.never = NEVER.is_match(scene.text)
        && moment(scene, Direction::Past).is_none()
        && !matches!(name, "surgery" | "vaccination" | "blood test" | "fall");
    if let Some(moment) =
        moment(scene, Direction::Past).filter(|m| scene.clock.instant(m.from) <= scene.clock.at())
    {
        found.schedule = Some(scene.clock.written(&moment));
        let from = if moment.is_now {
            scene.clock.at()
        } else {
            scene.clock.instant(moment.from)
        };
        found.holds = Holds::Given { from, to: None };
    }
    found
}

/// 我膝盖做过手术: that there was one is worth knowing.
fn some_surgery(scene: &Scene<'_>) -> Option<Found> {
    let hit = SOME_SURGERY.find(scene.text)?;
    Some(done(scene, "surgery", Kind::Procedure, hit.start()))
}

/// An operation that the lexicon does not know.
fn open_surgery(scene: &Scene<'_>) -> Option<Found> {
    let hit = SURGERY.captures(scene.text)?;
    let whole = hit.get(0)?;
    let name = match (hit.name("obj"), hit.name("en")) {
        (_, Some(english)) => crate::scene::open_name(english.as_str())?,
        (Some(obj), None) => {
            let after_verb = obj.as_str().rsplit(['做', '了', '过', '行', '我']).next()?;
            let person = crate::subject::persons(after_verb)
                .last()
                .map_or(0, |p| p.end);
            let name = &after_verb[person..];
            if name.chars().count() < 2 {
                return None;
            }
            format!("{name}{}", &scene.text[obj.end()..whole.end()])
        }
        (None, None) => return None,
    };
    let is_vague = matches!(
        name.as_str(),
        "surgery" | "operation" | "手术" | "技术" | "艺术" | "学术"
    );
    (!is_vague).then(|| done(scene, &name, Kind::Procedure, whole.start()))
}
