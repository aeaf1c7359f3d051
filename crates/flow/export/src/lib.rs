//! Flows and packets that leave in sealed batches: encoded once as a block with an id, and kept until the carrier has it delivered.
//!
//! ```text
//! rows --encode--> Block { id, rows, bytes } --offer--> Carrier --poll--> Delivered: forgotten
//!                                              Full: kept             |-> Refused: lost, and the reason told
//!                                                                     '-> Again: kept, offered later under the same id
//! ```
//!
//! A [`Carrier`] never waits in `offer`. One that has a client library with a queue of its own, such as Kafka's, is a
//! `Carrier` itself; a place that takes one block after the other, such as a file or a web server, is a [`Target`], and
//! [`Threaded`] makes a carrier of it. A receiver that gets a block twice, because an acknowledgement was lost, knows it by
//! its [`BlockId`].
#![forbid(unsafe_code)]

mod account;
mod backoff;
mod block;
mod carrier;
#[cfg(feature = "http")]
mod clickhouse;
mod delivery;
mod destination;
mod error;
mod exporter;
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod kafka_address;
#[cfg(feature = "kafka")]
mod kafka_client;
#[cfg(any(test, feature = "kafka"))]
mod kafka_properties;
#[cfg(feature = "kafka")]
mod kafka_reader;
mod key_group;
mod outlet;
mod packet_exporter;
mod schema;
mod spool;
mod spool_file;
mod threaded;
mod topic;
#[cfg(test)]
mod trial;
#[cfg(all(test, feature = "http"))]
mod trial_server;
mod worker;

pub use account::{Cause, DeliveryAccount, Tally};
pub use block::{Block, BlockId, Encoding, Sensor};
pub use carrier::{Carrier, Offer, Outcome, Report, Target};
pub use delivery::Delivery;
pub use destination::{Destination, Receiver, Secret};
pub use error::Error;
pub use exporter::BatchExporter;
pub use file::FileTarget;
pub use outlet::Limits;
pub use packet_exporter::PacketExporter;
pub use schema::Schema;
pub use spool::Spool;
pub use threaded::Threaded;
pub use topic::{ChunkHead, MESSAGE_MAX, Message, NextMessage, Runs, Topic, TopicAddress};
