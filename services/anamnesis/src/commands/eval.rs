//! `eval`: measures with an evaluation set, in a folder of its own, through the very path that imports
//! and answers.

use std::collections::BTreeMap;

use serde_json::json;

use crate::cli::{EvalArgs, EvalSet, Exit};
use crate::config::Config;
use crate::eval::synthea;
use crate::failure::Failure;

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn run(config: Config, args: EvalArgs) -> Result<Exit, Failure> {
    let (set, figures) = match args.set {
        EvalSet::Synthea => ("synthea", synthea::measure(&config, &args).await?),
    };
    println!("{set}: n = {}", figures.n);
    for (key, value) in &figures.metrics {
        println!("  {key:<28} {value:.4}");
    }
    for note in &figures.notes {
        println!("  {note}");
    }
    if let Some(path) = &args.json {
        let rows: BTreeMap<&str, &BTreeMap<String, f64>> =
            BTreeMap::from([("full", &figures.metrics)]);
        let document = json!({
            "set": set,
            "commit": option_env!("ANAMNESIS_COMMIT").unwrap_or("unknown"),
            "machine": machine(),
            "config": { "embedding": figures.model, "limit": args.limit },
            "n": figures.n,
            "metrics": figures.metrics,
            "rows": rows,
        });
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
