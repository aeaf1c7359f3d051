//! The lock of a store: one recorder, or one command that changes segments, at a time (flock(2)).

use std::fs::{File, OpenOptions, TryLockError};

use tapline_sys::disk;

use crate::error::Error;
use crate::layout::Paths;

/// Takes the lock, which is held as long as the file is open.
///
/// # Errors
/// [`Error::Locked`], [`Error::File`].
pub(crate) fn take(paths: &Paths) -> Result<File, Error> {
    let path = paths.lock();
    let options = OpenOptions::new().create(true).truncate(false).write(true).read(true).clone();
    let opened = disk::open_regular(&path, &options);
    let lock = opened.map_err(Error::file("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: paths.root().to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", &path)(error)),
    }
}
