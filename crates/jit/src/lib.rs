//! Native code from filters: the form of values as machine code for x86-64, and from the same source for aarch64, where it was not run yet.
//!
//! ```text
//! Ir --verify--> proved --lower--> Cranelift's form --compile--> bytes --W^X--> Native: run(packet), select(batch)
//! ```
//!
//! Only graphs that [`Ir::verify`](tapline_ir::Ir::verify) has proved are compiled: loads of packet bytes then need no check of
//! their own. The code generator appears nowhere in what is public here; whoever has no native code ([`Error`]) has the interpreters of
//! `tapline-filter`, which are the reference for every answer.
//!
//! Unsafe code: calls into the generated functions (`native.rs`), and the way back from them (`helper.rs`).

mod error;
mod helper;
mod lower;
mod native;
mod search;
mod set;
mod target;

pub use error::Error;
pub use native::Native;
pub use set::{RESIDUALS_MAX, Residuals};

/// The most values of a graph; larger ones would take seconds.
pub const VALUES_MAX: usize = 1 << 18;
