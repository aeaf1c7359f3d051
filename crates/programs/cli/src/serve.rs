//! `tapline serve` and `tapline status`.
//!
//! ```text
//! rules -> sources, stores and socket (opened with all rights) -> rights given up -> threads -> serve -> account
//! ```

mod publishing;
mod readers;
mod recording;
mod status;
mod viewing;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sd_notify::NotifyState;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tapline_capture::af_packet::{self, AfPacketSettings, LATENCY_INTERACTIVE_MS, TimestampSource};
use tapline_daemon::{
    Capture, CaptureRule, CaptureTotals, Confinement, EntryKind, JournalEntry, Log, Orders, RecordRule,
    Rules, Server, Socket, TimeStamps, confine,
};
use tapline_file::{FileInput, MergeOrder};
use tapline_filter::{HandleKind, Options};
use tapline_ir::CompiledFilter;
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_source::{Count, Source};
use tapline_syntax::units::count_in;
use tapline_sys::privilege::{self, Identity};
use tapline_sys::sandbox::AllowedAccess;
use tapline_sys::waiting;
use tapline_tap_client::protocol::ControlAction;
use tapline_tap_client::{Client, socket_path};

use crate::configuration::with_nearest;
use crate::live::{self, Live, TapArgs, XdpArgs};
use crate::mistakes::{mistake, misuse};
use crate::output::say;
use crate::report::AccountForm;
use crate::strict::{self, LostPackets, ReportArgs};
use crate::{files, privileges, report, session, signals};
use publishing::OpenedPlace;
use readers::{EndedReader, Reader, RunningReader};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline serve -i eth0 --name office                 then, by any permitted user: tapline capture -i tap:office 'tcp port 443'
  tapline serve -i eth0 --name office --history ''    readers can start in the past (tapline capture -i tap:office --since 10s)
  tapline serve --config /etc/tapline/serve.toml      several captures, with rules for their readers
  tapline status                                      readers, their lag and their losses

Without rules only root and the user that started the daemon (under sudo, its caller) may read. SIGHUP reloads the rules. docs/serve.md describes them.";

/// Arguments of the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Rules file: captures, and the rights of their readers.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["interface", "name", "history", "buffer", "count_all", "view"])]
    config: Option<PathBuf>,
    /// Capture on this interface, or on these (a,b), as one capture. The prefix xdp: captures by AF_XDP. drops: is an
    /// error: it has no other readers (docs/account.md).
    #[arg(short, long, value_name = "IFACE")]
    interface: Vec<String>,
    /// Serve the packets of this file instead. Reading starts when the first reader attaches, and keeps the pace of the
    /// slowest lossless reader.
    #[arg(short, long, value_name = "FILE", conflicts_with = "interface")]
    read: Option<PathBuf>,
    /// Name of the capture for readers: tap:NAME. Default: the interface's name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Keep packets that this filter accepts ('' for all) even while there is no reader, so that readers can start in
    /// the past.
    #[arg(long, value_name = "FILTER")]
    history: Option<String>,
    /// Meter the flows of the capture, for `tapline view` and `tapline top`.
    #[arg(long)]
    view: bool,
    /// Also count packets that no reader wants: the kernel then passes all packets. By default it passes only those
    /// that a reader wants.
    #[arg(long)]
    count_all: bool,
    /// Size of the buffer in MiB, a power of two.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = count_in::<u32>(..))]
    buffer: u32,
    /// The socket for readers. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Capture in this network namespace.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    netns: Option<String>,
    /// Run as this user once everything is open; `root` stays root. Default: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER")]
    relinquish_privileges: Option<String>,
    /// Print the account at the end as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    report: ReportArgs,
}

/// Time limit for the log's reader at the end.
const LOG_WAIT: Duration = Duration::from_secs(2);

/// Arguments of the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// The socket of tapline serve. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs `tapline serve`.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let rules = rules(args)?;
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    rules.unknown().iter().for_each(|line| say(format!("warning: {line}")));
    let (mut signals, while_opening) = signals::queue_while_opening(&[SIGINT, SIGTERM, SIGHUP], &[SIGUSR1])?;
    let opened = open_captures(&rules)?;
    let (graphs, places) = publishing::open_all(&rules, &opened)?;
    let mut readers = open_stores(&rules, &opened, identity.as_ref())?;
    let socket = Socket::bind(&rules, Some(privileges::starter()))?;
    readers.extend(viewing::open_all(&rules, identity.as_ref()));
    readers.extend(graphs);
    while_opening.remove();
    // Only stages of recordings, views and places have meters.
    let meters = if readers.is_empty() { Meters::private() } else { Meters::create(&session::title()) };
    // Root has its files, but nothing else that others have not: interfaces are open.
    privilege::drop_to(identity.as_ref()).context("cannot drop privileges")?;
    let manager = std::env::var("NOTIFY_SOCKET").ok();
    let lacks = confine(&Confinement {
        rules: args.config.as_deref(),
        socket: &rules.socket,
        manager: manager.as_deref(),
        stores: rules.records.iter().map(|record| record.to.clone()).collect(),
        meters: meters.path(),
    });
    lacks.iter().for_each(say);
    // Threads inherit what is left.
    let captures =
        opened.into_iter().map(|OpenCapture { rule, sources, filter }| Capture::start(rule, sources, filter));
    let mut captures = captures.collect::<Result<Vec<_>, _>>()?;
    // Behind the captures that they read: at the end these end first.
    captures.extend(places.into_iter().map(OpenedPlace::start).collect::<Result<Vec<_>>>()?);
    let mut server = Server::new(rules.clone(), socket, captures)?;
    // From here on others wait for this thread: it waits for no reader of the log.
    let log = Log::start(io::stderr(), "tapline: ")?;
    let start = |(number, reader): (usize, Reader)| reader.start(&mut server, number, &meters, &log);
    let readers = readers.into_iter().enumerate().map(start).collect::<Result<Vec<_>>>()?;
    let message = format!("serving at {}", rules.socket.display());
    log.entry(&JournalEntry { kind: EntryKind::Serving, message, fields: Vec::new() });
    let of_entries = log.clone();
    server.on_entry(move |entry| of_entries.entry(entry));
    tell_systemd(&[NotifyState::Ready]);
    let orders = server.orders();
    let (config, of_signals) = (args.config.clone(), log.clone());
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|signal| obey(signal, config.as_deref(), &orders, &of_signals));
    })?;
    let captures = server.run(&mut |line| log.line(line), &mut |captures| {
        let readers = readers.iter().map(RunningReader::latest).filter(EndedReader::has_account).collect();
        log.text(DaemonTotals { captures: captures.to_vec(), readers }.running_text());
    })?;
    let readers = readers.into_iter().map(RunningReader::join).filter(EndedReader::has_account).collect();
    let ended = DaemonTotals { captures, readers };
    let is_balanced = tell(args, &ended, &log);
    log.flush(LOG_WAIT);
    let is_whole = ended.readers.iter().all(EndedReader::is_whole);
    let code = if is_balanced && is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(args.report.code(code, &ended.losses()))
}

/// A capture whose interfaces or file are open.
struct OpenCapture {
    rule: CaptureRule,
    sources: Vec<Box<dyn Source>>,
    /// The compiled filter: the confined process cannot look names up.
    filter: Option<CompiledFilter>,
}

fn open_captures(rules: &Rules) -> Result<Vec<OpenCapture>> {
    let open = |rule: &CaptureRule| {
        let filter = Arc::new(OnceLock::new());
        let Live { sources, announcements } =
            open(rule, &filter).with_context(|| format!("capture {:?}", rule.name))?;
        announcements.iter().for_each(say);
        Ok(OpenCapture { rule: rule.clone(), sources, filter: filter.get().cloned() })
    };
    rules.captures.iter().map(open).collect()
}

fn open_stores(rules: &Rules, opened: &[OpenCapture], identity: Option<&Identity>) -> Result<Vec<Reader>> {
    let open = |record: &RecordRule| {
        let capture = opened.iter().find(|capture| capture.rule.name == record.capture);
        let source = capture.and_then(|capture| capture.sources.first());
        let interfaces = source.map(|source| source.interfaces()).unwrap_or_default();
        recording::open(record, rules, interfaces, identity)
    };
    rules.records.iter().map(open).collect()
}

/// Passes a signal on to the server.
fn obey(signal: i32, config: Option<&Path>, server: &Orders, log: &Log) {
    match (signal, config) {
        (SIGHUP, Some(path)) => {
            let now = NotifyState::monotonic_usec_now();
            let states = [Some(NotifyState::Reloading), now.ok()];
            tell_systemd(&states.into_iter().flatten().collect::<Vec<_>>());
            match read_rules(path) {
                Ok(rules) => {
                    rules.unknown().iter().for_each(|line| log.line(&format!("warning: {line}")));
                    server.reload(rules);
                }
                Err(error) => log.line(&format!("the rules stay as they were: {error:#}")),
            }
            tell_systemd(&[NotifyState::Ready]);
        }
        (SIGUSR1, _) => server.account(),
        (SIGHUP, None) => log.line("there is no file of rules to read again (--config)"),
        _ => {
            tell_systemd(&[NotifyState::Stopping]);
            server.stop();
        }
    }
}

/// The rules of a file, with stages that are right.
fn read_rules(path: &Path) -> Result<Rules> {
    let rules = Rules::read(path).map_err(|error| mistake(with_nearest(&error.to_string())))?;
    publishing::check_rules(&rules).with_context(|| path.display().to_string())?;
    Ok(rules)
}

/// The rules of a file, or those that the command line implies.
fn rules(args: &ServeArgs) -> Result<Rules> {
    let mut rules = match &args.config {
        Some(path) => read_rules(path)?,
        None => {
            let interfaces: Vec<String> =
                args.interface.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
            if interfaces.is_empty() && args.read.is_none() {
                misuse!(
                    "nothing to serve: give --interface IFACE, --read FILE, or --config FILE with captures and rules"
                );
            }
            let first = interfaces.first().map(|name| live::bare_name(name).trim_end_matches(':').to_owned());
            let stem = args.read.as_ref().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
            let name = args.name.clone().or(first).or(stem).unwrap_or_default();
            let capture = CaptureRule {
                name,
                interfaces,
                file: args.read.clone(),
                netns: args.netns.clone(),
                history: args.history.clone(),
                view: args.view,
                count_all: args.count_all,
                buffer: args.buffer,
                ..CaptureRule::default()
            };
            let rules = Rules { captures: vec![capture], ..Rules::default() };
            rules.check().map_err(mistake)?;
            rules
        }
    };
    if args.socket.is_some() || args.config.is_none() {
        rules.socket = socket_path(args.socket.as_deref());
    }
    Ok(rules)
}

/// The sources of a capture, one for each worker. Its filter is put into `compiled`.
fn open(rule: &CaptureRule, compiled: &Arc<OnceLock<CompiledFilter>>) -> Result<Live> {
    if let Some(path) = &rule.file {
        let file = waiting::open(path, || FileInput::open_file(path))?;
        let line = files::announcement(&file);
        let source: Box<dyn Source> = Box::new(FileInput::new(vec![file], MergeOrder::Given));
        if let (false, Some(interface)) = (rule.filter.trim().is_empty(), source.interfaces().first()) {
            let (link_type, handle) = (interface.link_type, HandleKind::Savefile);
            let options = Options { link_type, handle, snap_len: rule.snap_len, ..Options::default() };
            let program = tapline_filter::compile(&rule.filter, &options);
            let program = program.map_err(|error| mistake(error.render(&rule.filter)))?;
            compiled.get_or_init(|| program);
        }
        return Ok(Live { sources: vec![source], announcements: vec![line] });
    }
    let names: Vec<&str> = rule.interfaces.iter().map(String::as_str).collect();
    names.iter().try_for_each(|name| live::check_shared(name))?;
    let way = live::CaptureBackend::of(names.iter().copied())?;
    let taken = way.clone();
    let text = rule.filter.clone();
    let (first, known) = (OnceLock::new(), Arc::clone(compiled));
    let filter = Arc::new(move |interface: &Interface| {
        let have = *first.get_or_init(|| interface.link_type);
        if interface.link_type != have {
            let why = format!("a buffer holds packets of one link type, here {have}; make two captures");
            return Err(tapline_source::Error::Filter(why));
        }
        if text.trim().is_empty() {
            return Ok(None);
        }
        if let Some(program) = known.get() {
            return Ok(Some(program.clone()));
        }
        // Sent packets never come in front of the stack: `outbound` takes none there, which is not an error.
        let (handle, compile): (_, fn(&str, &Options) -> _) = match taken.is_xdp() {
            true => (HandleKind::Front, tapline_filter::compile_or_reject),
            false => (HandleKind::Live, tapline_filter::compile),
        };
        let options = Options { link_type: interface.link_type, handle, ..Options::default() };
        let program = compile(&text, &options);
        let program = program.map_err(|error| tapline_source::Error::Filter(error.render(&text)))?;
        Ok(Some(known.get_or_init(|| program).clone()))
    }) as af_packet::CompileFilter;
    let settings = AfPacketSettings {
        netns: rule.netns.clone(),
        filter: Some(filter),
        filter_text: rule.filter.clone(),
        snap_len: rule.snap_len,
        promiscuous: rule.promiscuous,
        ring_len: rule.kernel_buffer.map(|mib| u64::from(mib) << 20),
        is_restrictable: true,
        timestamps: match rule.time_stamps {
            TimeStamps::Host => TimestampSource::Host,
            TimeStamps::Adapter => TimestampSource::Adapter,
        },
        latency_ms: LATENCY_INTERACTIVE_MS,
        workers: rule.workers.max(1) as usize,
        order: af_packet::MergeOrder::Time,
        ..AfPacketSettings::new(&names)
    };
    if rule.interfaces.iter().any(|name| name.starts_with(tapline_tap_client::PREFIX)) {
        misuse!("a daemon cannot read another's captures: serve the interface itself");
    }
    live::open(settings, &way, XdpArgs::default(), &TapArgs::default())
}

/// Reports the state of the service to the service manager (Type=notify).
fn tell_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        say(format!("the service manager was not notified: {error}"));
    }
}

/// The fate of all packets.
struct DaemonTotals {
    captures: Vec<CaptureTotals>,
    /// Recordings, then graphs of places.
    readers: Vec<EndedReader>,
}

impl DaemonTotals {
    /// Equations of the accounts that do not hold.
    fn faults(&self) -> Vec<String> {
        let of_captures = self.captures.iter().flat_map(imbalances);
        of_captures.chain(self.readers.iter().flat_map(EndedReader::imbalances)).collect()
    }

    /// Packets lost before the captures, in their buffers and by stores; those of readers are in the readers' accounts.
    fn losses(&self) -> Vec<LostPackets> {
        let interfaces = self.captures.iter().flat_map(|capture| &capture.interfaces);
        let mut lost = strict::losses(interfaces, []);
        lost.extend(self.readers.iter().flat_map(EndedReader::losses));
        let full = self.captures.iter().filter(|capture| capture.not_stored > 0);
        lost.extend(full.map(|capture| LostPackets {
            place: format!("tap:{} (buffer)", capture.name),
            count: Count::Known(capture.not_stored),
        }));
        lost
    }

    fn rows(&self) -> report::Table {
        let mut text = rows(&self.captures);
        self.readers.iter().for_each(|reader| reader.add_rows(&mut text));
        text
    }

    /// The account of a daemon that goes on.
    fn running_text(&self) -> String {
        self.rows().running(&self.faults())
    }
}

/// Prints the account of all packets. Returns whether it adds up.
fn tell(args: &ServeArgs, ended: &DaemonTotals, log: &Log) -> bool {
    let faults = ended.faults();
    for capture in &ended.captures {
        if let Some(why) = capture.end_reason.as_ref().filter(|why| !why.is_empty()) {
            log.line(&format!("{}: {why}", capture.name));
        }
    }
    if args.json {
        let captures: Vec<Value> = ended.captures.iter().map(to_json).collect();
        let (recordings, graphs): (Vec<_>, Vec<_>) =
            ended.readers.iter().partition(|reader| reader.is_recording());
        let [recordings, graphs] = [recordings, graphs]
            .map(|readers| readers.into_iter().map(EndedReader::to_json).collect::<Value>());
        let value = json!({"account": {
            "captures": captures,
            "recordings": recordings,
            "graphs": graphs,
            "balanced": faults.is_empty(),
            "faults": faults,
        }});
        let _ = writeln!(io::stdout(), "{value}");
        return faults.is_empty();
    }
    if args.report.account.form(true) == AccountForm::Full {
        log.text(ended.rows().end(&faults));
    }
    faults.is_empty()
}

fn rows(captures: &[CaptureTotals]) -> report::Table {
    let mut text = report::Table::new();
    for capture in captures {
        capture.interfaces.iter().for_each(|interface| text.interface(interface));
        let name = &capture.name;
        text.row(&format!("tap:{name}  delivered"), capture.packets, "");
        text.row(&format!("tap:{name}  without a reader"), capture.unwanted, "");
        text.row(
            &format!("tap:{name}  stored"),
            capture.stored,
            "for each group of readers with the same rights",
        );
        if capture.not_stored > 0 {
            text.row(&format!("tap:{name}  found no room"), capture.not_stored, "");
        }
    }
    text
}

/// Equations of the account that do not hold.
fn imbalances(capture: &CaptureTotals) -> Vec<String> {
    let mut faults: Vec<String> =
        capture.interfaces.iter().filter_map(|interface| interface.imbalance()).collect();
    let delivered: u64 = capture.interfaces.iter().map(|interface| interface.delivered).sum();
    if delivered != capture.packets {
        faults.push(format!(
            "tap:{}: its interfaces delivered {delivered} but {} were looked at",
            capture.name, capture.packets
        ));
    }
    faults
}

fn to_json(capture: &CaptureTotals) -> Value {
    json!({
        "name": capture.name,
        "interfaces": capture.interfaces.iter().map(report::interface_json).collect::<Vec<_>>(),
        "delivered": capture.packets,
        "unwanted": capture.unwanted,
        "stored": capture.stored,
        "not_stored": capture.not_stored,
        "ended": capture.end_reason,
    })
}

/// Runs `tapline status`.
pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode> {
    privileges::confine_quietly(&AllowedAccess::default());
    let program = format!("tapline status {}", env!("CARGO_PKG_VERSION"));
    let mut client = Client::connect(&socket_path(args.socket.as_deref()), &program)?;
    let status = client.status()?;
    let text =
        if args.json { format!("{}\n", serde_json::to_string(&status)?) } else { status::text(&status) };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Options of `tapline control`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// The capture's name.
    #[arg(value_name = "NAME")]
    capture: String,
    /// pause: nothing is captured for any reader until it is resumed; packets in between are counted.
    #[arg(value_name = "pause|resume")]
    action: ControlArg,
    /// The socket of tapline serve. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ControlArg {
    Pause,
    Resume,
}

/// Runs `tapline control`.
pub(crate) fn control(args: &ControlArgs) -> Result<()> {
    privileges::confine_quietly(&AllowedAccess::default());
    let program = format!("tapline control {}", env!("CARGO_PKG_VERSION"));
    let mut client = Client::connect(&socket_path(args.socket.as_deref()), &program)?;
    let action = match args.action {
        ControlArg::Pause => ControlAction::Pause,
        ControlArg::Resume => ControlAction::Resume,
    };
    Ok(client.control(&args.capture, action)?)
}
