//! Which memories may answer a question at all, before any of them is scored?

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::memory::{Entity, EntityKind, Kind, Memory, Status};
use anamnesis_domain::owner::{Owner, OwnerScope, Scope, Subject};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::{Cut, Filter, OwnerView, SubjectFilter};

use crate::relatives::other_words;
use crate::request::Ask;
use crate::understand::{QueryReader, Understood, When};

/// The hard filters of one question. Usually one; two when episodes need another one than claims, since
/// a turn is not about one person, and is not over when the time it tells of is; more when the person
/// asked about goes by several words. The first is that of claims. Together they admit no memory twice.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reach {
    pub filters: Vec<Filter>,
    /// The instant that answers are scored at.
    pub at: Timestamp,
    /// Kinds that consent lets be read.
    pub readable: Vec<Kind>,
}

/// Kinds that may be read now. Consent is asked for as it stands now, whatever time the question is
/// about: a withdrawal hides the past too, and `known_at` is no way around it.
pub(crate) fn readable_kinds(
    owner: &Owner,
    view: Option<&OwnerView>,
    is_consent_required: bool,
    now: Timestamp,
) -> Vec<Kind> {
    let is_person = match owner.scope() {
        Scope::Patient => true,
        Scope::Org | Scope::Project => false,
    };
    if !is_consent_required || !is_person {
        return Kind::ALL.to_vec();
    }
    let granted: Vec<_> = view
        .map(|view| view.consents.as_slice())
        .unwrap_or_default()
        .iter()
        .filter(|recorded| recorded.recorded_to.is_none())
        .map(|recorded| &recorded.consent)
        .collect();
    let table = Attributes::shipped();
    let is_covered = |kind: &Kind| {
        let sensitivity = table.kind(*kind).sensitivity;
        granted
            .iter()
            .any(|consent| consent.covers(*kind, sensitivity, now))
    };
    Kind::ALL.iter().copied().filter(is_covered).collect()
}

pub(crate) fn reach(
    scope: OwnerScope,
    cut: Cut,
    ask: &Ask,
    understood: &Understood,
    readable: Vec<Kind>,
    now: Timestamp,
) -> Reach {
    let (asked_at, during) = match (ask.as_of, ask.time_range, understood.when) {
        (Some(_), _, _) | (None, Some(_), _) | (None, None, When::Unsaid) => (ask.as_of, None),
        (None, None, When::AsOf(at)) => (Some(at), None),
        (None, None, When::During(range)) => (None, Some(range)),
    };
    let at = asked_at.unwrap_or(now);
    // A range is about everything that held in it, so no single instant is asked about.
    let is_one_instant = !ask.include_history && (asked_at.is_some() || ask.time_range.is_none());
    let mut statuses = vec![Status::Active, Status::Superseded, Status::Conflicted];
    if ask.include_history {
        statuses.push(Status::Archived);
    }
    let is_asked = |kind: &Kind| ask.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind));
    let kinds: Vec<Kind> = readable.iter().copied().filter(is_asked).collect();
    let claims = Filter {
        scope,
        cut,
        valid_at: is_one_instant.then_some(at),
        time_range: ask.time_range,
        kinds: Some(kinds.clone()),
        statuses,
        subject: understood.subject.clone(),
        context_tags: ask.context_tags.clone(),
    };
    let mut episodes = Filter {
        kinds: Some(
            kinds
                .iter()
                .copied()
                .filter(|kind| *kind == Kind::Episode)
                .collect(),
        ),
        ..claims.clone()
    };
    if let SubjectFilter::Only(_) = understood.subject
        && ask.subject.is_none()
    {
        // A turn belongs to who said it; what it says of a relative is told by `speaks_of`.
        episodes.subject = SubjectFilter::Only(Subject::Self_);
    }
    let mut claims = claims;
    if let Some(range) = during.filter(|_| !ask.include_history) {
        claims.valid_at = None;
        claims.time_range = Some(range);
    }
    let are_alike = claims.subject == episodes.subject
        && claims.valid_at == episodes.valid_at
        && claims.time_range == episodes.time_range;
    let filters = if are_alike {
        vec![claims]
    } else {
        claims.kinds = Some(
            kinds
                .into_iter()
                .filter(|kind| *kind != Kind::Episode)
                .collect(),
        );
        vec![claims, episodes]
    };
    let mut filters = filters;
    if let (SubjectFilter::Only(asked), None) = (&understood.subject, &ask.subject) {
        let claims = filters[0].clone();
        filters.extend(other_words(asked).into_iter().map(|other| Filter {
            subject: SubjectFilter::Only(other),
            ..claims.clone()
        }));
    }
    Reach {
        filters,
        at,
        readable,
    }
}

/// Whether a turn may answer: one that speaks of somebody's health answers only about that person, and
/// only while the kind of fact in it may be read.
pub(crate) fn admits_episode(
    memory: &Memory,
    subject: &SubjectFilter,
    readable: &[Kind],
    reader: &dyn QueryReader,
) -> bool {
    if memory.claim.kind != Kind::Episode {
        return true;
    }
    let text = memory.claim.text.expose();
    let mut told: Vec<Entity> = reader.entities(text);
    told.extend(memory.claim.entities.iter().cloned());
    let kinds: Vec<Kind> = told
        .iter()
        .filter_map(|entity| health_kind(entity.kind))
        .collect();
    if kinds.is_empty() {
        return true;
    }
    let spoken_of = reader.subject(text).unwrap_or_default();
    let is_right_person = match subject {
        SubjectFilter::Any => true,
        SubjectFilter::Only(asked) => *asked == spoken_of,
    };
    is_right_person && kinds.iter().all(|kind| readable.contains(kind))
}

/// The kind of fact that a turn tells when it names such a thing.
fn health_kind(entity: EntityKind) -> Option<Kind> {
    match entity {
        EntityKind::Disease => Some(Kind::Condition),
        EntityKind::Drug => Some(Kind::Medication),
        EntityKind::Allergen => Some(Kind::Allergy),
        EntityKind::Test => Some(Kind::Measurement),
        EntityKind::Person | EntityKind::Order | EntityKind::Place | EntityKind::Thing => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anamnesis_domain::ids::Hash;
    use anamnesis_domain::input::Consent;
    use anamnesis_pipeline::stores::RecordedConsent;

    use super::*;
    use crate::fixture::{Reader, at, claim, memory, owner};
    use crate::understand::understand;

    const NOW: &str = "2026-11-02T00:00:00Z";

    fn reach_of(ask: &Ask) -> Reach {
        let scope = OwnerScope::of_log_record(owner("p1").1);
        let understood = understand(ask, None, at(NOW), 0, &Reader);
        reach(scope, Cut(9), ask, &understood, Kind::ALL.to_vec(), at(NOW))
    }

    #[test]
    fn a_plain_question_needs_one_filter_for_now() {
        let reach = reach_of(&Ask::new("我对什么过敏"));
        assert_eq!(reach.filters.len(), 1);
        assert_eq!(reach.filters[0].valid_at, Some(at(NOW)));
        assert_eq!(
            reach.filters[0].subject,
            SubjectFilter::Only(Subject::Self_)
        );
    }

    #[test]
    fn a_relative_is_told_of_in_the_owners_turns() {
        let reach = reach_of(&Ask::new("我爸对什么过敏"));
        let [claims, episodes] = &reach.filters[..] else {
            panic!("two filters")
        };
        assert_eq!(claims.subject, SubjectFilter::Only(Subject::Father));
        assert!(!claims.kinds.as_ref().unwrap().contains(&Kind::Episode));
        assert_eq!(episodes.subject, SubjectFilter::Only(Subject::Self_));
        assert_eq!(episodes.kinds, Some(vec![Kind::Episode]));
    }

    #[test]
    fn a_time_in_the_words_narrows_claims_and_not_turns() {
        let reach = reach_of(&Ask::new("我去年吃什么药"));
        let [claims, episodes] = &reach.filters[..] else {
            panic!("two filters")
        };
        assert_eq!(
            (claims.valid_at, claims.time_range.unwrap().from()),
            (None, at("2025-01-01T00:00:00Z"))
        );
        assert_eq!(
            (episodes.valid_at, episodes.time_range),
            (Some(at(NOW)), None)
        );
    }

    #[test]
    fn as_of_overrules_the_words() {
        let mut ask = Ask::new("我去年吃什么药");
        ask.as_of = Some(at("2020-01-01T00:00:00Z"));
        let reach = reach_of(&ask);
        assert_eq!(
            (reach.filters.len(), reach.filters[0].valid_at),
            (1, ask.as_of)
        );
        assert_eq!(reach.at, ask.as_of.unwrap());
    }

    #[test]
    fn a_history_is_about_all_of_time() {
        let mut ask = Ask::new("我吃什么药");
        ask.include_history = true;
        let reach = reach_of(&ask);
        assert_eq!(reach.filters[0].valid_at, None);
        assert!(reach.filters[0].statuses.contains(&Status::Archived));
        assert!(!reach.filters[0].statuses.contains(&Status::Restricted));
    }

    fn check_episode(text: &str, subject: Subject, admitted: bool) {
        let episode = memory(claim(Kind::Episode, text));
        let filter = SubjectFilter::Only(subject);
        assert_eq!(
            admits_episode(&episode, &filter, Kind::ALL, &Reader),
            admitted,
            "{text}"
        );
    }

    #[test]
    fn a_turn_about_a_relatives_health_answers_only_about_the_relative() {
        check_episode("我爸对青霉素过敏", Subject::Self_, false);
        check_episode("我爸对青霉素过敏", Subject::Father, true);
        check_episode("我对花生过敏", Subject::Self_, true);
        check_episode("我对花生过敏", Subject::Father, false);
        check_episode("My mother taught me the piano", Subject::Self_, true);
    }

    #[test]
    fn a_turn_hides_with_the_kind_of_fact_in_it() {
        let episode = memory(claim(Kind::Episode, "我最近在看抑郁症"));
        let readable = [Kind::Episode, Kind::Allergy];
        let about_self = SubjectFilter::Only(Subject::Self_);
        assert!(!admits_episode(&episode, &about_self, &readable, &Reader));
    }

    #[test]
    fn what_is_not_granted_or_withdrawn_cannot_be_read() {
        let (person, key) = owner("p1");
        let consent = |kinds: Option<Vec<Kind>>, recorded_to| RecordedConsent {
            consent: Consent {
                purposes: vec!["care".to_owned()],
                kinds,
                max_sensitivity: 2,
                valid_from: at("2020-01-01T00:00:00Z"),
                valid_to: None,
            },
            recorded_from: 1,
            recorded_to,
        };
        let mut view = OwnerView {
            key,
            owner: Some(person.clone()),
            owner_seq: 1,
            head: Hash::NONE,
            consents: vec![
                consent(None, Some(5)),
                consent(Some(vec![Kind::Allergy, Kind::Condition]), None),
            ],
            tasks: BTreeMap::new(),
            closed_through: 0,
            erasures: Vec::new(),
        };
        // Conditions are L3 and the grant covers up to L2; the wider grant was withdrawn.
        assert_eq!(
            readable_kinds(&person, Some(&view), true, at(NOW)),
            [Kind::Allergy]
        );
        view.consents.clear();
        assert!(readable_kinds(&person, Some(&view), true, at(NOW)).is_empty());
        assert!(readable_kinds(&person, None, true, at(NOW)).is_empty());
        assert_eq!(readable_kinds(&person, None, false, at(NOW)), Kind::ALL);
        let org = "h/org/ward".parse().unwrap();
        assert_eq!(readable_kinds(&org, None, true, at(NOW)), Kind::ALL);
    }
}
