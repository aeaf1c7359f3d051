//! Interfaces as sources, whatever takes the packets off them.
//!
//! ```text
//! -i NAMES := name,...          AF_PACKET: copies; the host keeps its packets
//!           | xdp:name,...      AF_XDP: the packets themselves; the host gets those that the filter refuses
//!           | tap:name          a capture of tapline serve, which does one of the above for many
//! ```
//!
//! One kind for all names of a capture: `xdp:` may stand before each of them or before none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use tapline_capture::Source;
use tapline_capture::af_packet::{self, AfPacket, CaptureDirection, LATENCY_RECORDING_MS};
use tapline_capture::af_xdp::{self, AfXdp, WAKEUP_DELAY_US};
use tapline_packet::{Interface, LinkType};
use tapline_syntax::units::count_in;
pub(crate) use tapline_tap::PREFIX as TAP;
use tapline_tap::protocol::{AttachRequest, OfferedCapture, Policy, StartPosition};
use tapline_tap::{Client, WakeThreshold, socket_path};

use crate::args::parse_duration;

/// Lag granted to a leased reader: bytes of the buffer, and milliseconds.
const LEASE: Policy = Policy::Leased { bytes: 16 << 20, ms: 5_000 };

/// Delay of packets at the daemon, and then before they are read, for a capture without an audience.
const PATIENT_DELAY_MS: u32 = 50;
/// See [`PATIENT_DELAY_MS`].
const PATIENT: WakeThreshold = WakeThreshold { min_bytes: 4 << 20, max_delay: Duration::from_millis(250) };

/// Prefix of an interface whose packets AF_XDP takes.
const XDP: &str = "xdp:";

/// Microseconds for which one call polls at most, if nothing else is said.
const BUSY_POLL_US: &str = "20";

/// Options of `xdp:` interfaces. docs/afxdp.md.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct XdpArgs {
    /// With xdp: take the packets although this SSH session or the host's default route needs them.
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
    /// With tap: begin with the packets of the last TIME (5s, 10m), or with all that the daemon still has.
    #[arg(long, value_name = "TIME|all", value_parser = since, help_heading = "Input")]
    pub(crate) since: Option<Since>,
    /// With tap: the fate of a reader that is too slow. lossy: it loses packets; leased: the daemon keeps its packets
    /// for a bounded time, and they are read without copying; lossless: the capture waits for it, if the rules allow
    /// that.
    #[arg(long, value_name = "POLICY", help_heading = "Input")]
    pub(crate) policy: Option<PolicyArg>,
    /// With tap: when the daemon ends or is killed, wait for the next one and go on.
    #[arg(long, help_heading = "Input")]
    pub(crate) reconnect: bool,
    /// With tap: a filter that labels packets; may be given up to 255 times. A packet's label, in text and JSON, is the
    /// number of the first of them that accepts it, from 1 on. The daemon decides, for packets that the capture's
    /// filter accepts.
    #[arg(long, value_name = "FILTER", help_heading = "Input")]
    pub(crate) label: Vec<String>,
    /// With tap: the daemon's socket.
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
/// The text is no time.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if text == "all" { Ok(Since::All) } else { parse_duration(text).map(Since::Ago) }
}

impl TapArgs {
    fn is_given(&self) -> bool {
        let is_reader = self.since.is_some() || self.policy.is_some() || self.reconnect;
        is_reader || self.socket.is_some() || !self.label.is_empty()
    }
}

/// Opened sources, one for each worker, and a line for each interface.
pub(crate) struct Live {
    pub(crate) sources: Vec<Box<dyn Source>>,
    pub(crate) announcements: Vec<String>,
}

/// The interface that a name means, without what says how to take its packets.
pub(crate) fn bare_name(name: &str) -> &str {
    name.strip_prefix(XDP).unwrap_or(name)
}

/// Whether AF_XDP is meant.
///
/// # Errors
/// That it is meant for some of the names only.
pub(crate) fn is_xdp<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<bool> {
    let (with, without): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| name.starts_with(XDP));
    match (with.first(), without.first()) {
        (Some(with), Some(without)) => bail!(
            "{with} and {without}: a capture takes all its packets in one way; write {XDP} before each name or none, or run two captures \
             (tapline run may have both: device({with}), device({without}))"
        ),
        (with, _) => Ok(with.is_some()),
    }
}

/// Opens interfaces by their names. The filter of the settings is compiled for the way that is meant ([`is_xdp`]).
pub(crate) fn open(settings: af_packet::AfPacketSettings, xdp: XdpArgs, tap: &TapArgs) -> Result<Live> {
    if settings.interfaces.iter().any(|name| name.starts_with(TAP)) {
        return open_tap(&settings, tap);
    }
    if tap.is_given() {
        bail!(
            "--since, --policy, --reconnect, --label and --socket are for captures of tapline serve (-i {TAP}NAME)"
        );
    }
    if is_xdp(settings.interfaces.iter().map(String::as_str))? {
        return open_xdp(&settings, xdp);
    }
    if xdp.xdp_force || xdp.busy_poll.is_some() {
        bail!("--xdp-force and --busy-poll are for interfaces with {XDP} before their name (-i {XDP}eth0)");
    }
    let workers = AfPacket::open_workers(settings)?;
    let announcements = workers.first().map(|first| listening(first, workers.len())).unwrap_or_default();
    Ok(Live { sources: workers.into_iter().map(|worker| Box::new(worker) as _).collect(), announcements })
}

/// Becomes a reader of a capture of `tapline serve`.
fn open_tap(settings: &af_packet::AfPacketSettings, args: &TapArgs) -> Result<Live> {
    let [name] = settings.interfaces.as_slice() else {
        bail!("{}: a capture reads one {TAP}NAME and nothing else", settings.interfaces.join(", "));
    };
    let capture = name.trim_start_matches(TAP);
    if settings.workers > 1 || settings.direction != CaptureDirection::Both || settings.netns.is_some() {
        bail!("{name}: workers, direction and network namespace are the daemon's to choose");
    }
    if !settings.promiscuous
        || settings.ring_len.is_some()
        || settings.timestamps != af_packet::TimestampSource::Host
    {
        bail!("{name}: promiscuous mode, the kernel's buffer and time stamps are the daemon's to choose");
    }
    let is_patient = settings.latency_ms >= LATENCY_RECORDING_MS;
    let program = program();
    let socket = socket_path(args.socket.as_deref());
    let client = Client::connect(&socket, &program)?;
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
        delay_ms: if is_patient { PATIENT_DELAY_MS } else { 0 },
        labels: args.label.clone(),
        ..AttachRequest::default()
    };
    let mut tap = client.attach(&attach)?;
    tap.set_wake(if is_patient { PATIENT } else { WakeThreshold::IMMEDIATE });
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
) -> Result<Vec<OfferedCapture>, tapline_tap::Error> {
    Client::list(&socket_path(socket), &program(), timeout)
}

/// Name of this program in the daemon's status.
fn program() -> String {
    format!("tapline {}", env!("CARGO_PKG_VERSION"))
}

fn open_xdp(settings: &af_packet::AfPacketSettings, xdp: XdpArgs) -> Result<Live> {
    if settings.direction == CaptureDirection::Out {
        bail!(
            "{XDP}: an XDP program sees what an interface receives, and nothing that it sends: leave {XDP} out"
        );
    }
    let workers = AfXdp::open_workers(&af_xdp::AfXdpSettings {
        interfaces: settings.interfaces.iter().map(|name| bare_name(name).to_owned()).collect(),
        netns: settings.netns.clone(),
        filter: settings.filter.clone(),
        filter_text: settings.filter_text.clone(),
        snap_len: settings.snap_len,
        promiscuous: settings.promiscuous,
        ring_len: settings.ring_len,
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

/// A link type's name and what it is.
pub(crate) fn link_type_text(link_type: LinkType) -> String {
    format!(
        "link type {} ({})",
        link_type.name().unwrap_or("unknown"),
        link_type.description().unwrap_or("no description")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_of_one_kind() {
        assert!(is_xdp(["xdp:eth0", "xdp:eth1"]).unwrap());
        assert!(!is_xdp(["eth0", "eth1"]).unwrap() && !is_xdp([]).unwrap());
        assert!(is_xdp(["eth0", "xdp:eth1"]).unwrap_err().to_string().contains("before each name or none"));
        assert_eq!((bare_name("xdp:eth0"), bare_name("eth0")), ("eth0", "eth0"));
    }
}
