//! Is what is published true, closed and complete; and does a real Prometheus get an answer to every
//! panel and every rule?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anamnesis::metrics::{Form, Metric, catalogue};
use serde_json::{Value, json};

use crate::fleet::{Fleet, Servers};
use crate::node::{Folder, Http, Server, TENANT, http_client};
use crate::story::{self, patient};

/// Time between two questions while something is waited for.
const PAUSE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(120);

/// A line of a scrape.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// # Panics
/// When a line is not in Prometheus' text format.
fn samples(scrape: &str) -> Vec<Sample> {
    let lines = scrape.lines().filter(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.trim_end_matches('}')),
                None => (series, ""),
            };
            let labels = labels
                .split("\",")
                .filter(|label| !label.is_empty())
                .map(|label| {
                    let (label, value) = label
                        .split_once("=\"")
                        .unwrap_or_else(|| panic!("{line}: {label}"));
                    (label.to_owned(), value.trim_end_matches('"').to_owned())
                })
                .collect();
            Sample {
                name: name.to_owned(),
                labels,
                value: value.parse().unwrap_or_else(|_| panic!("{line}")),
            }
        })
        .collect()
}

async fn scrape(http: &Http) -> Vec<Sample> {
    let answer = http.get("/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    samples(&answer.text)
}

/// The sum of a metric over the series that have these labels.
fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted = |sample: &&Sample| {
        let has = |(label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|held| held == value)
        };
        sample.name == name && labels.iter().all(has)
    };
    samples
        .iter()
        .filter(wanted)
        .map(|sample| sample.value)
        .sum()
}

/// Asks until it is so. The numbers of the watch are as old as its last look.
async fn until(http: &Http, what: &str, holds: impl Fn(&[Sample]) -> bool) -> Vec<Sample> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let samples = scrape(http).await;
        if holds(&samples) {
            return samples;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: not seen at {}",
            http.address()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

/// Something of everything: both languages, a context, an outcome, a wrong call, an erasure.
async fn load(server: &Server) {
    let owner = patient("liu");
    for n in 0..12 {
        for query in [
            "我对什么过敏？",
            "Which medication do I take?",
            "What is my favourite opera?",
        ] {
            server.recall(&owner, query, json!({})).await;
        }
        let asked = json!({
            "owner": owner, "query": "我对什么过敏？", "usable_tokens": 4000,
        });
        let context = server.post("/v1/context", &asked).await.expect(200);
        let outcome = if n % 4 == 0 { "off_topic" } else { "used" };
        let report = json!({"recall_id": context["recall_id"], "outcome": outcome});
        server.post("/v1/outcomes", &report).await.expect(202);
        let text = format!("I am allergic to penicillin, batch {n}.");
        let write = json!({"owner": owner, "text": text, "kind": "allergy"});
        server
            .post("/v1/remember?wait=recallable", &write)
            .await
            .expect(202);
        server.post("/v1/remember", &json!({"owner": owner})).await;
    }
    let forget = json!({"owner": patient("nagy"), "all": true, "mode": "erase", "reason": "asked"});
    server.post("/v1/forget", &forget).await.expect(202);
}

fn by_name() -> BTreeMap<&'static str, Metric> {
    let metrics = catalogue().into_iter();
    metrics.map(|metric| (metric.name, metric)).collect()
}

/// Checks that every sample is one of the catalogue, with its labels and their values; gives the names.
fn check_closed(known: &BTreeMap<&str, Metric>, found: &[Sample]) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    for sample in found {
        let name = sample.name.as_str();
        let metric = known.get(name).or_else(|| {
            let parts = ["_bucket", "_sum", "_count"];
            let whole = parts.iter().find_map(|part| name.strip_suffix(part))?;
            known
                .get(whole)
                .filter(|metric| metric.form == Form::Histogram)
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        seen.insert(metric.name);
        for (label, value) in &sample.labels {
            if label == "le" && name.ends_with("_bucket") {
                continue;
            }
            let labels = metric.labels.iter();
            let (_, values) = labels
                .clone()
                .find(|(known, _)| known == label)
                .unwrap_or_else(|| panic!("{name} has an unknown label {label}"));
            assert!(values.admit(value), "{name}: {label}={value}");
        }
        let labels = sample.labels.keys().filter(|label| *label != "le").count();
        assert_eq!(labels, metric.labels.len(), "{sample:?}");
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn every_published_number_is_in_the_catalogue_with_labels_from_closed_sets() {
    let folder = Folder::new().with("ANAMNESIS__WATCH__DRIFT_EVERY", "1s");
    story::tell(&folder, true).await;
    let server = folder.serve().await;
    load(&server).await;
    let found = until(&server, "everything is seen", |samples| {
        sum(
            samples,
            "anamnesis_balance_records",
            &[("state", "accepted")],
        ) > 0.0
            && sum(
                samples,
                "anamnesis_balance_records",
                &[("state", "in_flight")],
            ) == 0.0
            && sum(
                samples,
                "anamnesis_drift_owners_total",
                &[("outcome", "same")],
            ) > 0.0
            && sum(samples, "anamnesis_memories", &[]) > 0.0
            && sum(samples, "anamnesis_open_erasures", &[]) == 0.0
    })
    .await;

    let known: BTreeMap<&str, Metric> = by_name();
    let seen = check_closed(&known, &found);
    let missing: Vec<&str> = known
        .keys()
        .copied()
        .filter(|name| !seen.contains(*name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "these are published nowhere");
    let described = server.get("/metrics").await.text;
    for name in known.keys() {
        assert!(described.contains(&format!("# HELP {name} ")), "{name}");
        assert!(described.contains(&format!("# TYPE {name} ")), "{name}");
    }

    // What they say, where it is known.
    let accepted = sum(
        &found,
        "anamnesis_balance_records",
        &[("state", "accepted")],
    );
    let rest: f64 = ["decided", "quarantined", "in_flight", "parked"]
        .iter()
        .map(|state| sum(&found, "anamnesis_balance_records", &[("state", *state)]))
        .sum();
    assert_eq!(accepted, rest);
    let of = |name: &str| sum(&found, name, &[]);
    for must_be_0 in [
        "anamnesis_imbalance_records",
        "anamnesis_recall_foreign_total",
        "anamnesis_broken_owners",
        "anamnesis_broken_chains_total",
        "anamnesis_drift_mismatches_total",
        "anamnesis_drifting_owners",
        "anamnesis_store_failures_total",
        "anamnesis_parked_owners",
    ] {
        assert_eq!(of(must_be_0), 0.0, "{must_be_0}");
    }
    let recalls = [("call", "recall"), ("outcome", "answered")];
    assert!(sum(&found, "anamnesis_recall_recalls_total", &recalls) >= 12.0);
    let contexts = [("call", "context")];
    assert_eq!(
        sum(&found, "anamnesis_recall_recalls_total", &contexts),
        12.0
    );
    let off_topic = [("outcome", "off_topic")];
    assert_eq!(
        sum(&found, "anamnesis_recall_outcomes_total", &off_topic),
        3.0
    );
    let refused = [("route", "/v1/remember"), ("outcome", "refused")];
    assert_eq!(sum(&found, "anamnesis_http_requests_total", &refused), 12.0);
    assert!(of("anamnesis_drift_rows_total") > 0.0);
    assert_eq!(
        sum(&found, "anamnesis_store_generation", &[("store", "graph")]),
        1.0
    );
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_changed_by_hand_is_seen_as_drift() {
    let folder = Folder::new().with("ANAMNESIS__WATCH__DRIFT_EVERY", "100ms");
    story::tell(&folder, true).await;
    let graph = folder.data().join("stores/graph-1/graph.db");
    let connection = rusqlite::Connection::open(graph).expect("the graph is there");
    let gone = connection.execute("DELETE FROM edges", []);
    let gone = gone.expect("rows can be deleted");
    assert!(gone > 0);
    drop(connection);
    let server = folder.serve().await;
    let graph = [("store", "graph")];
    let found = until(&server, "the drift is seen", |samples| {
        sum(samples, "anamnesis_drift_mismatches_total", &graph) > 0.0
            && sum(samples, "anamnesis_drifting_owners", &[]) > 0.0
    })
    .await;
    assert_eq!(
        sum(
            &found,
            "anamnesis_drift_mismatches_total",
            &[("store", "text")]
        ),
        0.0
    );
    server.stop();
}

/// Partitions that an extractor says it owns.
fn owned(samples: &[Sample]) -> BTreeSet<String> {
    let next = samples
        .iter()
        .filter(|sample| sample.name == "anamnesis_next_offset");
    let extractor = next.filter(|sample| sample.labels["stage"] == "extractor");
    extractor
        .map(|sample| sample.labels["partition"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_each_service_publishes_its_part_and_a_partition_only_while_it_owns_it() {
    let mut fleet = Fleet::new(Servers::shared, 4);
    fleet.start_all().await;
    let owner = format!("{TENANT}/patient/p-1");
    let intake = fleet.http("intake-a");
    intake.grant(&owner).await;
    let event = json!({
        "event_id": "e1", "owner": owner, "role": "user", "at": "2026-03-01T09:00:00+08:00",
        "text": "我对芒果过敏，帮我记住。",
    });
    intake
        .post("/v1/events?wait=recallable", &event)
        .await
        .expect(202);
    fleet.settle().await;
    let manager = fleet.http("validity-manager-a");
    until(&manager, "the balance is seen", |samples| {
        sum(
            samples,
            "anamnesis_balance_records",
            &[("state", "accepted")],
        ) == 2.0
            && sum(
                samples,
                "anamnesis_balance_records",
                &[("state", "decided")],
            ) == 2.0
            && sum(samples, "anamnesis_imbalance_records", &[]) == 0.0
    })
    .await;
    let known = by_name();
    for name in fleet.running() {
        let samples = scrape(&fleet.http(&name)).await;
        let seen = check_closed(&known, &samples);
        let has_balance = seen.contains("anamnesis_balance_records");
        assert_eq!(has_balance, name.starts_with("validity-manager"), "{name}");
        let applies = seen.contains("anamnesis_store_apply_seconds");
        assert_eq!(applies, name.starts_with("indexer"), "{name}");
        assert_eq!(
            seen.contains("anamnesis_recall_seconds"),
            name == "recall-a",
            "{name}"
        );
    }

    // A second one joins and takes some, and leaves and gives them back.
    let everything: BTreeSet<String> = (0..4).map(|partition: u32| partition.to_string()).collect();
    let first = fleet.http("extractor-a");
    until(&first, "it owns all", |samples| {
        owned(samples) == everything
    })
    .await;
    fleet.start("extractor", "extractor-b");
    fleet.wait_ready().await;
    let second = fleet.http("extractor-b");
    let deadline = Instant::now() + PATIENCE;
    // Members join one partition after another, and the two answers are of two moments.
    loop {
        let (kept, taken) = (scrape(&first).await, scrape(&second).await);
        let (left, others) = (owned(&kept), owned(&taken));
        let shared = left.is_disjoint(&others) && &left | &others == everything;
        if shared && !left.is_empty() && !others.is_empty() {
            for (samples, own) in [(kept, left), (taken, others)] {
                for sample in samples {
                    let partition = sample.labels.get("partition");
                    let is_others = partition.is_some_and(|one| !own.contains(one));
                    assert!(!is_others, "{sample:?} is another's");
                }
            }
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{left:?} and {others:?} are owned"
        );
        tokio::time::sleep(PAUSE).await;
    }
    fleet.stop("extractor-b");
    until(&first, "it owns all again", |samples| {
        owned(samples) == everything
    })
    .await;
}

/// A Prometheus that scrapes one server by the rules that are shipped; ended when it is dropped.
struct Prometheus {
    folder: tempfile::TempDir,
    url: String,
    client: reqwest::Client,
}

fn infra() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra")
}

impl Prometheus {
    /// # Panics
    /// When there is none and none can be had: what is watched in production is tested.
    fn start(target: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shipped = infra().join("prometheus");
        let config =
            std::fs::read_to_string(shipped.join("prometheus.yml")).expect("it is shipped");
        // The same configuration, quicker: a test has not the minutes that a minute's rate wants.
        let quick = config
            .replace("scrape_interval: 15s", "scrape_interval: 1s")
            .replace("evaluation_interval: 15s", "evaluation_interval: 1s");
        assert_eq!(quick.matches("interval: 1s").count(), 2, "{config}");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
            std::fs::write(path, text).expect("a file is written");
        };
        write("prometheus.yml", &quick);
        write(
            "targets/anamnesis.yml",
            &format!("- targets: [\"{target}\"]\n"),
        );
        for rules in ["integrity.yml", "pipeline.yml", "recall.yml"] {
            let text = std::fs::read_to_string(shipped.join("rules").join(rules));
            write(&format!("rules/{rules}"), &text.expect("it is shipped"));
        }
        let started = Self::script("start", folder.path());
        let url = started
            .lines()
            .find_map(|line| line.strip_prefix("ANAMNESIS_TEST_PROMETHEUS="))
            .unwrap_or_else(|| panic!("prometheus.sh says where it is: {started}"));
        Self {
            url: url.to_owned(),
            folder,
            client: http_client(),
        }
    }

    fn script(verb: &str, folder: &Path) -> String {
        let output = Command::new(infra().join("servers/prometheus.sh"))
            .arg(verb)
            .arg(folder)
            .output()
            .expect("the script runs");
        assert!(
            output.status.success(),
            "a real Prometheus is needed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url = reqwest::Url::parse_with_params(&format!("{}{path}", self.url), query);
        let asked = self.client.get(url.expect("a URL")).send().await;
        let text = asked.expect("it answers").text().await.expect("in full");
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer["data"].clone()
    }

    /// What an expression gives at this moment.
    async fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.get("/api/v1/query", &[("query", expression)]).await;
        data["result"].as_array().expect("a vector").clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = Command::new(infra().join("servers/prometheus.sh"))
            .arg("kill")
            .arg(self.folder.path())
            .status();
    }
}

/// Title and expressions of every panel of the dashboard.
fn panels() -> Vec<(String, Vec<String>)> {
    let path = infra().join("grafana/dashboards/overview.json");
    let text = std::fs::read_to_string(path).expect("the dashboard is shipped");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels
        .filter(|panel| panel["type"] != "row")
        .map(|panel| {
            let targets = panel["targets"].as_array().expect("targets").iter();
            let expressions = targets
                .map(|target| target["expr"].as_str().expect("an expression").to_owned())
                // What Grafana puts in: at least four scrapes.
                .map(|expression| expression.replace("$__rate_interval", "1m"))
                .collect();
            (
                panel["title"].as_str().expect("a title").to_owned(),
                expressions,
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_and_every_rule_has_an_answer_from_a_real_prometheus() {
    let folder = Folder::new().with("ANAMNESIS__WATCH__DRIFT_EVERY", "1s");
    story::tell(&folder, true).await;
    let server = folder.serve().await;
    let prometheus = Prometheus::start(server.address());
    let loading = Instant::now();
    // Two scrapes at least on each side of what is counted, and every rule evaluated since.
    while loading.elapsed() < Duration::from_secs(15) {
        load(&server).await;
    }
    until(&server, "everything is seen", |samples| {
        sum(samples, "anamnesis_memories", &[]) > 0.0
            && sum(samples, "anamnesis_drift_rows_total", &[]) > 0.0
    })
    .await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while prometheus.query("anamnesis_memories").await.is_empty() {
        assert!(Instant::now() < deadline, "nothing is scraped");
        tokio::time::sleep(PAUSE).await;
    }
    // Rules of rules need one evaluation more.
    tokio::time::sleep(Duration::from_secs(3)).await;

    let mut empty = Vec::new();
    let mut asked = 0;
    for (title, expressions) in panels() {
        assert!(!expressions.is_empty(), "{title} asks for nothing");
        for expression in expressions {
            asked += 1;
            if prometheus.query(&expression).await.is_empty() {
                empty.push(format!("{title}: {expression}"));
            }
        }
    }
    assert!(asked > 20, "the panels were not found");
    let data = prometheus.get("/api/v1/rules", &[]).await;
    let groups = data["groups"].as_array().expect("groups").clone();
    let mut alerts = Vec::new();
    let mut rules = 0;
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
    {
        rules += 1;
        assert_eq!(rule["health"], "ok", "{rule}");
        let name = rule["name"].as_str().expect("a name");
        if rule["type"] == "recording" {
            if prometheus.query(name).await.is_empty() {
                empty.push(format!("rule {name}"));
            }
            continue;
        }
        // An alert that is quiet has no answer; the metrics that it is about have one.
        for metric in metrics_in(rule["query"].as_str().expect("an expression")) {
            if prometheus.query(&metric).await.is_empty() {
                empty.push(format!("alert {name}: {metric}"));
            }
        }
        if rule["state"] == "firing" {
            alerts.push(name.to_owned());
        }
    }
    assert!(rules > 50, "the rules were not found");
    assert_eq!(empty, Vec::<String>::new(), "these have no data");
    assert_eq!(
        alerts,
        Vec::<String>::new(),
        "a loaded run is no reason for an alert"
    );
    server.stop();
}

/// Names of metrics and recorded rules in an expression.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    let words = expression.split(|char: char| !is_word(char));
    words
        .filter(|word| word.starts_with("anamnesis_") || word.starts_with("anamnesis:"))
        .map(str::to_owned)
        .collect()
}
