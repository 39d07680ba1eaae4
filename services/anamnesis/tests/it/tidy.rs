//! Does the tree keep the shape that `ARCHITECTURE.md` promises? Arrows between crates, what the light
//! crates pull in, a golden file per schema version, named metrics, nothing unfinished, nothing of
//! one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates that drag in C or a large tree; only `adapters` and `servers` may bring them.
const HEAVY: [&str; 10] = [
    "libsqlite3-sys",
    "neo4rs",
    "onig_sys",
    "ort",
    "qdrant-client",
    "rdkafka",
    "rusqlite",
    "tokio-postgres",
    "tantivy",
    "tokenizers",
];

const SERVICES: [&str; 7] = [
    "anamnesis-audit",
    "anamnesis-extractor",
    "anamnesis-forgetter",
    "anamnesis-indexer",
    "anamnesis-intake",
    "anamnesis-recall",
    "anamnesis-validity-manager",
];

const ADAPTERS: &str = "anamnesis-adapters";
const SERVERS: &str = "anamnesis-servers";

/// Members that a plain `cargo test` leaves out.
const HEAVY_MEMBERS: [&str; 4] = ["anamnesis", ADAPTERS, SERVERS, "anamnesis-loadtest"];

#[test]
fn crates_depend_in_one_direction() {
    let workspace = Workspace::read();
    let below_services = [
        "anamnesis-domain",
        "anamnesis-schemas",
        "anamnesis-pipeline",
    ];
    let mut allowed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    allowed.insert("anamnesis-domain", vec![]);
    allowed.insert("anamnesis-schemas", vec!["anamnesis-domain"]);
    allowed.insert(
        "anamnesis-pipeline",
        vec!["anamnesis-domain", "anamnesis-schemas"],
    );
    allowed.insert(ADAPTERS, below_services.to_vec());
    allowed.insert(SERVERS, below_services.to_vec());
    for service in SERVICES {
        allowed.insert(service, below_services.to_vec());
    }
    let all_but_adapters = || below_services.into_iter().chain(SERVICES);
    allowed.insert("anamnesis-testbed", all_but_adapters().collect());
    allowed.insert(
        "anamnesis",
        all_but_adapters().chain([ADAPTERS, SERVERS]).collect(),
    );
    allowed.insert(
        "anamnesis-loadtest",
        all_but_adapters()
            .chain(["anamnesis", "anamnesis-testbed"])
            .collect(),
    );

    for member in workspace.members() {
        let name = &workspace.names[member];
        let Some(allowed) = allowed.get(name.as_str()) else {
            panic!("{name} is a new crate: say here what it may depend on");
        };
        for dependency in workspace.direct(member, &[Edge::Normal, Edge::Build]) {
            let dependency = &workspace.names[dependency];
            let is_ours = dependency == "anamnesis" || dependency.starts_with("anamnesis-");
            assert!(
                !is_ours || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn services_cannot_name_a_backend() {
    let workspace = Workspace::read();
    for service in SERVICES {
        let found = workspace.heavy_below(workspace.id(service), &[Edge::Normal, Edge::Build]);
        assert!(found.is_empty(), "{service} pulls in {found:?}");
    }
}

#[test]
fn a_plain_cargo_test_builds_nothing_heavy() {
    let workspace = Workspace::read();
    for member in workspace.members() {
        let name = workspace.names[member].as_str();
        let is_default = workspace.default_members.contains(member);
        assert_eq!(
            is_default,
            !HEAVY_MEMBERS.contains(&name),
            "{name} in default-members"
        );
        if is_default {
            let found = workspace.heavy_below(member, &[Edge::Normal, Edge::Build, Edge::Dev]);
            assert!(found.is_empty(), "{name} with its tests pulls in {found:?}");
        }
    }
}

#[test]
fn every_schema_version_has_golden_bytes() {
    let schemas = root().join("schemas");
    let mut versions = 0;
    for record in entries(&schemas.join("avro")) {
        let name = file_name(&record);
        let golden: Vec<String> = entries(&schemas.join("golden").join(&name))
            .iter()
            .map(|p| file_name(p))
            .collect();
        for schema in entries(&record) {
            let version = file_name(&schema);
            let Some(version) = version.strip_suffix(".avsc") else {
                panic!("{} is not a schema", schema.display());
            };
            let number = version
                .strip_prefix('v')
                .and_then(|number| number.parse::<u32>().ok());
            assert!(number.is_some(), "{name}/{version}: versions are v1, v2, …");
            let is_golden = golden
                .iter()
                .any(|file| file.split(['.', '-', '_']).next() == Some(version));
            assert!(
                is_golden,
                "{name}/{version}.avsc has no file in schemas/golden/{name}"
            );
            versions += 1;
        }
    }
    assert!(versions > 0, "no schema found");
}

#[test]
fn every_metric_is_named_in_one_place_and_described() {
    let mut constants: BTreeMap<String, String> = BTreeMap::new();
    let mut uses: Vec<(String, String, String)> = Vec::new();
    for (path, text) in rust_files() {
        if path.ends_with("/metrics.rs") {
            for line in text.lines() {
                let Some((name, value)) = metric_constant(line) else {
                    continue;
                };
                constants.insert(name.to_owned(), value.to_owned());
            }
        }
        // Here every metric is described, by the catalogue's own names.
        if path == "services/anamnesis/src/metrics.rs" {
            continue;
        }
        for (macro_name, argument) in metric_macros(&text) {
            uses.push((path.clone(), macro_name, argument));
        }
    }
    for (path, macro_name, argument) in uses {
        let Some(value) = constants.get(&argument) else {
            panic!("{path}: {macro_name}!({argument}, …) must name a constant of a metrics.rs");
        };
        let is_counter = macro_name.ends_with("counter");
        assert_eq!(
            value.ends_with("_total"),
            is_counter,
            "{value}: only counters end in _total"
        );
    }
    let catalogue = anamnesis::metrics::catalogue();
    let known: BTreeSet<&str> = catalogue.iter().map(|metric| metric.name).collect();
    assert_eq!(known.len(), catalogue.len(), "a metric is listed twice");
    for (name, value) in &constants {
        assert!(
            value.starts_with("anamnesis_"),
            "{name}: {value} lacks the namespace"
        );
        assert!(
            known.contains(value.as_str()),
            "{name}: the catalogue of anamnesis does not say what it means"
        );
    }
    for metric in &catalogue {
        let is_named = constants.values().any(|value| value == metric.name);
        assert!(is_named, "{}: no constant names it", metric.name);
        let is_counter = metric.form == anamnesis::metrics::Form::Counter;
        assert_eq!(
            metric.name.ends_with("_total"),
            is_counter,
            "{}",
            metric.name
        );
    }
}

#[test]
fn labels_that_come_from_codes_have_all_codes() {
    let mut found = 0;
    let lists = [
        (
            &["Rejected::new(", "Rejected::whole("][..],
            &anamnesis_intake::metrics::CODES[..],
        ),
        (
            &["finder.each("][..],
            &anamnesis_intake::metrics::IDENTIFIERS[..],
        ),
    ];
    for (path, text) in rust_files().filter(|(path, _)| path.starts_with("services/intake/src")) {
        for (calls, list) in lists {
            for call in calls {
                for (at, _) in text.match_indices(call) {
                    let argument = text[at + call.len()..].trim_start();
                    // Where it is no literal, it is one of a code that was given before.
                    let Some(literal) = argument.strip_prefix('"') else {
                        continue;
                    };
                    let (code, _) = literal.split_once('"').expect("it ends");
                    assert!(list.contains(&code), "{path}: {code} is counted as other");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 30, "the codes were not found");
}

#[test]
fn nothing_is_unfinished_or_left_out() {
    // Written in halves, so that this file is clean itself.
    let banned = [
        concat!("#[ign", "ore"),
        concat!("tod", "o!("),
        concat!("unimple", "mented!("),
        concat!("dbg", "!("),
    ];
    for (path, text) in rust_files() {
        for word in banned {
            assert!(!text.contains(word), "{path} holds {word}");
        }
    }
}

#[test]
fn nothing_names_one_machine_or_a_registry() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("repo1.mav", "en"),
        concat!("repo.mav", "en"),
        concat!("registry.npm", "js"),
        concat!("proxy.go", "lang"),
        concat!("deb.deb", "ian"),
    ];
    for (path, text) in text_files() {
        for word in banned {
            assert!(!text.contains(word), "{path} names {word}");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Normal,
    Build,
    Dev,
}

/// What `cargo metadata` says, by package id.
struct Workspace {
    names: BTreeMap<String, String>,
    members: Vec<String>,
    default_members: BTreeSet<String>,
    edges: BTreeMap<String, Vec<(String, Edge)>>,
}

impl Workspace {
    fn read() -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked"])
            // One platform, or cargo would fetch the crates of all others first. The arrows are the same.
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let names = list(&metadata["packages"]);
        let names = names
            .iter()
            .map(|package| (text(&package["id"]), text(&package["name"])))
            .collect();
        let mut edges = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            let mut below = Vec::new();
            for dependency in list(&node["deps"]) {
                for kind in list(&dependency["dep_kinds"]) {
                    let edge = match kind["kind"].as_str() {
                        None => Edge::Normal,
                        Some("build") => Edge::Build,
                        Some("dev") => Edge::Dev,
                        Some(other) => panic!("a dependency of kind {other}"),
                    };
                    below.push((text(&dependency["pkg"]), edge));
                }
            }
            edges.insert(text(&node["id"]), below);
        }
        Self {
            names,
            members: list(&metadata["workspace_members"])
                .iter()
                .map(text)
                .collect(),
            default_members: list(&metadata["workspace_default_members"])
                .iter()
                .map(text)
                .collect(),
            edges,
        }
    }

    fn members(&self) -> impl Iterator<Item = &String> {
        self.members.iter()
    }

    fn id(&self, name: &str) -> &str {
        let found = self.members.iter().find(|id| self.names[*id] == name);
        found.unwrap_or_else(|| panic!("{name} is not a member"))
    }

    fn direct<'a>(&'a self, id: &str, kinds: &'a [Edge]) -> impl Iterator<Item = &'a str> {
        let edges = self.edges[id].iter();
        edges
            .filter(|(_, edge)| kinds.contains(edge))
            .map(|(id, _)| id.as_str())
    }

    /// Heavy crates that building `id` builds; its own dependencies by the kinds given, theirs by
    /// what building them takes.
    fn heavy_below(&self, id: &str, kinds: &[Edge]) -> Vec<&str> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = self.direct(id, kinds).collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.direct(next, &[Edge::Normal, Edge::Build]));
            }
        }
        let names = seen.into_iter().map(|id| self.names[id].as_str());
        names.filter(|name| HEAVY.contains(name)).collect()
    }
}

/// `pub const NAME: &str = "value";`
fn metric_constant(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (_, rest) = line.split_once("const ")?;
    let (name, value) = rest.split_once(": &str = \"")?;
    Some((name, value.strip_suffix("\";")?))
}

/// The first argument of each call of a metrics macro, without the path before it.
fn metric_macros(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in ["counter", "gauge", "histogram"] {
        for (at, _) in text.match_indices(&format!("{name}!(")) {
            let macro_name = if text[..at].ends_with("describe_") {
                format!("describe_{name}")
            } else {
                name.to_owned()
            };
            let arguments = &text[at + name.len() + 2..];
            let end = arguments.find([',', ')']).unwrap_or(arguments.len());
            let argument = arguments[..end].trim();
            let constant = argument.rsplit("::").next().unwrap_or(argument);
            found.push((macro_name, constant.to_owned()));
        }
    }
    found
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..")
        .canonicalize()
        .expect("the workspace is two folders up")
}

fn rust_files() -> impl Iterator<Item = (String, String)> {
    // This file names the macros that it looks for.
    text_files().filter(|(path, _)| path.ends_with(".rs") && !path.ends_with("it/tidy.rs"))
}

/// Every text file of the tree with its path from the root. `Cargo.lock` is cargo's own.
fn text_files() -> impl Iterator<Item = (String, String)> {
    let root = root();
    let mut files = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for path in entries(&folder) {
            let name = file_name(&path);
            let is_ours = !matches!(
                name.as_str(),
                ".git" | "target" | "data" | "models" | "Cargo.lock"
            ) || path.parent().is_some_and(|parent| parent != root);
            if !is_ours {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let from_root = path.strip_prefix(&root).expect("found below the root");
                files.push((from_root.display().to_string(), text));
            }
        }
    }
    assert!(files.len() > 50, "the tree was not found");
    files.into_iter()
}

/// What is in a folder, ascending; nothing when there is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
