//! Whose memory it is, and whom a statement is about.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::OwnerKey;

/// Longest part of an owner, in bytes: ids of real platforms are far shorter, and the bound keeps a
/// hostile id from filling headers.
pub const OWNER_PART_BYTES_MAX: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Patient,
    /// A hospital or department: policies. Writing needs a role.
    Org,
    /// Lessons. Writing needs a role.
    Project,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patient => "patient",
            Self::Org => "org",
            Self::Project => "project",
        }
    }
}

/// The key of isolation, `<tenant>/<scope>/<id>`. `T/ID` means `T/patient/ID`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    tenant: String,
    scope: Scope,
    id: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum OwnerError {
    #[error("owner is empty")]
    Empty,
    #[error("owner must be <tenant>/<scope>/<id> or <tenant>/<id>")]
    Shape,
    #[error("owner scope must be patient, org or project")]
    Scope,
    #[error("a part of the owner is longer than {OWNER_PART_BYTES_MAX} bytes")]
    TooLong,
    #[error("a part of the owner holds a control character, white space or a wildcard")]
    Character,
}

impl Owner {
    /// # Errors
    /// When a part is empty, too long, or holds a character that could not be an id.
    pub fn new(tenant: &str, scope: Scope, id: &str) -> Result<Self, OwnerError> {
        for part in [tenant, id] {
            if part.is_empty() {
                return Err(OwnerError::Empty);
            }
            if part.len() > OWNER_PART_BYTES_MAX {
                return Err(OwnerError::TooLong);
            }
            let is_bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '*' | '/');
            if part.chars().any(is_bad) {
                return Err(OwnerError::Character);
            }
        }
        Ok(Self {
            tenant: tenant.to_owned(),
            scope,
            id: id.to_owned(),
        })
    }

    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    pub fn scope(&self) -> Scope {
        self.scope
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// An id as a shape without a tenant gives it (`p001`, `Patient/p001`), under the caller's tenant;
    /// an id that names a tenant keeps it.
    ///
    /// # Errors
    /// As [`Owner::new`].
    pub fn parse_in_tenant(text: &str, tenant: &str) -> Result<Self, OwnerError> {
        match text.strip_prefix("Patient/") {
            Some(id) => Self::new(tenant, Scope::Patient, id),
            None if text.contains('/') => text.parse(),
            None => Self::new(tenant, Scope::Patient, text),
        }
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(text: &str) -> Result<Self, OwnerError> {
        if text.is_empty() {
            return Err(OwnerError::Empty);
        }
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [tenant, id] => Self::new(tenant, Scope::Patient, id),
            [tenant, scope, id] => {
                let scope = match *scope {
                    "patient" => Scope::Patient,
                    "org" => Scope::Org,
                    "project" => Scope::Project,
                    _ => return Err(OwnerError::Scope),
                };
                Self::new(tenant, scope, id)
            }
            _ => Err(OwnerError::Shape),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.scope.as_str(), self.id)
    }
}

/// An owner names a person: it must not reach a log line by way of `{:?}`.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}/{}/…)", self.tenant, self.scope.as_str())
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The right to touch one owner's memories. Made only by [`OwnerScope::of_verified_caller`] (after the
/// caller's token was found to cover the tenant) or [`OwnerScope::of_log_record`]; every store call
/// takes one, so a filter cannot be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerScope(OwnerKey);

impl OwnerScope {
    pub fn of_verified_caller(key: OwnerKey) -> Self {
        Self(key)
    }

    pub fn of_log_record(key: OwnerKey) -> Self {
        Self(key)
    }

    pub fn key(self) -> OwnerKey {
        self.0
    }
}

/// Whom a statement is about, seen from the owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Subject {
    #[default]
    Self_,
    Father,
    Mother,
    Spouse,
    Child,
    Sibling,
    /// Somebody else, in the speaker's word.
    Other(String),
}

impl Subject {
    pub fn parse(text: &str) -> Self {
        match text {
            "self" => Self::Self_,
            "father" => Self::Father,
            "mother" => Self::Mother,
            "spouse" => Self::Spouse,
            "child" => Self::Child,
            "sibling" => Self::Sibling,
            other => Self::Other(
                other
                    .strip_prefix("other(")
                    .and_then(|s| s.strip_suffix(')'))
                    .unwrap_or(other)
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Self_ => f.write_str("self"),
            Self::Father => f.write_str("father"),
            Self::Mother => f.write_str("mother"),
            Self::Spouse => f.write_str("spouse"),
            Self::Child => f.write_str("child"),
            Self::Sibling => f.write_str("sibling"),
            Self::Other(who) => write!(f, "other({who})"),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(who) => write!(f, "other({} chars)", who.chars().count()),
            Self::Self_
            | Self::Father
            | Self::Mother
            | Self::Spouse
            | Self::Child
            | Self::Sibling => fmt::Display::fmt(self, f),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_in_both_forms() {
        let long: Owner = "hospital-7/patient/p-1029".parse().unwrap();
        assert_eq!("hospital-7/p-1029".parse::<Owner>().unwrap(), long);
        assert_eq!(
            Owner::parse_in_tenant("Patient/p-1029", "hospital-7").unwrap(),
            long
        );
        assert_eq!(long.to_string(), "hospital-7/patient/p-1029");
    }

    #[test]
    fn nothing_means_everybody() {
        for text in [
            "",
            "*",
            "h/*",
            "h/",
            "/p",
            "h/patient/",
            "a/b/c/d",
            "h/x/p",
            "h/a b",
        ] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_subject_reads_what_it_prints() {
        for text in ["self", "father", "spouse", "other(邻居)"] {
            assert_eq!(Subject::parse(text).to_string(), text);
        }
    }
}
