//! What stands in the keyring's schema, and what is done so that a destroyed key is in no table file?
//!
//! - `meta`: format, check value of the master key, the wrapped site key
//! - `owners`: which epoch each owner is in and whether it is open; whoever changes an owner's keys
//!   holds this row
//! - `keys`: what each data key is for, what wraps it, and what destroyed it
//! - `secrets`: wrapped keys, of data and of owners, in sixteen parts by owner
//! - `erasures`: what was carried out, so that a repeat reaches nothing that came later
//!
//! Wrapped keys have a table of their own because of how PostgreSQL deletes: a deleted or updated row
//! stays in its page, and `VACUUM` frees the place without clearing it, so most of the bytes stay until
//! something else happens to be written there. A destruction therefore writes the part anew that the
//! owner's keys are in: within its transaction the keys that stay are copied out, the part is truncated
//! (which gives it a new file) and they are copied back. When the transaction is committed, the server
//! removes the old file; a crash in between leaves the one state or the other. Sixteen parts are a
//! compromise: every read locks all of them, and a destruction writes a sixteenth of the keys.
//!
//! The role needs the right to make temporary tables, and to make the schema unless it is given one.
//!
//! What is beyond the tables: the write-ahead log holds the wrapped keys as they were made until its
//! segments are recycled and overwritten, and so do archives of it, base backups, standbys that lag,
//! dumps, and the blocks of removed files. All of them are wrapped keys, so the master key, which is
//! never on the server, is needed to open one. An erasure is therefore complete when the oldest backup
//! and the oldest segment that hold the keys are gone.

use anamnesis_domain::ids::{IdKey, OwnerKey};
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::wrapping::{self, Key, Purpose};
use tokio_postgres::Client;

use super::failed::{no_randomness, to_keyring_error, unusable};

const FORMAT: i32 = 1;

/// Parts of `secrets`; belongs to the format.
const PARTS: u8 = 16;

/// The part that an owner's keys are in. Owners' pseudonyms are hashes: any byte of them will do.
pub(super) fn part(owner: OwnerKey) -> i16 {
    i16::from(owner.bytes()[0] % PARTS)
}

/// The table of a part.
pub(super) fn part_table(part: i16) -> String {
    format!("secrets_{part}")
}

/// What a keyring is known by.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) id_key: IdKey,
    /// Wraps the owners' keys.
    pub(super) wrapping: Key,
    /// The site key as it is stored: no two keyrings have the same.
    pub(super) wrapped_site: Vec<u8>,
}

/// What a schema turned out to hold.
enum Found {
    Nothing { has_schema: bool },
    Format(i32),
    SomethingElse,
}

/// Opens the keyring in the schema, or makes one. Of several processes that start at once the first
/// makes it, and the others find it.
pub(super) async fn open(
    client: &Client,
    schema: &str,
    master: &MasterKey,
) -> Result<Identity, KeyringError> {
    refuse_unsafe(client).await?;
    run(client, "BEGIN").await?;
    client
        .query("SELECT pg_advisory_xact_lock($1)", &[&lock_of(schema)])
        .await
        .map_err(|error| to_keyring_error(&error))?;
    match look(client, schema).await? {
        Found::Nothing { has_schema } => create(client, schema, has_schema, master).await?,
        Found::Format(FORMAT) => (),
        Found::Format(other) => return Err(unusable(&foreign_format(schema, other))),
        Found::SomethingElse => {
            return Err(unusable(&format!(
                "the schema {schema} holds something else than a keyring: choose another one"
            )));
        }
    }
    run(client, "COMMIT").await?;
    identify(client, schema, master).await
}

/// Whether the schema holds a keyring, of whatever format.
pub(super) async fn exists(client: &Client, schema: &str) -> Result<bool, KeyringError> {
    Ok(match look(client, schema).await? {
        Found::Format(_) => true,
        Found::Nothing { .. } | Found::SomethingElse => false,
    })
}

/// Of the tables in the search path.
pub(super) async fn wrapped_site(client: &Client) -> Result<Vec<u8>, KeyringError> {
    let row = client
        .query_one("SELECT site FROM meta WHERE format = $1", &[&FORMAT])
        .await
        .map_err(|error| to_keyring_error(&error))?;
    Ok(row.get(0))
}

async fn refuse_unsafe(client: &Client) -> Result<(), KeyringError> {
    let row = client
        .query_one("SELECT current_setting('fsync')", &[])
        .await
        .map_err(|error| to_keyring_error(&error))?;
    if row.get::<_, &str>(0) != "on" {
        return Err(unusable(
            "the PostgreSQL server runs with fsync = off: keys that it acknowledged can be lost, and \
             with them what they sealed",
        ));
    }
    Ok(())
}

async fn look(client: &Client, schema: &str) -> Result<Found, KeyringError> {
    let failed = |error: tokio_postgres::Error| to_keyring_error(&error);
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
                    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE nspname = $1),
                    EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                            JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE nspname = $1 AND relname = 'meta' AND attname = 'format')",
            &[&schema],
        )
        .await
        .map_err(failed)?;
    let (has_schema, has_tables, is_ours): (bool, bool, bool) =
        (row.get(0), row.get(1), row.get(2));
    if !has_tables {
        return Ok(Found::Nothing { has_schema });
    }
    if !is_ours {
        return Ok(Found::SomethingElse);
    }
    let row = client
        .query_one(&format!("SELECT format FROM \"{schema}\".meta"), &[])
        .await
        .map_err(failed)?;
    let format: Result<i32, _> = row.try_get(0);
    Ok(format.map_or(Found::SomethingElse, Found::Format))
}

fn foreign_format(schema: &str, found: i32) -> String {
    if found > FORMAT {
        format!(
            "the keyring in the schema {schema} was written by a newer version (format {found}, this \
             program knows up to {FORMAT}): use that version, or another schema"
        )
    } else {
        format!("the schema {schema} holds no keyring: it has the format {found}")
    }
}

async fn create(
    client: &Client,
    schema: &str,
    has_schema: bool,
    master: &MasterKey,
) -> Result<(), KeyringError> {
    let site = wrapping::draw().map_err(no_randomness)?;
    let wrapped_site = wrapping::wrap(&wrapping::wrapping_key(master), &site, &Purpose::Site)
        .map_err(no_randomness)?;
    // A role may use a schema that it was given without the right to make one.
    if !has_schema {
        run(client, &format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    run(client, &tables()).await?;
    client
        .execute(
            "INSERT INTO meta (format, check_value, site) VALUES ($1, $2, $3)",
            &[
                &FORMAT,
                &&wrapping::check_value(master)[..],
                &&wrapped_site[..],
            ],
        )
        .await
        .map_err(|error| to_keyring_error(&error))?;
    Ok(())
}

fn tables() -> String {
    let mut sql = "
        CREATE TABLE meta (
            is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
            format integer NOT NULL,
            check_value bytea NOT NULL,
            site bytea NOT NULL
        );
        CREATE TABLE owners (
            owner bytea PRIMARY KEY,
            part smallint NOT NULL,
            epoch bigint NOT NULL,
            is_open boolean NOT NULL
        );
        CREATE TABLE keys (
            id bytea PRIMARY KEY,
            owner bytea NOT NULL,
            part smallint NOT NULL,
            epoch bigint NOT NULL,
            wrapped_by bytea,
            is_source_key boolean NOT NULL,
            event bytea NOT NULL,
            source bytea NOT NULL,
            memory bytea,
            expires_at bigint,
            destroyed_by bytea
        );
        CREATE INDEX open_keys ON keys (owner) WHERE destroyed_by IS NULL;
        CREATE INDEX expiring_keys ON keys (expires_at)
            WHERE expires_at IS NOT NULL AND destroyed_by IS NULL;
        CREATE INDEX destroyed_keys ON keys (destroyed_by) WHERE destroyed_by IS NOT NULL;
        CREATE TABLE secrets (
            part smallint NOT NULL,
            name bytea NOT NULL,
            wrapped bytea NOT NULL,
            PRIMARY KEY (part, name)
        ) PARTITION BY LIST (part);
        CREATE TABLE erasures (
            erasure bytea NOT NULL,
            target bytea NOT NULL,
            PRIMARY KEY (erasure, target)
        );"
    .to_owned();
    for part in 0..PARTS {
        // Rows are only added, and a destruction writes the part anew: there is nothing to vacuum, and
        // a vacuum would keep destructions waiting.
        sql += &format!(
            "CREATE TABLE secrets_{part} PARTITION OF secrets FOR VALUES IN ({part})
                 WITH (autovacuum_enabled = false);"
        );
    }
    sql
}

async fn identify(
    client: &Client,
    schema: &str,
    master: &MasterKey,
) -> Result<Identity, KeyringError> {
    let row = client
        .query_one("SELECT check_value, site FROM meta", &[])
        .await
        .map_err(|error| to_keyring_error(&error))?;
    let (check_value, wrapped_site): (Vec<u8>, Vec<u8>) = (row.get(0), row.get(1));
    if check_value != wrapping::check_value(master) {
        return Err(KeyringError::WrongMasterKey);
    }
    let wrapping = wrapping::wrapping_key(master);
    let site = wrapping::unwrap(&wrapping, &wrapped_site, &Purpose::Site)
        .ok_or_else(|| unusable(&format!("the site key in the schema {schema} is damaged")))?;
    Ok(Identity {
        id_key: IdKey::from_bytes(*site),
        wrapping,
        wrapped_site,
    })
}

async fn run(client: &Client, sql: &str) -> Result<(), KeyringError> {
    client
        .batch_execute(sql)
        .await
        .map_err(|error| to_keyring_error(&error))
}

/// Who makes the schema holds this lock of the database.
fn lock_of(schema: &str) -> i64 {
    let hash = blake3::hash(format!("anamnesis keyring {schema}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    i64::from_le_bytes(first)
}
