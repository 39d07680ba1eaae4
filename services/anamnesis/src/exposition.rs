//! How are numbers written that are known when they are asked for? In Prometheus' text format, beside
//! what the recorder writes. A recorder keeps a series for ever; what is written here is gone when it is
//! not written again, as the lag of a partition that another process has now.

use std::fmt::Write as _;

use crate::metrics::{Form, Metric, catalogue};

/// One metric with all its values, as the format wants them together.
pub struct Family {
    metric: Metric,
    samples: Vec<(Vec<String>, f64)>,
}

impl Family {
    /// # Panics
    /// When the catalogue has no such metric: names are constants, and a test renders all of them.
    pub fn new(name: &str) -> Self {
        let metric = catalogue().into_iter().find(|metric| metric.name == name);
        Self {
            metric: metric.unwrap_or_else(|| panic!("{name} is not in the catalogue")),
            samples: Vec::new(),
        }
    }

    /// A metric without labels.
    pub fn single(name: &str, value: f64) -> Self {
        let mut family = Self::new(name);
        family.push(&[], value);
        family
    }

    /// One value, with the values of the labels in the catalogue's order.
    pub fn push(&mut self, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.samples.push((labels, value));
    }

    pub fn write(&self, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let Metric {
            name, form, help, ..
        } = &self.metric;
        let form = match form {
            Form::Counter => "counter",
            Form::Gauge => "gauge",
            Form::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {form}\n");
        for (values, value) in &self.samples {
            let labels: Vec<String> = self
                .metric
                .labels
                .iter()
                .zip(values)
                .map(|((label, _), value)| format!("{label}=\"{value}\""))
                .collect();
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", labels.join(","))
            };
            let _ = writeln!(out, "{name}{labels} {value}");
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{LAG_SECONDS, READY};

    #[test]
    fn values_stand_under_their_metric_with_its_labels() {
        let mut out = String::new();
        let mut lag = Family::new(LAG_SECONDS);
        lag.push(&["indexer", "3"], 1.5);
        lag.write(&mut out);
        Family::single(READY, 1.0).write(&mut out);
        assert_eq!(
            out,
            "# HELP anamnesis_lag_seconds age of the oldest record that a stage has not answered\n\
             # TYPE anamnesis_lag_seconds gauge\n\
             anamnesis_lag_seconds{stage=\"indexer\",partition=\"3\"} 1.5\n\n\
             # HELP anamnesis_ready 1 when the process says that it is ready\n\
             # TYPE anamnesis_ready gauge\n\
             anamnesis_ready 1\n\n"
        );
    }

    #[test]
    fn a_metric_without_values_is_not_mentioned() {
        let mut out = String::new();
        Family::new(LAG_SECONDS).write(&mut out);
        assert_eq!(out, "");
    }
}
