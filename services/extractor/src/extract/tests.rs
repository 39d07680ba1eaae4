//! Whole turns: what is said, and what is found. Every sentence here was written for the project.

use anamnesis_domain::ids::{EventTag, SourceTag};
use anamnesis_domain::input::{CandidateSet, RejectCode, StructuredClaim, Turn};
use anamnesis_domain::memory::{Intent, Kind, Permille, Polarity, Role};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;

mod dangers;
mod facts;
mod gates;
mod model;
mod requests;
mod shapes;

use crate::context::{Context, Episodes, Said};
use crate::extract::extract;

const AT: &str = "2026-06-18T23:50:00+08:00";

pub(crate) fn turn(role: Role, text: &str) -> Turn {
    let (at, zone_minutes) = Timestamp::parse_with_zone(AT).unwrap();
    Turn {
        owner: "h1/p1".parse().unwrap(),
        event: EventTag::from_bytes([1; 16]),
        source_tag: SourceTag::from_bytes([2; 16]),
        source: "/chat".to_owned(),
        event_id: "e1".to_owned(),
        message: String::new(),
        conversation_id: Some("c1".to_owned()),
        turn_id: None,
        message_id: None,
        role,
        speaker: None,
        at,
        zone_minutes,
        text: Text::from(text),
        context_tags: vec!["health".to_owned()],
        injected: Vec::new(),
        structured: None,
    }
}

pub(crate) fn after(said: &[&str]) -> Context {
    let recent = said
        .iter()
        .map(|text| Said {
            role: Role::User,
            text: Text::from(*text),
            is_memory_write: false,
            came: None,
        })
        .collect();
    Context {
        recent,
        ..Context::default()
    }
}

/// `subject attribute=value polarity intent quantity schedule`, without what is as usual.
fn facts(set: &CandidateSet) -> Vec<String> {
    set.candidates
        .iter()
        .map(|candidate| &candidate.claim)
        .filter(|claim| claim.kind != Kind::Episode)
        .map(|claim| {
            let mut words = Vec::new();
            if claim.subject != anamnesis_domain::owner::Subject::Self_ {
                words.push(claim.subject.to_string());
            }
            let attribute = claim.attribute.as_deref().unwrap_or(claim.kind.code());
            words.push(format!(
                "{attribute}={}",
                claim.value.as_deref().unwrap_or(claim.text.expose())
            ));
            words.extend((claim.polarity == Polarity::Negative).then(|| "not".to_owned()));
            words.extend((claim.intent != Intent::Assert).then(|| claim.intent.code().to_owned()));
            words.extend(claim.quantity.as_ref().map(crate::quantity::written));
            words.extend(claim.schedule.clone());
            words.join(" ")
        })
        .collect()
}

fn codes(set: &CandidateSet) -> Vec<RejectCode> {
    set.rejects.iter().map(|reject| reject.code).collect()
}

fn check(text: &str, expected: &[&str]) {
    check_in(text, &Context::default(), expected);
}

fn check_in(text: &str, context: &Context, expected: &[&str]) {
    assert_eq!(
        facts(&extract(&turn(Role::User, text), context)),
        expected,
        "{text}"
    );
}

fn check_refused(role: Role, text: &str, code: RejectCode) {
    let set = extract(&turn(role, text), &Context::default());
    assert_eq!(facts(&set), Vec::<String>::new(), "{text}");
    assert!(codes(&set).contains(&code), "{text}: {:?}", codes(&set));
}
