//! Which log lines are written, and in which form? To standard error, since standard output is for
//! answers.
//!
//! Nothing that a patient said may reach a line: words travel in `Text`, whose `Debug` prints its
//! length, and owners print their scope only. Libraries know no such rule, and at `debug` some print
//! the values that they are handed; so production refuses `debug` and `trace`, for any module. Only
//! the configuration sets the level: `RUST_LOG` is not read, or it would be a way around.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{LogFormat, Profile, TelemetryConfig};

/// Tells each connection at `info`.
const QUIET: &str = "neo4rs=warn";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "telemetry.level: `{level}` is not a level such as info, or info,anamnesis_recall=debug"
    )]
    NotALevel { level: String },
    #[error(
        "telemetry.level: `{level}` is refused with profile = \"production\", since debug lines may \
         carry what a patient said; use info, warn or error"
    )]
    TooTalkative { level: String },
    #[error("telemetry is already set up in this process")]
    AlreadySet,
}

/// Sets the process's subscriber. Once per process.
///
/// # Errors
/// When the level cannot be read, says too much for production, or a subscriber is already set.
pub fn init(config: &TelemetryConfig, profile: Profile) -> Result<(), TelemetryError> {
    let filter = filter(&config.level, profile)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A line that nobody reads any more is no reason to end: complaining about it would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let set = match config.format {
        LogFormat::Text => lines
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    set.map_err(|_| TelemetryError::AlreadySet)
}

fn filter(level: &str, profile: Profile) -> Result<EnvFilter, TelemetryError> {
    let not_a_level = || TelemetryError::NotALevel {
        level: level.to_owned(),
    };
    // A word that is no level would be read as the name of a module, at trace; nothing, as `error`.
    let is_directive = |part: &str| {
        part.contains('=')
            || (!part.trim().is_empty() && part.trim().parse::<LevelFilter>().is_ok())
    };
    if !level.split(',').all(is_directive) {
        return Err(not_a_level());
    }
    // What is configured stands after it, and wins.
    let filter = EnvFilter::builder()
        .parse(format!("{QUIET},{level}"))
        .map_err(|_| not_a_level())?;
    // Without a hint the filter depends on values in a span, and could let anything through.
    let most = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    match profile {
        Profile::Production if most > LevelFilter::INFO => Err(TelemetryError::TooTalkative {
            level: level.to_owned(),
        }),
        Profile::Production | Profile::Development => Ok(filter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(level: &str, development: &str, production: &str) {
        let say = |profile| match filter(level, profile) {
            Ok(_) => "fine",
            Err(TelemetryError::NotALevel { .. }) => "not a level",
            Err(TelemetryError::TooTalkative { .. }) => "refused",
            Err(TelemetryError::AlreadySet) => "already set",
        };
        assert_eq!(
            (say(Profile::Development), say(Profile::Production)),
            (development, production)
        );
    }

    #[test]
    fn production_refuses_debug_however_it_is_written() {
        check("info", "fine", "fine");
        check("warn,anamnesis_recall=info", "fine", "fine");
        check("off", "fine", "fine");
        check("debug", "fine", "refused");
        check("DEBUG", "fine", "refused");
        check("trace", "fine", "refused");
        check("info,anamnesis_recall=debug", "fine", "refused");
        check("info,[recall]=trace", "fine", "refused");
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        check("loud", "not a level", "not a level");
        check("", "not a level", "not a level");
        check("info,anamnesis_recall=loud", "not a level", "not a level");
    }
}
