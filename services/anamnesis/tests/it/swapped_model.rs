//! What happens when the language model is another one than the vectors were made with: of another
//! dimension, or another one behind the same name?

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::node::{Folder, TENANT, texts};

/// The folder that `infra/get-models.sh` filled.
fn models() -> Option<PathBuf> {
    let dir = std::env::var_os("ANAMNESIS_MODELS").map(PathBuf::from);
    let is_required = std::env::var("ANAMNESIS_REQUIRED").is_ok_and(|value| value == "1");
    assert!(
        dir.is_some() || !is_required,
        "ANAMNESIS_MODELS is not set: run infra/get-models.sh DIR and set it to DIR"
    );
    if dir.is_none() {
        eprintln!("not tested: ANAMNESIS_MODELS is not set (see infra/get-models.sh)");
    }
    dir.map(|dir| fs::canonicalize(dir).expect("the folder of models"))
}

/// The same model by name, prefix and dimension, with other weights.
fn with_other_weights(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for name in ["tokenizer.json", "libonnxruntime.so"] {
        std::os::unix::fs::symlink(dir.join(name), copy.path().join(name)).expect("a link");
    }
    fs::copy(dir.join("model.toml"), copy.path().join("model.toml")).expect("the settings");
    let mut weights = fs::read(dir.join("model.onnx")).expect("the weights");
    // The lowest bit of some numbers in the middle of the file: it still is a model.
    let middle = weights.len() / 2;
    for place in (middle..middle + 4_096).step_by(4) {
        weights[place] ^= 1;
    }
    fs::write(copy.path().join("model.onnx"), weights).expect("written");
    copy
}

fn configure(folder: &Folder, dir: &Path, models: &str) {
    let config = format!("[embedding]\nkind = \"onnx\"\ndir = {dir:?}\n{models}\n");
    folder.write("anamnesis.toml", config);
}

/// The model that an answer names, and the texts of the answer.
async fn ask(folder: &Folder, query: &str) -> (String, Vec<String>) {
    let server = folder.serve().await;
    let answer = server.recall(&owner(), query, json!({})).await;
    server.stop();
    let leg = &answer["legs"]["vector"];
    assert_eq!(leg["ran"], json!(true), "{answer}");
    let model = leg["model"].as_str().expect("a model").to_owned();
    (model, texts(&answer))
}

fn owner() -> String {
    format!("{TENANT}/patient/p-1")
}

/// C24, R-56: whoever starts with another model is told both by name, whether its dimension differs or
/// only its weights behind the same name; a rebuild that cannot be done leaves what was there, and one
/// that is done says so only when the store equals the fold.
#[tokio::test(flavor = "multi_thread")]
async fn another_model_is_refused_by_name_until_the_vectors_are_built_for_it() {
    let Some(dir) = models() else { return };
    let folder = Folder::new().with_config("");
    configure(&folder, &dir, "");
    let server = folder.serve().await;
    server.grant(&owner()).await;
    let said = |n: u32, text: &str| {
        json!({"event_id": format!("e-{n}"), "owner": owner(), "role": "user",
            "at": format!("2026-03-0{n}T09:00:00+08:00"), "text": text})
    };
    let events: Value = json!([
        said(1, "我对头孢曲松钠过敏。"),
        said(2, "I take amlodipine 5 mg every morning."),
        said(3, "我每天晚上散步一小时。"),
    ]);
    server
        .post("/v1/events?wait=recallable", &events)
        .await
        .expect(202);
    server.stop();
    let question = "我对什么药过敏？";
    let (first, told) = ask(&folder, question).await;
    assert!(told[0].contains("头孢曲松钠"), "{told:?}");

    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let swapped = with_other_weights(&dir);
    for (dir, models, words) in [
        (swapped.path(), "", ["512", "512"]),
        (&*dir, "models = [\"bge-small-en-v1.5\"]", ["512", "384"]),
    ] {
        configure(&folder, dir, models);
        for command in [&serve[..], &["audit", "diff"]] {
            let done = folder.run(command).expect(2);
            let done = done.says(&[&first, "anamnesis rebuild --store vectors"]);
            done.says(&words);
        }
        // A model that is not there builds nothing, and takes nothing away.
        configure(&folder, &folder.data().join("no-models"), "");
        folder.run(&["rebuild", "--store", "vectors"]).expect(2);
        configure(&folder, &self::models().expect("it was there"), "");
        assert_eq!(ask(&folder, question).await, (first.clone(), told.clone()));
    }

    for (dir, models, dimension) in [
        (swapped.path(), "", 512),
        (&*dir, "models = [\"bge-small-en-v1.5\"]", 384),
    ] {
        configure(&folder, dir, models);
        folder
            .run(&["rebuild", "--store", "vectors"])
            .expect(0)
            .says(&["equal to the fold"]);
        folder.check_sound();
        let (second, again) = ask(&folder, question).await;
        assert_ne!(second, first);
        assert!(again[0].contains("头孢曲松钠"), "{again:?}");
        // Nothing is left of the vectors before: one generation, and all of one length.
        let stores = fs::read_dir(folder.data().join("stores")).expect("stores");
        let vectors: Vec<PathBuf> = stores
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.to_string_lossy().contains("/vectors-"))
            .collect();
        assert_eq!(vectors.len(), 1, "{vectors:?}");
        let database = rusqlite::Connection::open(vectors[0].join("vectors.db")).expect("opens");
        let lengths = "SELECT min(length(vector)), max(length(vector)) FROM versions";
        let lengths: (i64, i64) = database
            .query_row(lengths, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("lengths");
        assert_eq!(lengths, (dimension * 4, dimension * 4));
    }
}
