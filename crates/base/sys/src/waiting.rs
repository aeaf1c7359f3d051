//! Waiting for the other end of a named pipe, which may never be opened. A signal that ends the program does so at once
//! meanwhile, because the loop that obeys signals has not begun.
//!
//! ```text
//! program                               handler of the signal
//! is_waiting = true                     order = status
//! order? --> ends                       is_waiting? --> ends
//! open(2)
//! is_waiting = false
//! ```
//!
//! Each side stores before it loads, so that one of the two sees the other.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use crate::helper;

static IS_WAITING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static ORDER: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Whether the process waits: for handlers, which then end it with the status of their signal.
pub fn is_waiting() -> Arc<AtomicBool> {
    Arc::clone(&IS_WAITING)
}

/// The status with which a signal has ordered the process to end; 0 for none. Handlers set it before they look at
/// [`is_waiting`].
pub fn order() -> Arc<AtomicUsize> {
    Arc::clone(&ORDER)
}

/// Runs what may wait for ever. Ends the process if it was ordered to.
pub fn run<T>(wait: impl FnOnce() -> T) -> T {
    IS_WAITING.store(true, Ordering::SeqCst);
    match ORDER.load(Ordering::SeqCst) {
        0 => {}
        status => helper::exit(status as i32),
    }
    let waited = wait();
    IS_WAITING.store(false, Ordering::SeqCst);
    waited
}

/// Runs what opens a file: as [`run`] if it is a named pipe.
pub fn open<T>(path: &Path, open: impl FnOnce() -> T) -> T {
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    if is_pipe { run(open) } else { open() }
}
