//! What is wrong with a configuration, where, and what to do? Every message names the file or the
//! variable and the key.

use std::path::PathBuf;

use figment::Figment;
use figment::error::Kind;

use super::layers::{PREFIX, is_environment};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration file {} cannot be read", .path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{place}: no such setting; {advice}")]
    UnknownKey { place: String, advice: String },
    #[error("{place}: {message}")]
    BadValue { place: String, message: String },
    /// Each value is fine, and together they are not.
    #[error("{message}")]
    Refused { message: String },
}

impl ConfigError {
    pub(super) fn from_figment(figment: &Figment, error: figment::Error) -> Self {
        let path = error.path.join(".");
        let unknown = match &error.kind {
            Kind::UnknownField(field, expected) => Some((field.clone(), *expected)),
            Kind::Message(_)
            | Kind::InvalidType(..)
            | Kind::InvalidValue(..)
            | Kind::InvalidLength(..)
            | Kind::UnknownVariant(..)
            | Kind::MissingField(_)
            | Kind::DuplicateField(_)
            | Kind::ISizeOutOfRange(_)
            | Kind::USizeOutOfRange(_)
            | Kind::Unsupported(_)
            | Kind::UnsupportedKey(..) => None,
        };
        let Some((field, expected)) = unknown else {
            return Self::BadValue {
                place: place(figment, &error, &path),
                message: message(&error.kind),
            };
        };
        // The path ends in the field itself or in its section, depending on how the section is read.
        let is_whole = error.path.last() == Some(&field);
        let section = if is_whole {
            &error.path[..error.path.len() - 1]
        } else {
            &error.path[..]
        };
        let key_in_section = |key: &str| {
            let mut keys = section.to_vec();
            keys.push(key.to_owned());
            keys.join(".")
        };
        let key = key_in_section(&field);
        let place = place(figment, &error, &key);
        let in_environment = place.starts_with("environment variable");
        let shown = |key: &str| {
            if in_environment {
                variable(&key_in_section(key))
            } else {
                key.to_owned()
            }
        };
        let advice = match closest(&field, expected) {
            Some(near) => format!("did you mean {}?", shown(near)),
            None if expected.is_empty() => "this kind has no settings".to_owned(),
            None => {
                let known: Vec<String> = expected.iter().map(|key| shown(key)).collect();
                format!("known here: {}", known.join(", "))
            }
        };
        Self::UnknownKey { place, advice }
    }
}

/// File and key, or variable.
fn place(figment: &Figment, error: &figment::Error, key: &str) -> String {
    let metadata = figment.find_metadata(key).or(error.metadata.as_ref());
    let source = metadata.map_or("configuration", |metadata| metadata.name.as_ref());
    match (is_environment(source), key.is_empty()) {
        (true, _) => format!("environment variable {}", variable(key)),
        (false, true) => source.to_owned(),
        (false, false) => format!("{source}: {key}"),
    }
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// The known key that was probably meant.
fn closest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    // Two slips in a long word, one in a short one.
    let slips_max = if key.chars().count() > 5 { 2 } else { 1 };
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(key, known), *known));
    near.filter(|(slips, _)| *slips <= slips_max)
        .min()
        .map(|(_, known)| known)
}

fn message(kind: &Kind) -> String {
    match kind {
        Kind::UnknownVariant(found, expected) => match closest(found, expected) {
            Some(near) => format!("`{found}` is not a choice; did you mean {near}?"),
            None => format!("`{found}` is not a choice; choose {}", expected.join(", ")),
        },
        Kind::MissingField(field) => format!("`{field}` is missing"),
        Kind::Message(_)
        | Kind::InvalidType(..)
        | Kind::InvalidValue(..)
        | Kind::InvalidLength(..)
        | Kind::UnknownField(..)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => kind.to_string().trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Flags};

    fn read(toml: &str, environment: &[(&str, &str)]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("anamnesis.toml");
        std::fs::write(&file, toml).unwrap();
        let environment = environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let folder_name = format!("{}/", folder.path().display());
        Config::from_parts(Some(&file), environment, &Flags::default())
            .map(|_| ())
            .map_err(|error| error.to_string().replace(&folder_name, ""))
    }

    #[track_caller]
    fn check(toml: &str, message: &str) {
        assert_eq!(read(toml, &[]).expect_err("a bad configuration"), message);
    }

    #[track_caller]
    fn check_environment(name: &str, value: &str, message: &str) {
        assert_eq!(
            read("", &[(name, value)]).expect_err("a bad variable"),
            message
        );
    }

    #[test]
    fn a_misspelt_key_is_refused_with_what_was_meant() {
        check(
            "lisen = 1",
            "anamnesis.toml: lisen: no such setting; did you mean listen?",
        );
        check(
            "[recal]\nfloor = 0.5",
            "anamnesis.toml: recal: no such setting; did you mean recall?",
        );
        check(
            "[recall]\ngraf_deadline = \"1s\"",
            "anamnesis.toml: recall.graf_deadline: no such setting; did you mean graph_deadline?",
        );
        check(
            "[log]\npartitons = 8",
            "anamnesis.toml: log.partitons: no such setting; did you mean partitions?",
        );
        check(
            "[forget]\ncolour = \"red\"",
            "anamnesis.toml: forget.colour: no such setting; known here: \
             capacity_per_owner, accesses_kept, inbox_kept, quarantine_kept, every",
        );
        check(
            "[extraction]\nepisods = \"off\"",
            "anamnesis.toml: extraction.episods: no such setting; did you mean episodes?",
        );
        check(
            "[extraction]\nkind = \"chat\"\nurl = \"http://h/v1\"\nmodel = \"m\"\ncalls_per_our = 5",
            "anamnesis.toml: extraction.calls_per_our: no such setting; did you mean calls_per_hour?",
        );
        check(
            "[embedding]\ndir = \"models\"",
            "anamnesis.toml: embedding.dir: no such setting; this kind has no settings",
        );
        check(
            "[[callers]]\nname = \"a\"\ntokn_env = \"T\"\ntenants = [\"*\"]\nroles = [\"operator\"]",
            "anamnesis.toml: callers.0.tokn_env: no such setting; did you mean token_env?",
        );
    }

    #[test]
    fn a_misspelt_variable_is_refused_by_its_name() {
        check_environment(
            "ANAMNESIS__LISEN",
            "127.0.0.1:1",
            "environment variable ANAMNESIS__LISEN: no such setting; did you mean ANAMNESIS__LISTEN?",
        );
        check_environment(
            "ANAMNESIS__LOG__PARTITONS",
            "8",
            "environment variable ANAMNESIS__LOG__PARTITONS: no such setting; did you mean \
             ANAMNESIS__LOG__PARTITIONS?",
        );
    }

    #[test]
    fn a_bad_value_is_refused_with_its_place() {
        for (toml, message) in [
            (
                "[log]\nkind = \"sqlit\"",
                "anamnesis.toml: log.kind: `sqlit` is not a choice; did you mean sqlite?",
            ),
            (
                "[log]\nkind = \"papyrus\"",
                "anamnesis.toml: log.kind: `papyrus` is not a choice; choose sqlite, kafka",
            ),
            (
                "[extraction]\nkind = \"chat\"\nmodel = \"m\"",
                "anamnesis.toml: extraction: `url` is missing",
            ),
            (
                "[extraction]\nkind = \"chat\"\nurl = \"http://h\"\nmodel = \"m\"\nprompt = \"v0\"",
                "extraction.prompt `v0` does not exist; there are: v1",
            ),
            (
                "[extraction]\nkind = \"chat\"\nurl = \"http://h\"\nmodel = \"m\"\npatience = \"1s\"",
                "extraction.patience is shorter than extraction.timeout: no answer could be waited for",
            ),
            (
                "[embedding]\nkind = \"onnx\"",
                "anamnesis.toml: embedding: `dir` is missing",
            ),
            (
                "listen = \"here\"",
                "anamnesis.toml: listen: invalid socket address syntax",
            ),
            (
                "[recall]\ntext_deadline = \"250\"",
                "anamnesis.toml: recall.text_deadline: `250` is not a period with its unit, as 250ms, 72h or 7d",
            ),
            (
                "[forget]\nquarantine_kept = \"0s\"",
                "anamnesis.toml: forget.quarantine_kept: a period must be longer than 0",
            ),
            (
                "[recall]\nfloor = 4.5",
                "anamnesis.toml: recall.floor: must be from 0 to 1",
            ),
            (
                "[forget]\ncapacity_per_owner = \"many\"",
                "anamnesis.toml: forget.capacity_per_owner: invalid type: found string \"many\", expected u32",
            ),
            (
                "listen = ",
                "anamnesis.toml: TOML parse error at line 1, column 10\n  |\n1 | listen = \n  |          ^",
            ),
        ] {
            check(toml, message);
        }
        check_environment(
            "ANAMNESIS__CONSENT__DEFAULT",
            "grantd",
            "environment variable ANAMNESIS__CONSENT__DEFAULT: `grantd` is not a choice; did you mean granted?",
        );
    }

    #[test]
    fn values_that_do_not_fit_together_are_refused() {
        check(
            "listen = \"0.0.0.0:7700\"",
            "listening on 0.0.0.0:7700 without callers would open every memory to the network; add \
             [[callers]] with a token (token_blake3 or token_env), or listen on 127.0.0.1:7700",
        );
        check(
            "[log]\npartitions = 0",
            "log.partitions must be from 1 to 1024",
        );
        check("tenant = \"a/b\"", "tenant must be a name without / and *");
        check(
            "[keyring]\nmaster_key_env = \"K\"\nmaster_key_file = \"k\"",
            "give keyring.master_key_file or keyring.master_key_env, not both",
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let flags = Flags::default();
        let error = Config::from_parts(Some("no/such.toml".as_ref()), [], &flags)
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            "the configuration file no/such.toml cannot be read"
        );
    }
}
