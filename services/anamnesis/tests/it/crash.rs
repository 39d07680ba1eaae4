//! Does anything that was accepted get lost, doubled or changed when the process is killed?
//!
//! Writers post to the real binary while it is killed at moments that a seed chooses, and send again
//! what got no answer. Afterwards the log must hold what a node that was never killed would hold.
//! `ANAMNESIS_KILLS` asks for more kills, `ANAMNESIS_SEED` for other moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anamnesis::node::Node;
use anamnesis_audit::replay::read_partition;
use anamnesis_domain::ids::{EventTag, Hash};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::codec::{Clear, Opened, read_clear};
use anamnesis_pipeline::fold::Folded;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::node::{
    Answer, Dice, Folder, Http, TENANT, content_digest, exact_digest, from_environment, texts,
};

const KILLS: u64 = 50;
/// One owner per writer whose commands need an order, and one whom two writers write about.
pub(crate) const WRITERS: u64 = 5;
/// Writers with an owner of their own.
pub(crate) const ALONE: u64 = 3;

pub(crate) fn owner_of(writer: u64) -> String {
    let name = if writer >= ALONE {
        "shared".to_owned()
    } else {
        format!("own-{writer}")
    };
    format!("{TENANT}/patient/{name}")
}

/// What a writer sends.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Events(Vec<Value>),
    Remember {
        key: String,
        body: Value,
    },
    /// Makes the message under this token unreadable.
    Forget {
        key: String,
        token: String,
    },
    /// Erases the owner and, once that is decided, lets it come back.
    Leave {
        key: String,
    },
}

/// What a writer was promised, and what it sent in order.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) acts: Vec<Act>,
    pub(crate) accepted: Vec<(EventTag, Position)>,
    /// The event of each token: a log with other keys has other tokens.
    pub(crate) events: BTreeMap<String, String>,
    /// Words of messages that were made unreadable.
    pub(crate) erased_words: BTreeSet<String>,
    erased: Vec<Position>,
}

/// Where the server is at the moment.
pub(crate) type Address = watch::Receiver<Option<Http>>;

async fn current(address: &mut Address) -> Http {
    let found = address
        .wait_for(Option::is_some)
        .await
        .expect("the keeper lives");
    found.clone().expect("it is there")
}

/// Sends until it is answered: by whichever process is alive.
async fn send(address: &mut Address, path: &str, key: Option<&str>, body: &Value) -> Answer {
    let mut wait = Duration::from_millis(10);
    loop {
        let http = current(address).await;
        let answer = match key {
            None => http.try_post(path, body).await,
            Some(key) => http.try_post_as(path, key, body).await,
        };
        match answer {
            Ok(answer) if answer.status == 503 => (),
            Ok(answer) => return answer,
            Err(_) => (),
        }
        tokio::time::sleep(wait).await;
        // What begins again needs the processors more.
        wait = (wait * 2).min(Duration::from_millis(160));
    }
}

fn promised(answer: &Value) -> (EventTag, Position) {
    let token = answer["token"]
        .as_str()
        .expect("a token")
        .parse()
        .expect("a token");
    let position = serde_json::from_value(answer["position"].clone()).expect("a position");
    (token, position)
}

async fn perform(address: &mut Address, owner: &str, act: &Act) -> Vec<(EventTag, Position)> {
    match act {
        Act::Events(events) => {
            let answer = send(address, "/v1/events", None, &json!(events))
                .await
                .expect(202);
            assert_eq!(answer["rejected"], json!([]), "{answer}");
            let accepted = answer["accepted"].as_array().expect("a list").clone();
            assert_eq!(accepted.len(), events.len());
            assert!(
                accepted.iter().all(|one| one.get("quarantined").is_none()),
                "{answer}"
            );
            accepted.iter().map(promised).collect()
        }
        Act::Remember { key, body } => {
            vec![promised(
                &send(address, "/v1/remember", Some(key), body)
                    .await
                    .expect(202),
            )]
        }
        Act::Forget { key, token } => {
            let body =
                json!({"owner": owner, "message": token, "mode": "erase", "reason": "asked"});
            vec![promised(
                &send(address, "/v1/forget", Some(key), &body)
                    .await
                    .expect(202),
            )]
        }
        Act::Leave { key } => {
            let body = json!({"owner": owner, "all": true, "mode": "erase", "reason": "left"});
            let path = "/v1/forget?wait=decided";
            let mut promises = Vec::new();
            // What comes after must find the erasure decided, or it would be erased with the rest.
            loop {
                let answer = send(address, path, Some(key), &body).await.expect(202);
                promises.push(promised(&answer));
                if answer["decided"] == json!(true) {
                    break;
                }
            }
            promises.push(agree(address, owner, &format!("{key}-again")).await);
            promises
        }
    }
}

/// The owner agrees; returns when that is in force.
async fn agree(address: &mut Address, owner: &str, key: &str) -> (EventTag, Position) {
    let body = json!({"owner": owner, "max_sensitivity": 4, "valid_from": "2000-01-01T00:00:00Z"});
    loop {
        let answer = send(address, "/v1/consents", Some(key), &body)
            .await
            .expect(202);
        if answer["decided"] == json!(true) {
            return promised(&answer);
        }
    }
}

/// The acts of one writer, one after the other.
struct Script {
    writer: u64,
    dice: Dice,
    number: u64,
    /// Sent before, to be repeated, changed or forgotten: the event, its token, its own word.
    sent: Vec<(Value, String, String)>,
    has_left: bool,
}

const DRUGS: [(&str, &str); 5] = [
    ("metformin", "二甲双胍"),
    ("amlodipine", "氨氯地平"),
    ("atorvastatin", "阿托伐他汀"),
    ("omeprazole", "奥美拉唑"),
    ("aspirin", "阿司匹林"),
];
const FOODS: [(&str, &str); 4] = [
    ("mango", "芒果"),
    ("shrimp", "虾"),
    ("walnut", "核桃"),
    ("sesame", "芝麻"),
];

impl Script {
    fn new(writer: u64, seed: u64) -> Self {
        let dice = Dice::new(seed ^ (writer + 1).wrapping_mul(0x00c0_ffee));
        Self {
            writer,
            dice,
            number: 0,
            sent: Vec::new(),
            has_left: false,
        }
    }

    /// A word that nothing else says, and no other begins with.
    fn word(&self) -> String {
        format!("zebra{}x{}y", self.writer, self.number)
    }

    fn event(&mut self) -> Value {
        self.number += 1;
        let n = self.number;
        let dose = 5 * (1 + self.dice.below(4));
        let (drug, drug_zh) = *self.dice.pick(&DRUGS);
        let (food, food_zh) = *self.dice.pick(&FOODS);
        let word = self.word();
        let text = match self.dice.below(8) {
            0 => format!("I take {drug} {dose} mg every day. My note is {word}."),
            1 => format!("我每天吃{drug_zh} {dose} mg。备注 {word}。"),
            2 => format!("I am allergic to {food}. My note is {word}."),
            3 => format!("我对{food_zh}过敏。备注 {word}。"),
            4 => format!("Actually I am not allergic to {food} any more. My note is {word}."),
            5 => format!("我不喜欢在早上九点前接电话。备注 {word}。"),
            6 => format!("My father has diabetes. My note is {word}."),
            _ => format!("今天门诊人很多。备注 {word}。"),
        };
        let (day, minute) = (1 + n / 1000, n % 1000);
        json!({
            "event_id": format!("w{}-{n}", self.writer),
            "owner": owner_of(self.writer),
            "source": format!("/ward/{}", n % 3),
            "role": "user",
            "at": format!("2026-03-{day:02}T{:02}:{:02}:00+08:00", minute / 60, minute % 60),
            "text": text,
        })
    }

    fn next(&mut self) -> Act {
        let is_alone = self.writer < ALONE;
        let has_some = self.sent.len() > 3;
        match self.dice.below(100) {
            0..=6 if has_some => {
                let (event, ..) = self.dice.pick(&self.sent).clone();
                Act::Events(vec![event])
            }
            7..=12 if has_some && is_alone => {
                let (mut event, ..) = self.dice.pick(&self.sent).clone();
                event["text"] = json!("I am allergic to penicillin, says another message.");
                Act::Events(vec![event])
            }
            13..=20 if is_alone => {
                self.number += 1;
                let word = self.word();
                let texts = [
                    format!("Never call before nine, {word}."),
                    format!("忌辛辣，{word}。"),
                ];
                let body = json!({
                    "owner": owner_of(self.writer),
                    "text": self.dice.pick(&texts),
                    "kind": "constraint",
                    "valid_from": "2026-02-01T00:00:00Z",
                });
                Act::Remember {
                    key: format!("remember-{}-{}", self.writer, self.number),
                    body,
                }
            }
            21..=26 if has_some && is_alone => {
                self.number += 1;
                let (_, token, _) = self.dice.pick(&self.sent).clone();
                Act::Forget {
                    key: format!("forget-{}-{}", self.writer, self.number),
                    token,
                }
            }
            27 if self.writer == 2 && !self.has_left && self.sent.len() > 20 => {
                self.has_left = true;
                Act::Leave {
                    key: "leave".to_owned(),
                }
            }
            28..=33 => Act::Events((0..5).map(|_| self.event()).collect()),
            _ => Act::Events(vec![self.event()]),
        }
    }

    /// Takes note of what was accepted.
    fn accepted(&mut self, act: &Act, promises: &[(EventTag, Position)], ledger: &mut Ledger) {
        ledger.acts.push(act.clone());
        ledger.accepted.extend(promises.iter().copied());
        match act {
            Act::Events(events) => {
                for (event, (token, position)) in events.iter().zip(promises) {
                    let token = token.to_string();
                    ledger.events.insert(token.clone(), event_id(event));
                    let text = event["text"].as_str().unwrap_or_default();
                    let Some(at) = text.find("zebra") else {
                        continue;
                    };
                    let word: String = text[at..]
                        .chars()
                        .take_while(char::is_ascii_alphanumeric)
                        .collect();
                    if ledger.erased_words.contains(&word) {
                        // Sent again after it was forgotten.
                        ledger.erased.push(*position);
                    } else if !self.sent.iter().any(|(_, known, _)| *known == token) {
                        self.sent.push((event.clone(), token, word));
                    }
                }
            }
            Act::Forget { token, .. } => {
                let words = self.sent.iter().filter(|(_, known, _)| known == token);
                ledger
                    .erased_words
                    .extend(words.map(|(_, _, word)| word.clone()));
                let token: EventTag = token.parse().expect("a token");
                let at = ledger.accepted.iter().filter(|(known, _)| *known == token);
                ledger.erased.extend(at.map(|(_, position)| *position));
            }
            Act::Leave { .. } => {
                ledger
                    .erased_words
                    .extend(self.sent.iter().map(|(_, _, word)| word.clone()));
            }
            Act::Remember { .. } => {}
        }
    }
}

/// What writers and the one who kills know of each other.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) is_over: AtomicBool,
    /// Writers begin nothing new meanwhile.
    pub(crate) is_held: AtomicBool,
    accepted: AtomicU64,
}

impl Progress {
    /// Until so many more were accepted; not for ever, since a process may be slow to start.
    pub(crate) async fn wait(&self, more: u64) {
        let wanted = self.accepted.load(Ordering::Relaxed) + more;
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.accepted.load(Ordering::Relaxed) < wanted && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) async fn write(
    writer: u64,
    seed: u64,
    pause: Duration,
    mut address: Address,
    progress: Arc<Progress>,
) -> Ledger {
    let mut script = Script::new(writer, seed);
    let mut ledger = Ledger::default();
    let owner = owner_of(writer);
    ledger
        .accepted
        .push(agree(&mut address, &owner, &format!("agree-{writer}")).await);
    while !progress.is_over.load(Ordering::Relaxed) {
        if progress.is_held.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let act = script.next();
        let promises = perform(&mut address, &owner, &act).await;
        progress
            .accepted
            .fetch_add(promises.len() as u64, Ordering::Relaxed);
        script.accepted(&act, &promises, &mut ledger);
        tokio::time::sleep(pause).await;
    }
    ledger
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_doubled_when_the_server_is_killed() {
    let kills = from_environment("ANAMNESIS_KILLS", KILLS);
    let seed = from_environment("ANAMNESIS_SEED", 7);
    let mut dice = Dice::new(seed);
    let (folder, calm) = Folder::twins();

    let (address, seen) = watch::channel(None);
    let progress = Arc::new(Progress::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(
                writer,
                seed,
                Duration::ZERO,
                seen.clone(),
                progress.clone(),
            ))
        })
        .collect();
    for _ in 0..kills {
        if dice.below(5) == 0 {
            // Killed while it starts.
            let mut process = folder.spawn(&["serve", "--listen", "127.0.0.1:0"]);
            tokio::time::sleep(Duration::from_millis(dice.below(200))).await;
            process.kill();
            continue;
        }
        let server = folder.start();
        address.send_replace(Some(server.http.clone()));
        progress.wait(dice.below(60)).await;
        // Requests on their way, and the stages behind them.
        tokio::time::sleep(Duration::from_millis(dice.below(30))).await;
        address.send_replace(None);
        server.kill();
    }
    progress.is_over.store(true, Ordering::Relaxed);
    let server = folder.serve().await;
    address.send_replace(Some(server.http.clone()));
    let mut ledgers = Vec::new();
    for writer in writers {
        ledgers.push(writer.await.expect("a writer ends by itself"));
    }
    server.settle().await;
    let answers = listed(&server).await;
    for (writer, ledger) in ledgers.iter().enumerate() {
        let said = &answers[&owner_of(writer as u64)];
        let word = ledger.erased_words.iter().find(|word| said.contains(*word));
        assert_eq!(word, None, "what was erased stays erased");
    }
    server.stop();

    let accepted: usize = ledgers.iter().map(|ledger| ledger.accepted.len()).sum();
    let balance = folder.check_sound();
    assert!(
        balance["accepted"].as_u64() >= Some(accepted as u64),
        "{balance}"
    );
    println!("{kills} kills, {accepted} accepted, {balance}");
    check_promises(&folder.open().await, &ledgers).await;

    // The same acts, and nobody is killed.
    let server = calm.serve().await;
    address.send_replace(Some(server.http.clone()));
    let tasks: Vec<_> = ledgers
        .iter()
        .enumerate()
        .map(|(writer, ledger)| {
            tokio::spawn(repeat(
                writer as u64,
                ledger.acts.clone(),
                ledger.events.clone(),
                seen.clone(),
            ))
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer ends by itself");
    }
    server.settle().await;
    let calm_answers = listed(&server).await;
    for writer in 0..ALONE {
        // Of two that say the same, the one that arrives first lends its words: only where one writer
        // gives the order, even the words are equal.
        let owner = owner_of(writer);
        assert_same(&owner, &answers[&owner], &calm_answers[&owner]);
    }
    server.stop();
    calm.check_sound();
    assert_eq!(folder.digests().await.content, calm.digests().await.content);

    // The stores are as good as new ones.
    let before = folder.digests().await;
    folder.run(&["rebuild", "--store", "all"]).expect(0);
    folder.check_sound();
    assert_eq!(before, folder.digests().await);
}

/// Does the acts of a writer again, over a log that may have other keys.
pub(crate) async fn repeat(
    writer: u64,
    acts: Vec<Act>,
    events: BTreeMap<String, String>,
    mut address: Address,
) {
    let owner = owner_of(writer);
    let mut tokens: BTreeMap<String, String> = BTreeMap::new();
    agree(&mut address, &owner, &format!("agree-{writer}")).await;
    for mut act in acts {
        if let Act::Forget { token, .. } = &mut act {
            tokens[&events[token]].clone_into(token);
        }
        let promises = perform(&mut address, &owner, &act).await;
        if let Act::Events(sent) = &act {
            for (event, (token, _)) in sent.iter().zip(promises) {
                tokens.insert(event_id(event), token.to_string());
            }
        }
    }
}

fn event_id(event: &Value) -> String {
    event["event_id"].as_str().expect("an id").to_owned()
}

/// Names the first lines that differ, instead of printing all of them.
#[track_caller]
pub(crate) fn assert_same(owner: &str, found: &str, expected: &str) {
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (found, expected) = (lines(found), lines(expected));
    let first = |of: &BTreeSet<String>, without: &BTreeSet<String>| -> Vec<String> {
        of.difference(without).take(5).cloned().collect()
    };
    assert!(
        found == expected,
        "{owner}: only here {:#?}, only there {:#?}",
        first(&found, &expected),
        first(&expected, &found)
    );
}

/// What is remembered of each owner, in every status that a list shows, as sorted lines.
pub(crate) async fn listed(http: &Http) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for writer in 0..WRITERS {
        let owner = owner_of(writer);
        let mut lines = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!(
                "/v1/memories?owner={owner}&limit=200&status=active,superseded,conflicted,\
                 pending_review,retired,archived&cursor={cursor}"
            );
            let page = http.get(&path).await.expect(200);
            for memory in page["memories"].as_array().expect("a list") {
                lines.push(format!(
                    "{} {} {} {}",
                    memory["status"], memory["valid_from"], memory["valid_to"], memory["text"]
                ));
            }
            match page["cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        lines.sort();
        all.insert(owner, lines.join("\n"));
    }
    all
}

/// The content digest of every owner, whatever keys the log has.
pub(crate) async fn content_of(node: &Node) -> BTreeMap<String, Hash> {
    let mut all = BTreeMap::new();
    for writer in 0..WRITERS {
        let owner = owner_of(writer);
        all.insert(owner.clone(), content_digest(node, &owner).await);
    }
    all
}

/// Every promise stands where it was made, and exactly one decision answers it.
pub(crate) async fn check_promises(node: &Node, ledgers: &[Ledger]) {
    let mut decided: BTreeMap<Position, Vec<String>> = BTreeMap::new();
    for partition in 0..node.log.partitions() {
        read_partition(
            &*node.log,
            &node.codec,
            partition,
            Known::Latest,
            &mut |step| {
                if let (Folded::Decision(_, Verdict::Apply), Some(opened)) =
                    (&step.folded, step.decided)
                {
                    let code = opened.decided.outcome.code();
                    decided
                        .entry(opened.decided.cause.origin)
                        .or_default()
                        .push(code);
                }
            },
        )
        .await
        .expect("the log can be read");
    }
    for ledger in ledgers {
        for (token, position) in &ledger.accepted {
            let Position {
                topic,
                partition,
                offset,
            } = *position;
            let found = node
                .log
                .read_at(topic, partition, &[offset])
                .await
                .expect("it is there");
            let clear = found.first().map(|record| read_clear(&record.payload));
            let Some(Ok(Clear::Input { event, .. })) = clear else {
                panic!("{position} holds no input");
            };
            assert_eq!(event, *token, "the token names the record at {position}");
            let answers = decided.get(position).cloned().unwrap_or_default();
            let firsts = answers
                .iter()
                .skip(1)
                .filter(|code| *code != "duplicate")
                .count();
            assert!(
                !answers.is_empty() && firsts == 0,
                "{position} is answered {answers:?}"
            );
        }
        for position in &ledger.erased {
            let Position {
                topic,
                partition,
                offset,
            } = *position;
            assert_eq!(topic, Topic::Conversation);
            let record = node
                .log
                .read_at(topic, partition, &[offset])
                .await
                .expect("it is there");
            let opened = node.codec.open(&record).await.expect("the keyring answers");
            // A later copy under the same id may be sealed anew; it is decided as erased.
            let is_rejected = decided[position]
                .iter()
                .all(|code| code == "rejected(erased)");
            let is_erased = matches!(opened.first(), Some(Ok(Opened::Erased { .. })));
            assert!(
                is_erased || is_rejected,
                "{position} {:?}",
                decided[position]
            );
        }
    }
}

fn many_lines(owners: u64, count: u64) -> String {
    let mut dice = Dice::new(11);
    let mut lines = String::new();
    for n in 0..count {
        let (drug, drug_zh) = *dice.pick(&DRUGS);
        let (food, food_zh) = *dice.pick(&FOODS);
        let dose = 5 * (1 + dice.below(4));
        let text = match n % 5 {
            0 => format!("I take {drug} {dose} mg every day."),
            1 => format!("我每天吃{drug_zh} {dose} mg。"),
            2 => format!("I am allergic to {food}."),
            3 => format!("我对{food_zh}过敏。"),
            _ => format!("Visit number {n} went well, quokka{n}."),
        };
        let line = json!({
            "event_id": format!("many-{n}"),
            "owner": format!("{TENANT}/patient/m-{}", n % owners),
            "role": "user",
            "at": format!("2026-04-{:02}T{:02}:{:02}:00Z", 1 + n / 1440, n / 60 % 24, n % 60),
            "text": text,
        });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_is_killed_can_be_run_again() {
    let (folder, calm) = Folder::twins();
    let mut dice = Dice::new(from_environment("ANAMNESIS_SEED", 5));
    let file = folder.write("many.jsonl", many_lines(6, 300));
    let file = file.to_str().expect("a path");
    let import = ["import", "--consent", file];
    for _ in 0..6 {
        let mut process = folder.spawn(&import);
        tokio::time::sleep(Duration::from_millis(50 + dice.below(1500))).await;
        process.kill();
    }
    folder.run(&import).expect(0);
    folder.check_sound();
    let once = folder.digests().await;
    folder.run(&import).expect(0);
    folder.check_sound();
    assert_eq!(
        once.content,
        folder.digests().await.content,
        "a second import changes nothing"
    );
    calm.run(&import).expect(0);
    assert_eq!(once.content, calm.digests().await.content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_or_an_erasure_that_is_killed_can_be_run_again() {
    let folder = Folder::new();
    let mut dice = Dice::new(from_environment("ANAMNESIS_SEED", 3));
    let file = folder.write("many.jsonl", many_lines(5, 120));
    folder
        .run(&["import", "--consent", file.to_str().expect("a path")])
        .expect(0);
    let before = folder.digests().await;
    for _ in 0..5 {
        let mut process = folder.spawn(&["rebuild", "--store", "all"]);
        tokio::time::sleep(Duration::from_millis(50 + dice.below(1200))).await;
        process.kill();
        folder.check_sound();
    }
    folder.run(&["rebuild", "--store", "all"]).expect(0);
    folder.check_sound();
    assert_eq!(before, folder.digests().await);

    let others: Vec<String> = (2..5).map(|n| format!("{TENANT}/patient/m-{n}")).collect();
    let digests_of = async |names: &[String]| {
        let node = folder.open().await;
        let mut found = Vec::new();
        for name in names {
            found.push(exact_digest(&node, name).await);
        }
        found
    };
    let others_before = digests_of(&others).await;
    for owner in 0..2 {
        let owner = format!("{TENANT}/patient/m-{owner}");
        let forget = [
            "forget", "--owner", &owner, "--all", "--mode", "erase", "--reason", "asked",
        ];
        for _ in 0..3 {
            let mut process = folder.spawn(&forget);
            tokio::time::sleep(Duration::from_millis(50 + dice.below(1200))).await;
            process.kill();
        }
        folder.run(&forget).expect(0);
        folder.run(&["audit", "state", "--owner", &owner]).expect(0);
    }
    folder.check_sound();
    assert_eq!(others_before, digests_of(&others).await);
    let server = folder.serve().await;
    let gone = server
        .get(&format!("/v1/memories?owner={TENANT}/patient/m-0"))
        .await
        .expect(200);
    assert_eq!(texts(&gone), Vec::<String>::new());
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_whose_first_start_was_killed_can_be_started() {
    let mut dice = Dice::new(from_environment("ANAMNESIS_SEED", 13));
    for _ in 0..12 {
        let folder = Folder::new();
        for _ in 0..2 {
            let mut process = folder.spawn(&["serve", "--listen", "127.0.0.1:0"]);
            tokio::time::sleep(Duration::from_millis(dice.below(150))).await;
            process.kill();
        }
        let server = folder.serve().await;
        server.grant(&owner_of(0)).await;
        server.settle().await;
        server.stop();
        folder.check_sound();
    }
}
