//! A program at a tracepoint of the kernel.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

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

/// Counts events at which a program did not run, because it ran on that processor already: an interrupt came in between.
/// Reading the count needs no right, unlike [`LoadedProgram::info`].
#[derive(Debug)]
pub struct MissedRuns {
    /// Kept open: the page is that of its descriptor.
    _program: LoadedProgram,
    page: File,
}

impl MissedRuns {
    /// Opens the kernel's page about a program. Minimum kernel: 5.12.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn of(program: LoadedProgram) -> io::Result<MissedRuns> {
        let page = File::open(format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd()))?;
        Ok(MissedRuns { _program: program, page })
    }

    /// The count until now; `None` if the kernel does not say.
    pub fn count(&self) -> Option<u64> {
        let mut page = [0; 4096];
        let len = self.page.read_at(&mut page, 0).ok()?;
        let page = std::str::from_utf8(&page[..len]).ok()?;
        page.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use tapline_bpf::ebpf::{Insn, R0};

    use super::super::ProgramKind;
    use super::*;

    #[test]
    fn a_program_that_never_ran_missed_nothing() {
        const TEST: &str = "a_program_that_never_ran_missed_nothing";
        let insns = [Insn::set(R0, 0), Insn::EXIT];
        match LoadedProgram::load(ProgramKind::RawTracepoint, TEST, &insns) {
            Ok(program) => assert_eq!(MissedRuns::of(program).unwrap().count(), Some(0)),
            Err(error) => eprintln!("skipped: {TEST}: {error}"),
        }
    }
}
