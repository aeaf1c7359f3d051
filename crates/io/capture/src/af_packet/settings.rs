//! The settings of a capture.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, SNAP_LEN_MAX};
use tapline_source::Error;
use tapline_sys::FanoutMode;

use super::{KernelFilterRuns, KernelTally, TimestampSource};

/// The [`AfPacketSettings::latency_ms`] of interactive captures.
pub const LATENCY_INTERACTIVE_MS: u32 = 10;
/// The [`AfPacketSettings::latency_ms`] of outputs that another program reads, and of several interfaces: fewer, fuller
/// blocks.
pub const LATENCY_RECORDING_MS: u32 = 20;
/// The [`AfPacketSettings::latency_ms`] of stores, whose packets are found within a second.
pub const LATENCY_STORE_MS: u32 = 100;
/// The [`AfPacketSettings::latency_ms`] of files of one interface, and of counts.
pub const LATENCY_FILE_MS: u32 = 500;

/// Compiles the filter for an interface; `None` accepts every packet.
pub type CompileFilter = Arc<dyn Fn(&Interface) -> Result<Option<CompiledFilter>, Error> + Send + Sync>;

/// The direction of the captured packets, seen from this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureDirection {
    /// Sent and received. On a loopback interface one of the two copies.
    #[default]
    Both,
    /// Received.
    In,
    /// Sent.
    Out,
}

/// The order in which packets of several interfaces are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MergeOrder {
    /// A block at a time, in turn. Cheapest.
    #[default]
    Block,
    /// By time. Packets wait until no earlier one can come: about twice [`AfPacketSettings::latency_ms`] at most, and
    /// no longer once a ring is half full, for then a loss would be near. Adapters' clocks are taken to be in step
    /// with ours.
    Time,
}

/// Settings of a capture by AF_PACKET.
#[derive(Clone)]
pub struct AfPacketSettings {
    /// Names, globs, numbers, or `any`.
    pub interfaces: Vec<String>,
    /// The network namespace: a name as `ip netns` has it, a process number, or a path. `None` for our own.
    pub netns: Option<String>,
    /// The filter, compiled for each interface's link type. Runs in the kernel if that takes it.
    pub filter: Option<CompileFilter>,
    /// The filter as text, for descriptions of interfaces.
    pub filter_text: String,
    /// The most bytes to keep of a packet; 0 for [`SNAP_LEN_MAX`].
    pub snap_len: u32,
    /// Whether interfaces named or matched by a glob receive frames for other hosts. Never applied to `any`.
    pub promiscuous: bool,
    /// The direction of the captured packets, seen from this host.
    pub direction: CaptureDirection,
    /// Bytes of each ring; `None` to choose from link speed and memory.
    pub ring_len: Option<u64>,
    /// Whether [`Source::restrict`](tapline_source::Source::restrict) will be called. Packets of interfaces that cannot have the
    /// filter then end in the kernel, and are not counted; all rings have their whole length from the start.
    pub is_restrictable: bool,
    /// Milliseconds after which packets are handed over though their block is not full, at least 1.
    pub latency_ms: u32,
    /// The least number of packets to hand over together, unless their time ([`latency_ms`](Self::latency_ms)) is over
    /// before; `None` to choose blocks by the ring's length. Packets shorter than the link's longest, or than
    /// [`snap_len`](Self::snap_len) if that is less, fill a block in greater number. A block has room for any packet:
    /// 64 KiB at least, or less with a snap length below that.
    pub min_packets: Option<u32>,
    /// The clock that stamps the packets.
    pub timestamps: TimestampSource,
    /// Whether to learn the segment size of large packets. The kernel then drops those whose segmentation a virtio
    /// header cannot express (tunnels), and counts them.
    pub vnet_header: bool,
    /// Whether to learn the packets' hashes by flow ([`Meta::rx_hash`](tapline_packet::Meta)). Without an adapter that
    /// makes them the kernel dissects each packet for it.
    pub receive_hash: bool,
    /// Workers that share each interface's packets, at least 1. See [`AfPacket::open_workers`].
    pub workers: usize,
    /// Only packets of this receive queue, counted from 0, and packets that were sent by the send queue of this number.
    /// `None` for all. The adapter's driver must record the queue of a packet; if it does not, all packets count as
    /// those of queue 0.
    pub queue: Option<u16>,
    /// The distribution of packets among workers. By [`FanoutMode::Hash`] fragments follow their flow, if the kernel
    /// takes a program for that; else they go by their addresses.
    pub fanout: FanoutMode,
    /// The order in which packets of several interfaces are lent.
    pub order: MergeOrder,
    /// Runs filters in the kernel as eBPF, and measures their time.
    pub kernel_filter_runs: Option<KernelFilterRuns>,
    /// Counts packets that the filter accepts in the kernel, or a sample of them, and lends none or all of them
    /// ([`InterfaceAccount::counted`](tapline_source::InterfaceAccount)). If the kernel refuses that, or the interface
    /// comes later, an event says so and packets are lent. Minimum kernel: 5.5.
    pub tally: Option<KernelTally>,
    /// Time to wait for one of the interfaces to come back after all were removed; `None` for ever. Does not apply if
    /// later interfaces match too (`any`, globs).
    pub return_timeout: Option<Duration>,
}

impl AfPacketSettings {
    /// The defaults for these interfaces: all packets, promiscuous, interactive.
    pub fn new(interfaces: &[&str]) -> AfPacketSettings {
        AfPacketSettings {
            interfaces: interfaces.iter().map(|&name| name.to_owned()).collect(),
            netns: None,
            filter: None,
            filter_text: String::new(),
            snap_len: 0,
            promiscuous: true,
            direction: CaptureDirection::default(),
            ring_len: None,
            is_restrictable: false,
            latency_ms: LATENCY_INTERACTIVE_MS,
            min_packets: None,
            timestamps: TimestampSource::default(),
            vnet_header: false,
            receive_hash: false,
            workers: 1,
            queue: None,
            fanout: FanoutMode::Hash,
            order: MergeOrder::default(),
            kernel_filter_runs: None,
            tally: None,
            return_timeout: Some(Duration::from_secs(10)),
        }
    }

    /// The snap length with its bounds.
    pub(super) fn snap_len(&self) -> u32 {
        snap_len(self.snap_len)
    }
}

/// The snap length for a setting of which 0 means all.
pub(crate) fn snap_len(wanted: u32) -> u32 {
    if wanted == 0 { SNAP_LEN_MAX } else { wanted.min(SNAP_LEN_MAX) }
}

impl fmt::Debug for AfPacketSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfPacketSettings")
            .field("interfaces", &self.interfaces)
            .field("netns", &self.netns)
            .field("filter", &self.filter_text)
            .finish_non_exhaustive()
    }
}
