//! Opening an interface, in the order that misses no packet and leaves nothing behind.
//!
//! ```text
//! is a program there? -> filter -> maps, program loaded -> may it be taken? -> for each queue: memory, rings, filled, bound, in the map
//!   -> promiscuous -> program attached: packets come from here on
//! ```
//!
//! Everything needs rights that are given up once the capture runs; nothing is opened later.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tapline_ebpf::RxMetadataCalls;
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, InterfaceId, LinkType};
use tapline_source::{Error, Event};
use tapline_sys::bpf::kernel_functions;
use tapline_sys::xsk::{BoundModes, BusyPolling, XdpSocket, XskSettings};
use tapline_sys::{Link, LinkControl, NetdevSocket, PacketSocket, RouteSocket, SyscallError};

use super::attachment::{self, Attachment, Loaded, XdpAttachMode};
use super::protect::{self, Session, Taking};
use super::queue::{Common, Queue, SCRATCH_LEN};
use super::warnings::LinkWarnings;
use super::{AfXdpError, AfXdpSettings, size};
use crate::af_packet::{LossWatch, Patterns, TimestampSource, is_pattern, snap_len};

/// Packets that one poll takes, with busy polling.
const BUSY_BUDGET: u32 = 64;

/// The completion ring must be there, and nothing is ever in it.
const COMPLETION_LEN: u32 = 64;

/// Receive queues that are served at most. No driver has more; packets of queues beyond are left to the host.
const QUEUES_MAX: u32 = 4096;

/// `NETDEV_XDP_RX_METADATA_*`: the metadata that drivers give programs.
const METADATA_TIME: u64 = 1;
const METADATA_VLAN: u64 = 4;

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EEXIST: i32 = 17;

pub(super) struct OpenInterface {
    pub(super) interface: Interface,
    pub(super) link: Link,
    pub(super) attachment: Arc<Attachment>,
    pub(super) queues: Vec<Queue>,
    /// Receive queues whose packets stay with the host.
    pub(super) others: Vec<u16>,
    pub(super) is_filtered: bool,
    pub(super) losses: LossWatch,
    pub(super) events: Vec<Event>,
    pub(super) summary: String,
    /// The longest rest in which no queue loses a packet.
    pub(super) rest_max: Duration,
}

/// Sockets for queries, in the namespace of the capture, and the results.
pub(super) struct Opener<'a> {
    pub(super) settings: &'a AfXdpSettings,
    pub(super) route: RouteSocket,
    pub(super) control: LinkControl,
    session: Option<Session>,
    links: Vec<Link>,
    memory: u64,
}

impl<'a> Opener<'a> {
    pub(super) fn new(settings: &'a AfXdpSettings) -> Result<Opener<'a>, AfXdpError> {
        let mut route = RouteSocket::open()?;
        let links = route.links()?;
        Ok(Opener {
            settings,
            route,
            control: LinkControl::open()?,
            // In another namespace the session has no way.
            session: if settings.netns.is_none() { Session::ours() } else { None },
            links,
            memory: tapline_sys::usage::physical_memory(),
        })
    }

    /// The interfaces that are meant, in the order of their numbers.
    pub(super) fn meant(&self) -> Result<Vec<Link>, Error> {
        let names = &self.settings.interfaces;
        let patterns =
            Patterns::resolve(names, &self.links).map_err(|error| Error::source("capture", error))?;
        if patterns.is_open() {
            let word = names.iter().find(|name| is_pattern(name)).cloned().unwrap_or_default();
            return Err(Error::source("capture", AfXdpError::OpenPattern { word }));
        }
        let mut meant: Vec<Link> =
            self.links.iter().filter(|link| patterns.is_named(&link.name)).cloned().collect();
        meant.sort_by_key(|link| link.index);
        Ok(meant)
    }

    /// Receive queues of an interface.
    pub(super) fn queues(&mut self, link: &Link) -> u32 {
        let told = self.control.receive_queues(&link.name).ok().filter(|queues| *queues > 0);
        told.unwrap_or(link.rx_queues).max(1)
    }

    /// Receive queues of an interface whose packets are taken.
    pub(super) fn served(&mut self, link: &Link) -> u32 {
        if self.settings.queue.is_some() { 1 } else { self.queues(link) }
    }

    /// Opens an interface with its queues, of `queues` in all.
    pub(super) fn open(&mut self, link: &Link, id: InterfaceId, queues: u64) -> Result<OpenInterface, Error> {
        let name = link.name.clone();
        let interface = self.describe(link);
        let compiled = self.settings.filter.as_ref().map_or(Ok(None), |compile| compile(&interface));
        // Such a filter runs behind the source, which takes all packets; one that is wrong is refused there.
        let filter = match compiled {
            Err(Error::Filter(reason)) => Err(reason.lines().next().unwrap_or_default().to_owned()),
            other => Ok(other?),
        };
        self.open_filtered(link, id, interface, filter, queues).map_err(|error| Error::source(&name, error))
    }

    /// Opens an interface whose filter is compiled, or cannot be for packets in front of the stack.
    fn open_filtered(
        &mut self,
        link: &Link,
        id: InterfaceId,
        interface: Interface,
        filter: Result<Option<CompiledFilter>, String>,
        queues: u64,
    ) -> Result<OpenInterface, AfXdpError> {
        let filter_or_refusal = filter.as_ref().map(Option::as_ref);
        let filter = filter_or_refusal.unwrap_or_default();
        self.refuse_occupied(link)?;
        let size = size::of(link.mtu, queues, self.settings.ring_len, self.memory);
        let own = self.queues(link).min(QUEUES_MAX);
        let served = match self.settings.queue {
            Some(queue) if u32::from(queue) >= own => {
                return Err(AfXdpError::NoSuchQueue { queue, queues: own });
            }
            Some(queue) => u32::from(queue)..u32::from(queue) + 1,
            None => 0..own,
        };
        let strips = self.strips_tags(link);
        let notes = self.notes(link, strips)?;
        let loaded = Loaded::new(filter, own as u16, size.several, notes.map(|notes| (link.index, notes)))?;
        let is_filtered = filter.is_some() && loaded.refusal.is_none();
        if !self.settings.force {
            let front = loaded.front.as_ref();
            let taking = Taking { front, is_whole: is_filtered, link_type: interface.link_type };
            protect::check(link, &self.links, self.session.as_ref(), &taking, &mut self.route)?;
        }
        let others = (0..own).filter(|queue| !served.contains(queue)).map(|queue| queue as u16).collect();
        let common =
            Common { interface: id, if_index: link.index, snap_len: snap_len(self.settings.snap_len) };
        let (mut queues, bound) = self.bind_all(link, served, size, common, &loaded)?;
        let mut told = LinkWarnings::about(&link.name);
        match filter_or_refusal.err().or(loaded.refusal.as_ref()) {
            Some(refusal) if loaded.front.is_some() => told.filter_weakened(refusal),
            Some(refusal) => told.filter_refused(refusal),
            None => {}
        }
        let witness = self.witness(link, &mut told)?;
        let (attachment, native) = self.attach(loaded, link, witness)?;
        if let Some(error) = native {
            told.not_native(&error);
        }
        if size.several && !bound.multi_buffer {
            told.single_buffer(size.chunk_len - XdpSocket::HEADROOM);
        }
        let notes = notes.filter(|_| attachment.cookie.is_some());
        let wants_time = self.note_time(notes, &attachment, &mut queues)?;
        if strips {
            let is_noted = notes.is_some_and(|notes| notes.vlan.is_some());
            told.stripped_tags(link, is_noted, is_filtered);
        }
        if !link.is_up() {
            told.down();
        }
        let events = told.into_events();
        let losses = LossWatch::start(&link.name, link.index, &mut self.route, &mut self.control);
        let summary = summary(&queues, bound, attachment.mode, size, wants_time);
        let rest_max = size::rest_max(size.chunks, bound.zero_copy, interface.speed);
        let attachment = Arc::new(attachment);
        Ok(OpenInterface {
            interface,
            link: link.clone(),
            attachment,
            queues,
            others,
            is_filtered,
            losses,
            events,
            summary,
            rest_max,
        })
    }

    /// Prepares the queues for the notes of the driver about each packet. Returns whether the adapter's time is wanted.
    ///
    /// # Errors
    /// [`AfXdpError::NoTime`] if it is wanted and the driver has none.
    fn note_time(
        &self,
        notes: Option<RxMetadataCalls>,
        attachment: &Attachment,
        queues: &mut [Queue],
    ) -> Result<bool, AfXdpError> {
        let has_time = notes.is_some_and(|notes| notes.time.is_some());
        let wants_time = self.settings.timestamps != TimestampSource::Host;
        if wants_time && !has_time {
            return Err(AfXdpError::NoTime);
        }
        for queue in queues {
            (queue.cookie, queue.wants_time) = (attachment.cookie, wants_time);
        }
        Ok(wants_time)
    }

    /// Refuses an interface that has an XDP program already, before anything is opened.
    fn refuse_occupied(&self, link: &Link) -> Result<(), AfXdpError> {
        let Some(program) = link.xdp else { return Ok(()) };
        let switch = match program.mode {
            1 => "xdpdrv",
            2 => "xdpgeneric",
            3 => "xdpoffload",
            _ => "xdp",
        };
        let interface = link.name.clone();
        Err(AfXdpError::Occupied { interface, program: attachment::describe(program.id), switch })
    }

    /// A socket on each queue.
    fn bind_all(
        &self,
        link: &Link,
        queues: Range<u32>,
        size: size::Size,
        common: Common,
        loaded: &Loaded,
    ) -> Result<(Vec<Queue>, BoundModes), AfXdpError> {
        let mut all: Vec<Queue> = Vec::new();
        let mut weakest = BoundModes { zero_copy: true, multi_buffer: true };
        for number in queues.clone() {
            let (socket, bound) = match self.bind(link.index, number, size) {
                Err(AfXdpError::Call { source }) if source.errno() == EINVAL && number > queues.start => {
                    let (interface, served) = (link.name.clone(), all.len() as u32);
                    return Err(AfXdpError::TooManyQueues {
                        interface,
                        queues: queues.end,
                        served,
                        wanted: served,
                        source,
                    });
                }
                other => other?,
            };
            loaded.sockets.set(number, socket.as_fd())?;
            weakest.zero_copy &= bound.zero_copy;
            weakest.multi_buffer &= bound.multi_buffer;
            all.push(Queue::new(socket, number as u16, common));
        }
        Ok((all, weakest))
    }

    fn bind(
        &self,
        if_index: u32,
        queue: u32,
        size: size::Size,
    ) -> Result<(XdpSocket, BoundModes), AfXdpError> {
        let settings = XskSettings {
            chunk_len: size.chunk_len,
            chunks: size.chunks,
            fill_len: size.chunks,
            completion_len: COMPLETION_LEN,
            rx_len: size.chunks,
            tx_len: 0,
            huge_pages: true,
        };
        let scratch_len = if size.several { SCRATCH_LEN } else { 0 };
        let mut socket = XdpSocket::open_with_scratch(&settings, scratch_len)?;
        socket.refill();
        let bound = socket.bind_when_free(if_index, queue, size.several).map_err(|source| {
            if source.errno() == EBUSY { AfXdpError::QueueTaken { queue, source } } else { source.into() }
        })?;
        if let Some(poll_us) = self.settings.busy_poll_us {
            socket.set_busy_poll(&BusyPolling { poll_us, budget: BUSY_BUDGET })?;
        }
        Ok((socket, bound))
    }

    /// A socket bound to the interface that receives nothing. It notices when the interface is removed, and it holds the
    /// promiscuous mode for as long as it lives.
    fn witness(&self, link: &Link, told: &mut LinkWarnings<'_>) -> Result<PacketSocket, SyscallError> {
        let socket = PacketSocket::open()?;
        socket.bind_to(link.index, 0)?;
        if self.settings.promiscuous
            && !link.is_loopback()
            && let Err(error) = socket.join_promiscuous(link.index)
        {
            told.not_promiscuous(&error);
        }
        Ok(socket)
    }

    /// Attaches the program. Another program that was attached since the first check is reported, too.
    fn attach(
        &mut self,
        loaded: Loaded,
        link: &Link,
        witness: PacketSocket,
    ) -> Result<(Attachment, Option<SyscallError>), AfXdpError> {
        loaded.attach(link.index, witness).or_else(|error| match &error {
            AfXdpError::Call { source } if matches!(source.errno(), EBUSY | EEXIST) => {
                let now = self.route.link(link.index)?;
                now.map_or(Ok(()), |link| self.refuse_occupied(&link))?;
                Err(error)
            }
            _ => Err(error),
        })
    }

    /// Whether packets may lack their VLAN tags: an adapter removes them, or a veth has received packets without them.
    fn strips_tags(&mut self, link: &Link) -> bool {
        if link.kind == "veth" {
            return true;
        }
        let features = self.control.features(&link.name).unwrap_or_default();
        features.iter().any(|feature| feature.name == "rx-vlan-hw-parse" && feature.is_on)
    }

    /// The notes that the program should ask the driver for: tags that are not in the packets, and the adapter's time
    /// if that is wanted.
    ///
    /// # Errors
    /// The adapter's time is wanted, and the adapter cannot be set to stamp packets.
    fn notes(&mut self, link: &Link, strips: bool) -> Result<Option<RxMetadataCalls>, AfXdpError> {
        let wants_time = self.settings.timestamps != TimestampSource::Host;
        if !wants_time && !strips {
            return Ok(None);
        }
        let features = NetdevSocket::open().and_then(|mut netdev| netdev.xdp_features(link.index));
        // A kernel that does not know the question has no answers for programs either.
        let told = features.ok().flatten().unwrap_or_default();
        let (has_time, has_vlan) = (told.metadata & METADATA_TIME != 0, told.metadata & METADATA_VLAN != 0);
        if wants_time && has_time && link.kind != "veth" {
            let stamped = self.control.stamp_all(&link.name);
            stamped.map_err(|source| AfXdpError::NotStamping { source })?;
        }
        let names = ["bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_vlan_tag"];
        let [time, vlan] = kernel_functions(names).unwrap_or_default();
        let cookie = RandomState::new().build_hasher().finish();
        let (time, vlan) = (time.filter(|_| wants_time && has_time), vlan.filter(|_| strips && has_vlan));
        Ok((time.is_some() || vlan.is_some()).then_some(RxMetadataCalls { time, vlan, cookie }))
    }

    fn describe(&mut self, link: &Link) -> Interface {
        let mut interface = Interface::new(&link.name, LinkType::of_hardware(link.hardware_type));
        interface.description.clone_from(&link.alias);
        interface.snap_len = snap_len(self.settings.snap_len);
        interface.if_index = link.index;
        interface.speed = self.control.speed(&link.name).ok().flatten();
        interface.filter.clone_from(&self.settings.filter_text);
        interface
    }
}

/// The way of an interface's capture, for people.
fn summary(
    queues: &[Queue],
    bound: BoundModes,
    mode: XdpAttachMode,
    size: size::Size,
    has_time: bool,
) -> String {
    let mib = f64::from(size.chunks) * f64::from(size.chunk_len) / f64::from(1 << 20);
    let count = match queues.len() {
        1 => "1 queue".to_owned(),
        n => format!("{n} queues"),
    };
    let copies = if bound.zero_copy { "zero copy" } else { "copied" };
    let place = match mode {
        XdpAttachMode::Native => "in the driver",
        XdpAttachMode::Generic => "in the stack",
    };
    let huge = queues.iter().all(|queue| queue.socket.has_huge_pages());
    let pages = if huge { " in huge pages" } else { "" };
    let clock = if has_time { "the adapter's clock" } else { "the clock once a batch" };
    format!("AF_XDP {place}, {copies}, {count} of {mib} MiB{pages}, time stamps: {clock}")
}
