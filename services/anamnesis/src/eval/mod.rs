//! Evaluation sets: what is imported, what is asked, what is counted. Data only ever comes from the
//! folder that the command names.

pub mod synthea;

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// What a set measured.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Questions asked.
    pub n: usize,
    pub metrics: BTreeMap<String, f64>,
    pub notes: Vec<String>,
    pub model: String,
}

/// Reads a file of JSON Lines.
///
/// # Errors
/// Names the file and the line, never its content.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::wrong_use(format!("cannot read {}: {error}", path.display())))?;
    let mut rows = Vec::new();
    for (number, line) in std::io::BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| {
            Failure::wrong_use(format!("cannot read {}: {error}", path.display()))
        })?;
        if line.trim().is_empty() {
            continue;
        }
        let row = serde_json::from_str(&line).map_err(|error| {
            Failure::wrong_use(format!(
                "{}:{}: column {} is not as expected",
                path.display(),
                number + 1,
                error.column()
            ))
        })?;
        rows.push(row);
    }
    Ok(rows)
}

/// Harmonic mean of precision and recall; nothing expected and nothing returned counts 1.
pub fn f1(hits: usize, returned: usize, expected: usize) -> f64 {
    if returned + expected == 0 {
        return 1.0;
    }
    2.0 * hits as f64 / (returned + expected) as f64
}
