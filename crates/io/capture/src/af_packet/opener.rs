//! Opening a tap, in the order that loses no packet and lets no unwanted one in.
//!
//! ```text
//! socket (protocol 0) -> virtio header, sent packets away, filter -> ring -> clock -> promiscuous -> bind
//!                                        several workers or interfaces:  drop all ... bind -> fanout -> filter
//! ```
//!
//! A worker's socket gets every packet between bind and joining its group; so it lets nothing in until all have joined.
//! Several interfaces are opened closed too, so that they start within microseconds of each other.

use std::cell::RefCell;
use std::sync::Arc;

use tapline_bpf::{Insn, code};
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, InterfaceId, LinkType};
use tapline_source::{Error, Event, UnfitLinkType};
use tapline_sys::{
    BlockRing, Link, LinkControl, NetNs, PacketSocket, RingGeometry, RouteSocket, SyscallError,
};

use super::block::Frame;
use super::counting::{Counting, KernelTally};
use super::extended::{Accepted, Loaded, text};
use super::growing::{self, Growable};
use super::pattern::Patterns;
use super::spares::Spares;
use super::tap::{Parts, Tap};
use super::workers::Shared;
use super::{AfPacketError, AfPacketSettings, CaptureDirection, kernel_filter, size, timestamps};
use crate::link_state::LinkState;

/// Bytes of a link's header, with two VLAN tags, at most.
const LINK_HEADER_LEN: u32 = 22;
/// Bytes of a ring that no packet comes to.
const UNUSED_RING_LEN: u64 = 64 << 10;
/// Bytes that are kept of packets whose interface cannot have the filter: they are counted, and nothing reads them.
const UNFIT_SNAP_LEN: u32 = 1;
/// Bytes of a ring for such packets: thousands of them, as each takes about a hundred bytes.
const UNFIT_RING_LEN: u64 = 512 << 10;

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

/// The filter of an interface whose packets are all refused.
const REFUSE_ALL: [Insn; 1] = [Insn::new(code::RET | code::K, 0)];

/// A filter in place of the capture filter.
#[derive(Debug)]
enum Restriction {
    Never,
    To(CompiledFilter),
    /// Nothing again.
    NoLonger,
}

/// Opens taps, also after rights were given up.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) settings: Arc<AfPacketSettings>,
    pub(super) patterns: Patterns,
    pub(super) route: RouteSocket,
    pub(super) control: LinkControl,
    pub(super) spares: Spares,
    pub(super) shared: Shared,
    /// Number of the worker that opens.
    pub(super) worker: usize,
    memory: u64,
    restriction: RefCell<Restriction>,
}

/// A tap, and what there is to say of it.
#[derive(Debug)]
pub(super) struct OpenTap {
    pub(super) tap: Tap,
    pub(super) interface: Interface,
    /// Whether the filter runs in the kernel.
    pub(super) is_filtered: bool,
    /// Whether the program in the kernel may refuse packets.
    pub(super) refuses: bool,
    /// Reason for which the interface does not support the filter: its packets are lent to be counted.
    pub(super) unfit: Option<String>,
    pub(super) events: Vec<Event>,
}

/// The ring that an interface is to have, one of `rings` in all.
#[derive(Clone, Copy)]
pub(super) struct RingWish {
    pub(super) id: InterfaceId,
    pub(super) speed: Option<u64>,
    pub(super) rings: u64,
    /// Whether it may begin small.
    pub(super) grows: bool,
}

/// A socket's set-up.
struct SetUp {
    parts: Parts,
    is_filtered: bool,
}

pub(super) enum InterfaceFilter {
    AcceptAll,
    Program(CompiledFilter),
    /// The interface's link type cannot have the capture filter; the compiler's message.
    Unfit(String),
}

impl InterfaceFilter {
    fn program(&self) -> Option<&CompiledFilter> {
        match self {
            InterfaceFilter::Program(program) => Some(program),
            _ => None,
        }
    }

    fn unfit(&self) -> Option<&str> {
        match self {
            InterfaceFilter::Unfit(reason) => Some(reason),
            _ => None,
        }
    }
}

/// The program for the kernel.
struct Programs {
    wanted: Vec<Insn>,
    /// Everything passes, for kernels that refuse the wanted one.
    fallback: Vec<Insn>,
    has_filter: bool,
}

impl Opener {
    /// Sockets to ask with, in the right namespace.
    pub(super) fn new(
        settings: Arc<AfPacketSettings>,
        shared: Shared,
        worker: usize,
    ) -> Result<Opener, AfPacketError> {
        let namespace = settings.netns.as_deref().map(open_namespace).transpose()?;
        let ask = || Ok((RouteSocket::open()?, LinkControl::open()?));
        let asked = within(&settings, namespace.as_ref(), ask)?;
        let (mut route, control) = asked.map_err(|e| AfPacketError::of_call("network interfaces", e))?;
        let links = route.links().map_err(|e| AfPacketError::of_call("network interfaces", e))?;
        let patterns = Patterns::resolve(&settings.interfaces, &links)?;
        let memory = tapline_sys::usage::physical_memory();
        let restriction = RefCell::new(Restriction::Never);
        shared.flow_share.load(&settings);
        Ok(Opener {
            settings,
            patterns,
            route,
            control,
            spares: Spares::new(namespace, shared.kept.clone()),
            shared,
            worker,
            memory,
            restriction,
        })
    }

    /// A socket that hears of changes.
    pub(super) fn monitor(&self) -> Result<RouteSocket, AfPacketError> {
        within(&self.settings, self.spares.namespace(), RouteSocket::monitor)?
            .map_err(|e| AfPacketError::of_call("network interfaces", e))
    }

    /// All interfaces that there are.
    pub(super) fn links(&mut self) -> Result<Vec<Link>, AfPacketError> {
        self.route.links().map_err(|e| AfPacketError::of_call("network interfaces", e))
    }

    /// Opens sockets in advance, where some may be needed later; `growable` of them for rings that grow.
    pub(super) fn keep_spares(&mut self, growable: usize) {
        if self.patterns.is_open() || self.settings.workers > 1 {
            self.spares.fill(growable);
        }
    }

    /// Opens a tap with a socket, which is in no group of workers yet.
    pub(super) fn open_ring(
        &mut self,
        socket: PacketSocket,
        link: &Link,
        interface: &Interface,
        filter: &InterfaceFilter,
        wish: &RingWish,
    ) -> Result<OpenTap, Error> {
        let mut events = Vec::new();
        events.extend(filter.unfit().map(|reason| unfit_event(interface, reason)));
        let set_up = match self.set_up(&socket, link, filter, wish, &mut events) {
            Ok(Some(set_up)) => set_up,
            failed => {
                self.put_back(socket, link);
                failed?;
                // An old kernel: the ring is whole from the start.
                let socket =
                    self.spares.socket(&link.name).map_err(|error| Error::source(&link.name, error))?;
                let wish = RingWish { grows: false, ..*wish };
                return self.open_ring(socket, link, interface, filter, &wish);
            }
        };
        let SetUp { parts, is_filtered } = set_up;
        let tap = Tap::new(link, socket, parts);
        events.extend(state_event(&tap));
        let is_filtered = is_filtered && !self.is_lent_unfit(filter);
        let refuses = is_filtered && !matches!(filter, InterfaceFilter::AcceptAll);
        let (interface, unfit) = (interface.clone(), filter.unfit().map(str::to_owned));
        Ok(OpenTap { tap, interface, is_filtered, refuses, unfit, events })
    }

    /// Sets a socket up for an interface; `None` if the kernel has no groups for rings that grow.
    fn set_up(
        &mut self,
        socket: &PacketSocket,
        link: &Link,
        filter: &InterfaceFilter,
        wish: &RingWish,
        events: &mut Vec<Event>,
    ) -> Result<Option<SetUp>, Error> {
        let name = link.name.as_str();
        let RingWish { id, speed, rings, grows } = *wish;
        let fail = |source: SyscallError| Error::source(name, AfPacketError::of_call(name, source));
        if self.settings.vnet_header {
            socket.set_vnet_header(true).map_err(fail)?;
        }
        let programs = self.programs(link.is_loopback(), socket, filter);
        let is_shared = self.settings.workers > 1;
        let starts_closed = is_shared || rings > 1;
        let counting = match self.is_lent_unfit(filter) {
            true => None,
            false => self.attach_counting(socket, &programs, name, events)?,
        };
        let attached = match &counting {
            Some(counting) => Some(Accepted::Counting(Arc::clone(counting))),
            None => self.attach_watched(socket, &programs),
        };
        let (accepted, is_filtered) = match attached {
            Some(accepted) => (accepted, true),
            None => attach(socket, programs, &self.shared.loaded, events, name).map_err(fail)?,
        };
        if starts_closed {
            socket.attach_drop_all().map_err(fail)?;
        }
        let is_unused =
            counting.is_some() && self.settings.tally.as_ref().is_some_and(KernelTally::ends_packets);
        let only_len = match (is_unused, filter.unfit()) {
            (true, _) => Some(UNUSED_RING_LEN),
            (false, Some(_)) => Some(UNFIT_RING_LEN),
            (false, None) => None,
        };
        let whole = self.geometry(speed, rings, only_len, link.mtu);
        let first = if only_len.is_none() && grows { self.first_ring(link, whole, rings) } else { None };
        let geometry = first.unwrap_or(whole);
        let (ring, geometry) = map_ring(socket, geometry, self.settings.receive_hash, name, events)?;
        timestamps::set_up(self.settings.timestamps, name, &mut self.control, socket)
            .map_err(|error| Error::source(name, error))?;
        self.join_promiscuous(link, socket, events);
        socket.bind(link.index).map_err(fail)?;
        let (mut group, mut growable) = (None, None);
        if first.is_some() {
            let Ok(alone) = growing::make_group(socket, self.ignores_sent(link.is_loopback())) else {
                return Ok(None);
            };
            group = Some(alone);
            growable = Some(Growable { geometry: whole, group: alone });
        }
        let snap_len = self.snap_len(filter);
        let frame = Frame { interface: id, has_vnet_header: self.settings.vnet_header, snap_len };
        let program = starts_closed.then_some(accepted);
        let parts = Parts { id, ring, geometry, frame, counting, program, group, growable };
        Ok(Some(SetUp { parts, is_filtered }))
    }

    /// Puts a socket back among the spare ones: its interface could not be opened, or is gone.
    pub(super) fn put_back(&self, socket: PacketSocket, link: &Link) {
        if self.joins_promiscuous(&link.name, link.is_loopback()) {
            // Where it was not joined there is nothing to leave.
            let _ = socket.leave_promiscuous(link.index);
        }
        self.spares.put_back(socket);
    }

    /// Refuses a receive queue that the interface does not have.
    pub(super) fn check_queue(&mut self, link: &Link) -> Result<(), AfPacketError> {
        let told = self.control.receive_queues(&link.name).ok().filter(|queues| *queues > 0);
        let queues = told.unwrap_or(link.rx_queues).max(1);
        match self.settings.queue {
            Some(queue) if u32::from(queue) >= queues => Err(AfPacketError::NoSuchQueue { queue, queues }),
            _ => Ok(()),
        }
    }

    /// Joins again the membership that the interface lost when it was removed.
    pub(super) fn join_promiscuous(&self, link: &Link, socket: &PacketSocket, events: &mut Vec<Event>) {
        if !self.joins_promiscuous(&link.name, link.is_loopback()) {
            return;
        }
        if let Err(error) = socket.join_promiscuous(link.index) {
            let text = format!("refused promiscuous mode ({error}): packets for other hosts are not seen");
            events.push(Event { interface: link.name.clone(), text, is_warning: true });
        }
    }

    pub(super) fn describe(&self, link: &Link, speed: Option<u64>) -> Interface {
        let mut interface = Interface::new(&link.name, LinkType::of_hardware(link.hardware_type));
        interface.description.clone_from(&link.alias);
        interface.snap_len = self.settings.snap_len();
        interface.if_index = link.index;
        interface.hardware_type = Some(link.hardware_type);
        interface.speed = speed;
        interface.filter.clone_from(&self.settings.filter_text);
        interface
    }

    pub(super) fn wanted(&self, interface: &Interface) -> Result<InterfaceFilter, Error> {
        let compiled = self.settings.filter.as_ref().map_or(Ok(None), |compile| compile(interface));
        match (compiled, &*self.restriction.borrow()) {
            (Ok(_), Restriction::To(program)) => Ok(InterfaceFilter::Program(program.clone())),
            (Ok(program), _) => Ok(program.map_or(InterfaceFilter::AcceptAll, InterfaceFilter::Program)),
            (Err(Error::Filter(reason)), _) => Ok(InterfaceFilter::Unfit(reason)),
            (Err(error), _) => Err(error),
        }
    }

    /// Whether packets of an interface that cannot have the filter are lent, so that they are counted. The kernel
    /// refuses them where sockets share a count in the kernel, so that none may lend, and where the caller narrows the
    /// filter.
    fn is_lent_unfit(&self, filter: &InterfaceFilter) -> bool {
        let is_counted_together = |tally: &KernelTally| tally.is_shared() && tally.is_in_kernel();
        let is_together = self.settings.tally.as_ref().is_some_and(is_counted_together);
        filter.unfit().is_some() && !is_together && !self.settings.is_restrictable
    }

    /// The most bytes that are kept of packets.
    fn snap_len(&self, filter: &InterfaceFilter) -> u32 {
        let snap_len = self.settings.snap_len();
        if filter.unfit().is_some() { snap_len.min(UNFIT_SNAP_LEN) } else { snap_len }
    }

    /// Whether something else than the capture filter decided since the start.
    pub(super) fn was_restricted(&self) -> bool {
        !matches!(*self.restriction.borrow(), Restriction::Never)
    }

    /// From now on this program decides, or the capture filter again.
    pub(super) fn restrict(&self, program: Option<&CompiledFilter>) {
        let restriction = program.cloned().map_or(Restriction::NoLonger, Restriction::To);
        self.restriction.replace(restriction);
    }

    /// Gives a capturing socket the program that is wanted by now.
    pub(super) fn attach_again(&self, tap: &Tap, interface: &Interface) -> Result<(), Error> {
        let filter = self.wanted(interface)?;
        let programs = self.programs(tap.is_loopback, &tap.socket, &filter);
        let fail = |source| Error::source(&tap.name, AfPacketError::of_call(&tap.name, source));
        // If the kernel refuses it, all packets come: callers that restrict also filter.
        attach(&tap.socket, programs, &self.shared.loaded, &mut Vec::new(), &tap.name).map(drop).map_err(fail)
    }

    fn programs(&self, is_loopback: bool, socket: &PacketSocket, filter: &InterfaceFilter) -> Programs {
        // A packet sent on a loopback interface comes back as received: one of the two copies is enough (as libpcap
        // has it).
        let direction = match self.settings.direction {
            CaptureDirection::Both if is_loopback => CaptureDirection::In,
            direction => direction,
        };
        let drops_sent = direction == CaptureDirection::In && socket.set_ignore_outgoing(true).is_ok();
        let (AfPacketSettings { queue, .. }, snap_len) = (&*self.settings, self.snap_len(filter));
        let build = |insns| kernel_filter::program(insns, direction, drops_sent, *queue, snap_len);
        let refuses_all = filter.unfit().is_some() && !self.is_lent_unfit(filter);
        Programs {
            wanted: match refuses_all {
                true => build(Some(&REFUSE_ALL)),
                false => build(filter.program().map(CompiledFilter::insns)),
            },
            fallback: build(None),
            has_filter: filter.program().is_some(),
        }
    }

    /// The filter as eBPF, where its run time is wanted and the kernel takes it.
    fn attach_watched(&self, socket: &PacketSocket, programs: &Programs) -> Option<Accepted> {
        let runs = self.settings.kernel_filter_runs.as_ref().filter(|_| programs.has_filter)?;
        let extended = self.shared.loaded.get(&programs.wanted).ok()?;
        extended.attach(socket).ok()?;
        runs.watch(&extended);
        Some(Accepted::Extended(extended))
    }

    /// The filter with a count, where that is wanted and the kernel takes it; an event says why not.
    fn attach_counting(
        &self,
        socket: &PacketSocket,
        programs: &Programs,
        name: &str,
        events: &mut Vec<Event>,
    ) -> Result<Option<Arc<Counting>>, Error> {
        let Some(tally) = &self.settings.tally else { return Ok(None) };
        let attached = tally.load(&programs.wanted).and_then(|counting| {
            counting.attach(socket).map_err(text)?;
            Ok(counting)
        });
        match attached {
            Ok(counting) => Ok(Some(counting)),
            // What one socket samples another must not lend whole.
            Err(error) if tally.is_shared() && tally.is_in_kernel() => {
                Err(Error::source(name, format!("the kernel does not sample for this socket: {error}")))
            }
            Err(error) => {
                let work = if tally.is_shared() { "sampled" } else { "counted" };
                let text =
                    format!("packets are {work} here, at more cost, as the kernel does not count: {error}");
                events.push(Event { interface: name.to_owned(), text, is_warning: false });
                Ok(None)
            }
        }
    }

    /// The ring of an interface; of `only_len` bytes if that is given.
    fn geometry(&self, speed: Option<u64>, rings: u64, only_len: Option<u64>, mtu: u32) -> RingGeometry {
        let AfPacketSettings { ring_len, latency_ms, workers, min_packets, .. } = *self.settings;
        let snap_len = self.settings.snap_len();
        let packet_len = mtu.saturating_add(LINK_HEADER_LEN).min(snap_len);
        let ring_len = only_len.or(ring_len);
        let workers = workers.max(1) as u64;
        size::geometry(&size::Wish {
            ring_len,
            speed,
            workers,
            rings: rings.max(1) * workers,
            memory: self.memory,
            retire_ms: latency_ms.max(1),
            packets: min_packets.map(|packets| size::BlockWish { packets, packet_len, snap_len }),
        })
    }

    /// Later fragments that came to a worker without regard to their flow.
    pub(super) fn fragments_apart(&self) -> u64 {
        self.shared.flow_share.apart()
    }

    /// Whether packets that this host sends are kept away by the kernel.
    pub(super) fn ignores_sent(&self, is_loopback: bool) -> bool {
        match self.settings.direction {
            CaptureDirection::In => true,
            CaptureDirection::Both => is_loopback,
            CaptureDirection::Out => false,
        }
    }

    /// Another socket for the interface of a tap, which lets nothing in and is not bound, and its filter.
    pub(super) fn second_socket(
        &mut self,
        tap: &Tap,
        interface: &Interface,
    ) -> Result<(PacketSocket, Accepted), Error> {
        let name = tap.name.as_str();
        let fail = |source: SyscallError| Error::source(name, AfPacketError::of_call(name, source));
        let filter = self.wanted(interface)?;
        let socket = self.spares.socket(name).map_err(|error| Error::source(name, error))?;
        if self.settings.vnet_header {
            socket.set_vnet_header(true).map_err(fail)?;
        }
        let programs = self.programs(tap.is_loopback, &socket, &filter);
        let accepted = match self.attach_watched(&socket, &programs) {
            Some(accepted) => accepted,
            None => attach(&socket, programs, &self.shared.loaded, &mut Vec::new(), name).map_err(fail)?.0,
        };
        socket.attach_drop_all().map_err(fail)?;
        let timestamps = self.settings.timestamps;
        timestamps::set_up(timestamps, name, &mut self.control, &socket)
            .map_err(|error| Error::source(name, error))?;
        if self.joins_promiscuous(name, tap.is_loopback) {
            // What was refused before was told then.
            let _ = socket.join_promiscuous(tap.if_index);
        }
        Ok((socket, accepted))
    }

    fn joins_promiscuous(&self, name: &str, is_loopback: bool) -> bool {
        self.settings.promiscuous && self.patterns.is_chosen(name) && !is_loopback
    }
}

/// Puts the wanted program before the ring; as eBPF, if it is too large for classic BPF; or, if the kernel refuses
/// both, the one that lets everything pass. Returns the attached program, and whether that is the filter.
fn attach(
    socket: &PacketSocket,
    programs: Programs,
    loaded: &Loaded,
    events: &mut Vec<Event>,
    name: &str,
) -> Result<(Accepted, bool), SyscallError> {
    let Programs { wanted, fallback, has_filter } = programs;
    let refusal = match socket.attach_filter(&wanted) {
        Ok(()) => return Ok((Accepted::Classic(wanted), true)),
        Err(error) if has_filter && matches!(error.errno(), ENOMEM | EINVAL) => error.source,
        Err(error) => return Err(error),
    };
    let len = wanted.len();
    let mut tell =
        |text, warning| events.push(Event { interface: name.to_owned(), text, is_warning: warning });
    let extended = loaded.get(&wanted).and_then(|extended| {
        extended.attach(socket).map_err(|error| error.to_string())?;
        Ok(extended)
    });
    match extended {
        Ok(extended) => {
            let extended_len = extended.len;
            tell(
                format!(
                    "the filter of {len} instructions is too large for classic BPF; it runs in the kernel as eBPF of {extended_len}"
                ),
                false,
            );
            Ok((Accepted::Extended(extended), true))
        }
        Err(extended_refusal) => {
            tell(
                format!(
                    "the kernel refused the filter of {len} instructions ({refusal}; as eBPF: {extended_refusal}): all packets are copied and \
                     filtered here, at more cost"
                ),
                true,
            );
            socket.attach_filter(&fallback)?;
            Ok((Accepted::Classic(fallback), false))
        }
    }
}

/// Sets up the largest ring that there is memory for, from `wanted` down. Reports a smaller one.
fn map_ring(
    socket: &PacketSocket,
    wanted: RingGeometry,
    receive_hash: bool,
    name: &str,
    events: &mut Vec<Event>,
) -> Result<(BlockRing, RingGeometry), Error> {
    let (ring, got) = size::largest(wanted, name, |geometry| socket.map_ring(geometry, receive_hash))
        .map_err(|error| Error::source(name, error))?;
    events.extend((got != wanted).then(|| smaller_ring(name, &wanted, &got)));
    Ok((ring, got))
}

fn smaller_ring(name: &str, wanted: &RingGeometry, got: &RingGeometry) -> Event {
    let kib = |geometry: &RingGeometry| geometry.len() >> 10;
    let text = format!("no memory for a ring of {} KiB; it has {} KiB", kib(wanted), kib(got));
    Event { interface: name.to_owned(), text, is_warning: true }
}

/// The event for an interface whose link type cannot have the filter.
fn unfit_event(interface: &Interface, reason: &str) -> Event {
    let unfit = UnfitLinkType { link_type: interface.link_type, reason: reason.to_owned(), packets: 0 };
    Event { interface: interface.name.clone(), text: unfit.clause(), is_warning: true }
}

/// The event for a link that does not run at the start.
fn state_event(tap: &Tap) -> Option<Event> {
    let text = match tap.state {
        LinkState::Down => "is down: nothing is captured until it is up",
        LinkState::NoCarrier => "has no carrier",
        LinkState::Running | LinkState::Gone => return None,
    };
    Some(Event {
        interface: tap.name.clone(),
        text: text.to_owned(),
        is_warning: tap.state == LinkState::Down,
    })
}

pub(crate) fn open_namespace(name: &str) -> Result<NetNs, AfPacketError> {
    NetNs::open(name).map_err(|source| AfPacketError::no_such_namespace(name, source))
}

fn within<T: Send>(
    settings: &AfPacketSettings,
    namespace: Option<&NetNs>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, AfPacketError> {
    let Some(namespace) = namespace else { return Ok(work()) };
    let name = settings.netns.clone().unwrap_or_default();
    namespace.run(work).map_err(|source| AfPacketError::Namespace { name, source })
}
