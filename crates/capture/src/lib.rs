//! Sources and sinks, live capture on AF_PACKET, the loop that joins them, and the account of every packet.
//!
//! ```text
//!   Source --advance--> batch --filter--> selection --write--> Sink, Sink, ...
//!     |                   |                   |                  |
//!     +---- InterfaceAccount         filtered, accepted    written, lost        = Account
//! ```
//!
//! [`Engine`] is the one loop that drives every source, live or file. A source lends packets in place; each sink sees
//! the same lent batch with the packets that the filter left. What every part did to every packet ends up in the
//! [`Account`], whose sums must balance.
#![forbid(unsafe_code)]

mod account;
pub mod af_packet;
mod engine;
mod error;
mod file;
mod file_output;
mod filters;
mod second;
mod sink;
mod source;

pub use account::{
    Account, Balance, Count, FilterAccount, InterfaceAccount, Loss, OutputAccount, Place, RingAccount,
};
pub use engine::{Compile, Control, Ended, Engine, Outcome, Watch};
pub use error::Error;
pub use file::FileInput;
pub use file_output::FileOutput;
pub use filters::Faster;
pub use second::Decide;
pub use sink::{Shared, Sink, Wants};
pub use source::{Advance, Event, Source};
