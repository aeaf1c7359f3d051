//! `tapline metrics` without traffic: its text, its file, its refusals.

use std::fs;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};

use crate::support::{finish, run, tapline};

#[test]
fn metrics_are_printed_once_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let text = |more: &[&str]| {
        let mut command = tapline(["metrics", "--once", "--socket"]);
        command.arg(folder.path().join("none")).args(more).env("TAPLINE_RUN_DIR", folder.path());
        String::from_utf8(finish(&mut command).succeeded().stdout).unwrap()
    };
    let plain = text(&[]);
    assert!(plain.contains("\ntapline_processes 0\n") && !plain.contains("EOF"), "{plain}");
    assert!(!plain.contains("tapline_daemon_up"), "no socket, no statement: {plain}");
    let open = text(&["--openmetrics"]);
    assert!(open.contains("# TYPE tapline_build info\n") && open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn a_dead_daemon_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    // A program that another test is about to start has a copy of the listener, so closing does not end it at once.
    UnixStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both).unwrap();
    let mut command = tapline(["metrics", "--once", "--socket"]);
    let finished = finish(command.arg(&socket).env("TAPLINE_RUN_DIR", folder.path())).succeeded();
    assert!(String::from_utf8_lossy(&finished.stdout).contains("\ntapline_daemon_up 0\n"));
}

#[test]
fn the_text_file_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tapline.prom");
    let mut command = tapline(["metrics", "--once", "--textfile"]);
    finish(command.arg(&file).env("TAPLINE_RUN_DIR", folder.path())).succeeded();
    assert!(fs::read_to_string(&file).unwrap().contains("tapline_build_info{version="));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn networks_are_not_served() {
    run(["metrics", "--listen", "0.0.0.0:9477"]).failed_saying(&["0.0.0.0:9477", "proxy with TLS"]);
    run(["metrics"]).failed_saying(&["--listen", "--textfile", "--once"]);
}
