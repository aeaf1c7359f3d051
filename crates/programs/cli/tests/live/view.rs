//! `tapline view` in a real browser: pages, live numbers, the way to packets, names of hostile packets, many clients.
//!
//! ```text
//! near0 --frames--> far0 --serve, with history--> probe --view--> PID.view --> tapline view <--HTTP-- Chromium
//! ```
//!
//! The browser is driven by `view/browser.cjs` with playwright-core. Pictures of the pages are left in the folder that
//! `TAPLINE_PICTURES` names; those in `docs/view/` were made so.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp, arp};
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::traffic::Traffic;
use tapline_view::{Amount, Key, Reading, Row, Second, Table};
use tapline_web::{History, HistoryLimits};

use crate::serve::Daemon;
use crate::support::{program_or_skip, tapline, wait_for};

mod serving;
mod starting;

const SCRIPT: &[u8] = b"<script>alert(1)</script>.example.org";

/// A process that is ended with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A page, its meter and its traffic.
struct View {
    daemon: Daemon,
    folder: tempfile::TempDir,
    children: Vec<Ended>,
    sending: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl View {
    /// `None` where namespaces cannot be made, said on standard error.
    fn start(test: &str) -> Option<View> {
        let daemon = Daemon::start(test, &["--history", ""])?;
        let folder = tempfile::tempdir().expect("a folder");
        let sending = Arc::new(AtomicBool::new(true));
        let mut sender = Sender::near(daemon.namespace()).expect("the link is there");
        let is_sending = Arc::clone(&sending);
        let sender = thread::spawn(move || {
            let rounds: Vec<Vec<Vec<u8>>> = (0..50).map(round).collect();
            for frames in rounds.iter().cycle() {
                if !is_sending.load(Relaxed) {
                    return;
                }
                sender
                    .send(frames, frames.len() as u64, Pace::PerSecond(2000))
                    .expect("the link takes frames");
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut view = View { daemon, folder, children: Vec::new(), sending, sender: Some(sender) };
        let probe = view.command(["probe", "-i", "tap:office", "--view"]).stdout(Stdio::null()).spawn();
        view.children.push(Ended(probe.expect("the program was built")));
        let run = view.folder.path().join("run");
        wait_for("the view", || files(&run, "view").next().is_some());
        view.watch();
        Some(view)
    }

    fn events(&self) -> PathBuf {
        self.folder.path().join("events.json")
    }

    /// Rules that watch the same capture; their message is hostile.
    fn watch(&mut self) {
        let rules = self.folder.path().join("rules.toml");
        let text = "[[rule]]\nname = \"web\"\non = \"packet\"\nfilter = \"tcp\"\nlimit = \"20/1m\"\n\
             message = \"<script>alert(2)</script> from {src}\"\n";
        fs::write(&rules, text).expect("room");
        let mut command = self.command(["watch", "-i", "tap:office", "--json", "--rules"]);
        command.arg(rules).arg("--events").arg(self.events()).stdout(Stdio::null());
        self.children.push(Ended(command.spawn().expect("the program was built")));
        let has_events = || fs::read_to_string(self.events()).is_ok_and(|text| text.contains("\"web\""));
        wait_for("events", has_events);
    }

    fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = tapline(arguments);
        command.env("TAPLINE_RUN_DIR", self.folder.path().join("run"));
        command.env("TAPLINE_SOCKET", self.daemon.socket()).stderr(Stdio::null());
        command
    }

    /// Serves the page, and gives its address with the token.
    fn serve(&mut self, rights: &str) -> String {
        let history = self.folder.path().join(format!("{rights}.sqlite"));
        let mut command = self.command(["view", "--listen", "127.0.0.1:0", "--rights", rights, "--history"]);
        command.arg(history).arg("--events").arg(self.events());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program was built");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut address).expect("an address");
        self.children.push(Ended(child));
        address.trim().to_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.sending.store(false, Relaxed);
        self.children.clear();
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

fn files(folder: &Path, ending: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(move |path| path.extension().is_some_and(|other| other == ending))
}

fn vector16(data: &[u8]) -> Vec<u8> {
    [&(data.len() as u16).to_be_bytes()[..], data].concat()
}

/// A client's hello of TLS (RFC 8446, 4.1.2) with the name of a server (RFC 6066, 3).
fn hello(name: &[u8]) -> Vec<u8> {
    let server_name = vector16(&[&[0][..], &vector16(name)].concat());
    let extensions = vector16(&[&[0, 0][..], &vector16(&server_name)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0], &vector16(&[0x13, 0x01]), &[1, 0], &extensions].concat();
    let message = [&[1, 0][..], &vector16(&body)].concat();
    [&[22, 3, 1][..], &vector16(&message)].concat()
}

/// Traffic of some hosts for a twentieth of a second: TLS, DNS, a download, ARP, IPv6, and what random packets are like.
fn round(number: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let names: [&[u8]; 4] = [SCRIPT, b"shop.example.org", b"mail.example.org", b"video.example.org"];
    for (at, name) in names.iter().enumerate() {
        let (client, server) = (Host::number(10 + at as u16), Host::number(200 + at as u16));
        let pair = IpPair::between(&client, &server, IpVersion::V4);
        let to = Ethernet::between(&client, &server);
        let (src, dst) = (40_000 + at as u16, 443);
        frames.push(to.ip(&Tcp { src, dst, seq: 1, flags: 0x02, ..Tcp::default() }.packet(pair, b"")));
        let said = Tcp { src, dst, seq: 2, flags: 0x18, ..Tcp::default() };
        frames.push(to.ip(&said.packet(pair, &hello(name))));
        let back = IpPair::between(&server, &client, IpVersion::V4);
        let data = vec![0x55; 200 + 300 * at + usize::from(number % 7) * 60];
        let answer = Tcp { src: dst, dst: src, seq: 9, flags: 0x18, ..Tcp::default() };
        for _ in 0..=at * usize::from(1 + number % 3) {
            frames.push(Ethernet::between(&server, &client).ip(&answer.packet(back, &data)));
        }
    }
    let (client, server) = (Host::number(33), Host::number(53));
    let version = if number.is_multiple_of(2) { IpVersion::V4 } else { IpVersion::V6 };
    let pair = IpPair::between(&client, &server, version);
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01";
    let datagram = Udp { src: 50_000 + number, dst: 53 }.packet(pair, question);
    frames.push(Ethernet::between(&client, &server).ip(&datagram));
    if number.is_multiple_of(5) {
        frames.push(Ethernet::broadcast(&client).frame(0x0806, &arp(1, &client, [0; 6], server.v4)));
    }
    frames.extend(Traffic::new(u64::from(number % 10)).take(10).map(|(_, frame)| frame));
    frames
}

/// The modules for the browser's driver: those of `scripts/test-tools.sh`.
fn modules() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_tapline")).parent()?.parent()?;
    let named = std::env::var_os("TAPLINE_NODE_MODULES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| target.join("node/node_modules"));
    folder.join("playwright-core").is_dir().then_some(folder)
}

/// A day before now, for the page of the history: more at noon than at night, and a quarter of an hour with losses.
fn fill_a_day(path: &Path) {
    let mut history = History::open(path, HistoryLimits::default()).expect("a history");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() / 60;
    for minute in now - 24 * 60..now {
        let day = (minute % 1440) as f64 / 1440.0 * std::f64::consts::TAU;
        let load = (30_000.0 * (1.2 - day.cos()) + 4000.0 * (minute as f64 / 7.0).sin()) as u64;
        let row = |rank: u64| Row {
            key: Key::host(Ipv4Addr::new(10, 0, 0, 200 + rank as u8).into()),
            amount: Amount { packets: load / (rank + 1), bytes: load * 700 / (rank + 1) },
            flows: 9 + rank,
            ..Row::default()
        };
        let table = Table { rows: (0..20).map(row).collect(), ..Table::default() };
        let sum = table.sum();
        let second = Second {
            end_ns: (minute + 1) * 60_000_000_000,
            len_ns: 60_000_000_000,
            metered: sum.packets,
            metered_bytes: sum.bytes + 14 * sum.packets,
            flow_bytes: sum.bytes,
            lost_ring: if (now - 300..now - 285).contains(&minute) { load / 50 } else { 0 },
            ..Second::default()
        };
        let tables = std::array::from_fn(|_| table.clone());
        history.add(&Reading { number: minute, second, tables }, u64::MAX).expect("it is written");
    }
    history.finish().expect("it is written");
}

#[test]
fn browsers_show_pages_and_lead_to_packets() {
    const TEST: &str = "browsers_show_pages_and_lead_to_packets";
    if !program_or_skip(TEST, "chromium") || !program_or_skip(TEST, "node") {
        return;
    }
    let Some(modules) = modules() else {
        eprintln!("{TEST}: skipped: playwright-core and axe-core are not there: scripts/test-tools.sh");
        return;
    };
    let Some(mut view) = View::start(TEST) else { return };
    let pictures = std::env::var_os("TAPLINE_PICTURES").map(PathBuf::from);
    fill_a_day(&view.folder.path().join("packets.sqlite"));
    let (address, look) = (view.serve("packets"), view.serve("look"));
    let folder = pictures.unwrap_or_else(|| view.folder.path().join("pictures"));
    fs::create_dir_all(&folder).expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/view/browser.cjs");
    let driven = Command::new("node")
        .arg(script)
        .arg(&address)
        .arg(&folder)
        .arg(&look)
        .env("NODE_PATH", &modules)
        .env("CHROMIUM", "/usr/bin/chromium")
        .output()
        .expect("node");
    let said = String::from_utf8_lossy(&driven.stdout);
    assert!(driven.status.success(), "{said}\n{}", String::from_utf8_lossy(&driven.stderr));
    eprintln!("{said}");
    let host = fs::read_to_string(folder.join("host")).expect("the host that was chosen");
    if program_or_skip(TEST, "tshark") {
        let fields = ["-T", "fields", "-e", "ip.src", "-e", "ip.dst", "-e", "ipv6.src", "-e", "ipv6.dst"];
        let read = Command::new("tshark").arg("-r").arg(folder.join("packets.pcapng")).args(fields).output();
        let read = String::from_utf8(read.expect("tshark").stdout).expect("text");
        assert!(read.lines().count() > 0, "the download has packets");
        assert!(
            read.lines().all(|line| line.split('\t').any(|field| field == host)),
            "of {host} alone:\n{read}"
        );
    }
}

#[test]
fn the_server_has_no_rights_and_little_in_reach() {
    let Some(mut view) = View::start("the_server_has_no_rights_and_little_in_reach") else { return };
    let address = view.serve("look");
    assert!(address.starts_with("http://127.0.0.1:") && address.contains("/#token="), "{address}");
    let pid = view.children.last().expect("the server").0.id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or("");
    assert_eq!((field("CapEff:"), field("CapPrm:")), ("0000000000000000", "0000000000000000"));
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"));
}

#[test]
fn views_of_other_users_are_named() {
    let Some(mut view) = View::start("views_of_other_users_are_named") else { return };
    fs::set_permissions(view.folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let file = files(&view.folder.path().join("run"), "view").next().expect("it was waited for");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    let mut command = view.command(["view", "--listen", "127.0.0.1:0", "--no-history", "-Z", "nobody"]);
    let mut child =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program was built");
    let mut told = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut told).expect("a line");
    view.children.push(Ended(child));
    let file = file.display().to_string();
    assert!(told.contains(&format!("no right to read {file}")) && told.contains("-Z"), "{told}");
}

#[test]
fn open_addresses_need_a_proxy_in_front() {
    let failed = crate::support::run(["view", "--meter", "none", "--listen", "0.0.0.0:0", "--no-history"]);
    failed.failed_saying(&["plain HTTP", "--behind-proxy", "ssh -L"]);
}
