//! Long answers, several shards, and what comes along with a search.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::tokens::query_tokens;
use anamnesis_pipeline::conformance::stores::PARTITIONS;
use anamnesis_pipeline::conformance::stores::script::{
    Script, everything, id, memory, memory_with, owner, scope,
};
use anamnesis_pipeline::stores::{
    CheckedAnswer, Filter, Order, Records as _, StoreError, TextIndex as _,
};
use anamnesis_servers::shard::config::{ShardConfig, ShardServerConfig, ShardsConfig};

use super::{Copy, LONG, Served, any_port, client, one_shard, partitions, serving};

#[tokio::test]
async fn words_in_chinese_and_in_english_arrive_as_they_were_said() {
    let mut script = Script::default();
    let said = [
        "对青霉素过敏，起皮疹 🌡️",
        "allergic to penicillin, with a rash",
        "ＡＢ-17 \u{0}\u{fffd} “引号” \r\n",
    ];
    for (number, text) in (1..).zip(said) {
        script.decide(1, vec![memory(number, text)]);
    }
    let copy = Copy::with(&script.take(1)).await;
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let filter = everything(1, script.end(1));
    let page = stores
        .records
        .list(&filter, Order::Recorded, 10, None)
        .await;
    let texts: Vec<String> = page
        .unwrap()
        .versions
        .into_iter()
        .rev()
        .map(|version| version.memory.claim.text.into_exposed())
        .collect();
    let expected: Vec<String> = said
        .iter()
        .map(|text| format!("peanut 花生 {text}"))
        .collect();
    assert_eq!(texts, expected);
    for (query, expected) in [("青霉素", 1), ("penicillin", 2)] {
        let answer = stores
            .text
            .search(&filter, &query_tokens(query), 10)
            .await
            .unwrap();
        assert_eq!(answer.hits[0].memory_id, id(expected), "{query}");
        assert_eq!(answer.position, script.end(1));
    }
}

#[tokio::test]
async fn a_page_of_many_megabytes_arrives_whole() {
    let mut script = Script::default();
    let mut local_ids = Vec::new();
    for number in 0..200u16 {
        let long = format!("{number} {}", "很长的病史。".repeat(3_000));
        let memory = memory_with(1, &long, |memory| {
            let [high, low] = number.to_be_bytes();
            let mut bytes = [7; 16];
            bytes[..2].copy_from_slice(&[high, low]);
            memory.id = MemoryId::from_bytes(bytes);
        });
        local_ids.push(memory.id);
        script.decide(1, vec![memory]);
    }
    // The index would only spend time on these words.
    let copy = Copy::new();
    for batch in script.take(50) {
        batch.apply(&*copy.records).await.unwrap();
    }
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let filter = everything(1, script.end(1));
    let local = copy
        .records
        .list(&filter, Order::Recorded, 500, None)
        .await
        .unwrap();
    let bytes: usize = local
        .versions
        .iter()
        .map(|v| v.memory.claim.text.expose().len())
        .sum();
    assert!(bytes > 10 << 20, "{bytes}");
    let page = stores
        .records
        .list(&filter, Order::Recorded, 500, None)
        .await
        .unwrap();
    assert!(page == local, "the pages differ");
    let checked = stores.records.check(&filter, &local_ids).await.unwrap();
    assert_eq!(checked.len(), 200);
}

#[tokio::test]
async fn a_search_brings_what_the_records_say_of_its_hits() {
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "old dose"), memory(2, "tea")]);
    script.decide(1, vec![memory(1, "new dose")]);
    let hidden = memory_with(3, "hidden", |memory| {
        memory.standing.status = Status::Restricted
    });
    script.decide(1, vec![hidden]);
    let copy = Copy::with(&script.take(1)).await;
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let terms = query_tokens("peanut 花生");
    let filter = Filter {
        statuses: vec![Status::Active],
        ..everything(1, script.end(1))
    };
    let CheckedAnswer { answer, checked } = stores
        .text
        .search_checked(&filter, &terms, 10)
        .await
        .unwrap();
    let plain = copy.text.search(&filter, &terms, 10).await.unwrap();
    assert_eq!(answer, plain);
    let ids: Vec<MemoryId> = answer.hits.iter().map(|hit| hit.memory_id).collect();
    assert_eq!(ids.len(), 2);
    let expected = copy.records.check(&filter, &ids).await.unwrap();
    assert_eq!(checked, Some(expected));
}

#[tokio::test]
async fn what_only_the_index_knows_is_not_confirmed() {
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    let batches = script.take(1);
    let copy = Copy::new();
    for batch in &batches {
        batch.apply(&*copy.text).await.unwrap();
    }
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let found = stores
        .text
        .search_checked(&everything(1, 100), &query_tokens("peanut"), 10)
        .await
        .unwrap();
    assert_eq!(found.answer.hits.len(), 1);
    assert_eq!(found.checked, Some(Vec::new()));
}

#[tokio::test]
async fn more_hits_than_a_recall_takes_come_without_a_check() {
    let mut script = Script::default();
    let memories = (1..=201).map(|number| memory(number, "x")).collect();
    script.decide(1, memories);
    let copy = Copy::with(&script.take(1)).await;
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let filter = everything(1, script.end(1));
    let terms = query_tokens("peanut");
    for (top, is_checked) in [(200, true), (201, false)] {
        let found = stores
            .text
            .search_checked(&filter, &terms, top)
            .await
            .unwrap();
        assert_eq!(found.answer.hits.len(), top);
        assert_eq!(found.checked.is_some(), is_checked);
    }
}

/// Two shards of two partitions each, with two memories of each owner.
async fn two_shards(numbers: &[u8]) -> (Script, [Copy; 2], [Served; 2], ShardsConfig) {
    let mut script = Script::default();
    let mut batches = Vec::new();
    for number in numbers {
        script.decide(*number, vec![memory(1, "x"), memory(2, "y")]);
        batches.extend(script.take(1));
    }
    let halves = [[0, 1], [2, 3]];
    let (mut copies, mut servers, mut configs) = (Vec::new(), Vec::new(), Vec::new());
    for half in halves {
        let copy = Copy::new();
        for batch in batches
            .iter()
            .filter(|batch| half.contains(&batch.partition))
        {
            copy.apply(std::slice::from_ref(batch)).await;
        }
        let config = ShardServerConfig {
            partitions: partitions(half),
            ..serving(any_port())
        };
        let served = Served::start(config, copy.parts()).await.unwrap();
        configs.push(ShardConfig {
            partitions: partitions(half),
            replicas: vec![served.url()],
        });
        copies.push(copy);
        servers.push(served);
    }
    let mut config = ShardsConfig::new(configs);
    config.deadline = LONG;
    let copies = copies.try_into().ok().expect("two");
    let servers = servers.try_into().ok().expect("two");
    (script, copies, servers, config)
}

#[tokio::test]
async fn each_owner_is_asked_of_its_own_shard_and_all_of_all() {
    let numbers: Vec<u8> = (1..=12).collect();
    let (script, _copies, servers, config) = two_shards(&numbers).await;
    let in_first = |number: &u8| script.partition_of(*number) < PARTITIONS / 2;
    assert!(numbers.iter().any(in_first) && !numbers.iter().all(in_first));
    let stores = client(&config);
    for number in &numbers {
        let history = stores.records.history(scope(*number), id(1)).await.unwrap();
        assert_eq!(history.len(), 1, "owner {number}");
    }
    let everybody: Vec<_> = numbers.iter().map(|number| owner(*number)).collect();
    assert_eq!(stores.records.owners().await.unwrap(), everybody);
    assert_eq!(stores.text.owners().await.unwrap(), everybody);
    let counts = stores.records.counts().await.unwrap();
    assert_eq!(counts, [(Kind::Fact, Status::Active, 24)]);

    // One shard less: its owners are unavailable, the others are not.
    let [first, _second] = servers;
    first.stop().await;
    let stores = client(&ShardsConfig {
        deadline: std::time::Duration::from_secs(5),
        ..config
    });
    for number in &numbers {
        let history = stores.records.history(scope(*number), id(1)).await;
        if in_first(number) {
            let error = history.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            assert!(error.to_string().contains("partitions 0-1"), "{error}");
        } else {
            assert_eq!(history.unwrap().len(), 1, "owner {number}");
        }
    }
}

#[tokio::test]
async fn a_partition_that_the_server_does_not_have_is_named() {
    let (script, _copies, servers, mut config) = two_shards(&[1, 2, 3, 4, 5, 6]).await;
    // The client has them the wrong way round.
    config.shards[0].replicas = vec![servers[1].url()];
    config.shards[1].replicas = vec![servers[0].url()];
    let stores = client(&config);
    let error = stores.records.owner(scope(1)).await.unwrap_err();
    let expected = format!("does not serve partition {}", script.partition_of(1));
    assert!(
        matches!(&error, StoreError::Unusable { what } if what.contains(&expected)),
        "{error}"
    );
    assert!(stores.records.owners().await.is_err());
    assert!(stores.text.checkpoint(0).await.is_err());
}
