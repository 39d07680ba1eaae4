//! What does one model say of one text? A session of the runtime, with the tokenizer before it and the
//! pooling after it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anamnesis_pipeline::embedder::{EmbedError, Purpose};
use ort::environment::Environment;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::Tensor;
use tokenizers::{Tokenizer, TruncationParams};

use super::settings::{self, Pooling, Settings};
use super::{read, unusable};

pub(super) struct Model {
    pub(super) settings: Settings,
    /// Over everything that decides what a vector is: another prefix makes other vectors, too.
    pub(super) hash: blake3::Hash,
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

impl Model {
    /// The model of a folder, with its settings and how they were written. What is wrong with it is said with the file's path.
    pub(super) fn load(
        dir: &Path,
        (settings, written): (Settings, Vec<u8>),
        environment: &Environment,
        threads: usize,
    ) -> Result<Self, EmbedError> {
        let path = dir.join(&settings.model);
        let model_bytes = read(&path)?;
        let tokenizer_bytes = read(&dir.join(&settings.tokenizer))?;
        let tokenizer = tokenizer(&tokenizer_bytes, dir, &settings)?;
        let session = session(environment, &model_bytes, threads)
            .map_err(|reason| unusable(format!("{} cannot be loaded: {reason}", path.display())))?;
        let mut inputs = Vec::new();
        for input in session.inputs() {
            inputs.push(Input::named(input.name()).ok_or_else(|| {
                unusable(format!(
                    "{} wants the input {}; only BERT-like models are supported",
                    path.display(),
                    input.name()
                ))
            })?);
        }
        let mut hasher = blake3::Hasher::new();
        for part in [&model_bytes, &tokenizer_bytes, &written] {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
        let model = Self {
            settings,
            hash: hasher.finalize(),
            tokenizer,
            session: Mutex::new(session),
            inputs,
        };
        // A wrong dimension or a runtime that cannot run this model is found now, not at a question.
        model.vector("a", Purpose::Passage)?;
        Ok(model)
    }

    /// One text at a time, of length one.
    pub(super) fn vector(&self, text: &str, purpose: Purpose) -> Result<Vec<f32>, EmbedError> {
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

fn tokenizer(bytes: &[u8], dir: &Path, settings: &Settings) -> Result<Tokenizer, EmbedError> {
    let path = dir.join(&settings.tokenizer);
    let broken = || unusable(format!("{} is not a tokenizer", path.display()));
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

fn session(environment: &Environment, model: &[u8], threads: usize) -> Result<Session, String> {
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
