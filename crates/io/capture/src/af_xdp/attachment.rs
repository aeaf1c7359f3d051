//! The program in front of an interface's sockets, and what belongs to it.
//!
//! ```text
//! filter -> classic BPF --raise, optimise--> graph --front--> XDP program        as ebpf::front says: match -> socket, else -> host, both counted
//!                                    +------ refused: a weaker part of the graph; or a program that takes everything.
//!                                             The whole filter then runs here
//! the same, which also asks the driver what it knows (notes)             where that is wanted, and the driver runs it
//! ```
//!
//! All of it ends with its descriptors: whatever becomes of this process, the interface is then as it was before.

use std::borrow::Cow;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

use tapline_ebpf::{self as ebpf, RxMetadataCalls, XdpFront};
use tapline_ir::{CompiledFilter, Ir};
use tapline_sys::bpf::{LoadError, LoadedProgram, Map, MapKind, ProgramKind, SharedArray, XdpLink, XdpMode};
use tapline_sys::{PacketSocket, SyscallError};

use super::AfXdpError;

/// The name in bpftool(8), and in the error of a second capture.
pub(super) const NAME: &str = "tapline_xdp";

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;

/// The place of the XDP program in a packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttachMode {
    /// In the driver, before the kernel has made anything of a packet.
    Native,
    /// In the stack: every packet is copied into a socket buffer first.
    Generic,
}

/// A program that is loaded and not yet attached.
#[derive(Debug)]
pub(super) struct Loaded {
    program: LoadedProgram,
    /// The one that makes notes, with their cookie; or why it was refused.
    noting: Option<Result<(LoadedProgram, u64), LoadError>>,
    pub(super) sockets: Map,
    counters: SharedArray,
    /// Filter that runs in the program: the whole one, or a weaker part of it.
    pub(super) front: Option<Ir>,
    /// Reason for which the whole filter does not run in the program, if it does not.
    pub(super) refusal: Option<String>,
}

/// An attached program. Dropped, it is off again.
#[derive(Debug)]
pub(super) struct Attachment {
    // The program goes first: it must not send packets to sockets that are no more.
    _link: XdpLink,
    _loaded: LoadedProgram,
    _sockets: Map,
    counters: SharedArray,
    pub(super) mode: XdpAttachMode,
    /// The cookie at the end of notes, if there are any.
    pub(super) cookie: Option<u64>,
    /// Bound to the interface; holds its promiscuous mode.
    witness: PacketSocket,
}

impl Loaded {
    /// Loads the program for `queues` queues; `several` says that packets may come in several buffers. Notes are for
    /// the interface of this number.
    ///
    /// # Errors
    /// There are no rights for programs, or the kernel refuses even one without a filter.
    pub(super) fn new(
        filter: Option<&CompiledFilter>,
        queues: u16,
        several: bool,
        notes: Option<(u32, RxMetadataCalls)>,
    ) -> Result<Loaded, AfXdpError> {
        let sockets = Map::create(MapKind::XdpSockets, NAME, queues.into())?;
        let counters = SharedArray::create(NAME, XdpFront::counters_len(queues), 1)?;
        let (sockets_fd, counters_fd) = (sockets.as_fd().as_raw_fd(), counters.as_fd().as_raw_fd());
        let front = XdpFront { sockets: sockets_fd, counters: counters_fd, queues, several, notes: None };
        let (filtering, refusal) = filter.map_or((None, None), |filter| filtering(filter, front));
        // What goes without a filter is one for packets of any number of buffers.
        let all = XdpFront { several: false, ..front };
        let (graph, program) = match filtering {
            Some((graph, program)) => (Some(graph), program),
            None => (None, load(&ebpf::front(None, all)?, None)?),
        };
        let noting = match notes {
            None => None,
            Some((if_index, notes)) => {
                let several = several && graph.is_some();
                let front = XdpFront { notes: Some(notes), several, ..front };
                let program = ebpf::front(graph.as_deref(), front)?;
                Some(load(&program, Some(if_index)).map(|program| (program, notes.cookie)))
            }
        };
        let front = graph.map(Cow::into_owned);
        Ok(Loaded { program, noting, sockets, counters, front, refusal })
    }

    /// Puts it before the interface: in the driver if that can, else before the stack. The second is why not in the
    /// driver.
    ///
    /// # Errors
    /// Another program is there, or none can be.
    pub(super) fn attach(
        self,
        if_index: u32,
        witness: PacketSocket,
    ) -> Result<(Attachment, Option<SyscallError>), AfXdpError> {
        let Loaded { program, noting, sockets, counters, .. } = self;
        let attachment = |link, loaded, mode, cookie| Attachment {
            _link: link,
            _loaded: loaded,
            _sockets: sockets,
            counters,
            mode,
            cookie,
            witness,
        };
        if let Some(Ok((noting, cookie))) = noting {
            match XdpLink::attach(&noting, if_index, XdpMode::Native) {
                Ok(link) => return Ok((attachment(link, noting, XdpAttachMode::Native, Some(cookie)), None)),
                Err(error) if matches!(error.errno(), EPERM | EBUSY | EEXIST) => return Err(error.into()),
                Err(_) => {}
            }
        }
        let (link, mode, reason) = match XdpLink::attach(&program, if_index, XdpMode::Native) {
            Ok(link) => (link, XdpAttachMode::Native, None),
            Err(error) if matches!(error.errno(), EPERM | EBUSY | EEXIST) => return Err(error.into()),
            Err(native) => match XdpLink::attach(&program, if_index, XdpMode::Generic) {
                Ok(link) => (link, XdpAttachMode::Generic, Some(native)),
                Err(error) if matches!(error.errno(), EPERM | EBUSY | EEXIST) => return Err(error.into()),
                Err(generic) => return Err(AfXdpError::NotAttached { native, generic }),
            },
        };
        Ok((attachment(link, program, mode, None), reason))
    }
}

impl Attachment {
    /// Lets every packet go to the host from now on. One that is on its way through the program may still come.
    pub(super) fn stop(&self) {
        self.counters.set_word(0, XdpFront::STOP, 1);
    }

    /// Whether the interface is still there: another one may have its number.
    pub(super) fn has_interface(&self) -> bool {
        // A socket that cannot be asked proves nothing.
        self.witness.has_interface().unwrap_or(true)
    }

    /// Packets of a queue that were sent to its socket, and those that were left to the host.
    pub(super) fn counts(&self, queue: u16) -> (u64, u64) {
        (
            self.counters.word(0, XdpFront::redirected_counter(queue)),
            self.counters.word(0, XdpFront::passed_counter(queue)),
        )
    }
}

/// The name of the program of this number, as far as it may be known.
pub(super) fn describe(id: u32) -> String {
    let name = match LoadedProgram::of_id(id).and_then(|program| program.info()) {
        Ok(info) if !info.name.is_empty() => format!("{:?}, ", info.name),
        Err(error) if error.errno() == ENOENT => "just gone, ".to_owned(),
        _ => String::new(),
    };
    format!("{name}id {id}")
}

/// A graph, and its program, loaded.
type Filtering<'a> = (Cow<'a, Ir>, LoadedProgram);

/// The filter in front, or the strongest of its weaker parts that the kernel takes; and the reason for which it is not
/// the whole.
fn filtering(filter: &CompiledFilter, front: XdpFront) -> (Option<Filtering<'_>>, Option<String>) {
    let whole = filter.values();
    match load_graph(whole, front) {
        Ok(program) => (Some((Cow::Borrowed(whole), program)), None),
        Err(refusal) => {
            let mut weaker = ebpf::weaker_fronts(whole);
            let taken = weaker
                .find_map(|graph| load_graph(&graph, front).ok().map(|program| (Cow::Owned(graph), program)));
            (taken, Some(refusal))
        }
    }
}

fn load_graph(graph: &Ir, front: XdpFront) -> Result<LoadedProgram, String> {
    graph.verify().map_err(text)?;
    let program = ebpf::front(Some(graph), front).map_err(text)?;
    load(&program, None).map_err(text)
}

/// As a program that takes packets of several buffers, which old kernels do not know; for one interface only, if one is
/// named.
fn load(program: &ebpf::Program, if_index: Option<u32>) -> Result<LoadedProgram, LoadError> {
    let load = |kind| match if_index {
        Some(if_index) => LoadedProgram::load_for(if_index, kind, NAME, program.insns()),
        None => LoadedProgram::load(kind, NAME, program.insns()),
    };
    load(ProgramKind::XdpFragments).or_else(|error| match error.errno() {
        EPERM => Err(error),
        _ => load(ProgramKind::Xdp),
    })
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
