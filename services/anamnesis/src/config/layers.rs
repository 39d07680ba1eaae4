//! Where do configured values come from? The layers that are merged, lowest first: kinds of backends,
//! the file, the environment. (Flags are merged as they are.)

use std::collections::BTreeMap;
use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Provider};

/// Variables with this prefix are configuration: `ANAMNESIS__RECALL__FLOOR=0.5` is `floor` of `[recall]`.
pub(super) const PREFIX: &str = "ANAMNESIS__";

/// The kind of each backend unless it is named, so that `[log]` with `partitions` alone is enough.
pub(super) struct Kinds;

impl Provider for Kinds {
    fn metadata(&self) -> Metadata {
        Metadata::named("defaults")
    }

    fn data(&self) -> Result<Map<figment::Profile, Dict>, figment::Error> {
        let mut sections = Dict::new();
        let kinds = [
            ("log", "sqlite"),
            ("keyring", "sqlite"),
            ("records", "sqlite"),
            ("text", "tantivy"),
            ("vectors", "mmap"),
            ("graph", "sqlite"),
            ("embedding", "hash"),
            ("extraction", "rules"),
        ];
        for (section, kind) in kinds {
            sections.insert(
                section.to_owned(),
                Dict::from([("kind".to_owned(), kind.into())]).into(),
            );
        }
        Ok(figment::Profile::Default.collect(sections))
    }
}

/// A TOML file, under the name that the user gave it.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: String,
}

impl Provider for File<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.path.display().to_string())
    }

    fn data(&self) -> Result<Map<figment::Profile, Dict>, figment::Error> {
        Toml::string(&self.text).data()
    }
}

/// The variables that start with [`PREFIX`].
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(super) fn from(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = |(name, value): (String, String)| {
            let key = name.strip_prefix(PREFIX)?;
            Some((key.to_lowercase().replace("__", "."), value))
        };
        Self(variables.into_iter().filter_map(ours).collect())
    }

    const NAME: &'static str = "environment";
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }

    fn data(&self) -> Result<Map<figment::Profile, Dict>, figment::Error> {
        let mut sections = Dict::new();
        for (key, value) in &self.0 {
            // Reads `4`, `true` and `["a"]` as what they are, and everything else as text.
            let value: Value = value.parse().unwrap_or_else(|never| match never {});
            insert(&mut sections, key, value);
        }
        Ok(figment::Profile::Default.collect(sections))
    }
}

fn insert(section: &mut Dict, key: &str, value: Value) {
    let Some((inner, rest)) = key.split_once('.') else {
        section.insert(key.to_owned(), value);
        return;
    };
    let inner = section
        .entry(inner.to_owned())
        .or_insert_with(|| Dict::new().into());
    if let Value::Dict(_, inner) = inner {
        insert(inner, rest, value);
    }
}

/// Whether a place that [`ConfigError`] names is the environment.
pub(super) fn is_environment(place: &str) -> bool {
    place == Environment::NAME
}
