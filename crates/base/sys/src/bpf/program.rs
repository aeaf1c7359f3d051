//! Programs: loading them, running them on a packet of ours, and the kernel's facts about them.

use std::fmt;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use tapline_bpf::ebpf::{Insn, helper};

use super::attributes::{EnableStats, GetFd, GetInfo, ProgInfo, ProgLoad, TestRun as TestRunAttributes};
use super::{Unprivileged, call, command, object_name, open, unprivileged};
use crate::SyscallError;
use crate::capability::Capability;

const LOAD: &str = "bpf(BPF_PROG_LOAD)";
const TEST_RUN: &str = "bpf(BPF_PROG_TEST_RUN)";
const RUN_LIVE: &str = "bpf(BPF_PROG_TEST_RUN, BPF_F_TEST_XDP_LIVE_FRAMES)";
const INFO: &str = "bpf(BPF_OBJ_GET_INFO_BY_FD)";

/// The licence given to the kernel. No helper that is for GPL programs only is called with it.
const LICENCE: &std::ffi::CStr = c"MIT";

/// Licence of programs that call functions of the kernel's, or read its memory, which it lends to such only.
const LICENCE_OF_CALLERS: &std::ffi::CStr = c"Dual MIT/GPL";

/// `BPF_F_XDP_DEV_BOUND_ONLY`.
const BOUND_TO_DEVICE: u32 = 1 << 6;

/// Room for the verifier's words; the second is for when the first was too small.
const LOG_LENS: [usize; 2] = [1 << 18, 1 << 24];

/// The kernel gives up verification when a signal waits; so often it is asked again.
const TRIES_MAX: usize = 5;

// `struct bpf_insn` of linux/bpf.h: programs are handed to the kernel, and read from it, as they are.
const _: () = {
    assert!(size_of::<Insn>() == 8);
    assert!(offset_of!(Insn, code) == 0 && offset_of!(Insn, registers) == 1);
    assert!(offset_of!(Insn, offset) == 2 && offset_of!(Insn, immediate) == 4);
};

/// The kind of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramKind {
    /// Decides how much of a packet a socket gets (`BPF_PROG_TYPE_SOCKET_FILTER`). Minimum kernel: 3.19. Needs
    /// `CAP_BPF`, or before kernel 5.8 `CAP_SYS_ADMIN`.
    SocketFilter,
    /// Decides on a packet before the stack sees it (`BPF_PROG_TYPE_XDP`). Minimum kernel: 4.8. Needs `CAP_BPF` and
    /// `CAP_NET_ADMIN`, and `CAP_PERFMON` if it reads packets at places that it computes; or before kernel 5.8
    /// `CAP_SYS_ADMIN`.
    Xdp,
    /// An XDP program that takes packets of several buffers too (`BPF_F_XDP_HAS_FRAGS`): it sees the first one. Minimum
    /// kernel: 5.18.
    XdpFragments,
    /// Runs at a tracepoint of the kernel, with the tracepoint's words (`BPF_PROG_TYPE_RAW_TRACEPOINT`). Minimum
    /// kernel: 4.17. Needs `CAP_BPF` and `CAP_PERFMON`, or before kernel 5.8 `CAP_SYS_ADMIN`.
    RawTracepoint,
}

impl ProgramKind {
    fn number(self) -> u32 {
        match self {
            ProgramKind::SocketFilter => 1,
            ProgramKind::Xdp | ProgramKind::XdpFragments => 6,
            ProgramKind::RawTracepoint => 17,
        }
    }

    /// `BPF_F_*` of linux/bpf.h.
    fn flags(self) -> u32 {
        const XDP_HAS_FRAGS: u32 = 1 << 5;
        if self == ProgramKind::XdpFragments { XDP_HAS_FRAGS } else { 0 }
    }

    /// The cost of loading one.
    fn capabilities(self) -> &'static [Capability] {
        match self {
            ProgramKind::SocketFilter => &[Capability::Bpf],
            ProgramKind::Xdp | ProgramKind::XdpFragments => {
                &[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon]
            }
            ProgramKind::RawTracepoint => &[Capability::Bpf, Capability::Perfmon],
        }
    }

    /// The capabilities that the calling thread lacks.
    fn missing(self) -> Vec<Capability> {
        let is_missing = |right: &Capability| !right.is_effective().unwrap_or(false);
        self.capabilities().iter().copied().filter(is_missing).collect()
    }
}

/// The reason that a program was not loaded.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's answer.
    pub call: SyscallError,
    /// The kind of program.
    pub kind: ProgramKind,
    /// Capabilities that programs of the kind may need and the thread did not have; only set with `EPERM` and
    /// `EACCES`.
    pub missing: Vec<Capability>,
    /// The verifier's words, empty if it said nothing: it does not run without the right to load.
    pub log: String,
}

impl LoadError {
    /// The kernel's error number, as in errno(3).
    pub fn errno(&self) -> i32 {
        self.call.errno()
    }

    /// The verifier's last word before its statistics, which gives the reason.
    pub fn reason(&self) -> Option<&str> {
        let is_reason = |line: &&str| !line.trim().is_empty() && !line.starts_with("processed ");
        self.log.lines().rev().find(is_reason)
    }

    /// Whether the program was too long, or had too many ways through it for the verifier.
    pub fn is_too_large(&self) -> bool {
        let log_says = || self.log.contains("too large") || self.log.contains("too complex");
        self.errno() == libc::E2BIG || log_says()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)?;
        if self.errno() == libc::ENOSYS {
            return f.write_str("; this kernel was built without bpf(2)");
        }
        if let Some(reason) = self.reason() {
            write!(f, "; the verifier: {reason}")?;
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = self.missing.iter().map(|right| right.name()).collect();
        write!(f, "; it needs {} (before Linux 5.8 CAP_SYS_ADMIN)", names.join(" and "))?;
        match unprivileged() {
            Unprivileged::Forbidden | Unprivileged::ForbiddenForNow if self.errno() == libc::EPERM => {
                f.write_str(", for kernel.unprivileged_bpf_disabled is set")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.call.source)
    }
}

/// The fate of a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The value that the program returned.
    pub value: u32,
    /// Nanoseconds that one run took, on average over the repetitions.
    pub duration_ns: u32,
}

/// The kernel's account of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Number in the kernel: `bpftool prog show id ...`.
    pub id: u32,
    /// The name that it was loaded with.
    pub name: String,
    /// A hash of its instructions.
    pub tag: u64,
    /// Bytes after the verifier rewrote it, 8 for each instruction; 0 if the kernel does not reveal it.
    pub translated_len: u32,
    /// Bytes of native code; 0 if it is interpreted, or if the kernel does not reveal it.
    pub native_len: u32,
    /// Instructions that the verifier went through; 0 before kernel 5.16.
    pub verified_insns: u32,
    /// Nanoseconds that it ran while [`RunTimeStatistics`] were on.
    pub run_time_ns: u64,
    /// Number of runs while [`RunTimeStatistics`] were on.
    pub runs: u64,
}

/// A program that the verifier accepted.
#[derive(Debug)]
pub struct LoadedProgram {
    fd: OwnedFd,
}

impl LoadedProgram {
    /// Makes the kernel verify, translate and keep the program.
    ///
    /// # Errors
    /// [`LoadError`], with the verifier's words: `EPERM` without the rights that the kind needs, `E2BIG` for a
    /// program without instructions or with more than a million, `EACCES` or `EINVAL` for a program that the verifier
    /// refuses.
    pub fn load(kind: ProgramKind, name: &str, insns: &[Insn]) -> Result<LoadedProgram, LoadError> {
        LoadedProgram::load_bound(kind, None, name, insns)
    }

    /// Loads an XDP program for this interface only, which may ask the driver for metadata of a packet
    /// (`bpf_xdp_metadata_rx_*`). It can be attached in the driver only. Minimum kernel: 6.3.
    ///
    /// # Errors
    /// As of [`load`](Self::load); `EOPNOTSUPP` if the driver has no metadata; `EINVAL` on older kernels or without
    /// such an interface.
    pub fn load_for(
        if_index: u32,
        kind: ProgramKind,
        name: &str,
        insns: &[Insn],
    ) -> Result<LoadedProgram, LoadError> {
        LoadedProgram::load_bound(kind, Some(if_index), name, insns)
    }

    fn load_bound(
        kind: ProgramKind,
        if_index: Option<u32>,
        name: &str,
        insns: &[Insn],
    ) -> Result<LoadedProgram, LoadError> {
        let failure = match load(kind, if_index, name, insns, &mut []) {
            Ok(fd) => return Ok(LoadedProgram { fd }),
            Err(call) => call,
        };
        let refused = |call: SyscallError, log: String| {
            let is_refusal = matches!(call.errno(), libc::EPERM | libc::EACCES);
            LoadError { call, kind, missing: if is_refusal { kind.missing() } else { Vec::new() }, log }
        };
        if matches!(failure.errno(), libc::EPERM | libc::ENOSYS) {
            return Err(refused(failure, String::new()));
        }
        let mut log = Vec::new();
        for len in LOG_LENS {
            log = vec![0; len];
            match load(kind, if_index, name, insns, &mut log) {
                // A load that failed for want of memory may succeed now.
                Ok(fd) => return Ok(LoadedProgram { fd }),
                Err(call) if call.errno() == libc::ENOSPC => {}
                Err(call) => return Err(refused(call, text(&log))),
            }
        }
        Err(refused(failure, text(&log)))
    }

    /// The program of this number, of any process. Needs `CAP_SYS_ADMIN`. Minimum kernel: 4.13.
    ///
    /// # Errors
    /// `ENOENT` if there is none; `EPERM` without the right.
    pub fn of_id(id: u32) -> Result<LoadedProgram, SyscallError> {
        let mut attributes = GetFd { id, ..GetFd::default() };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_PROG_GET_FD_BY_ID)", command::PROG_GET_FD_BY_ID, &mut attributes)? };
        Ok(LoadedProgram { fd })
    }

    /// Runs it `repeat` times (at least once) on a packet. A socket filter sees it from byte 14 on, behind the Ethernet
    /// header; an XDP program sees all of it. At least 14 bytes, at most about a page less some hundred. Minimum
    /// kernel: 4.12.
    ///
    /// # Errors
    /// `EINVAL` for a packet that is too short or too long; `EINTR` if a signal came meanwhile; `EPERM` without the
    /// right.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> Result<TestRun, SyscallError> {
        let len =
            u32::try_from(packet.len()).map_err(|_| SyscallError::from_errno(TEST_RUN, libc::EINVAL))?;
        let mut attributes = TestRunAttributes {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: len,
            data_in: packet.as_ptr() as u64,
            repeat: repeat.max(1),
            ..TestRunAttributes::default()
        };
        // SAFETY: `data_in` points to `len` bytes that live through the call and are only read; there is no output
        // buffer.
        unsafe { call(TEST_RUN, command::PROG_TEST_RUN, &mut attributes)? };
        Ok(TestRun { value: attributes.retval, duration_ns: attributes.duration })
    }

    /// Runs an XDP program on `repeat` frames (at least one), with the effect of its return value: `XDP_REDIRECT`
    /// sends them. Each begins as `frame`, or as the program left its memory. Redirected frames are handed to the
    /// interface after every `batch` frames (1 to 256), and earlier if more than 16 of them wait. Minimum kernel:
    /// 5.18.
    ///
    /// # Errors
    /// `EINVAL` for a frame shorter than 14 bytes or longer than about a page less 700, and on older kernels; `EINTR`
    /// if a signal came, with some of the frames done; `ENOMEM`.
    pub fn run_live(&self, frame: &[u8], repeat: u32, batch: u32) -> Result<(), SyscallError> {
        /// `BPF_F_TEST_XDP_LIVE_FRAMES`.
        const LIVE_FRAMES: u32 = 1 << 1;
        let len = u32::try_from(frame.len()).map_err(|_| SyscallError::from_errno(RUN_LIVE, libc::EINVAL))?;
        let mut attributes = TestRunAttributes {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_size_in: len,
            data_in: frame.as_ptr() as u64,
            repeat: repeat.max(1),
            flags: LIVE_FRAMES,
            batch_size: batch,
            ..TestRunAttributes::default()
        };
        // SAFETY: `data_in` points to `len` bytes that live through the call and are only read; there is no output
        // buffer.
        unsafe { call(RUN_LIVE, command::PROG_TEST_RUN, &mut attributes)? };
        Ok(())
    }

    /// The kernel's knowledge of it. Minimum kernel: 4.13; fields that older kernels do not have are 0.
    ///
    /// # Errors
    /// The error of bpf(2).
    pub fn info(&self) -> Result<ProgramInfo, SyscallError> {
        let mut info = ProgInfo::default();
        let mut attributes = GetInfo {
            bpf_fd: self.fd.as_raw_fd() as u32,
            info_len: size_of::<ProgInfo>() as u32,
            info: &raw mut info as u64,
        };
        // SAFETY: `info` is as long as `info_len` says, and names no buffers to which the kernel would write.
        unsafe { call(INFO, command::OBJ_GET_INFO_BY_FD, &mut attributes)? };
        let name_len = info.name.iter().position(|&byte| byte == 0).unwrap_or(info.name.len());
        Ok(ProgramInfo {
            id: info.id,
            name: String::from_utf8_lossy(&info.name[..name_len]).into_owned(),
            tag: u64::from_be_bytes(info.tag),
            translated_len: info.xlated_prog_len,
            native_len: info.jited_prog_len,
            verified_insns: info.verified_insns,
            run_time_ns: info.run_time_ns,
            runs: info.run_cnt,
        })
    }
}

impl AsFd for LoadedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One try, or some if signals come; with the verifier's words if there is room for them.
fn load(
    kind: ProgramKind,
    if_index: Option<u32>,
    name: &str,
    insns: &[Insn],
    log: &mut [u8],
) -> Result<OwnedFd, SyscallError> {
    let (licence, binding) = match if_index {
        Some(_) => (LICENCE_OF_CALLERS, BOUND_TO_DEVICE),
        None if insns.contains(&Insn::call(helper::PROBE_READ_KERNEL)) => (LICENCE_OF_CALLERS, 0),
        None => (LICENCE, 0),
    };
    let count = u32::try_from(insns.len()).map_err(|_| SyscallError::from_errno(LOAD, libc::E2BIG))?;
    let mut attributes = ProgLoad {
        prog_type: kind.number(),
        insn_cnt: count,
        insns: insns.as_ptr() as u64,
        license: licence.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        prog_flags: kind.flags() | binding,
        prog_name: object_name(name),
        prog_ifindex: if_index.unwrap_or(0),
        ..ProgLoad::default()
    };
    let mut tries = 0;
    loop {
        tries += 1;
        // SAFETY: `insns` points to `count` instructions in the layout of struct bpf_insn (the assertions at the top of
        // this file) and `license` to a C string, both only read; `log_buf` is null or `log_size` bytes to write. All
        // live through the call, which returns a descriptor.
        match unsafe { open(LOAD, command::PROG_LOAD, &mut attributes) } {
            Err(error) if error.errno() == libc::EAGAIN && tries < TRIES_MAX => {}
            result => return result,
        }
    }
}

/// The C string that a log is.
fn text(log: &[u8]) -> String {
    let len = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..len]).trim_end().to_owned()
}

/// While this lives, the kernel counts runs of programs and the time that they take: about 20 ns more for each run.
#[derive(Debug)]
pub struct RunTimeStatistics {
    _fd: OwnedFd,
}

impl RunTimeStatistics {
    /// Turns them on for all programs of the system. Minimum kernel: 5.8.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `EINVAL` on older kernels.
    pub fn enable() -> Result<RunTimeStatistics, SyscallError> {
        // BPF_STATS_RUN_TIME.
        let mut attributes = EnableStats { kind: 0 };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_ENABLE_STATS)", command::ENABLE_STATS, &mut attributes)? };
        Ok(RunTimeStatistics { _fd: fd })
    }
}
