//! Is it noticed when somebody changes the log itself, by accident or on purpose?

use anamnesis_domain::ids::Hash;
use rusqlite::{Connection, params};

use crate::node::{Dice, Folder};
use crate::story;

/// One record as it stands in its table.
struct Row {
    partition: u32,
    offset: i64,
    appended_at: i64,
    owner: Vec<u8>,
    payload: Vec<u8>,
}

impl Row {
    /// What the log keeps beside the record against rot: no secret, so that an attacker renews it.
    fn checksum(&self, topic: &str) -> i64 {
        let mut bytes = topic.as_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(&self.partition.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.appended_at.to_le_bytes());
        bytes.extend_from_slice(&self.owner);
        bytes.extend_from_slice(&self.payload);
        let hash = Hash::of(&bytes).0;
        i64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
    }

    fn position(&self, topic: &str) -> String {
        format!("{topic}-{}@{}", self.partition, self.offset)
    }
}

fn open(folder: &Folder) -> Connection {
    Connection::open(folder.data().join("log.db")).expect("the log opens")
}

/// Every record of a topic but the identity.
fn rows(folder: &Folder, topic: &str) -> Vec<Row> {
    let connection = open(folder);
    let mut all = Vec::new();
    for partition in 0..4 {
        let sql = format!(
            "SELECT offset, appended_at, owner, payload FROM {topic}_{partition} WHERE offset > 0"
        );
        let mut statement = connection.prepare(&sql).expect("a table");
        let found = statement.query_map([], |row| {
            Ok(Row {
                partition,
                offset: row.get(0)?,
                appended_at: row.get(1)?,
                owner: row.get(2)?,
                payload: row.get(3)?,
            })
        });
        all.extend(found.expect("rows").map(|row| row.expect("a row")));
    }
    all
}

fn write(folder: &Folder, topic: &str, row: &Row, checksum: Option<i64>) {
    let connection = open(folder);
    let sql = format!(
        "UPDATE {topic}_{} SET payload = ?2, owner = ?3, checksum = coalesce(?4, checksum)
         WHERE offset = ?1",
        row.partition
    );
    let changed = connection
        .execute(&sql, params![row.offset, row.payload, row.owner, checksum])
        .expect("updated");
    assert_eq!(changed, 1);
    connection.close().expect("closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_rots_is_named_and_nothing_is_served_from_it() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let mut dice = Dice::new(21);
    let memories = rows(&folder, "memories");
    let mut row = memories.into_iter().nth(5).expect("records");
    let at = dice.below(row.payload.len() as u64) as usize;
    row.payload[at] ^= 1 << dice.below(8);
    write(&folder, "memories", &row, None);
    folder
        .run(&["audit", "verify"])
        .expect(1)
        .says(&[&row.position("memories")]);
    // Snapshots may have passed it; from nothing, it is in the way.
    std::fs::remove_dir_all(folder.data().join("stores")).expect("deleted");
    folder
        .run(&["serve", "--listen", "127.0.0.1:0"])
        .expect(1)
        .says(&[&row.position("memories")]);
}

/// What was said long ago is needed by nobody until somebody asks for its proof.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_rots_or_is_missing_is_named() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    for topic in ["conversation", "commands", "candidates"] {
        let mut row = rows(&folder, topic).into_iter().nth(3).expect("records");
        let place = row.position(topic);
        let copy = Folder::copy_of(&folder);
        let at = row.payload.len() / 2;
        row.payload[at] ^= 1;
        write(&copy, topic, &row, None);
        copy.run(&["audit", "verify"]).expect(1).says(&[&place]);
        if topic == "conversation" {
            // Everybody else is served.
            copy.serve().await.stop();
        }

        let copy = Folder::copy_of(&folder);
        let sql = format!(
            "DELETE FROM {topic}_{} WHERE offset = {}",
            row.partition, row.offset
        );
        open(&copy).execute_batch(&sql).expect("deleted");
        copy.run(&["audit", "verify"]).expect(1).says(&[&place]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_was_changed_on_purpose_is_named() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    folder.run(&["audit", "verify"]).expect(0);
    let mut dice = Dice::new(22);
    let memories = rows(&folder, "memories");
    for _ in 0..20 {
        let copy = Folder::copy_of(&folder);
        let row = dice.pick(&memories);
        let mut changed = Row {
            owner: row.owner.clone(),
            payload: row.payload.clone(),
            ..*row
        };
        let at = dice.below(changed.payload.len() as u64) as usize;
        changed.payload[at] ^= 1 << dice.below(8);
        write(
            &copy,
            "memories",
            &changed,
            Some(changed.checksum("memories")),
        );
        let done = copy.run(&["audit", "verify"]);
        // A writer's start says nothing about anybody; all else is sealed and chained.
        let is_start = row.owner.iter().all(|byte| *byte == 0);
        assert!(
            is_start || done.code == Some(1),
            "byte {at} of {}",
            row.position("memories")
        );
    }

    // Another owner's name on it.
    let copy = Folder::copy_of(&folder);
    let owned: Vec<&Row> = memories
        .iter()
        .filter(|row| row.owner.iter().any(|b| *b != 0))
        .collect();
    let other = owned
        .iter()
        .find(|row| row.owner != owned[0].owner)
        .expect("two owners");
    let changed = Row {
        owner: other.owner.clone(),
        payload: owned[0].payload.clone(),
        ..*owned[0]
    };
    write(
        &copy,
        "memories",
        &changed,
        Some(changed.checksum("memories")),
    );
    copy.run(&["audit", "verify"])
        .expect(1)
        .says(&[&changed.position("memories")]);

    // Two decisions of one owner in the other order.
    let copy = Folder::copy_of(&folder);
    let second = owned
        .iter()
        .skip(1)
        .find(|row| row.owner == owned[0].owner)
        .expect("a second");
    for (place, content) in [(owned[0], *second), (*second, owned[0])] {
        let changed = Row {
            owner: content.owner.clone(),
            payload: content.payload.clone(),
            ..*place
        };
        write(
            &copy,
            "memories",
            &changed,
            Some(changed.checksum("memories")),
        );
    }
    copy.run(&["audit", "verify"])
        .expect(1)
        .says(&["first bad record"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_cut_is_noticed_by_whoever_had_read_further() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let memories = rows(&folder, "memories");
    let last = memories
        .iter()
        .max_by_key(|row| row.offset)
        .expect("records");
    let cut = format!(
        "DELETE FROM memories_{} WHERE offset > {}",
        last.partition,
        last.offset - 3
    );
    let copy = Folder::copy_of(&folder);
    open(&copy).execute_batch(&cut).expect("cut");
    copy.run(&["audit", "balance"])
        .expect(1)
        .says(&[&format!("memories-{}", last.partition)]);

    // Cut cleanly, with the end put right: the stores have read further.
    let copy = Folder::copy_of(&folder);
    let end = format!(
        "{cut}; UPDATE partitions SET end_offset = {} WHERE topic = 'memories' AND partition = {}",
        last.offset - 2,
        last.partition
    );
    open(&copy).execute_batch(&end).expect("cut");
    for command in [
        &["audit", "diff"][..],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        copy.run(command)
            .expect(1)
            .says(&["the log was replaced or cut", "rebuild"]);
    }
    copy.run(&["rebuild", "--store", "all"]).expect(0);
    let server = copy.serve().await;
    server.settle().await;
    server.stop();
    copy.check_sound();
}
