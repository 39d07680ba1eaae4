//! The binary: read what is asked and configured, run it, say how it ended.

// They panic when nobody reads any more; `say!` and `complain!` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Duration;

use anamnesis::cli::{Cli, Command, Exit, ParkedCommand, ReviewCommand};
use anamnesis::commands;
use anamnesis::config::{Config, LogConfig};
use anamnesis::decay_curve;
use anamnesis::failure::Failure;
use anamnesis::role::Role;
use anamnesis::telemetry;
use clap::Parser as _;

/// Folding a log allocates much that lives shortly; the C library's allocator took a fifth of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long what still runs may take when the command has ended.
const END_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            anamnesis::complain!("anamnesis: {failure}");
            failure.exit().into()
        }
    }
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    if let Command::DecayCurve(args) = &cli.command {
        let table = match (args.kind, args.lambda) {
            (Some(kind), _) => decay_curve::of_kind(kind),
            (None, Some(rate)) => decay_curve::of_rate(rate),
            (None, None) => return Err(Failure::wrong_use("give --kind or --lambda")),
        };
        anamnesis::say_text!("{table}");
        return Ok(Exit::Fine);
    }
    let config = Config::load(cli.config.as_deref(), &cli.command.flags())?;
    if let Command::Config(_) = &cli.command {
        anamnesis::say_text!("{}", config.to_masked_toml().map_err(Failure::wrong_use)?);
        return Ok(Exit::Fine);
    }
    let is_in_folder = matches!(config.log, LogConfig::Sqlite { .. });
    if is_in_folder && cli.command.needs_a_log() && !config.data_dir.join("log.db").exists() {
        return Err(Failure::wrong_use(format!(
            "{} holds no log: name the folder of a server or of an import with --data",
            config.data_dir.display()
        )));
    }
    telemetry::init(&config.telemetry, config.profile).map_err(Failure::wrong_use)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unreachable(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(dispatch(cli.command, config));
    // A client of a server that is gone may take its time to end; nothing waits for it.
    runtime.shutdown_timeout(END_MAX);
    result
}

async fn dispatch(command: Command, config: Config) -> Result<Exit, Failure> {
    match command {
        Command::Demo => commands::demo::run().await,
        Command::Serve(_) => commands::serve::run(config, Role::All).await,
        Command::Intake(_) => commands::serve::run(config, Role::Intake).await,
        Command::Extractor(_) => commands::serve::run(config, Role::Extractor).await,
        Command::ValidityManager(_) => commands::serve::run(config, Role::ValidityManager).await,
        Command::Indexer(_) => commands::serve::run(config, Role::Indexer).await,
        Command::Forgetter(_) => commands::serve::run(config, Role::Forgetter).await,
        Command::Recall(_) => commands::serve::run(config, Role::Recall).await,
        Command::Ready(args) => commands::ready::run(&config, args.wait).await,
        Command::Topics(command) => commands::topics::run(config, command).await,
        Command::Import(args) => commands::import::run(config, args).await,
        Command::Export(args) => commands::export::run(config, args).await,
        Command::Audit(command) => commands::audit::run(config, command).await,
        Command::Rebuild(args) => commands::rebuild::run(config, args).await,
        Command::Eval(args) => commands::eval::run(config, args).await,
        Command::Forget(args) => commands::forget::run(config, args).await,
        Command::Review(ReviewCommand::List(args)) => commands::review::list(config, args).await,
        Command::Review(ReviewCommand::Decide(args)) => {
            commands::review::decide(config, args).await
        }
        Command::Parked(ParkedCommand::List(args)) => commands::parked::list(config, args).await,
        Command::Parked(ParkedCommand::Retry(args)) => commands::parked::retry(config, args).await,
        Command::HealthCheck(args) => commands::health_check::run(config, args).await,
        // Answered before a runtime was needed.
        Command::Config(_) | Command::DecayCurve(_) => Ok(Exit::Fine),
    }
}
