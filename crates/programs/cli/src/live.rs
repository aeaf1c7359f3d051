//! Interfaces as sources, whatever takes the packets off them.
//!
//! ```text
//! -i NAMES := name,...          AF_PACKET: copies; the host keeps its packets
//!           | xdp:name,...      AF_XDP: the packets themselves; the host gets those that the filter refuses
//!           | xdp?:name,...     AF_XDP if that can be, else AF_PACKET
//!           | name@queue        one receive queue of one interface, by either way
//!           | drops:            packets that the kernel drops in a network namespace, with its reasons
//!           | tap:name          a capture of tapline serve, which captures for many readers
//!           | tap:name/group    a share of it: readers of one group share its packets
//! ```
//!
//! All names of a capture have the same prefix: `xdp:` for all of them or for none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tapline_capture::af_packet::{self, AfPacket, CaptureDirection, LATENCY_RECORDING_MS};
use tapline_capture::af_xdp::{self, AfXdp, WAKEUP_DELAY_US};
use tapline_capture::{DropSettings, DroppedPackets};
use tapline_packet::{Interface, LinkType};
use tapline_source::Source;
use tapline_syntax::units::count_in;
pub(crate) use tapline_tap_client::PREFIX as TAP;
use tapline_tap_client::protocol::{AttachRequest, OfferedCapture, Policy, StartPosition};
use tapline_tap_client::{Client, WakeThreshold, parse_name, socket_path};

use crate::args::parse_duration;
use crate::mistakes::{mistake, misuse};
use crate::wake::WakeWish;

/// Lag granted to a leased reader: bytes of the buffer, and milliseconds.
const LEASE: Policy = Policy::Leased { bytes: 16 << 20, ms: 5_000 };

/// Delay of packets at the daemon, and then before they are read, for a capture without an audience.
const PATIENT_DELAY_MS: u32 = 50;
/// See [`PATIENT_DELAY_MS`]. A process that wakes finds its memory in no cache: where many readers want little, wake-ups
/// are most of the cost.
const PATIENT: WakeThreshold =
    WakeThreshold { min_bytes: 4 << 20, min_packets: 0, max_delay: Duration::from_millis(450) };

/// Prefix of an interface whose packets AF_XDP takes.
const XDP: &str = "xdp:";
/// Prefix of an interface whose packets AF_XDP takes if it can.
const XDP_IF_POSSIBLE: &str = "xdp?:";

/// Microseconds for which one call polls at most, if nothing else is said.
const BUSY_POLL_US: &str = "20";

/// Options of `xdp:` interfaces. docs/afxdp.md.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct XdpArgs {
    /// With xdp: take the packets even if this SSH session or the host's default route needs them.
    #[arg(long, help_heading = "Input")]
    pub(crate) xdp_force: bool,
    /// With xdp: poll the driver instead of waiting for interrupts, for at most US microseconds a call. Takes a whole
    /// processor.
    #[arg(long, value_name = "US", num_args = 0..=1, require_equals = true, default_missing_value = BUSY_POLL_US,
        value_parser = count_in::<u32>(1..=1_000_000), help_heading = "Input")]
    pub(crate) busy_poll: Option<u32>,
}

/// Options of `tap:` captures. docs/serve.md.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TapArgs {
    /// With tap: begin with the packets of the last TIME (5s, 10m), or with all packets that the daemon still has.
    #[arg(long, value_name = "TIME|all", value_parser = since, help_heading = "Input")]
    pub(crate) since: Option<Since>,
    /// With tap: policy for a reader that is too slow. lossy: the reader loses packets; leased: the daemon keeps its
    /// packets for a bounded time, and they are read without copying; lossless: the capture waits for the reader, if
    /// the rules allow that.
    #[arg(long, value_name = "POLICY", help_heading = "Input")]
    pub(crate) policy: Option<PolicyArg>,
    /// With tap: when the daemon ends or is killed, wait for the next one and continue.
    #[arg(long, help_heading = "Input")]
    pub(crate) reconnect: bool,
    /// With tap: a filter that labels packets; may be given up to 255 times. A packet's label, in text and JSON, is the
    /// number of the first label filter that accepts it, counted from 1. The daemon runs these filters on packets that
    /// the capture's filter accepts.
    #[arg(long, value_name = "FILTER", help_heading = "Input")]
    pub(crate) label: Vec<String>,
    /// With tap: the socket of tapline serve. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH", help_heading = "Input")]
    pub(crate) socket: Option<PathBuf>,
}

/// The first packet of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    All,
    Ago(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    Lossy,
    Leased,
    Lossless,
}

/// Reads a [`Since`].
///
/// # Errors
/// The text is not a time.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if text == "all" { Ok(Since::All) } else { parse_duration(text).map(Since::Ago) }
}

impl TapArgs {
    /// Whether any of these options was given.
    pub(crate) fn is_given(&self) -> bool {
        let is_reader = self.since.is_some() || self.policy.is_some() || self.reconnect;
        is_reader || self.socket.is_some() || !self.label.is_empty()
    }
}

/// Opened sources, one for each worker, and a line for each interface.
pub(crate) struct Live {
    pub(crate) sources: Vec<Box<dyn Source>>,
    pub(crate) announcements: Vec<String>,
}

/// The interface that a name means, without what says how to take its packets, and from which queue.
pub(crate) fn bare_name(name: &str) -> &str {
    split_queue(without_way(name)).0
}

/// A name without the prefix that says how to take its packets.
fn without_way(name: &str) -> &str {
    name.strip_prefix(XDP).or_else(|| name.strip_prefix(XDP_IF_POSSIBLE)).unwrap_or(name)
}

/// The name and the receive queue of `eth0@3`.
fn split_queue(name: &str) -> (&str, Option<u16>) {
    let parts = name.rsplit_once('@').and_then(|(name, queue)| Some((name, queue.parse().ok()?)));
    parts.filter(|(name, _)| !name.is_empty()).map_or((name, None), |(name, queue)| (name, Some(queue)))
}

/// The way that packets are taken, AF_XDP or AF_PACKET: known for certain once a capture is open.
#[derive(Clone, Debug)]
pub(crate) struct CaptureBackend(Arc<AtomicBool>);

impl CaptureBackend {
    /// The way that names mean.
    ///
    /// # Errors
    /// That they mean several.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<CaptureBackend> {
        Ok(CaptureBackend(Arc::new(AtomicBool::new(is_xdp(names)?))))
    }

    /// Whether it is AF_XDP.
    pub(crate) fn is_xdp(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn fall_back(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Whether AF_XDP is meant.
///
/// # Errors
/// That it is meant for some of the names only.
fn is_xdp<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<bool> {
    let is_it = |name: &&str| name.starts_with(XDP) || name.starts_with(XDP_IF_POSSIBLE);
    let (with, without): (Vec<&str>, Vec<&str>) = names.into_iter().partition(is_it);
    match (with.first(), without.first()) {
        (Some(with), Some(without)) => misuse!(
            "{with} and {without}: a capture takes all its packets in one way; write {XDP} before each name or none, or run two captures \
             (tapline run may have both: device({with}), device({without}))"
        ),
        (with, _) => Ok(with.is_some()),
    }
}

/// Opens interfaces by their names. The filter of the settings is compiled for the way that `way` says by then.
pub(crate) fn open(
    mut settings: af_packet::AfPacketSettings,
    way: &CaptureBackend,
    xdp: XdpArgs,
    tap: &TapArgs,
) -> Result<Live> {
    if settings.interfaces.iter().any(|name| name.starts_with(TAP)) {
        return open_tap(&settings, tap);
    }
    if tap.is_given() {
        misuse!(
            "--since, --policy, --reconnect, --label and --socket are for captures of tapline serve (-i {TAP}NAME)"
        );
    }
    if !way.is_xdp() && (xdp.xdp_force || xdp.busy_poll.is_some()) {
        misuse!("--xdp-force and --busy-poll are for interfaces with {XDP} before their name (-i {XDP}eth0)");
    }
    if settings.interfaces.iter().any(|name| name.starts_with(DroppedPackets::NAME)) {
        return open_drops(&settings);
    }
    let may_fall_back = settings.interfaces.iter().any(|name| name.starts_with(XDP_IF_POSSIBLE));
    take_queue(&mut settings)?;
    let mut announcements = Vec::new();
    if way.is_xdp() {
        match open_xdp(&settings, xdp) {
            Err(error) if may_fall_back => {
                way.fall_back();
                announcements.push(format!("captured by AF_PACKET, as AF_XDP cannot be: {error:#}"));
            }
            opened => return opened,
        }
    }
    let workers = AfPacket::open_workers(settings)?;
    announcements.extend(workers.first().map(|first| listening(first, workers.len())).unwrap_or_default());
    Ok(Live { sources: workers.into_iter().map(|worker| Box::new(worker) as _).collect(), announcements })
}

/// Takes the queue out of the names: one of one interface.
fn take_queue(settings: &mut af_packet::AfPacketSettings) -> Result<()> {
    settings.interfaces.iter_mut().for_each(|name| *name = without_way(name).to_owned());
    let queues: Vec<u16> = settings.interfaces.iter().filter_map(|name| split_queue(name).1).collect();
    match (queues.as_slice(), settings.interfaces.as_mut_slice()) {
        ([], _) => Ok(()),
        ([_], [_]) if settings.workers > 1 => {
            misuse!("one receive queue has one worker: leave --workers out")
        }
        ([queue], [name]) => {
            settings.queue = Some(*queue);
            *name = bare_name(name).to_owned();
            Ok(())
        }
        _ => misuse!(
            "{}: a capture reads one receive queue of one interface (-i eth0@3); tapline run may have several devices",
            settings.interfaces.join(", ")
        ),
    }
}

/// Checks an interface whose packets others may read by rules of access.
///
/// # Errors
/// The packets are those that the kernel drops: rules of access cannot cover what their bytes may be.
pub(crate) fn check_shared(name: &str) -> Result<()> {
    const NAME: &str = DroppedPackets::NAME;
    if name.starts_with(NAME) {
        misuse!(
            "{NAME} has no other readers, whatever the rules say: packets that the kernel drops may have bytes of its memory that were \
             never in a packet; as root use tapline capture -i {NAME} or tapline record -i {NAME}"
        );
    }
    Ok(())
}

/// Opens the packets that the kernel drops.
fn open_drops(settings: &af_packet::AfPacketSettings) -> Result<Live> {
    let wanted = drop_settings(settings)?;
    let dropped = DroppedPackets::open(&wanted)?;
    if let Some(compile) = &settings.filter {
        compile(&dropped.interfaces()[0])?;
    }
    let line = format!(
        "listening on drops of {}, {}, ring {} KiB",
        wanted
            .netns
            .map_or("this network namespace".to_owned(), |name| format!("the network namespace {name}")),
        link_type_text(DroppedPackets::LINK_TYPE),
        dropped.ring_len() / 1024
    );
    Ok(Live { sources: vec![Box::new(dropped)], announcements: vec![line] })
}

/// The settings that packets can have that the kernel drops.
///
/// # Errors
/// Others are set.
fn drop_settings(settings: &af_packet::AfPacketSettings) -> Result<DropSettings> {
    const NAME: &str = DroppedPackets::NAME;
    if settings.interfaces != [NAME] {
        misuse!("one capture reads {NAME} alone, under this name: not \"{}\"", settings.interfaces.join(","));
    }
    let has_clock = settings.timestamps != af_packet::TimestampSource::Host;
    let others = [
        (settings.workers > 1, "more workers than one (--workers)"),
        (settings.direction != CaptureDirection::Both, "a direction (-Q)"),
        (settings.min_packets.is_some(), "a least number of packets (--wake)"),
        (!settings.promiscuous, "promiscuous mode to switch off (-p): they come from no interface"),
        (has_clock, "time stamps of an adapter (-j): the kernel's clock gives them"),
        (settings.tally.is_some(), "a count in the kernel (--in-kernel)"),
    ];
    if let Some((_, words)) = others.iter().find(|(is_set, _)| *is_set) {
        misuse!("packets that the kernel drops (-i {NAME}) do not have {words}; leave that out");
    }
    Ok(DropSettings {
        netns: settings.netns.clone(),
        snap_len: settings.snap_len,
        ring_len: settings.ring_len,
        filter_text: settings.filter_text.clone(),
    })
}

/// Becomes a reader of a capture of `tapline serve`.
fn open_tap(settings: &af_packet::AfPacketSettings, args: &TapArgs) -> Result<Live> {
    let [name] = settings.interfaces.as_slice() else {
        misuse!("{}: a capture reads one {TAP}NAME and nothing else", settings.interfaces.join(", "));
    };
    let (capture, group) =
        parse_name(name.trim_start_matches(TAP)).map_err(|why| mistake(format_args!("{name}: {why}")))?;
    if group.is_some() && args.since.is_some() {
        misuse!("{name}: a group shares packets that come: leave --since out, or the group");
    }
    if settings.workers > 1 || settings.direction != CaptureDirection::Both || settings.netns.is_some() {
        misuse!("{name}: workers, direction and network namespace are the daemon's to choose");
    }
    if !settings.promiscuous
        || settings.ring_len.is_some()
        || settings.timestamps != af_packet::TimestampSource::Host
    {
        misuse!("{name}: promiscuous mode, the kernel's buffer and time stamps are the daemon's to choose");
    }
    let (delay_ms, wake) = match settings.min_packets {
        Some(packets) => WakeWish { packets, time_ms: settings.latency_ms }.at_tap(),
        None if settings.latency_ms >= LATENCY_RECORDING_MS => (PATIENT_DELAY_MS, PATIENT),
        None => (0, WakeThreshold::IMMEDIATE),
    };
    let program = program();
    let (client, socket) = Client::connect_for(args.socket.as_deref(), capture, &program)?;
    let attach = AttachRequest {
        capture: capture.to_owned(),
        filter: settings.filter_text.clone(),
        policy: match args.policy {
            None | Some(PolicyArg::Lossy) => Policy::Lossy,
            Some(PolicyArg::Leased) => LEASE,
            Some(PolicyArg::Lossless) => Policy::Lossless,
        },
        start: match args.since {
            None => StartPosition::Newest,
            Some(Since::All) => StartPosition::Oldest,
            Some(Since::Ago(time)) => {
                StartPosition::SinceMs(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
        },
        delay_ms,
        group,
        labels: args.label.clone(),
        ..AttachRequest::default()
    };
    let mut tap = client.attach(&attach)?;
    tap.set_wake(wake);
    if args.reconnect {
        tap = tap.reconnecting(&socket, &program, &attach);
    }
    let line = |interface: &Interface| {
        format!(
            "reading {name}: {}, {}, {}",
            interface.label(),
            link_type_text(interface.link_type),
            attach.policy.name()
        )
    };
    let announcements = tap.interfaces().iter().map(line).collect();
    Ok(Live { sources: vec![Box::new(tap)], announcements })
}

/// The captures of `tapline serve` that we may read, if it says so in time.
///
/// # Errors
/// There is no daemon, or it does not answer.
pub(crate) fn captures(
    socket: Option<&Path>,
    timeout: Duration,
) -> Result<Vec<OfferedCapture>, tapline_tap_client::Error> {
    Client::list(&socket_path(socket), &program(), timeout)
}

/// Name of this program in the daemon's status.
fn program() -> String {
    format!("tapline {}", env!("CARGO_PKG_VERSION"))
}

fn open_xdp(settings: &af_packet::AfPacketSettings, xdp: XdpArgs) -> Result<Live> {
    if settings.min_packets.is_some() {
        misuse!(
            "--wake is for AF_PACKET and {TAP}NAME: an AF_XDP socket does not count what waits: leave {XDP} out"
        );
    }
    if settings.direction == CaptureDirection::Out {
        misuse!(
            "{XDP}: an XDP program sees what an interface receives, and nothing that it sends: leave {XDP} out"
        );
    }
    let workers = AfXdp::open_workers(&af_xdp::AfXdpSettings {
        interfaces: settings.interfaces.clone(),
        netns: settings.netns.clone(),
        filter: settings.filter.clone(),
        filter_text: settings.filter_text.clone(),
        snap_len: settings.snap_len,
        promiscuous: settings.promiscuous,
        ring_len: settings.ring_len,
        queue: settings.queue,
        workers: settings.workers,
        // A reader that prints or forwards packets does not rest.
        wakeup_delay_us: if settings.latency_ms > 1 { WAKEUP_DELAY_US } else { 0 },
        busy_poll_us: xdp.busy_poll,
        timestamps: settings.timestamps,
        force: xdp.xdp_force,
    })?;
    let threads = threads(workers.len());
    let mut announcements = workers.first().map_or_else(Vec::new, |first| {
        let line = |(interface, summary): (&Interface, &str)| {
            let link_type = link_type_text(interface.link_type);
            format!("listening on {}, {link_type}, {summary}{threads}", interface.name)
        };
        first.interfaces().iter().zip(first.summaries()).map(line).collect()
    });
    if workers.len() > 1 {
        announcements.push(
            "workers have the packets of their queues, as the adapter spreads them: both directions of a flow meet in one worker only if it hashes \
             them alike (ethtool -x)"
                .to_owned(),
        );
    }
    Ok(Live { sources: workers.into_iter().map(|worker| Box::new(worker) as _).collect(), announcements })
}

fn listening(source: &AfPacket, workers: usize) -> Vec<String> {
    let threads = threads(workers);
    let line = |(interface, (_, ring)): (&Interface, (&str, tapline_sys::RingGeometry))| {
        let mib = ring.len() as f64 / f64::from(1 << 20);
        format!(
            "listening on {}, {}, ring {mib} MiB{threads}",
            interface.name,
            link_type_text(interface.link_type)
        )
    };
    source.interfaces().iter().zip(source.rings()).map(line).collect()
}

fn threads(workers: usize) -> String {
    if workers > 1 { format!(", {workers} workers") } else { String::new() }
}

/// A link type's name and description.
pub(crate) fn link_type_text(link_type: LinkType) -> String {
    format!(
        "link type {} ({})",
        link_type.name().unwrap_or("unknown"),
        link_type.description().unwrap_or("no description")
    )
}

#[cfg(test)]
mod tests {
    use tapline_capture::af_packet::{AfPacketSettings, KernelTally, TimestampSource};

    use super::*;

    #[test]
    fn options_of_drops_are_taken_or_refused() {
        let all = AfPacketSettings {
            netns: Some("blue".to_owned()),
            snap_len: 40,
            ring_len: Some(1 << 20),
            filter_text: "udp".to_owned(),
            ..AfPacketSettings::new(&["drops:"])
        };
        let taken = drop_settings(&all).unwrap();
        assert_eq!((taken.netns.as_deref(), taken.snap_len), (Some("blue"), 40));
        assert_eq!((taken.ring_len, taken.filter_text.as_str()), (Some(1 << 20), "udp"));
        let plain = || AfPacketSettings::new(&["drops:"]);
        for (settings, option) in [
            (AfPacketSettings { workers: 2, ..plain() }, "--workers"),
            (AfPacketSettings { direction: CaptureDirection::In, ..plain() }, "-Q"),
            (AfPacketSettings { min_packets: Some(2), ..plain() }, "--wake"),
            (AfPacketSettings { promiscuous: false, ..plain() }, "-p"),
            (AfPacketSettings { timestamps: TimestampSource::Adapter, ..plain() }, "-j"),
            (AfPacketSettings { tally: Some(KernelTally::of_count()), ..plain() }, "--in-kernel"),
            (AfPacketSettings::new(&["drops:", "eth0"]), "drops:,eth0"),
            (AfPacketSettings::new(&["drops:@3"]), "drops:@3"),
        ] {
            let error = drop_settings(&settings).unwrap_err().to_string();
            assert!(error.contains(option) && !error.starts_with("drops"), "{error}");
            // No way around it, and no right is needed to be refused.
            let way = CaptureBackend::of(["drops:"]).unwrap();
            let opened = open(settings, &way, XdpArgs::default(), &TapArgs::default());
            assert_eq!(opened.err().map(|error| error.to_string()), Some(error));
        }
        let way = CaptureBackend::of(["drops:"]).unwrap();
        let polling = XdpArgs { busy_poll: Some(20), ..XdpArgs::default() };
        let error = open(plain(), &way, polling, &TapArgs::default()).err().expect("refused");
        assert!(error.to_string().contains("--busy-poll"), "{error}");
    }

    #[test]
    fn all_names_are_of_one_kind() {
        assert!(is_xdp(["xdp:eth0", "xdp:eth1"]).unwrap());
        assert!(!is_xdp(["eth0", "eth1"]).unwrap() && !is_xdp([]).unwrap());
        assert!(is_xdp(["eth0", "xdp:eth1"]).unwrap_err().to_string().contains("before each name or none"));
        assert!(is_xdp(["xdp?:eth0"]).unwrap());
        for name in ["xdp:eth0", "eth0", "eth0@3", "xdp?:eth0@12"] {
            assert_eq!(bare_name(name), "eth0", "{name}");
        }
        assert_eq!((split_queue("eth0@3"), split_queue("eth0@x")), (("eth0", Some(3)), ("eth0@x", None)));
        let mut one = af_packet::AfPacketSettings::new(&["xdp?:eth0@3"]);
        take_queue(&mut one).unwrap();
        assert_eq!((one.interfaces, one.queue), (vec!["eth0".to_owned()], Some(3)));
        let mut two = af_packet::AfPacketSettings::new(&["eth0@3", "eth1"]);
        assert!(take_queue(&mut two).unwrap_err().to_string().contains("one receive queue of one interface"));
    }
}
