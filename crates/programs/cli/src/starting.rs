//! `-i` of `tapline view` and `tapline top`: starts what they show, unless it runs already.
//!
//! ```text
//! this process --spawns--> serve: captures, keeps the last packets, meters; gives up its own rights
//!   gives up its rights
//!              --spawns--> watch, where there are rules --> a file of events
//!              --spawns--> this command once more, with --started: the page or the terminal
//!   waits for the last one, and ends the others
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tapline_meters::run_folders;
use tapline_syntax::units::count_in;
use tapline_sys::capability::Capability;
use tapline_sys::privilege::{self, Identity};
use tapline_sys::{RouteSocket, accept_signals, process, without_signals};
use tapline_tap_client::protocol::OfferedCapture;
use tapline_tap_client::{SOCKET_VARIABLE, socket_path};
use tapline_view::{Process, Reader};

use crate::escape::plain_lines;
use crate::live::{self, TAP};
use crate::mistakes::mistake;
use crate::output::say;
use crate::{privileges, signals, view};

/// Rules that are watched by unless others are named: those of the service.
const RULES: &str = "/etc/tapline/watch.toml";
/// Time limit for the daemon's answer, and for its start on a busy machine.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
const START_WAIT: Duration = Duration::from_secs(30);
/// Interval at which processes are looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// The most bytes of messages that are kept while the terminal is a page.
const MESSAGES_MAX: u64 = 1 << 16;

/// Arguments that start a meter.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    /// Meter this interface (or several: a,b; or 'any') and keep its last packets, unless a meter of it runs already:
    /// starts tapline serve, and ends it with this command.
    #[arg(short, long, value_name = "NAME", help_heading = "Start", conflicts_with = "pid")]
    pub(crate) interface: Option<String>,
    /// With -i: watch by the rules of this file, and show their events. Default: /etc/tapline/watch.toml, if it is there.
    #[arg(long, value_name = "FILE", help_heading = "Start")]
    rules: Option<PathBuf>,
    /// With -i: MiB for the last packets, a power of two.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = count_in::<u32>(4..), help_heading = "Start")]
    buffer: u32,
    /// The process whose meter was started for this one.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) started: Option<u32>,
}

impl StartArgs {
    /// Has signals come that waited since this process was started for a meter: its handlers are set.
    pub(crate) fn accept_signals(&self) {
        if self.started.is_some() {
            accept_signals();
        }
    }
}

/// Options of the command that shows.
pub(crate) struct Shown<'a> {
    /// The user to become.
    pub(crate) user: Option<&'a str>,
    pub(crate) socket: Option<&'a Path>,
    pub(crate) history: Option<&'a Path>,
    pub(crate) has_events: bool,
    /// Whether the terminal is a page, which messages would write over.
    pub(crate) is_screen: bool,
}

/// Result of `-i`.
pub(crate) enum Start {
    /// A meter of the interface runs already; packets are requested at this socket.
    Runs(Process, PathBuf),
    /// All was started, shown, and has ended.
    Ended(ExitCode),
}

/// The interface of the default route, where this process may capture on it and no meter runs that it may read.
pub(crate) fn default_interface() -> Option<String> {
    if !Capability::NetRaw.is_effective().unwrap_or(false) || !Reader::list().is_empty() {
        return None;
    }
    let mut route = RouteSocket::open().ok()?;
    let first = *route.default_routes().ok()?.first()?;
    Some(route.link(first).ok()??.name)
}

/// Starts the meter of an interface, and what belongs to it, and shows it until that ends.
///
/// # Errors
/// If something cannot be started.
pub(crate) fn run(args: &StartArgs, interface: &str, shown: &Shown<'_>) -> Result<Start> {
    if shown.has_events && args.rules.is_some() {
        return Err(mistake("--rules has its events shown: leave --events out"));
    }
    let place = CaptureSite::of(interface, shown.socket)?;
    if let Some(process) = place.meter() {
        say(format!("a meter of {interface} runs already: {} (process {})", process.name(), process.pid));
        if args.rules.is_some() {
            say(
                "--rules: not watched; tapline watch --events FILE --json does, and --events FILE shows its events",
            );
        }
        return Ok(Start::Runs(process, place.socket));
    }
    let identity = privileges::identity(shown.user)?;
    let is_over = Arc::new(AtomicBool::new(false));
    signals::set_on(&[SIGINT, SIGTERM, SIGHUP], &is_over)?;
    let tapline = Tapline { socket: place.socket.clone(), identity, is_quiet: shown.is_screen };
    let mut meter = tapline.start(&place.arguments(args, shown.user))?;
    let is_ready = |pid: u32| {
        Reader::list().iter().any(|process| process.pid == pid)
            && live::captures(Some(&tapline.socket), ANSWER_WAIT).is_ok()
    };
    if let Some(code) = meter.wait_for(is_ready, &is_over)? {
        return Ok(Start::Ended(code));
    }
    privilege::drop_to(tapline.identity.as_ref()).context("cannot drop privileges")?;
    let events = match shown.has_events {
        true => None,
        false => tapline.watch(args, &place.capture, shown.history)?,
    };
    let mut more = vec!["--started".into(), meter.child.id().to_string().into()];
    more.extend(events.iter().flat_map(|(_, file)| ["--events".into(), file.clone().into_os_string()]));
    let mut page = tapline.command();
    page.args(std::env::args_os().skip(1)).args(more);
    // One that comes before the page has its handlers must not be the page's death: `StartArgs::accept_signals`.
    let page = without_signals(|| page.spawn()).context("cannot start the page")?;
    Ok(Start::Ended(supervise(page, &mut meter, &is_over)?))
}

/// Where packets of an interface are captured, or will be.
struct CaptureSite {
    interface: String,
    /// The name of the capture.
    capture: String,
    /// Whether a daemon captures there already.
    is_served: bool,
    /// The socket of the daemon.
    socket: PathBuf,
}

impl CaptureSite {
    /// Asks the daemon for a capture of the interface. Where there is none, one will be made: by a daemon with a socket
    /// of its own, if the usual one is taken or is not for this user.
    fn of(interface: &str, named: Option<&Path>) -> Result<CaptureSite> {
        let wanted: Vec<&str> = interface.split(',').map(live::bare_name).collect();
        let usual = socket_path(named);
        let captures = live::captures(Some(&usual), ANSWER_WAIT);
        let is_of = |capture: &OfferedCapture| {
            let interfaces = capture.interfaces.iter().map(|interface| interface.name.as_str());
            interface.strip_prefix(TAP) == Some(&*capture.name) || interfaces.eq(wanted.iter().copied())
        };
        let offered =
            captures.as_ref().ok().and_then(|captures| captures.iter().find(|capture| is_of(capture)));
        let is_free = captures.is_err() && privilege::is_root();
        let socket = match named.is_some() || offered.is_some() || is_free {
            true => usual,
            false => own_socket(wanted[0])?,
        };
        let capture = offered.map_or(wanted[0], |capture| &capture.name).to_owned();
        Ok(CaptureSite { interface: interface.to_owned(), capture, is_served: offered.is_some(), socket })
    }

    /// The process that meters these packets.
    fn meter(&self) -> Option<Process> {
        let CaptureSite { interface, capture, .. } = self;
        let names = [
            format!("serve {TAP}{capture}"),
            format!("probe {TAP}{capture}"),
            format!("probe {}", interface.replace(',', " ")),
        ];
        Reader::list().into_iter().find(|process| names.contains(&process.name()))
    }

    /// The command that meters them.
    fn arguments(&self, args: &StartArgs, user: Option<&str>) -> Vec<String> {
        let CaptureSite { interface, capture, .. } = self;
        let tap = format!("{TAP}{capture}");
        let buffer = args.buffer.to_string();
        let words = match self.is_served {
            true => vec!["probe", "-i", &tap, "--view"],
            false => vec!["serve", "-i", interface, "--history", "", "--view", "--buffer", &buffer],
        };
        let of_user = user.iter().flat_map(|user| ["-Z", user]);
        words.into_iter().chain(of_user).map(str::to_owned).collect()
    }
}

/// Waits for the end of the page, which comes by itself, by a signal to us, or with that of the meter.
fn supervise(mut page: Child, meter: &mut Started, is_over: &AtomicBool) -> Result<ExitCode> {
    let mut is_ending = false;
    loop {
        if let Some(status) = page.try_wait()? {
            return Ok(code_of(status));
        }
        let has_meter = meter.child.try_wait()?.is_none();
        if !is_ending && (is_over.load(Ordering::Relaxed) || !has_meter) {
            is_ending = true;
            let _ = process::signal(page.id(), SIGTERM);
            if !has_meter {
                say("the meter has ended");
            }
        }
        thread::sleep(GLANCE);
    }
}

fn code_of(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The socket of a daemon that is ours alone: in the folder of meters, where the next page of the interface finds it.
fn own_socket(interface: &str) -> Result<PathBuf> {
    let folder = run_folders().into_iter().find(|folder| folder.prepare().is_ok());
    let folder = folder.context("there is no folder for a socket: see --socket")?;
    Ok(folder.path().join(format!("view-{interface}.sock")))
}

/// This program, as it is started once more.
struct Tapline {
    socket: PathBuf,
    identity: Option<Identity>,
    /// Whether messages wait for the end.
    is_quiet: bool,
}

impl Tapline {
    fn command(&self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        process::end_with_parent(&mut command).arg0("tapline").env(SOCKET_VARIABLE, &self.socket);
        // Under sudo they may be root's.
        if let Some(home) = self.identity.as_ref().and_then(|identity| identity.home.as_ref()) {
            command.env("HOME", home).env_remove("XDG_STATE_HOME");
        }
        command
    }

    /// Starts a command that serves the page: in a group of its own, which Ctrl-C does not reach.
    fn start(&self, arguments: &[String]) -> Result<Started> {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        if self.is_quiet {
            command.stderr(Stdio::piped());
        }
        let child =
            command.spawn().with_context(|| format!("cannot start tapline {}", arguments.join(" ")))?;
        Ok(Started { child })
    }

    /// Watches by rules, if there are some. The process and the file of events.
    fn watch(
        &self,
        args: &StartArgs,
        capture: &str,
        history: Option<&Path>,
    ) -> Result<Option<(Started, PathBuf)>> {
        let rules = match &args.rules {
            Some(rules) => rules.clone(),
            None if File::open(RULES).is_ok() => RULES.into(),
            None => return Ok(None),
        };
        let history = history.map(Path::to_owned).or_else(|| view::usual_history(self.identity.as_ref()));
        let folder = history
            .as_deref()
            .and_then(Path::parent)
            .context("there is no folder for events: see --history")?;
        let shown = folder.display();
        let events = folder.join("events.json");
        if !folder.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make {shown}"))?;
        }
        // The history has those of earlier runs.
        let _ = fs::remove_file(&events);
        File::create_new(&events).with_context(|| format!("cannot make {}", events.display()))?;
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let tap = format!("{TAP}{capture}");
        let words = [
            "watch",
            "-i",
            &tap,
            "--json",
            "--rules",
            &path(&rules),
            "--events",
            &path(&events),
            "--directory",
            &path(folder),
        ];
        Ok(Some((self.start(&words.map(str::to_owned))?, events)))
    }
}

/// A process that ends with this one.
struct Started {
    child: Child,
}

impl Started {
    /// Waits until the process has begun its work. Its status, if it has ended instead.
    fn wait_for(&mut self, is_ready: impl Fn(u32) -> bool, is_over: &AtomicBool) -> Result<Option<ExitCode>> {
        let begin = Instant::now();
        while !is_ready(self.child.id()) {
            if let Some(status) = self.child.try_wait()? {
                self.tell_messages();
                return Ok(Some(code_of(status)));
            }
            if is_over.load(Ordering::Relaxed) {
                return Ok(Some(ExitCode::SUCCESS));
            }
            if begin.elapsed() > START_WAIT {
                bail!("the meter did not begin within {} seconds", START_WAIT.as_secs());
            }
            thread::sleep(GLANCE);
        }
        Ok(None)
    }

    /// Writes the held-back messages of the process.
    fn tell_messages(&mut self) {
        let mut text = Vec::new();
        if let Some(messages) = self.child.stderr.take() {
            let _ = messages.take(MESSAGES_MAX).read_to_end(&mut text);
            let _ = io::stderr().write_all(plain_lines(&String::from_utf8_lossy(&text)).as_bytes());
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Once it was waited for, its number may be that of another process.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = process::signal(self.child.id(), SIGTERM);
        }
        self.tell_messages();
        let _ = self.child.wait();
    }
}
