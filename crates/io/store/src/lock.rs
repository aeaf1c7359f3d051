//! The lock of a store: one recorder, or one command that changes segments, at a time (flock(2)).

use std::fs::{File, OpenOptions, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use crate::error::Error;
use crate::files;
use crate::layout::Paths;

/// Attempts to take the lock, 5 ms apart: a process that another thread forks has the descriptors until it runs its
/// program, and so the lock that this process gave back.
const ATTEMPTS: u32 = 20;

/// Takes the lock, which is held as long as the file is open.
///
/// # Errors
/// [`Error::Locked`], [`Error::File`].
pub(crate) fn take(paths: &Paths) -> Result<File, Error> {
    let path = paths.lock();
    let opened = files::open_or_make(&path, OpenOptions::new().write(true).read(true));
    let lock = opened.map_err(Error::file("open", &path))?;
    for attempt in 1..=ATTEMPTS {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", &path)(error)),
        }
    }
    Err(Error::Locked { path: paths.root().to_owned() })
}
