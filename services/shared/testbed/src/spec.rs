//! What somebody says in a test, in one short line.
//!
//! `allergy=peanut` states; `!` before the attribute denies, `~` says that the world changed, `^` that the
//! record was wrong, `father.` that it is about the father; `:5mg` gives an amount. `text=…` is a
//! statement without an attribute. For example `~!allergy=peanut`, `^medication=amlodipine:5mg`,
//! `father.allergy=penicillin`.

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Permille, Polarity, Quantity, Source,
};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    pub intent: Intent,
    pub polarity: Polarity,
    pub subject: Subject,
    /// `None` for a statement without an attribute.
    pub attribute: Option<String>,
    pub value: String,
    pub quantity: Option<Quantity>,
    pub kind: Kind,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
pub enum SpecError {
    #[error("a claim is written attribute=value")]
    NoValue,
    #[error("the table of attributes has no {0}")]
    NoAttribute(String),
    #[error("not an amount such as 5mg: {0}")]
    NoAmount(String),
}

impl Spec {
    /// # Errors
    /// [`SpecError`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (intent, rest) = match text.strip_prefix('~') {
            Some(rest) => (Intent::Change, rest),
            None => match text.strip_prefix('^') {
                Some(rest) => (Intent::Correct, rest),
                None => (Intent::Assert, text),
            },
        };
        let (polarity, rest) = match rest.strip_prefix('!') {
            Some(rest) => (Polarity::Negative, rest),
            None => (Polarity::Positive, rest),
        };
        let (name, value) = rest.split_once('=').ok_or(SpecError::NoValue)?;
        let (subject, name) = match name.split_once('.') {
            Some((subject, name)) => (Subject::parse(subject), name),
            None => (Subject::Self_, name),
        };
        let (attribute, kind) = match name {
            "text" => (None, Kind::Fact),
            "episode" => (None, Kind::Episode),
            name => {
                let rule = Attributes::shipped().attribute(name);
                let rule = rule.ok_or_else(|| SpecError::NoAttribute(name.to_owned()))?;
                (Some(name.to_owned()), rule.kind)
            }
        };
        let (value, quantity) = match value.rsplit_once(':') {
            Some((value, amount)) if attribute.is_some() => (value, Some(quantity(amount)?)),
            Some(_) | None => (value, quantity(value).ok().filter(|_| attribute.is_some())),
        };
        Ok(Self {
            intent,
            polarity,
            subject,
            attribute,
            value: value.to_owned(),
            quantity,
            kind,
        })
    }

    /// The claim, with the words in which it was said (its own line when there are none).
    pub fn claim(&self, words: Option<&str>, valid_from: Timestamp, source: Source) -> Claim {
        let has_attribute = self.attribute.is_some();
        Claim {
            subject: self.subject.clone(),
            kind: self.kind,
            text: Text::new(words.map_or_else(|| self.words(), str::to_owned)),
            attribute: self.attribute.clone(),
            value: has_attribute.then(|| self.value.clone()),
            quantity: self.quantity.clone(),
            schedule: None,
            polarity: self.polarity,
            intent: self.intent,
            quote: None,
            entities: self.entities(),
            valid_from,
            valid_to: None,
            importance: Attributes::shipped().kind(self.kind).importance,
            confidence: Permille::new(950),
            explicit: false,
            namespace: None,
            key: None,
            context_tags: Vec::new(),
            language: if self.value.is_ascii() { "en" } else { "zh" }.to_owned(),
            source,
        }
    }

    fn words(&self) -> String {
        let sign = if self.polarity == Polarity::Negative {
            "no "
        } else {
            ""
        };
        let amount = self.quantity.as_ref().map_or_else(String::new, |amount| {
            format!(" {} {}", amount.micros / 1_000_000, amount.unit)
        });
        let name = self
            .attribute
            .as_deref()
            .unwrap_or_default()
            .replace('_', " ");
        match self.quantity {
            Some(_) if quantity(&self.value).is_ok() => format!("{sign}{name}{amount}"),
            Some(_) | None => format!("{sign}{name} {}{amount}", self.value)
                .trim()
                .to_owned(),
        }
    }

    fn entities(&self) -> Vec<Entity> {
        let kind = match self.kind {
            Kind::Allergy => EntityKind::Allergen,
            Kind::Medication => EntityKind::Drug,
            Kind::Condition => EntityKind::Disease,
            Kind::Contraindication
            | Kind::Procedure
            | Kind::Measurement
            | Kind::Preference
            | Kind::Event
            | Kind::Constraint
            | Kind::Fact
            | Kind::Policy
            | Kind::Lesson
            | Kind::Episode => return Vec::new(),
        };
        vec![Entity {
            kind,
            name: Text::new(self.value.clone()),
        }]
    }
}

fn quantity(text: &str) -> Result<Quantity, SpecError> {
    let wrong = || SpecError::NoAmount(text.to_owned());
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok(Quantity {
        micros: (number * 1e6).round() as i64,
        unit: unit.trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_what_and_how() {
        let spec = Spec::parse("~!father.medication=warfarin:2.5mg").unwrap();
        assert_eq!(
            (spec.intent, spec.polarity),
            (Intent::Change, Polarity::Negative)
        );
        assert_eq!(
            (spec.subject, spec.kind),
            (Subject::Father, Kind::Medication)
        );
        assert_eq!(
            spec.quantity,
            Some(Quantity {
                micros: 2_500_000,
                unit: "mg".to_owned()
            })
        );
        assert_eq!(
            Spec::parse("weight=72kg").unwrap().quantity.unwrap().unit,
            "kg"
        );
        assert_eq!(
            Spec::parse("text=术后: 多喝水").unwrap().value,
            "术后: 多喝水"
        );
        assert_eq!(Spec::parse("tea"), Err(SpecError::NoValue));
        assert_eq!(
            Spec::parse("shoe=42"),
            Err(SpecError::NoAttribute("shoe".to_owned()))
        );
    }
}
