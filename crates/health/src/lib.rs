//! What on this machine will lose, delay or alter packets, how bad it is, and how it is mended and put back.
//!
//! ```text
//! /proc /sys netlink ethtool --Facts::gather--> Facts --examine--> Examined: check, Finding { severity, evidence, Mend }
//!                                                                                                           │
//!                          what was before, for the way back <--Change::step--  Change  <-------------------┘
//!                                              what is so now <--Change::apply--
//! ```
//!
//! [`Facts`] are data: what is not told is `None`, never a guess. Checks are small functions of facts in a table
//! ([`checks()`]), so tests give them machines that nobody here has. Only `facts` looks at the machine, only `change` changes it.
#![forbid(unsafe_code)]

mod change;
mod checks;
mod error;
mod event;
mod facts;
mod finding;
mod fix;
pub mod journal;
mod restore;
mod scope;

pub use change::{CHANGEABLE_FILES, Change, Step, Undone};
pub use checks::{Check, Examined, checks, examine};
pub use error::Error;
pub use event::Event;
pub use facts::{
    Counter, Facts, Idle, Interface, Interrupt, Irq, Machine, Memory, Node, Request, Sniffer, SoftnetCpu,
    Times,
};
pub use finding::{Evidence, Finding, Mend, Severity};
pub use fix::{Attempt, Fixer};
pub use restore::{Restored, restore};
pub use scope::Scope;
