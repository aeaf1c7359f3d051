//! Causes of lost, delayed or altered packets on this machine: checks, remedies, and their undoing.
//!
//! ```text
//! /proc /sys netlink ethtool --Facts::gather--> Facts --examine--> CheckResult: check, Finding { severity, evidence, Remedy }
//!                                                                                                           │
//!                          what was before, for the way back <--Change::step--  Change  <-------------------┘
//!                                              what is so now <--Change::apply--
//! ```
//!
//! [`Facts`] are data: an unknown fact is `None`, never a guess. Checks are small functions of facts in a table
//! ([`checks()`]), so tests can give them any machine. Only `facts` looks at the machine, only `change` changes it.
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

pub use change::{CHANGEABLE_FILES, Change, Step, UndoResult};
pub use checks::{Check, CheckResult, checks, examine};
pub use error::Error;
pub use event::Event;
pub use facts::{
    Counter, CpuTicks, DropWatch, Drops, Facts, IdleState, Interface, Interrupt, Irq, Machine, Memory,
    NumaNode, PacketSocket, Request, SoftnetCpu,
};
pub use finding::{Evidence, Finding, Remedy, Severity};
pub use fix::{Attempt, Fixer};
pub use restore::{Restored, restore};
pub use scope::Scope;
