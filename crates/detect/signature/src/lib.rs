//! Signatures in Snort's language: descriptions of suspicious packets, thousands of them evaluated at once.
//!
//! ```text
//! rules file --Ruleset::parse--> [Signature], [Refusal]
//!                                     |
//!              Detector::new          v
//!   payload ----> fast patterns, all in one search ----> candidates --.
//!   packet  ----> headers, all in one filter set ----> those that fit --+--> options, one by one --> Finding
//!   flow    ----> Conversation: direction, handshake, flow bits --------'
//! ```
//!
//! The language is that of the Snort 2.9 manual, chapter 3, with the spellings of Snort 3 and Suricata where these only
//! write the same differently. `docs/signatures.md` lists each option. An option without an entry there refuses its
//! signature by name, so that no signature is evaluated in part.
//!
//! Payloads and rules files are hostile. Each evaluation has a budget of steps ([`STEPS_MAX`]), regular expressions run
//! in linear time, and nothing panics.
#![forbid(unsafe_code)]

mod address;
mod condition;
mod content;
mod conversation;
mod detector;
mod expression;
mod header;
mod number;
mod options;
mod payload;
mod ruleset;
mod signature;
mod threshold;

pub use conversation::{Conversation, Direction, FLOW_BITS_MAX};
pub use detector::{Detector, DetectorCounts, DetectorError, Finding, StreamWindow};
pub use header::Header;
pub use payload::STEPS_MAX;
pub use ruleset::{Refusal, Ruleset, SIGNATURES_MAX, Variables};
pub use signature::{Action, Reference, Signature};
pub use threshold::{Threshold, ThresholdState, Track};
