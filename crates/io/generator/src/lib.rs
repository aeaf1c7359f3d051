//! Packets made from a recipe and a seed, with the times at which they leave.
//!
//! ```text
//! text --parse--> Recipe --Generator::new--> flows, headers, payload     everything that can be computed before the first packet
//!                                              |
//!                      sizes, gaps, shares --->+--next_into(buffer)--> one frame in the caller's memory, and when it leaves
//!                                              +--Batches::advance---> 256 frames, as sources lend them
//!
//! received frame --Mark::find--> Stream::take--> lost, doubled, reordered, latency
//! ```
//!
//! The same recipe gives the same bytes and the same times on every machine, always: nothing here reads a clock or asks
//! the system for chance.
//!
//! ```
//! use tapline_generator::{Generator, Recipe};
//! let recipe = Recipe::parse("udp size=imix flows=100 rate=10k count=2")?;
//! let mut generator = Generator::new(&recipe).map_err(|error| error.in_text("udp size=imix flows=100 rate=10k count=2"))?;
//! let mut frame = vec![0; generator.frame_max()];
//! while let Some(departure) = generator.next_into(&mut frame).expect("no filter to meet") {
//!     println!("{} bytes after {} ns", departure.len, departure.at_ns);
//! }
//! # Ok::<(), tapline_generator::SyntaxError>(())
//! ```
//!
//! A frame is made by copying its flow's headers and filling in the differing fields. The parts of its checksums that
//! no packet changes are summed once; the sum of a payload is a difference of two numbers in a table. Nothing is
//! allocated for a packet.
//!
//! Modules: `recipe` the parameters and their text, `space` and `flow` addresses and ports, `shape` the headers,
//! `payload`, `size`, `gap`, `share`, `connection` (TCP), `fragment`, `malform`, `matching` (filters), `write` the
//! bytes of a frame, `generator` the sequence of packets. `mark` and `verify` are the receiving side.
#![forbid(unsafe_code)]

mod batches;
mod checksum;
mod connection;
mod error;
mod flow;
mod fragment;
mod gap;
mod generator;
mod malform;
mod mark;
mod matching;
mod payload;
mod random;
mod recipe;
mod shape;
mod share;
mod size;
mod space;
mod verify;
mod write;

pub use batches::Batches;
pub use error::{Error, SyntaxError};
pub use generator::{Departure, Generator, MarkPlace};
pub use mark::{MARK_LEN, Mark};
pub use recipe::{
    AddressOrder, FLOWS_MAX, FlowOrder, Gaps, KEYS, Key, Malformation, Payload, Rate, Recipe, SIZE_MAX,
    Sizes, Transport,
};
pub use share::Share;
pub use space::NumberRanges;
pub use verify::{Latency, Stream, WINDOW};
