//! Are the stores disposable, and is it noticed when one of them says something else than the log?

use std::path::PathBuf;

use rusqlite::Connection;

use crate::node::{Dice, Folder};
use crate::story::{self, answers};

const STORES: [&str; 4] = ["records", "text", "vectors", "graph"];

/// The folder of the generation in use.
fn store(folder: &Folder, name: &str) -> PathBuf {
    let stores = folder.data().join("stores");
    let found: Vec<PathBuf> = std::fs::read_dir(stores)
        .expect("stores are there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let file = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            file.rsplit_once('-')
                .is_some_and(|(store, _)| store == name)
        })
        .collect();
    assert_eq!(found.len(), 1, "one generation of {name}: {found:?}");
    found[0].clone()
}

/// Starts the server, lets it catch up, and stops it.
async fn catch_up(folder: &Folder) {
    let server = folder.serve().await;
    server.settle().await;
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_wiped_or_rebuilt_comes_back_equal() {
    for forgetful in [false, true] {
        let folder = Folder::new();
        story::tell(&folder, forgetful).await;
        folder.check_sound();
        let (digests, said) = (folder.digests().await, answers(&folder).await);
        assert!(said.iter().any(|answer| answer.contains("metformin")));

        for name in STORES {
            std::fs::remove_dir_all(store(&folder, name)).expect("the store is deleted");
            catch_up(&folder).await;
            folder.check_sound();
            assert_eq!(said, answers(&folder).await, "{name} was wiped");
        }
        std::fs::remove_dir_all(folder.data().join("stores")).expect("the stores are deleted");
        catch_up(&folder).await;
        folder.check_sound();
        assert_eq!(
            (digests, &said),
            (folder.digests().await, &answers(&folder).await)
        );

        for name in STORES.into_iter().chain(["all"]) {
            folder
                .run(&["rebuild", "--store", name])
                .expect(0)
                .says(&["equal to the fold"]);
            folder.check_sound();
            assert_eq!(
                (digests, &said),
                (folder.digests().await, &answers(&folder).await),
                "{name}"
            );
        }
    }
}

/// Alters a folder's copy with these statements, and expects `audit diff` to name store and row.
fn check_altered(folder: &Folder, name: &str, statement: &str, row: &str) {
    let copy = Folder::copy_of(folder);
    let path = store(&copy, name).join(format!("{name}.db"));
    let connection = Connection::open(path).expect("the store opens");
    let changed = connection.execute(statement, []).expect(statement);
    assert_eq!(changed, 1, "{statement}");
    connection.close().expect("the store closes");
    let done = copy.run(&["audit", "diff"]).expect(1);
    let is_named = done
        .stdout
        .lines()
        .any(|line| line.starts_with(&format!("{name} ")) && line.contains(row));
    assert!(is_named, "{statement} in {name}: {}", done.stdout);
    // It is put right as the message of `damaged` says.
    copy.run(&["rebuild", "--store", name]).expect(0);
    copy.run(&["audit", "diff"]).expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_altered_by_hand_is_named() {
    let folder = Folder::new();
    story::tell(&folder, true).await;
    folder.check_sound();
    let one = "WHERE id = (SELECT max(id) FROM versions)";
    let memory = "m-";
    for name in ["records", "vectors", "graph"] {
        let status = format!("UPDATE versions SET status = 'retired' {one}");
        check_altered(&folder, name, &status, memory);
        let to = format!("UPDATE versions SET valid_to = 1 {one}");
        check_altered(&folder, name, &to, memory);
        let gone = format!("DELETE FROM versions {one}");
        check_altered(&folder, name, &gone, memory);
        let owner = format!("UPDATE versions SET owner = zeroblob(16) {one}");
        check_altered(&folder, name, &owner, memory);
    }
    let body = format!("UPDATE versions SET body = replace(body, 'a', 'b') {one}");
    check_altered(&folder, "records", &body, memory);
    let decision = "WHERE id = (SELECT max(id) FROM decisions)";
    let outcome = format!("UPDATE decisions SET body = replace(body, 'e', 'f') {decision}");
    check_altered(&folder, "records", &outcome, "");
    check_altered(
        &folder,
        "records",
        &format!("DELETE FROM decisions {decision}"),
        "",
    );
    let owner = "WHERE owner = (SELECT max(owner) FROM owners)";
    let view = format!("UPDATE owners SET body = replace(body, '0', '1') {owner}");
    check_altered(&folder, "records", &view, "");
    let vector = format!("UPDATE versions SET vector = zeroblob(length(vector)) {one}");
    check_altered(&folder, "vectors", &vector, memory);
    let edge = "WHERE (owner, kind, name, memory, version) IN (SELECT * FROM edges LIMIT 1)";
    check_altered(
        &folder,
        "graph",
        &format!("UPDATE edges SET name = 'x' {edge}"),
        memory,
    );
    check_altered(
        &folder,
        "graph",
        &format!("DELETE FROM edges {edge}"),
        memory,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_was_taken_out_of_the_text_index_is_named() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    folder.check_sound();
    let dir = store(&folder, "text");
    let index = tantivy::Index::open_in_dir(&dir).expect("the index opens");
    let payload = index
        .load_metas()
        .expect("metas")
        .payload
        .expect("a position");
    let field = index.schema().get_field("key").expect("the field");
    let reader = index.reader().expect("a reader").searcher();
    let inverted = reader
        .segment_reader(0)
        .inverted_index(field)
        .expect("terms");
    let mut keys = inverted.terms().stream().expect("terms");
    assert!(keys.advance(), "a document is there");
    let term = tantivy::Term::from_field_bytes(field, keys.key());
    let mut writer: tantivy::IndexWriter = index
        .writer_with_num_threads(1, 20_000_000)
        .expect("a writer");
    writer.delete_term(term);
    let mut commit = writer.prepare_commit().expect("a commit");
    commit.set_payload(&payload);
    commit.commit().expect("a commit");
    writer.wait_merging_threads().expect("merges end");
    drop(index);
    let done = folder.run(&["audit", "diff"]).expect(1);
    assert!(
        done.stdout
            .lines()
            .any(|line| line.starts_with("text missing ")),
        "{}",
        done.stdout
    );
    folder.run(&["rebuild", "--store", "text"]).expect(0);
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_half_deleted_or_rotten_says_what_to_do() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let mut dice = Dice::new(9);
    let rebuild = |name: &str| format!("anamnesis rebuild --store {name}");
    let check = |copy: &Folder, name: &str| {
        let start = ["serve", "--listen", "127.0.0.1:0"];
        copy.run(&start).expect(1).says(&[name, &rebuild(name)]);
        copy.run(&["audit", "diff"])
            .expect(1)
            .says(&[name, &rebuild(name)]);
        copy.run(&["rebuild", "--store", name]).expect(0);
        copy.check_sound();
    };

    for name in ["records", "vectors", "graph"] {
        for statement in [
            "DROP TABLE versions",
            "DELETE FROM versions",
            "DELETE FROM checkpoints",
            "DROP TABLE meta",
        ] {
            let copy = Folder::copy_of(&folder);
            let path = store(&copy, name).join(format!("{name}.db"));
            Connection::open(path)
                .expect("it opens")
                .execute_batch(statement)
                .expect(statement);
            check(&copy, name);
        }
        let copy = Folder::copy_of(&folder);
        std::fs::write(
            store(&copy, name).join(format!("{name}.db")),
            vec![b'x'; 8192],
        )
        .expect("written");
        check(&copy, name);
    }

    // A file of the text index that is gone, and one with a flipped bit.
    let files = |copy: &Folder| {
        let mut files: Vec<PathBuf> = std::fs::read_dir(store(copy, "text"))
            .expect("the index")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                let name = path
                    .file_stem()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                name.len() == 32
            })
            .collect();
        files.sort();
        files
    };
    let copy = Folder::copy_of(&folder);
    std::fs::remove_file(dice.pick(&files(&copy))).expect("deleted");
    check(&copy, "text");
    let copy = Folder::copy_of(&folder);
    std::fs::remove_file(store(&copy, "text").join("meta.json")).expect("deleted");
    check(&copy, "text");
    let copy = Folder::copy_of(&folder);
    for path in files(&copy) {
        let mut bytes = std::fs::read(&path).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&path, bytes).expect("written");
    }
    check(&copy, "text");

    // A position beyond the log: nothing would ever be applied again.
    let copy = Folder::copy_of(&folder);
    let path = store(&copy, "graph").join("graph.db");
    let connection = Connection::open(path).expect("it opens");
    connection
        .execute("UPDATE checkpoints SET next = next + 1000", [])
        .expect("updated");
    connection.close().expect("closed");
    copy.run(&["serve", "--listen", "127.0.0.1:0"])
        .expect(1)
        .says(&["graph stands at", "rebuild"]);
    copy.run(&["audit", "diff"]).expect(1).says(&["graph"]);
    copy.run(&["rebuild", "--store", "graph"]).expect(0);
    catch_up(&copy).await;
    copy.check_sound();

    // The list of generations.
    let copy = Folder::copy_of(&folder);
    std::fs::write(copy.data().join("stores").join("current.json"), "{").expect("written");
    copy.run(&["audit", "diff"])
        .expect(2)
        .says(&["current.json", "delete the folder"]);
    std::fs::remove_file(copy.data().join("stores").join("current.json")).expect("deleted");
    catch_up(&copy).await;
    copy.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_used_says_why() {
    let folder = Folder::new();
    story::tell(&folder, false).await;

    let server = folder.serve().await;
    for command in [
        &["audit", "diff"][..],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        folder
            .run(command)
            .expect(3)
            .says(&["in use by another process", "stop that process"]);
    }
    server.stop();

    for (file, statement) in [
        ("log.db", "UPDATE meta SET format = 99"),
        ("keys.db", "UPDATE meta SET format = 99"),
    ] {
        let copy = Folder::copy_of(&folder);
        let connection = Connection::open(copy.data().join(file)).expect("it opens");
        connection.execute(statement, []).expect(statement);
        connection.close().expect("closed");
        copy.run(&["audit", "diff"])
            .expect(2)
            .says(&[file, "newer version", "format 99"]);
    }

    // A master key that is missing is not made up, and another one opens nothing.
    let copy = Folder::copy_of(&folder);
    let master = copy.data().join("master.key");
    std::fs::remove_file(&master).expect("deleted");
    copy.run(&["audit", "verify"])
        .expect(2)
        .says(&["master.key", "keys.db"]);
    assert!(
        !master.exists(),
        "no other key stands where the right one is missing"
    );
    let copy_without_keys = Folder::copy_of(&folder);
    std::fs::remove_file(copy_without_keys.data().join("keys.db")).expect("deleted");
    copy_without_keys
        .run(&["audit", "verify"])
        .expect(2)
        .says(&["keys.db", "backup"]);
    let other = Folder::new();
    let nothing = other.write("nothing.jsonl", "");
    let nothing = nothing.to_str().expect("a path");
    other.run(&["import", nothing]).expect(0);
    std::fs::copy(other.data().join("master.key"), &master).expect("copied");
    copy.run(&["audit", "verify"])
        .expect(2)
        .says(&["master key"]);

    // Vectors of another model.
    let copy = Folder::copy_of(&folder);
    let path = store(&copy, "vectors").join("vectors.db");
    let connection = Connection::open(path).expect("it opens");
    connection
        .execute("UPDATE meta SET model = 'other-model', dimension = 77", [])
        .expect("updated");
    connection.close().expect("closed");
    let refused = copy.run(&["serve", "--listen", "127.0.0.1:0"]).expect(2);
    refused.says(&[
        "other-model",
        "77",
        "hash",
        "anamnesis rebuild --store vectors",
    ]);
    copy.run(&["rebuild", "--store", "vectors"]).expect(0);
    copy.check_sound();

    // A misspelt key of the configuration.
    let odd = Folder::new().with_config("[consemt]\ndefault = \"granted\"\n");
    odd.run(&["audit", "diff"])
        .expect(2)
        .says(&["consemt", "consent"]);
}
