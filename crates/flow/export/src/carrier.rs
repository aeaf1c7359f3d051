//! The interfaces of carriers.

use std::sync::Arc;
use std::time::Duration;

use crate::Block;

/// The end of an attempt to deliver a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has acknowledged all of it.
    Delivered,
    /// The receiver will never take it, for this reason: its rows are lost.
    Refused(String),
    /// Not now, for this reason. The receiver may have it all the same: it is delivered again under the same id.
    Again(String),
}

/// An answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The carrier has it, and will report its number.
    Taken,
    /// No room now: to be offered again after a report.
    Full,
}

/// A carrier's report on a block that it had taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The block that was offered.
    pub block: Arc<Block>,
    /// The outcome.
    pub outcome: Outcome,
}

/// A way for blocks to their receiver. Each block that is taken is reported once.
pub trait Carrier: Send {
    /// The destination as users wrote it, without secrets.
    fn name(&self) -> &str;

    /// Takes a block, or refuses it if it is full. Never waits.
    fn offer(&mut self, block: &Arc<Block>) -> Offer;

    /// The next report, for which it waits so long at most. `None` if there is none by then; without waiting if no block
    /// is taken.
    fn poll(&mut self, wait: Duration) -> Option<Report>;

    /// Gives up all blocks that are taken. Each is reported, as [`Outcome::Again`] unless it was delivered meanwhile; a
    /// call that cannot be interrupted is waited for.
    fn give_up(&mut self) -> Vec<Report>;
}

/// A receiver that takes one block after the other.
pub trait Target: Send {
    /// The destination as users wrote it, without secrets.
    fn name(&self) -> &str;

    /// Delivers a block, or fails in bounded time.
    fn deliver(&mut self, block: &Block) -> Outcome;
}

impl<T: Target + ?Sized> Target for Box<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn deliver(&mut self, block: &Block) -> Outcome {
        (**self).deliver(block)
    }
}
