//! What can be asked on the command line, and what the process says when it ends? Names and exit codes
//! are fixed: scripts rely on them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anamnesis_domain::decay::Rate;
use anamnesis_domain::ids::{ErasureId, MemoryId};
use anamnesis_domain::input::Verdict;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::Timestamp;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Flags, Period};
use crate::failure::Failure;

/// How the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    Fine,
    /// What was checked does not hold: drift, a broken chain, an imbalance.
    DoesNotHold,
    /// Wrong use or configuration. Usage errors that clap reports end with the same code.
    WrongUse,
    /// A dependency cannot be reached, or another process has the data folder.
    Unreachable,
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::DoesNotHold => 1,
            Self::WrongUse => 2,
            Self::Unreachable => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Remembers patients on behalf of assistants: one log, pure decisions, disposable indexes.
#[derive(Clone, Debug, Parser)]
#[command(name = "anamnesis", version)]
pub struct Cli {
    /// The configuration file (TOML). Without one, defaults and the environment hold.
    #[arg(long, global = true, env = "ANAMNESIS_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Play a bundled bilingual hospital conversation end to end in a temporary folder.
    Demo,
    /// Run everything in one process.
    Serve(ServeArgs),
    /// Run the way in and the privacy boundary (distributed).
    Intake(ServeArgs),
    /// Run the stage that finds candidates in turns (distributed).
    Extractor(ServeArgs),
    /// Run the stage that decides (distributed).
    ValidityManager(ServeArgs),
    /// Run the stage that keeps the stores equal to the log (distributed).
    Indexer(ServeArgs),
    /// Run what fades and archives (distributed).
    Forgetter(ServeArgs),
    /// Run the way out, with the audit (distributed).
    Recall(ServeArgs),
    /// Make the topics of a log in Kafka, or say what differs from what they must be.
    #[command(subcommand)]
    Topics(TopicsCommand),
    /// Ask the process that is configured here whether it is ready: for health checks.
    Ready(ReadyArgs),
    /// Print the effective configuration, secrets masked.
    Config(ServeArgs),
    /// Import events from JSON Lines or the files of an evaluation set.
    Import(ImportArgs),
    /// Write everything that is remembered of one owner.
    Export(ExportArgs),
    /// Answer from the log, never from a store.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Build a new generation of a store from the log, compare digests, switch.
    Rebuild(RebuildArgs),
    /// Measure with an evaluation set.
    Eval(EvalArgs),
    /// Print how a kind or a rate fades.
    DecayCurve(DecayCurveArgs),
    /// Restrict or erase memories, a message, a source, or everything of an owner.
    Forget(ForgetArgs),
    /// Owners that wait behind a record which a stage could not apply.
    #[command(subcommand)]
    Parked(ParkedCommand),
    /// Questions to a person: conflicts, what nobody confirmed, and what extraction turned down.
    #[command(subcommand)]
    Review(ReviewCommand),
    /// Report what is expired, duplicate, in conflict or of low value; act only when told.
    HealthCheck(HealthCheckArgs),
}

impl Command {
    /// Whether the command is about what is there, so that a folder without a log is a mistake.
    pub fn needs_a_log(&self) -> bool {
        match self {
            Self::Export(_)
            | Self::Audit(_)
            | Self::Rebuild(_)
            | Self::Forget(_)
            | Self::Parked(_)
            | Self::Review(_)
            | Self::HealthCheck(_) => true,
            Self::Demo
            | Self::Serve(_)
            | Self::Intake(_)
            | Self::Extractor(_)
            | Self::ValidityManager(_)
            | Self::Indexer(_)
            | Self::Forgetter(_)
            | Self::Recall(_)
            | Self::Topics(_)
            | Self::Ready(_)
            | Self::Config(_)
            | Self::Import(_)
            | Self::Eval(_)
            | Self::DecayCurve(_) => false,
        }
    }

    /// What this command sets over the configuration.
    pub fn flags(&self) -> Flags {
        let folder = |data: &DataArgs| Flags {
            data_dir: data.data.clone(),
            listen: None,
        };
        match self {
            Self::Serve(args)
            | Self::Intake(args)
            | Self::Extractor(args)
            | Self::ValidityManager(args)
            | Self::Indexer(args)
            | Self::Forgetter(args)
            | Self::Recall(args)
            | Self::Ready(ReadyArgs { asked: args, .. })
            | Self::Config(args) => Flags {
                data_dir: args.data.data.clone(),
                listen: args.listen,
            },
            Self::Import(args) => folder(&args.data),
            Self::Export(args) => folder(&args.data),
            Self::Audit(command) => folder(command.data()),
            Self::Rebuild(args) => folder(&args.data),
            Self::Forget(args) => folder(&args.data),
            Self::Parked(ParkedCommand::List(args) | ParkedCommand::Retry(args)) => {
                folder(&args.data)
            }
            Self::Review(ReviewCommand::List(args)) => folder(&args.data),
            Self::Review(ReviewCommand::Decide(args)) => folder(&args.data),
            Self::HealthCheck(args) => folder(&args.data),
            Self::Topics(TopicsCommand::GiveUpLost(args)) => folder(args),
            Self::Demo | Self::Topics(_) | Self::Eval(_) | Self::DecayCurve(_) => Flags::default(),
        }
    }
}

/// Not global: `eval --data` is the folder of the evaluation sets.
#[derive(Clone, Debug, Default, Args)]
pub struct DataArgs {
    /// The data folder, over the configuration's `data_dir`.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Address and port, over the configuration's `listen`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

#[derive(Clone, Debug, Args)]
pub struct ReadyArgs {
    #[command(flatten)]
    pub asked: ServeArgs,
    /// Ask again for so long, as 90s or 5m, while nobody answers or the answer is that it is not ready.
    #[arg(long, value_name = "PERIOD")]
    pub wait: Option<Period>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TopicsCommand {
    /// Make what is missing; refuse what is there and is not as it must be.
    Create,
    /// Say what differs; exit 1 when anything does.
    Check,
    /// Go on with `inbox` where retention took records that were never read; says which are lost.
    GiveUpLost(DataArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// Files; `-` reads standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub data: DataArgs,
    /// The tenant of owners that a shape gives without one, over the configuration's `tenant`.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Write a grant for each owner first.
    #[arg(long)]
    pub consent: bool,
    /// Which of a shape's tracks is read, where it has both.
    #[arg(long, value_enum)]
    pub track: Option<Track>,
    /// Which language of a shape is read, where it has both.
    #[arg(long, value_enum)]
    pub language: Option<Language>,
    /// Only this owner; or the owner of a shape that names none.
    #[arg(long, value_parser = owner)]
    pub owner: Option<Owner>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Track {
    Text,
    Structured,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Language {
    Zh,
    En,
}

impl Language {
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Zh => "zh",
            Self::En => "en",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    #[arg(long, value_parser = owner)]
    pub owner: Owner,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AuditCommand {
    /// An owner's state by replay, with digests and offsets.
    State(AuditStateArgs),
    /// From a memory back to the sentence that it came from.
    Explain(AuditExplainArgs),
    /// Check the chain and decide again; names the first bad record.
    Verify(AuditOwnerArgs),
    /// Compare each store with the fold; exit 1 on drift.
    Diff(AuditOwnerArgs),
    /// Accepted = decided + in flight + parked; exit 1 when it is not.
    Balance(AuditBalanceArgs),
    /// How far an erasure is: keys destroyed, each store's receipts.
    Erasure(AuditErasureArgs),
}

impl AuditCommand {
    fn data(&self) -> &DataArgs {
        match self {
            Self::State(args) => &args.data,
            Self::Explain(args) => &args.data,
            Self::Verify(args) | Self::Diff(args) => &args.data,
            Self::Balance(args) => &args.data,
            Self::Erasure(args) => &args.data,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct AuditStateArgs {
    #[arg(long, value_parser = owner)]
    pub owner: Owner,
    /// What was true then (RFC 3339 with zone); now unless given.
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    pub as_of: Option<Timestamp>,
    /// What had been recorded then; everything unless given.
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    pub known_at: Option<Timestamp>,
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct AuditErasureArgs {
    /// As `forget` gave it.
    #[arg(long, value_name = "ID")]
    pub erasure: ErasureId,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct AuditExplainArgs {
    #[arg(long, value_name = "ID")]
    pub memory: MemoryId,
    /// Spares the search through every owner.
    #[arg(long, value_parser = owner)]
    pub owner: Option<Owner>,
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct AuditOwnerArgs {
    /// Only this owner.
    #[arg(long, value_parser = owner)]
    pub owner: Option<Owner>,
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct AuditBalanceArgs {
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    #[arg(long, value_enum)]
    pub store: RebuildStore,
    /// Build nothing: make the generation before the live one the live one again. Of stores on servers,
    /// and only until an erasure, which deletes what it does not reach.
    #[arg(long)]
    pub back: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RebuildStore {
    Records,
    Text,
    Vectors,
    Graph,
    All,
}

#[derive(Clone, Debug, Args)]
pub struct EvalArgs {
    #[arg(value_enum)]
    pub set: EvalSet,
    /// The folder of the evaluation sets; `attribution` and `intent` are the project's own and have one
    /// already.
    #[arg(long, value_name = "DIR", required_if_eq_any(FOREIGN_SETS.map(|set| ("set", set))))]
    pub data: Option<PathBuf>,
    /// Only so many owners, chats, or cases.
    #[arg(long)]
    pub limit: Option<usize>,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The sets that can be measured; a set is added with its metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EvalSet {
    Synthea,
    Timeqa,
    Safety,
    MtsDialog,
    Pii,
    Memorybank,
    Locomo,
    Beam,
    Precision,
    Longmemeval,
    /// Of the project itself: whom and what a statement is about.
    Attribution,
    /// Of the project itself: who asks for something to be written down.
    Intent,
    /// Of the project itself: what a model's cosines tell, by the languages of question and text.
    Alike,
}

/// The sets that are not the project's.
const FOREIGN_SETS: [&str; 10] = [
    "synthea",
    "timeqa",
    "safety",
    "mts-dialog",
    "pii",
    "memorybank",
    "locomo",
    "beam",
    "precision",
    "longmemeval",
];

/// Where the project's own sets lie in its repository.
const OWN_SETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
/// The sentences that the judgement of requests is held against, beside those that it learned from.
const OWN_INTENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../extractor/data");

impl EvalArgs {
    /// The folder of one set.
    ///
    /// # Errors
    /// When it is not there.
    pub fn folder(&self, set: &str) -> Result<PathBuf, Failure> {
        let own = if set == "intent" {
            OWN_INTENT
        } else {
            OWN_SETS
        };
        let data = self.data.as_deref().unwrap_or(Path::new(own));
        let folder = data.join(set);
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(Failure::wrong_use(format!(
            "{} is missing: --data names the folder that holds the sets",
            folder.display()
        )))
    }
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct DecayCurveArgs {
    /// A kind of memory, by the half-life that recall ranks with.
    #[arg(long, value_parser = kind)]
    pub kind: Option<Kind>,
    /// A rate with its unit: 0.02/day, 0.1/hour, 1e-5/s.
    #[arg(long, value_name = "RATE")]
    pub lambda: Option<Rate>,
}

#[derive(Clone, Debug, Args)]
pub struct ForgetArgs {
    #[arg(long, value_parser = owner)]
    pub owner: Owner,
    #[command(flatten)]
    pub target: ForgetTarget,
    /// `restrict` keeps the text and never recalls it; `erase` makes it unreadable for good.
    #[arg(long, value_enum)]
    pub mode: ForgetMode,
    /// Why; kept with the decision.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub data: DataArgs,
}

/// What is forgotten: memories, a source, one event of a source, or all.
#[derive(Clone, Debug, Args)]
pub struct ForgetTarget {
    #[arg(long, value_name = "ID", required_unless_present_any = ["source", "all"])]
    pub memory: Vec<MemoryId>,
    /// All records of this CloudEvents source, document or tool.
    #[arg(long, conflicts_with = "memory")]
    pub source: Option<String>,
    /// With `--source`: only this event of it (`event#message` for one message of several).
    #[arg(long, value_name = "ID", requires = "source")]
    pub event: Option<String>,
    /// Everything of the owner.
    #[arg(long, conflicts_with_all = ["memory", "source"])]
    pub all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ForgetMode {
    Restrict,
    Erase,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ReviewCommand {
    /// Both sides of each question, with evidence and source; hidden characters are written out.
    List(ReviewListArgs),
    /// Decide one, once. Whoever comes second is told who won.
    Decide(ReviewDecideArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ReviewListArgs {
    #[arg(long, value_parser = owner)]
    pub owner: Owner,
    #[arg(long, value_enum, default_value = "open")]
    pub state: ReviewState,
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReviewState {
    Open,
    Expired,
    Decided,
    Rejected,
}

#[derive(Clone, Debug, Args)]
pub struct ReviewDecideArgs {
    #[arg(long, value_parser = owner)]
    pub owner: Owner,
    /// As `review list` shows it.
    #[arg(long, value_name = "ID")]
    pub id: String,
    /// `keep_old`, `take_new`, `keep_both`, `retire`; `admit` what was turned down or not confirmed;
    /// `reopen` what was decided or has expired.
    #[arg(long, value_parser = verdict)]
    pub decision: Verdict,
    /// Why; kept with the decision.
    #[arg(long)]
    pub reason: String,
    /// The version that was seen: refused when the memory changed since.
    #[arg(long, value_name = "N")]
    pub expected_version: Option<u64>,
    /// Who decides; the user of this command unless given.
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Of an admitted candidate: what it claims, where its own words do not say it.
    #[arg(long)]
    pub text: Option<String>,
    #[arg(long, value_parser = kind)]
    pub kind: Option<Kind>,
    #[arg(long)]
    pub attribute: Option<String>,
    #[arg(long)]
    pub value: Option<String>,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ParkedCommand {
    /// Who waits, behind which record, and why.
    List(ParkedArgs),
    /// Read the records again.
    Retry(ParkedArgs),
}

#[derive(Clone, Debug, Args)]
pub struct ParkedArgs {
    /// Only this owner.
    #[arg(long, value_parser = owner)]
    pub owner: Option<Owner>,
    #[command(flatten)]
    pub data: DataArgs,
}

#[derive(Clone, Debug, Args)]
pub struct HealthCheckArgs {
    /// Only this owner.
    #[arg(long, value_parser = owner)]
    pub owner: Option<Owner>,
    /// Send the commands that the report proposes.
    #[arg(long)]
    pub apply: bool,
    #[command(flatten)]
    pub data: DataArgs,
}

fn owner(text: &str) -> Result<Owner, anamnesis_domain::owner::OwnerError> {
    text.parse()
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_code(text).ok_or_else(|| {
        let codes: Vec<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        format!("choose {}", codes.join(", "))
    })
}

fn verdict(text: &str) -> Result<Verdict, String> {
    Verdict::from_code(text).ok_or_else(|| {
        let codes: Vec<&str> = Verdict::ALL.iter().map(|verdict| verdict.code()).collect();
        format!("choose {}", codes.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("anamnesis").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_documented_lines_are_understood() {
        for line in [
            "demo",
            "serve",
            "serve --config f.toml --data d --listen 127.0.0.1:7701",
            "--config f.toml config",
            "ready",
            "ready --listen 127.0.0.1:7701",
            "intake --config f.toml",
            "extractor --config f.toml --listen 127.0.0.1:7711",
            "validity-manager --config f.toml --data d",
            "indexer --config f.toml",
            "forgetter --config f.toml",
            "recall --config f.toml",
            "topics create --config f.toml",
            "topics check --config f.toml",
            "import a.jsonl b.jsonl --tenant h1 --consent --track structured --language zh",
            "import - --owner h1/patient/p1",
            "export --owner h1/p1",
            "audit state --owner h1/p1 --as-of 2026-01-01T00:00:00Z --known-at 2026-02-01T08:00:00+08:00 --json",
            "audit explain --memory m-00112233445566778899aabbccddeeff",
            "audit verify --owner h1/p1",
            "audit diff",
            "audit balance --json",
            "rebuild --store all",
            "eval synthea --data sets --limit 3 --json out.json",
            "eval mts-dialog --data sets",
            "eval attribution",
            "eval attribution --data sets",
            "decay-curve --kind episode",
            "decay-curve --lambda 0.02/day",
            "forget --owner h1/p1 --source s --event e#0 --mode erase --reason r",
            "forget --owner h1/p1 --all --mode restrict --reason r",
            "review list --owner h1/p1 --state rejected --json --data d",
            "review decide --owner h1/p1 --id m-00112233445566778899aabbccddeeff --decision keep_old --reason r --expected-version 4",
            "parked list",
            "parked retry --owner h1/p1",
            "health-check --owner h1/p1 --apply --data d",
        ] {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    #[test]
    fn a_line_that_leaves_doubt_is_refused_with_code_2() {
        for line in [
            "",
            "serv",
            "import",
            "export --owner p1",
            "audit state --owner h1/p1 --as-of 2026-01-01",
            "audit explain --memory 7",
            "decay-curve",
            "decay-curve --lambda 0.02",
            "decay-curve --kind allergy --lambda 0.02/day",
            "decay-curve --kind alergy",
            "forget --owner h1/p1 --mode erase --reason r",
            "forget --owner h1/p1 --all --source s --mode erase --reason r",
            "forget --owner h1/p1 --event e --mode erase --reason r",
            "forget --owner h1/p1 --all --reason r",
            "review list",
            "review decide --owner h1/p1 --id m-1 --decision perhaps --reason r",
            "eval synthea",
            "eval timeqa --limit 3",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn flags_reach_the_configuration() {
        let flags = |line: &str| parse(line).unwrap().command.flags();
        let listen = Some(SocketAddr::from(([127, 0, 0, 1], 7701)));
        assert_eq!(
            flags("serve --data d --listen 127.0.0.1:7701"),
            Flags {
                data_dir: Some("d".into()),
                listen
            }
        );
        assert_eq!(
            flags("audit diff --data d"),
            Flags {
                data_dir: Some("d".into()),
                listen: None
            }
        );
        assert_eq!(flags("eval synthea --data sets"), Flags::default());
    }
}
