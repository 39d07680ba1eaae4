//! What is printed: percentiles, memory, machine.

use std::time::Duration;

use anyhow::Context as _;

#[derive(Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn push(&mut self, taken: Duration) {
        self.0.push(taken);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// p50, p95, p99 and the slowest, in milliseconds.
    pub(crate) fn summary(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: f64| {
            let place =
                ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
            sorted
                .get(place - 1)
                .map_or(0.0, |taken| taken.as_secs_f64() * 1e3)
        };
        format!(
            "p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            at(0.50),
            at(0.95),
            at(0.99),
            at(1.0)
        )
    }
}

/// Resident memory of a process, in MiB.
pub(crate) fn resident_mib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} cannot be read"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("no VmRSS line")? / 1024)
}

/// Cores and processor.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!(
        "{cores} cores, {}",
        model.map_or("unknown processor", |(_, name)| name.trim())
    )
}
