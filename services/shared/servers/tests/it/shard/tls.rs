//! Is an encrypted connection one, and is the server's certificate checked?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anamnesis_pipeline::conformance::stores::script::scope;
use anamnesis_servers::shard::client::connect;
use anamnesis_servers::shard::config::{ShardServerConfig, ShardsConfig, TlsFiles};
use tempfile::TempDir;

use super::{Copy, FEED, Served, any_port, client, is_unavailable, one_shard, serving};

/// A certificate for 127.0.0.1 that nobody but itself has signed.
fn make_certificate(dir: &Path, name: &str) -> TlsFiles {
    let at = |end: &str| dir.join(format!("{name}.{end}"));
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args(["-subj", "/CN=shard"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
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
    TlsFiles {
        certificate_file: at("crt"),
        key_file: at("key"),
    }
}

#[tokio::test]
async fn an_encrypted_shard_is_asked_by_who_trusts_its_certificate() {
    let dir = TempDir::new().unwrap();
    let own = make_certificate(dir.path(), "own");
    let foreign = make_certificate(dir.path(), "foreign");
    let copy = Copy::new();
    let config = ShardServerConfig {
        tls: Some(own.clone()),
        ..serving(any_port())
    };
    let served = Served::start(config, copy.parts()).await.unwrap();
    let url = |scheme: &str| format!("{scheme}://{}", served.address());
    let trusting = |ca_file: Option<PathBuf>| ShardsConfig {
        tls_ca_file: ca_file,
        deadline: Duration::from_secs(10),
        ..one_shard(vec![url("https")])
    };
    let right = client(&trusting(Some(own.certificate_file.clone())));
    assert_eq!(right.records.owner(scope(1)).await.unwrap(), None);
    let wrong = client(&trusting(Some(foreign.certificate_file)));
    assert!(is_unavailable(&wrong.records.owner(scope(1)).await, ""));
    let plain = client(&ShardsConfig {
        deadline: Duration::from_secs(10),
        ..one_shard(vec![url("http")])
    });
    assert!(is_unavailable(&plain.records.owner(scope(1)).await, ""));

    let absent = trusting(Some(dir.path().join("none")));
    assert!(connect(&absent, FEED).is_err());
    let unasked = ShardsConfig {
        tls_ca_file: Some(own.certificate_file),
        ..one_shard(vec![url("http")])
    };
    let error = connect(&unasked, FEED).err().expect("refused");
    assert!(error.to_string().contains("https"), "{error}");
}

#[tokio::test]
async fn a_certificate_and_a_key_that_do_not_fit_are_refused() {
    let dir = TempDir::new().unwrap();
    let own = make_certificate(dir.path(), "own");
    let other = make_certificate(dir.path(), "other");
    let copy = Copy::new();
    for tls in [
        TlsFiles {
            key_file: other.key_file,
            ..own.clone()
        },
        TlsFiles {
            key_file: own.certificate_file.clone(),
            ..own.clone()
        },
        TlsFiles {
            certificate_file: dir.path().join("none"),
            ..own
        },
    ] {
        let config = ShardServerConfig {
            tls: Some(tls),
            ..serving(any_port())
        };
        assert!(Served::start(config, copy.parts()).await.is_err());
    }
}
