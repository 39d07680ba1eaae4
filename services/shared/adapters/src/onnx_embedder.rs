//! What vector does a language model give a text? A BERT-like ONNX model, run in this process.
//!
//! A folder holds the model, its tokenizer and `model.toml`, which says how the model wants to be asked;
//! `infra/get-models.sh` fills one. Texts are run one at a time: in a batch the shorter ones are padded
//! and the sums are made in another order, and then a vector would depend on its neighbours.

mod runtime;
mod settings;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anamnesis_pipeline::embedder::{EmbedError, Embedder, ModelIdentity, Purpose};
use async_trait::async_trait;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::Tensor;
use tokenizers::{Tokenizer, TruncationParams};
use tokio::sync::Semaphore;

use self::settings::{Pooling, Settings};

/// A language model, loaded once per process.
pub struct OnnxEmbedder {
    identity: ModelIdentity,
    /// First come, first served, text by text: a question waits for one text of a long list, not for all.
    turn: Semaphore,
    model: Arc<Model>,
}

struct Model {
    settings: Settings,
    tokenizer: Tokenizer,
    session: Mutex<Session>,
    inputs: Vec<Input>,
}

/// What a BERT-like model is given for each token.
#[derive(Clone, Copy)]
enum Input {
    TokenIds,
    AttentionMask,
    TokenTypes,
}

impl OnnxEmbedder {
    /// Loads the model of `dir` on `threads` threads of its own. `runtime` is the ONNX runtime's shared
    /// library; without it the one beside the model is taken.
    ///
    /// # Errors
    /// [`EmbedError::Unusable`], naming the file and what is wrong with it.
    pub fn load(dir: &Path, runtime: Option<&Path>, threads: usize) -> Result<Self, EmbedError> {
        let (settings, written) = Settings::read(dir)?;
        let model_bytes = read(&dir.join(&settings.model))?;
        let tokenizer_bytes = read(&dir.join(&settings.tokenizer))?;
        let tokenizer = tokenizer(&tokenizer_bytes, &settings)?;

        let environment = runtime::environment(dir, runtime)?;
        let session = session(&environment, &model_bytes, threads)
            .map_err(|reason| unusable(format!("{} cannot be loaded: {reason}", settings.model)))?;
        let mut inputs = Vec::new();
        for input in session.inputs() {
            inputs.push(Input::named(input.name()).ok_or_else(|| {
                unusable(format!(
                    "{} wants the input {}; only BERT-like models are supported",
                    settings.model,
                    input.name()
                ))
            })?);
        }

        // Everything that decides what a vector is: another prefix makes other vectors, too.
        let mut hasher = blake3::Hasher::new();
        for part in [&model_bytes, &tokenizer_bytes, &written] {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
        let hash = hasher.finalize().to_hex();
        let identity = ModelIdentity {
            id: format!("{}-{}", settings.name, &hash[..16]),
            dimension: settings.dimension,
        };
        let model = Model {
            settings,
            tokenizer,
            session: Mutex::new(session),
            inputs,
        };
        // A wrong dimension or a runtime that cannot run this model is found now, not at a question.
        model.vector("a", Purpose::Passage)?;
        Ok(Self {
            identity,
            turn: Semaphore::new(1),
            model: Arc::new(model),
        })
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
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            if text.trim().is_empty() {
                vectors.push(vec![0.0; self.identity.dimension as usize]);
                continue;
            }
            let turn = self.turn.acquire().await;
            let (model, text) = (self.model.clone(), (*text).to_owned());
            let made = tokio::task::spawn_blocking(move || model.vector(&text, purpose)).await;
            drop(turn);
            vectors.push(made.map_err(|_| EmbedError::Unavailable {
                reason: "computing a vector was broken off".to_owned(),
            })??);
        }
        Ok(vectors)
    }
}

impl Model {
    fn vector(&self, text: &str, purpose: Purpose) -> Result<Vec<f32>, EmbedError> {
        let failed = |what: String| EmbedError::Unavailable { reason: what };
        let encoding = self
            .tokenizer
            .encode_fast(self.settings.prepared(text, purpose), true)
            // The tokenizer's own message may quote the text.
            .map_err(|_| failed("a text cannot be split into tokens".to_owned()))?;
        let length = encoding.get_ids().len();
        let mut values: Vec<(&str, SessionInputValue<'_>)> = Vec::new();
        for input in &self.inputs {
            let numbers = match input {
                Input::TokenIds => encoding.get_ids(),
                Input::AttentionMask => encoding.get_attention_mask(),
                Input::TokenTypes => encoding.get_type_ids(),
            };
            let numbers: Vec<i64> = numbers.iter().copied().map(i64::from).collect();
            let tensor = Tensor::from_array(([1, length], numbers))
                .map_err(|error| failed(error.to_string()))?;
            values.push((input.name(), tensor.into()));
        }

        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session
            .run(values)
            .map_err(|error| failed(error.to_string()))?;
        let (shape, numbers) = outputs[0]
            .try_extract_tensor::<f32>()
            .map_err(|error| failed(error.to_string()))?;
        let width = shape.last().copied().unwrap_or(0);
        if width != i64::from(self.settings.dimension) {
            return Err(unusable(format!(
                "{} makes vectors of {width} dimensions, and {} says {}",
                self.settings.model,
                settings::FILE,
                self.settings.dimension
            )));
        }
        let width = width as usize;
        let is_per_token = numbers.len() == length * width && shape.len() == 3;
        let pooled = match self.settings.pooling {
            Pooling::Cls if is_per_token => numbers[..width].to_vec(),
            Pooling::Mean if is_per_token => mean(numbers, width),
            Pooling::None if numbers.len() == width => numbers.to_vec(),
            Pooling::Cls | Pooling::Mean | Pooling::None => {
                return Err(unusable(format!(
                    "{} answers with the shape {shape:?}, which does not suit the pooling in {}",
                    self.settings.model,
                    settings::FILE
                )));
            }
        };
        Ok(unit_length(pooled))
    }
}

impl Input {
    fn named(name: &str) -> Option<Self> {
        [Self::TokenIds, Self::AttentionMask, Self::TokenTypes]
            .into_iter()
            .find(|input| input.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::TokenIds => "input_ids",
            Self::AttentionMask => "attention_mask",
            Self::TokenTypes => "token_type_ids",
        }
    }
}

fn tokenizer(bytes: &[u8], settings: &Settings) -> Result<Tokenizer, EmbedError> {
    let broken = || unusable(format!("{} is not a tokenizer", settings.tokenizer));
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|_| broken())?;
    // Some tokenizer files force padding to a fixed length, and most leave truncation to the caller.
    let truncation = TruncationParams {
        max_length: settings.max_tokens,
        ..TruncationParams::default()
    };
    tokenizer
        .with_padding(None)
        .with_truncation(Some(truncation))
        .map_err(|_| broken())?;
    Ok(tokenizer)
}

fn session(
    environment: &ort::environment::Environment,
    model: &[u8],
    threads: usize,
) -> Result<Session, String> {
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder
        .with_optimization_level(GraphOptimizationLevel::Level3)
        .map_err(|error| error.to_string())?;
    let builder = builder
        .with_intra_threads(threads.max(1))
        .map_err(|error| error.to_string())?;
    // Every text has another length, so a plan of memory for one length would be kept for nothing.
    let mut builder = builder
        .with_memory_pattern(false)
        .map_err(|error| error.to_string())?;
    builder
        .commit_from_memory(model)
        .map_err(|error| error.to_string())
}

fn mean(numbers: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0f32; width];
    for token in numbers.chunks_exact(width) {
        for (sum, component) in sum.iter_mut().zip(token) {
            *sum += component;
        }
    }
    // Dividing by the number of tokens would be undone by the length.
    sum
}

fn unit_length(mut vector: Vec<f32>) -> Vec<f32> {
    let square: f64 = vector
        .iter()
        .map(|component| f64::from(*component).powi(2))
        .sum();
    let length = square.sqrt();
    if length > 0.0 {
        for component in &mut vector {
            *component = (f64::from(*component) / length) as f32;
        }
    }
    vector
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

    #[test]
    fn a_vector_has_length_one_and_nothing_stays_nothing() {
        assert_eq!(unit_length(vec![3.0, 4.0]), [0.6, 0.8]);
        assert_eq!(unit_length(vec![0.0, 0.0]), [0.0, 0.0]);
    }

    #[test]
    fn a_mean_points_where_the_tokens_point_together() {
        assert_eq!(
            unit_length(mean(&[1.0, 0.0, 0.0, 1.0], 2)),
            unit_length(vec![1.0, 1.0])
        );
    }
}
