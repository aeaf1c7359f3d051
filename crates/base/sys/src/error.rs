//! The leaf of every error: the call that failed, and the kernel's error.

use std::io;

/// A system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct SyscallError {
    /// The call, with the option or request that it was about: `setsockopt(PACKET_RX_RING)`.
    pub call: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

impl SyscallError {
    /// The failure of `call` that `errno` holds now.
    pub(crate) fn last(call: &'static str) -> SyscallError {
        SyscallError { call, source: io::Error::last_os_error() }
    }

    /// A failure of a number, as in errno(3), that a caller noticed itself.
    pub fn new(call: &'static str, errno: i32) -> SyscallError {
        SyscallError::from_errno(call, errno)
    }

    /// A failure that we noticed ourselves and that has a number of its own.
    pub(crate) fn from_errno(call: &'static str, errno: i32) -> SyscallError {
        SyscallError { call, source: io::Error::from_raw_os_error(errno) }
    }

    /// The kernel's error number, as in errno(3).
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }

    /// Whether the kernel, or the file system, does not have the operation.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), libc::EOPNOTSUPP | libc::ENOSYS)
    }
}

/// Turns the -1 of a failed call into an error.
pub(crate) fn check(call: &'static str, result: libc::c_int) -> Result<libc::c_int, SyscallError> {
    if result == -1 { Err(SyscallError::last(call)) } else { Ok(result) }
}

/// As `check`, for calls that return a length.
pub(crate) fn check_len(call: &'static str, result: isize) -> Result<usize, SyscallError> {
    usize::try_from(result).map_err(|_| SyscallError::last(call))
}
