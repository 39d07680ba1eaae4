//! Which servers and schemas are opened, and how fast what is in them is found.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::{KeyState, Keyring, KeyringError, NewKey};

use super::{
    OWNER, PostgresKeyring, PostgresKeyringConfig, SOON, Schema, Server, ids, master, message,
    states,
};

fn refusal(opened: Result<PostgresKeyring, KeyringError>) -> KeyringError {
    match opened {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

async fn with_a_message(schema: &Schema) {
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    keys.create(&message(OWNER, 1)).await.unwrap();
}

#[tokio::test]
async fn another_master_key_is_refused() {
    let schema = Schema::new();
    with_a_message(&schema).await;
    let other = MasterKey::from_bytes([8; 32]);
    let refused = refusal(PostgresKeyring::open(&schema.config(), &other).await);
    assert!(matches!(refused, KeyringError::WrongMasterKey));
    let keys = schema.open().await;
    assert_eq!(states(&keys, &ids(&message(OWNER, 1))).await, ["open"; 2]);
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let schema = Schema::new();
    with_a_message(&schema).await;
    let client = schema.client().await;
    // A newer version may have other columns as well.
    client
        .batch_execute("UPDATE meta SET format = 2; ALTER TABLE meta RENAME site TO sites")
        .await
        .unwrap();
    let refused = refusal(schema.open_with(|_| ()).await);
    assert!(refused.to_string().contains("newer version"), "{refused}");
    assert!(!refused.is_retryable());
}

#[tokio::test]
async fn a_schema_of_something_else_is_left_alone() {
    let schema = Schema::new();
    let client = schema.client().await;
    let make = format!(
        "CREATE SCHEMA {name}; CREATE TABLE {name}.meta (theirs int)",
        name = schema.name
    );
    client.batch_execute(&make).await.unwrap();
    let refused = refusal(schema.open_with(|_| ()).await);
    assert!(
        matches!(refused, KeyringError::Unusable { .. }),
        "{refused}"
    );
    client.batch_execute("DROP TABLE meta").await.unwrap();
    with_a_message(&schema).await;
}

#[tokio::test]
async fn whether_there_is_a_keyring_can_be_asked() {
    let schema = Schema::new();
    assert!(!PostgresKeyring::exists(&schema.config()).await.unwrap());
    with_a_message(&schema).await;
    assert!(PostgresKeyring::exists(&schema.config()).await.unwrap());
}

/// As after a restore or behind an address that leads elsewhere.
#[tokio::test]
async fn another_keyring_in_its_place_is_noticed() {
    let mut schema = Schema::new();
    schema.url += &format!("?application_name={}", schema.name);
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    let client = schema.client().await;
    let drop = format!("DROP SCHEMA {} CASCADE", schema.name);
    client.batch_execute(&drop).await.unwrap();
    let missing = keys.create(&message(OWNER, 1)).await.unwrap_err();
    assert!(
        matches!(missing, KeyringError::Unusable { .. }),
        "{missing}"
    );
    schema.open().await;
    client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND application_name = $1",
            &[&schema.name],
        )
        .await
        .unwrap();
    let replaced = keys.create(&message(OWNER, 1)).await.unwrap_err();
    assert!(
        replaced.to_string().contains("another keyring"),
        "{replaced}"
    );
    assert!(!replaced.is_retryable());
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused() {
    let server = Server::start();
    let schema = server.schema();
    let client = schema.client().await;
    client
        .batch_execute("ALTER SYSTEM SET fsync = off")
        .await
        .unwrap();
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    let started = Instant::now();
    let refused = loop {
        match schema.open_with(|_| ()).await {
            Err(error) => break error,
            // The server reads its settings in its own time.
            Ok(_) => assert!(started.elapsed() < SOON),
        }
    };
    assert!(refused.to_string().contains("fsync"), "{refused}");
}

#[tokio::test]
async fn a_stricter_commit_of_the_server_is_kept_and_a_looser_one_is_not() {
    for (set, expected) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let mut schema = Schema::new();
        schema.url += &format!("?options=-c%20synchronous_commit%3D{set}");
        let keys = schema.open().await;
        keys.open_epoch(OWNER).await.unwrap();
        let client = schema.client().await;
        // The trigger sees the setting of the keyring's session.
        client
            .batch_execute(
                "CREATE TABLE seen (setting text);
                 CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL;
                 END $$;
                 CREATE TRIGGER see AFTER INSERT ON keys EXECUTE FUNCTION see()",
            )
            .await
            .unwrap();
        keys.create(&message(OWNER, 1)).await.unwrap();
        let row = client
            .query_one("SELECT setting FROM seen", &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), expected, "{set}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://a:secret@127.0.0.1:{port}/d")
        .parse()
        .unwrap();
    let config = PostgresKeyringConfig {
        deadline: Duration::from_millis(300),
        ..PostgresKeyringConfig::new(url)
    };
    let started = Instant::now();
    let refused = refusal(PostgresKeyring::open(&config, &master()).await);
    assert!(refused.is_retryable(), "{refused}");
    assert!(started.elapsed() < SOON);
}

#[tokio::test]
async fn a_wrong_password_is_no_outage_and_is_not_repeated() {
    let schema = Schema::new();
    let (start, end) = schema.url.split_once('@').unwrap();
    let (user, _) = start.rsplit_once(':').unwrap();
    let url = format!("{user}:wr0ng@{end}").parse().unwrap();
    let refused = refusal(schema.open_with(|config| config.url = url).await);
    assert!(
        matches!(refused, KeyringError::Unusable { .. }),
        "{refused}"
    );
    assert!(!refused.to_string().contains("wr0ng"));
    let variable = "ANAMNESIS_TEST_NO_SUCH_VARIABLE";
    let refused = refusal(
        schema
            .open_with(|config| config.password_env = Some(variable.into()))
            .await,
    );
    assert!(refused.to_string().contains(variable), "{refused}");
}

/// A certificate for 127.0.0.1 that nobody but itself has signed.
fn make_certificate(server: &Server, name: &str) -> std::path::PathBuf {
    let at = |end: &str| server.dir.path().join(format!("{name}.{end}"));
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=keyring",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(at("key"))
        .arg("-out")
        .arg(at("crt"))
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    at("crt")
}

#[tokio::test]
async fn an_encrypted_connection_is_asked_for_and_checked() {
    let server = Server::start();
    let mut schema = server.schema();
    let plain = schema.url.clone();
    let own = make_certificate(&server, "own");
    let foreign = make_certificate(&server, "foreign");
    let encrypted = |plain: &str| format!("{plain}?sslmode=require");
    schema.url = encrypted(&plain);
    let refused = refusal(
        schema
            .open_with(|config| config.tls_ca_file = Some(own.clone()))
            .await,
    );
    assert!(
        refused.to_string().contains("does not support TLS"),
        "{refused}"
    );

    let client = super::connect(&plain).await;
    // The server's user must own the key; COPY runs as this user.
    let key = server.dir.path().join("own.key");
    for (from, to) in [(&own, "server.crt"), (&key, "server.key")] {
        let text = std::fs::read_to_string(from).unwrap();
        let path = server.data().join(to);
        let path = path.to_str().unwrap();
        client
            .batch_execute(&format!(
                "COPY (SELECT regexp_split_to_table('{}', '\\n')) TO PROGRAM 'cat > {path}; chmod 600 {path}'",
                text.trim()
            ))
            .await
            .unwrap();
    }
    client
        .batch_execute("ALTER SYSTEM SET ssl = on")
        .await
        .unwrap();
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    let started = Instant::now();
    let keys = loop {
        match schema
            .open_with(|config| config.tls_ca_file = Some(own.clone()))
            .await
        {
            Ok(keys) => break keys,
            Err(error) => assert!(started.elapsed() < SOON, "{error}"),
        }
    };
    keys.open_epoch(OWNER).await.unwrap();
    let row = client
        .query_one(
            "SELECT bool_and(s.ssl) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid)
             WHERE application_name = 'anamnesis keyring'",
            &[],
        )
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
    let refused = refusal(
        schema
            .open_with(|config| config.tls_ca_file = Some(foreign))
            .await,
    );
    assert!(
        refused.to_string().contains("invalid peer certificate"),
        "{refused}"
    );
    schema.url = encrypted(&plain.replace("127.0.0.1", "localhost"));
    let refused = refusal(
        schema
            .open_with(|config| config.tls_ca_file = Some(own.clone()))
            .await,
    );
    assert!(
        refused.to_string().contains("not valid for name"),
        "{refused}"
    );
    schema.url = plain;
    let refused = refusal(
        schema
            .open_with(|config| config.tls_ca_file = Some(own))
            .await,
    );
    assert!(refused.to_string().contains("sslmode=require"), "{refused}");
}

/// Ceilings far above what was measured, so that only a mistake breaks them.
#[tokio::test]
async fn keys_are_made_and_found_quickly() {
    let schema = Schema::new();
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    let call = |round: u32| -> Vec<NewKey> {
        let numbers = round * 500..round * 500 + 500;
        numbers.flat_map(|n| message(OWNER, n)).collect()
    };
    let mut made = Vec::new();
    for round in 0..5 {
        let started = Instant::now();
        keys.create(&call(round)).await.unwrap();
        made.push(started.elapsed());
    }
    let ids = ids(&call(0));
    let started = Instant::now();
    for id in &ids {
        assert!(matches!(
            keys.get(&[*id]).await.unwrap()[..],
            [KeyState::Open(_)]
        ));
    }
    let cached = started.elapsed() / 1000;
    drop(keys);
    let keys = schema.open().await;
    // The first call makes its connection.
    keys.epoch(OWNER).await.unwrap();
    let started = Instant::now();
    keys.get(&ids).await.unwrap();
    let read = started.elapsed();
    let mut single = Vec::new();
    for n in 500..600 {
        let started = Instant::now();
        keys.create(&message(OWNER, 10_000 + n)).await.unwrap();
        single.push(started.elapsed());
    }
    single.sort_unstable();
    println!(
        "1000 keys: made in {made:?}, found in {cached:?} each, read anew in {read:?}; \
         2 keys made in {:?} (median)",
        single[50]
    );
    assert!(made.iter().all(|made| made.as_millis() < 5000));
    assert!(cached.as_millis() < 5 && read.as_millis() < 5000);
}
