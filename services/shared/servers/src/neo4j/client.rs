//! How is a Neo4j server asked so that every call ends: with an answer, or with an error that says
//! whether to try again?
//!
//! A socket whose other end is gone without a word never fails by itself. So each call has a deadline,
//! and after several in a row all connections are given up and made anew.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anamnesis_pipeline::stores::{Store, StoreError};
use neo4rs::{
    ConfigBuilder, Error, Graph, Neo4jClientErrorKind, Neo4jError, Neo4jErrorKind,
    Neo4jSecurityErrorKind, Query, Row, Txn,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::settings::Neo4jConfig;

/// Rows that the server sends before it is asked for more.
const FETCH_ROWS: usize = 2_000;

/// The first pause after a deadlock; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why a call failed; made a [`StoreError`] at the border.
#[derive(Debug)]
pub(super) enum Failure {
    Server(Error),
    Deadline(Duration),
    Store(StoreError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// Whether the server asks to run the whole transaction again, such as after a deadlock. It has
    /// rolled it back.
    fn is_transient(&self) -> bool {
        match self {
            Self::Server(Error::Neo4j(error)) => error.kind() == Neo4jErrorKind::Transient,
            Self::Server(_) | Self::Deadline(_) | Self::Store(_) => false,
        }
    }
}

pub(super) struct Client {
    config: neo4rs::Config,
    timeouts_max: u32,
    retry_budget: Duration,
    graph: Mutex<Graph>,
    /// Calls in a row that met their deadline.
    timeouts: AtomicU32,
}

impl Client {
    /// Does not connect yet.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for a configuration that cannot work.
    pub(super) fn new(config: &Neo4jConfig) -> Result<Self, StoreError> {
        config.check()?;
        let mut builder = ConfigBuilder::default()
            .uri(&config.uri)
            .user(&config.user)
            .password(config.password()?.as_str())
            .max_connections(config.connections)
            .fetch_size(FETCH_ROWS)
            // Also the longest wait for a single answer, so no shorter than what a batch may take.
            .connection_timeout(config.deadline.max(config.write_deadline))
            .tcp_keepalive(Some(Duration::from_secs(15)));
        if let Some(database) = &config.database {
            builder = builder.db(database.as_str());
        }
        let built = builder.build().map_err(|error| explain(error.into()))?;
        let graph = Graph::connect(built.clone()).map_err(|error| explain(error.into()))?;
        Ok(Self {
            config: built,
            timeouts_max: config.timeouts_max.max(1),
            retry_budget: config.retry_budget,
            graph: Mutex::new(graph),
            timeouts: AtomicU32::new(0),
        })
    }

    fn graph(&self) -> Graph {
        self.graph
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A transaction. It is rolled back when it is dropped without a commit.
    pub(super) async fn begin(&self) -> Result<Txn, Failure> {
        Ok(self.graph().start_txn().await?)
    }

    /// All rows that answer one question.
    pub(super) async fn ask(&self, query: Query) -> Result<Vec<Row>, Failure> {
        let mut answer = self.graph().execute_read(query).await?;
        let mut rows = Vec::new();
        while let Some(row) = answer.next().await? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// Runs `attempt` until it answers, fails for good, or `deadline` has passed; what the server asks
    /// to repeat is repeated within the budget.
    pub(super) async fn call<T, F>(
        &self,
        deadline: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let start = Instant::now();
        let give_up = start + self.retry_budget;
        let mut pause = PAUSE_MIN;
        loop {
            let answer = timeout_at(start + deadline, attempt())
                .await
                .unwrap_or(Err(Failure::Deadline(deadline)));
            self.count(&answer);
            match answer {
                Err(failure) if failure.is_transient() && Instant::now() + pause < give_up => {
                    // Two that met must not meet again: the second half of the pause is drawn.
                    sleep(pause / 2 + pause.mul_f64(random_share() / 2.0)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                answer => return answer.map_err(explain),
            }
        }
    }

    fn count<T>(&self, answer: &Result<T, Failure>) {
        let is_timeout = matches!(
            answer,
            Err(Failure::Deadline(_) | Failure::Server(Error::ConnectionTimedOut))
        );
        if !is_timeout {
            self.timeouts.store(0, Ordering::Relaxed);
            return;
        }
        let in_a_row = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
        if in_a_row < self.timeouts_max {
            return;
        }
        // It was made from the same configuration before.
        let Ok(fresh) = Graph::connect(self.config.clone()) else {
            return;
        };
        tracing::warn!(
            in_a_row,
            "neo4j met its deadlines: all connections are made anew"
        );
        *self.graph.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.timeouts.store(0, Ordering::Relaxed);
    }
}

/// From 0 to 1; 1 when the system has no random bytes.
fn random_share() -> f64 {
    let mut bytes = [255; 1];
    let _ = getrandom::fill(&mut bytes);
    f64::from(bytes[0]) / 255.0
}

/// Runs a statement within a transaction and gives its rows.
pub(super) async fn rows(transaction: &mut Txn, query: Query) -> Result<Vec<Row>, Error> {
    let mut answer = transaction.execute(query).await?;
    let mut rows = Vec::new();
    while let Some(row) = answer.next(transaction.handle()).await? {
        rows.push(row);
    }
    Ok(rows)
}

fn unavailable(reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        store: Store::Graph,
        reason: format!("neo4j: {}", reason.into()),
    }
}

pub(super) fn unusable(what: impl Into<String>) -> StoreError {
    StoreError::Unusable {
        what: format!("graph (neo4j): {}", what.into()),
    }
}

pub(super) fn damaged(reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        store: Store::Graph,
        reason: format!("neo4j: {}", reason.into()),
    }
}

/// What a failure means to the caller. The server's own words stay out: they can repeat a value.
pub(super) fn explain(failure: Failure) -> StoreError {
    let error = match failure {
        Failure::Store(error) => return error,
        Failure::Deadline(deadline) => {
            return unavailable(format!("no answer within {deadline:?}"));
        }
        Failure::Server(error) => error,
    };
    match error {
        Error::Neo4j(error) => explain_code(&error),
        Error::AuthenticationError(_) => {
            unusable("it refuses the user or the password, or allows no further attempt for now")
        }
        Error::IOError { detail } => {
            unavailable(format!("the connection broke ({})", detail.kind()))
        }
        Error::UrlParseError(_)
        | Error::UnsupportedScheme(_)
        | Error::InvalidDnsName(_)
        | Error::InvalidConfig => {
            unusable("the uri is not one of bolt://, bolt+s:// or bolt+ssc://")
        }
        Error::UnsupportedVersion(_, _) | Error::ProtocolMismatch(_) => {
            unusable("the server speaks no version of Bolt that is understood here")
        }
        Error::DeserializationError(_) | Error::ConversionError => {
            damaged("a value has another type than was written")
        }
        Error::ConnectionTimedOut => unavailable("the connection timed out"),
        Error::StringTooLong | Error::MapTooBig | Error::BytesTooBig | Error::ListTooLong => {
            unusable("a value is longer than the protocol allows")
        }
        // The enum may grow: what is left is about the conversation with the server.
        Error::ConnectionError
        | Error::IncompleteBoltExchange
        | Error::InvalidInteger(_, _)
        | Error::IntegerOverflow(_, _)
        | Error::UnexpectedMessage(_)
        | Error::Ignored(_)
        | Error::UnknownType(_)
        | Error::UnknownMessage(_)
        | Error::NoMoreRows
        | Error::NotSingleResult
        | Error::InvalidTypeMarker(_)
        | Error::RoutingTableError(_)
        | Error::RequestIgnoredError
        | Error::RoutingTableRefreshFailed(_)
        | Error::ServerUnavailableError(_)
        | _ => unavailable("the conversation with the server broke off"),
    }
}

fn explain_code(error: &Neo4jError) -> StoreError {
    let code = error.code();
    if matches!(
        code,
        "Neo.ClientError.Schema.ConstraintValidationFailed"
            | "Neo.DatabaseError.Schema.ConstraintCreationFailed"
    ) {
        return damaged("two nodes have one identity");
    }
    match error.kind() {
        Neo4jErrorKind::Transient | Neo4jErrorKind::Database | Neo4jErrorKind::Unknown => {
            unavailable(code)
        }
        Neo4jErrorKind::Client(kind) => match kind {
            Neo4jClientErrorKind::SessionExpired
            | Neo4jClientErrorKind::TransactionTerminated
            | Neo4jClientErrorKind::Security(
                Neo4jSecurityErrorKind::AuthorizationExpired | Neo4jSecurityErrorKind::TokenExpired,
            ) => unavailable(code),
            Neo4jClientErrorKind::Other if code.starts_with("Neo.ClientError.Transaction.") => {
                unavailable(code)
            }
            Neo4jClientErrorKind::FatalDiscovery => unusable("the database does not exist"),
            Neo4jClientErrorKind::Security(_)
            | Neo4jClientErrorKind::ProtocolViolation
            | Neo4jClientErrorKind::Other
            | Neo4jClientErrorKind::Unknown => unusable(format!("the server refuses with {code}")),
        },
    }
}
