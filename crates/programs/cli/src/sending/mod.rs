//! Shared by `tapline replay` and `tapline generate -i`: the interface on which they send, and reports.

mod report;
mod reporting;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tapline_syntax::units::count_in;
use tapline_sys::sandbox::AllowedAccess;
use tapline_sys::timer;
use tapline_transmit::{Backend, BackendChoice, SendPolicy, SendSettings, SkippedBackend, Transmitter};

use crate::privileges;
use crate::strict::ReportArgs;
pub(crate) use report::{Outcome, SendInput, conclude};
pub(crate) use reporting::Reporting;

/// Options of sending.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Allow sending on this interface, whatever its kind. Without this option only loopback and veth interfaces are
    /// allowed.
    #[arg(long, value_name = "IFACE", help_heading = "Sending", requires = "interface")]
    i_own_this_network: Vec<String>,
    /// Back end. auto: XDP live frames if the interface takes them, else AF_XDP, else AF_PACKET; packets with times are
    /// sent by AF_PACKET, which costs least if few are due at once, unless their rate is known to be 250,000 a second
    /// or more. The first line of output, and --json, name the back end, and why a faster one was not used.
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "Sending")]
    backend: BackendArg,
    /// Send in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Sending", requires = "interface")]
    pub(crate) netns: Option<String>,
    /// Send in a real-time thread, which ordinary threads do not interrupt: for even gaps on a busy machine. Needs root
    /// or CAP_SYS_NICE.
    #[arg(long, help_heading = "Sending", requires = "interface")]
    realtime: bool,
    /// Retry a full queue for this many milliseconds before a packet counts as not sent. 0: do not wait
    #[arg(long, value_name = "MS", value_parser = count_in::<u32>(..), help_heading = "Sending", default_value_t = 500)]
    patience: u32,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Leaves this process what sending takes: the socket that is open, or the program for live frames, and `reads`.
pub(crate) fn confine(transmitter: &Transmitter, reads: Vec<PathBuf>) {
    let runs_programs = transmitter.backend() == Backend::Live;
    privileges::confine_quietly(&AllowedAccess { reads, runs_programs, ..AllowedAccess::default() });
}

/// Pace of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As fast as it goes.
    Top,
    /// Packets per second.
    Rate(f64),
    /// At their times.
    Times,
}

impl Pace {
    /// Packets per second from which the fastest back end is used: several packets are due at once, and AF_PACKET cannot
    /// send many more (docs/sending.md).
    const MANY: f64 = 250e3;

    /// Whether few packets are due at once, as far as is known.
    fn is_slow(self) -> bool {
        match self {
            Pace::Top => false,
            Pace::Rate(rate) => rate < Pace::MANY,
            Pace::Times => true,
        }
    }
}

/// Values of `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// The fastest that the interface supports; AF_PACKET if few packets are due at once.
    Auto,
    /// AF_PACKET, sendmmsg: any interface, any frame.
    Packet,
    /// AF_XDP: frames through a ring in memory that the kernel reads.
    Xdp,
    /// XDP live frames: the kernel sends frames from its own pages (Linux 5.18).
    Live,
}

impl SendArgs {
    /// Opens an interface to send on, if sending is allowed there, and sets up this thread for it.
    pub(crate) fn open(&self, interface: &str, pace: Pace) -> Result<Transmitter> {
        let network = SendPolicy::inspect(self.netns.as_deref(), &self.i_own_this_network)?;
        let backend = match self.backend {
            BackendArg::Auto if pace.is_slow() => BackendChoice::AtTimes,
            BackendArg::Auto => BackendChoice::Fastest,
            BackendArg::Packet => BackendChoice::This(Backend::Packet),
            BackendArg::Xdp => BackendChoice::This(Backend::Xdp),
            BackendArg::Live => BackendChoice::This(Backend::Live),
        };
        let settings = SendSettings {
            queue_timeout: Duration::from_millis(self.patience.into()),
            backend,
            ..SendSettings::default()
        };
        let transmitter = Transmitter::open(&network.permit(interface)?, &settings)?;
        if self.realtime {
            timer::set_realtime().context("--realtime needs root or CAP_SYS_NICE")?;
        }
        Ok(transmitter)
    }
}

/// The interface that packets are sent on, and the back end that sends them.
#[derive(Clone, Debug)]
pub(crate) struct SendTarget {
    pub(crate) interface: String,
    pub(crate) backend: Backend,
    remark: Option<&'static str>,
    skipped_backends: Vec<SkippedBackend>,
}

impl SendTarget {
    pub(crate) fn of(transmitter: &Transmitter) -> SendTarget {
        SendTarget {
            interface: transmitter.name().to_owned(),
            backend: transmitter.backend(),
            remark: transmitter.backend_remark(),
            skipped_backends: transmitter.skipped_backends().to_vec(),
        }
    }

    /// Announces the run, and the reason why a faster backend was not used if one was wanted.
    pub(crate) fn announce(&self, how: &str, pace: Pace) {
        let remark = self.remark.map(|remark| format!(", {remark}")).unwrap_or_default();
        let mut text = format!("tapline: sending on {} by {}{remark}, {how}\n", self.interface, self.backend);
        for SkippedBackend { backend, reason } in self.skipped_backends.iter().filter(|_| !pace.is_slow()) {
            let _ = writeln!(text, "tapline: not by {backend}: {reason}");
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }
}
