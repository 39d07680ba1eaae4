//! How does this model want to be asked? What `model.toml` in a model's folder says.

use std::path::Path;

use anamnesis_pipeline::embedder::{EmbedError, Purpose};
use serde::Deserialize;

use super::{read, unusable};

pub(super) const FILE: &str = "model.toml";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pooling {
    /// The first token stands for the text.
    Cls,
    /// The mean over all tokens.
    Mean,
    /// The model pools by itself.
    None,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) name: String,
    #[serde(default = "model_default")]
    pub(super) model: String,
    #[serde(default = "tokenizer_default")]
    pub(super) tokenizer: String,
    pub(super) dimension: u32,
    pub(super) pooling: Pooling,
    /// Longer texts are cut.
    pub(super) max_tokens: usize,
    /// For a tokenizer that keeps case over a vocabulary that has none.
    pub(super) lowercase: bool,
    /// How much this model's cosine counts beside those of others in one vector. A model whose cosines all
    /// lie close together needs more.
    #[serde(default = "weight_default")]
    pub(super) weight: f64,
    /// Whether it can read Chinese. One that cannot takes any two Chinese texts for alike, and beside other
    /// models it is not asked about a text with a Han character.
    #[serde(default = "han_default")]
    pub(super) han: bool,
    #[serde(default)]
    pub(super) query_prefix: String,
    #[serde(default)]
    pub(super) passage_prefix: String,
}

fn model_default() -> String {
    "model.onnx".to_owned()
}

fn tokenizer_default() -> String {
    "tokenizer.json".to_owned()
}

fn han_default() -> bool {
    true
}

fn weight_default() -> f64 {
    1.0
}

impl Settings {
    /// The settings, and the bytes that they were read from.
    pub(super) fn read(dir: &Path) -> Result<(Self, Vec<u8>), EmbedError> {
        if !dir.join(FILE).exists() {
            return Err(unusable(format!(
                "{} has no {FILE}; infra/get-models.sh fills such a folder",
                dir.display()
            )));
        }
        let written = read(&dir.join(FILE))?;
        let text = String::from_utf8_lossy(&written);
        let settings = Self::parse(&text)
            .map_err(|reason| unusable(format!("{}: {reason}", dir.join(FILE).display())))?;
        Ok((settings, written))
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if settings.dimension == 0 || settings.max_tokens < 3 {
            return Err("dimension and max_tokens must leave room for a text".to_owned());
        }
        if !settings.weight.is_finite() || settings.weight <= 0.0 {
            return Err("weight must be more than 0".to_owned());
        }
        Ok(settings)
    }

    pub(super) fn prepared(&self, text: &str, purpose: Purpose) -> String {
        let prefix = match purpose {
            Purpose::Query => &self.query_prefix,
            Purpose::Passage => &self.passage_prefix,
        };
        let text = if self.lowercase {
            text.to_lowercase()
        } else {
            text.to_owned()
        };
        format!("{prefix}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str =
        "name = \"m\"\ndimension = 8\npooling = \"mean\"\nmax_tokens = 512\nlowercase = true\n";

    #[test]
    fn a_question_is_prefixed_and_both_are_lower_cased() {
        let settings = Settings::parse(&format!("{LEAST}query_prefix = \"Q: \"")).unwrap();
        assert_eq!(settings.prepared("CT 过敏", Purpose::Query), "Q: ct 过敏");
        assert_eq!(settings.prepared("CT 过敏", Purpose::Passage), "ct 过敏");
        assert_eq!(
            (settings.model.as_str(), settings.tokenizer.as_str()),
            ("model.onnx", "tokenizer.json")
        );
    }

    #[test]
    fn what_is_missing_or_misspelt_is_named() {
        let check = |text: &str, word: &str| {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(word), "{word} in {error}");
        };
        check(&LEAST.replace("pooling", "poling"), "poling");
        check(&LEAST.replace("\"mean\"", "\"max\""), "max");
        check("name = \"m\"", "missing field");
        check(&LEAST.replace("= 8", "= 0"), "dimension");
        check(&format!("{LEAST}weight = 0.0"), "weight");
        check(&format!("{LEAST}weight = nan"), "weight");
    }
}
