//! Does the language model tell apart what must be told apart, and always say the same?
//!
//! `ANAMNESIS_MODELS` names the folder that `infra/get-models.sh` filled. Without it these tests have
//! nothing to ask; `ANAMNESIS_REQUIRED=1`, as in CI, makes that a failure.

use std::fs;
use std::path::{Path, PathBuf};

use anamnesis_adapters::onnx_embedder::OnnxEmbedder;
use anamnesis_pipeline::embedder::{EmbedError, Embedder, Purpose};
use anamnesis_pipeline::similarity::dot;

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
    dir
}

fn load(dir: &Path) -> OnnxEmbedder {
    OnnxEmbedder::load(dir, &[], None, 1).unwrap()
}

async fn one(model: &OnnxEmbedder, text: &str, purpose: Purpose) -> Vec<f32> {
    model.embed(&[text], purpose).await.unwrap().remove(0)
}

#[tokio::test]
async fn meaning_is_nearer_than_chance() {
    let Some(dir) = models() else { return };
    let model = load(&dir);
    let check = async |question: &str, near: &str, far: &str| {
        let question = one(&model, question, Purpose::Query).await;
        let (near, far) = (
            one(&model, near, Purpose::Passage).await,
            one(&model, far, Purpose::Passage).await,
        );
        let (near, far) = (dot(&question, &near), dot(&question, &far));
        assert!(near > far + 0.05, "{near} is not well above {far}");
    };
    check(
        "对什么食物过敏",
        "吃花生会起疹子，过敏",
        "周五下午去骨科复诊",
    )
    .await;
    check(
        "平时用什么药降血糖",
        "每日两次服用二甲双胍",
        "住在三楼，没有电梯",
    )
    .await;
    check("上次拍的片子", "上周做了胸部CT", "母亲有高血压").await;
}

#[tokio::test]
async fn tests_and_drugs_in_latin_letters_differ() {
    let Some(dir) = models() else { return };
    let model = load(&dir);
    let names = ["CT", "MRI", "INR", "HbA1c", "Warfarin"];
    let vectors = model.embed(&names, Purpose::Passage).await.unwrap();
    for (i, a) in vectors.iter().enumerate() {
        for (j, b) in vectors.iter().enumerate().take(i) {
            let cosine = dot(a, b);
            assert!(cosine < 0.95, "{} and {}: {cosine}", names[i], names[j]);
        }
    }
    assert_eq!(vectors[0], one(&model, "ct", Purpose::Passage).await);
}

#[tokio::test]
async fn a_vector_does_not_depend_on_its_neighbours() {
    let Some(dir) = models() else { return };
    let model = load(&dir);
    let long = "患者诉反复头晕一周，".repeat(200);
    let texts = ["对青霉素过敏", &long, "CT", "", "每日两次 500 mg", "   "];
    let together = model.embed(&texts, Purpose::Passage).await.unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(
            *vector,
            one(&model, text, Purpose::Passage).await,
            "bit for bit"
        );
        assert_eq!(vector.len(), model.identity().dimension as usize);
        let length = dot(vector, vector);
        let expected = if text.trim().is_empty() { 0.0 } else { 1.0 };
        assert!((length - expected).abs() < 1e-5, "{length}");
    }
    // Many at once, and a model that was loaded again.
    let again = load(&dir);
    assert_eq!(again.identity(), model.identity());
    let (a, b, c) = tokio::join!(
        model.embed(&texts, Purpose::Passage),
        model.embed(&texts, Purpose::Passage),
        again.embed(&texts, Purpose::Passage),
    );
    assert_eq!([&a.unwrap(), &b.unwrap(), &c.unwrap()], [&together; 3]);
}

#[tokio::test]
async fn a_question_and_a_passage_are_asked_differently() {
    let Some(dir) = models() else { return };
    let model = load(&dir);
    let text = "对青霉素过敏";
    assert_ne!(
        one(&model, text, Purpose::Query).await,
        one(&model, text, Purpose::Passage).await
    );
    assert!(model.is_semantic());
    assert_eq!(model.identity().dimension, 512);
    assert!(
        model.identity().id.starts_with("bge-small-zh-v1.5-"),
        "{}",
        model.identity()
    );
}

/// What `infra/get-models.sh` prepares to be joined.
fn joined(dir: &Path) -> OnnxEmbedder {
    let names = [
        "bge-small-zh-v1.5",
        "bge-small-en-v1.5",
        "use-multilingual-v3",
    ];
    OnnxEmbedder::load(dir, &names.map(str::to_owned), None, 1).unwrap()
}

#[tokio::test]
async fn joined_models_find_what_one_of_them_knows() {
    let Some(dir) = models() else { return };
    let model = joined(&dir);
    let check = async |question: &str, near: &str, far: &str| {
        let question = one(&model, question, Purpose::Query).await;
        let near = dot(&question, &one(&model, near, Purpose::Passage).await);
        let far = dot(&question, &one(&model, far, Purpose::Passage).await);
        assert!(near > far + 0.05, "{near} is not well above {far}");
    };
    check(
        "对什么食物过敏",
        "吃花生会起疹子，过敏",
        "周五下午去骨科复诊",
    )
    .await;
    check(
        "What am I allergic to?",
        "I get hives from peanuts.",
        "I see the orthopaedist on Friday.",
    )
    .await;
    check(
        "我对芒果过敏吗",
        "I am allergic to mango.",
        "I live in Hangzhou.",
    )
    .await;
    check("Am I allergic to mango?", "我对芒果过敏。", "我住在杭州。").await;
}

#[tokio::test]
async fn joined_models_are_one_with_an_identity_of_its_own() {
    let Some(dir) = models() else { return };
    let model = joined(&dir);
    let identity = model.identity();
    assert_eq!(identity.dimension, 512 + 384 + 512);
    let begin = "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-";
    assert!(identity.id.starts_with(begin), "{identity}");
    assert_eq!(joined(&dir).identity(), identity);
    let swapped = ["use-multilingual-v3", "bge-small-zh-v1.5"].map(str::to_owned);
    let swapped = OnnxEmbedder::load(&dir, &swapped, None, 1).unwrap();
    assert_ne!(swapped.identity(), identity);

    // Each part is what the model alone says, and the English one is silent where there is Chinese.
    let alone = load(&dir);
    let check = async |text: &str, parts: f32| {
        let whole = one(&model, text, Purpose::Query).await;
        assert!((dot(&whole, &whole) - 1.0).abs() < 1e-5);
        let zh = one(&alone, text, Purpose::Query).await;
        let share = dot(&whole[..512], &zh);
        assert!((share - (1.0 / parts).sqrt()).abs() < 1e-5, "{share}");
        assert_eq!(whole[512..896].iter().all(|c| *c == 0.0), parts == 2.0);
    };
    check("对青霉素过敏", 2.0).await;
    check("对 penicillin 过敏", 2.0).await;
    check("allergic to penicillin", 3.0).await;
}

#[tokio::test]
async fn a_joined_vector_does_not_depend_on_its_neighbours() {
    let Some(dir) = models() else { return };
    let model = joined(&dir);
    let long = "The patient reports dizziness. ".repeat(120);
    let texts = ["allergic to penicillin", &long, "CT", "", "对青霉素过敏"];
    let together = model.embed(&texts, Purpose::Passage).await.unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(*vector, one(&model, text, Purpose::Passage).await, "{text}");
    }
    let again = joined(&dir);
    let (a, b) = tokio::join!(
        model.embed(&texts, Purpose::Passage),
        again.embed(&texts, Purpose::Passage),
    );
    assert_eq!([&a.unwrap(), &b.unwrap()], [&together; 2]);
}

/// A copy of the folder (links to its large files) with another `model.toml`.
fn folder_with(dir: &Path, change: impl FnOnce(String) -> String) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["model.onnx", "tokenizer.json", "libonnxruntime.so"] {
        std::os::unix::fs::symlink(dir.join(name), copy.path().join(name)).unwrap();
    }
    let settings = fs::read_to_string(dir.join("model.toml")).unwrap();
    fs::write(copy.path().join("model.toml"), change(settings)).unwrap();
    copy
}

#[tokio::test]
async fn a_folder_that_does_not_fit_says_what_is_wrong() {
    let Some(dir) = models() else { return };
    let dir = fs::canonicalize(dir).unwrap();
    let check = |folder: &Path, runtime: Option<&Path>, words: &[&str]| {
        let error = match OnnxEmbedder::load(folder, &[], runtime, 1) {
            Ok(_) => "loaded".to_owned(),
            Err(EmbedError::Unusable { reason }) => reason,
            Err(EmbedError::Unavailable { reason }) => format!("worth a retry? {reason}"),
        };
        for word in words {
            assert!(error.contains(word), "{word:?} in {error:?}");
        }
    };
    let same = folder_with(&dir, |text| text);
    check(same.path(), None, &["loaded"]);
    let wider = folder_with(&dir, |text| {
        text.replace("dimension = 512", "dimension = 384")
    });
    check(
        wider.path(),
        None,
        &["512 dimensions", "model.toml says 384"],
    );
    let pooled = folder_with(&dir, |text| text.replace("\"cls\"", "\"none\""));
    check(pooled.path(), None, &["shape", "pooling"]);
    let swapped = folder_with(&dir, |text| {
        text.replace("= \"tokenizer.json\"", "= \"model.toml\"")
    });
    check(swapped.path(), None, &["model.toml is not a tokenizer"]);
    let no_model = folder_with(&dir, |text| {
        text.replace("= \"model.onnx\"", "= \"gone.onnx\"")
    });
    check(no_model.path(), None, &["gone.onnx"]);
    let not_a_model = folder_with(&dir, |text| {
        text.replace("= \"model.onnx\"", "= \"model.toml\"")
    });
    check(not_a_model.path(), None, &["model.toml cannot be loaded"]);
    let empty = tempfile::tempdir().unwrap();
    check(
        empty.path(),
        None,
        &["has no model.toml", "infra/get-models.sh"],
    );
    let unknown = ["bge-small-zh-v1.5".to_owned(), "no-such-model".to_owned()];
    match OnnxEmbedder::load(&dir, &unknown, None, 1) {
        Err(EmbedError::Unusable { reason }) => {
            assert!(
                reason.contains("no-such-model has no model.toml"),
                "{reason}"
            );
        }
        Err(EmbedError::Unavailable { .. }) | Ok(_) => panic!("a folder that is not there"),
    }
    check(&dir, Some(&empty.path().join("lib.so")), &["lib.so"]);
    check(&dir, Some(empty.path()), &["no libonnxruntime.so"]);
}

#[tokio::test]
async fn other_settings_are_another_identity() {
    let Some(dir) = models() else { return };
    let dir = fs::canonicalize(dir).unwrap();
    let usual = load(&dir);
    let other = folder_with(&dir, |text| {
        text.replace("query_prefix = \"", "query_prefix = \"x")
    });
    let other = OnnxEmbedder::load(other.path(), &[], None, 1).unwrap();
    assert_ne!(usual.identity(), other.identity());
}
