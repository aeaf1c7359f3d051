//! Requests to read files again that stages obey, such as files of rules.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Requests to read files again, from signal handlers and other threads.
#[derive(Debug, Default)]
pub struct ReloadRequests {
    count: Mutex<u64>,
    asked: Condvar,
}

impl ReloadRequests {
    /// Requests that every file is read again.
    pub fn request(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.asked.notify_all();
    }

    /// Number of requests so far.
    pub fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there were more requests than `seen`, at most for `timeout`. Gives their number.
    pub fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.asked.wait_timeout_while(count, timeout, |count| *count == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
