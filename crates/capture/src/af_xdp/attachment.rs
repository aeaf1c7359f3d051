//! The program in front of an interface's sockets, and what belongs to it.
//!
//! ```text
//! filter -> classic BPF --raise, optimise--> graph --front--> XDP program        as ebpf::front says: match -> socket, else -> host, both counted
//!                                    +------ refused: a program that takes everything, and the filter runs here
//! ```
//!
//! All of it ends with its descriptors: whatever becomes of this process, the interface is then as it was before.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

use tapline_filter::bpf;
use tapline_filter::ebpf::{self, Front};
use tapline_filter::ir::{Field, Ir, Op, raise_program};
use tapline_filter::optimise::optimise;
use tapline_sys::bpf::{Insn, LoadError, Map, MapKind, Program, ProgramKind, SharedArray, XdpLink, XdpMode};
use tapline_sys::{PacketSocket, SyscallError};

use super::AfXdpError;

/// What bpftool(8) shows, and what a second capture says.
pub(super) const NAME: &str = "tapline_xdp";

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel has made anything of a packet.
    Native,
    /// In the stack: every packet is copied into a socket buffer first.
    Generic,
}

/// A program that is loaded and not yet attached.
#[derive(Debug)]
pub(super) struct Loaded {
    program: Program,
    pub(super) sockets: Map,
    book: SharedArray,
    /// Why the filter does not run in it, if there is one that does not.
    pub(super) refusal: Option<String>,
}

/// An attached program. Dropped, it is off again.
#[derive(Debug)]
pub(super) struct Attachment {
    // The program goes first: it must not send packets to sockets that are no more.
    _link: XdpLink,
    _loaded: Program,
    _sockets: Map,
    book: SharedArray,
    pub(super) mode: Mode,
    /// Holds the interface in promiscuous mode.
    _member: Option<PacketSocket>,
}

impl Loaded {
    /// Loads the program for so many queues; `several` says that packets may come in several buffers.
    ///
    /// # Errors
    /// That there are no rights for programs, or the kernel refuses even one without a filter.
    pub(super) fn new(
        filter: Option<&bpf::Program>,
        queues: u16,
        several: bool,
    ) -> Result<Loaded, AfXdpError> {
        let sockets = Map::create(MapKind::XdpSockets, NAME, queues.into())?;
        let book = SharedArray::create(NAME, Front::book_len(queues), 1)?;
        let front = Front { sockets: sockets.as_fd().as_raw_fd(), book: book.as_fd().as_raw_fd(), queues };
        let filtering = filter.map(|filter| filtering(filter, front, several));
        let (program, refusal) = match filtering {
            Some(Ok(program)) => (program, None),
            Some(Err(refusal)) => (load(&taking_all(front)?)?, Some(refusal)),
            None => (load(&taking_all(front)?)?, None),
        };
        Ok(Loaded { program, sockets, book, refusal })
    }

    /// Puts it before the interface: in the driver if that can, else before the stack. The second is why not in the driver.
    ///
    /// # Errors
    /// That another program is there, or none can be.
    pub(super) fn attach(
        self,
        if_index: u32,
        member: Option<PacketSocket>,
    ) -> Result<(Attachment, Option<SyscallError>), AfXdpError> {
        let Loaded { program, sockets, book, .. } = self;
        let (link, mode, reason) = match XdpLink::attach(&program, if_index, XdpMode::Native) {
            Ok(link) => (link, Mode::Native, None),
            Err(error) if matches!(error.errno(), EPERM | EBUSY | EEXIST) => return Err(error.into()),
            Err(native) => match XdpLink::attach(&program, if_index, XdpMode::Generic) {
                Ok(link) => (link, Mode::Generic, Some(native)),
                Err(error) if matches!(error.errno(), EPERM | EBUSY | EEXIST) => return Err(error.into()),
                Err(generic) => return Err(AfXdpError::NotAttached { native, generic }),
            },
        };
        let attachment =
            Attachment { _link: link, _loaded: program, _sockets: sockets, book, mode, _member: member };
        Ok((attachment, reason))
    }
}

impl Attachment {
    /// Lets every packet go to the host from now on. One that is on its way through the program may still come.
    pub(super) fn stop(&self) {
        self.book.set_word(0, Front::STOP, 1);
    }

    /// Packets of a queue that were sent to its socket, and those that were left to the host.
    pub(super) fn counts(&self, queue: u16) -> (u64, u64) {
        (self.book.word(0, Front::taken(queue)), self.book.word(0, Front::passed(queue)))
    }
}

/// The name of the program of this number, as far as it may be known.
pub(super) fn describe(id: u32) -> String {
    let name = match Program::of_id(id).and_then(|program| program.info()) {
        Ok(info) if !info.name.is_empty() => format!("{:?}, ", info.name),
        Err(error) if error.errno() == ENOENT => "just gone, ".to_owned(),
        _ => String::new(),
    };
    format!("{name}id {id}")
}

fn taking_all(front: Front) -> Result<ebpf::Program, AfXdpError> {
    ebpf::front(None, front).map_err(AfXdpError::from)
}

/// The filter's program, loaded; or why there is none, in words.
fn filtering(filter: &bpf::Program, front: Front, several: bool) -> Result<Program, String> {
    let mut graph = raise_program(filter);
    optimise(&mut graph);
    graph.verify().map_err(text)?;
    if several && asks_for_length(&graph) {
        return Err(
            "it asks for the packet's length, and a packet of several buffers does not tell it there"
                .to_owned(),
        );
    }
    let program = ebpf::front(Some(&graph), front).map_err(text)?;
    load(&program).map_err(text)
}

fn asks_for_length(graph: &Ir) -> bool {
    let is_length = |op: &Op| matches!(op, Op::Field(Field::WireLen | Field::CapLen));
    graph.blocks.iter().flat_map(|block| &block.instructions).any(|value| is_length(graph.op(*value)))
}

/// As a program that takes packets of several buffers, which old kernels do not know.
fn load(program: &ebpf::Program) -> Result<Program, LoadError> {
    let insns: Vec<Insn> = program
        .insns()
        .iter()
        .map(|insn| Insn {
            code: insn.code,
            registers: insn.registers(),
            offset: insn.offset,
            immediate: insn.immediate,
        })
        .collect();
    Program::load(ProgramKind::XdpFragments, NAME, &insns).or_else(|error| match error.errno() {
        EPERM => Err(error),
        _ => Program::load(ProgramKind::Xdp, NAME, &insns),
    })
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
