//! Support for tests of the program: running it, its account, live captures in a namespace, real captures.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod scene;
pub mod tcpdump;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tapline_sys::{NetNs, proc_packet};
use tapline_testkit::capture_file::{StoredPacket, read_packets};
use tapline_testkit::netns::Namespace;
pub use tapline_testkit::own_process::catches_interrupts;
pub use tapline_testkit::surroundings::{captures_or_skip, program_or_skip, root_or_skip};
use tapline_testkit::traffic::Traffic;

/// The program under test.
pub const TAPLINE: &str = env!("CARGO_BIN_EXE_tapline");

/// Longest wait for what should take no time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A run of the program that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    pub fn new(output: Output) -> Finished {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Finished { status: output.status, stdout: output.stdout, stderr }
    }

    /// The account: the last line of standard output, as `--json` has it. Checked to balance.
    pub fn account(&self) -> Account {
        let text = String::from_utf8_lossy(&self.stdout);
        let line = text.lines().last().unwrap_or_else(|| panic!("no account: {}", self.stderr));
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let account = Account { value: value["account"].clone() };
        assert_eq!(account.value["balanced"], true, "{line}");
        account
    }

    /// Panics unless the run ended well.
    #[track_caller]
    pub fn succeeded(self) -> Finished {
        assert!(self.status.success(), "{}\n{}", self.status, self.stderr);
        self
    }

    /// Panics unless the run ended with an error that contains each of `words`.
    #[track_caller]
    pub fn failed_saying(&self, words: &[&str]) {
        assert!(self.status.code().is_some_and(|code| code != 0), "{}: {}", self.status, self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "no \"{word}\" in: {}", self.stderr);
        }
    }
}

/// The account as JSON has it.
#[derive(Debug)]
pub struct Account {
    pub value: Value,
}

impl Account {
    /// A counter of the whole: `delivered`, `filtered`, `accepted`, `unexamined`, `lost`.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        self.value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.value))
    }

    /// A counter of the kernel's rings, summed over interfaces: `received`, `dropped`, `unread`.
    pub fn ring(&self, name: &str) -> u64 {
        let interfaces = self.value["interfaces"].as_array().expect("a list");
        interfaces.iter().map(|interface| interface["ring"][name].as_u64().expect("a live capture")).sum()
    }

    /// The account of one interface's packets.
    #[track_caller]
    pub fn interface(&self, name: &str) -> &Value {
        let interfaces = self.value["interfaces"].as_array().expect("a list");
        let found = interfaces.iter().find(|interface| interface["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {}", self.value))
    }

    /// A counter of the first output: `written`, `lost`.
    #[track_caller]
    pub fn output(&self, name: &str) -> u64 {
        self.value["outputs"][0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.value))
    }
}

/// A path as an argument, between others that are text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("our names are UTF-8")
}

/// A command that runs the program with these arguments.
pub fn tapline<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(TAPLINE);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Python with the wheels that scripts/test-tools.sh installs.
pub fn python() -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python"));
    command
}

/// Whether Python has a module; a test without it says that it is skipped.
pub fn module_or_skip(test: &str, module: &str) -> bool {
    let found = python().args(["-c", &format!("import {module}")]).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("skipped: {test}: python3 has no module {module} here");
    }
    is_there
}

/// Copies the program under test, by another process: a thread that starts a child while we write the copy would hand
/// the child our descriptor, and a program that is open for writing cannot be run (`ETXTBSY`).
pub fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(TAPLINE).arg(to).status().expect("cp is everywhere").success());
}

/// Runs the program to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Finished {
    Finished::new(tapline(arguments).output().expect("the program was built"))
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Finished {
    Finished::new(command.stdin(Stdio::null()).output().expect("it can be started"))
}

/// Runs a command with `input` on its standard input.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Finished {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("a pipe was asked for");
    let input = input.to_vec();
    // A thread of its own: the program may write before it has read everything.
    let feeder = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it was started");
    feeder.join().expect("writing does not panic");
    Finished::new(output)
}

/// A live capture under way.
pub struct Live {
    child: Option<Child>,
    pid: u32,
}

impl Live {
    /// Starts `tapline capture ARGUMENTS` on the namespace, and waits until `sockets` sockets listen there.
    pub fn start(namespace: &Namespace, sockets: usize, arguments: &[&str]) -> Live {
        Live::start_command(
            namespace,
            sockets,
            tapline(["capture", "--netns", namespace.name()]).args(arguments),
        )
    }

    /// As [`start`](Self::start), any command.
    pub fn start_command(namespace: &Namespace, sockets: usize, command: &mut Command) -> Live {
        let child = command.spawn().expect("the program was built");
        let mut live = Live { pid: child.id(), child: Some(child) };
        live.wait_until_listening(namespace, sockets);
        live
    }

    fn wait_until_listening(&mut self, namespace: &Namespace, wanted: usize) {
        let place = NetNs::open(namespace.name()).expect("it was made");
        let start = Instant::now();
        loop {
            let sockets = place.run(proc_packet::sockets).expect("we made the namespace");
            let listening = sockets.iter().filter(|socket| socket.is_running && socket.if_index != 0).count();
            if listening >= wanted && self.obeys_signals() {
                return;
            }
            let child = self.child.as_mut().expect("it runs");
            if child.try_wait().expect("our child").is_some() {
                let output = self.child.take().expect("it ran").wait_with_output().expect("our child");
                panic!("the capture ended early: {}", String::from_utf8_lossy(&output.stderr));
            }
            assert!(start.elapsed() < PATIENCE, "the capture does not begin");
            sleep(Duration::from_millis(10));
        }
    }

    /// Whether it obeys signals by now, the last that it does before it captures: it has a thread for them.
    fn obeys_signals(&self) -> bool {
        self.has_thread("signals")
    }

    /// Whether it has a thread of this name by now.
    pub fn has_thread(&self, name: &str) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut names = threads.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|thread| thread.trim_end() == name)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid.to_string()]).status();
        assert!(status.expect("kill is everywhere").success());
    }

    /// Waits for the end, which must come by itself.
    pub fn wait(mut self) -> Finished {
        let mut child = self.child.take().expect("it runs");
        let start = Instant::now();
        while child.try_wait().expect("our child").is_none() {
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                let output = child.wait_with_output().expect("our child");
                panic!("the capture does not end: {}", String::from_utf8_lossy(&output.stderr));
            }
            sleep(Duration::from_millis(10));
        }
        Finished::new(child.wait_with_output().expect("our child"))
    }

    /// Waits until all threads sleep, three looks in a row: packets that came are read, signals are obeyed. A thread
    /// that waits for a processor does not sleep, so a busy machine only makes this longer.
    pub fn wait_until_idle(&self) {
        let mut looks = 0;
        wait_for("the program to be idle", || {
            looks = if is_asleep(self.pid) { looks + 1 } else { 0 };
            looks == 3
        });
    }

    /// Ctrl-C once the kernel has delivered what was sent, and then the end.
    pub fn interrupt(self) -> Finished {
        wait_for_backlog();
        self.signal("INT");
        self.wait()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether no thread of a process runs, wants to run, or is stopped: field 3 of proc(5) `stat`.
fn is_asleep(pid: u32) -> bool {
    let threads: Vec<_> = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().collect();
    let sleeps = |stat: String| stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('S'));
    let is_asleep = |path: PathBuf| fs::read_to_string(path).is_ok_and(sleeps);
    !threads.is_empty() && threads.iter().all(|thread| is_asleep(thread.path().join("stat")))
}

/// Waits until the kernel's backlog of received packets is empty: ksoftirqd, which empties it on a busy machine, waits
/// for a processor as other threads do. Traffic of others may keep it filled, so the wait has an end.
pub fn wait_for_backlog() {
    // softnet_data of the kernel: the twelfth column is the length of the backlog, in hexadecimal.
    let len = |line: &str| line.split_whitespace().nth(11).and_then(|len| u32::from_str_radix(len, 16).ok());
    let is_empty = || {
        let rows = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        rows.lines().filter_map(len).all(|len| len == 0)
    };
    let start = Instant::now();
    while !is_empty() && start.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(1));
    }
}

/// The first `count` frames of the mixed traffic of a seed.
pub fn frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
    Traffic::new(seed).take(count).map(|(_, frame)| frame).collect()
}

/// All packets of a file that must be complete.
#[track_caller]
pub fn packets_of(path: &Path) -> Vec<StoredPacket> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    read_packets(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The captured bytes of each packet.
pub fn bytes_of(packets: Vec<StoredPacket>) -> Vec<Vec<u8>> {
    packets.into_iter().map(|packet| packet.data).collect()
}

/// Files of a folder, sorted by name.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("it exists").flatten().map(|e| e.path()).collect();
    files.sort();
    files
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
}

/// One in `step` captures, for tests that start slow programs for each; all of them where `TAPLINE_EVERY_CAPTURE=1`, as in
/// `make soak`.
pub fn thinned<T>(captures: impl Iterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    let all = std::env::var_os("TAPLINE_EVERY_CAPTURE").is_some();
    captures.step_by(if all { 1 } else { step })
}
