//! Programs in the kernel: bpf(2).
//!
//! ```text
//! Insn* --LoadedProgram::load (the verifier)--> LoadedProgram --PacketSocket::attach_program--> every packet of a socket
//!                                            |    --XdpLink::attach--------------> every packet of an interface, before the stack
//!                                            |    --TracepointLink::attach------->  what the kernel tells of its own work
//!                                            |    --test_run---------------------> one packet of ours
//!                                            |    --run_live---------------------> frames that go where the program sends them
//! Map, SharedArray: what programs look       +--info, native_code
//! things up in, and what both sides read
//! RecordRing: what programs hand to us
//! ```
//!
//! All go through one call, `bpf(command, attributes)`, whose attributes are a union: each command has its own
//! structure in `attributes`, zero where nothing is said, as the kernel demands.
//!
//! Nothing here outlives its descriptors: a program, map or link is gone when the last process that holds it is.

mod attributes;
mod btf;
mod link;
mod map;
mod probe;
mod program;
mod record_ring;
mod shared_array;
mod tracepoint;

pub use btf::{kernel_enumeration, kernel_functions, kernel_offsets};
pub use link::{XdpLink, XdpMode};
pub use map::{LruTable, Map, MapKind};
pub use probe::{Unprivileged, probe, unprivileged};
pub use program::{LoadError, LoadedProgram, ProgramInfo, ProgramKind, RunTimeStatistics, TestRun};
pub use record_ring::RecordRing;
pub use shared_array::SharedArray;
pub use tracepoint::{MissedRuns, TracepointLink};

use std::os::fd::{FromRawFd, OwnedFd};

use crate::SyscallError;
use crate::error::check;
use attributes::Attributes;

/// Commands: `enum bpf_cmd` of linux/bpf.h.
mod command {
    pub(super) const MAP_CREATE: u32 = 0;
    pub(super) const MAP_UPDATE_ELEM: u32 = 2;
    pub(super) const MAP_DELETE_ELEM: u32 = 3;
    pub(super) const PROG_LOAD: u32 = 5;
    pub(super) const PROG_TEST_RUN: u32 = 10;
    pub(super) const PROG_GET_FD_BY_ID: u32 = 13;
    pub(super) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(super) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(super) const LINK_CREATE: u32 = 28;
    pub(super) const LINK_UPDATE: u32 = 29;
    pub(super) const ENABLE_STATS: u32 = 32;
}

/// bpf(2). Returns the kernel's value: a descriptor, or 0.
///
/// # Safety
/// Every address in the attributes is valid for as many bytes as the attributes say, for reading or writing as the
/// command does, until the call returns.
unsafe fn call<A: Attributes>(
    name: &'static str,
    command: u32,
    attributes: &mut A,
) -> Result<i32, SyscallError> {
    let len = size_of::<A>();
    // SAFETY: pointer and length describe `attributes`, which the kernel reads and may write; the caller answers for
    // the addresses in them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), len) };
    check(name, result as i32)
}

/// As `call`, for commands that return a descriptor, which is closed on exec.
///
/// # Safety
/// As for [`call`]; the command returns a descriptor.
unsafe fn open<A: Attributes>(
    name: &'static str,
    command: u32,
    attributes: &mut A,
) -> Result<OwnedFd, SyscallError> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(name, command, attributes)? };
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel takes it: at most 15 letters, digits, `_` and `.`; others become `_`.
fn object_name(name: &str) -> [u8; attributes::NAME_LEN] {
    let mut bytes = [0; attributes::NAME_LEN];
    for (to, from) in bytes.iter_mut().zip(name.bytes()).take(attributes::NAME_LEN - 1) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' { from } else { b'_' };
    }
    bytes
}

#[cfg(test)]
mod tests;
