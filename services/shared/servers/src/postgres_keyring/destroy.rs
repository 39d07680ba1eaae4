//! How are keys destroyed, so that their bytes are in no table file when it is acknowledged, and that
//! nobody makes a key below them meanwhile? See [`super::schema`] for why a part is written anew.

use std::collections::BTreeSet;
use std::time::Duration;

use anamnesis_domain::ids::{ErasureId, EventTag, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::keyring::plan::{OpenKey, Plan, What, plan};
use anamnesis_pipeline::keyring::wrapping::{self, Key, Purpose};
use async_trait::async_trait;
use tokio_postgres::Row;

use super::call::{Call, bytes_of, column, epoch, maybe_sixteen, name, sixteen, together};
use super::failed::{Failed, no_randomness, unusable};
use super::opener::Opened;
use super::pool::Session;
use super::read::opener;
use super::schema::{part, part_table};
use super::statements::{DATA, OWNER, chain_in};

/// What expiry leaves in the place of an erasure.
const EXPIRED: ErasureId = ErasureId::from_bytes([0; 16]);

/// How long a destruction waits for a part of the keys: readers queue behind it meanwhile, and a dump
/// of the database can hold it for hours.
const PART_WAIT: Duration = Duration::from_millis(500);

/// What all destructions of a keyring need.
pub(super) struct Means<'a> {
    pub(super) wrapping: &'a Key,
    /// Announcements go to the channel of this name.
    pub(super) schema: &'a str,
    pub(super) deadline: Duration,
}

pub(super) struct Destroy<'a> {
    pub(super) means: Means<'a>,
    pub(super) owner: OwnerKey,
    pub(super) target: &'a Target,
    pub(super) erasure: ErasureId,
    /// Owner and target, hashed: an erasure can have several targets.
    pub(super) named: [u8; 32],
}

#[async_trait]
impl Call for Destroy<'_> {
    type Answer = u64;

    async fn attempt(&self, session: &Session) -> Result<u64, Failed> {
        let Session { client, statements } = session;
        let owner = &self.owner.bytes()[..];
        let erasure = &self.erasure.bytes()[..];
        let ((), _, owners, is_new, keys) = together!(
            client.batch_execute(&self.means.begin()),
            client.execute(&statements.add_owner, &[&owner, &part(self.owner)]),
            client.query(&statements.take_owners, &[&[owner].as_slice()]),
            client.execute(&statements.add_erasure, &[&erasure, &&self.named[..]]),
            client.query(&statements.open_keys, &[&[owner].as_slice(), &None::<i64>]),
        )
        .map_err(Failed::first)?;
        let mut destruction = Destruction {
            means: &self.means,
            part: part(self.owner),
            erasure: self.erasure,
            plan: Plan::default(),
            announced: vec![self.owner],
            closing: None,
        };
        if is_new > 0 {
            let open: Result<Vec<OpenKey>, _> = keys.iter().map(open_key).collect();
            destruction.plan = plan(&open?, &What::Target(self.target));
            if *self.target == Target::Owner {
                let row = owners
                    .first()
                    .ok_or_else(|| unusable("an owner vanished"))?;
                let is_open: bool = column(row, 2)?;
                destruction.closing = is_open.then_some((self.owner, epoch(row, 1)?));
            }
        }
        destruction.carry_out(session).await
    }
}

pub(super) struct DestroyExpired<'a> {
    pub(super) means: Means<'a>,
    pub(super) now: Timestamp,
    pub(super) part: i16,
    /// Of this part.
    pub(super) owners: &'a [OwnerKey],
}

#[async_trait]
impl Call for DestroyExpired<'_> {
    type Answer = u64;

    async fn attempt(&self, session: &Session) -> Result<u64, Failed> {
        let Session { client, statements } = session;
        let owners: Vec<&[u8]> = self.owners.iter().map(|owner| &owner.bytes()[..]).collect();
        let ((), _, keys) = together!(
            client.batch_execute(&self.means.begin()),
            client.query(&statements.take_owners, &[&owners]),
            client.query(&statements.open_keys, &[&owners, &Some(self.now.millis())]),
        )
        .map_err(Failed::first)?;
        let open: Result<Vec<OpenKey>, _> = keys.iter().map(open_key).collect();
        let plan = plan(&open?, &What::Expired);
        let count = plan.doomed.len() as u64;
        let destruction = Destruction {
            means: &self.means,
            part: self.part,
            erasure: EXPIRED,
            plan,
            announced: self.owners.to_vec(),
            closing: None,
        };
        destruction.carry_out(session).await?;
        Ok(count)
    }
}

/// The owners that have expired keys, by part.
pub(super) struct ExpiredOwners(pub(super) Timestamp);

#[async_trait]
impl Call for ExpiredOwners {
    type Answer = Vec<(i16, Vec<OwnerKey>)>;

    async fn attempt(&self, session: &Session) -> Result<Self::Answer, Failed> {
        let statement = &session.statements.expired_owners;
        let rows = session
            .client
            .query(statement, &[&self.0.millis()])
            .await
            .map_err(Failed::first)?;
        let mut parts: Vec<(i16, Vec<OwnerKey>)> = Vec::new();
        for row in &rows {
            let (part, owner) = (column(row, 0)?, OwnerKey::from_bytes(sixteen(row, 1)?));
            match parts.last_mut() {
                Some((last, owners)) if *last == part => owners.push(owner),
                _ => parts.push((part, vec![owner])),
            }
        }
        Ok(parts)
    }
}

fn open_key(row: &Row) -> Result<OpenKey, KeyringError> {
    Ok(OpenKey {
        id: KeyId::from_bytes(sixteen(row, 0)?),
        wrapped_by: maybe_sixteen(row, 2)?.map(KeyId::from_bytes),
        is_source_key: column(row, 3)?,
        event: EventTag::from_bytes(sixteen(row, 4)?),
        source: SourceTag::from_bytes(sixteen(row, 5)?),
        memory: maybe_sixteen(row, 6)?.map(MemoryId::from_bytes),
        is_expired: column(row, 7)?,
    })
}

impl Means<'_> {
    /// A destruction takes longer than other calls.
    fn begin(&self) -> String {
        let deadline_ms = self.deadline.as_millis().max(1);
        format!(
            "BEGIN; SET LOCAL statement_timeout = {deadline_ms};
             SET LOCAL idle_in_transaction_session_timeout = {deadline_ms}"
        )
    }
}

/// A planned destruction, within a transaction that holds its owners.
struct Destruction<'a> {
    means: &'a Means<'a>,
    part: i16,
    erasure: ErasureId,
    plan: Plan,
    announced: Vec<OwnerKey>,
    /// The epoch that ends.
    closing: Option<(OwnerKey, u32)>,
}

/// Keys under their new wrapping.
#[derive(Default)]
struct Rewrapped {
    names: Vec<Vec<u8>>,
    wrapped: Vec<Vec<u8>>,
}

impl Destruction<'_> {
    /// Ends the transaction; gives how many keys the erasure has destroyed by now.
    async fn carry_out(&self, session: &Session) -> Result<u64, Failed> {
        let Session { client, statements } = session;
        let erasure = &self.erasure.bytes()[..];
        if self.plan.doomed.is_empty() && self.closing.is_none() {
            let (row, ()) = together!(
                client.query_one(&statements.count_destroyed, &[&erasure]),
                client.batch_execute("COMMIT"),
            )?;
            return Ok(column::<i64>(&row, 0)?.unsigned_abs());
        }
        let table = part_table(self.part);
        // Before anything else is done with the part. Two destructions that had both begun to change
        // it would wait for each other.
        client
            .batch_execute(&format!(
                "SET LOCAL lock_timeout = {};
                 LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE",
                PART_WAIT.as_millis()
            ))
            .await?;
        let rewrapped = self.rewrap(session, &table).await?;
        let doomed: Vec<KeyId> = self.plan.doomed.iter().copied().collect();
        let saved: Vec<KeyId> = self.plan.rewrapped.iter().copied().collect();
        let (doomed_ids, saved_ids) = (bytes_of(&doomed), bytes_of(&saved));
        // The old wrappings go, those of the keys that are saved as well.
        let mut gone: Vec<Vec<u8>> = doomed.iter().map(|id| name(DATA, id.bytes())).collect();
        gone.extend(rewrapped.names.iter().cloned());
        let mut epochs: Vec<(Vec<u8>, i64)> = Vec::new();
        if let Some((owner, epoch)) = self.closing {
            gone.push(name(OWNER, owner.bytes()));
            epochs.push((owner.bytes().to_vec(), i64::from(epoch)));
        }
        let delete = format!("DELETE FROM ONLY {table} WHERE name = ANY($1::bytea[])");
        let parts = vec![self.part; rewrapped.names.len()];
        let close = async {
            for (owner, epoch) in &epochs {
                let close = &statements.set_epoch;
                client.execute(close, &[owner, epoch, &false]).await?;
            }
            Ok(())
        };
        together!(
            client.execute(&statements.mark_destroyed, &[&doomed_ids, &erasure]),
            client.execute(&statements.mark_rewrapped, &[&saved_ids]),
            client.execute(&delete, &[&gone]),
            close,
        )?;
        let announced: Vec<String> = self.announced.iter().map(ToString::to_string).collect();
        let rewrite = format!(
            "CREATE TEMP TABLE staying ON COMMIT DROP AS SELECT * FROM ONLY {table};
             TRUNCATE ONLY {table};
             INSERT INTO {table} SELECT * FROM staying"
        );
        let ((), _, row, _, ()) = together!(
            client.batch_execute(&rewrite),
            client.execute(
                &statements.insert_secrets,
                &[&parts, &rewrapped.names, &rewrapped.wrapped]
            ),
            client.query_one(&statements.count_destroyed, &[&erasure]),
            client.query(&statements.notify, &[&self.means.schema, &announced]),
            client.batch_execute("COMMIT"),
        )?;
        Ok(column::<i64>(&row, 0)?.unsigned_abs())
    }

    /// Saves keys from the destruction of what wraps them: the owner's key wraps them from now on.
    async fn rewrap(&self, session: &Session, table: &str) -> Result<Rewrapped, Failed> {
        let mut rewrapped = Rewrapped::default();
        if self.plan.rewrapped.is_empty() {
            return Ok(rewrapped);
        }
        let saved: BTreeSet<KeyId> = self.plan.rewrapped.clone();
        let ids: Vec<KeyId> = saved.into_iter().collect();
        let rows = session
            .client
            .query(&chain_in(table), &[&bytes_of(&ids)])
            .await?;
        let mut opener = opener(&rows, self.means.wrapping)?;
        let mut epochs = std::collections::HashMap::new();
        for row in &rows {
            epochs.insert(KeyId::from_bytes(sixteen(row, 0)?), epoch(row, 2)?);
        }
        for id in ids {
            let (Opened::Open(known), Some(epoch)) = (opener.open(id)?, epochs.get(&id)) else {
                return Err(unusable("a key that must outlive another one does not open").into());
            };
            let outer = opener
                .epoch_key(known.owner, *epoch)?
                .ok_or_else(|| unusable("an open key belongs to a closed epoch"))?;
            let purpose = Purpose::Data(known.owner, id);
            let wrapped =
                wrapping::wrap(&outer, known.key.bytes(), &purpose).map_err(no_randomness)?;
            rewrapped.names.push(name(DATA, id.bytes()));
            rewrapped.wrapped.push(wrapped.to_vec());
        }
        Ok(rewrapped)
    }
}
