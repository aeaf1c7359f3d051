//! Sources of packets, and the account of every packet.
//!
//! ```text
//!   Source --advance--> batch --filter--> selection --> outputs
//!     |                   |                   |            |
//!     +---- InterfaceAccount         FilterAccount        OutputAccount
//! ```
//!
//! A source lends packets in place. Interfaces (crate `capture`), files (`file`), stores (`store`) and the daemon's
//! buffers (`tap`) are sources; the loop that drives one is `graph::Engine`. Each part's counters end up in
//! `graph::GraphAccount`, whose sums must balance.
#![forbid(unsafe_code)]

mod account;
mod cause;
mod error;
mod pieces;
mod source;

pub use account::{
    Count, CountedPackets, FilterAccount, InterfaceAccount, Loss, LossPoint, OutputAccount, RingAccount,
    TapAccount, UncapturedCounts, UnfitLinkType, XdpAccount, merge_interfaces,
};
pub use cause::{LossCause, LossCounts, SkipCause};
pub use error::Error;
pub use pieces::{Piece, PieceReader, free_long_buffer};
pub use source::{Advance, Event, Source};
