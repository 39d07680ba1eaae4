//! `eval`: measures with an evaluation set, in a folder of its own, through the very path that imports
//! and answers.

use clap::ValueEnum as _;
use serde_json::{Value, json};

use crate::cli::{EvalArgs, Exit};
use crate::config::Config;
use crate::eval::{self, Figures};
use crate::failure::Failure;

/// In the order in which recall goes.
const ROWS: [&str; 5] = ["text", "vector", "graph", "fused", "full"];

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn run(config: Config, args: EvalArgs) -> Result<Exit, Failure> {
    let figures = eval::measure(&config, &args).await?;
    let set = args.set.to_possible_value();
    let set = set.as_ref().map_or("", |set| set.get_name());
    print(set, &figures);
    if let Some(path) = &args.json {
        let document = document(set, &config, &args, &figures);
        let text = serde_json::to_string_pretty(&document).map_err(Failure::wrong_use)?;
        std::fs::write(path, text).map_err(|error| {
            Failure::wrong_use(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    let leaks = figures.metrics.get("owner_leak").copied().unwrap_or(0.0);
    Ok(if leaks == 0.0 {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

fn print(set: &str, figures: &Figures) {
    crate::say!("{set}: n = {}, {}", figures.n, figures.model);
    for (key, value) in &figures.metrics {
        match figures.intervals.get(key) {
            Some([low, high]) if low < high => {
                crate::say!("  {key:<36} {value:.4}   {low:.3} to {high:.3}");
            }
            Some(_) | None => crate::say!("  {key:<36} {value:.4}"),
        }
    }
    let names: Vec<&str> = ROWS
        .into_iter()
        .filter(|row| figures.rows.contains_key(row))
        .collect();
    if !names.is_empty() {
        let heads: Vec<String> = names.iter().map(|name| format!("{name:>7}")).collect();
        crate::say!("  {:<36} {}", "by leg", heads.join(" "));
    }
    let legs = figures.rows.iter().find(|(row, _)| **row != "full");
    for key in legs
        .map(|(_, metrics)| metrics.keys())
        .into_iter()
        .flatten()
    {
        let values = names.iter().map(|row| figures.rows[row].get(key));
        let shown: Vec<String> = values
            .map(|value| value.map_or("      -".to_owned(), |value| format!("{value:>7.4}")))
            .collect();
        crate::say!("  {key:<36} {}", shown.join(" "));
    }
    for note in &figures.notes {
        crate::say!("  {note}");
    }
}

fn document(set: &str, config: &Config, args: &EvalArgs, figures: &Figures) -> Value {
    let mut rows = figures.rows.clone();
    rows.insert("full", figures.metrics.clone());
    json!({
        "set": set,
        "commit": option_env!("ANAMNESIS_COMMIT").unwrap_or("unknown"),
        "machine": machine(),
        "config": {
            "embedding": figures.model,
            "limit": args.limit,
            "floor": config.recall.floor,
        },
        "n": figures.n,
        "metrics": figures.metrics,
        "intervals": figures.intervals,
        "rows": rows,
        "notes": figures.notes,
    })
}

/// Cores and processor, so that figures can be compared.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    format!("{cores} cores, {model}")
}
