//! A change of the graph that waits for the end of a batch.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::GraphChange;

/// A change that has not been applied yet.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) is_there: AtomicBool,
    pub(super) change: Mutex<Option<GraphChange>>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_there", &self.is_there).finish_non_exhaustive()
    }
}
