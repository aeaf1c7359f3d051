//! A change of the graph that waits for the end of a batch.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::GraphChange;

/// A change that has not been applied yet.
#[derive(Default)]
pub(super) struct Pending {
    is_there: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    change: Option<GraphChange>,
    /// No change is applied any more.
    is_closed: bool,
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a change until it is taken.
    pub(super) fn put(&self, change: GraphChange) -> Result<(), GraphChange> {
        let mut slot = self.lock();
        if slot.is_closed || slot.change.is_some() {
            return Err(change);
        }
        slot.change = Some(change);
        self.is_there.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn take(&self) -> Option<GraphChange> {
        if !self.is_there.load(Ordering::Relaxed) {
            return None;
        }
        let mut slot = self.lock();
        self.is_there.store(false, Ordering::Relaxed);
        slot.change.take()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Drops a change that waits, and refuses all further ones.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        drop(self.take());
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_there", &self.is_there).finish_non_exhaustive()
    }
}
