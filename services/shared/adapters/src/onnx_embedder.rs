//! What vector do language models give a text? BERT-like ONNX models, run in this process.
//!
//! A folder holds a model, its tokenizer and `model.toml`, which says how the model wants to be asked;
//! `infra/get-models.sh` fills some. Texts are run one at a time: in a batch the shorter ones are padded
//! and the sums are made in another order, and then a vector would depend on its neighbours.
//!
//! Several models make one vector: the vectors of all, one after another, each scaled so that the cosine
//! of two such vectors is the weighted mean of the models' cosines. A model that reads no Chinese is left
//! out where there is some. Stores, log and ranking see one model with one identity.

mod model;
mod runtime;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_domain::tokens;
use anamnesis_pipeline::embedder::{EmbedError, Embedder, ModelIdentity, Purpose};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use self::model::Model;
use self::settings::Settings;

/// Language models, loaded once per process.
pub struct OnnxEmbedder {
    identity: ModelIdentity,
    /// First come, first served, text by text: a question waits for one text of a long list, not for all.
    turn: Arc<Semaphore>,
    models: Arc<[Model]>,
}

impl OnnxEmbedder {
    /// Loads the model of `dir`, or instead of it the models of the folders in it that `names` lists, on
    /// `threads` threads of their own. `runtime` is the ONNX runtime's shared library; without it the one
    /// in `dir` is taken.
    ///
    /// # Errors
    /// [`EmbedError::Unusable`], naming the file and what is wrong with it.
    pub fn load(
        dir: &Path,
        names: &[String],
        runtime: Option<&Path>,
        threads: usize,
    ) -> Result<Self, EmbedError> {
        let folders: Vec<PathBuf> = match names {
            [] => vec![dir.to_owned()],
            names => names.iter().map(|name| dir.join(name)).collect(),
        };
        let mut settings = Vec::new();
        for folder in &folders {
            settings.push(Settings::read(folder)?);
        }
        let environment = runtime::environment(dir, runtime)?;
        let mut models = Vec::new();
        for (folder, settings) in folders.iter().zip(settings) {
            models.push(Model::load(folder, settings, &environment, threads)?);
        }
        let identity = identity(&models);
        Ok(Self {
            identity,
            turn: Arc::new(Semaphore::new(1)),
            models: models.into(),
        })
    }
}

/// Names all models, and by its hash also their order and weights: those are in `model.toml`.
fn identity(models: &[Model]) -> ModelIdentity {
    let names: Vec<&str> = models
        .iter()
        .map(|model| model.settings.name.as_str())
        .collect();
    let hash = match models {
        [one] => one.hash,
        several => {
            let mut hasher = blake3::Hasher::new();
            for model in several {
                hasher.update(model.hash.as_bytes());
            }
            hasher.finalize()
        }
    };
    ModelIdentity {
        id: format!("{}-{}", names.join("+"), &hash.to_hex()[..16]),
        dimension: models.iter().map(|model| model.settings.dimension).sum(),
    }
}

#[async_trait]
impl Embedder for OnnxEmbedder {
    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    fn is_semantic(&self) -> bool {
        true
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        let broken_off = || EmbedError::Unavailable {
            reason: "computing a vector was broken off".to_owned(),
        };
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            if text.trim().is_empty() {
                vectors.push(vec![0.0; self.identity.dimension as usize]);
                continue;
            }
            // Kept until the vector is made, even when nobody waits for it any more: otherwise those who
            // come after a late one would each take a thread and wait for it there.
            let turn = self.turn.clone().acquire_owned().await;
            let turn = turn.map_err(|_| broken_off())?;
            let (models, text) = (self.models.clone(), (*text).to_owned());
            let made = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                joined(&models, &text, purpose)
            });
            vectors.push(made.await.map_err(|_| broken_off())??);
        }
        Ok(vectors)
    }
}

/// The vectors of those models that read this text, one after another, and nothing where the others would
/// stand. The scales' squares sum to one, so the whole has length one.
fn joined(models: &[Model], text: &str, purpose: Purpose) -> Result<Vec<f32>, EmbedError> {
    let scales = scales(models.iter().map(|model| &model.settings), text);
    let mut vector = Vec::new();
    for (model, scale) in models.iter().zip(scales) {
        if scale == 0.0 {
            vector.resize(vector.len() + model.settings.dimension as usize, 0.0);
            continue;
        }
        let made = model.vector(text, purpose)?;
        let scaled = made
            .into_iter()
            .map(|component| (f64::from(component) * scale) as f32);
        vector.extend(scaled);
    }
    Ok(vector)
}

/// What each model's part is multiplied with: the root of its weight, since a cosine has it from both
/// vectors. A text that no model reads is left to all of them.
fn scales<'a>(models: impl Iterator<Item = &'a Settings>, text: &str) -> Vec<f64> {
    let has_han = text.chars().any(tokens::is_han);
    let all: Vec<&Settings> = models.collect();
    let is_read = all.iter().any(|model| model.han);
    let weight = |model: &&Settings| match has_han && is_read && !model.han {
        true => 0.0,
        false => model.weight,
    };
    let sum: f64 = all.iter().map(weight).sum();
    let scale = |model| (weight(model) / sum).sqrt();
    all.iter().map(scale).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, EmbedError> {
    fs::read(path).map_err(|error| unusable(format!("{}: {error}", path.display())))
}

fn unusable(reason: String) -> EmbedError {
    EmbedError::Unusable { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(weight: f64, han: bool) -> Settings {
        let text = format!(
            "name = \"m\"\ndimension = 8\npooling = \"cls\"\nmax_tokens = 9\nlowercase = true\n\
             weight = {weight:?}\nhan = {han}"
        );
        Settings::parse(&text).unwrap()
    }

    #[test]
    fn the_parts_of_a_vector_make_length_one_whoever_reads_the_text() {
        let check = |models: &[(f64, bool)], text: &str, expected: &[f64]| {
            let models: Vec<Settings> = models.iter().map(|(w, han)| model(*w, *han)).collect();
            let squares: Vec<f64> = scales(models.iter(), text)
                .iter()
                .map(|scale| scale * scale)
                .collect();
            let difference = |(a, b): (&f64, &f64)| (a - b).abs();
            let worst = squares
                .iter()
                .zip(expected)
                .map(difference)
                .fold(0.0, f64::max);
            assert!(worst < 1e-9, "{text}: {squares:?}");
        };
        check(&[(1.0, true)], "过敏", &[1.0]);
        check(&[(7.0, false)], "过敏", &[1.0]);
        check(&[(1.0, true), (3.0, true)], "过敏", &[0.25, 0.75]);
        let three = [(1.0, true), (1.0, true), (2.0, false)];
        check(&three, "allergic", &[0.25, 0.25, 0.5]);
        check(&three, "对 penicillin 过敏", &[0.5, 0.5, 0.0]);
        check(&[(1.0, false), (1.0, false)], "过敏", &[0.5, 0.5]);
    }
}
