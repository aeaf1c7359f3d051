//! `tapline dns`, `tapline http`, `tapline tls`: a line for each request with its answer.
//!
//! ```text
//! packets --Dns: UDP, TCP streams-->   \
//!         --Http: TCP streams------->   Transaction --> Report: lines, then failures and the slowest
//!         --Tls: TCP streams-------->  /
//! ```

mod dns;
mod http;
mod report;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_source::Error;
use tapline_stream::{Event, Limits, Reassembler, Stream};

use self::report::Report;
use super::lines::ResultLines;
use super::{Input, SessionArgs, brief, capture};

pub(crate) const DNS_EXAMPLES: &str = "\
Examples:
  tapline dns -r trace.pcap                              like tshark, or passivedns
  tapline dns -i eth0 'udp port 53'                      queries as they are answered
  tapline dns -i eth0 --json | jq -r 'select(.failed)'   only failed queries";

pub(crate) const HTTP_EXAMPLES: &str = "\
Examples:
  tapline http -r trace.pcap                             like tshark -T fields
  tapline http -i eth0 'tcp port 80 or tcp port 8080'    requests as they are answered
  tapline http -i eth0 --json | jq -r 'select(.failed)'  only failed requests";

pub(crate) const TLS_EXAMPLES: &str = "\
Examples:
  tapline tls -r trace.pcap                              names, versions, latency of handshakes
  tapline tls -i eth0 'tcp port 443'                     handshakes as they are answered
  tapline tls -i eth0 --json | jq -r .ja4                fingerprints of clients";

#[derive(Debug, Args)]
#[command(mut_args(brief))]
pub(crate) struct RequestsArgs {
    /// Read only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Interface: a name, a glob, a list (a,b), 'any', or tap:NAME.
    #[arg(short, long, value_name = "NAMES")]
    interface: Vec<String>,
    /// Read files ('-' is standard input), or store:DIRECTORY.
    #[arg(short = 'r', value_name = "FILE", conflicts_with = "interface")]
    read: Vec<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
    /// Print JSON: one object per request, then summary and account.
    #[arg(long)]
    json: bool,
}

/// An application protocol.
trait Protocol: Send {
    fn take(&mut self, packets: &Packets<'_>, report: &mut Report);
    /// Reports the time, on live interfaces.
    fn tick(&mut self, now_ns: i64, report: &mut Report);
    /// Ends all requests. Returns names and counts of messages that could not be read.
    fn finish(&mut self, report: &mut Report) -> Vec<(&'static str, u64)>;
}

/// An application protocol that is read from the streams of TCP.
trait StreamProtocol: Default + Send {
    fn take(&mut self, stream: &Stream, event: Event<'_>, report: &mut Report);
    /// Names and counts of messages that could not be read.
    fn notes(&self) -> Vec<(&'static str, u64)>;
}

/// Puts the streams together that a protocol reads.
struct OverTcp<T> {
    reassembler: Reassembler,
    protocol: T,
}

impl<T: StreamProtocol> Default for OverTcp<T> {
    fn default() -> OverTcp<T> {
        OverTcp { reassembler: Reassembler::new(Limits::default()), protocol: T::default() }
    }
}

impl<T: StreamProtocol> Protocol for OverTcp<T> {
    fn take(&mut self, packets: &Packets<'_>, report: &mut Report) {
        let OverTcp { reassembler, protocol } = self;
        for index in packets.selection.iter() {
            let mut sink = |stream: &Stream, event: Event<'_>| protocol.take(stream, event, report);
            reassembler.push(&packets.headers(index), packets.batch.packet(index), &mut sink);
        }
    }

    fn tick(&mut self, now_ns: i64, report: &mut Report) {
        let OverTcp { reassembler, protocol } = self;
        reassembler.tick(now_ns, &mut |stream, event| protocol.take(stream, event, report));
    }

    fn finish(&mut self, report: &mut Report) -> Vec<(&'static str, u64)> {
        let OverTcp { reassembler, protocol } = self;
        reassembler.finish(&mut |stream, event| protocol.take(stream, event, report));
        let missing = ("bytes of streams are missing", reassembler.account().missing());
        std::iter::once(missing).chain(protocol.notes()).collect()
    }
}

/// Runs `tapline dns`.
pub(crate) fn dns(args: &RequestsArgs) -> Result<ExitCode> {
    run(args, "dns", Box::new(dns::Dns::new()))
}

/// Runs `tapline http`.
pub(crate) fn http(args: &RequestsArgs) -> Result<ExitCode> {
    run(args, "http", Box::new(OverTcp::<http::Talks>::default()))
}

/// Runs `tapline tls`.
pub(crate) fn tls(args: &RequestsArgs) -> Result<ExitCode> {
    run(args, "tls", Box::new(OverTcp::<tls::Handshakes>::default()))
}

fn run(args: &RequestsArgs, name: &'static str, protocol: Box<dyn Protocol>) -> Result<ExitCode> {
    let report = Report::new(ResultLines::open()?, args.json);
    let stage = RequestsOutput { name, protocol, report, packets: 0, is_live: false };
    let input = Input { interfaces: &args.interface, files: &args.read, filter: &args.filter };
    capture(&args.session, &input, args.json, Box::new(stage))
}

struct RequestsOutput {
    name: &'static str,
    protocol: Box<dyn Protocol>,
    report: Report,
    packets: u64,
    is_live: bool,
}

impl Stage for RequestsOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        self.is_live |= packets.batch.records().iter().any(|record| record.meta.if_index != 0);
        self.protocol.take(packets, &mut self.report);
        self.report.lines().offer()
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.report.lines().flush()
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        if self.is_live {
            self.protocol.tick(tick.now.as_nanos(), &mut self.report);
            self.report.lines().flush()?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let notes = self.protocol.finish(&mut self.report);
        self.report.finish(&notes);
        self.report.lines().flush()
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written(self.name, self.packets)
    }
}
