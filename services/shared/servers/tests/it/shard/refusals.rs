//! Who is not answered, and what is not read?

use anamnesis_domain::ids::LogId;
use anamnesis_domain::memory::Kind;
use anamnesis_pipeline::conformance::stores::LOG_ID;
use anamnesis_pipeline::conformance::stores::script::{everything, id, scope};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Checkpoint, Order, Store, StoreError};
use anamnesis_servers::shard::client::connect;
use anamnesis_servers::shard::config::{ShardServerConfig, ShardsConfig};
use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use super::{Copy, FEED, Served, any_port, client, one_shard, serving};

/// Variables that cargo sets for every test, and that hold what could be a token.
const TOKEN: &str = "CARGO_PKG_NAME";
const OTHER_TOKEN: &str = "CARGO_PKG_VERSION";

async fn guarded(copy: &Copy) -> Served {
    let config = ShardServerConfig {
        token_env: Some(TOKEN.to_owned()),
        ..serving(any_port())
    };
    Served::start(config, copy.parts()).await.unwrap()
}

#[tokio::test]
async fn only_who_has_the_token_is_answered() {
    let copy = Copy::new();
    let served = guarded(&copy).await;
    let with = |token: Option<&str>| ShardsConfig {
        token_env: token.map(str::to_owned),
        ..one_shard(vec![served.url()])
    };
    let right = client(&with(Some(TOKEN)));
    assert_eq!(right.records.owner(scope(1)).await.unwrap(), None);
    assert_eq!(right.records.owners().await.unwrap(), []);
    for token in [None, Some(OTHER_TOKEN)] {
        let wrong = client(&with(token));
        let filter = everything(1, 1);
        let answers = [
            wrong.records.owner(scope(1)).await.map(drop),
            wrong.records.owners().await.map(drop),
            wrong.records.checkpoint(0).await.map(drop),
            wrong.text.search(&filter, &[], 1).await.map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert!(!error.is_retryable(), "{error}");
            assert!(error.to_string().contains("refuses the token"), "{error}");
        }
    }
    let missing = connect(&with(Some("ANAMNESIS_NO_SUCH_TOKEN")), FEED);
    let error = missing.err().expect("refused");
    assert!(
        error.to_string().contains("ANAMNESIS_NO_SUCH_TOKEN"),
        "{error}"
    );
}

#[tokio::test]
async fn a_shard_of_another_log_is_told_apart() {
    let copy = Copy::new();
    let served = Served::whole(&copy).await;
    let other = LogId::from_bytes([0x20; 16]);
    let feed = Feed {
        log_id: other,
        ..FEED
    };
    let stores = connect(&one_shard(vec![served.url()]), feed).unwrap();
    let error = stores
        .text
        .search(&everything(1, 1), &[], 1)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::OtherLog { store: Store::Text, expected, found }
                if expected == other && found == LOG_ID
        ),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_is_written_through_a_client() {
    let copy = Copy::new();
    let served = Served::whole(&copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    let next = Checkpoint {
        log_id: LOG_ID,
        next: 1,
    };
    for answer in [
        stores.records.apply(0, 0, &[], next).await,
        stores.text.apply(0, 0, &[], next).await,
        stores.records.compact().await,
        stores.text.compact().await,
    ] {
        assert!(
            matches!(answer, Err(StoreError::Unusable { .. })),
            "{answer:?}"
        );
    }
    assert_eq!(stores.records.checkpoint(0).await.unwrap(), None);
}

#[tokio::test]
async fn a_question_that_no_replica_can_answer_is_asked_once() {
    let copy = Copy::new();
    let served = Served::whole(&copy).await;
    // The second address is dead: whoever went on to it would call the shard unavailable.
    let stores = client(&one_shard(vec![
        served.url(),
        "http://127.0.0.1:9".to_owned(),
    ]));
    let filter = everything(2, 1);
    let page = stores
        .records
        .list(&filter, Order::Recorded, 9, Some("x.1.2"))
        .await;
    assert!(matches!(page, Err(StoreError::Unusable { .. })), "{page:?}");
    let many = vec![id(1); 200_000];
    let checked = stores.records.check(&filter, &many).await;
    assert!(
        matches!(checked, Err(StoreError::Unusable { .. })),
        "{checked:?}"
    );
    let kinds = vec![Kind::Fact];
    let filter = anamnesis_pipeline::stores::Filter {
        kinds: Some(kinds),
        ..filter
    };
    assert!(stores.records.check(&filter, &[id(1)]).await.is_ok());
}

/// Bytes as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Asks without the client: any method, any version, any bytes.
async fn ask_raw(served: &Served, path: &str, protocol: &str, question: &[u8]) -> Status {
    let channel = Endpoint::from_shared(served.url())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let mut request = Request::new(Bytes::copy_from_slice(question));
    let metadata = request.metadata_mut();
    metadata.insert("anamnesis-protocol", protocol.parse().unwrap());
    metadata.insert("anamnesis-log", LOG_ID.to_string().parse().unwrap());
    let path: PathAndQuery = path.parse().unwrap();
    match grpc.server_streaming(request, path, Raw).await {
        Ok(_) => panic!("answered"),
        Err(status) => status,
    }
}

#[tokio::test]
async fn what_is_not_asked_in_this_protocol_is_refused_before_it_is_read() {
    let copy = Copy::new();
    let served = Served::whole(&copy).await;
    let path = "/anamnesis.shard.Shard/Ask";
    let secret = "患者的话 patient words".as_bytes();
    let long = vec![0; (4 << 20) + 1];
    for (path, protocol, question, code, said) in [
        (
            path,
            "2",
            secret,
            Code::FailedPrecondition,
            "speaks protocol 1",
        ),
        (
            path,
            "one",
            secret,
            Code::FailedPrecondition,
            "speaks protocol 1",
        ),
        (
            path,
            "1",
            secret,
            Code::InvalidArgument,
            "cannot read the question",
        ),
        (
            path,
            "1",
            b"",
            Code::InvalidArgument,
            "cannot read the question",
        ),
        (path, "1", &long, Code::OutOfRange, "too large"),
        (
            "/anamnesis.shard.Shard/Tell",
            "1",
            secret,
            Code::Unimplemented,
            "one method",
        ),
    ] {
        let status = ask_raw(&served, path, protocol, question).await;
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(said), "{status:?}");
        assert!(!format!("{status:?}").contains("患者"), "{status:?}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let copy = Copy::new();
    let served = Served::whole(&copy).await;
    let again = Served::start(serving(served.address()), copy.parts()).await;
    let error = again.err().expect("refused");
    assert!(
        error.to_string().contains(&served.address().to_string()),
        "{error}"
    );
}
