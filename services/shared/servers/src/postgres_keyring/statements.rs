//! What is asked of the server, prepared once per connection? Each statement carries as many rows as a
//! call has, so that a call costs few round trips.

use tokio_postgres::{Client, Error, Statement};

/// Before the name of a data key and of an owner in `secrets`: both are 16 bytes, of different makers.
pub(super) const DATA: u8 = b'k';
pub(super) const OWNER: u8 = b'o';

/// Keys and all that is above them. One statement, so that all rows are of one moment. `OFFSET 0` keeps
/// the planner from choosing another way than row by row through the primary keys, which it else does
/// while the statistics are those of smaller tables.
const CHAIN: &str = "
    WITH RECURSIVE chain (id) AS (
        SELECT unnest($1::bytea[])
        UNION
        SELECT below.wrapped_by FROM chain CROSS JOIN LATERAL (
            SELECT wrapped_by, destroyed_by FROM keys WHERE id = chain.id OFFSET 0
        ) below
        WHERE below.wrapped_by IS NOT NULL AND below.destroyed_by IS NULL
    )
    SELECT held.id, held.owner, held.epoch, held.wrapped_by, held.destroyed_by IS NOT NULL,
           own.wrapped, above.wrapped
    FROM chain CROSS JOIN LATERAL (SELECT * FROM keys WHERE id = chain.id OFFSET 0) held
    LEFT JOIN LATERAL (
        SELECT wrapped FROM secrets
        WHERE part = held.part AND name = '\\x6b'::bytea || held.id OFFSET 0
    ) own ON true
    LEFT JOIN LATERAL (
        SELECT wrapped FROM secrets
        WHERE held.wrapped_by IS NULL AND held.destroyed_by IS NULL
          AND part = held.part AND name = '\\x6f'::bytea || held.owner OFFSET 0
    ) above ON true";

/// [`CHAIN`] over one part only. A destruction holds this part for itself: if it waited for others, two
/// destructions could wait for each other.
pub(super) fn chain_in(part_table: &str) -> String {
    CHAIN.replace("FROM secrets", &format!("FROM {part_table}"))
}

const OWNERS: &str = "
    SELECT owners.owner, owners.epoch, owners.is_open, own.wrapped
    FROM owners LEFT JOIN LATERAL (
        SELECT wrapped FROM secrets
        WHERE part = owners.part AND name = '\\x6f'::bytea || owners.owner OFFSET 0
    ) own ON true
    WHERE owners.owner = ANY($1::bytea[])";

/// Makers of keys share an owner; a destruction has it alone. In order, so that nobody waits in a ring.
const SHARE_OWNERS: &str =
    "SELECT FROM owners WHERE owner = ANY($1::bytea[]) ORDER BY owner FOR KEY SHARE";
const TAKE_OWNERS: &str = "
    SELECT owner, epoch, is_open FROM owners WHERE owner = ANY($1::bytea[])
    ORDER BY owner FOR UPDATE";
const TAKE_OWNERS_OF: &str = "
    SELECT FROM owners
    WHERE owner = ANY(ARRAY(SELECT DISTINCT owner FROM keys WHERE id = ANY($1::bytea[])))
    ORDER BY owner FOR NO KEY UPDATE";

const ADD_OWNER: &str = "
    INSERT INTO owners (owner, part, epoch, is_open) VALUES ($1, $2, 0, false)
    ON CONFLICT DO NOTHING";
const EPOCH: &str = "SELECT epoch, is_open FROM owners WHERE owner = $1";
const SET_EPOCH: &str = "UPDATE owners SET epoch = $2, is_open = $3 WHERE owner = $1";

const INSERT_KEYS: &str = "
    INSERT INTO keys (id, owner, part, epoch, wrapped_by, is_source_key, event, source, memory,
                      expires_at)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::smallint[], $4::bigint[], $5::bytea[],
                         $6::boolean[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bigint[])";
const INSERT_SECRETS: &str = "
    INSERT INTO secrets (part, name, wrapped)
    SELECT * FROM unnest($1::smallint[], $2::bytea[], $3::bytea[])";

const STATES: &str = "SELECT id, destroyed_by IS NOT NULL FROM keys WHERE id = ANY($1::bytea[])";
const KEEP: &str = "UPDATE keys SET expires_at = NULL WHERE id = ANY($1::bytea[])";

const ADD_ERASURE: &str = "INSERT INTO erasures VALUES ($1, $2) ON CONFLICT DO NOTHING";
const OPEN_KEYS: &str = "
    SELECT id, owner, wrapped_by, is_source_key, event, source, memory,
           coalesce(expires_at <= $2::bigint, false)
    FROM keys WHERE owner = ANY($1::bytea[]) AND destroyed_by IS NULL";
const EXPIRED_OWNERS: &str = "
    SELECT DISTINCT part, owner FROM keys
    WHERE expires_at IS NOT NULL AND expires_at <= $1 AND destroyed_by IS NULL
    ORDER BY part, owner";
const MARK_DESTROYED: &str = "UPDATE keys SET destroyed_by = $2 WHERE id = ANY($1::bytea[])";
const MARK_REWRAPPED: &str = "UPDATE keys SET wrapped_by = NULL WHERE id = ANY($1::bytea[])";
const COUNT_DESTROYED: &str = "SELECT count(*) FROM keys WHERE destroyed_by = $1";
const NOTIFY: &str = "SELECT pg_notify($1, name) FROM unnest($2::text[]) AS name";

macro_rules! statements {
    ($($name:ident: $sql:ident,)+) => {
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)+
        }

        impl Statements {
            pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
                let ($($name,)+) = futures::try_join!($(client.prepare($sql),)+)?;
                Ok(Self { $($name,)+ })
            }
        }
    };
}

statements! {
    chain: CHAIN,
    owners: OWNERS,
    share_owners: SHARE_OWNERS,
    take_owners: TAKE_OWNERS,
    take_owners_of: TAKE_OWNERS_OF,
    add_owner: ADD_OWNER,
    epoch: EPOCH,
    set_epoch: SET_EPOCH,
    insert_keys: INSERT_KEYS,
    insert_secrets: INSERT_SECRETS,
    states: STATES,
    keep: KEEP,
    add_erasure: ADD_ERASURE,
    open_keys: OPEN_KEYS,
    expired_owners: EXPIRED_OWNERS,
    mark_destroyed: MARK_DESTROYED,
    mark_rewrapped: MARK_REWRAPPED,
    count_destroyed: COUNT_DESTROYED,
    notify: NOTIFY,
}
