//! How is a connection made, and what must hold on it?

use std::future::poll_fn;
use std::time::Duration;

use anamnesis_pipeline::keyring::KeyringError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::PostgresKeyringConfig;
use super::failed::{late, to_keyring_error, unusable};

pub(super) struct Connector {
    server: tokio_postgres::Config,
    tls: Option<MakeRustlsConnect>,
    pub(super) schema: String,
    deadline: Duration,
}

/// Carries the bytes of one connection. Ends with it; aborted, it ends the connection.
pub(super) type Driver = JoinHandle<()>;

impl Connector {
    pub(super) fn new(config: &PostgresKeyringConfig) -> Result<Self, KeyringError> {
        let mut server = config.url.server().clone();
        if let Some(variable) = &config.password_env {
            let password = std::env::var(variable).map_err(|_| {
                unusable(&format!(
                    "the environment variable {variable} with the keyring's password is not set"
                ))
            })?;
            server.password(password);
        }
        if server.get_application_name().is_none() {
            server.application_name("anamnesis keyring");
        }
        // Of several servers the one that can be written to.
        if server.get_hosts().len() > 1 {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        server.connect_timeout(config.deadline);
        // A peer that vanished without a word is noticed by writes and, idle, by probes.
        server.tcp_user_timeout(config.deadline);
        server.keepalives_idle(Duration::from_secs(30));
        let is_encrypted = server.get_ssl_mode() == SslMode::Require;
        if !is_encrypted && config.tls_ca_file.is_some() {
            return Err(unusable(
                "the keyring names a tls_ca_file, but its url does not ask for encryption: add \
                 sslmode=require",
            ));
        }
        let tls = if is_encrypted {
            let tls = crate::tls::client_config(config.tls_ca_file.as_deref());
            Some(MakeRustlsConnect::new(tls.map_err(|what| unusable(&what))?))
        } else {
            // "prefer" would also be content without, whoever stands in between: in clear at once.
            server.ssl_mode(SslMode::Disable);
            None
        };
        Ok(Self {
            server,
            tls,
            schema: config.schema.clone(),
            deadline: config.deadline,
        })
    }

    /// A connection for short statements over the keyring's tables. `notice` gets announcements.
    pub(super) async fn connect(
        &self,
        notice: impl FnMut(&str) + Send + 'static,
    ) -> Result<(Client, Driver), KeyringError> {
        let connected = async {
            let (client, driver) = match &self.tls {
                None => {
                    let (client, connection) = self.server.connect(NoTls).await?;
                    (client, tokio::spawn(drive(connection, notice)))
                }
                Some(tls) => {
                    let (client, connection) = self.server.connect(tls.clone()).await?;
                    (client, tokio::spawn(drive(connection, notice)))
                }
            };
            client.batch_execute(&self.settings()).await?;
            Ok((client, driver))
        };
        tokio::time::timeout(self.deadline, connected)
            .await
            .map_err(|_| late())?
            .map_err(|error| to_keyring_error(&error))
    }

    fn settings(&self) -> String {
        let (schema, deadline_ms) = (&self.schema, self.deadline.as_millis().max(1));
        format!(
            "SET search_path = \"{schema}\";
             SET client_min_messages = error;
             SET default_transaction_isolation = 'read committed';
             SET default_transaction_read_only = off;
             -- The server gives up when the caller has, also when the caller's machine is gone.
             SET statement_timeout = {deadline_ms};
             SET lock_timeout = {deadline_ms};
             SET idle_in_transaction_session_timeout = {deadline_ms};
             -- Every statement finds its rows by an index, whatever the statistics of tables that
             -- grow from nothing make the planner believe.
             SET plan_cache_mode = force_generic_plan;
             SET enable_seqscan = off;
             SET enable_hashjoin = off;
             SET enable_mergejoin = off;
             SET enable_memoize = off;
             SET jit = off;
             -- What is acknowledged is on the disk; a stricter setting of the server stays.
             SELECT set_config('synchronous_commit', 'on', false)
                 WHERE current_setting('synchronous_commit') IN ('off', 'local');"
        )
    }
}

async fn drive<S, T>(mut connection: Connection<S, T>, mut notice: impl FnMut(&str))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    // Whoever uses the connection sees for himself that it ended.
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notification) = message {
            notice(notification.payload());
        }
    }
}
