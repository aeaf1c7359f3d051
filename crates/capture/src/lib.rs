//! Sources, live capture on AF_PACKET and AF_XDP, sending, and the account of every packet.
//!
//! ```text
//!   Source --advance--> batch --filter--> selection --> outputs
//!     |                   |                   |            |
//!     +---- InterfaceAccount         filtered, accepted   written, lost        = Account
//! ```
//!
//! A source lends packets in place. Filters, outputs and the loop that drives them are stages of a graph (crate
//! `graph`). Each part's counters end up in the [`Account`], whose sums must balance.
#![forbid(unsafe_code)]

mod account;
pub mod af_packet;
pub mod af_xdp;
mod error;
mod file;
mod link_state;
mod listener;
mod source;
mod store_input;
pub mod transmit;

pub(crate) use account::unfit_clause;
pub use account::{
    Account, Balance, Count, CountedPackets, FilterAccount, InterfaceAccount, Loss, LossPoint, OutputAccount,
    RingAccount, TapAccount, UnfitLinkType, XdpAccount,
};
pub use error::Error;
pub use file::FileInput;
pub use listener::Listener;
pub use source::{Advance, Event, Source};
pub use store_input::{SearchFilter, SearchReport, StoreInput, StoreReading};
