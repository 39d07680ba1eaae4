//! A broker that wants TLS and a password: whoever has both works as anywhere, and whoever does not is
//! told what is wrong with which.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::log::{EventLog as _, NewRecord};
use anamnesis_servers::kafka::{GroupConfig, KafkaLog, Membership};
use bytes::Bytes;

use super::broker::{Prefix, key, read_all, text};

const ADDRESS: &str = "ANAMNESIS_TEST_KAFKA_SECURE";
const SECRETS: &str = "ANAMNESIS_TEST_KAFKA_SECRETS";
const WRONG: &str = "not-the-password";

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start a broker with infra/servers/kafka.sh start DIR")
    })
}

fn password() -> String {
    std::fs::read_to_string(format!("{}/password", variable(SECRETS))).unwrap()
}

/// As an operator writes it under `[log.client]`.
fn secure() -> Prefix {
    let mut prefix = Prefix::new(&variable(ADDRESS), 2);
    let ca = format!("{}/ca.pem", variable(SECRETS));
    for (name, value) in [
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", &ca),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "anamnesis"),
        ("sasl.password", &password()),
    ] {
        prefix
            .config
            .client
            .insert(name.to_owned(), value.to_owned());
    }
    prefix
}

#[tokio::test]
async fn every_client_of_ours_gives_the_settings_to_the_broker() {
    let prefix = secure();
    // Makes the topics, writes their identity, and opens.
    let log = prefix.log().await;
    let said = "对青霉素过敏, allergic to penicillin";
    let record = NewRecord {
        key: key(1),
        payload: Bytes::from_static(said.as_bytes()),
    };
    log.append(Topic::Conversation, 1, vec![record])
        .await
        .unwrap();
    let read = read_all(&*log, Topic::Conversation, 1, 1).await;
    assert_eq!(read.iter().map(text).collect::<Vec<_>>(), [said]);

    let member =
        Membership::join(&prefix.config, &GroupConfig::default(), "validity-manager").unwrap();
    let mut owned = member.owned();
    let all = owned.wait_for(|owned| owned.partitions.len() == 2);
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .expect("the group gives all partitions to its only member")
        .unwrap();
    member.leave().await;
}

#[tokio::test]
async fn what_is_wrong_with_the_credentials_is_said_and_no_secret_is() {
    let check = |name: &'static str, value: Option<&'static str>, expected: &'static str| async move {
        let mut prefix = secure();
        match value {
            Some(value) => prefix
                .config
                .client
                .insert(name.to_owned(), value.to_owned()),
            None => prefix.config.client.remove(name),
        };
        prefix.config.connect_timeout = Duration::from_secs(3);
        let opened =
            KafkaLog::connect(&prefix.config, &prefix.topics(), Arc::new(SystemClock)).await;
        let said = match opened {
            Ok(_) => panic!("{name}: it opened"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{name}: {said}");
        assert!(!said.contains(&password()), "{name}");
        assert!(!said.contains(WRONG), "{name}");
    };
    check("sasl.password", Some(WRONG), "uthentication failed").await;
    check("ssl.ca.location", None, "certificate verify failed").await;
    check("security.protocol", Some("PLAINTEXT"), "closed by peer").await;
}
