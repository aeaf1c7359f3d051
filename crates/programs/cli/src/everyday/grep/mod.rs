//! `tapline grep`: packets whose payload matches a regular expression, and with `--stream` bytes of TCP streams.
//!
//! ```text
//! packet --payload--> Regex --> the packet as text, with its matches
//! TCP packet --Reassembler--> last bytes of the stream + new bytes --> Regex --> offset in the stream
//! ```

mod streams;
mod style;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};
use tapline_file::system_zone;
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext, grouped};
use tapline_packet::headers::Headers;
use tapline_packet::{Interface, Packet};
use tapline_print::{HexStyle, Options, Printer};
use tapline_source::Error;
use tapline_stream::PacketFate;

use self::streams::Streams;
use self::style::Style;
use super::lines::{ResultLines, universal};
use super::{Input, SessionArgs, brief, capture};
use crate::capture::ColorArg;
use crate::escape::plain_json;
use crate::mistakes::{mistake, misuse};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline grep -d eth0 -i 'user-agent: .*curl' tcp  as ngrep
  tapline grep -r trace.pcap -X 'password|passwd'   with the bytes of each packet
  tapline grep -r trace.pcap --stream 'BEGIN.*END'  also where segments cut it";

/// Matches of a payload, or of a segment, that are shown.
const SHOWN_MAX: usize = 5;

#[derive(Debug, Args)]
#[command(mut_args(brief))]
pub(crate) struct GrepArgs {
    /// Regular expression that a payload has to match.
    ///
    /// It is matched against the bytes behind the transport header. ^ and $ also match at the ends of lines.
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Read only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Interface: a name, a glob, several with commas, 'any', or tap:NAME.
    #[arg(short = 'd', long, value_name = "NAMES")]
    interface: Vec<String>,
    /// Read files ('-' is standard input), or store:DIRECTORY. May be repeated.
    #[arg(short = 'r', value_name = "FILE", conflicts_with = "interface")]
    read: Vec<PathBuf>,
    /// Ignore the case of ASCII letters.
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Show packets that do not match.
    #[arg(short = 'v', long, conflicts_with = "stream")]
    invert_match: bool,
    /// Take the pattern as text.
    #[arg(short = 'F', long)]
    fixed_strings: bool,
    /// Show the whole payload as text.
    #[arg(short = 'A', long, conflicts_with = "stream")]
    ascii: bool,
    /// Show packets in hex and ASCII.
    #[arg(short = 'X', long, conflicts_with_all = ["ascii", "stream"])]
    hex: bool,
    /// Match TCP streams, in order and across segments.
    #[arg(long)]
    stream: bool,
    /// When to use colours.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
    #[command(flatten)]
    session: SessionArgs,
    /// Print JSON: an object for each match, the summary, and the account.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GrepArgs) -> Result<ExitCode> {
    if args.ignore_case && args.interface.is_empty() && args.read.is_empty() {
        refuse_interface(args)?;
    }
    let pattern = if args.fixed_strings { regex::escape(&args.pattern) } else { args.pattern.clone() };
    let regex = RegexBuilder::new(&pattern)
        .unicode(false)
        .case_insensitive(args.ignore_case)
        .multi_line(true)
        .build()
        .map_err(|error| mistake(format_args!("the pattern: {error}")))?;
    let options = Options {
        hex: if args.hex { HexStyle::HexAscii } else { HexStyle::None },
        zone: system_zone(),
        ..Options::default()
    };
    let style =
        Style { json: args.json, ascii: args.ascii, hex: args.hex, is_colored: args.color.is_colored() };
    let stage = GrepOutput {
        search: Search { regex, invert: args.invert_match, style, lines: ResultLines::open()?, matched: 0 },
        printer: Printer::new(options),
        text: Vec::new(),
        streams: args.stream.then(Streams::new),
        packets: 0,
        is_live: false,
    };
    let input = Input { interfaces: &args.interface, files: &args.read, filter: &args.filter };
    capture(&args.session, &input, args.json, Box::new(stage))
}

/// -i names the interface in other commands.
fn refuse_interface(args: &GrepArgs) -> Result<()> {
    let is_interface = |name: &&String| {
        !name.is_empty() && !name.contains('/') && Path::new("/sys/class/net").join(name).is_dir()
    };
    if let Some(name) = std::iter::once(&args.pattern).chain(&args.filter).find(is_interface) {
        misuse!("-i ignores case, as in grep and ngrep; -d {name} names the interface");
    }
    Ok(())
}

struct Search {
    regex: Regex,
    invert: bool,
    style: Style,
    lines: ResultLines,
    /// Packets that match, or matches in streams.
    matched: u64,
}

impl Search {
    /// Whether a payload is to be shown; one without bytes is not.
    fn accepts(&self, payload: &[u8]) -> bool {
        !payload.is_empty() && self.regex.is_match(payload) != self.invert
    }

    /// Shows a packet. `text` is its print.
    fn show_packet(&mut self, text: &[u8], payload: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let (head, bytes) = text.split_once('\n').unwrap_or((&text, ""));
        let mut shown = self.style.dimmed(head) + "\n" + bytes;
        let regex = (!self.invert).then_some(&self.regex);
        if self.style.ascii || self.invert && !self.style.hex {
            shown += &self.style.whole(payload, regex);
        } else if !self.style.hex {
            shown += &self.style.excerpts(payload, &self.regex);
        }
        self.lines.add(&shown);
    }

    fn packet_json(&mut self, packet: Packet<'_>, headers: &Headers, payload: &[u8]) {
        let first = self.regex.find(payload).filter(|_| !self.invert);
        let (addresses, ports) = (headers.addresses(packet.data), headers.ports(packet.data));
        let object = json!({
            "time": (!packet.meta.is_untimed).then(|| universal(packet.meta.timestamp)),
            "src": addresses.map(|(src, _)| src.to_string()),
            "dst": addresses.map(|(_, dst)| dst.to_string()),
            "src_port": ports.map(|(src, _)| src),
            "dst_port": ports.map(|(_, dst)| dst),
            "protocol": headers.protocol(),
            "length": packet.meta.wire_len,
            "offset": first.map(|found| found.start()),
            "match": first.map(|found| String::from_utf8_lossy(found.as_bytes())),
        });
        self.lines.add(&plain_json(&format!("{object}\n")));
    }
}

/// The bytes behind the transport header; behind IP, or the link, where there is no known transport.
fn payload_of<'a>(headers: &Headers, data: &'a [u8]) -> &'a [u8] {
    let start = headers.payload().or(headers.l4()).or(headers.l3()).unwrap_or(0);
    data.get(start..headers.ip_end()).unwrap_or_default()
}

struct GrepOutput {
    search: Search,
    printer: Printer,
    text: Vec<u8>,
    streams: Option<Streams>,
    packets: u64,
    is_live: bool,
}

impl GrepOutput {
    fn packet(&mut self, packet: Packet<'_>, interface: &Interface, headers: &Headers) {
        let payload = payload_of(headers, packet.data);
        if !self.search.accepts(payload) {
            return;
        }
        self.search.matched += 1;
        if self.search.style.json {
            return self.search.packet_json(packet, headers, payload);
        }
        self.text.clear();
        self.printer.print(packet, interface, &mut self.text);
        self.search.show_packet(&self.text, payload);
    }

    fn summary_json(&self) -> Value {
        let streams = self.streams.as_ref();
        json!({"summary": {
            "packets": self.packets,
            "matched": self.search.matched,
            "missing_bytes": streams.map(|streams| streams.account().missing()),
            "searched_alone": streams.map(Streams::alone),
            "refused_bytes": streams.map(|streams| streams.account().refused()),
            "evicted": streams.map(|streams| streams.account().evicted),
        }})
    }

    fn summary_text(&self) -> String {
        let unit = match (&self.streams, self.search.matched) {
            (Some(_), 1) => "match in",
            (Some(_), _) => "matches in",
            (None, _) => "of",
        };
        let mut text = format!("{} {unit} {} packets", grouped(self.search.matched), grouped(self.packets));
        text += match (&self.streams, self.search.invert) {
            (Some(_), _) => "",
            (None, false) => " match",
            (None, true) => " have payload and do not match",
        };
        let streams = self.streams.as_ref();
        let account = streams.map(Streams::account).copied().unwrap_or_default();
        let missing = (account.missing(), "bytes of streams are missing");
        let refused = (account.refused(), "bytes belong to no stream, and were not searched");
        let evicted = (account.evicted, "conversations were evicted");
        let alone = (
            streams.map_or(0, Streams::alone),
            "segments were searched without those before them: the last bytes of all streams take more than 64 MiB",
        );
        for (count, what) in [missing, refused, evicted, alone] {
            if count > 0 {
                text += &format!("; {} {what}", grouped(count));
            }
        }
        text
    }
}

impl Stage for GrepOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            self.is_live |= packet.meta.if_index != 0;
            let headers = packets.headers(index);
            if let Some(streams) = &mut self.streams
                && streams.push(&headers, packet, self.is_live, &mut self.search) != PacketFate::NotTcp
            {
                continue;
            }
            if let Some(interface) = packets.interfaces.get(packet.meta.interface.0 as usize) {
                self.packet(packet, interface, &headers);
            }
        }
        self.search.lines.offer()
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.search.lines.flush()
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        if let Some(streams) = self.streams.as_mut().filter(|_| self.is_live) {
            streams.tick(tick.now.as_nanos(), &mut self.search);
        }
        self.search.lines.flush().map(|()| StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if let Some(streams) = &mut self.streams {
            streams.finish(&mut self.search);
        }
        let (object, text) = (self.summary_json(), self.summary_text());
        self.search.lines.finish(self.search.style.json, &object, &text)
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written("grep", self.packets)
    }
}
