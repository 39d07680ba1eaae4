//! Evaluation sets: what is imported, what is asked, what is counted. Data only ever comes from the
//! folder that the command names.
//!
//! - [`score`]: how an answer is counted; [`world`]: the node that is told and asked
//! - [`synthea`], [`timeqa`]: what held when; [`attribution`]: whom and what a statement is about;
//!   [`intent`]: who asks for something to be written down; [`alike`]: what a model's cosines tell
//! - [`safety`], [`pii`], [`dialog`]: what is kept out, hidden, and found
//! - [`memorybank`], [`locomo`], [`beam`], [`longmemeval`], [`precision`]: which memory comes first

pub mod alike;
pub mod attribution;
pub mod beam;
pub mod dialog;
pub mod intent;
pub mod locomo;
pub mod longmemeval;
pub mod memorybank;
pub mod pii;
pub mod precision;
pub mod safety;
pub mod score;
pub mod synthea;
pub mod timeqa;
pub mod world;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::cli::{EvalArgs, EvalSet};
use crate::config::Config;
use crate::eval::score::Means;
use crate::failure::Failure;

/// What a set measured.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Questions asked, or cases read.
    pub n: usize,
    pub metrics: BTreeMap<String, f64>,
    /// 95 % intervals of those metrics that are means.
    pub intervals: BTreeMap<String, [f64; 2]>,
    /// The same metrics by leg, where the set asks for a ranking.
    pub rows: BTreeMap<&'static str, BTreeMap<String, f64>>,
    pub notes: Vec<String>,
    pub model: String,
}

impl Figures {
    /// Takes over means and their intervals.
    pub fn put(&mut self, means: &Means) {
        self.metrics.extend(means.means());
        self.intervals.extend(means.intervals());
    }

    /// Takes over the means of each leg; those of the whole of recall are the set's metrics.
    pub fn put_rows(&mut self, rows: &BTreeMap<&'static str, Means>) {
        for (row, means) in rows {
            self.rows.entry(row).or_default().extend(means.means());
            if *row == "full" {
                self.put(means);
            }
        }
    }
}

/// Measures with the set that was asked for.
///
/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    match args.set {
        EvalSet::Synthea => synthea::measure(config, args).await,
        EvalSet::Timeqa => timeqa::measure(config, args).await,
        EvalSet::Safety => safety::measure(config, args).await,
        EvalSet::MtsDialog => dialog::measure(config, args).await,
        EvalSet::Pii => pii::measure(config, args).await,
        EvalSet::Memorybank => memorybank::measure(config, args).await,
        EvalSet::Locomo => locomo::measure(config, args).await,
        EvalSet::Beam => beam::measure(config, args).await,
        EvalSet::Precision => precision::measure(config, args).await,
        EvalSet::Longmemeval => longmemeval::measure(config, args).await,
        EvalSet::Attribution => attribution::measure(config, args).await,
        EvalSet::Intent => intent::measure(args),
        EvalSet::Alike => alike::measure(config, args).await,
    }
}

/// Reads a file of JSON Lines.
///
/// # Errors
/// Names the file and the line, never its content.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Failure> {
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::wrong_use(format!("cannot read {}: {error}", path.display())))?;
    rows(path, BufReader::new(file))
}

fn rows<T: DeserializeOwned>(path: &Path, lines: impl BufRead) -> Result<Vec<T>, Failure> {
    let mut rows = Vec::new();
    for (number, line) in lines.lines().enumerate() {
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

/// The names of the files `*<ending>` of a folder without that ending, in order.
///
/// # Errors
/// When the folder cannot be read or holds none.
pub fn names(folder: &Path, ending: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::wrong_use(format!("cannot read {}: {error}", folder.display()))
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(ending)) {
            names.push(name.to_owned());
        }
    }
    if names.is_empty() {
        return Err(Failure::wrong_use(format!(
            "{} is missing: --data names the folder that holds the sets",
            folder.join(format!("*{ending}")).display()
        )));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_as_expected_is_named_and_not_repeated() {
        let lines = BufReader::new(&b"{\"a\":1}\n\n{\"a\":\"SECRET\"}\n"[..]);
        let read = rows::<BTreeMap<String, u32>>(Path::new("f.jsonl"), lines);
        let told = read.unwrap_err().to_string();
        assert!(told.starts_with("f.jsonl:3: column"), "{told}");
        assert!(!told.contains("SECRET"));
    }

    #[test]
    fn a_set_without_files_says_which_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let told = names(folder.path(), ".qa.jsonl").unwrap_err().to_string();
        assert!(told.contains("*.qa.jsonl is missing"), "{told}");
        std::fs::write(folder.path().join("conv-2.qa.jsonl"), "").unwrap();
        std::fs::write(folder.path().join("conv-1.qa.jsonl"), "").unwrap();
        std::fs::write(folder.path().join("LICENSE"), "").unwrap();
        assert_eq!(
            names(folder.path(), ".qa.jsonl").unwrap(),
            ["conv-1", "conv-2"]
        );
    }

    #[test]
    fn the_whole_of_recall_gives_the_metrics() {
        let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
        rows.entry("text").or_default().add("r5", 0.0);
        rows.entry("full").or_default().add("r5", 1.0);
        let mut figures = Figures::default();
        figures.put_rows(&rows);
        assert_eq!(figures.metrics["r5"], 1.0);
        assert_eq!(figures.rows["text"]["r5"], 0.0);
        assert_eq!(figures.intervals["r5"], [1.0, 1.0]);
    }
}
