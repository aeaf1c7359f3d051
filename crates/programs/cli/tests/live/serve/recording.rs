//! A capture of the daemon in a store: each packet is found or its loss counted, other readers notice nothing.

use super::*;
use crate::support::files_in;

/// A daemon that records the capture, with more lines in its table.
pub(super) fn recording(test: &str, table: &str) -> Option<Daemon> {
    let daemon = Daemon::new(test)?;
    daemon.write_rules(&record_table(&daemon, table));
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules());
    Some(daemon.begin_recording(&mut command))
}

pub(super) fn record_table(daemon: &Daemon, table: &str) -> String {
    format!("[[record]]\ncapture = \"office\"\nto = {:?}\nsegment = \"4MiB\"\n{table}\n", daemon.store())
}

/// The packets that a search counts.
pub(super) fn count(daemon: &Daemon, filter: &str) -> u64 {
    let mut command = tapline(["find", "--count", "--json"]);
    finish(command.arg(daemon.store()).args(["--", filter])).succeeded().account().output("written")
}

pub(super) fn segments(daemon: &Daemon, ending: &str) -> Vec<PathBuf> {
    let mut files = files_in(&daemon.store().join("seg"));
    files.retain(|path| path.extension().is_some_and(|found| found == ending));
    files
}

impl Daemon {
    fn store(&self) -> PathBuf {
        self.file("store")
    }

    fn begin_recording(self, command: &mut Command) -> Daemon {
        let daemon = self.begin_command(command);
        wait_for("the recorder to read", || daemon.readers().len() == 1);
        daemon
    }

    fn recording(&self) -> Value {
        self.status()["captures"][0]["recordings"][0].clone()
    }

    /// Sends SIGTERM; returns the account of the recording, and the log. The exit status says whether packets are
    /// missing.
    pub(super) fn terminate(&mut self) -> (Value, String) {
        let live = self.live.take().expect("it runs");
        live.signal("TERM");
        let finished = live.wait();
        let account: Value = serde_json::from_slice(&finished.stdout).expect("JSON");
        assert_eq!(account["account"]["balanced"], true, "{account}");
        let recording = account["account"]["recordings"][0].clone();
        let (lost, told) = (output(&recording, "lost"), &finished.stderr);
        assert_eq!(
            (finished.status.success(), told.contains("not in the store")),
            (lost == 0, lost > 0),
            "{told}"
        );
        (recording, finished.stderr)
    }
}

/// A count of the recorder's output.
fn output(recording: &Value, name: &str) -> u64 {
    let stages = recording["account"]["stages"].as_array().expect("a list");
    stages.iter().find_map(|stage| stage["output"][name].as_u64()).expect("an output has it")
}

#[test]
fn a_capture_is_recorded_and_found() {
    const TEST: &str = "a_capture_is_recorded_and_found";
    let table = "size = \"64MiB\"\nindex = [\"names\", \"mac\"]\nfilter = \"not icmp\"";
    let Some(mut daemon) = recording(TEST, table) else { return };
    let pid = daemon.live.as_ref().unwrap().pid();
    let reader = daemon.reader("all.pcap", &[]);
    let frames = frames(31, 6000);
    daemon.send(&frames);
    daemon.settle(6000, 2);
    let (all, _) = reader.interrupt();
    assert!(all == frames, "{} packets", all.len());
    // The same captured packets, but for those that its filter refuses.
    let wanted = frames.iter().filter(|frame| !is_icmp(frame)).count() as u64;
    assert!(wanted < 6000);
    wait_for("all packets to be found", || count(&daemon, "") == wanted);
    wait_for("status to have them", || daemon.recording()["written"] == wanted);
    assert_eq!(daemon.recording()["lost"], 0);
    // Threads that write have no more rights than the others.
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("CapEff:\t0000000000000000") && status.contains("Seccomp:\t2"), "{status}");
    }
    let top = run(["top", "--json", "--once", &pid.to_string()]);
    assert!(String::from_utf8_lossy(&top.stdout).contains("\"output\""), "{top:?}");
    if program_or_skip(TEST, "tcpdump") {
        for filter in ["tcp port 443", "udp port 53", "arp", "ip6"] {
            let lines = |file: &PathBuf| {
                let output =
                    Command::new("tcpdump").args(["-n", "-t", "-r"]).arg(file).arg(filter).output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.lines().filter(|line| !line.starts_with(['\t', ' '])).count()
            };
            let scanned: usize = segments(&daemon, "pcapng").iter().map(lines).sum();
            assert_eq!(count(&daemon, filter), scanned as u64, "{filter}");
        }
    }
    let (recording, told) = daemon.terminate();
    assert_eq!((output(&recording, "written"), output(&recording, "lost")), (wanted, 0), "{recording}");
    assert_eq!(recording["error"], Value::Null, "{told}");
    // All segments are sealed.
    assert_eq!(segments(&daemon, "tix").len(), segments(&daemon, "pcapng").len());
    finish(tapline(["store", "verify"]).arg(daemon.store())).succeeded();
    assert_eq!(count(&daemon, ""), wanted);
}

/// Whether `icmp` accepts the frame: IPv4 without a VLAN tag, protocol 1.
fn is_icmp(frame: &[u8]) -> bool {
    frame.len() >= 24 && frame[12..14] == [0x08, 0x00] && frame[23] == 1
}

/// All but one segment are on hold, so that the store is full: the recorder loses packets, readers none.
#[test]
fn a_full_store_costs_no_reader_a_packet() {
    const TEST: &str = "a_full_store_costs_no_reader_a_packet";
    let Some(mut daemon) = recording(TEST, "size = \"8MiB\"\nflush = \"50ms\"") else { return };
    let mut hold = tapline(["store", "hold"]);
    finish(hold.arg(daemon.store()).args(["everything", "--from", "-1h", "--to", "+2h", "--why", "a test"]))
        .succeeded();
    let reader = daemon.reader("all.pcap", &[]);
    let frames = frames(32, 20_000);
    assert!(frames.iter().map(Vec::len).sum::<usize>() > 10 << 20);
    daemon.send(&frames);
    daemon.settle(20_000, 2);
    let (all, _) = reader.interrupt();
    assert!(all == frames, "{} packets", all.len());
    wait_for("losses in the status", || daemon.recording()["lost"].as_u64() > Some(0));
    let (recording, told) = daemon.terminate();
    let (written, lost) = (output(&recording, "written"), output(&recording, "lost"));
    assert!(written > 0 && lost > 0, "{recording}");
    assert_eq!(written + lost, 20_000, "{recording}");
    assert!(told.contains("on hold"), "{told}");
    assert_eq!(count(&daemon, ""), written);
}

#[test]
fn a_store_has_one_recorder() {
    const TEST: &str = "a_store_has_one_recorder";
    let Some(mut daemon) = recording(TEST, "size = \"8MiB\"") else { return };
    let place = daemon.store().display().to_string();
    let mut other = tapline(["record", "-i", "lo", "--to", &place, "--size", "8MiB"]);
    finish(&mut other).failed_saying(&[&place]);
    let rules = fs::read_to_string(daemon.rules()).unwrap().replace("/socket\"", "/other\"");
    let second = daemon.file("second.toml");
    fs::write(&second, rules).unwrap();
    finish(tapline(["serve", "--config"]).arg(&second)).failed_saying(&["[[record]]", "office", &place]);
    daemon.terminate();
    // Bad values are named.
    let bad = record_table(&daemon, "size = \"8MiB\"\nsync = \"1ms\"");
    daemon.write_rules(&bad);
    finish(tapline(["serve", "--config"]).arg(daemon.rules())).failed_saying(&[
        "[[record]]",
        "sync",
        "10ms to 1h",
    ]);
    daemon.write_rules(&bad.replace("sync", "colour"));
    finish(tapline(["serve", "--config"]).arg(daemon.rules())).failed_saying(&["colour", "no_index"]);
}

/// As under sudo: the store belongs to the user who then serves, for whom it is sealed; rules may change meanwhile.
#[test]
fn the_sudo_user_records_and_reloads() {
    const TEST: &str = "the_sudo_user_records_and_reloads";
    let Some(daemon) = Daemon::new(TEST).filter(|_| root_or_skip(TEST)) else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    daemon.write_rules(&record_table(&daemon, "size = \"16MiB\""));
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules()).env("SUDO_UID", NOBODY.to_string());
    let mut daemon = daemon.begin_recording(&mut command);
    assert_eq!(fs::metadata(daemon.store()).unwrap().uid(), NOBODY);
    let frames = frames(33, 12_000);
    daemon.send(&frames[..6000]);
    daemon
        .write_rules(&format!("{}[[access]]\neverybody = true\n", record_table(&daemon, "size = \"32MiB\"")));
    daemon.signal("HUP");
    daemon.send(&frames[6000..]);
    daemon.settle(12_000, 1);
    wait_for("all packets to be found", || count(&daemon, "") == 12_000);
    let (recording, told) = daemon.terminate();
    assert_eq!(output(&recording, "written"), 12_000, "{recording}");
    assert!(told.contains("[[record]] tables take effect"), "{told}");
    assert!(segments(&daemon, "tix").len() > 1, "several segments are sealed");
    for file in segments(&daemon, "pcapng").iter().chain(&segments(&daemon, "tix")) {
        assert_eq!(fs::metadata(file).unwrap().uid(), NOBODY, "{}", file.display());
    }
    finish(tapline(["store", "verify"]).arg(daemon.store())).succeeded();
}
