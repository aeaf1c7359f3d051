//! The arguments of `tapline capture`: tcpdump's flags where tcpdump has them.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, FromArgMatches, ValueEnum};
use tapline_export::Receiver;
use tapline_store::RecorderSettings;
use tapline_syntax::units::{count_in, size_in};

use crate::args::{FormatArg, FplArgs, LanguageArgs, SNAP_LEN, parse_duration, parse_interval};
use crate::container;
use crate::destinations::ReceiverArgs;
use crate::live::{TapArgs, XdpArgs};
use crate::stored::{ExcerptArgs, PastArgs};
use crate::strict::ReportArgs;
use crate::wake::WakeArgs;

const CAPTURE_EXAMPLES: &str = "\
Examples:
  tapline capture -i eth0 -n port 53                   print DNS, addresses as numbers
  tapline capture -i eth0,eth1 -w both.pcapng          two interfaces in one file, each with its name
  tapline capture -i xdp:eth1 -w port.pcapng           all packets of a monitor port, bypassing the kernel's stack (AF_XDP)
  tapline capture -i xdp:eth0 'udp port 4789'          the capture takes these; the host gets all others
  tapline capture -i any -w - | wireshark -k -i -      each interface with its own link layer
  tapline capture -i eth0 -G 60 -W 10 -w 'out-%H%M%S.pcapng'
  tapline capture -r in.pcap.gz -w out.pcapng 'host 10.0.0.1'
  tapline capture -r a.pcap -r b.pcap --merge -n       two files as one, by time
  tapline capture -r in.pcap --json | jq .ipv4.src
  tapline capture -i eth0 --verify 'udp port 9'        marked packets of tapline generate: lost, duplicated, reordered
  tapline capture -i eth0 -w kafka://broker/packets --spool spool,20G 'port 53'     chunks of packets as messages
  tapline capture -i 'kafka://broker/packets?until=end' -w out.pcapng               the same packets, read back
  tapline capture -r in.pcap --fpl count-flows.fpl --fpl-memory    run a program, then print its counters

At the end each capture prints an account of its packets. SIGUSR1 or --stats 1 prints it while the capture runs.";

/// The flags are tcpdump's where tcpdump has them.
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_EXAMPLES)]
pub(crate) struct CaptureArgs {
    /// Interface to capture on: a name, a glob such as 'eth*', several with commas, or 'any'. May be repeated. The
    /// prefix xdp: captures by AF_XDP, which takes the packets away from the host instead of copying them
    /// (docs/afxdp.md). xdp?: uses AF_XDP if possible, otherwise AF_PACKET. xdp:eth0@3 captures only receive queue 3.
    /// drops: captures the packets that the kernel drops in the network namespace, each with the reason
    /// (docs/account.md); tapline serve does not share these.
    /// tap:NAME reads a capture of tapline serve, tap:NAME/GROUP reads a share of it. kafka://HOST/TOPIC reads the
    /// packets of a topic (only in builds with the feature kafka; docs/export.md).
    #[arg(short, long, value_name = "NAMES", help_heading = "Input")]
    pub(crate) interface: Vec<String>,
    /// Read packets from a file ('-' is standard input): pcap, pcapng, ERF; also gzip, zstd, lz4. May be repeated.
    /// store:DIRECTORY reads a store.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with = "interface")]
    pub(crate) read: Vec<PathBuf>,
    /// Merge the input files by time, instead of reading one after the other.
    #[arg(long, help_heading = "Input", requires = "read")]
    pub(crate) merge: bool,
    /// Capture in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Input", conflicts_with = "read")]
    pub(crate) netns: Option<String>,
    /// Capture in the network of this container: its name, its pod's, or the beginning of its identifier (containerd,
    /// Kubernetes, Docker, Podman, CRI-O, systemd-nspawn, LXC).
    #[arg(long, value_name = "NAME", value_parser = container::process, help_heading = "Input", conflicts_with_all = ["netns", "read"])]
    pub(crate) container: Option<String>,
    /// Keep at most this many bytes of each packet, also from files; 0 means 262144.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAP_LEN, value_parser = size_in::<u32>(..), help_heading = "Input")]
    pub(crate) snapshot_length: u32,
    #[command(flatten)]
    pub(crate) past: PastArgs,
    #[command(flatten)]
    pub(crate) excerpt: ExcerptArgs,
    #[command(flatten)]
    pub(crate) xdp: XdpArgs,
    #[command(flatten)]
    pub(crate) tap: TapArgs,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
    /// Do not use promiscuous mode.
    #[arg(short = 'p', long, help_heading = "Input")]
    pub(crate) no_promiscuous_mode: bool,
    /// Capture only packets in this direction.
    #[arg(short = 'Q', long, value_name = "in|out|inout", default_value = "inout", help_heading = "Input")]
    pub(crate) direction: DirectionArg,
    /// Ring size in KiB, for each interface and worker (with xdp: each queue), 64 to 2097152. Default: chosen from link
    /// speed and memory.
    #[arg(short = 'B', long, value_name = "KIB", value_parser = count_in::<u64>(64..=2_097_152), help_heading = "Input")]
    pub(crate) buffer_size: Option<u64>,
    /// Number of threads, among which each interface's packets are divided by flow. With several, the output is ordered
    /// within batches, not strictly by time. Files can have several threads for --count, without -c and --stop-after.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u16>(1..=64), help_heading = "Input")]
    pub(crate) workers: u16,
    /// Capture with this link type, one that -L lists. With LINUX_SLL2 all interfaces fit into one pcap file.
    #[arg(short = 'y', long, value_name = "TYPE", help_heading = "Input")]
    pub(crate) linktype: Option<String>,
    /// Source of time stamps, one that -J lists.
    #[arg(short = 'j', long, value_name = "TYPE", help_heading = "Input")]
    pub(crate) time_stamp_type: Option<String>,
    /// Deliver packets as they come, without waiting for a block to fill; costs more per packet.
    #[arg(long, help_heading = "Input")]
    pub(crate) immediate_mode: bool,

    /// Read the filter from a file; as with tcpdump, a filter on the command line is then ignored.
    #[arg(short = 'F', value_name = "FILE", help_heading = "Filter")]
    pub(crate) filter_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Do not simplify the filter's program.
    #[arg(short = 'O', long, help_heading = "Filter")]
    pub(crate) no_optimize: bool,
    #[command(flatten)]
    pub(crate) fpl: FplArgs,
    /// Show the memory cells of the FPL program that are not 0, at the end and on SIGUSR1: index and value; with
    /// several workers the worker's number first. With --json, one object. Packets are then printed only with --print
    /// or --json.
    #[arg(long, help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_memory: bool,
    /// Keep the memory of the FPL program in a file that other processes can read and change while the capture runs
    /// (tapline memory). The file stays after the capture. Only with one worker.
    #[arg(long, value_name = "FILE", help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_memory_file: Option<PathBuf>,
    /// Print the filter's program and stop: -d as instructions, -dd as C, -ddd as decimal numbers.
    #[arg(short = 'd', action = ArgAction::Count, help_heading = "Filter")]
    pub(crate) dump: u8,

    /// Stop after this many packets, 1 or more.
    #[arg(short, value_name = "N", value_parser = count_in::<u64>(1..), help_heading = "Stop")]
    pub(crate) count_packets: Option<u64>,
    /// Stop after this time: seconds, or with a unit: 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Stop")]
    pub(crate) duration: Option<Duration>,
    /// Stop after the packet with which the captured bytes reach this total: 1GB; k, M and G are powers of 1000.
    #[arg(long, value_name = "BYTES", value_parser = size_in::<u64>(1..), help_heading = "Stop")]
    pub(crate) stop_after: Option<u64>,

    /// Write packets to a file ('-' is standard output). The ending of the name chooses the format: .pcapng, .erf,
    /// otherwise pcap. A further .gz, .zst or .lz4 compresses the file. The ending of another format is an error.
    /// kafka://HOST/TOPIC (feature kafka), http:// and https:// (feature http) write to receivers, in chunks that they
    /// acknowledge (docs/export.md).
    #[arg(short = 'w', value_name = "FILE", help_heading = "Output")]
    pub(crate) write: Option<PathBuf>,
    /// Write in this format, regardless of the file's name.
    #[arg(long, value_name = "FORMAT", help_heading = "Output", requires = "write")]
    pub(crate) format: Option<FormatArg>,
    /// Put the keys of this file (lines of SSLKEYLOGFILE, or of WireGuard) into the capture file, for programs that
    /// decrypt the packets. Lines that are added during the capture are written too. May be repeated; pcapng only.
    #[arg(long, value_name = "FILE", help_heading = "Output", requires = "write")]
    pub(crate) secrets: Vec<PathBuf>,
    /// Flush after each packet, so that it is visible in the file at once.
    #[arg(short = 'U', long, help_heading = "Output")]
    pub(crate) packet_buffered: bool,
    /// Begin a new file after this many million bytes; k, m and g mean KiB, MiB and GiB.
    #[arg(short = 'C', value_name = "SIZE", help_heading = "Output", requires = "write")]
    pub(crate) file_size: Option<String>,
    /// Begin a new file after this many seconds, even without traffic; the name may have strftime(3) codes.
    #[arg(short = 'G', value_name = "SECONDS", value_parser = count_in::<u64>(..), help_heading = "Output", requires = "write")]
    pub(crate) rotate_seconds: Option<u64>,
    /// Number of files. With -C, the oldest file is overwritten once there are this many (-C limits the size before
    /// compression). With -G alone, the capture ends after this many files.
    #[arg(short = 'W', value_name = "N", value_parser = count_in::<u64>(..), help_heading = "Output", requires = "write")]
    pub(crate) file_count: Option<u64>,
    /// Add .part to the name of the file that is being written.
    #[arg(long, help_heading = "Output", requires = "write")]
    pub(crate) part: bool,
    /// Print packets even if they are also written to a file.
    #[arg(long, help_heading = "Output")]
    pub(crate) print: bool,
    /// Only count packets.
    #[arg(long, help_heading = "Output")]
    pub(crate) count: bool,
    /// With --count: count the packets of interfaces in the kernel, by the filter's own program, at a fraction of the
    /// cost. No packet is copied, so `tapline top` and the row `delivered` show none. Linux 5.5 or later; if the kernel
    /// refuses, Tapline counts the packets itself, and a warning says so.
    #[arg(long, requires = "count", help_heading = "Output")]
    pub(crate) in_kernel: bool,
    /// Read the marks of generated packets (`mark` in a recipe), and show at the end how many packets were lost,
    /// duplicated and reordered, and their latency. With --json, one object. Packets are then printed only with --print
    /// or --json.
    #[arg(long, help_heading = "Output")]
    pub(crate) verify: bool,
    /// Print packets as JSON, one object per line, with the account as the last object.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) arrow: ArrowArgs,
    #[command(flatten)]
    pub(crate) receiver: ReceiverArgs,

    /// Show addresses and ports as numbers (twice: protocols too). Host names are never looked up without --names.
    #[arg(short = 'n', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) numeric: u8,
    /// Show host names, looked up by getnameinfo(3); addresses that are not resolved in time are shown as numbers.
    #[arg(long, help_heading = "Text")]
    pub(crate) names: bool,
    /// Show link-layer headers.
    #[arg(short = 'e', help_heading = "Text")]
    pub(crate) link_header: bool,
    /// Show more detail; may be repeated.
    #[arg(short = 'v', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) verbose: u8,
    /// Show less detail.
    #[arg(short = 'q', help_heading = "Text")]
    pub(crate) quiet: bool,
    /// Time stamps: -t none, -tt seconds since 1970, -ttt since the last packet, -tttt with date, -ttttt since the
    /// first.
    #[arg(short = 't', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) time: u8,
    /// Show times in nanoseconds.
    #[arg(long, help_heading = "Text")]
    pub(crate) nano: bool,
    /// Show times in microseconds (the default for text; files always keep nanoseconds).
    #[arg(long, help_heading = "Text", conflicts_with = "nano")]
    pub(crate) micro: bool,
    /// Unit of times: same as --nano or --micro.
    #[arg(long, value_name = "UNIT", help_heading = "Text", conflicts_with_all = ["nano", "micro"])]
    pub(crate) time_stamp_precision: Option<PrecisionArg>,
    /// Show bytes in hex; twice: with the link-layer header.
    #[arg(short = 'x', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) hex: u8,
    /// Show bytes in hex and ASCII; twice: with the link-layer header.
    #[arg(short = 'X', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) hex_ascii: u8,
    /// Show bytes in ASCII; twice: with the link-layer header.
    #[arg(short = 'A', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) ascii: u8,
    /// Do not verify checksums with -v (the adapter fills in those of sent packets after the capture).
    #[arg(short = 'K', long, help_heading = "Text")]
    pub(crate) dont_verify_checksums: bool,
    /// Show TCP sequence numbers as they are, not relative to the first.
    #[arg(short = 'S', long, help_heading = "Text")]
    pub(crate) absolute_tcp_sequence_numbers: bool,
    /// Number the packets.
    #[arg(short = '#', long, help_heading = "Text")]
    pub(crate) number: bool,
    /// Flush after each line.
    #[arg(short = 'l', help_heading = "Text")]
    pub(crate) line_buffered: bool,
    /// Colour: on a terminal (auto), always or never.
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Text")]
    pub(crate) color: ColorArg,

    /// Show live counters on the terminal.
    #[arg(long, help_heading = "Reports")]
    pub(crate) progress: bool,
    /// Print the account at this interval: 1, 500ms, 1m.
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Reports")]
    pub(crate) stats: Option<Duration>,

    #[command(flatten)]
    pub(crate) report: ReportArgs,

    /// Run as this user once everything is open. Default: the caller of sudo, if any.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    pub(crate) relinquish_privileges: Option<String>,
    /// As root, follow a symbolic link at the path of an output; without this option that is an error.
    #[arg(long, help_heading = "Privileges")]
    pub(crate) follow_links: bool,

    /// List interfaces and stop, as `tapline interfaces` does.
    #[arg(short = 'D', long, help_heading = "Lists")]
    pub(crate) list_interfaces: bool,
    /// List the link types of the interface and stop.
    #[arg(short = 'L', long, help_heading = "Lists")]
    pub(crate) list_data_link_types: bool,
    /// List the time stamp types of the interface and stop.
    #[arg(short = 'J', long, help_heading = "Lists")]
    pub(crate) list_time_stamp_types: bool,

    /// Capture only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,

    /// Settings of the recorder: `tapline record`.
    #[arg(skip)]
    pub(crate) recorder: Option<RecorderSettings>,
    /// The stream to read in place of the file that is named: the answer of a daemon.
    #[arg(skip)]
    pub(crate) stream: Option<Arc<File>>,
    /// Show the parts of the store that the search skipped.
    #[arg(skip)]
    pub(crate) explain_search: bool,
    /// Interval of interface statistics in pcapng; `None`: the writer's own.
    #[arg(skip)]
    pub(crate) statistics_interval: Option<Duration>,
    /// The output is Wireshark's pipe: its reader leaves when it has enough, and shows as errors all that is said.
    #[arg(skip)]
    pub(crate) is_for_wireshark: bool,
    /// The only output is a stage of the command (`run_with`), in place of a file and lines.
    #[arg(skip)]
    pub(crate) has_own_output: bool,
}

impl CaptureArgs {
    /// The most bytes to keep of a packet.
    pub(super) fn snap_len(&self) -> u32 {
        if self.snapshot_length == 0 { SNAP_LEN } else { self.snapshot_length }
    }

    /// The receiver of chunks that -w names, if it names one.
    pub(super) fn written_receiver(&self) -> Option<&str> {
        self.write.as_ref()?.to_str().filter(|text| Receiver::is_meant(text))
    }

    /// Whether packets are printed, as text or JSON.
    pub(super) fn prints(&self) -> bool {
        let wants_result = (self.fpl_memory || self.verify) && !self.json;
        let writes = self.write.is_some() || self.arrow.arrow || self.has_own_output;
        !self.count && (self.print || !writes && !wants_result)
    }

    /// Whether packets are only counted, so that their order does not matter.
    pub(super) fn only_counts(&self) -> bool {
        let has_limit = self.count_packets.is_some_and(|count| count > 0) || self.stop_after.is_some();
        let wants_packets = self.write.is_some() || self.fpl.fpl.is_some() || self.verify;
        self.count && !has_limit && !wants_packets
    }

    /// Whether standard output is taken: by the capture file, or by Arrow.
    pub(super) fn writes_standard_output(&self) -> bool {
        self.arrow.arrow || self.write.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// As if nothing was typed: for commands that are a capture of their own.
    pub(crate) fn without_arguments() -> CaptureArgs {
        let command = CaptureArgs::augment_args(clap::Command::new("capture"));
        let matches = command.get_matches_from(["capture"]);
        CaptureArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Packets as columns.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ArrowArgs {
    /// Write packets to standard output as a stream of Arrow (IPC), for programs that read columns. Only in builds with
    /// the feature arrow.
    #[arg(long, help_heading = "Output", conflicts_with_all = ["write", "count"])]
    pub(crate) arrow: bool,
    /// Columns of --arrow, in this order: time, interface, length, captured, vlan, src, dst, protocol, sport, dport,
    /// tcp_flags, flow (Community ID), data. Default: all of them.
    #[arg(long, value_name = "COLUMNS", help_heading = "Output", requires = "arrow")]
    pub(crate) columns: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    In,
    Out,
    Inout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

impl ColorArg {
    /// Whether lines on standard output have colours.
    pub(crate) fn is_colored(self) -> bool {
        match self {
            ColorArg::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            ColorArg::Always => true,
            ColorArg::Never => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    Micro,
    Nano,
}
