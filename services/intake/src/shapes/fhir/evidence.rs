//! What the three coded resources have in common: a thing, how the record stands to it, and when.

use anamnesis_domain::input::{Held, Stance, StructuredClaim};
use anamnesis_domain::memory::{Kind, Role};
use anamnesis_domain::owner::Owner;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;

use super::concept::Named;
use super::dates::{self, When};
use super::{record_ids, source};
use crate::message::Rejected;
use crate::normalise::{Draft, Part};
use crate::read::Node;

/// When a record was written, and the time that it tells about.
pub(super) struct Times {
    /// What this version says was said when it was written, not when the record was made.
    written: When,
    /// Since when it holds.
    began: Option<When>,
    /// Until when.
    until: Option<When>,
}

/// Where a resource keeps its times; each field is a way inward, and the first that is there counts.
pub(super) struct TimeFields<'a> {
    pub(super) written: &'a [&'a [&'a str]],
    pub(super) began: &'a [&'a [&'a str]],
    pub(super) until: &'a [&'a [&'a str]],
    /// What a sender is told is missing.
    pub(super) required: &'a str,
}

impl Times {
    pub(super) fn read(root: &Node<'_>, fields: &TimeFields<'_>) -> Result<Self, Rejected> {
        let updated: &[&[&str]] = &[&["meta", "lastUpdated"]];
        let made = dates::first(root, fields.written, 0)?;
        let written = match dates::first(root, updated, 0)? {
            Some(updated) => updated,
            None => made.clone().ok_or_else(|| {
                let what = "when it was recorded, as a date or in RFC 3339";
                Rejected::missing(root.path_of(fields.required), what)
            })?,
        };
        let zone = written.zone.unwrap_or(0);
        let began = dates::first(root, fields.began, zone)?;
        let until = dates::first(root, fields.until, zone)?;
        if let (Some(began), Some(until)) = (&began, &until)
            && until.from < began.from
            && until.after <= began.from
        {
            let detail = format!("it ends before it begins ({})", began.path);
            return Err(Rejected::new("invalid_field", &until.path, detail));
        }
        // What was recorded at some time held then, if the record does not say since when.
        let began = began.or(made.filter(|made| made.from < written.from));
        Ok(Self {
            written,
            began,
            until,
        })
    }
}

/// The sentences of one record, in the language of what it names.
pub(super) struct Words {
    pub(super) holds: String,
    pub(super) unconfirmed: String,
    pub(super) ended: String,
    /// Without its end: "Was allergic to mango" or "曾对芒果过敏".
    pub(super) was: String,
    pub(super) absent: String,
    pub(super) refuted: String,
    pub(super) entered_in_error: String,
}

pub(super) struct Evidence {
    pub(super) resource: &'static str,
    pub(super) owner: Owner,
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) named: Named,
    /// The value, where it is not the name.
    pub(super) value: Option<&'static str>,
    pub(super) stance: Stance,
    pub(super) ends: bool,
    pub(super) times: Times,
    pub(super) words: Words,
    pub(super) dose: Option<String>,
    /// Field that holds what is named.
    pub(super) field: String,
}

impl Evidence {
    pub(super) fn into_draft(self, root: &Node<'_>) -> Result<Draft, Rejected> {
        let at = self.times.written.from;
        let is_chinese = self.named.is_chinese();
        let value = self.value.map(str::to_owned);
        let value = value.unwrap_or_else(|| self.named.value());
        let mut claim = StructuredClaim {
            attribute: Some(self.kind.code().to_owned()),
            ends: self.ends,
            stance: self.stance,
            names: match self.value {
                Some(_) => Vec::new(),
                None => self.named.names,
            },
            dose: self.dose,
            ..StructuredClaim::new(self.kind, value)
        };
        let began = self.times.began.as_ref();
        let from = began.map(|began| began.from);
        match (self.stance, self.ends) {
            (Stance::Holds | Stance::Unconfirmed, true) => {
                let until = self.times.until.as_ref();
                // It is over by now, whatever was planned.
                let end = until.map_or(at, |until| until.end(from)).min(at);
                claim.valid_from = Some(end);
                claim.held = began
                    .filter(|began| began.from < end && self.stance == Stance::Holds)
                    .map(|began| Held {
                        from: began.from,
                        text: during(&self.words.was, began, until, end, is_chinese),
                    });
            }
            (Stance::Holds | Stance::Unconfirmed, false) => {
                claim.valid_from = from;
                let until = self.times.until.as_ref();
                claim.valid_to = until.map(|until| until.end(from));
            }
            // Said when it was written, about no earlier time: whoever looked into it looked then.
            (Stance::Absent | Stance::Refuted | Stance::EnteredInError, _) => (),
        }
        let text = match (self.stance, self.ends) {
            (Stance::Holds, false) => self.words.holds,
            (Stance::Holds, true) => self.words.ended,
            (Stance::Unconfirmed, _) => self.words.unconfirmed,
            (Stance::Absent, _) => self.words.absent,
            (Stance::Refuted, _) => self.words.refuted,
            (Stance::EnteredInError, _) => self.words.entered_in_error,
        };
        let ids = record_ids(root, self.resource)?;
        let mut part = Part::new("", self.role, text, self.field.clone());
        part.message_id = ids.as_ref().map(|ids| ids.record.clone());
        part.structured = Some(claim);
        Ok(Draft {
            owner: self.owner,
            source: source(root)?,
            event_id: ids.map(|ids| ids.event),
            conversation_id: root
                .walk(&["encounter", "reference"])
                .or_else(|| root.walk(&["context", "reference"]))
                .map(|encounter| encounter.id())
                .transpose()?,
            turn_id: None,
            at: (at, self.times.written.zone.unwrap_or(0)),
            at_field: self.times.written.path,
            context_tags: Vec::new(),
            parts: vec![part],
            text_field: self.field,
        })
    }
}

fn during(was: &str, began: &When, until: Option<&When>, end: Timestamp, is_chinese: bool) -> Text {
    let from = &began.words;
    let to = until.map_or_else(
        || end.to_utc().format("%Y-%m-%d").to_string(),
        |until| until.words.clone(),
    );
    Text::new(if is_chinese {
        format!("{was}（{from} 至 {to}）。")
    } else {
        format!("{was} ({from} to {to}).")
    })
}
