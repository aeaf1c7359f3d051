//! Outputs of a capture: a file, lines on standard output, a count.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tapline_capture::af_packet::is_pattern;
use tapline_file::{
    FileCreator, Format as FileFormat, Rotation, Section, WriteOptions, parse_size, system_zone,
};
use tapline_graph::{Control, Stage};
use tapline_packet::Interface;
use tapline_print::{HexStyle, HostLookup, Options, Precision, Printer, TimeStyle};
use tapline_stages::{ChunkOutput, ChunkSettings, FileOutput, LineFormat, LinesOutput, arrow_output};
use tapline_store::RecorderSettings;
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::{AllowedAccess, folder_of};

use super::args::{CaptureArgs, PrecisionArg};
use super::filtering::Filtering;
use super::input::Input;
use crate::args::FormatArg;
use crate::mistakes::{mistake, misuse};
use crate::output::{self, CountOutput};
use crate::privileges::PipeOpener;
use crate::session::Session;
use crate::{privileges, store, stored};

/// Longest time for which a new address delays a live capture until its name is found: `/etc/hosts` and a cache on the
/// machine answer within it, and the kernel's ring has room for it.
const NAME_WAIT_LIVE: Duration = Duration::from_millis(10);
/// The delay for files, which lose nothing meanwhile: time for a server in the Internet.
const NAME_WAIT_FILE: Duration = Duration::from_millis(500);

/// Opens every requested output.
pub(super) fn open(
    args: &CaptureArgs,
    filtering: &Filtering,
    program: Option<&str>,
    input: &Input,
    identity: Option<&Identity>,
    own: Option<Box<dyn Stage>>,
) -> Result<Vec<Box<dyn Stage>>> {
    let mut outputs: Vec<Box<dyn Stage>> = Vec::new();
    let interfaces: Vec<Interface> =
        input.sources.first().map(|s| s.interfaces().to_vec()).unwrap_or_default();
    if let Some(directory) = args.write.as_deref().and_then(stored::directory) {
        let settings = args.recorder.clone().unwrap_or_default();
        let settings = RecorderSettings { is_live: input.is_live, ..settings };
        outputs.push(Box::new(store::open_output(&directory, settings, &interfaces, identity)?));
    } else if args.write.is_some() && args.written_receiver().is_none() {
        outputs.push(Box::new(open_file(args, filtering, program, input, &interfaces, identity)?));
    }
    outputs.extend(own);
    if args.arrow.arrow {
        outputs.push(arrow(args, input.is_live)?);
    }
    if args.prints() {
        if args.writes_standard_output() {
            let (other, mend) = if args.arrow.arrow {
                ("--arrow", "leave one out")
            } else {
                ("-w -", "give -w a file's name")
            };
            misuse!("{other} and --print would both write to standard output: {mend}");
        }
        outputs.push(Box::new(lines(args, input.is_live, is_several(args, &interfaces))?));
    } else if outputs.is_empty() && args.written_receiver().is_none() || args.count {
        outputs.push(Box::new(CountOutput::default()));
    }
    Ok(outputs)
}

/// Settings of the receiver of chunks that -w names, if it names one, with its password.
pub(super) fn receiver(
    args: &CaptureArgs,
    filtering: &Filtering,
    program: Option<&str>,
    is_live: bool,
) -> Result<Option<ChunkSettings>> {
    let Some(to) = args.written_receiver() else { return args.receiver.check_unused().map(|()| None) };
    let is_for_files = args.format.is_some()
        || args.file_size.is_some()
        || args.rotate_seconds.is_some()
        || args.file_count.is_some()
        || args.part
        || !args.secrets.is_empty();
    if is_for_files {
        misuse!("-w {to}: --format, --secrets, --part, -C, -G and -W are for files: leave them out");
    }
    args.receiver.chunks(to, section(args, filtering, program, is_live), is_live).map(Some)
}

/// Opens the receiver: once rights are given up, as it has threads.
pub(super) fn open_receiver(settings: ChunkSettings, control: &Control) -> Result<Box<dyn Stage>> {
    Ok(Box::new(ChunkOutput::open(settings, &control.pacing_cancel_flag())?))
}

/// Rights needed once all is open.
pub(super) fn needs(
    args: &CaptureArgs,
    filtering: &Filtering,
    receiver: Option<&ChunkSettings>,
    is_live: bool,
    session: &Session,
) -> AllowedAccess {
    let store = args.write.as_deref().and_then(stored::directory);
    let is_file = !args.writes_standard_output() && store.is_none() && receiver.is_none();
    let path = args.write.as_deref().filter(|_| is_file);
    let spool = receiver.and_then(|_| args.receiver.spool_folder());
    let of_receiver = receiver.into_iter().flat_map(|receiver| receiver.to.files_read());
    let mut needs = AllowedAccess {
        makes: store.into_iter().chain(spool).collect(),
        reads: args.read.iter().filter_map(|name| stored::directory(name)).chain(of_receiver).collect(),
        ip: receiver.is_some()
            || args.names && args.numeric == 0
            || is_live && tapline_filter::may_ask_for_names(filtering.text()),
        ..AllowedAccess::default()
    };
    // Pipes that have the names of files in a rotation are opened with what rights are left.
    session.allow_files(&mut needs, path.and_then(folder_of).map(Path::to_owned));
    needs
}

/// Whether packets are shown with their interface: there are several interfaces, or there may be later.
fn is_several(args: &CaptureArgs, interfaces: &[Interface]) -> bool {
    let is_open = |names: &String| names.split(',').any(is_pattern);
    let named = |interface: &&Interface| !interface.name.is_empty() && interface.name != "-";
    let names: HashSet<&str> =
        interfaces.iter().filter(named).map(|interface| interface.name.as_str()).collect();
    names.len() > 1 || args.interface.iter().any(is_open)
}

fn open_file(
    args: &CaptureArgs,
    filtering: &Filtering,
    program: Option<&str>,
    input: &Input,
    interfaces: &[Interface],
    identity: Option<&Identity>,
) -> Result<FileOutput> {
    let Some(path) = &args.write else { misuse!("no file to write was given") };
    if args.writes_standard_output() && io::stdout().is_terminal() {
        misuse!("packets are not for a terminal: send them to a program (-w - | ...) or to a file (-w NAME)");
    }
    let mut options = WriteOptions::new(path, interfaces);
    options.format = FormatArg::of(args.format, path)?;
    if !args.secrets.is_empty() && options.format != FileFormat::Pcapng {
        misuse!("--secrets needs a file of pcapng: end its name in .pcapng, or add --format pcapng");
    }
    options.blocks = Some(input.blocks.clone());
    options.rotation = rotation(args)?;
    options.is_flushed_each_batch = args.packet_buffered;
    options.has_part_name = args.part;
    options.snap_len = args.snap_len();
    options.section = section(args, filtering, program, input.is_live);
    if let Some(interval) = args.statistics_interval {
        options.statistics_interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
    }
    // Packets of a store are written as they are there. Imported files have packets beyond their snap length, and a
    // pcap header made for the first interface would cut those of later ones.
    if args.read.iter().any(|name| stored::directory(name).is_some()) {
        (options.snap_len, options.keeps_all_bytes) = (0, true);
    }
    let files = match args.is_for_wireshark {
        true => Box::new(PipeOpener) as Box<dyn FileCreator>,
        false => privileges::files(path, identity)?,
    };
    output::file(options, path, interfaces, input.is_live, files)
}

/// Packets as columns on standard output.
fn arrow(args: &CaptureArgs, is_live: bool) -> Result<Box<dyn Stage>> {
    if io::stdout().is_terminal() {
        misuse!(
            "columns are not for a terminal: send them to a program (--arrow | ...) or to a file (--arrow > NAME)"
        );
    }
    let columns = args.arrow.columns.as_deref();
    arrow_output(columns, output::standard()?, is_live).map_err(|error| anyhow!("--arrow: {error}"))
}

fn rotation(args: &CaptureArgs) -> Result<Rotation> {
    let number = |name, value: Option<u64>| {
        value
            .map(|n| u32::try_from(n).map_err(|_| mistake(format_args!("{name} {n} is too large"))))
            .transpose()
    };
    Ok(Rotation {
        size_max: args.file_size.as_deref().map(parse_size).transpose().map_err(mistake)?,
        period_s: number("-G", args.rotate_seconds)?,
        count: number("-W", args.file_count)?,
    })
}

/// The writer's section header in pcapng.
fn section(args: &CaptureArgs, filtering: &Filtering, program: Option<&str>, is_live: bool) -> Section {
    let filter = if filtering.text().is_empty() { "none".to_owned() } else { filtering.in_words() };
    let program = program.map(|name| format!(", FPL program: {name}")).unwrap_or_default();
    let stamps = args.time_stamp_type.as_deref();
    output::section(&format!("filter: {filter}{program}"), is_live, stamps)
}

fn lines(args: &CaptureArgs, is_live: bool, is_several: bool) -> Result<LinesOutput<File>> {
    let is_terminal = io::stdout().is_terminal();
    let format = if args.json {
        LineFormat::Json
    } else {
        let printer = Box::new(printer(args, is_live, is_several));
        LineFormat::Text { printer, colored: args.color.is_colored() }
    };
    let stream = output::standard()?;
    Ok(LinesOutput::new(format, stream, is_live || is_terminal || args.line_buffered))
}

fn printer(args: &CaptureArgs, is_live: bool, is_several: bool) -> Printer {
    let options = Options {
        host_names: args.names && args.numeric == 0,
        port_names: args.numeric == 0,
        interface: is_several,
        link_header: args.link_header,
        verbose: args.verbose,
        quiet: args.quiet,
        time: time_style(args.time),
        precision: match args.time_stamp_precision {
            Some(PrecisionArg::Nano) => Precision::Nano,
            _ if args.nano => Precision::Nano,
            _ => Precision::Micro,
        },
        hex: hex_style(args),
        absolute_seq: args.absolute_tcp_sequence_numbers,
        number: args.number,
        verify_checksums: !args.dont_verify_checksums,
        zone: system_zone(),
    };
    let wants_hosts = options.host_names;
    let mut printer = Printer::new(options);
    if wants_hosts {
        let wait = if is_live { NAME_WAIT_LIVE } else { NAME_WAIT_FILE };
        printer.set_host_names(Box::new(HostLookup::new(tapline_sys::host_name, wait)));
    }
    printer
}

fn time_style(count: u8) -> TimeStyle {
    match count {
        0 => TimeStyle::TimeOfDay,
        1 => TimeStyle::None,
        2 => TimeStyle::Epoch,
        3 => TimeStyle::SincePrevious,
        4 => TimeStyle::DateTime,
        _ => TimeStyle::SinceFirst,
    }
}

fn hex_style(args: &CaptureArgs) -> HexStyle {
    match (args.hex_ascii, args.hex, args.ascii) {
        (0, 0, 0) => HexStyle::None,
        (0, 0, 1) => HexStyle::Ascii,
        (0, 0, _) => HexStyle::AsciiLink,
        (0, 1, _) => HexStyle::Hex,
        (0, _, _) => HexStyle::HexLink,
        (1, _, _) => HexStyle::HexAscii,
        _ => HexStyle::HexAsciiLink,
    }
}
