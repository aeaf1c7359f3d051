//! `tapline filter`: explains filters, and measures them.

mod stages;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgAction, Args, Subcommand};
use tapline_filter::{HandleKind, Options};
use tapline_packet::LinkType;
use tapline_syntax::units::{count_in, size_in};
use tapline_sys::sandbox::AllowedAccess;

use crate::args::{FplArgs, LanguageArgs, SNAP_LEN};
use crate::compiler::{check_filter, filter_text, program_form};
use crate::mistakes::{mistake, misuse};
use crate::{fpl, privileges};

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Show how a filter is parsed: its tree, its BPF program, and the meaning of each test.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Measure what filters cost on this machine: every available engine, side by side, on the same packets.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
}

const BENCH_EXAMPLES: &str = "\
Examples:
  tapline filter bench                                         the filters of the papers on BPF, and common ones
  tapline filter bench -r busy.pcap 'tcp port 443 and net 10.0.0.0/8'

libpcap's interpreter is measured if libpcap is installed, and the kernel's JIT if you may load programs (as root). Each figure is the median
of interleaved runs; all engines must accept the same packets before anything is measured.";

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Runs of each engine, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = count_in::<usize>(1..=1000))]
    pub(crate) runs: usize,
    #[command(flatten)]
    pub(crate) what: tapline_measure::filter::FilterArgs,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tapline filter explain 'host 10.0.0.1 and not port 22'
  tapline filter explain -d 'tcp[tcpflags] & tcp-syn != 0'     as tcpdump -d prints it
  tapline filter explain -ddd --link-type RAW 'icmp'           decimal numbers, for other programs
  tapline filter explain --stage passes 'port 53 or port 80'   what each pass of the compiler does
  tapline filter explain --stage front 'udp port 53'           what runs in front of AF_XDP, and what behind it
  tapline filter explain 'anyvlan(inner(gre, tcp port 80))'    tagged or not, in the packet inside GRE
  tapline filter explain --fpl count.fpl                       an FPL program: its statements, and its maximum steps for one packet";

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Link type: a name or number of tcpdump.org/linktypes.html, such as RAW, LINUX_SLL2 or 113.
    #[arg(short = 'y', long, value_name = "TYPE", default_value = "EN10MB")]
    pub(crate) link_type: String,
    /// Print only the program: -d as instructions, -dd as C, -ddd as decimal numbers.
    #[arg(short = 'd', action = ArgAction::Count)]
    pub(crate) dump: u8,
    /// Show one form that the filter takes on its way to code: tree, passes (values before and after each pass), ir
    /// (values after all passes), bpf, ebpf, front (the part that runs in front of AF_XDP, and the weaker parts for a
    /// kernel that refuses it), native. Several with commas, or all.
    #[arg(long, value_name = "STAGE", value_delimiter = ',', conflicts_with = "dump")]
    pub(crate) stage: Vec<String>,
    /// Compile as for a live capture, where the kernel removes VLAN tags from packets and passes them separately.
    #[arg(long)]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Leave the program as it was generated, with its redundant tests.
    #[arg(short = 'O', long)]
    pub(crate) no_optimize: bool,
    /// Snapshot length: the program accepts at most this many bytes of a packet; 0 means 262144.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAP_LEN, value_parser = size_in::<u32>(..))]
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

pub(crate) fn run(command: &FilterCommand) -> Result<()> {
    match command {
        FilterCommand::Explain(args) => {
            privileges::confine_compiler();
            explain(args)
        }
        FilterCommand::Bench(args) => {
            args.what.filter.iter().try_for_each(|text| check_filter(text))?;
            tapline_measure::filter::run(&args.what, args.runs, || {
                let reads = args.what.file.iter().cloned().collect();
                let needs = AllowedAccess { reads, runs_programs: true, ..AllowedAccess::default() };
                privileges::confine_quietly(&needs);
            })
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<()> {
    let Some(link_type) = LinkType::from_name(&args.link_type) else {
        misuse!(
            "there is no link type '{}': names and numbers are those of tcpdump.org/linktypes.html",
            args.link_type
        );
    };
    if let Some(path) = &args.fpl.fpl {
        if !args.filter.is_empty() || args.filter_file.is_some() {
            misuse!("--fpl explains a program alone: leave the filter out");
        }
        let explained = fpl::explain(path, link_type, &args.fpl, &args.stage)?;
        return Ok(io::stdout().write_all(explained.as_bytes())?);
    }
    let text = filter_text(args.filter_file.as_deref(), &args.filter)?;
    let options = Options {
        link_type,
        // As with tcpdump.
        snap_len: if args.snapshot_length == 0 { SNAP_LEN } else { args.snapshot_length },
        netmask: Some(0),
        handle: if args.live { HandleKind::Live } else { HandleKind::Dead },
        optimise: !args.no_optimize,
        ..args.language.options(Options::default())
    };
    if !args.stage.is_empty() {
        return Ok(io::stdout().write_all(stages::render(&args.stage, &text, &options)?.as_bytes())?);
    }
    let explained = if args.dump > 0 {
        tapline_filter::compile(&text, &options).map(|filter| filter.program().text(program_form(args.dump)))
    } else {
        tapline_filter::explain(&text, &options)
    };
    match explained {
        Ok(explained) => Ok(io::stdout().write_all(explained.as_bytes())?),
        Err(error) => Err(mistake(error.render(&text))),
    }
}
