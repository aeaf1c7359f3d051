//! A store and Stenographer's files with equal packets, and searches of both with nothing in memory.
//!
//! ```text
//! generator --> far0 --> tapline record     --> store --------> tapline find; tcpdump over all its segments, a process each
//!                   \--> stenographer       --> blocks, index --> stenoread
//! ```

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tapline_measure::answer::{self, Answer};
use tapline_measure::runs::median;
use tapline_measure::system::arena::process_ns;
use tapline_measure::system::trial::{Load, send, wait_until_quiet};
use tapline_sys::usage::CpuTime;
use tapline_testkit::netns::{FAR, has_program};

use super::recorders::{Recorder, files};
use super::table::Goal;
use super::{Bench, disk};
use crate::live::interrupt;

/// A tenth of the packets goes to port 53.
const TRAFFIC: &str = "udp flows=50000 order=random walk=random dport=53,9001-9009";
/// The host of a few packets amid all others.
const NEEDLE: &str = "203.0.113.77";
const NEEDLES: u64 = 10;
/// Packets a second that both recorders bear, of this size.
const RATE: u64 = 50_000;
const SIZE: &str = "imix";
const FRAME_LEN: u64 = 362;
/// Maximum time until Stenographer shows its packets: files of a minute, looked for every 15 seconds.
const VISIBLE_MAX: Duration = Duration::from_secs(180);
const GLANCE: Duration = Duration::from_millis(500);

/// A search.
struct Query {
    name: &'static str,
    filter: String,
    /// The question for Stenographer.
    asked: String,
    /// Our arguments before the filter.
    window: Vec<String>,
    goal: f64,
    scan_goal: Option<f64>,
}

/// The cost of a search.
#[derive(Clone, Copy)]
struct Taken {
    wall_ms: f64,
    cpu_ms: f64,
}

/// Stenographer, as its package has it, in a folder of ours.
struct Stenographer {
    child: Child,
    config: PathBuf,
}

impl Drop for Stenographer {
    fn drop(&mut self) {
        let _ = interrupt(&self.child);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(10) {
            sleep(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stenographer {
    /// Starts it; `None` where it is not installed.
    fn start(bench: &Bench<'_>) -> Result<Option<Stenographer>> {
        let keys = Path::new("/etc/stenographer/certs/client_cert.pem");
        if !["stenographer", "stenotype", "stenoread"].into_iter().all(has_program) || !keys.exists() {
            return Ok(None);
        }
        let folder = bench.path("stenographer");
        for name in ["packets", "index"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let mib = format!("--preallocate_file_mb={}", bench.args.mib);
        let config = serde_json::json!({
            "Threads": [{ "PacketsDirectory": path("packets"), "IndexDirectory": path("index"), "MaxDirectoryFiles": 30000, "DiskFreePercentage": 1 }],
            "StenotypePath": "/usr/sbin/stenotype",
            "Interface": FAR,
            "Port": 1234,
            "Host": "127.0.0.1",
            "Flags": ["--blocks=256", "--fileage_sec=60", mib, "--seccomp=none", "--no_watchdogs", "--uid=root", "--gid=root"],
            "CertPath": "/etc/stenographer/certs",
        });
        let file = folder.join("config");
        fs::write(&file, config.to_string())?;
        let up = bench.arena.namespace().command("ip").args(["link", "set", "lo", "up"]).status()?;
        ensure!(up.success(), "ip link set lo up: {up}");
        let said = File::create(folder.join("said"))?;
        let mut command = bench.arena.namespace().command("stenographer");
        command.arg("--config").arg(&file).arg("--syslog=false").stdin(Stdio::null());
        let child =
            command.stdout(said.try_clone()?).stderr(said).spawn().context("starting stenographer")?;
        Ok(Some(Stenographer { child, config: file }))
    }

    fn read(&self, bench: &Bench<'_>, asked: &str, output: &Path) -> Command {
        let mut command = bench.arena.namespace().command("stenoread");
        command.env("STENOGRAPHER_CONFIG", &self.config).arg(asked).args(["-Z", "root", "-w"]).arg(output);
        command
    }
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (mut steno, window) = record(bench)?;
    let store = bench.path("finding/store");
    if let Some(started) = &steno
        && let Err(error) = wait_until_visible(bench, started)
    {
        bench.table.note(format!("left out: {error:#}"));
        steno = None;
    }
    for query in queries(&window) {
        measure(bench, &store, steno.as_ref(), &query)?;
    }
    first_packet(bench, &store)?;
    cores(bench, &store)?;
    drop(steno);
    fs::remove_dir_all(bench.path("finding"))?;
    let _ = fs::remove_dir_all(bench.path("stenographer"));
    Ok(())
}

/// Records with both at once: half of the traffic, the needles, the other half. Gives two moments in the middle,
/// seconds since 1970.
fn record(bench: &mut Bench<'_>) -> Result<(Option<Stenographer>, [u64; 2])> {
    let folder = bench.path("finding");
    fs::create_dir(&folder)?;
    let mut steno = Stenographer::start(bench)?;
    if let Some(started) = &steno
        && let Err(error) = wait_for_file(&started.config.with_file_name("packets"))
    {
        bench.table.note(format!("left out: {error:#}"));
        steno = None;
    }
    let said = File::create(folder.join("said"))?;
    let words = Recorder::Tapline.command(&bench.tapline, &folder, bench.args.mib * 5 / 4 + 256)?;
    let mut command = bench.arena.namespace().command(&words[0]);
    command.args(&words[1..]).arg("--json").stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let mut child = command.spawn().context("starting tapline record")?;
    sleep(Duration::from_secs(2));
    bench.arena.wait_for_receiver(|| Ok(child.try_wait()?.is_none()))?;
    let half = Duration::from_secs_f64((bench.args.mib << 20) as f64 / 2.0 / (RATE * FRAME_LEN) as f64);
    let background =
        Load { traffic: TRAFFIC, size: SIZE, rate: Some(RATE), time: half, queue_timeout: Duration::ZERO };
    let needles = format!("udp src={NEEDLE}");
    let needle = Load {
        traffic: &needles,
        size: "100",
        rate: Some(1000),
        time: Duration::from_millis(NEEDLES),
        queue_timeout: Duration::ZERO,
    };
    let before = bench.arena.counters()?.received;
    let mut made = send(&mut bench.arena, &bench.tapline, &background)?.sent;
    let middle = now();
    made += send(&mut bench.arena, &bench.tapline, &needle)?.sent;
    made += send(&mut bench.arena, &bench.tapline, &background)?.sent;
    wait_until_quiet(&mut bench.arena)?;
    let received = bench.arena.counters()?.received - before;
    sleep(Duration::from_secs(2));
    interrupt(&child)?;
    ensure!(child.wait()?.success(), "tapline record: {}", fs::read_to_string(folder.join("said"))?);
    let stored = Recorder::Tapline.stored(&folder)?;
    ensure!(
        stored == received && made == received,
        "{made} packets were sent, {received} came, {stored} are in the store"
    );
    bench.table.note(format!(
        "find: {stored} packets of {SIZE} at {RATE} a second, {} MiB, in both",
        bench.args.mib
    ));
    Ok((steno, [middle.saturating_sub(3), middle.saturating_sub(1)]))
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn wait_for_file(folder: &Path) -> Result<()> {
    let start = Instant::now();
    while fs::read_dir(folder)?.next().is_none() {
        if start.elapsed() > Duration::from_secs(20) {
            let said = fs::read_to_string(folder.with_file_name("said")).unwrap_or_default();
            bail!("stenographer does not begin: {}", said.lines().last().unwrap_or_default());
        }
        sleep(GLANCE);
    }
    Ok(())
}

/// Waits until Stenographer finds the needles and all of the rest.
fn wait_until_visible(bench: &mut Bench<'_>, steno: &Stenographer) -> Result<()> {
    let output = bench.path("finding/visible.pcap");
    let start = Instant::now();
    // The needles were sent half of the recording ago.
    let asked = format!("host {NEEDLE}");
    while start.elapsed() < VISIBLE_MAX {
        quietly(steno.read(bench, &asked, &output))?;
        let files_left = fs::read_dir(steno.config.with_file_name("packets"))?.flatten();
        let hidden = files_left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count();
        let is_found = answer_of(std::slice::from_ref(&output))?.packets == NEEDLES;
        // The file that is being written holds the end of the traffic until it is a minute old.
        if is_found && start.elapsed() > Duration::from_secs(80) && hidden <= 1 {
            return Ok(());
        }
        sleep(GLANCE);
    }
    bail!("stenoread does not find what was recorded within {VISIBLE_MAX:?}")
}

fn queries(window: &[u64; 2]) -> [Query; 3] {
    let [from, to] = window.map(|second| format!("@{second}"));
    let needle = format!("host {NEEDLE}");
    [
        Query {
            name: "find/needle",
            filter: needle.clone(),
            asked: needle,
            window: Vec::new(),
            goal: 20.0,
            scan_goal: Some(500.0),
        },
        Query {
            name: "find/tenth",
            filter: "udp port 53".to_owned(),
            asked: "udp and port 53".to_owned(),
            window: Vec::new(),
            goal: 5.0,
            scan_goal: None,
        },
        Query {
            name: "find/two seconds of all",
            filter: String::new(),
            asked: String::new(),
            window: ["--from", &from, "--to", &to].map(str::to_owned).to_vec(),
            goal: 5.0,
            scan_goal: None,
        },
    ]
}

const OURS: &str = "tapline find";
const THEIRS: &str = "stenoread";
const SCAN: &str = "tcpdump, a process a core";

/// Runs a search by each finder in turns, and compares what they found.
fn measure(bench: &mut Bench<'_>, store: &Path, steno: Option<&Stenographer>, query: &Query) -> Result<()> {
    let asks_steno = !query.asked.is_empty();
    let finders: Vec<&str> = [OURS]
        .into_iter()
        .chain(steno.filter(|_| asks_steno).map(|_| THEIRS))
        .chain(has_program("tcpdump").then_some(SCAN))
        .collect();
    let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); finders.len()];
    let mut answers: Vec<Option<Answer>> = vec![None; finders.len()];
    for round in 0..bench.runs {
        for turn in 0..finders.len() {
            let at = (turn + round) % finders.len();
            disk::forget(store)?;
            if let Some(steno) = steno {
                disk::forget(steno.config.parent().context("it has a folder")?)?;
            }
            let (one, answer) = match finders[at] {
                OURS => ours(bench, store, query)?,
                THEIRS => theirs(bench, steno.context("it runs")?, query)?,
                _ => scan(bench, store, query)?,
            };
            ensure!(
                answers[at].as_ref().is_none_or(|before| *before == answer),
                "{} changes its mind",
                finders[at]
            );
            taken[at].push(one);
            answers[at] = Some(answer);
        }
    }
    // tcpdump has no words for times.
    let is_comparable = |finder: &str| query.window.is_empty() || finder != SCAN;
    for (finder, answer) in finders.iter().zip(&answers).filter(|(finder, _)| is_comparable(finder)) {
        ensure!(answer == &answers[0], "{}: {finder} found {answer:?}, {OURS} {:?}", query.name, answers[0]);
    }
    let found = answers[0].as_ref().map_or(0, |answer| answer.packets);
    bench.table.note(format!("{}: {found} packets, found by all alike", query.name));
    for (finder, taken) in finders.iter().zip(&taken) {
        bench.table.row(query.name, finder, "ms", taken.iter().map(|one| one.wall_ms).collect());
        let of_cpu = format!("{} cpu", query.name);
        bench.table.row(&of_cpu, finder, "ms", taken.iter().map(|one| one.cpu_ms).collect());
    }
    let of = |finder: &str| bench.table.median(query.name, finder);
    let by = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let (to_steno, to_scan) = (by(of(THEIRS), of(OURS)), by(of(SCAN), of(OURS)));
    bench.table.judge(query.name, "times faster than stenoread", to_steno, Goal::AtLeast(query.goal));
    if let Some(goal) = query.scan_goal {
        bench.table.judge(
            query.name,
            "times faster than tcpdump over all files",
            to_scan,
            Goal::AtLeast(goal),
        );
    }
    Ok(())
}

fn ours(bench: &Bench<'_>, store: &Path, query: &Query) -> Result<(Taken, Answer)> {
    let output = bench.path("finding/ours.pcap");
    forget_output(&output)?;
    let mut command = Command::new(&bench.tapline);
    command.arg("find").arg(store).args(&query.window).arg("-w").arg(&output);
    command.args((!query.filter.is_empty()).then_some(&query.filter));
    let taken = timed(command, None)?;
    Ok((taken, answer_of(&[output])?))
}

fn theirs(bench: &Bench<'_>, steno: &Stenographer, query: &Query) -> Result<(Taken, Answer)> {
    let output = bench.path("finding/theirs.pcap");
    forget_output(&output)?;
    let taken = timed(steno.read(bench, &query.asked, &output), Some(steno.child.id()))?;
    Ok((taken, answer_of(&[output])?))
}

/// Removes the output of the last run: to cut off a large file takes long, and is not part of a search.
fn forget_output(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// tcpdump over every segment, as many at once as there are processors.
fn scan(bench: &Bench<'_>, store: &Path, query: &Query) -> Result<(Taken, Answer)> {
    let folder = bench.path("finding/scan");
    fs::create_dir_all(&folder)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let all = "ls \"$1\"/*.pcapng | xargs -P \"$2\" -I FILE sh -c 'tcpdump -Z root -r \"$1\" -w \"$2/$(basename \"$1\")\" \"$3\"' sh FILE \"$3\" \"$4\"";
    let mut command = Command::new("sh");
    command.args(["-c", all, "sh"]).arg(store.join("seg")).arg(processors.to_string());
    command.arg(&folder).arg(&query.filter);
    let taken = timed(command, None)?;
    let answer = answer_of(&files(&folder, "pcapng")?)?;
    fs::remove_dir_all(&folder)?;
    Ok((taken, answer))
}

/// Runs a finder to its end. `server` works for it.
fn timed(mut command: Command, server: Option<u32>) -> Result<Taken> {
    let of_server = || server.map_or(0, process_ns);
    let (server_before, before, start) = (of_server(), CpuTime::of_children(), Instant::now());
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let wall_ms = start.elapsed().as_secs_f64() * 1e3;
    let own_ms = CpuTime::of_children().since(before).total().as_secs_f64() * 1e3;
    Ok(Taken { wall_ms, cpu_ms: own_ms + (of_server() - server_before) as f64 / 1e6 })
}

fn quietly(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null()).output()?;
    Ok(())
}

/// The packets of pcap files, one after the other.
fn answer_of(paths: &[PathBuf]) -> Result<Answer> {
    let mut all: Box<dyn Read> = Box::new(std::io::empty());
    for (number, path) in paths.iter().enumerate() {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        if number > 0 {
            std::io::copy(&mut (&mut file).take(24), &mut std::io::sink())?;
        }
        all = Box::new(all.chain(file));
    }
    answer::read(&mut all)
}

/// Measures the time to the first packet of a needle, with cold caches.
fn first_packet(bench: &mut Bench<'_>, store: &Path) -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..bench.runs.max(3) {
        disk::forget(store)?;
        let mut command = Command::new(&bench.tapline);
        command
            .arg("find")
            .arg(store)
            .args(["-w", "-", "--format", "pcap", "--"])
            .arg(format!("host {NEEDLE}"));
        let start = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = child.stdout.take().context("it was asked for")?;
        // The header of the file, and a byte of a packet.
        output.read_exact(&mut [0; 25])?;
        runs.push(start.elapsed().as_secs_f64() * 1e3);
        std::io::copy(&mut output, &mut std::io::sink())?;
        child.wait()?;
    }
    let value = Some(median(runs.iter().copied()));
    bench.table.row("find/first packet", OURS, "ms", runs);
    bench.table.judge("find/first packet", "milliseconds to the first packet", value, Goal::AtMost(100.0));
    Ok(())
}

/// A dense search on one processor and on two, from memory.
fn cores(bench: &mut Bench<'_>, store: &Path) -> Result<()> {
    let measure = "find/cores";
    let mut runs = [Vec::new(), Vec::new()];
    for path in files(&store.join("seg"), "pcapng")? {
        std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
    }
    for _ in 0..bench.runs {
        for (at, cores) in ["0", "0,1"].into_iter().enumerate() {
            let mut command = Command::new("taskset");
            command.args(["-c", cores]).arg(&bench.tapline).arg("find").arg(store).args([
                "-w",
                "/dev/null",
                "udp port 53",
            ]);
            let taken = timed(command, None)?;
            runs[at].push(taken.wall_ms);
        }
    }
    let [one, two] = runs;
    let ratio = median(one.iter().copied()) / median(two.iter().copied());
    bench.table.row(measure, "tapline find, one core", "ms", one);
    bench.table.row(measure, "tapline find, two cores", "ms", two);
    bench.table.judge(measure, "times faster on two cores", Some(ratio), Goal::AtLeast(1.8));
    Ok(())
}
