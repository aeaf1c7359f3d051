//! A program at a tracepoint of the kernel.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::attributes::TracepointOpen;
use super::{LoadedProgram, command, open};
use crate::SyscallError;

/// A program at a tracepoint. Dropping this detaches the program, and so does the death of the process.
///
/// Minimum kernel: 4.17. Needs `CAP_BPF` and `CAP_PERFMON`.
#[derive(Debug)]
pub struct TracepointLink {
    fd: OwnedFd,
}

impl TracepointLink {
    /// Lets the program run whenever the kernel comes by the tracepoint of this name, on every processor.
    ///
    /// # Errors
    /// `EPERM` without the rights; `ENOENT` if the kernel has no such tracepoint; `EINVAL` if the program reads more
    /// words than the tracepoint has.
    pub fn attach(program: &LoadedProgram, name: &CStr) -> Result<TracepointLink, SyscallError> {
        let mut attributes = TracepointOpen {
            name: name.as_ptr() as u64,
            prog_fd: program.as_fd().as_raw_fd() as u32,
            ..TracepointOpen::default()
        };
        // SAFETY: `name` points to a C string that lives through the call and is only read; the command returns a
        // descriptor.
        let fd =
            unsafe { open("bpf(BPF_RAW_TRACEPOINT_OPEN)", command::RAW_TRACEPOINT_OPEN, &mut attributes)? };
        Ok(TracepointLink { fd })
    }
}

impl AsFd for TracepointLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
