//! Filters that are too large for classic BPF, in the kernel as eBPF.
//!
//! ```text
//! classic program --raise, optimise, emit--> eBPF --load--> Extended --attach--> socket
//!                                                              |
//!                                                              +-- directly, or where sockets may not be charged for its length
//!                                                                  (net.core.optmem_max): a trampoline, a map, the program
//! ```
//!
//! Loading takes a right that is given up once the capture runs; attaching takes none. Loaded programs are kept, so
//! that an interface that comes later gets the same program.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::counting::Counting;
use tapline_bpf::{self as bpf, Insn};
use tapline_ebpf::{self as ebpf, Hook};
use tapline_ir::CompiledFilter;
use tapline_sys::bpf::{LoadedProgram, Map, MapKind, ProgramKind};
use tapline_sys::{PacketSocket, SyscallError};

const ENOMEM: i32 = 12;

/// Programs shorter than this, in bytes, are within every kernel's `net.core.optmem_max`.
const ALWAYS_CHARGED: u32 = 16 << 10;

/// Programs kept: one for each link type and direction is what there can be.
const KEPT_MAX: usize = 16;

/// The name in bpftool(8).
const NAME: &str = "tapline_filter";

/// The program that the kernel took before the ring.
#[derive(Clone, Debug)]
pub(super) enum Accepted {
    Classic(Vec<Insn>),
    Extended(Arc<Extended>),
    Counting(Arc<Counting>),
}

impl Accepted {
    /// Puts it before the ring again, in place of the present one.
    pub(super) fn attach(&self, socket: &PacketSocket) -> Result<(), SyscallError> {
        match self {
            Accepted::Classic(program) => socket.attach_filter(program),
            Accepted::Extended(program) => program.attach(socket),
            Accepted::Counting(program) => program.attach(socket),
        }
    }
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Extended {
    program: LoadedProgram,
    /// Instructions, as emitted.
    pub(super) len: usize,
    /// A short program that goes on with the other. The map must stay open: it is emptied when it is closed.
    trampoline: Option<(LoadedProgram, Map)>,
}

impl Extended {
    /// Loads a classic program for a socket.
    ///
    /// # Errors
    /// Why it is not there, for people.
    pub(super) fn load(classic: &[Insn], hook: Hook) -> Result<Extended, String> {
        let filter = CompiledFilter::from(bpf::Program::new(classic.to_vec()).map_err(text)?);
        let graph = filter.values_for_sockets();
        graph.verify().map_err(text)?;
        let emitted = ebpf::emit(&graph, hook).map_err(text)?;
        let program = load(&emitted)?;
        let is_long = program.info().map_or(true, |info| info.translated_len > ALWAYS_CHARGED);
        // Without the rights for a map the program may still fit.
        let trampoline = if is_long { trampoline(&program).ok() } else { None };
        Ok(Extended { program, len: emitted.insns().len(), trampoline })
    }

    pub(super) fn attach(&self, socket: &PacketSocket) -> Result<(), SyscallError> {
        match (socket.attach_program(&self.program), &self.trampoline) {
            (Err(error), Some((trampoline, _))) if error.errno() == ENOMEM => {
                socket.attach_program(trampoline)
            }
            (result, _) => result,
        }
    }
}

fn trampoline(program: &LoadedProgram) -> Result<(LoadedProgram, Map), String> {
    let map = Map::create(MapKind::Programs, NAME, 1).map_err(text)?;
    map.set(0, program.as_fd()).map_err(text)?;
    let trampoline = load(&ebpf::trampoline(map.as_fd().as_raw_fd()))?;
    Ok((trampoline, map))
}

fn load(program: &ebpf::Program) -> Result<LoadedProgram, String> {
    LoadedProgram::load(ProgramKind::SocketFilter, NAME, program.insns()).map_err(text)
}

pub(super) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Programs loaded so far, shared by the workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<Vec<Entry>>>);

/// A classic program, and its result: or why the kernel has none.
type Entry = (Vec<Insn>, Result<Arc<Extended>, String>);

impl Loaded {
    /// This classic program as eBPF, loaded now or before.
    ///
    /// # Errors
    /// Why it is not there, for people.
    pub(super) fn get(&self, classic: &[Insn]) -> Result<Arc<Extended>, String> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, result)) = entries.iter().find(|(known, _)| known == classic) {
            return result.clone();
        }
        let result = Extended::load(classic, Hook::SocketFilter).map(Arc::new);
        if entries.len() < KEPT_MAX {
            entries.push((classic.to_vec(), result.clone()));
        }
        result
    }
}

/// Programs in the kernel whose runs and time the kernel counts, while statistics are on
/// ([`tapline_sys::bpf::RunTimeStatistics`]). A caller that asks for this gets filters as eBPF, however short: the
/// kernel does not count classic programs.
#[derive(Clone, Debug, Default)]
pub struct KernelFilterRuns(Arc<Mutex<Vec<Arc<Extended>>>>);

impl KernelFilterRuns {
    pub(super) fn watch(&self, program: &Arc<Extended>) {
        let mut programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !programs.iter().any(|known| Arc::ptr_eq(known, program)) {
            programs.push(Arc::clone(program));
        }
    }

    /// Runs so far, and nanoseconds that they took; `None` if no filter runs in the kernel as eBPF, or the kernel does
    /// not report them.
    pub fn read(&self) -> Option<(u64, u64)> {
        let programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let infos = programs.iter().map(|program| program.program.info().ok());
        let sums = infos.map(|info| info.map(|info| (info.runs, info.run_time_ns)));
        sums.reduce(|sum, next| Some((sum?.0 + next?.0, sum?.1 + next?.1)))?
    }
}
