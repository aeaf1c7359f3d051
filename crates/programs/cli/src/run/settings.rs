//! Settings that opening and sending share.

use tapline_capture::af_packet::KernelFilterRuns;
use tapline_graph::StampTicks;

use super::publishing::Places;
use crate::live::XdpArgs;
use crate::wake::WakeWish;

/// Settings of a run's sources and outputs.
#[derive(Clone, Default)]
pub(crate) struct RunSettings {
    /// The network namespace of devices.
    pub(crate) netns: Option<String>,
    /// Options of devices with `xdp:` before their name.
    pub(crate) xdp: XdpArgs,
    /// When devices wake their readers; not those whose packets are sent on.
    pub(crate) wake: Option<WakeWish>,
    /// Whether packets are shown as JSON.
    pub(crate) json: bool,
    /// Interfaces, other than loopback and veth, on which sending is allowed: `--i-own-this-network`.
    pub(crate) owned: Vec<String>,
    /// Receives published places; none where a graph cannot publish.
    pub(crate) places: Option<Places>,
    /// Receives the cost of stamping packets.
    pub(crate) stamp_ticks: StampTicks,
    /// Receives the cost of filters in the kernel.
    pub(crate) kernel_filter_runs: Option<KernelFilterRuns>,
}
