//! How does a server stop?

use anamnesis_pipeline::conformance::stores::script::everything;
use anamnesis_pipeline::stores::LegAnswer;
use tokio::net::TcpStream;

use super::{Copy, LONG, Served, any_port, client, one_shard, serving, slow};

#[tokio::test]
async fn a_server_that_stops_answers_what_it_was_asked_before() {
    let copy = Copy::new();
    let (index, parts) = slow(&copy);
    let served = Served::start(serving(any_port()), parts).await.unwrap();
    let address = served.address();
    let stores = client(&one_shard(vec![served.url()]));
    let text = stores.text.clone();
    let asking =
        tokio::spawn(async move { text.search(&everything(1, 1), &["x".to_owned()], 1).await });
    index.asked.notified().await;
    served.stop.cancel();
    // The door is shut while the answer is still under way.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!asking.is_finished());
    index.may_answer.notify_one();
    assert_eq!(asking.await.unwrap().unwrap(), LegAnswer::default());
    let stopped = tokio::time::timeout(LONG, served.server.stopped()).await;
    stopped.expect("it stops").unwrap();
}

#[tokio::test]
async fn a_server_does_not_wait_for_ever_for_an_answer() {
    let copy = Copy::new();
    let (index, parts) = slow(&copy);
    let served = Served::start(serving(any_port()), parts).await.unwrap();
    let stores = client(&one_shard(vec![served.url()]));
    let asking = tokio::spawn(async move {
        let filter = everything(1, 1);
        stores.text.search(&filter, &["x".to_owned()], 1).await
    });
    index.asked.notified().await;
    let stopped = tokio::time::timeout(LONG, served.stop());
    stopped.await.expect("it stops");
    asking.abort();
}
