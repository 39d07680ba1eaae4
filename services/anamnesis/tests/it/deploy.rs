//! Does what is shipped to run the system fit the system: the compose file, its configuration, its image,
//! what watches it?

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis::cli::{Cli, Command};
use anamnesis::config::{Config, Flags};
use anamnesis::metrics::catalogue;
use clap::Parser as _;
use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

use crate::node::{Folder, PATIENCE};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A YAML file as JSON, with merge keys (`<<`) carried out.
fn yaml(path: &str) -> Value {
    let text = std::fs::read_to_string(root().join(path)).expect("it is shipped");
    let documents = YamlLoader::load_from_str(&text);
    let documents = documents.unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path} is one document");
    as_json(&documents[0])
}

fn as_json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) | Yaml::Real(text) => text.clone().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(is) => (*is).into(),
        Yaml::Array(list) => list.iter().map(as_json).collect(),
        Yaml::Hash(hash) => {
            let mut all = Map::new();
            for (key, value) in hash {
                let key = key.as_str().expect("keys are words");
                let value = as_json(value);
                let merged = if key == "<<" {
                    object(&value).clone()
                } else {
                    Map::from_iter([(key.to_owned(), value)])
                };
                for (key, value) in merged {
                    // What is written beside a merge wins, and stands after it.
                    all.insert(key, value);
                }
            }
            all.into()
        }
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => panic!("an alias that names nothing"),
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("{value} is an object"))
}

fn words(value: &Value) -> Vec<&str> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .map(|word| word.as_str().expect("a word"))
        .collect()
}

fn compose() -> BTreeMap<String, Value> {
    object(&yaml("docker-compose.yml")["services"])
        .iter()
        .map(|(name, service)| (name.clone(), service.clone()))
        .collect()
}

/// Services of our own image, with what they run.
fn ours() -> BTreeMap<String, (Command, Value)> {
    let services = compose().into_iter();
    services
        .filter(|(_, service)| service.get("build").is_some())
        .map(|(name, service)| {
            let line = [&["anamnesis"], &words(&service["command"])[..]].concat();
            let cli = Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, (cli.command, service))
        })
        .collect()
}

#[test]
fn every_image_has_a_public_name_and_a_tag() {
    for (name, service) in compose() {
        let image = service["image"].as_str().expect("an image");
        let (path, tag) = image
            .split_once(':')
            .unwrap_or_else(|| panic!("{name}: no tag"));
        assert_ne!(tag, "latest", "{name}");
        let first = path.split('/').next().expect("a name");
        assert!(!first.contains(['.', ':']), "{name}: {image} names a host");
    }
}

#[test]
fn every_service_is_there_and_is_checked() {
    let services = compose();
    for server in [
        "kafka",
        "qdrant",
        "neo4j",
        "postgres",
        "prometheus",
        "grafana",
    ] {
        assert!(services.contains_key(server), "{server}");
    }
    let mut roles = BTreeSet::new();
    for (name, (_, service)) in ours() {
        roles.insert(words(&service["command"])[0].to_owned());
        // Whoever waits for nobody can be started in any order.
        assert!(service.get("depends_on").is_none(), "{name}");
        assert_eq!(service["build"]["dockerfile"], "infra/Dockerfile", "{name}");
    }
    let expected = [
        "extractor",
        "forgetter",
        "indexer",
        "intake",
        "recall",
        "topics",
        "validity-manager",
    ];
    assert!(roles.iter().eq(expected), "{roles:?}");
    for (name, service) in services {
        let check = words(&service["healthcheck"]["test"]);
        assert!(check.len() > 1 || name == "topics", "{name} is not checked");
        if service.get("build").is_some() && name != "topics" {
            assert_eq!(check[1..], ["anamnesis", "ready"], "{name}");
        }
    }
}

#[test]
fn the_configuration_of_each_service_is_understood_and_has_its_secrets() {
    let file = root().join("infra/compose/anamnesis.toml");
    let text = std::fs::read_to_string(&file).expect("it is shipped");
    let secrets: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_once("_env = "))
        .map(|(_, name)| name.trim_matches('"'))
        .collect();
    assert!(secrets.len() >= 6, "{secrets:?}");
    let drawn = std::fs::read_to_string(root().join("infra/compose/env.sh")).expect("shipped");
    let mut served = BTreeSet::new();
    for (name, (command, service)) in ours() {
        let environment = object(&service["environment"]);
        for secret in &secrets {
            let value = environment.get(*secret).and_then(Value::as_str);
            let value = value.unwrap_or_else(|| panic!("{name} lacks {secret}"));
            assert!(
                value.starts_with(&format!("${{{secret}:?")),
                "{name}: {secret} is fixed"
            );
            assert!(drawn.contains(secret), "env.sh does not draw {secret}");
        }
        let variables = environment
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
        let config = Config::from_parts(Some(&file), variables, &Flags::default());
        let config = config.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(config.to_masked_toml().is_ok(), "{name}");
        assert_eq!(environment["ANAMNESIS_CONFIG"], "/etc/anamnesis.toml");
        assert_eq!(
            config.shard.is_some(),
            matches!(command, Command::Indexer(_)),
            "{name}"
        );
        if let Some(shard) = config.shard {
            // Recall asks the indexer by the name of its service.
            let port = shard.listen.port();
            let address = format!(
                "partitions = \"{}\"\nreplicas = [\"http://{name}:{port}\"]",
                shard.partitions
            );
            assert!(text.contains(&address), "nobody asks {address}");
            for partition in shard.partitions.iter() {
                assert!(served.insert(partition), "{partition} is served twice");
            }
        }
    }
    assert!(
        text.contains(&format!("partitions = {}", served.len())),
        "some are not served"
    );
    assert_eq!(
        served.len() as u32,
        served.last().map_or(0, |last| last + 1)
    );
}

#[test]
fn what_is_mounted_is_shipped() {
    let declared = yaml("docker-compose.yml");
    for (name, service) in compose() {
        let Some(volumes) = service.get("volumes") else {
            continue;
        };
        for volume in words(volumes) {
            let (source, _) = volume.split_once(':').expect("a source and a place");
            let is_there = match source.strip_prefix("./") {
                Some(path) => root().join(path).exists(),
                None => object(&declared["volumes"]).contains_key(source),
            };
            assert!(is_there, "{name}: {source}");
        }
    }
    let ignored = std::fs::read_to_string(root().join("infra/Dockerfile.dockerignore"));
    let ignored = ignored.expect("it is shipped");
    for kept in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(
            root().join(kept).exists(),
            "{kept} is not there to be built from"
        );
    }
}

#[test]
fn every_process_is_scraped_and_grafana_knows_its_source() {
    let targets = yaml("infra/prometheus/targets/anamnesis.yml");
    let scraped: BTreeSet<&str> = words(&targets[0]["targets"]).into_iter().collect();
    let text = std::fs::read_to_string(root().join("infra/compose/anamnesis.toml"));
    let config: Value = toml::from_str(&text.expect("it is shipped")).expect("TOML");
    let listen: SocketAddr = config["listen"]
        .as_str()
        .expect("given")
        .parse()
        .expect("one");
    let processes: Vec<String> = ours()
        .into_iter()
        .filter(|(_, (command, _))| !matches!(command, Command::Topics(_)))
        .map(|(name, _)| format!("{name}:{}", listen.port()))
        .collect();
    assert_eq!(scraped, processes.iter().map(String::as_str).collect());
    let prometheus = yaml("infra/prometheus/prometheus.yml");
    assert_eq!(prometheus["scrape_configs"][0]["job_name"], "anamnesis");
    let sources = yaml("infra/grafana/provisioning/datasources/prometheus.yml");
    let source = &sources["datasources"][0];
    let dashboard = std::fs::read_to_string(root().join("infra/grafana/dashboards/overview.json"));
    let dashboard: Value = serde_json::from_str(&dashboard.expect("shipped")).expect("JSON");
    let mut places: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(
                    x < 24 && places.insert((x, y)),
                    "{} overlaps",
                    panel["title"]
                );
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(
            panel["datasource"]["uid"], source["uid"],
            "{}",
            panel["title"]
        );
        for target in panel["targets"].as_array().expect("targets") {
            assert_eq!(
                target["datasource"]["uid"], source["uid"],
                "{}",
                panel["title"]
            );
        }
    }
    let folders = yaml("infra/grafana/provisioning/dashboards/anamnesis.yml");
    let path = folders["providers"][0]["options"]["path"]
        .as_str()
        .expect("a path");
    let grafana = &compose()["grafana"];
    let mounts = words(&grafana["volumes"]).join(" ");
    assert!(
        mounts.contains(&format!("./infra/grafana/dashboards:{path}:ro")),
        "{mounts}"
    );
}

#[test]
fn rules_and_panels_name_only_metrics_that_are_published() {
    let metrics = catalogue();
    let mut texts = vec!["infra/grafana/dashboards/overview.json".to_owned()];
    for rules in ["integrity", "pipeline", "recall"] {
        texts.push(format!("infra/prometheus/rules/{rules}.yml"));
        texts.push(format!("infra/prometheus/tests/{rules}.yml"));
    }
    texts.push("infra/prometheus/tests/days.yml".to_owned());
    let mut named = 0;
    for path in texts {
        let text = std::fs::read_to_string(root().join(&path)).expect("it is shipped");
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
        for word in text.split(|char: char| !is_word(char)) {
            if !word.starts_with("anamnesis_") {
                continue;
            }
            named += 1;
            let whole = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|part| word.strip_suffix(part))
                .unwrap_or(word);
            let is_known = metrics
                .iter()
                .any(|metric| metric.name == word || metric.name == whole);
            assert!(is_known, "{path}: {word} is published nowhere");
        }
    }
    assert!(named > 100, "the metrics were not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_asked_whether_it_is_ready() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let address = server.address().to_owned();
    folder
        .run(&["ready", "--listen", &address])
        .expect(0)
        .says(&["ready"]);
    server.stop();
    folder.run(&["ready", "--listen", &address]).expect(3);
}

/// Whoever waits for a service waits while it begins, not for ever, and not for a configuration that
/// waiting does not mend.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_process_is_told_when_there_is_nothing_to_wait_for() {
    let folder = Folder::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    folder
        .run(&["ready", "--wait", "1s", "--listen", &address])
        .expect(3)
        .says(&[&address]);
    let mut waiting = folder.spawn(&["ready", "--wait", "100s", "--listen", &address]);
    let mut server = folder.spawn(&["serve", "--listen", &address]);
    assert_eq!(waiting.wait(PATIENCE).code(), Some(0));
    server.kill();

    let wrong = Folder::new().with_config("[recal]\nfloor = 0.5\n");
    let asked = Instant::now();
    wrong
        .run(&["ready", "--wait", "100s", "--listen", &address])
        .expect(2)
        .says(&["recal"]);
    assert!(asked.elapsed() < Duration::from_secs(30));
}
