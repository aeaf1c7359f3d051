//! Signals before a command has begun, and threads that cannot be made.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::support::*;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use tapline_sys::capability::Capability;
use tapline_sys::process;
use tapline_testkit::sample;

fn fifo_in(folder: &Path) -> PathBuf {
    let fifo = folder.join("fifo.pcapng");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a process has a handler for a signal (`SigCgt` of proc_pid_status(5)), and not longer: others may not be
/// installed yet.
fn wait_for_handler(child: &Child, signal: i32) {
    let start = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "no handler for signal {signal}");
        thread::yield_now();
    }
}

/// Nobody opens the other end.
#[test]
fn a_pipe_that_waits_is_left_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (fifo, stored) = (fifo_in(folder.path()), sample::STORED);
    let fifo = text(&fifo);
    let graph = format!("file({stored:?}) -> record({fifo:?})");
    let json = format!("json:{fifo}");
    let socket = folder.path().join("socket");
    let mut lines = vec![
        vec!["generate", "-w", fifo, "count=10"],
        vec!["serve", "-r", fifo, "--socket", text(&socket)],
        vec!["capture", "-r", stored, "-w", fifo],
        vec!["probe", "-r", stored, "--export", &json],
        vec!["run", "-e", &graph],
    ];
    let two = format!("device(\"lo\") -> count; file({fifo:?}) -> count");
    if Capability::NetRaw.is_effective().unwrap() {
        lines.push(vec!["replay", "-i", "lo", fifo]);
        lines.push(vec!["capture", "-i", "lo", "-w", fifo]);
        lines.push(vec!["run", "-e", &two]);
    }
    for line in &lines {
        // Ctrl-C ends a daemon that waits; other commands once it comes again.
        let interrupt = (line[0] == "serve").then_some(SIGINT);
        for signal in [SIGTERM, SIGHUP].into_iter().chain(interrupt) {
            let child = start(&mut tapline(line));
            wait_for_handler(&child, SIGTERM);
            process::signal(child.id(), signal).unwrap();
            let finished = Finished::new(child.wait_with_output().unwrap());
            assert_eq!(finished.status.code(), Some(128 + signal), "{line:?}: {}", finished.stderr);
        }
    }
}

/// An account is asked for before there is one.
#[test]
fn early_orders_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo_in(folder.path());
    for line in [vec!["capture", "--count", "-r"], vec!["profile", "-r"], vec!["info"]] {
        let child = start(tapline(&line).arg(&fifo).env("TAPLINE_RUN_DIR", folder.path()));
        wait_for_handler(&child, SIGUSR1);
        for signal in [SIGUSR1, SIGUSR2, SIGUSR1] {
            process::signal(child.id(), signal).unwrap();
        }
        let mut writer = File::options().write(true).open(&fifo).unwrap();
        writer.write_all(&fs::read(sample::STORED).unwrap()).unwrap();
        drop(writer);
        Finished::new(child.wait_with_output().unwrap()).succeeded();
    }
}

/// A user who may have so many processes and threads, and has no other.
fn limited(threads: u32, user: &str) -> Command {
    let mut command = Command::new("setpriv");
    let limit = format!("--nproc={threads}:{threads}");
    command.args(["--reuid", user, "--clear-groups", "prlimit", &limit, TAPLINE]);
    command
}

#[test]
fn a_thread_that_cannot_be_made_is_an_error() {
    if !root_or_skip("a_thread_that_cannot_be_made_is_an_error") {
        return;
    }
    for (threads, user, name) in [(1, "1879048101", "signals"), (2, "1879048102", "duration")] {
        let line = ["run", "--duration", "1h", "-e", &format!("file({:?}) -> count", sample::STORED)];
        let finished = finish(limited(threads, user).args(line));
        finished.failed_saying(&[&format!("cannot start the thread \"{name}\""), "ulimit -u"]);
    }
    // It ends with its account, and says that a second Ctrl-C would not hurry it.
    let child = start(limited(2, "1879048103").args(["generate", "-w", "-", "rate=10"]));
    wait_for_handler(&child, SIGINT);
    process::signal(child.id(), SIGINT).unwrap();
    let finished = Finished::new(child.wait_with_output().unwrap()).succeeded();
    assert!(finished.stderr.contains("cannot start the thread \"grace\""), "{}", finished.stderr);
}

/// A signal comes as soon as there is a handler, before all of them are installed.
#[test]
fn a_signal_during_the_start_ends_a_run() {
    for _ in 0..60 {
        let child = start(&mut tapline(["generate", "-w", "-", "rate=10"]));
        wait_for_handler(&child, SIGINT);
        process::signal(child.id(), SIGINT).unwrap();
        let finished = Finished::new(child.wait_with_output().unwrap()).succeeded();
        assert!(finished.stderr.contains(" packets, 0 dropped"), "{}", finished.stderr);
    }
}
