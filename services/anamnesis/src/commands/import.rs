//! `import`: events from files, decided and stored before the command ends.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::Timestamp;
use anamnesis_intake::commands::Order;
use anamnesis_intake::import::{self, Options};
use anamnesis_intake::message::Message;
use anamnesis_intake::request::ConsentChange;
use anamnesis_intake::service::IntakeError;
use anamnesis_pipeline::caller::Caller;
use futures::{StreamExt as _, TryStreamExt as _};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{Exit, ImportArgs, Language, Track};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;
use crate::services::Flow;

/// Messages that are accepted before the stages catch up: bounds memory, and one durable write serves
/// many.
const CHUNK: usize = 2_000;
/// Rejected lines that are shown one by one.
const SHOWN: usize = 20;

/// # Errors
/// When a file cannot be read or something could not be made durable. Lines that are turned down are
/// told and make the exit code 1; the rest is imported.
pub async fn run(mut config: Config, args: ImportArgs) -> Result<Exit, Failure> {
    if let Some(tenant) = &args.tenant {
        config.tenant.clone_from(tenant);
    }
    let node = Node::open_tool(config).await?;
    let report = import(&node, &args).await?;
    crate::say!(
        "accepted {} messages of {} owners, {} quarantined, {} rejected, in {:.1} s ({:.0}/s)",
        report.accepted,
        report.owners.len(),
        report.quarantined,
        report.rejected,
        report.seconds,
        report.accepted as f64 / report.seconds.max(1e-9),
    );
    if report.quarantined > 0 {
        crate::say!(
            "quarantined messages wait 72 h for consent; import --consent writes a grant first"
        );
    }
    Ok(if report.rejected == 0 {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

#[derive(Default)]
pub struct Report {
    pub accepted: usize,
    pub quarantined: usize,
    pub rejected: usize,
    pub owners: BTreeSet<Owner>,
    pub seconds: f64,
}

/// Imports into an open node.
///
/// # Errors
/// As [`run`].
pub async fn import(node: &Node, args: &ImportArgs) -> Result<Report, Failure> {
    let started = Instant::now();
    let mut report = Report::default();
    let mut granted: BTreeSet<Owner> = BTreeSet::new();
    let mut flow = node.flow()?;
    for file in &args.files {
        let bytes = read(file)?;
        let messages = messages_of(node, args, file, &bytes, &mut report);
        let bar = progress(messages.len() as u64, file);
        for chunk in messages.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            let owners: BTreeSet<Owner> =
                chunk.iter().map(|message| message.owner.clone()).collect();
            if args.consent {
                let new: Vec<Owner> = owners.difference(&granted).cloned().collect();
                grant(node, &mut flow, &new).await?;
                granted.extend(new);
            }
            report.owners.extend(owners);
            // What was accepted before is decided and stored meanwhile.
            let (accepted, settled) = tokio::join!(accept(node, chunk, &mut report), flow.settle());
            accepted?;
            settled?;
            bar.inc(CHUNK.min((bar.length().unwrap_or(0) - bar.position()) as usize) as u64);
        }
        bar.finish_and_clear();
    }
    flow.settle().await?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let failed = |error: std::io::Error| {
        Failure::wrong_use(format!("cannot read {}: {error}", file.display()))
    };
    if file.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        return Ok(bytes);
    }
    let raw = std::fs::read(file).map_err(failed)?;
    if file.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(raw.as_slice())
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        return Ok(bytes);
    }
    Ok(raw)
}

fn messages_of(
    node: &Node,
    args: &ImportArgs,
    file: &Path,
    bytes: &[u8],
    report: &mut Report,
) -> Vec<Message> {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("stdin");
    let name = name.split('.').next().unwrap_or(name);
    let mut options = Options::new(&node.config.tenant, name, node.clock.now());
    options.zone_minutes = node.config.zone.minutes();
    options.structured = args.track == Some(Track::Structured);
    options.language = match args.language {
        Some(Language::En) => import::Language::En,
        Some(Language::Zh) | None => import::Language::Zh,
    };
    let mut messages = Vec::new();
    for (line, value) in import::values(bytes) {
        options.position = line;
        let events = match value {
            Ok(value) => import::detect_and_read_each(&value, &options),
            Err(rejected) => vec![Err(rejected)],
        };
        for event in events {
            match event {
                Ok(list) => messages.extend(
                    list.into_iter()
                        .filter(|m| args.owner.as_ref().is_none_or(|only| *only == m.owner)),
                ),
                Err(rejected) => {
                    report.rejected += 1;
                    if report.rejected <= SHOWN {
                        let field = rejected
                            .field
                            .map(|field| format!(" ({field})"))
                            .unwrap_or_default();
                        crate::complain!(
                            "{}:{line}: {}{field}: {}",
                            file.display(),
                            rejected.code,
                            rejected.detail
                        );
                    }
                }
            }
        }
    }
    messages
}

async fn accept(node: &Node, messages: Vec<Message>, report: &mut Report) -> Result<(), Failure> {
    let intake = node.intake();
    let caller = Caller::local(&node.config.tenant);
    let answer = intake.accept(&caller, messages).await?;
    report.accepted += answer.accepted.len();
    report.quarantined += answer
        .accepted
        .iter()
        .filter(|accepted| accepted.quarantined)
        .count();
    report.rejected += answer.rejected.len();
    Ok(())
}

const OWNERS_AT_ONCE: usize = 64;

/// Event id of the grant that an import writes: a second import repeats it, and changes nothing.
const GRANT_KEY: &str = "import-grant";

/// Consent to everything, from before the first event on.
fn everything() -> ConsentChange {
    ConsentChange {
        max_sensitivity: Some(4.into()),
        valid_from: Some(Timestamp::from_millis(i64::from(i32::MIN) * 1000)),
        ..ConsentChange::default()
    }
}

/// Writes a grant for each owner that has none, and waits until it is known.
///
/// # Errors
/// When it could not be written or decided.
pub async fn grant(node: &Node, flow: &mut Flow, owners: &[Owner]) -> Result<(), Failure> {
    let intake = node.intake();
    let caller = Caller::local(&node.config.tenant);
    let grant = async |owner| {
        let order = Order {
            caller: &caller,
            owner,
            key: Some(GRANT_KEY),
        };
        intake.consent(&order, &everything()).await.map(drop)
    };
    for_each(owners, grant).await?;
    if !owners.is_empty() {
        flow.settle().await?;
        let release = async |owner| intake.release(owner).await.map(drop);
        for_each(owners, release).await?;
    }
    Ok(())
}

/// Some owners at once, so that one durable write serves many.
async fn for_each<'a>(
    owners: &'a [Owner],
    work: impl AsyncFn(&'a Owner) -> Result<(), IntakeError>,
) -> Result<(), IntakeError> {
    let all = futures::stream::iter(owners).map(|owner| work(owner));
    all.buffer_unordered(OWNERS_AT_ONCE).try_collect().await
}

fn progress(length: u64, file: &Path) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(file.display().to_string());
    bar
}

/// Files by what they are called, for commands that import a set.
pub fn arguments(files: Vec<PathBuf>) -> ImportArgs {
    ImportArgs {
        files,
        data: crate::cli::DataArgs::default(),
        tenant: None,
        consent: true,
        track: None,
        language: None,
        owner: None,
    }
}
