//! Signals as orders to the loop: Ctrl-C and SIGTERM end it cleanly, SIGUSR1 asks for the account, SIGUSR2 pauses and
//! resumes. SIGHUP ends captures and senders, as it ends tcpdump; commands that run as services read and open their
//! files again, as logrotate and `systemctl reload` want it, unless their terminal was closed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{SigId, flag, low_level};
use tapline_graph::Control;
use tapline_sys::{Poller, waiting, without_signals};

use crate::session::clock;

/// Grace after a first SIGINT. Until then others are taken for the same one: shells and
/// timeout(1) signal a program and then its group.
const GRACE: Duration = Duration::from_secs(1);

/// Interval at which a sleeping command looks for signals.
const GLANCE: Duration = Duration::from_millis(50);

/// Sleeps; `false` once a signal has set `is_over`.
pub(crate) fn sleep(time: Duration, is_over: &AtomicBool) -> bool {
    let start = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(GLANCE));
    }
    false
}

/// Has orders to a run, SIGUSR1 and SIGUSR2, do nothing while there is none: their default would end the program.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn ignore_early_orders() -> io::Result<()> {
    let nothing = Arc::new(AtomicBool::new(false));
    // Not ignored: programs that are started would inherit that.
    set_on(&[SIGUSR1, SIGUSR2], &nothing)
}

/// Has each of `signals` set a flag from now on. One that comes meanwhile sets it, too.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn set_on(signals: &[i32], flag: &Arc<AtomicBool>) -> io::Result<()> {
    let set = |&signal| flag::register(signal, Arc::clone(flag)).map(drop);
    without_signals(|| signals.iter().try_for_each(set))
}

/// Signals that wait to be read from now on. One that comes meanwhile is among them.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn queue(signals: &[i32]) -> io::Result<Signals> {
    without_signals(|| Signals::new(signals))
}

/// As [`queue`], where a pipe may be opened meanwhile: signals of `ends` end the program at once while it waits for the
/// other end, until the handlers are [removed](OpeningHandlers::remove).
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn queue_while_opening(ends: &[i32], others: &[i32]) -> io::Result<(Signals, OpeningHandlers)> {
    without_signals(|| Ok((Signals::new(ends.iter().chain(others))?, OpeningHandlers::install(ends)?)))
}

/// Handlers until all is open.
#[must_use]
pub(crate) struct OpeningHandlers {
    handlers: Vec<SigId>,
    /// The status with which a signal ends the program where it waits for the other end of a pipe.
    order: Arc<AtomicUsize>,
}

impl OpeningHandlers {
    fn install(signals: &[i32]) -> io::Result<OpeningHandlers> {
        let (order, is_waiting) = (waiting::order(), waiting::is_waiting());
        let mut handlers = Vec::new();
        for &signal in signals {
            let status = 128 + signal;
            handlers.push(flag::register_usize(signal, Arc::clone(&order), status as usize)?);
            handlers.push(flag::register_conditional_shutdown(signal, status, Arc::clone(&is_waiting))?);
        }
        Ok(OpeningHandlers { handlers, order })
    }

    /// Removes them: all is open.
    pub(crate) fn remove(self) {
        for handler in self.handlers {
            low_level::unregister(handler);
        }
        self.order.store(0, Ordering::SeqCst);
    }
}

/// Signals that are caught and wait to be obeyed.
pub(crate) struct CaughtSignals {
    signals: Signals,
    /// Whether the next SIGINT gives up at once.
    gives_up: Arc<AtomicBool>,
    while_opening: OpeningHandlers,
    /// Set by the handlers of the signals that end a run.
    has_ended: Arc<AtomicBool>,
    terminal: Terminal,
}

/// The terminal of the session in which the program was started, if there was one.
struct Terminal(Option<File>);

impl Terminal {
    fn of_process() -> Terminal {
        Terminal(File::open("/dev/tty").ok())
    }

    /// Whether it was closed since.
    fn is_gone(&self) -> bool {
        let Some(terminal) = &self.0 else { return false };
        let mut poller = Poller::new();
        poller.add(terminal.as_fd());
        poller.wait(Duration::ZERO).is_ok() && poller.has_hung_up(0)
    }
}

/// Has SIGINT and SIGTERM end a service from now on, and SIGHUP, once it is [obeyed](HangUps::obey), if its terminal is
/// gone: `is_over` is set.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn end_service(is_over: &Arc<AtomicBool>) -> io::Result<HangUps> {
    set_on(&[SIGINT, SIGTERM], is_over)?;
    Ok(HangUps { signals: queue(&[SIGHUP])?, terminal: Terminal::of_process(), is_over: Arc::clone(is_over) })
}

/// Signals SIGHUP of a service, which are caught and wait.
#[must_use]
pub(crate) struct HangUps {
    signals: Signals,
    terminal: Terminal,
    is_over: Arc<AtomicBool>,
}

impl HangUps {
    /// Obeys those that came and those that come, in a thread: to be called once the process is confined, which threads
    /// that were made before are not.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn obey(mut self) -> io::Result<()> {
        let work = move || {
            for _ in &mut self.signals {
                if self.terminal.is_gone() {
                    self.is_over.store(true, Ordering::Relaxed);
                }
            }
        };
        start_thread("signals", work)
    }
}

/// Starts a thread that ends with the program.
///
/// # Errors
/// If the system has no room for it; the message names the remedy.
pub(crate) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| {
        let text =
            format!("cannot start the thread {name:?}: {error}; allow more of them (ulimit -u, TasksMax=)");
        io::Error::new(error.kind(), text)
    })
}

/// Catches signals from now on, so that none ends the program unaccounted. They wait until [`CaughtSignals::obey`]; but
/// until then a second SIGINT gives up at once. While the program waits for the other end of a pipe that it opens,
/// SIGTERM and SIGHUP end it at once, too.
///
/// # Errors
/// If a handler cannot be installed.
pub(crate) fn catch() -> io::Result<CaughtSignals> {
    // A signal that some of its handlers do not see yet would be lost to them.
    without_signals(install)
}

fn install() -> io::Result<CaughtSignals> {
    let gives_up = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&gives_up))?;
    let mut while_opening = OpeningHandlers::install(&[SIGTERM, SIGHUP])?;
    while_opening.handlers.push(flag::register(SIGINT, Arc::clone(&gives_up))?);
    let has_ended = Arc::new(AtomicBool::new(false));
    set_on(&[SIGINT, SIGTERM], &has_ended)?;
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXFSZ])?;
    let terminal = Terminal::of_process();
    Ok(CaughtSignals { signals, gives_up, while_opening, has_ended, terminal })
}

impl CaughtSignals {
    /// Obeys caught and later signals, SIGHUP by `on_hangup` unless the terminal is gone. An end signal completes all
    /// outputs; a SIGINT later than [`GRACE`] after the first gives up at once. If outputs keep to a rate, that one
    /// drops waiting packets only, and the next one gives up.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn obey(
        self,
        control: Arc<Control>,
        mut on_hangup: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        let CaughtSignals { mut signals, gives_up, while_opening, has_ended, terminal } = self;
        control.set_signal_flag(has_ended);
        while_opening.remove();
        gives_up.store(false, Ordering::Relaxed);
        let leaves = Arc::default();
        start_thread("signals", move || {
            for signal in &mut signals {
                match signal {
                    SIGUSR1 => control.request_report(),
                    SIGUSR2 => pause_or_resume(&control),
                    SIGHUP if terminal.is_gone() => control.stop(),
                    SIGHUP => on_hangup(),
                    SIGXFSZ => {} // caught so that the write fails instead, and the file is completed
                    _ => control.stop(),
                }
                if signal == SIGINT {
                    interrupt(&control, &gives_up, &leaves);
                }
            }
        })
    }
}

/// Pauses a run that goes on, resumes one that is paused, and says so.
fn pause_or_resume(control: &Control) {
    let (ordered, done) = match control.is_paused() {
        true => (control.resume(clock()), "resumed"),
        false => (control.pause(), "paused; SIGUSR2 again resumes"),
    };
    let line = ordered.map_or_else(|why| format!("neither paused nor resumed: {why}"), |()| done.to_owned());
    let _ = writeln!(io::stderr(), "tapline: {line}");
}

/// Effect of a SIGINT in addition to the order to stop. With `leaves`, outputs drop packets that wait for their rate.
fn interrupt(control: &Control, gives_up: &Arc<AtomicBool>, leaves: &Arc<AtomicBool>) {
    if !control.has_paced_output() || leaves.load(Ordering::Relaxed) {
        control.cancel_pacing();
        let gives_up = Arc::clone(gives_up);
        later(move || gives_up.store(true, Ordering::Relaxed));
        return;
    }
    let leaves = Arc::clone(leaves);
    later(move || {
        if !leaves.swap(true, Ordering::Relaxed) {
            let what = "what remains is still delivered; Ctrl-C again drops it, and counts it as lost";
            let _ = writeln!(io::stderr(), "tapline: {what}");
        }
    });
}

/// Does something once [`GRACE`] is over, if the program has not ended by then. Without a thread for it nothing is done:
/// the order to stop holds.
fn later(then: impl FnOnce() + Send + 'static) {
    let started = start_thread("grace", move || {
        thread::sleep(GRACE);
        then();
    });
    if let Err(error) = started {
        let _ = writeln!(io::stderr(), "tapline: {error}; another Ctrl-C cannot hurry the end");
    }
}
