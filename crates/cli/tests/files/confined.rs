//! Each command that parses what others wrote is confined while it does, whoever started it.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tapline_sys::privilege::is_root;

/// The head of a pcap file of Ethernet.
const HEAD: [u8; 24] = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
const NOBODY: u32 = 65_534;

/// Starts a command whose standard input has the head of a file, and stays open.
fn start(line: &[&str], user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapline"));
    command.args(line).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    user.into_iter().for_each(|user| _ = command.uid(user).gid(user));
    let mut child = command.spawn()?;
    // A command that reads no packets leaves them.
    let _ = child.stdin.as_mut().expect("a pipe").write_all(&HEAD);
    Ok(child)
}

/// Whether all threads of a process have a filter of system calls, and can get no new rights.
fn is_confined(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_threads =
        threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    let has_filter = |status: String| status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1");
    let of_threads: Vec<bool> = of_threads.map(has_filter).collect();
    !of_threads.is_empty() && of_threads.iter().all(|is| *is)
}

fn becomes_confined(line: &[&str], user: Option<u32>) {
    let mut child = match start(line, user) {
        Ok(child) => child,
        Err(error) => return eprintln!("skipped: {line:?} as {user:?}: {error}"),
    };
    let end = Instant::now() + Duration::from_secs(60);
    let mut is = false;
    while !is && Instant::now() < end && child.try_wait().expect("ours").is_none() {
        is = is_confined(child.id());
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("it ends");
    assert!(is, "{line:?} as {user:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn commands(rules: &Path) -> Vec<Vec<String>> {
    let lines = [
        "capture -r -",
        "capture -r - -w /dev/null",
        "run -e file(-)->print",
        "probe -r -",
        "collect-flows -r -",
        "collect-flows --listen udp://127.0.0.1:0",
        "metrics --listen 127.0.0.1:0",
        "watch -r - --rules RULES",
    ];
    let words =
        |line: &str| line.split(' ').map(|word| word.replace("RULES", rules.to_str().unwrap())).collect();
    lines.iter().map(|line| words(line)).collect()
}

#[test]
fn commands_are_confined_whoever_starts_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\nname = \"a\"\non = \"new host\"\n").unwrap();
    for line in commands(&rules) {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        becomes_confined(&line, None);
        if is_root() {
            becomes_confined(&line, Some(NOBODY));
        }
    }
}

/// Stages are made once the process is confined: what they read and write is known before.
#[test]
fn stages_reach_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let key = write("site.key", &"k".repeat(32));
    let rules = write("some.rules", "alert ip any any -> any any (msg:\"all\"; sid:1;)\n");
    let alerts = folder.path().join("alerts.json").display().to_string();
    let patterns = write("patterns.txt", "abc\n");
    let flows = write("flow.rules", "default pass\n");
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mixed.pcapng");
    let out = folder.path().join("out").display().to_string();
    for stage in [
        format!("mask(key=\"{key}\")"),
        "mask".to_owned(),
        format!("signatures(\"{rules}\", alerts=\"{alerts}\")"),
        format!("match(list=\"{patterns}\")"),
        format!("rules(\"{flows}\")"),
        format!("extract(\"{out}\")"),
        format!("streams(\"{out}-streams\")"),
    ] {
        let graph = format!("file(\"{sample}\") -> {stage} -> count");
        let output =
            Command::new(env!("CARGO_BIN_EXE_tapline")).args(["run", "-e", &graph]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stage}: {text}");
    }
    assert!(fs::metadata(&alerts).is_ok_and(|file| file.len() > 0));
}
