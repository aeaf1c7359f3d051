//! Each command that parses what others wrote is confined while it does, whichever user started it.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tapline_sys::privilege::is_root;
use tempfile::TempDir;

/// The head of a pcap file of Ethernet.
const HEAD: [u8; 24] = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
const NOBODY: u32 = 65_534;
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");

/// Whether a command is confined. DIR in a line is a folder of files: see [`Fixture`].
enum Confinement {
    /// Such lines are; they wait for standard input, a socket, or a reader of their standard output.
    Is(&'static [&'static str]),
    /// Confined likewise, by root in a network namespace of its own.
    IsInNamespace(&'static [&'static str]),
    /// Not confined, for this reason.
    None(&'static str),
}
use Confinement::{Is, IsInNamespace, None as No};

/// All commands: one that is missing fails the test.
const COMMANDS: &[(&str, Confinement)] = &[
    ("bench", No("starts programs and measures its own packets")),
    ("capture", Is(&["capture -r -", "capture -r - -w /dev/null"])),
    ("collect-flows", Is(&["collect-flows -r -", "collect-flows --listen udp://127.0.0.1:0"])),
    ("config check", No("reads the configuration, which is trusted")),
    ("config show", No("reads the configuration, which is trusted")),
    ("control", Is(&["control office pause --socket DIR/daemon"])),
    ("dns", Is(&["dns -r -"])),
    ("doctor", Is(&["doctor --all"])),
    ("extcap", Is(&["extcap --extcap-interfaces --socket DIR/daemon"])),
    ("filter bench", Is(&["filter bench --runs 1 --time-ms 1 -r DIR/sample.pcap ip"])),
    ("filter explain", Is(&["filter explain --stage all ip"])),
    ("find", Is(&["find DIR/store -n"])),
    ("follow", Is(&["follow -r -"])),
    (
        "generate",
        IsInNamespace(&[
            "generate -i lo rate=1 count=1000 --backend packet",
            "generate -w /dev/null count=4G",
        ]),
    ),
    ("grep", Is(&["grep a -r -", "grep --stream a -r -"])),
    ("http", Is(&["http -r -"])),
    ("info", Is(&["info -"])),
    ("interfaces", Is(&["interfaces"])),
    ("manual", No("reads nothing")),
    ("memory", Is(&["memory DIR/cells", "memory DIR/cells --reset"])),
    ("metrics", Is(&["metrics --listen 127.0.0.1:0", "metrics --once", "metrics --textfile DIR/x.prom"])),
    ("probe", Is(&["probe -r -"])),
    ("profile", Is(&["profile -r -", "profile --compare DIR/profile DIR/profile"])),
    ("record", IsInNamespace(&["record -i lo --to DIR/other --size 256M --segment 64Mi"])),
    ("replay", IsInNamespace(&["replay DIR/sample.pcap -i lo --rate 1 --backend packet"])),
    ("run", Is(&["run -e file(-)->print"])),
    ("serve", IsInNamespace(&["serve -i lo --name office --socket DIR/socket"])),
    ("stats", Is(&["stats -r -"])),
    ("status", Is(&["status --socket DIR/daemon"])),
    ("store check", Is(&["store check DIR/store"])),
    ("store forget", Is(&["store forget DIR/free --yes tcp"])),
    ("store hold", Is(&["store hold DIR/store", "store hold DIR/store case --from 2000-01-01 udp"])),
    ("store import", Is(&["store import DIR/imported DIR/sample.pcap"])),
    ("store release", Is(&["store release DIR/store held"])),
    ("store repair", Is(&["store repair DIR/store"])),
    ("store status", Is(&["store status DIR/store"])),
    ("store verify", Is(&["store verify DIR/store"])),
    ("tls", Is(&["tls -r -"])),
    ("top", IsInNamespace(&["top --interval 60s"])),
    ("view", IsInNamespace(&["view --listen 127.0.0.1:0 --no-history"])),
    ("watch", Is(&["watch -r - --rules DIR/rules.toml", "watch -r - --rules DIR/commands.toml"])),
    ("watch check", Is(&["watch check DIR/rules.toml"])),
];

/// Files of a user, and the socket of a daemon that never answers.
struct Fixture {
    user: Option<u32>,
    folder: TempDir,
    _daemon: UnixListener,
}

impl Fixture {
    fn new(user: Option<u32>) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let at = folder.path().to_owned();
        let put = |name: &str, text: &str| {
            let path = at.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        };
        let rule = "[[rule]]\nname = \"a\"\non = \"new host\"\n";
        put("rules.toml", rule);
        put("commands.toml", &format!("{rule}run = [\"true\"]\n"));
        put("count.fpl", "M[5] += 1;\n");
        let daemon = UnixListener::bind(folder.path().join("daemon")).unwrap();
        fs::set_permissions(folder.path().join("daemon"), Permissions::from_mode(0o777)).unwrap();
        let fixture = Fixture { user, folder, _daemon: daemon };
        for line in [
            "capture -r SAMPLE -w DIR/sample.pcap",
            "store import DIR/store DIR/sample.pcap",
            // Without a hold, for `forget`: an error ends a command sooner than a busy machine looks at it.
            "store import DIR/free DIR/sample.pcap",
            "store hold DIR/store held --from 2000-01-01",
            "capture -r SAMPLE --count --fpl DIR/count.fpl --fpl-memory-file DIR/cells",
        ] {
            let done = fixture.command(line).output().unwrap();
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let saved = fixture.command("profile -r DIR/sample.pcap --json").output().unwrap();
        put("profile", &String::from_utf8(saved.stdout).unwrap());
        fixture
    }

    fn words(&self, line: &str) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        line.split(' ').map(|word| word.replace("DIR", folder).replace("SAMPLE", SAMPLE)).collect()
    }

    fn command(&self, line: &str) -> Command {
        self.by(Command::new(env!("CARGO_BIN_EXE_tapline")), line)
    }

    fn by(&self, mut program: Command, line: &str) -> Command {
        program.args(self.words(line));
        self.user.into_iter().for_each(|user| _ = program.uid(user).gid(user));
        program
    }

    fn becomes_confined(&self, line: &str) {
        becomes_confined(self.command(line), line, self.user);
    }
}

/// A standard output without room, whose reader never reads.
fn full() -> (Stdio, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    for len in [4096, 1] {
        while writer.write(&vec![0; len]).is_ok() {}
    }
    writer.set_nonblocking(false).unwrap();
    (OwnedFd::from(writer).into(), reader)
}

/// Starts a command whose standard input has the head of a file, and stays open.
fn start(mut command: Command, output: Stdio) -> std::io::Result<Child> {
    let mut child = command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped()).spawn()?;
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

fn becomes_confined(command: Command, line: &str, user: Option<u32>) {
    let (output, _reader) = full();
    let mut child = match start(command, output) {
        Ok(child) => child,
        Err(error) => return eprintln!("skipped: {line} as {user:?}: {error}"),
    };
    let end = Instant::now() + Duration::from_secs(60);
    let mut is = false;
    while !is && Instant::now() < end && child.try_wait().expect("ours").is_none() {
        is = is_confined(child.id());
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("it ends");
    assert!(is, "{line} as {user:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Commands that only have others below them.
const GROUPS: [&str; 3] = ["config", "filter", "store"];

/// The names of all commands, of which each has a man page.
fn names() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut manual = Command::new(env!("CARGO_BIN_EXE_tapline"));
    assert!(manual.args(["manual", "--pages"]).arg(folder.path()).status().unwrap().success());
    let pages = fs::read_dir(folder.path().join("man1")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let names = pages.filter_map(|page| Some(page.strip_prefix("tapline-")?.strip_suffix(".1")?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| !GROUPS.contains(&name.as_str())).collect();
    names.sort();
    names
}

#[test]
fn the_table_has_every_command() {
    let table: Vec<String> = COMMANDS.iter().map(|(name, _)| name.replace(' ', "-")).collect();
    assert_eq!(names(), table);
    for (name, confinement) in COMMANDS {
        match confinement {
            Is(lines) | IsInNamespace(lines) => {
                assert!(lines.iter().all(|line| line.starts_with(name)), "{name}");
            }
            No(why) => assert!(!why.is_empty(), "{name}"),
        }
    }
}

#[test]
fn commands_are_confined_whoever_starts_them() {
    let users = if is_root() { &[None, Some(NOBODY)][..] } else { &[None] };
    for &user in users {
        let fixture = Fixture::new(user);
        let lines = |of: &Confinement| if let Is(lines) = of { *lines } else { &[] };
        COMMANDS.iter().flat_map(|(_, of)| lines(of)).for_each(|line| fixture.becomes_confined(line));
    }
}

#[test]
fn senders_and_recorders_are_confined_too() {
    if !is_root() || !Path::new("/usr/bin/unshare").exists() {
        return eprintln!("skipped: senders_and_recorders_are_confined_too: needs root and unshare(1)");
    }
    let fixture = Fixture::new(None);
    let lines = |of: &Confinement| if let IsInNamespace(lines) = of { *lines } else { &[] };
    for line in COMMANDS.iter().flat_map(|(_, of)| lines(of)) {
        let mut command = Command::new("unshare");
        let script = "ip link set lo up && exec \"$0\" \"$@\"";
        command.args(["-n", "sh", "-c", script, env!("CARGO_BIN_EXE_tapline")]);
        becomes_confined(fixture.by(command, line), line, None);
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
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
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
