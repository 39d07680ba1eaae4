//! The records and the text index of an indexer's partitions, asked from other processes over gRPC.
//!
//! A *shard* is a set of partitions; its *replicas* are indexers that each build their own copy from
//! the log. [`server::serve`] answers for one replica, [`client::connect`] gives the ports
//! [`Records`](anamnesis_pipeline::stores::Records) and
//! [`TextIndex`](anamnesis_pipeline::stores::TextIndex) over all shards. Reading only: a replica is
//! written by its own indexer.
//!
//! Three rules make several copies as good as one:
//! - a replica answers for a partition only while it knows that it has applied everything that was
//!   recorded until a *lease* ago ([`freshness`]): an erasure is effective on all replicas at the latest
//!   one lease after its record was appended, whether they were told or not; behind that, it still
//!   answers for owners of whom it knows that nothing is missing ([`ahead`]);
//! - what was answered for an owner is not taken back by another replica: for some seconds, only a
//!   replica that is at least as far may answer for this owner ([`pins`]);
//! - a replica that is dead, slow or behind is left out until it is seen to be well ([`replica`]).
//!
//! - [`config`]: which shards there are, and what a server serves
//! - [`wire`], [`frames`], [`refusal`]: questions and answers as bytes, and what is said instead
//! - [`server`], [`answer`], [`token`]: one replica
//! - [`client`], [`replica`], [`pins`], [`ports`]: all of them, from outside

mod ahead;
mod answer;
pub mod client;
pub mod config;
mod frames;
mod freshness;
mod pins;
mod ports;
mod refusal;
mod replica;
pub mod server;
mod token;
mod wire;
