//! What an explicit write claims, and whether its owner agreed to such memories.

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Permille, Polarity, Role, Source,
};
use anamnesis_domain::owner::{Owner, OwnerScope, Subject};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::text::{Text, is_blank, normalise};
use anamnesis_domain::time::Interval;
use anamnesis_pipeline::problem::Problem;

use super::order::Envelope;
use super::{invalid, missing};
use crate::caps;
use crate::request::{Remember, ttl_millis};
use crate::service::{Intake, IntakeError};

impl Intake {
    pub(super) async fn check_consent(
        &self,
        owner: &Owner,
        scope: OwnerScope,
        kind: Kind,
    ) -> Result<(), IntakeError> {
        if !self.settings.consent_required || !OwnerState::needs_consent(owner) {
            return Ok(());
        }
        let view = self.records.owner(scope).await?;
        let sensitivity = Attributes::shipped().kind(kind).sensitivity;
        let now = self.now();
        let covered = view.is_some_and(|view| {
            view.consents.iter().any(|held| {
                held.recorded_to.is_none() && held.consent.covers(kind, sensitivity, now)
            })
        });
        if covered {
            return Ok(());
        }
        let detail = format!(
            "the owner has not agreed to memories of this kind ({kind}, sensitivity L{sensitivity}); \
             grant it with POST /v1/consents"
        );
        Err(Problem::new(403, "consent_required", detail).into())
    }

    /// The claim of an explicit write. Its time is set when the command is built.
    pub(super) fn claim(
        &self,
        owner: &Owner,
        envelope: &Envelope,
        ask: &Remember,
    ) -> Result<Claim, IntakeError> {
        if is_blank(ask.text.expose()) {
            return Err(missing("text", "text is required"));
        }
        if ask.text.expose().len() > caps::TEXT_BYTES_MAX {
            let detail = format!("the text has more than {} bytes", caps::TEXT_BYTES_MAX);
            return Err(Problem::new(413, "text_too_long", detail).at("text").into());
        }
        let names = [
            ("attribute", &ask.attribute),
            ("value", &ask.value),
            ("subject", &ask.subject),
            ("namespace", &ask.namespace),
            ("key", &ask.key),
        ];
        for (name, value) in names {
            if value
                .as_ref()
                .is_some_and(|v| v.is_empty() || v.len() > caps::ID_BYTES_MAX)
            {
                return Err(invalid(name, "1 to 1024 bytes"));
            }
        }
        if ask.namespace.is_some() != ask.key.is_some() {
            return Err(invalid("key", "namespace and key go together"));
        }
        crate::normalise::check_tags(&ask.context_tags)
            .map_err(crate::message::Rejected::into_problem)?;
        if ask.ttl.is_some() && ask.valid_to.is_some() {
            return Err(invalid("ttl", "give ttl or valid_to, not both"));
        }
        ask.ttl.as_deref().map(ttl_millis).transpose()?;
        let valid_from = ask.valid_from.unwrap_or(envelope.at);
        if Interval::new(valid_from, ask.valid_to).is_err() {
            return Err(invalid("valid_to", "the statement ends before it starts"));
        }
        let table = Attributes::shipped();
        let of_attribute = ask
            .attribute
            .as_deref()
            .and_then(|name| table.attribute(name));
        let kind = ask
            .kind
            .or(of_attribute.map(|rule| rule.kind))
            .unwrap_or(Kind::Fact);
        let text = self.redact_text(envelope.key, &ask.text);
        let value = ask.value.as_deref().map(|value| {
            let clean = self.redact_text(envelope.key, &Text::from(value));
            // A placeholder is kept letter by letter.
            if clean.expose() == value {
                normalise(value)
            } else {
                clean.into_exposed()
            }
        });
        let entities = match (&ask.attribute, &value) {
            (Some(_), Some(value)) => entity(kind, value).into_iter().collect(),
            (_, _) => Vec::new(),
        };
        let is_chinese = text
            .expose()
            .chars()
            .any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        let mut claim = Claim {
            subject: ask
                .subject
                .as_deref()
                .map_or(Subject::Self_, Subject::parse),
            kind,
            text,
            attribute: ask.attribute.clone(),
            value,
            quantity: None,
            schedule: None,
            polarity: ask.polarity.unwrap_or(Polarity::Positive),
            intent: Intent::Assert,
            quote: None,
            entities,
            valid_from,
            valid_to: ask.valid_to,
            importance: ask.importance.unwrap_or(Permille::ONE),
            confidence: Role::User.authority(),
            explicit: true,
            namespace: ask.namespace.clone(),
            key: ask.key.clone(),
            context_tags: ask.context_tags.clone(),
            language: if is_chinese { "zh" } else { "en" }.to_owned(),
            source: Source {
                event: envelope.event,
                source_tag: self.ids().source(envelope.key, &envelope.source),
                source: envelope.source.clone(),
                event_id: envelope.event_id.clone(),
                conversation_id: None,
                turn_id: None,
                message_id: None,
                role: Role::User,
                speaker: None,
                at: envelope.at,
                zone_minutes: 0,
                extractor: "api".to_owned(),
                model: None,
                prompt_version: None,
            },
        };
        if ask.attribute.is_none() && ask.value.is_none() && ask.key.is_none() {
            self.read_statement(owner, ask, &mut claim);
        }
        Ok(claim)
    }

    /// Gives the claim the comparable form of what its text says, when it says exactly one thing that
    /// fits what was asked to be remembered.
    fn read_statement(&self, owner: &Owner, ask: &Remember, claim: &mut Claim) {
        let source = &claim.source;
        let turn = Turn {
            owner: owner.clone(),
            event: source.event,
            source_tag: source.source_tag,
            source: source.source.clone(),
            event_id: source.event_id.clone(),
            message: String::new(),
            conversation_id: None,
            turn_id: None,
            message_id: None,
            role: source.role,
            speaker: None,
            at: source.at,
            zone_minutes: source.zone_minutes,
            text: claim.text.clone(),
            context_tags: Vec::new(),
            injected: Vec::new(),
            structured: None,
        };
        let fits = |said: &Claim| {
            ask.kind.is_none_or(|kind| kind == said.kind)
                && (ask.subject.is_none() || claim.subject == said.subject)
        };
        let mut said: Vec<Claim> = self.reader.read(&turn).into_iter().filter(fits).collect();
        let (Some(said), true) = (said.pop(), said.is_empty()) else {
            return;
        };
        claim.subject = said.subject;
        claim.kind = said.kind;
        claim.attribute = said.attribute;
        claim.value = said.value;
        claim.quantity = said.quantity;
        claim.schedule = said.schedule;
        claim.polarity = ask.polarity.unwrap_or(said.polarity);
        claim.entities = said.entities;
    }
}

/// What the value names, when the kind says so.
fn entity(kind: Kind, value: &str) -> Option<Entity> {
    let kind = match kind {
        Kind::Allergy => EntityKind::Allergen,
        Kind::Medication => EntityKind::Drug,
        Kind::Condition => EntityKind::Disease,
        Kind::Measurement => EntityKind::Test,
        Kind::Contraindication
        | Kind::Procedure
        | Kind::Preference
        | Kind::Event
        | Kind::Constraint
        | Kind::Fact
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => return None,
    };
    Some(Entity {
        kind,
        name: Text::new(value),
    })
}
