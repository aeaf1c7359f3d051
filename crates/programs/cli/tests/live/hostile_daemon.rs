//! A hostile daemon: `capture -i tap:NAME`, `status` and `interfaces` end or go on, by these laws,
//! whatever comes over the socket and whatever the mapped memory contains:
//!
//! - no panic, no death by a signal, no wait beyond the deadlines; an interrupt ends a capture with its account;
//! - memory and descriptors are bounded;
//! - nothing on standard output and standard error can command a terminal.

mod maps;
mod says;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use tapline_sys::{Bell, Memfd, Seals, SharedWords, passing, process};
use tapline_testkit::random::Random;

use crate::support::{Finished, catches_interrupts, tapline};

/// The longest that a program may take after its last signal, on a machine with much else to do.
const BOUND: Duration = Duration::from_secs(60);
/// The most memory that a reader may have had, in KiB.
const MEMORY_KIB_MAX: u64 = 400 << 10;
/// The most descriptors that a reader may have open.
const DESCRIPTORS_MAX: usize = 60;

const SIGINT: i32 = 2;
const HELLO: &str = r#"{"hello":{"version":1,"captures":[{"name":"office","interfaces":[{"name":"eth0","link_type":1}],"snap_len":262144}]}}"#;
const ATTACHED: &str = r#"{"attached":{"reader":7,"buffers":1,"offer":{"name":"office","interfaces":[{"name":"eth0","link_type":1}],"snap_len":262144}}}"#;
const BUFFER: &str = r#"{"buffer":0}"#;
/// Sequences that control a terminal: colours, a title, and the one-character form of the same.
const ESCAPES: &str = r"\u001b[31mred\u001b]0;title\u0007\u009b31m\u202e\u0000";

/// The daemon's next action.
enum Step {
    /// Waits for a request.
    Hear,
    /// Says a line.
    Say(String),
    /// Sends bytes as they are.
    Raw(Vec<u8>),
    /// A line with descriptors.
    Give(String, Vec<OwnedFd>),
    /// Bytes one by one, with pauses.
    Drip(Vec<u8>, Duration),
    /// Repeats the bytes until the reader disconnects.
    Endless(Vec<u8>),
    /// Until the reader closes.
    Hang,
    /// Does this to the ring again and again, until the reader closes.
    Lie(Act, Box<Ring>),
}

/// A change of the ring, with its number.
type Act = Box<dyn FnMut(&Ring, u64) + Send>;

use Step::{Drip, Endless, Give, Hang, Hear, Lie, Raw, Say};

/// Buffers as docs/format/ring.md has them, in the hands of a liar.
struct Ring {
    buffer: Memfd,
    packets: SharedWords,
    index: Memfd,
    entries: SharedWords,
    ours: Bell,
    theirs: Option<OwnedFd>,
}

const BLOCK_LEN: u64 = 1 << 20;
const ENTRIES: u64 = 1 << 16;
const HEADER_WORDS: usize = 512;

/// Words of the headers, in units of 8 bytes.
mod word {
    pub(super) const STATE: usize = 17;
    pub(super) const WATERMARK: usize = 18;
    pub(super) const SOURCE: usize = 32;
    pub(super) const HEAD: usize = 16;
    pub(super) const INDEX_FULL: usize = 17;
    pub(super) const STANDING: usize = 18;
    pub(super) const BYTES: usize = 19;
    pub(super) const PAST: usize = 21;
}

impl Ring {
    fn new() -> Ring {
        Ring::with(BLOCK_LEN, 4, ENTRIES, 262_144)
    }

    /// Sparse: untouched pages take no memory.
    fn with(block_len: u64, blocks: u64, entries: u64, snap_len: u64) -> Ring {
        let sparse = |len: u64| {
            let file = File::from(OwnedFd::from(Memfd::create(c"lie", 4096).unwrap()));
            file.set_len(len).unwrap();
            Memfd::from_descriptor(file.into())
        };
        let (buffer, index) = (sparse(4096 + block_len * blocks), sparse(4096 + 16 * entries));
        let (packets, lines) = (buffer.map().unwrap(), index.map().unwrap());
        let common = |magic: &[u8; 8]| [u64::from_ne_bytes(*magic), 0x0102_0304_0506_0708, 1, 4096];
        let of_buffer = [block_len, blocks, 99, 1, snap_len, 0, 0];
        for (at, value) in common(b"TAPLPBUF").into_iter().chain(of_buffer).enumerate() {
            packets[at].store(value, Relaxed);
        }
        for (at, value) in common(b"TAPLIBUF").into_iter().chain([entries, 99, 7]).enumerate() {
            lines[at].store(value, Relaxed);
        }
        packets[word::STATE].store(1, Relaxed);
        packets[word::WATERMARK].store(i64::MIN as u64, Relaxed);
        lines[word::STANDING].store(1, Relaxed);
        lines[word::PAST].store(i64::MAX as u64, Relaxed);
        buffer.seal(Seals::READ_ONLY).unwrap();
        index.seal(Seals::SIZE).unwrap();
        let (ours, theirs) = Bell::pair().unwrap();
        Ring { buffer, packets, index, entries: lines, ours, theirs: Some(theirs.into()) }
    }

    /// The three descriptors for the reader. The bell is real only once.
    fn parts(&mut self) -> Vec<OwnedFd> {
        let bell = self.theirs.take().unwrap_or_else(|| OwnedFd::from(Bell::pair().unwrap().1));
        vec![self.buffer.duplicate().unwrap(), self.index.duplicate().unwrap(), bell]
    }

    /// Offers one packet, at the beginning of the first block, which is never another one.
    fn offer(&self, change: impl FnOnce(&mut [u64; 8])) {
        let position = BLOCK_LEN + 128;
        let (seconds, nanos) = (1_700_000_000_u64, 1_000_000_000);
        let mut head = [60 | 60 << 32, seconds * nanos, 0, 2 << 32, 0, 0, 0, position];
        change(&mut head);
        let block = HEADER_WORDS + (BLOCK_LEN / 8) as usize;
        self.packets[block].store(1, Relaxed);
        (0..8).for_each(|at| self.packets[block + 16 + at].store(head[at], Relaxed));
        self.entry(position, head[0] & 0xffff_ffff);
    }

    fn entry(&self, position: u64, what: u64) {
        let head = self.entries[word::HEAD].load(Relaxed);
        let at = HEADER_WORDS + 2 * (head % ENTRIES) as usize;
        self.entries[at].store(position, Relaxed);
        self.entries[at + 1].store(what, Relaxed);
        self.entries[word::BYTES].fetch_add(60, Relaxed);
        self.entries[word::HEAD].store(head.wrapping_add(1), Release);
    }

    /// Number of free places in the index, by the reader's counters.
    fn room(&self) -> u64 {
        let consumed: u64 = (32..35).map(|at| self.entries[at].load(Relaxed)).sum();
        ENTRIES.saturating_sub(self.entries[word::HEAD].load(Relaxed).wrapping_sub(consumed))
    }
}

/// Serves each connection what `steps` says, in a temporary folder.
fn daemon(steps: impl Fn(usize) -> Vec<Step> + Send + 'static) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { break };
            let steps = steps(number);
            thread::spawn(move || talk(stream, steps));
        }
    });
    folder
}

/// Ends when the reader is gone, however that shows.
fn talk(stream: UnixStream, steps: Vec<Step>) -> Option<()> {
    let mut requests = BufReader::new(stream.try_clone().ok()?);
    let mut out = &stream;
    for step in steps {
        match step {
            Hear => {
                let mut line = String::new();
                requests.read_line(&mut line).ok().filter(|len| *len > 0)?;
            }
            Say(line) => out.write_all(format!("{line}\n").as_bytes()).ok()?,
            Raw(bytes) => out.write_all(&bytes).ok()?,
            Give(line, descriptors) => {
                let line = format!("{line}\n");
                let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
                passing::send(stream.as_fd(), line.as_bytes(), &descriptors).ok()?;
            }
            Drip(bytes, pause) => {
                for byte in bytes {
                    out.write_all(&[byte]).ok()?;
                    thread::sleep(pause);
                }
            }
            Endless(bytes) => loop {
                out.write_all(&bytes).ok()?;
            },
            Hang => while requests.read_line(&mut String::new()).ok()? > 0 {},
            Lie(mut lie, ring) => {
                let gone = Arc::new(AtomicBool::new(false));
                let seen = Arc::clone(&gone);
                // Answers no request, a leave neither.
                thread::spawn(move || {
                    while requests.read_line(&mut String::new()).is_ok_and(|len| len > 0) {}
                    seen.store(true, Relaxed);
                });
                let mut round = 0;
                while !gone.load(Relaxed) {
                    lie(&ring, round);
                    round += 1;
                }
                return None;
            }
        }
    }
    Some(())
}

/// Way in which a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By itself.
    Alone,
    /// By an interrupt while it captures, with an account.
    Interrupt,
    /// By further interrupts, which give up a capture that is not open yet.
    GivenUp,
}

/// Runs the program against the daemon in a folder, and checks the laws.
fn obey(name: &str, folder: &Path, arguments: &[&str], end: End) -> Finished {
    let mut command: Command = tapline(arguments);
    command.arg("--socket").arg(folder.join("socket")).current_dir(folder);
    let (out, err) = (folder.join("out"), folder.join("err"));
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = command.spawn().expect("the program was built");
    let start = Instant::now();
    let (mut memory, mut descriptors, mut signals) = (0, 0, 0);
    let mut last = start;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let (now_memory, now_descriptors) = usage(&child);
        (memory, descriptors) = (now_memory.max(memory), now_descriptors.max(descriptors));
        let is_ready = match (end, signals) {
            (End::Alone, _) | (End::Interrupt, 1..) => false,
            (_, 0) if end == End::Interrupt => {
                let is_reading = fs::read_to_string(&err).is_ok_and(|text| text.contains("reading tap:"));
                is_reading && start.elapsed() > Duration::from_millis(600)
            }
            // A signal that meets one that still waits is lost: more than two are sent to a busy process.
            _ => last.elapsed() > Duration::from_millis(600) && catches_interrupts(child.id()),
        };
        if is_ready {
            process::signal(child.id(), SIGINT).unwrap();
            (signals, last) = (signals + 1, Instant::now());
        }
        if last.elapsed() > BOUND || signals > 60 {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{name}: it hangs: {}", fs::read_to_string(&err).unwrap_or_default());
        }
        thread::sleep(Duration::from_millis(10));
    };
    let output =
        std::process::Output { status, stdout: fs::read(&out).unwrap(), stderr: fs::read(&err).unwrap() };
    eprintln!("{name}: {status}, {} ms, {memory} KiB, {descriptors} descriptors", last.elapsed().as_millis());
    for (what, bytes) in [("output", &output.stdout), ("error", &output.stderr)] {
        let text =
            std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{name}: standard {what}: {error}"));
        let forbidden = |letter: &char| {
            letter.is_control() && !matches!(letter, '\n' | '\t')
                || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        let found = text.chars().find(forbidden);
        assert_eq!(found, None, "{name}: standard {what}: {:.300}", text.escape_debug().to_string());
        assert!(text.len() < 16 << 20, "{name}: {} bytes of standard {what}", text.len());
    }
    assert!(status.code().is_some(), "{name}: {status}");
    assert!(memory < MEMORY_KIB_MAX, "{name}: {memory} KiB of memory");
    assert!(descriptors < DESCRIPTORS_MAX, "{name}: {descriptors} descriptors");
    let finished = Finished::new(output);
    if end == End::Interrupt {
        finished.account();
    }
    finished
}

/// The most memory that a process had, in KiB, and how many descriptors it has.
fn usage(child: &Child) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let memory = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    // Before it begins, a child has the descriptors of this process.
    if !status.starts_with("Name:\ttapline\n") {
        return (0, 0);
    }
    (memory, fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count))
}

const STATUS: &[&str] = &["status"];
const LIST: &[&str] = &["interfaces"];
const CAPTURE: &[&str] = &["capture", "-i", "tap:office", "--json", "-w", "out.pcapng"];
const PRINT: &[&str] = &["capture", "-i", "tap:office", "-vv", "-n"];
const AGAIN: &[&str] = &["capture", "-i", "tap:office", "--json", "-w", "out.pcapng", "--reconnect"];
const LEASED: &[&str] = &["capture", "-i", "tap:office", "--json", "-w", "out.pcapng", "--policy", "leased"];

fn say(line: impl Into<String>) -> Step {
    Say(line.into())
}

/// The whole beginning of an honest daemon, with this ring; and then.
fn honest(mut ring: Ring, then: impl FnOnce(Box<Ring>) -> Vec<Step>) -> Vec<Step> {
    let parts = ring.parts();
    let mut steps = vec![Hear, say(HELLO), Hear, say(ATTACHED), Give(BUFFER.to_owned(), parts)];
    steps.extend(then(Box::new(ring)));
    steps
}

fn lie(ring: Ring, act: impl FnMut(&Ring, u64) + Send + 'static) -> Vec<Step> {
    honest(ring, |ring| vec![Lie(Box::new(act), ring)])
}

/// Leaks a ring, so that it is never closed.
fn keep(ring: Box<Ring>) -> Step {
    Box::leak(ring);
    Raw(Vec::new())
}

fn nap() {
    thread::sleep(Duration::from_millis(1));
}

type Script = fn() -> Vec<Step>;
/// Name, arguments of the client, the way it ends, and the daemon.
type Case = (&'static str, &'static [&'static str], End, Script);

fn run_all(cases: &[Case]) {
    let wanted = std::env::var("TAPLINE_CASE").unwrap_or_default();
    let mut broken = Vec::new();
    for &(name, arguments, end, script) in cases.iter().filter(|case| case.0.contains(&wanted)) {
        let folder = daemon(move |_| script());
        broken.extend(failure(|| obey(name, folder.path(), arguments, end)));
    }
    assert!(broken.is_empty(), "{} cases broke a law:\n{}", broken.len(), broken.join("\n"));
}

/// The message of a case that broke a law.
fn failure(case: impl FnOnce() -> Finished) -> Option<String> {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| "a panic".to_owned()).chars().take(400).collect())
}

/// An honest conversation, changed by a seed: each is cut, doubled, swapped, or has some of its bytes changed; and each
/// part of the memory too.
#[test]
fn changed_conversations_obey_the_laws() {
    let cases = std::env::var("TAPLINE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(160);
    let next = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= cases {
                        break;
                    }
                    let folder = daemon(move |_| changed(seed));
                    // A daemon may take two minutes to make buffers: an interrupt ends that wait.
                    let (arguments, end) = match seed % 4 {
                        0 => (STATUS, End::Alone),
                        1 => (LIST, End::Alone),
                        _ => (CAPTURE, End::GivenUp),
                    };
                    obey(&format!("seed {seed}"), folder.path(), arguments, end);
                }
            });
        }
    });
}

fn changed(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut ring = Ring::new();
    for _ in 0..random.below(4) {
        let at = random.below(64) as usize;
        let value = [0, 1, u64::MAX, random.bits(), 1 << random.below(64)][random.below(5) as usize];
        let words = if random.below(2) == 0 { &ring.packets } else { &ring.entries };
        words[at].store(value, Relaxed);
    }
    let parts = ring.parts();
    let second = if seed.is_multiple_of(4) {
        r#"{"status":{"captures":[{"name":"office","readers":[{}]}]}}"#
    } else {
        ATTACHED
    };
    let mut lines = vec![HELLO.as_bytes().to_vec(), second.as_bytes().to_vec()];
    for line in &mut lines {
        for _ in 0..random.below(3) {
            let at = random.below(line.len() as u64) as usize;
            match random.below(5) {
                0 => line.truncate(at + 1),
                1 => line[at] = random.below(256) as u8,
                2 => drop(line.remove(at)),
                3 if line.len() > 1 => line.splice(at..at, b"[{\"".iter().copied()).for_each(drop),
                _ => {
                    let copy = line[at..].to_vec();
                    line.extend(copy);
                }
            }
            if line.is_empty() {
                line.push(b'{');
            }
        }
        line.push(b'\n');
    }
    let mut lines = lines.into_iter();
    let mut steps = vec![Hear, Raw(lines.next().unwrap()), Hear, Raw(lines.next().unwrap())];
    steps.push(Give(BUFFER.to_owned(), parts));
    if random.below(3) == 0 {
        let at = random.below(steps.len() as u64) as usize;
        steps.remove(at);
    }
    let mut left = 20;
    steps.push(Lie(
        Box::new(move |ring, round| {
            if round < 50 {
                ring.offer(|head| {
                    let at = (seed + round) as usize % 8;
                    head[at] = head[at].rotate_left((seed + round) as u32 % 64) ^ round;
                });
            } else if left > 0 {
                left -= 1;
                nap();
            } else {
                // Hangs up, at the latest.
                ring.packets[word::STATE].store(2, Relaxed);
                nap();
            }
        }),
        Box::new(ring),
    ));
    steps
}
