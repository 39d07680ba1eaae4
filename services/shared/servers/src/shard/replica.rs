//! How is one replica asked, and is it worth asking now?
//!
//! A replica that failed is left out, and looked at again and again until it says that it is well; the
//! caller's own questions never pay for finding that out.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::LogId;
use bytes::{Bytes, BytesMut};
use tokio::time::{sleep, timeout};
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Uri};
use tracing::{info, warn};

use super::config::Partitions;
use super::frames::{self, ANSWER_BYTES_MAX, FRAME_BYTES_MAX, Frames, PATH, QUESTION_BYTES_MAX};
use super::refusal::{Failure, Refusal};
use super::token;
use super::wire::{self, Answer, Asked, Question};

pub(super) struct Replica {
    address: Uri,
    channel: Channel,
    partitions: Partitions,
    log_id: LogId,
    credentials: Option<MetadataValue<Ascii>>,
    look_again_after: Duration,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// Partitions that it is not asked for.
    left_out: BTreeSet<u32>,
    is_watched: bool,
}

impl Replica {
    pub(super) fn new(
        address: Uri,
        channel: Channel,
        partitions: Partitions,
        log_id: LogId,
        credentials: Option<MetadataValue<Ascii>>,
        look_again_after: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            channel,
            partitions,
            log_id,
            credentials,
            look_again_after,
            health: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_well(&self, partition: u32) -> bool {
        !self.lock().left_out.contains(&partition)
    }

    /// Asks within `at_most`, and remembers when that shows that the replica is not well.
    pub(super) async fn ask(
        self: &Arc<Self>,
        question: Bytes,
        at_most: Duration,
    ) -> Result<Answer, Failure> {
        let answer = self.ask_within(question, at_most).await;
        match &answer {
            Err(Failure::Down { reason }) => {
                self.leave_out(self.partitions.iter().collect(), reason);
            }
            Err(Failure::Refused(Refusal::Lags { partition })) => {
                if self.partitions.contains(*partition) {
                    self.leave_out(BTreeSet::from([*partition]), "it lags");
                }
            }
            Err(Failure::Refused(_) | Failure::Unreadable) | Ok(_) => (),
        }
        answer
    }

    async fn ask_within(&self, question: Bytes, at_most: Duration) -> Result<Answer, Failure> {
        let mut request = Request::new(question);
        // The replica gives up when the caller has.
        request.set_timeout(at_most);
        frames::introduce(self.log_id, request.metadata_mut());
        token::attach(self.credentials.as_ref(), request.metadata_mut());
        match timeout(at_most, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Down {
                reason: format!("no answer within {at_most:?}"),
            }),
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Answer, Failure> {
        let mut grpc = Grpc::new(self.channel.clone())
            .max_encoding_message_size(QUESTION_BYTES_MAX)
            .max_decoding_message_size(FRAME_BYTES_MAX);
        if let Err(error) = grpc.ready().await {
            let status = tonic::Status::from_error(Box::new(error));
            return Err(Failure::of(&status));
        }
        let path = PathAndQuery::from_static(PATH);
        let stream = grpc.server_streaming(request, path, Frames).await;
        let mut stream = stream.map_err(|status| Failure::of(&status))?.into_inner();
        let mut all = BytesMut::new();
        loop {
            let frame = stream.message().await;
            let Some(frame) = frame.map_err(|status| Failure::of(&status))? else {
                break;
            };
            if all.len() + frame.len() > ANSWER_BYTES_MAX {
                return Err(Failure::Refused(Refusal::TooLarge));
            }
            all.extend_from_slice(&frame);
        }
        wire::read(&all).ok_or(Failure::Unreadable)
    }

    fn leave_out(self: &Arc<Self>, partitions: BTreeSet<u32>, reason: &str) {
        let mut health = self.lock();
        let is_news = !partitions.is_subset(&health.left_out);
        health.left_out.extend(partitions);
        let is_watched = std::mem::replace(&mut health.is_watched, true);
        drop(health);
        if is_news {
            warn!(replica = %self.address, reason, "a replica of a shard is left out");
        }
        if !is_watched {
            let (replica, pause) = (Arc::downgrade(self), self.look_again_after);
            tokio::spawn(async move {
                loop {
                    sleep(pause).await;
                    // Nobody asks any more.
                    let Some(replica) = replica.upgrade() else {
                        return;
                    };
                    if replica.look().await {
                        return;
                    }
                }
            });
        }
    }

    /// Whether it is well again, in all partitions.
    async fn look(&self) -> bool {
        let question = wire::write(&Asked {
            question: Question::Current,
            at_least: 0,
            even_if_behind: false,
        });
        let answer = self
            .ask_within(Bytes::from(question), self.look_again_after)
            .await;
        let Ok(Answer::Current(current)) = answer else {
            return false;
        };
        let mut health = self.lock();
        health
            .left_out
            .retain(|partition| !current.contains(partition));
        if !health.left_out.is_empty() {
            return false;
        }
        health.is_watched = false;
        drop(health);
        info!(replica = %self.address, "a replica of a shard is asked again");
        true
    }
}
