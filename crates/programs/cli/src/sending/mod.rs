//! Shared by `tapline replay` and `tapline generate -i`: the interface on which they send, and reports.

mod report;
mod reporting;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tapline_meters::Meters;
use tapline_source::Error;
use tapline_syntax::units::count_in;
use tapline_sys::sandbox::AllowedAccess;
use tapline_sys::timer;
use tapline_transmit::{
    Backend, BackendChoice, Pacer, Schedule, SendPolicy, SendSettings, SkippedBackend, Transmitter,
};

use crate::session::Session;
use crate::strict::ReportArgs;
use report::Outcome;
pub(crate) use report::SendInput;
use reporting::Reporting;

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

/// A session that sends on an interface, from its rights to its report.
pub(crate) struct Sender<'a> {
    pub(crate) session: Session,
    args: &'a SendArgs,
    target: SendTarget,
    transmitter: Transmitter,
    pacer: Pacer,
    pace: Pace,
    json: bool,
}

impl<'a> Sender<'a> {
    /// Opens the interface in a session of `user`. `json`: the report is an object on standard output.
    pub(crate) fn open(
        args: &'a SendArgs,
        interface: &str,
        pace: Pace,
        user: Option<&str>,
        json: bool,
    ) -> Result<Sender<'a>> {
        let mut session = Session::new(user, None)?;
        session.catch()?;
        let transmitter = args.open(interface, pace)?;
        let target = SendTarget::of(&transmitter);
        Ok(Sender { session, args, target, transmitter, pacer: Pacer::new(), pace, json })
    }

    /// Gives up rights once the input is open: what sending takes is left, and `reads`. Ends after `duration`.
    pub(crate) fn confine(&mut self, reads: Vec<PathBuf>, duration: Option<Duration>) -> Result<()> {
        let runs_programs = self.transmitter.backend() == Backend::Live;
        let needs = AllowedAccess { reads, runs_programs, ..AllowedAccess::default() };
        self.session.confine(needs, Meters::private)?;
        Ok(self.session.obey(duration)?)
    }

    /// Announces the run, and the reason why a faster back end was not used if one was wanted.
    pub(crate) fn announce(&self, how: &str) {
        let SendTarget { interface, backend, remark, skipped_backends } = &self.target;
        let remark = remark.map(|remark| format!(", {remark}")).unwrap_or_default();
        let mut text = format!("tapline: sending on {interface} by {backend}{remark}, {how}\n");
        for SkippedBackend { backend, reason } in skipped_backends.iter().filter(|_| !self.pace.is_slow()) {
            let _ = writeln!(text, "tapline: not by {backend}: {reason}");
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Sends to the end of the schedule, of `whole` packets where that is known, which were `verb`: read, made. Returns
    /// the error that ended it.
    pub(crate) fn send(
        &mut self,
        schedule: &mut dyn Schedule,
        verb: &'static str,
        whole: Option<u64>,
    ) -> Result<Option<Error>> {
        let (target, control) = (&self.target, &self.session.control);
        let (reporting, progress) =
            Reporting::begin(target, verb, self.pace.is_paced(), self.json, whole, control)?;
        let sent = self.pacer.run(schedule, &mut self.transmitter, &progress);
        reporting.end();
        self.transmitter.finish();
        Ok(sent.err())
    }

    /// Reports what became of the packets that were taken, and gives the exit status.
    pub(crate) fn conclude(mut self, mut taken: SendInput, failure: Option<&str>) -> Result<ExitCode> {
        let dropped_later = self.transmitter.dropped_by_driver();
        taken.left += self.pacer.report().left;
        let outcome = Outcome {
            pacer: self.pacer.report(),
            sent: self.transmitter.sent(),
            place: &self.target,
            dropped_later,
            taken,
            is_running: false,
            is_paced: self.pace.is_paced(),
            json: self.json,
        };
        report::conclude(&outcome, failure, self.args.report)
    }
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

    /// Whether packets have times at which they are to go.
    fn is_paced(self) -> bool {
        self != Pace::Top
    }

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
    fn open(&self, interface: &str, pace: Pace) -> Result<Transmitter> {
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
}
