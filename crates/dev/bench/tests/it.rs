//! The bench as a program that is ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tapline_testkit::netns::namespaces_or_skip;

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn namespaces_of(pid: u32) -> usize {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().contains(&format!("-{pid}-"))).count()
}

/// Ends a workload by SIGINT while a program runs that one of its programs started, and its namespaces exist.
fn ended(workload: &[&str], namespaces: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (scratch, pid_file, program) =
        (folder.path().join("scratch"), folder.path().join("pid"), folder.path().join("tapline"));
    fs::create_dir(&scratch).unwrap();
    fs::write(&program, format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\nwait\n", pid_file.display()))
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapline-bench"));
    command.args(workload).arg("--folder").arg(&scratch).arg("--tapline").arg(&program);
    let mut bench = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    let mut pid = String::new();
    wait_for("the program", || {
        assert!(bench.try_wait().unwrap().is_none(), "{workload:?}: it ended by itself");
        pid = fs::read_to_string(&pid_file).unwrap_or_default();
        pid.ends_with('\n') && namespaces_of(bench.id()) == namespaces
    });
    assert_ne!(fs::read_dir(&scratch).unwrap().count(), 0, "it has temporary files");
    tapline_sys::process::signal(bench.id(), 2).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(130), "{workload:?}");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{workload:?}");
    let is_running = || {
        let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(!is_running(), "{workload:?}: {pid}");
    assert_eq!(namespaces_of(bench.id()), 0, "{workload:?}");
}

#[test]
fn an_end_leaves_nothing_behind() {
    ended(&["file", "--size", "1M"], 0);
    if namespaces_or_skip("an_end_leaves_nothing_behind") {
        ended(&["store", "--part", "delay"], 1);
    }
}
