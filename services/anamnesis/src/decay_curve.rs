//! How fast does a kind of memory, or a rate, fade? The table behind `anamnesis decay-curve`, computed
//! by the functions that ranking and forgetting use.

use std::fmt::Write;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::decay::{self, Rate};
use anamnesis_domain::memory::Kind;

/// Days that are shown: a day, a week, a month, a season, half a year, a year, three years.
const DAYS: [u32; 7] = [1, 7, 30, 90, 180, 365, 1095];

/// Recency of a kind, as recall ranks by it.
pub fn of_kind(kind: Kind) -> String {
    let half_life = f64::from(Attributes::shipped().kind(kind).half_life_days);
    table(
        &format!("{kind}, recency 0.5^(days / half-life)"),
        half_life,
        |days| decay::recency(days, half_life),
    )
}

/// Exponential decay with a rate, counted from the event's time.
pub fn of_rate(rate: Rate) -> String {
    table(
        &format!("{rate}, e^(-rate x time)"),
        rate.half_life_days(),
        |days| rate.left_after_days(days),
    )
}

fn table(title: &str, half_life_days: f64, left_after: impl Fn(f64) -> f64) -> String {
    let mut table = format!(
        "{title}\nhalf-life {}\n\n  days     left\n",
        half_life(half_life_days)
    );
    for days in DAYS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "{days:>6}  {:>7}",
            percent(left_after(f64::from(days)))
        );
    }
    table
}

fn half_life(days: f64) -> String {
    if days.is_infinite() {
        return "none: nothing fades".to_owned();
    }
    if days >= 10.0 {
        return format!("{days:.0} days");
    }
    if days >= 1.0 {
        return format!("{days:.1} days");
    }
    format!("{:.1} hours", days * 24.0)
}

/// Small shares keep their magnitude: 5.5e-12 is not 0 %.
fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0005 {
        return format!("{:.1e}", share);
    }
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &str, lines: &[&str]) {
        for line in lines {
            assert!(
                table.lines().any(|shown| shown.trim() == *line),
                "no line {line:?} in\n{table}"
            );
        }
    }

    #[test]
    fn worked_figures_are_right() {
        check(
            &of_rate("0.02/day".parse().unwrap()),
            &["half-life 35 days", "30   54.9 %"],
        );
        check(
            &of_rate("0.15/day".parse().unwrap()),
            &["half-life 4.6 days", "7   35.0 %"],
        );
        check(
            &of_rate("0.001/day".parse().unwrap()),
            &["half-life 693 days", "1095   33.5 %"],
        );
        check(
            &of_rate("1e-5/s".parse().unwrap()),
            &["half-life 19.3 hours", "30  5.5e-12"],
        );
    }

    #[test]
    fn a_kind_fades_by_its_half_life() {
        check(
            &of_kind(Kind::Episode),
            &["half-life 180 days", "180   50.0 %"],
        );
        check(
            &of_kind(Kind::Allergy),
            &["half-life 3650 days", "1095   81.2 %"],
        );
    }

    #[test]
    fn a_rate_of_zero_keeps_everything() {
        check(
            &of_rate("0/day".parse().unwrap()),
            &["half-life none: nothing fades", "1095  100.0 %"],
        );
    }
}
