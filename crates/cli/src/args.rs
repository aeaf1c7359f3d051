//! What was typed: the command line, with the help that teaches it. What it means is decided in the commands.

use std::path::PathBuf;

use clap::{ArgAction, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use tapline_store::RecorderSettings;

use crate::live::{TapArgs, XdpArgs};
use crate::store::PastArgs;

/// Packet capture and network analysis that never lies about loss.
#[derive(Debug, Parser)]
#[command(name = "tapline", version, max_term_width = 110, after_help = TOP_EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const TOP_EXAMPLES: &str = "\
Examples:
  tapline interfaces                                  what can be captured, and who does already
  tapline doctor                                      what here will lose, alter or delay packets, and what mends it
  tapline capture -i eth0 -n 'tcp port 443'           look at traffic
  tapline capture -i eth0 -w trace.pcapng -G 60       a file each minute, drops noted inside
  tapline capture -r trace.pcapng -n -v 'udp'         read it again
  tapline run -e 'device(eth0) -> top(by=flow)'       a graph of stages: who talks most
  tapline probe -i eth0 --export 10.0.0.1:4739        flows to a collector, as IPFIX
  tapline generate -w imix.pcap size=imix count=1M    packets as you want them, the same each time
  tapline filter explain 'vlan and tcp port 80'       what a filter does, test by test
  tapline replay trace.pcap -i veth0 --rate 10k       send a file again
  tapline serve -i eth0 --name office                 capture once for many readers (tapline capture -i tap:office)
  tapline record -i eth0 --to /srv/store --size 80%   keep packets for days; tapline find /srv/store 'host 10.0.0.1'
  tapline top                                         what running captures and graphs do, stage by stage
  tapline profile -r trace.pcapng 'udp'               what a packet costs here, component by component";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Capture packets from interfaces or files: filter them, print them, save them, account for each.
    Capture(Box<CaptureArgs>),
    /// Record packets for days: into a store that keeps to its size, indexed while it is written.
    #[command(after_help = crate::store::RECORD_EXAMPLES)]
    Record(Box<crate::store::RecordArgs>),
    /// Find packets in a store, by time and filter, up to those of a second ago.
    #[command(after_help = crate::store::FIND_EXAMPLES)]
    Find(Box<crate::store::FindArgs>),
    /// Look at a store: what it holds, and whether it is as it was recorded.
    #[command(subcommand, after_help = crate::store::STORE_EXAMPLES)]
    Store(crate::store::StoreCommand),
    /// Run a graph of stages: filter, sample, count, record, and more, each packet read once for all of them.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Make flows of packets, and send them to collectors as IPFIX or NetFlow, or show the greatest.
    #[command(after_help = crate::probe::EXAMPLES)]
    Probe(Box<crate::probe::ProbeArgs>),
    /// Make packets from a recipe, the same for the same seed: protocols, sizes, flows, rates, faults.
    #[command(after_help = crate::generate::help())]
    Generate(Box<crate::generate::GenerateArgs>),
    /// Look into filters.
    #[command(subcommand)]
    Filter(FilterCommand),
    /// List interfaces: addresses, speed, driver, link type, and who captures there.
    Interfaces(InterfacesArgs),
    /// Tell what on this machine will lose, alter or delay packets, how bad it is, and the command that mends it; or mend it for a while.
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(crate::doctor::DoctorArgs),
    /// Show what running processes of tapline do: packets, bits and cycles of each stage.
    #[command(after_help = crate::top::EXAMPLES)]
    Top(crate::top::TopArgs),
    /// Measure what a packet costs here: in the kernel, at each stage, at each output.
    #[command(after_help = crate::profile::EXAMPLES)]
    Profile(Box<crate::profile::ProfileArgs>),
    /// Send the packets of capture files out of an interface: with their gaps, scaled, at a rate, in a loop.
    #[command(after_help = crate::replay::EXAMPLES)]
    Replay(Box<crate::replay::ReplayArgs>),
    /// Capture once for many: programs read by shared memory (-i tap:NAME), each with its own filter, and each packet is stored once.
    #[command(after_help = crate::serve::EXAMPLES)]
    Serve(crate::serve::ServeArgs),
    /// Show what tapline serve does: captures, readers, how far they lag, what they lost and what it costs.
    Status(crate::serve::StatusArgs),
    /// Measure what this machine bears: capture, filter and store at every rate, beside other programs.
    Bench(Box<tapline_bench::system::BenchArgs>),
}

const RUN_EXAMPLES: &str = "\
Examples:
  tapline run -e 'device(eth0) -> filter(\"tcp port 80\") -> record(\"web.pcapng\")'
  tapline run -e 'file(\"a.pcap\") -> top(by=flow, n=20)'
  tapline run web.graph dns.graph                  what both have in common runs once
  tapline run --check --explain web.graph          is it right, and what the planner makes of it
  tapline run --dot web.graph | dot -Tsvg          a drawing
  tapline run --stages                             every class of stages; --stages sample: one of them

The language: name :: class(arguments) declares a stage, a -> b -> c connects. docs/graph.md has the grammar.";

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Files that hold graphs. Several run as one: stages that they have in common run once.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A graph as text. May be repeated, and stand beside files.
    #[arg(short = 'e', value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Only check whether the graph is right.
    #[arg(long)]
    pub(crate) check: bool,
    /// Only draw the graph, in the language of Graphviz.
    #[arg(long, conflicts_with = "check")]
    pub(crate) dot: bool,
    /// Say what the planner did: which stages run once for several, which filters the kernel runs.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Read the files again on SIGHUP: graphs come, go and change while the others run on and miss nothing. Sources stay as they are. Filters then
    /// run here, one by one, not in the kernel.
    #[arg(long, conflicts_with = "workers")]
    pub(crate) reload: bool,
    /// Describe the classes of stages, or the one named.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "")]
    pub(crate) stages: Option<String>,
    /// Open devices in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    #[command(flatten)]
    pub(crate) xdp: XdpArgs,
    /// Let bounce and reflect send on this interface, whatever it is. May be repeated. Without it they send on loopback and veth
    /// interfaces only.
    #[arg(long, value_name = "IFACE")]
    pub(crate) i_own_this_network: Vec<String>,
    /// Threads that share the packets of each source by host, each with the graph up to the first stage that must see all packets in their order;
    /// from there on one thread has those of all. Results are those of one worker; packets reach files and lines batch by batch, not strictly by
    /// time, unless `merge` stands before them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<std::time::Duration>,
    /// Results and account as JSON, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Results go where the account goes, for standard output has something else.
    #[arg(skip)]
    pub(crate) results_aside: bool,
    /// Results of `meter` and `top` are shown as flows, for people: `tapline probe`.
    #[arg(skip)]
    pub(crate) flows: Option<crate::flows::Style>,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Become this user once all is open; root runs as the caller of sudo unless told otherwise.
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(crate) relinquish_privileges: Option<String>,
    /// As root, write through a symbolic link that has the name of a file; otherwise that is an error.
    #[arg(long)]
    pub(crate) follow_links: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Show how a filter is understood: its tree, its BPF program, and what each test means.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Measure what filters cost on this machine: each engine that there is, side by side, on the same packets.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  tapline filter bench                                         the filters of the papers on BPF, and what people type
  tapline filter bench -r busy.pcap 'tcp port 443 and net 10.0.0.0/8'

libpcap's interpreter takes part if libpcap is installed, the kernel's JIT if programs may be loaded (root). Each figure is the median of
interleaved runs; all engines must accept the same packets before anything is measured.";

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Runs of each engine, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) runs: usize,
    #[command(flatten)]
    pub(crate) what: tapline_bench::filter::FilterArgs,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tapline filter explain 'host 10.0.0.1 and not port 22'
  tapline filter explain -d 'tcp[tcpflags] & tcp-syn != 0'     as tcpdump -d prints it
  tapline filter explain -ddd --link-type RAW 'icmp'           decimal numbers, for other programs
  tapline filter explain --stage passes 'port 53 or port 80'   what each pass of the compiler does
  tapline filter explain 'anyvlan(inner(gre, tcp port 80))'    tagged or not, in the packet inside GRE
  tapline filter explain --fpl count.fpl                       a program: its statements, the work it may take";

/// A program in FPL (docs/filter/fpl.md).
#[derive(Clone, Debug, Args)]
pub(crate) struct FplArgs {
    /// A program in FPL. Capture: it decides over the packets that the filter accepts, drops those for which it returns 0, and keeps its
    /// memory from packet to packet; with --workers, each worker has a memory of its own. Explain: this program instead of a filter.
    #[arg(long, value_name = "FILE", help_heading = "Filter", conflicts_with = "dump")]
    pub(crate) fpl: Option<PathBuf>,
    /// How many memory cells the program has: a power of two, up to 16777216.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_cells: u32,
    /// The program may call EXTERN(NAME, ...), which finds the patterns of FILE (docs/search.md: one a line). Repeat it for more.
    #[arg(long, value_name = "NAME=FILE", help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_patterns: Vec<String>,
}

/// How the text of a filter is read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LanguageArgs {
    /// The shift of vlan, mpls, pppoes, geneve and vxlan ends with its parenthesis and at `or`; a VLAN tag that the kernel took
    /// out counts as on the wire. As scoped(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) scoped: bool,
    /// Look behind the extension headers of IPv6, with ports, tcp[...] and the like. As extensions(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) ipv6_extensions: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// What the first header of a packet is: a name or number of tcpdump.org/linktypes.html, such as RAW, LINUX_SLL2 or 113.
    #[arg(short = 'y', long, value_name = "TYPE", default_value = "EN10MB")]
    pub(crate) link_type: String,
    /// Only the program: -d as instructions, -dd as C, -ddd as decimal numbers.
    #[arg(short = 'd', action = ArgAction::Count)]
    pub(crate) dump: u8,
    /// Show one form that the filter takes on its way to code: tree, passes (values before and after each pass), ir (values after
    /// all passes), bpf, ebpf, native. Several with commas, or all.
    #[arg(long, value_name = "STAGE", value_delimiter = ',', conflicts_with = "dump")]
    pub(crate) stage: Vec<String>,
    /// Compile as for a live capture, where the kernel keeps VLAN tags apart.
    #[arg(long)]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Leave the program as it was generated, with its redundant tests.
    #[arg(short = 'O', long)]
    pub(crate) no_optimize: bool,
    /// The most bytes that the program lets through of a packet; 0 is the default.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAP_LEN)]
    pub(crate) snapshot_length: u32,
    #[command(flatten)]
    pub(crate) fpl: FplArgs,
    /// Read the filter from a file instead.
    #[arg(short = 'F', value_name = "FILE", conflicts_with = "filter")]
    pub(crate) filter_file: Option<PathBuf>,
    /// The filter, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InterfacesArgs {
    /// One JSON array instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Look in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// The socket of the daemon whose captures are listed too: this, TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH", conflicts_with = "netns")]
    pub(crate) socket: Option<PathBuf>,
}

/// The most that is taken of a packet unless it is told, and what snap length 0 stands for: as libpcap.
pub(crate) const SNAP_LEN: u32 = 262_144;

const CAPTURE_EXAMPLES: &str = "\
Examples:
  tapline capture -i eth0 -n port 53                   print DNS, addresses as numbers
  tapline capture -i eth0,eth1 -w both.pcapng          two interfaces into one file, told apart
  tapline capture -i xdp:eth1 -w port.pcapng           all packets of a monitor port, past the kernel's stack (AF_XDP)
  tapline capture -i xdp:eth0 'udp port 4789'          only these leave the host; it keeps all others
  tapline capture -i any -w - | wireshark -k -i -      each interface with its own link layer
  tapline capture -i eth0 -G 60 -W 10 -w 'ring-%H%M%S.pcapng'
  tapline capture -r in.pcap.gz -w out.pcapng 'host 10.0.0.1'
  tapline capture -r a.pcap -r b.pcap --merge -n       two files as one, by time
  tapline capture -r in.pcap --json | jq .ipv4.src
  tapline capture -i eth0 --verify 'udp port 9'        marked packets of tapline generate: lost, doubled, reordered
  tapline capture -r in.pcap --fpl count-flows.fpl --fpl-memory    run a program, show what it has counted

At its end each capture accounts for its packets, and the sums balance. SIGUSR1 or --stats 1 shows them on the way.";

/// The flags are tcpdump's where tcpdump has them.
#[derive(Debug, Args)]
#[command(after_help = CAPTURE_EXAMPLES)]
pub(crate) struct CaptureArgs {
    /// Interface to capture on: a name, a glob such as 'eth*', several with commas, or 'any'. May be repeated. With xdp: before a name AF_XDP takes
    /// its packets off the host instead of copies (docs/afxdp.md).
    #[arg(short, long, value_name = "NAMES", help_heading = "Input")]
    pub(crate) interface: Vec<String>,
    /// Read packets from a file ('-' is standard input): pcap, pcapng, ERF; also gzip, zstd, lz4. May be repeated. store:DIRECTORY is a store.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with = "interface")]
    pub(crate) read: Vec<PathBuf>,
    /// Merge the files that are read by time, instead of one after the other.
    #[arg(long, help_heading = "Input", requires = "read")]
    pub(crate) merge: bool,
    /// Capture in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Input", conflicts_with = "read")]
    pub(crate) netns: Option<String>,
    /// Keep at most this many bytes of a packet, from files too; 0 is the default of 262144.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAP_LEN, help_heading = "Input")]
    pub(crate) snapshot_length: u32,
    #[command(flatten)]
    pub(crate) past: PastArgs,
    #[command(flatten)]
    pub(crate) xdp: XdpArgs,
    #[command(flatten)]
    pub(crate) tap: TapArgs,
    /// Leave interfaces out of promiscuous mode.
    #[arg(short = 'p', long, help_heading = "Input")]
    pub(crate) no_promiscuous_mode: bool,
    /// Packets of which direction.
    #[arg(short = 'Q', long, value_name = "in|out|inout", default_value = "inout", help_heading = "Input")]
    pub(crate) direction: DirectionArg,
    /// Ring size in KiB, for each interface and worker (with xdp: each queue), 64 to 2097152; by default from link speed and memory.
    #[arg(short = 'B', long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(64..=2_097_152), help_heading = "Input")]
    pub(crate) buffer_size: Option<u64>,
    /// Threads that share each interface's packets by flow.
    /// Packets of different workers reach the output batch by batch, not strictly by time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), help_heading = "Input")]
    pub(crate) workers: u16,
    /// Link type to capture as: what -L lists.
    #[arg(short = 'y', long, value_name = "TYPE", help_heading = "Input")]
    pub(crate) linktype: Option<String>,
    /// Where time stamps come from: what -J lists.
    #[arg(short = 'j', long, value_name = "TYPE", help_heading = "Input")]
    pub(crate) time_stamp_type: Option<String>,
    /// Hand packets over as they come, at more cost for each.
    #[arg(long, help_heading = "Input")]
    pub(crate) immediate_mode: bool,

    /// Read the filter from a file; a filter on the command line is then ignored, as tcpdump does.
    #[arg(short = 'F', value_name = "FILE", help_heading = "Filter")]
    pub(crate) filter_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Do not simplify the filter's program.
    #[arg(short = 'O', long, help_heading = "Filter")]
    pub(crate) no_optimize: bool,
    #[command(flatten)]
    pub(crate) fpl: FplArgs,
    /// At the end, and on SIGUSR1, show the memory cells that are not 0: index and value; with several workers the worker's
    /// number first. With --json, one object. If nothing else is asked for, packets are not printed.
    #[arg(long, help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_memory: bool,
    /// Print the filter's program and stop: -d as instructions, -dd as C, -ddd as decimal numbers.
    #[arg(short = 'd', action = ArgAction::Count, help_heading = "Filter")]
    pub(crate) dump: u8,

    /// Stop after this many packets, 1 or more.
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Stop")]
    pub(crate) count_packets: Option<u64>,
    /// Stop after this time: seconds, or with a unit: 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Stop")]
    pub(crate) duration: Option<std::time::Duration>,

    /// Write packets to a file ('-' is standard output). Its ending chooses the format: .pcapng or else pcap, and
    /// .gz, .zst or .lz4 after it.
    #[arg(short = 'w', value_name = "FILE", help_heading = "Output")]
    pub(crate) write: Option<PathBuf>,
    /// Write in this format, whatever the name says.
    #[arg(long, value_name = "FORMAT", help_heading = "Output", requires = "write")]
    pub(crate) format: Option<FormatArg>,
    /// Make each packet visible in the file at once.
    #[arg(short = 'U', long, help_heading = "Output")]
    pub(crate) packet_buffered: bool,
    /// Begin a new file after this many million bytes; with k, m or g: KiB, MiB or GiB.
    #[arg(short = 'C', value_name = "SIZE", help_heading = "Output", requires = "write")]
    pub(crate) file_size: Option<String>,
    /// Begin a new file after this many seconds, traffic or not; the name may hold strftime(3) codes.
    #[arg(short = 'G', value_name = "SECONDS", help_heading = "Output", requires = "write")]
    pub(crate) rotate_seconds: Option<u64>,
    /// How many files: with -C a ring of that many (sizes count before packing), with -G alone stop after them.
    #[arg(short = 'W', value_name = "N", help_heading = "Output", requires = "write")]
    pub(crate) file_count: Option<u64>,
    /// Let the name of the file in progress end in .part.
    #[arg(long, help_heading = "Output", requires = "write")]
    pub(crate) part: bool,
    /// Print packets even though they are written to a file.
    #[arg(long, help_heading = "Output")]
    pub(crate) print: bool,
    /// Only count packets.
    #[arg(long, help_heading = "Output")]
    pub(crate) count: bool,
    /// Read the marks of generated packets (`mark` in a recipe), and show at the end what is lost, doubled, reordered, and how long
    /// packets took. With --json, one object. If nothing else is asked for, packets are not printed.
    #[arg(long, help_heading = "Output")]
    pub(crate) verify: bool,
    /// One JSON object a packet, and the account as the last object.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Addresses and ports as numbers (twice: protocols too). Host names are never looked up without --names.
    #[arg(short = 'n', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) numeric: u8,
    /// Look host names up.
    #[arg(long, help_heading = "Text")]
    pub(crate) names: bool,
    /// Show link-layer headers.
    #[arg(short = 'e', help_heading = "Text")]
    pub(crate) link_header: bool,
    /// More detail; again for more.
    #[arg(short = 'v', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) verbose: u8,
    /// Less detail.
    #[arg(short = 'q', help_heading = "Text")]
    pub(crate) quiet: bool,
    /// Time: -t none, -tt seconds since 1970, -ttt since the last packet, -tttt with date, -ttttt since the first.
    #[arg(short = 't', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) time: u8,
    /// Times to the nanosecond.
    #[arg(long, help_heading = "Text")]
    pub(crate) nano: bool,
    /// Times to the microsecond (the default for text; files always keep nanoseconds).
    #[arg(long, help_heading = "Text", conflicts_with = "nano")]
    pub(crate) micro: bool,
    /// The same by name, as tcpdump has it.
    #[arg(long, value_name = "UNIT", help_heading = "Text", conflicts_with_all = ["nano", "micro"])]
    pub(crate) time_stamp_precision: Option<PrecisionArg>,
    /// Packet bytes in hex; twice: with the link-layer header.
    #[arg(short = 'x', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) hex: u8,
    /// Packet bytes in hex and ASCII; twice: with the link-layer header.
    #[arg(short = 'X', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) hex_ascii: u8,
    /// Packet bytes in ASCII; twice: with the link-layer header.
    #[arg(short = 'A', action = ArgAction::Count, help_heading = "Text")]
    pub(crate) ascii: u8,
    /// Do not verify checksums where -v shows them: the card may have filled them in later.
    #[arg(short = 'K', long, help_heading = "Text")]
    pub(crate) dont_verify_checksums: bool,
    /// TCP sequence numbers as they are, not relative.
    #[arg(short = 'S', long, help_heading = "Text")]
    pub(crate) absolute_tcp_sequence_numbers: bool,
    /// Number the packets.
    #[arg(short = '#', long, help_heading = "Text")]
    pub(crate) number: bool,
    /// Make each line visible at once.
    #[arg(short = 'l', help_heading = "Text")]
    pub(crate) line_buffered: bool,
    /// Colour: when standard output is a terminal, always or never.
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Text")]
    pub(crate) color: ColorArg,

    /// Show live counters on the terminal.
    #[arg(long, help_heading = "Reports")]
    pub(crate) progress: bool,
    /// Print the account every so many seconds.
    #[arg(long, value_name = "SECONDS", help_heading = "Reports")]
    pub(crate) stats: Option<u64>,

    /// After opening, become this user. By default the user who called sudo, if one did.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    pub(crate) relinquish_privileges: Option<String>,
    /// As root, write through a symbolic link that has the name of the file; otherwise that is an error.
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

    /// The filter, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    pub(crate) filter: Vec<String>,

    /// How a store is recorded: `tapline record`.
    #[arg(skip)]
    pub(crate) recorder: Option<RecorderSettings>,
    /// The account tells what a search passed over.
    #[arg(skip)]
    pub(crate) explain_search: bool,
}

impl CaptureArgs {
    /// As if nothing was typed: for commands that are a capture of their own.
    pub(crate) fn without_arguments() -> CaptureArgs {
        let command = CaptureArgs::augment_args(clap::Command::new("capture"));
        let matches = command.get_matches_from(["capture"]);
        CaptureArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    In,
    Out,
    Inout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    Pcap,
    Pcapng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    Micro,
    Nano,
}

pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        unit => return Err(format!("unknown unit '{unit}': use ms, s, m, h or d")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("'{digits}' is not a number"))?;
    std::time::Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// A time between two readings: at least a hundredth of a second.
pub(crate) fn parse_interval(text: &str) -> Result<std::time::Duration, String> {
    let least = std::time::Duration::from_millis(10);
    parse_duration(text)
        .and_then(|time| if time < least { Err("less than 10ms".to_owned()) } else { Ok(time) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90").unwrap().as_secs(), 90);
        assert_eq!(parse_duration("1.5m").unwrap().as_secs(), 90);
        assert!(parse_duration("5x").is_err());
        assert!(parse_duration("-1").is_err());
    }
}
