//! One run: a program receives the generator's frames, and every packet has a place.
//!
//! ```text
//! made = queue full + entered the link            the generator's account
//!        entered = lost on the link + received    counters of both interfaces
//!                  received = filtered + lost in the ring + unread + captured + unaccounted
//! ```

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use tapline_arena::netns::NEAR;
use tapline_sys::affinity;

use super::arena::{Arena, Counters, process_ns};
use super::programs::{CaptureOrder, Program, ProgramReport, Scratch};
use crate::{answer, scheduled};

/// Time limit for a program to end after its signal.
const END_MAX: Duration = Duration::from_secs(60);
/// Time limit for the link to become quiet.
const QUIET_MAX: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(10);
/// Bytes kept of a program's standard output and standard error: its figures are at the end.
const KEPT: usize = 64 << 10;

/// The traffic.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// A recipe without size, rate and end.
    pub traffic: &'a str,
    /// Bytes of frames, as recipes have them: `60`, `imix`.
    pub size: &'a str,
    /// Packets a second; `None` is as fast as it goes.
    pub rate: Option<u64>,
    /// Duration.
    pub time: Duration,
    /// Time that the generator waits for a full link, as Ethernet's flow control has it; zero: frames beyond it are
    /// lost.
    pub queue_timeout: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) program: Program,
    pub(crate) command: Vec<String>,
    /// Whether it has a filter: packets that it does not report may have been filtered.
    pub(crate) is_filtered: bool,
    /// The file that it writes.
    pub(crate) file: Option<PathBuf>,
}

impl Receiver {
    pub(crate) fn new(program: Program, tapline: &Path, order: &CaptureOrder<'_>) -> Receiver {
        Receiver {
            program,
            command: program.command(tapline, order),
            is_filtered: !order.filter.is_empty(),
            file: order.store.map(Path::to_owned),
        }
    }
}

/// Counts of every packet of a run, by its outcome, and the costs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrialOutcome {
    /// Packets that the generator made.
    pub made: u64,
    /// Offered packets that were refused because the link's ring was full.
    pub refused: u64,
    /// Lost on the link.
    pub lost_on_link: u64,
    /// Packets that the receiving interface counted.
    pub received: u64,
    /// Offered packets that the filter kept out.
    pub filtered: u64,
    /// Lost because the program's ring was full.
    pub dropped: u64,
    /// In the ring when the program ended.
    pub unread: u64,
    /// Packets of the program's own count.
    pub captured: u64,
    /// Packets in its file, if it wrote one.
    pub stored: Option<u64>,
    /// Packets in no count.
    pub unexplained: i64,
    /// Length of sending, in seconds.
    pub seconds: f64,
    /// Packets a second that the generator was asked for.
    pub asked_rate: Option<u64>,
    /// Processor time of the kernel's part of receiving, in nanoseconds.
    pub kernel_ns: u64,
    /// Processor time of the program while packets came, in nanoseconds.
    pub program_ns: u64,
    /// Share of the time of sending in which each processor was busy, with whatever.
    pub busy: Vec<f64>,
    /// Faults of the run: with one it does not count.
    pub faults: Vec<String>,
}

impl TrialOutcome {
    /// Packets that were offered and did not arrive, for whatever reason but the filter.
    pub fn lost(&self) -> u64 {
        self.made.saturating_sub(self.filtered + self.captured)
    }

    /// Packets offered a second.
    pub fn offered_rate(&self) -> f64 {
        self.made as f64 / self.seconds.max(1e-9)
    }

    /// Packets captured a second.
    pub fn captured_rate(&self) -> f64 {
        self.captured as f64 / self.seconds.max(1e-9)
    }

    /// Share of the offered packets that were captured or kept out by the filter: the rest is lost.
    pub fn share(&self) -> f64 {
        (self.captured + self.filtered) as f64 / self.made.max(1) as f64
    }

    /// Nanoseconds of the receiving core for each packet that came to it.
    pub fn cost_ns(&self) -> f64 {
        (self.kernel_ns + self.program_ns) as f64 / self.received.max(1) as f64
    }

    /// Whether made = the sum of all places.
    fn sum(&self) -> i64 {
        let places =
            [self.refused, self.lost_on_link, self.filtered, self.dropped, self.unread, self.captured];
        places.iter().map(|&count| count as i64).sum::<i64>() + self.unexplained
    }
}

/// The generator's report.
#[derive(Clone, Copy, Debug)]
pub struct SendReport {
    /// Packets that it made.
    pub made: u64,
    /// Offered packets that the link took.
    pub sent: u64,
    /// Packets that the link refused because its ring was full.
    pub refused: u64,
    /// Length of sending, in seconds.
    pub seconds: f64,
}

/// The counters of a run, by their source.
struct Witnesses {
    sent: SendReport,
    before: Counters,
    after: Counters,
    said: ProgramReport,
    stored: Option<u64>,
    program_ns: u64,
    busy: Vec<f64>,
}

/// Runs it once.
///
/// # Errors
/// If a program cannot be run or does not report its figures. The outcome has its mistakes.
pub(crate) fn run(
    arena: &mut Arena,
    tapline: &Path,
    receiver: &Receiver,
    load: &Load<'_>,
) -> Result<TrialOutcome> {
    if receiver.program == Program::XdpDrop {
        return run_xdp_drop(arena, tapline, receiver, load);
    }
    let scratch = receiver.file.clone().map(Scratch);
    let running = Running::start(arena, receiver)?;
    let before = arena.counters()?;
    let before_ns = process_ns(running.child.id());
    let processors = scheduled::processors();
    let sent = send(arena, tapline, load)?;
    let busy = busy_since(&processors);
    wait_until_quiet(arena)?;
    thread::sleep(receiver.program.settles());
    let after = arena.counters()?;
    let program_ns = process_ns(running.child.id()).saturating_sub(before_ns);
    let asked = receiver.program.ask(&receiver.command);
    let (output, errors) = running.stop()?;
    let said = receiver.program.said(&(output + asked.as_str()), &errors)?;
    let stored = scratch.as_ref().map(|file| stored(&file.0)).transpose()?;
    Ok(account(receiver, load, &Witnesses { sent, before, after, said, stored, program_ns, busy }))
}

fn run_xdp_drop(
    arena: &mut Arena,
    tapline: &Path,
    receiver: &Receiver,
    load: &Load<'_>,
) -> Result<TrialOutcome> {
    let link = arena.drop_all()?;
    let before = arena.counters()?;
    let sent = send(arena, tapline, load)?;
    wait_until_quiet(arena)?;
    let after = arena.counters()?;
    drop(link);
    let said = ProgramReport { captured: after.received - before.received, ..ProgramReport::default() };
    Ok(account(
        receiver,
        load,
        &Witnesses { sent, before, after, said, stored: None, program_ns: 0, busy: Vec::new() },
    ))
}

/// Share of the time since `before` in which each processor was busy.
fn busy_since(before: &[(u64, u64)]) -> Vec<f64> {
    let share = |((busy, all), (busy_before, all_before)): ((u64, u64), &(u64, u64))| {
        busy.saturating_sub(*busy_before) as f64 / all.saturating_sub(*all_before).max(1) as f64
    };
    scheduled::processors().into_iter().zip(before).map(share).collect()
}

fn account(receiver: &Receiver, load: &Load<'_>, seen: &Witnesses) -> TrialOutcome {
    let Witnesses { sent, before, after, said, stored, program_ns, busy } = seen;
    let (entered, received) = (after.entered - before.entered, after.received - before.received);
    let &ProgramReport { captured, dropped, unread, filtered } = said;
    let rest = received as i64 - (captured + dropped + unread) as i64;
    // Packets refused by a filter in the kernel often have no counter: then they are the rest.
    let unknown = if receiver.is_filtered { rest.max(0) as u64 } else { 0 };
    let filtered = filtered.unwrap_or(unknown);
    let mut outcome = TrialOutcome {
        made: sent.made,
        refused: sent.refused,
        lost_on_link: sent.sent.saturating_sub(received),
        received,
        filtered,
        dropped,
        unread,
        captured,
        stored: *stored,
        unexplained: rest - filtered as i64,
        seconds: sent.seconds,
        asked_rate: load.rate,
        kernel_ns: after.kernel_ns.saturating_sub(before.kernel_ns),
        program_ns: *program_ns,
        busy: busy.clone(),
        faults: Vec::new(),
    };
    outcome.faults = faults(receiver.program, &outcome, sent.sent, entered);
    outcome
}

fn faults(program: Program, outcome: &TrialOutcome, sent: u64, entered: u64) -> Vec<String> {
    let mut faults = Vec::new();
    if sent != entered {
        faults.push(format!("the generator sent {sent} packets, the interface {entered}"));
    }
    if outcome.sum() != outcome.made as i64 {
        faults.push(format!("{} packets were made, their places hold {}", outcome.made, outcome.sum()));
    }
    if outcome.unexplained != 0 && program.is_ours() {
        faults.push(format!("{} packets are in no count", outcome.unexplained));
    }
    if let Some(stored) = outcome.stored.filter(|&stored| stored != outcome.captured) {
        faults.push(format!("the file holds {stored} packets, {} were captured", outcome.captured));
    }
    faults
}

/// Packets in a capture file.
fn stored(path: &Path) -> Result<u64> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    Ok(answer::read(&mut std::io::BufReader::with_capacity(1 << 20, file))?.packets)
}

/// Sends, and waits until it is over. `tapline` is the program that generates.
///
/// # Errors
/// If the generator cannot be run, or its account does not balance.
pub fn send(arena: &mut Arena, tapline: &Path, load: &Load<'_>) -> Result<SendReport> {
    let Load { traffic, size, rate, time, queue_timeout } = load;
    let mut command = Command::new(tapline);
    command.args(["generate", "-i", NEAR, "--netns", arena.namespace().name(), "--json"]);
    command.args(["--patience", &queue_timeout.as_millis().to_string()]);
    command.args(traffic.split_whitespace()).arg(format!("size={size}"));
    if let Some(rate) = rate {
        command
            .arg(format!("rate={rate}"))
            .arg(format!("count={}", (*rate as f64 * time.as_secs_f64()).ceil()));
    }
    let before = arena.counters()?.entered;
    let (mut child, talk) = spawn(command, arena.cores.sender, true)?;
    if rate.is_none() {
        // Before its first packet the generator may not catch signals yet, and one would end it without a report.
        let start = Instant::now();
        while arena.counters()?.entered == before && child.try_wait()?.is_none() && start.elapsed() < END_MAX
        {
            thread::sleep(GLANCE);
        }
        thread::sleep(*time);
        interrupt(&child);
    }
    wait(&mut child, *time * 10 + END_MAX)?;
    let (output, errors) = talk.text();
    let report: Value =
        serde_json::from_str(output.trim()).with_context(|| format!("the generator: {}", errors.trim()))?;
    if let Some(error) = report["error"].as_str() {
        bail!("the generator: {error}");
    }
    let account = &report["account"];
    let of =
        |key: &str| account[key].as_u64().with_context(|| format!("the generator's account has no {key:?}"));
    let (made, sent, left) = (of("made")?, of("sent")?, of("not_reached")?);
    let seconds = report["rate"]["seconds"].as_f64().context("the generator's time")?;
    ensure!(made >= sent + left, "the generator's account does not balance: {account}");
    Ok(SendReport { made: made - left, sent, refused: made - left - sent, seconds })
}

/// A program that receives.
pub(crate) struct Running {
    child: Child,
    talk: Option<ProgramOutput>,
}

impl Running {
    pub(crate) fn start(arena: &mut Arena, receiver: &Receiver) -> Result<Running> {
        let (name, arguments) = receiver.command.split_first().context("there is no command")?;
        let mut command = arena.namespace().command(name);
        command.args(arguments);
        // These write packets there.
        let is_silent = matches!(receiver.program, Program::Tcpdump | Program::Dumpcap);
        let (child, talk) = spawn(command, arena.cores.receiver, !is_silent)?;
        let mut running = Running { child, talk: Some(talk) };
        let began = arena.wait_for_receiver(|| Ok(running.child.try_wait()?.is_none()));
        if let Err(error) = began {
            let _ = running.child.kill();
            let (_, errors) = running.stop()?;
            return Err(error.context(format!("{name}: {}", errors.trim())));
        }
        Ok(running)
    }

    /// Ends it as Ctrl-C does. Returns its standard output and standard error.
    pub(crate) fn stop(mut self) -> Result<(String, String)> {
        interrupt(&self.child);
        wait(&mut self.child, END_MAX)?;
        Ok(self.talk.take().map(ProgramOutput::text).unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child has exited already, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a program, read continuously so that the program never waits; its end is kept.
struct ProgramOutput {
    output: JoinHandle<Vec<u8>>,
    errors: JoinHandle<Vec<u8>>,
}

impl ProgramOutput {
    fn listen(child: &mut Child) -> ProgramOutput {
        fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
            thread::spawn(move || stream.map_or_else(Vec::new, end_of))
        }
        ProgramOutput { output: reader(child.stdout.take()), errors: reader(child.stderr.take()) }
    }

    fn text(self) -> (String, String) {
        let text = |thread: JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned()
        };
        (text(self.output), text(self.errors))
    }
}

fn end_of(mut stream: impl Read) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), vec![0; KEPT]);
    // Output before a read error is kept.
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        kept.extend_from_slice(&piece[..len]);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }
    kept
}

/// Starts a program on one core.
fn spawn(mut command: Command, core: usize, has_output: bool) -> Result<(Child, ProgramOutput)> {
    let output = if has_output { Stdio::piped() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let child = affinity::on(core, || command.spawn())?;
    let mut child = child.with_context(|| format!("starting {command:?}"))?;
    let talk = ProgramOutput::listen(&mut child);
    Ok((child, talk))
}

/// Sends SIGINT. A program that is gone already needs none.
fn interrupt(child: &Child) {
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
}

fn wait(child: &mut Child, longest: Duration) -> Result<()> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            bail!("a program did not end within {longest:?}");
        }
        thread::sleep(GLANCE);
    }
    Ok(())
}

/// Waits until the receiving interface counts nothing more.
///
/// # Errors
/// If its counters cannot be read.
pub fn wait_until_quiet(arena: &mut Arena) -> Result<()> {
    let start = Instant::now();
    let mut last = arena.counters()?.received;
    while start.elapsed() < QUIET_MAX {
        thread::sleep(GLANCE * 2);
        let now = arena.counters()?.received;
        if now == last {
            return Ok(());
        }
        last = now;
    }
    Ok(())
}
