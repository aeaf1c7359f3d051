//! Sources and sinks, live capture on AF_PACKET and AF_XDP, and the account of every packet.
//!
//! ```text
//!   Source --advance--> batch --filter--> selection --write--> Sink, Sink, ...
//!     |                   |                   |                  |
//!     +---- InterfaceAccount         filtered, accepted    written, lost        = Account
//! ```
//!
//! A source lends packets in place; each sink sees the same lent batch with the packets that are wanted. What stands between them is
//! the graph's (crate `graph`), which also has the loop that drives it all. What every part did to every packet ends up in the
//! [`Account`], whose sums must balance.
#![forbid(unsafe_code)]

mod account;
pub mod af_packet;
pub mod af_xdp;
mod error;
mod file;
mod file_output;
mod link_state;
mod sink;
mod source;
mod store_input;
mod store_output;
pub mod transmit;

pub use account::{
    Account, Balance, Count, FilterAccount, InterfaceAccount, Loss, OutputAccount, Place, RingAccount,
    TapAccount, XdpAccount,
};
pub use error::Error;
pub use file::FileInput;
pub use file_output::FileOutput;
pub use sink::{Shared, Sink, Wants};
pub use source::{Advance, Event, Source};
pub use store_input::{SearchReport, Sieve, StoreInput, StoreReading};
pub use store_output::StoreOutput;
