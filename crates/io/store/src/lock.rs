//! The lock of a store: one recorder, or one command that changes segments, at a time (flock(2)).

use std::fs::{File, OpenOptions, TryLockError};

use crate::error::Error;
use crate::files;
use crate::layout::Paths;

/// Takes the lock, which is held as long as the file is open.
///
/// # Errors
/// [`Error::Locked`], [`Error::File`].
pub(crate) fn take(paths: &Paths) -> Result<File, Error> {
    let path = paths.lock();
    let opened = files::open_or_make(&path, OpenOptions::new().write(true).read(true));
    let lock = opened.map_err(Error::file("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: paths.root().to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", &path)(error)),
    }
}
