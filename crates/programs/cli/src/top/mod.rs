//! `tapline top`: traffic as the page of `tapline view` has it, in a terminal; and the work of running processes, stage
//! by stage, from the meters that they all keep.
//!
//! ```text
//! PID.view, PID.meters, history --Watch--> Answer, Report, PastWindow --draw--> Lines --> screen, --once, --lines
//!                                                 '------------------------------------> --json
//! ```

mod draw;
mod past;
mod reading;
mod screen;
mod state;
mod table;
mod watching;

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tapline_pages::{Answer, FilterLine, Page, PastWindow};
use tapline_sys::TerminalSize;
use tapline_sys::sandbox::{self, AllowedAccess};

use crate::args::parse_interval;
use crate::mistakes::misuse;
use crate::starting::{self, Shown, Start, StartArgs};
use crate::{privileges, signals};
use draw::Room;
use past::Past;
use reading::{Readings, Report};
use screen::Screen;
use state::{DisplayState, PageView};
use watching::{Events, Watch};

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo tapline top -i eth0             who talks to whom, and where packets are lost; 1 to 8 are the pages, ? the keys
  sudo tapline top                     of the meters that run, such as tapline probe -i eth0 --view
  tapline top --page hosts --host 10.0.0.7
  tapline top --filter 'app:tls port 443' --once
  tapline top --lines                  one line a second, for logs and screen readers
  tapline top 4711 --interval 5s       one process; without a view its stages
  tapline top --once --json | \\
      jq '.processes[].stages[] | {name: .total.name, packets: .recent.packets_in}'

Pages and keys are those of tapline view (docs/view.md), and so are the figures. [ and ] choose the window: seconds, and beyond a minute hours to a
year of the history that tapline view keeps. Page 7 has the stages of all processes that this user may read: cycles are ticks of the processor's
time stamp counter, without those of later stages; median and p99 are over the packets of the interval. Counters of stages that have ended stay
readable for a while, and are shown as ended.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only the process with this id.
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    start: StartArgs,
    /// Print the page once, after one interval, and exit.
    #[arg(long, conflicts_with = "lines")]
    once: bool,
    /// Print one line a second: totals, losses and the top row of the page.
    #[arg(long, conflicts_with = "json")]
    lines: bool,
    /// Print one JSON object per refresh: the stages of all processes, and the page as a browser gets it.
    #[arg(long)]
    json: bool,
    /// Refresh interval: 500ms, 1s, 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// The page to begin with. Default: overview, and costs where no meter writes a view.
    #[arg(long, value_name = "PAGE", value_parser = ["overview", "hosts", "pairs", "flows", "protocols", "losses", "costs", "history", "events"], help_heading = "Page")]
    page: Option<String>,
    /// Begin with the page of this host.
    #[arg(long, value_name = "ADDRESS", help_heading = "Page")]
    host: Option<IpAddr>,
    /// Begin with this filter: host:ADDRESS, app:NAME, and pcap-filter text.
    #[arg(long, value_name = "FILTER", default_value = "", value_parser = parse_filter, help_heading = "Page")]
    filter: String,
    /// Begin with this window of whole seconds: 1s to 60s; longer ones come from the history.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval, help_heading = "Page")]
    window: Duration,
    /// The file of the history that tapline view keeps. Default: as for tapline view.
    #[arg(long, value_name = "FILE", help_heading = "Page")]
    history: Option<PathBuf>,
    /// Events of rules, from the file that `tapline watch --events FILE --json` writes: page 0.
    #[arg(long, value_name = "FILE", help_heading = "Page")]
    events: Option<PathBuf>,
    /// Draw with the letters of ASCII alone. Default: where the locale has no others.
    #[arg(long, help_heading = "Page")]
    ascii: bool,
}

fn parse_filter(text: &str) -> Result<String, String> {
    FilterLine::parse(text).map(|_| text.to_owned())
}

pub(crate) fn run(mut args: TopArgs) -> Result<ExitCode> {
    if let (Some(interface), None) = (&args.start.interface, args.start.started) {
        let shown = Shown {
            user: None,
            socket: None,
            history: args.history.as_deref(),
            has_events: args.events.is_some(),
            is_screen: is_screen(&args),
        };
        match starting::run(&args.start, interface, &shown)? {
            Start::Ended(code) => return Ok(code),
            Start::Runs(process, _) => args.pid = Some(process.pid),
        }
    }
    args.pid = args.pid.or(args.start.started);
    show(&args)
}

/// Whether the pages are drawn on a terminal.
fn is_screen(args: &TopArgs) -> bool {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    is_terminal && !args.json && !args.once && !args.lines
}

fn show(args: &TopArgs) -> Result<ExitCode> {
    let is_over = Arc::new(AtomicBool::new(false));
    signals::set_on(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT], &is_over)?;
    args.start.accept_signals();
    let mut readings = Readings::new(args.pid);
    let first = readings.read();
    if let Some(pid) = args.pid.filter(|_| first.processes.is_empty()) {
        bail!(
            "process {pid} is not a process of tapline that you may read; {}",
            others(&Readings::new(None).read())
        );
    }
    let place = PageView { page: Page::default(), host: args.host, filter: args.filter.clone() };
    let events = args.events.as_deref().map(crate::view::open_events).transpose()?;
    if events.is_none() && args.page.as_deref() == Some("events") {
        misuse!("events are read from a file: tapline watch --events FILE --json, then top --events FILE");
    }
    // A part of a second is a second of the view.
    let window = args.window.as_secs().saturating_add(u64::from(args.window.subsec_nanos() > 0));
    let state = DisplayState::new(place, window, events.is_some());
    let past = Past::new(args.history.as_deref());
    confine(args, &past);
    let mut watch = Watch::new(state, args.pid, readings, first, past);
    watch.watch_events(events);
    watch.set_interval(args.interval);
    watch.state.place.page = match args.page.as_deref().and_then(Page::of_name) {
        Some(page) => page,
        None if args.host.is_some() => Page::Hosts,
        None if watch.has_view() => Page::Overview,
        None => Page::Costs,
    };
    if is_screen(args) {
        return on_terminal(args, &mut watch, &is_over);
    }
    if args.lines {
        return speak(args, &mut watch, &is_over);
    }
    while signals::sleep(args.interval, &is_over) {
        watch.read();
        tell(args, &mut watch)?;
        if args.once || watch.report.processes.is_empty() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves this process the files of meters, the history and the events.
fn confine(args: &TopArgs, past: &Past) {
    let events = args.events.as_deref().and_then(sandbox::folder_of).map(Path::to_owned);
    let needs = AllowedAccess {
        reads: privileges::folders_of_meters().chain(events).collect(),
        makes: past.folder().into_iter().collect(),
        ..AllowedAccess::default()
    };
    privileges::confine_quietly(&needs);
}

fn others(report: &Report) -> String {
    if report.processes.is_empty() {
        return table::nothing();
    }
    let names = report.processes.iter().map(|process| format!("{} ({})", process.pid, process.title));
    format!("there are {}", names.collect::<Vec<_>>().join(", "))
}

/// Output of `--json`: the stages, and the answer that a browser would get.
#[derive(Serialize)]
struct JsonOutput<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The page; `None` where no meter writes a view.
    view: Option<Answer>,
    /// The tables of a window of the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    past: Option<Vec<PastWindow>>,
    /// Events of rules and tables of recorders, where a file of them is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    watched: Option<Events>,
}

fn tell(args: &TopArgs, watch: &mut Watch) -> Result<()> {
    let text = if args.json {
        let past = watch.ask_past().transpose().map_err(|reason| anyhow!(reason))?;
        let view = watch.has_view().then(|| watch.answer());
        let watched = watch.events();
        serde_json::to_string(&JsonOutput { report: &watch.report, view, past, watched })?
    } else if watch.state.place.page == Page::Costs {
        table::text(&watch.report, usize::MAX)
    } else {
        page_text(args, watch)
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    if !args.json && !args.once {
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// A page as text, as wide as the terminal, and as long as it takes.
fn page_text(args: &TopArgs, watch: &mut Watch) -> String {
    /// Columns if the output is not a terminal.
    const COLUMNS: usize = 120;
    const LINES: usize = 10_000;
    let size = TerminalSize::of(io::stdout().as_fd());
    let columns = size.map_or(COLUMNS, |size| usize::from(size.columns));
    let is_ascii = args.ascii || screen::is_ascii_locale();
    let lines = watch.frame(Room { columns, lines: LINES, is_ascii });
    lines.iter().map(|line| line.text.trim_end().to_owned() + "\n").collect()
}

/// One line for each second of the meter.
fn speak(args: &TopArgs, watch: &mut Watch, is_over: &AtomicBool) -> Result<ExitCode> {
    const GLANCE: Duration = Duration::from_millis(100);
    let is_ascii = args.ascii || screen::is_ascii_locale();
    if !watch.has_view() {
        bail!("no meter writes a view that you may read; start one, such as: tapline probe -i eth0 --view");
    }
    let mut last = None;
    loop {
        if watch.number() != last {
            last = watch.number();
            if let Some(line) = watch.spoken() {
                let line = if is_ascii { draw::ascii(&line) } else { line };
                let mut out = io::stdout().lock();
                writeln!(out, "{line}")?;
                out.flush()?;
            }
        }
        if !watch.is_alive() || !signals::sleep(GLANCE, is_over) {
            return Ok(ExitCode::SUCCESS);
        }
        watch.read();
    }
}

fn on_terminal(args: &TopArgs, watch: &mut Watch, is_over: &AtomicBool) -> Result<ExitCode> {
    let is_ascii = args.ascii || screen::is_ascii_locale();
    let mut screen = Screen::open(is_ascii)?;
    let is_wanted = |watch: &Watch| args.pid.is_none() || !watch.report.processes.is_empty();
    screen.run(watch, is_over, is_wanted)?;
    drop(screen);
    if let Some(pid) = args.pid.filter(|_| !is_wanted(watch)) {
        writeln!(io::stderr(), "tapline: process {pid} has ended")?;
    }
    Ok(ExitCode::SUCCESS)
}
