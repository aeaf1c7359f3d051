//! `tapline serve`: each reader gets what its filter selects, or its loss counted; nobody costs another a packet; rules hold; hostile clients get nowhere.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGTERM, SIGUSR1};
use tapline_capture::{Advance, Source};
use tapline_sys::{Memfd, Poller, passing, process};
use tapline_tap::protocol::{Attach, Policy, Reply, Request, VERSION};
use tapline_tap::{Channel, Client, WakeThreshold};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sample;
use tapline_testkit::sender::{Pace, Sender};

use crate::support::{
    Finished, Live, PATIENCE, TAPLINE, bytes_of, finish, frames, packets_of, program_or_skip, root_or_skip,
    run, tapline, wait_for,
};

/// A user without rights.
pub(crate) const NOBODY: u32 = 65_534;

/// A daemon on the far end of a link.
pub(crate) struct Daemon {
    live: Option<Live>,
    folder: tempfile::TempDir,
    namespace: Namespace,
}

impl Daemon {
    /// Serves `far0` as `office`, with more arguments; `None` where that cannot be, said on standard error.
    pub(crate) fn start(test: &str, arguments: &[&str]) -> Option<Daemon> {
        Some(Daemon::new(test)?.begin(arguments))
    }

    /// A place for one, where nothing runs yet.
    fn new(test: &str) -> Option<Daemon> {
        if !namespaces_or_skip(test) {
            return None;
        }
        let namespace = Namespace::with_pair("serve").expect("a probe succeeded before");
        let folder = tempfile::tempdir().unwrap();
        Some(Daemon { live: None, folder, namespace })
    }

    /// Runs another command that serves.
    fn begin_command(mut self, command: &mut Command) -> Daemon {
        self.live = Some(Live::start_command(&self.namespace, 1, command));
        self.wait_until_served();
        self
    }

    fn begin(mut self, arguments: &[&str]) -> Daemon {
        let place = ["serve", "--netns", self.namespace.name(), "-i", FAR, "--name", "office", "--json"];
        let mut command = tapline(place);
        command.arg("--socket").arg(self.socket()).args(arguments);
        self.live = Some(Live::start_command(&self.namespace, 1, &mut command));
        self.wait_until_served();
        self
    }

    /// Serves by these rules.
    pub(crate) fn with_rules(test: &str, access: &str) -> Option<Daemon> {
        if !namespaces_or_skip(test) {
            return None;
        }
        let namespace = Namespace::with_pair("serve").expect("a probe succeeded before");
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon { live: None, folder, namespace };
        daemon.write_rules(access);
        let mut command = tapline(["serve", "--json", "--config"]);
        command.arg(daemon.rules());
        daemon.live = Some(Live::start_command(&daemon.namespace, 1, &mut command));
        daemon.wait_until_served();
        Some(daemon)
    }

    /// What stands before the first table of `access` is of all captures.
    fn write_rules(&self, access: &str) {
        let (of_all, access) = access.split_at(access.find("[[").unwrap_or(0));
        let (socket, netns) = (self.socket(), self.namespace.name());
        let text = format!(
            "socket = {socket:?}\nmode = \"0666\"\n{of_all}[[capture]]\nname = \"office\"\ninterfaces = [\"{FAR}\"]\nnetns = {netns:?}\n{access}"
        );
        fs::write(self.rules(), text).unwrap();
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    fn wait_until_served(&self) {
        wait_for("the socket", || Client::connect(&self.socket(), "test").is_ok());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn status(&self) -> Value {
        let mut command = tapline(["status", "--json", "--socket"]);
        let finished = finish(command.arg(self.socket())).succeeded();
        serde_json::from_slice(&finished.stdout).expect("JSON")
    }

    pub(crate) fn readers(&self) -> Vec<Value> {
        self.status()["captures"][0]["readers"].as_array().expect("a list").clone()
    }

    /// Starts `tapline capture -i tap:office` into a file, and waits until it reads.
    fn reader(&self, file: &str, arguments: &[&str]) -> Reader {
        let known = self.readers().len();
        let mut command = tapline(["capture", "-i", "tap:office", "--json", "--socket"]);
        command.arg(self.socket()).arg("-w").arg(self.file(file)).args(arguments);
        let child = command.spawn().expect("the program was built");
        let reader = Reader { child: Some(child), file: self.file(file) };
        wait_for("a reader", || self.readers().len() > known);
        reader
    }

    /// Sends frames at a rate that everything bears.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        let mut sender = Sender::near(&self.namespace).unwrap();
        let sent = sender.send(frames, frames.len() as u64, Pace::PerSecond(20_000)).unwrap();
        assert_eq!(sent.packets, frames.len() as u64);
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.live.as_ref().expect("it runs").signal(name);
    }

    /// Waits until the daemon has had so many packets, and readers whose programs run have come to the last of theirs.
    fn settle(&self, packets: u64, readers: usize) {
        wait_for("packets to be read", || {
            let status = self.status();
            let read = status["captures"][0]["readers"].as_array().expect("a list");
            let is_done = |reader: &&Value| reader["counts"]["unread"] == 0 && reader["past"] == 0;
            status["captures"][0]["packets"] == packets && read.iter().filter(is_done).count() >= readers
        });
    }

    /// Ctrl-C, and what it then says.
    fn end(&mut self) -> (Value, String) {
        let finished = self.live.take().expect("it runs").interrupt().succeeded();
        let account: Value = serde_json::from_slice(&finished.stdout).expect("JSON");
        assert_eq!(account["account"]["balanced"], true, "{account}");
        (account["account"]["captures"][0].clone(), finished.stderr)
    }
}

/// A capture that reads.
struct Reader {
    child: Option<Child>,
    file: PathBuf,
}

impl Reader {
    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    fn end(&mut self) -> Finished {
        let mut child = self.child.take().expect("it runs");
        let start = std::time::Instant::now();
        while child.try_wait().expect("our child").is_none() {
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the reader does not end");
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Finished::new(child.wait_with_output().expect("our child"))
    }

    /// Ctrl-C; what it captured, and its account of what was offered and lost.
    fn interrupt(mut self) -> (Vec<Vec<u8>>, Value) {
        self.signal("INT");
        let account = self.end().succeeded().account();
        let packets = bytes_of(packets_of(&self.file));
        assert_eq!(packets.len() as u64, account.output("written"));
        (packets, account.interface("tap:office")["tap"].clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Captures of the same interface with sockets of their own, as everybody had them before: what readers must get.
struct Oracles(Vec<(Live, PathBuf)>);

impl Oracles {
    fn start(daemon: &Daemon, filters: &[&str]) -> Oracles {
        let start = |(at, filter): (usize, &&str)| {
            let file = daemon.file(&format!("oracle{at}.pcap"));
            let arguments = ["-i", FAR, "--json", "-w", file.to_str().unwrap(), filter];
            (Live::start(&daemon.namespace, at + 2, &arguments), file.clone())
        };
        Oracles(filters.iter().enumerate().map(start).collect())
    }

    /// What each of them captured, all of it.
    fn end(self) -> Vec<Vec<Vec<u8>>> {
        let end = |(live, file): (Live, PathBuf)| {
            let account = live.interrupt().succeeded().account();
            assert_eq!(account.ring("dropped"), 0);
            bytes_of(packets_of(&file))
        };
        self.0.into_iter().map(end).collect()
    }
}

#[test]
fn each_reader_gets_what_its_filter_selects_and_packets_are_stored_once() {
    const TEST: &str = "each_reader_gets_what_its_filter_selects_and_packets_are_stored_once";
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let wishes =
        [("", "lossy"), ("tcp", "leased"), ("udp and greater 200", "lossy"), ("icmp or arp", "lossless")];
    let readers: Vec<Reader> = wishes
        .iter()
        .enumerate()
        .map(|(at, (filter, policy))| daemon.reader(&format!("{at}.pcap"), &["--policy", policy, filter]))
        .collect();
    let oracles = Oracles::start(&daemon, &wishes.map(|(filter, _)| filter));
    daemon.send(&frames(11, 6000));
    daemon.settle(6000, 4);
    for ((reader, expected), (filter, _)) in readers.into_iter().zip(oracles.end()).zip(wishes) {
        let (packets, tap) = reader.interrupt();
        assert!(packets == expected, "{filter:?}: {} packets, not {}", packets.len(), expected.len());
        assert!(!packets.is_empty(), "{filter:?}");
        assert_eq!(tap["offered"], packets.len());
        for cause in ["index_full", "overwritten", "damaged", "unread"] {
            assert_eq!(tap[cause], 0, "{filter:?}: {tap}");
        }
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["stored"]), (&6000.into(), &6000.into()), "{account}");
}

#[test]
fn the_kernel_is_told_what_all_readers_want() {
    let Some(mut daemon) = Daemon::start("the_kernel_is_told_what_all_readers_want", &[]) else { return };
    let in_kernel = |daemon: &Daemon| daemon.status()["captures"][0]["kernel_insns"].clone();
    let is_told = |what: &str, daemon: &Daemon, is: fn(u64) -> bool| {
        wait_for(what, || in_kernel(daemon).as_u64().is_some_and(is));
    };
    is_told("nothing to be wanted", &daemon, |count| count == 1);
    let tcp = daemon.reader("tcp.pcap", &["tcp"]);
    is_told("one filter", &daemon, |count| count > 1);
    let vlan = daemon.reader("vlan.pcap", &["vlan and ip"]);
    let oracles = Oracles::start(&daemon, &["tcp", "vlan and ip", "tcp or (vlan and ip)"]);
    let frames = frames(14, 4000);
    daemon.send(&frames);
    let [by_tcp, by_vlan, by_any]: [Vec<Vec<u8>>; 3] = oracles.end().try_into().unwrap();
    daemon.settle(by_any.len() as u64, 2);
    // Who comes widens it at once.
    let all = daemon.reader("all.pcap", &[]);
    assert_eq!(in_kernel(&daemon), Value::Null);
    daemon.send(&frames);
    daemon.settle((by_any.len() + frames.len()) as u64, 3);
    assert!(all.interrupt().0 == frames);
    is_told("all to be gone", &daemon, |count| count > 1);
    for (reader, expected) in [(tcp, by_tcp), (vlan, by_vlan)] {
        let twice = [expected.clone(), expected].concat();
        let (packets, tap) = reader.interrupt();
        assert!(packets == twice && !packets.is_empty(), "{} packets, not {}", packets.len(), twice.len());
        assert_eq!(tap["offered"], packets.len());
    }
    is_told("nothing to be wanted any more", &daemon, |count| count == 1);
    daemon.send(&frames);
    let (account, _) = daemon.end();
    assert_eq!(account["delivered"], by_any.len() + frames.len(), "{account}");
    assert_eq!(account["interfaces"][0]["kernel_filtered"], Value::Null, "{account}");
}

#[test]
fn what_nobody_wants_is_counted_on_request() {
    let Some(mut daemon) = Daemon::start("what_nobody_wants_is_counted_on_request", &["--count-all"]) else {
        return;
    };
    let reader = daemon.reader("tcp.pcap", &["tcp"]);
    daemon.send(&frames(14, 4000));
    daemon.settle(4000, 1);
    assert_eq!(daemon.status()["captures"][0]["kernel_insns"], Value::Null);
    let wanted = reader.interrupt().0.len();
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["unwanted"]), (&4000.into(), &(4000 - wanted).into()));
}

#[test]
fn a_stopped_or_killed_reader_costs_nobody_a_packet() {
    let Some(mut daemon) =
        Daemon::start("a_stopped_or_killed_reader_costs_nobody_a_packet", &["--buffer", "4"])
    else {
        return;
    };
    let [quick, stopped, killed] = ["quick.pcapng", "stopped.pcapng", "killed.pcapng"]
        .map(|name| daemon.reader(name, &["--policy", "lossy"]));
    let leased = daemon.reader("leased.pcapng", &["--policy", "leased"]);
    for reader in [&stopped, &killed, &leased] {
        reader.signal("STOP");
    }
    // Several times the buffer.
    let frames: Vec<Vec<u8>> = frames(12, 20_000);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert!(bytes > 3 * (4 << 20), "{bytes}");
    daemon.send(&frames);
    killed.signal("KILL");
    drop(killed);
    daemon.settle(20_000, 1);
    wait_for("the killed one to be gone", || daemon.readers().len() == 3);
    let (packets, tap) = quick.interrupt();
    assert!(packets == frames, "{} packets: {tap}", packets.len());
    for slow in [stopped, leased] {
        slow.signal("CONT");
        let file = slow.file.clone();
        let (packets, tap) = slow.interrupt();
        let lost = ["index_full", "overwritten", "damaged"].map(|cause| tap[cause].as_u64().unwrap());
        assert!(lost[1] > 0 && lost[2] == 0, "{tap}");
        assert_eq!(packets.len() as u64 + lost.iter().sum::<u64>() + tap["unread"].as_u64().unwrap(), 20_000);
        assert_eq!(tap["offered"], 20_000);
        // The file tells it too.
        let arguments = ["capture", "-w", "/dev/null", "--json", "-r"];
        let read = finish(tapline(arguments).arg(&file)).succeeded().account();
        let told = &read.value["interfaces"][0]["losses"];
        let told = told.as_array().unwrap().iter().find(|loss| loss["counter"] == "isb_osdrop");
        assert_eq!(
            told.unwrap_or_else(|| panic!("{}", read.value))["count"],
            lost.iter().sum::<u64>(),
            "{read:?}"
        );
        // What it has is in order, and as it was sent.
        let mut rest = frames.iter();
        assert!(packets.iter().all(|packet| rest.any(|frame| frame == packet)));
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["stored"], &account["not_stored"]), (&20_000.into(), &0.into()), "{account}");
}

#[test]
fn rules_decide_who_reads_what() {
    const TEST: &str = "rules_decide_who_reads_what";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "[[access]]\nusers = [\"65534\"]\nfilter = \"udp\"\nsnap_len = 60\nreaders = 1\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), daemon.folder.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let capture = |uid: u32, arguments: &[&str]| {
        let mut command = tapline(["capture", "--json", "--socket"]);
        command.arg(daemon.socket()).args(arguments).uid(uid).gid(uid);
        command
    };
    match capture(NOBODY, &["-i", "tap:office", "--policy", "lossless"]).output() {
        Ok(output) => Finished::new(output)
            .failed_saying(&["the policy lossless is not allowed", "there is lossy, leased"]),
        Err(error) => return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    finish(&mut capture(NOBODY, &["-i", "tap:home"]))
        .failed_saying(&["no capture \"home\" is there for you", "office"]);
    finish(&mut capture(NOBODY - 1, &["-i", "tap:office"])).failed_saying(&["none else, is there for you"]);
    let file = folder.path().join("nobody.pcap");
    let child =
        capture(NOBODY, &["-i", "tap:office", "-w", file.to_str().unwrap(), "greater 70"]).spawn().unwrap();
    let nobody = Reader { child: Some(child), file };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    finish(&mut capture(NOBODY, &["-i", "tap:office"])).failed_saying(&["1 readers of yours are there"]);
    let root = daemon.reader("root.pcap", &[]);
    let oracles = Oracles::start(&daemon, &["udp and greater 70"]);
    let frames = frames(13, 3000);
    daemon.send(&frames);
    daemon.settle(3000, 2);
    let (all, _) = root.interrupt();
    assert!(all == frames);
    let (some, _) = nobody.interrupt();
    let mut expected = oracles.end().remove(0);
    expected.iter_mut().for_each(|frame| frame.truncate(60));
    assert!(some == expected && !some.is_empty(), "{} packets, not {}", some.len(), expected.len());
    assert_eq!(daemon.status()["refused"], 4);
    let (account, told) = daemon.end();
    // Once for each of the two groups of readers, of what they want.
    assert_eq!(account["stored"], 3000 + expected.len(), "{account}");
    assert_eq!(told.matches("refused: ").count(), 4, "{told}");
}

/// A capture by a user without rights, which writes into its own folder.
fn as_nobody(daemon: &Daemon, folder: &std::path::Path, file: &str, filter: &str) -> Option<Reader> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.join(file);
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--socket"]);
    command.arg(daemon.socket()).arg("-w").arg(&file).arg(filter).uid(NOBODY).gid(NOBODY);
    Some(Reader { child: Some(command.spawn().ok()?), file })
}

#[test]
fn bytes_behind_a_forced_cut_decide_nothing() {
    const TEST: &str = "bytes_behind_a_forced_cut_decide_nothing";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "[[access]]\neverybody = true\nsnap_len = 60\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut frames = vec![vec![0x02; 200]; 1000];
    frames.iter_mut().enumerate().for_each(|(at, frame)| frame[100] = (at % 2) as u8);
    // What all see, what is asked of hidden bytes, and what is asked of both.
    let filters = ["link[0] = 2", "link[100] = 1", "link[0] = 3 or link[100] = 1", "len = 200"];
    let mut readers = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        let Some(reader) = as_nobody(&daemon, folder.path(), &format!("{at}.pcap"), filter) else {
            return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
        };
        wait_for("nobody to read", || daemon.readers().len() == at + 1);
        readers.push(reader);
    }
    let root = daemon.reader("root.pcap", &["link[100] = 1"]);
    daemon.send(&frames);
    daemon.settle(1000, 5);
    let mut command = tapline(["status", "--json", "--socket"]);
    let told = finish(command.arg(daemon.socket()).uid(NOBODY).gid(NOBODY)).succeeded();
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let capture = &told["captures"][0];
    assert_eq!((&capture["packets"], &capture["bytes"]), (&1000.into(), &60_000.into()), "{capture}");
    for withheld in ["unwanted", "cpu_ns"] {
        assert_eq!(capture[withheld], 0, "{capture}");
    }
    assert_eq!(capture["kernel_insns"], Value::Null, "{capture}");
    assert_eq!(root.interrupt().0.len(), 500);
    let expected = [1000, 0, 0, 1000];
    for ((reader, expected), filter) in readers.into_iter().zip(expected).zip(filters) {
        let (packets, tap) = reader.interrupt();
        assert_eq!((packets.len(), &tap["offered"]), (expected, &expected.into()), "{filter}");
        assert!(packets.iter().all(|packet| packet.len() == 60));
    }
    daemon.end();
}

#[test]
fn programs_are_no_longer_than_the_kernel_takes() {
    let Some(mut daemon) = Daemon::start("programs_are_no_longer_than_the_kernel_takes", &[]) else { return };
    let client = Client::connect(&daemon.socket(), "test").unwrap();
    let mut tap = client.attach(&Attach { capture: "office".to_owned(), ..Attach::default() }).unwrap();
    let program = |len: usize| [vec![(0x30, 0, 0, 0); len - 1], vec![(0x06, 0, 0, 1)]].concat();
    tap.set_program(program(4096)).unwrap();
    for len in [4097, 15_999] {
        let error = tap.set_program(program(len)).unwrap_err().to_string();
        assert!(error.contains("4096 are the most"), "{error}");
    }
    let text = ["ip protochain 6"; 60].join(" or ");
    let text = text.replace("ip protochain 6", "inner(host 10.0.0.1)");
    match tap.set_filter(&text) {
        // The compiler may find that they are all the same.
        Ok(()) => {}
        Err(error) => assert!(error.to_string().contains("4096 are the most"), "{error}"),
    }
    daemon.end();
}

#[test]
fn a_user_takes_no_more_memory_than_the_rules_say() {
    const TEST: &str = "a_user_takes_no_more_memory_than_the_rules_say";
    if !root_or_skip(TEST) {
        return;
    }
    // The buffer of cut packets is 64 MiB, and an index a little more than one.
    let access = "user_memory = 66\n[[access]]\neverybody = true\nsnap_len = 60\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(reader) = as_nobody(&daemon, folder.path(), "1.pcap", "udp") else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let user = daemon.status()["users"][0].clone();
    let mib = |of: &str| user[of].as_u64().unwrap() >> 20;
    assert_eq!((&user["uid"], mib("memory"), mib("memory_max")), (&NOBODY.into(), 65, 66), "{user}");
    let mut second = as_nobody(&daemon, folder.path(), "2.pcap", "udp").unwrap();
    second.end().failed_saying(&["an index would take 2 MiB, and 66 of the 66 MiB", "user_memory"]);
    // Others have their own, and root has no bound.
    daemon.reader("root.pcap", &[]).interrupt();
    reader.interrupt();
    wait_for("nobody to leave", || daemon.readers().is_empty());
    // It may have kept the descriptor: the index counts for a minute.
    assert_eq!(daemon.status()["users"][0]["memory"], user["memory"]);
    let mut third = as_nobody(&daemon, folder.path(), "3.pcap", "udp").unwrap();
    third.end().failed_saying(&["66 of the 66 MiB", "by those that left within a minute too"]);
    daemon.end();
}

/// A user with as many readers and as long filters as it may have leaves room for others in what `status` tells.
#[test]
fn long_filters_of_a_user_hide_no_status() {
    const TEST: &str = "long_filters_of_a_user_hide_no_status";
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let filter = format!("tcp{}", "\n".repeat(8000));
    let attach = Attach { capture: "office".to_owned(), entries: 16, filter, ..Attach::default() };
    let attached = || Client::connect(&daemon.socket(), "many").unwrap().attach(&attach).unwrap();
    let taps: Vec<_> = (0..64).map(|_| attached()).collect();
    let readers = daemon.readers();
    assert_eq!(readers.len(), 64);
    let filter = readers[0]["filter"].as_str().unwrap();
    // Readers take the control characters out.
    assert!(filter.starts_with("tcp") && filter.len() < 500, "{filter:?}");
    drop(taps);
    daemon.end();
}

/// What a reader's number is tells nothing of how many came before.
#[test]
fn numbers_of_readers_do_not_count_others() {
    let Some(mut daemon) = Daemon::start("numbers_of_readers_do_not_count_others", &[]) else { return };
    let attach = Attach { capture: "office".to_owned(), entries: 16, ..Attach::default() };
    let attached = || Client::connect(&daemon.socket(), "many").unwrap().attach(&attach).unwrap();
    let taps: Vec<_> = (0..8).map(|_| attached()).collect();
    let numbers: Vec<u64> =
        daemon.readers().iter().map(|reader| reader["number"].as_u64().unwrap()).collect();
    // Eight in a row by chance: once in 10^42.
    assert!(numbers.windows(2).any(|pair| pair[0].abs_diff(pair[1]) != 1), "{numbers:?}");
    drop(taps);
    daemon.end();
}

#[test]
fn readers_that_cost_too_much_are_told_and_sent_away() {
    const TEST: &str = "readers_that_cost_too_much_are_told_and_sent_away";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "user_time = 1\n[[access]]\neverybody = true\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let tests: Vec<String> = (1..200).map(|n| format!("link[link[0] + {n}] * {n} = 77")).collect();
    let Some(mut costly) = as_nobody(&daemon, folder.path(), "1.pcap", &tests.join(" or ")) else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let root = daemon.reader("root.pcap", &[]);
    let frames = vec![vec![0x02; 300]; 20_000];
    daemon.send(&frames);
    costly.end().failed_saying(&["tap:office: the daemon: readers of user 65534 took more processor time"]);
    daemon.settle(20_000, 1);
    let (packets, _) = root.interrupt();
    assert!(packets == frames, "root reads on without a gap: {}", packets.len());
    let (_, told) = daemon.end();
    assert!(told.contains("1 readers of office are sent away"), "{told}");
}

#[test]
fn other_rules_send_away_whom_they_no_longer_let_read() {
    const TEST: &str = "other_rules_send_away_whom_they_no_longer_let_read";
    if !root_or_skip(TEST) {
        return;
    }
    let Some(mut daemon) = Daemon::with_rules(TEST, "[[access]]\neverybody = true\n") else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--socket"]);
    command.arg(daemon.socket()).args(["-w", "/dev/null"]).uid(NOBODY).gid(NOBODY);
    let Ok(child) = command.spawn() else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    let mut nobody = Reader { child: Some(child), file: PathBuf::new() };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let root = daemon.reader("root.pcap", &[]);
    let frames = frames(14, 2000);
    daemon.send(&frames[..1000]);
    daemon.settle(1000, 2);
    daemon.write_rules("colour = \"red\"\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    daemon.send(&frames[1000..]);
    daemon.settle(2000, 2);
    daemon.write_rules("[[access]]\neverybody = true\nfilter = \"arp\"\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    nobody.end().failed_saying(&["tap:office: the daemon: the rules no longer let you read as you did"]);
    let (packets, _) = root.interrupt();
    assert!(packets == frames, "root reads on without a gap");
    let (_, told) = daemon.end();
    assert!(
        told.contains("the rules stay as they were") && told.contains("unknown field `colour`"),
        "{told}"
    );
    assert!(told.contains("the rules no longer let it read as it did"), "{told}");
}

/// Rules that forbid and then allow again are as a daemon that was away for a while.
#[test]
fn who_is_sent_away_may_be_let_in_again() {
    const TEST: &str = "who_is_sent_away_may_be_let_in_again";
    if !root_or_skip(TEST) {
        return;
    }
    const ALL: &str = "[[access]]\neverybody = true\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, ALL) else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--reconnect", "--socket"]);
    command.arg(daemon.socket()).args(["-w", "/dev/null"]).uid(NOBODY).gid(NOBODY);
    let Ok(child) = command.spawn() else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    let mut nobody = Reader { child: Some(child), file: PathBuf::new() };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    daemon.write_rules("[[access]]\nusers = [\"no-such-user\"]\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    wait_for("nobody to be refused", || daemon.status()["refused"].as_u64() > Some(1));
    daemon.write_rules(ALL);
    daemon.live.as_ref().unwrap().signal("HUP");
    wait_for("nobody to read again", || daemon.readers().len() == 1);
    let frames = frames(25, 100);
    daemon.send(&frames);
    daemon.settle(100, 1);
    nobody.signal("INT");
    let finished = nobody.end().succeeded();
    assert_eq!(finished.account().output("written"), 100);
    assert_eq!(unknown(&finished), ["while there was no daemon"]);
    for told in ["the rules no longer let you read as you did", "it is asked again until it lets us read"] {
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    let (_, told) = daemon.end();
    assert!(told.contains("\"no-such-user\", and there is none"), "{told}");
}

/// As under sudo: the socket is made with all rights, in a folder that is root's, for the user who then serves and may read.
#[test]
fn who_started_it_serves_without_rights_and_may_read() {
    const TEST: &str = "who_started_it_serves_without_rights_and_may_read";
    let Some(daemon) = Daemon::new(TEST).filter(|_| root_or_skip(TEST)) else { return };
    let place =
        ["serve", "--netns", daemon.namespace.name(), "-i", FAR, "--name", "office", "--json", "--socket"];
    let mut command = tapline(place);
    command.arg(daemon.socket()).env("SUDO_UID", NOBODY.to_string());
    let mut daemon = daemon.begin_command(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.live.as_ref().unwrap().pid())).unwrap();
    assert!(status.contains(&format!("Uid:\t{NOBODY}\t{NOBODY}")), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert_eq!(fs::metadata(daemon.socket()).unwrap().uid(), NOBODY);
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "-w", "/dev/null", "--socket"]);
    match command.arg(daemon.socket()).uid(NOBODY).gid(NOBODY).spawn() {
        Ok(child) => {
            let nobody = Reader { child: Some(child), file: PathBuf::new() };
            wait_for("nobody to read", || daemon.readers().len() == 1);
            daemon.send(&frames(19, 500));
            daemon.settle(500, 1);
            assert_eq!(daemon.readers()[0]["counts"]["delivered"], 500);
            nobody.signal("INT");
        }
        Err(error) => eprintln!("skipped in part: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    daemon.end();
}

/// With `-Z` the daemon runs as a user whose other processes it knows nothing of.
#[test]
fn the_user_that_it_becomes_has_no_right() {
    const TEST: &str = "the_user_that_it_becomes_has_no_right";
    let Some(daemon) = Daemon::new(TEST).filter(|_| root_or_skip(TEST)) else { return };
    daemon.write_rules("");
    let mut command = tapline(["serve", "--json", "-Z", "nobody", "--config"]);
    command.arg(daemon.rules());
    let mut daemon = daemon.begin_command(&mut command);
    let pid = daemon.live.as_ref().unwrap().pid();
    assert_eq!(fs::metadata(daemon.socket()).unwrap().uid(), 0, "the socket is of the user who started it");
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Run by the shell: the program of the test may lie where nobody may not look.
    let as_nobody = |command: &mut Command| finish(command.uid(NOBODY).gid(NOBODY));
    let mut ask = tapline(["capture", "-i", "tap:office", "-c", "1", "-w", "/dev/null", "--socket"]);
    match ask.arg(daemon.socket()).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => Finished::new(output).failed_saying(&["none else, is there for you"]),
        Err(error) => eprintln!("skipped in part: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    // What the daemon holds is out of reach too.
    let looks =
        as_nobody(Command::new("sh").args(["-c", &format!("ls /proc/{pid}/fd; cat /proc/{pid}/maps")]));
    assert!(!looks.status.success() && looks.stdout.is_empty(), "{}", String::from_utf8_lossy(&looks.stdout));
    assert_eq!(daemon.readers().len(), 0);
    let (_, told) = daemon.end();
    assert!(!told.contains("reads office"), "{told}");
}

/// Processor time of a process so far, in ticks of a hundredth of a second (proc(5)).
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    [11, 12].iter().map(|&at| fields[at].parse::<u64>().unwrap()).sum()
}

/// More connections than descriptors: they cost next to nothing, and when they are gone all is as before.
#[test]
fn without_descriptors_it_rests_and_comes_back() {
    const TEST: &str = "without_descriptors_it_rests_and_comes_back";
    let Some(daemon) = Daemon::new(TEST) else { return };
    let mut command = Command::new("sh");
    let serve = format!(
        "ulimit -n 64; exec {TAPLINE} serve --netns {} -i {FAR} --name office --json --socket {}",
        daemon.namespace.name(),
        daemon.socket().display()
    );
    command.args(["-c", &serve]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = daemon.begin_command(&mut command);
    let pid = daemon.live.as_ref().unwrap().pid();
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = open();
    let connections: Vec<UnixStream> =
        (0..150).map(|_| UnixStream::connect(daemon.socket()).expect("it listens")).collect();
    std::thread::sleep(Duration::from_millis(300));
    // On a busy machine a process that spins gets a share of the processor only, so the bound is far below one.
    let (start, began) = (ticks(pid), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (used_ms, took_ms) = ((ticks(pid) - start) * 10, began.elapsed().as_millis() as u64);
    assert!(used_ms * 40 < took_ms, "{used_ms} ms of processor time in {took_ms} ms");
    drop(connections);
    wait_for("connections to be closed", || open() <= before);
    // Readers, until none more are let in: each that is has what it needs, each that is not is told why.
    let mut taps = Vec::new();
    let refusal = loop {
        let Ok(client) = Client::connect(&daemon.socket(), "many") else { break "no connection".to_owned() };
        match client.attach(&Attach { capture: "office".to_owned(), ..Attach::default() }) {
            Ok(tap) => taps.push(tap),
            Err(error) => break error.to_string(),
        }
        assert!(taps.len() < 64, "64 descriptors are not enough for 64 readers");
    };
    assert!(
        !taps.is_empty() && (refusal.contains("no descriptors left") || refusal == "no connection"),
        "{refusal}"
    );
    taps.clear();
    wait_for("readers to leave", || open() <= before);
    let reader = daemon.reader("after.pcap", &[]);
    daemon.send(&frames(23, 300));
    daemon.settle(300, 1);
    reader.interrupt();
    let (_, told) = daemon.end();
    assert!(told.contains("no descriptors"), "{told}");
}

/// Somebody who comes and goes, with long filters and names that would write lines of their own.
#[test]
fn coming_and_going_fills_no_log() {
    const ROUNDS: usize = 150;
    let Some(mut daemon) = Daemon::start("coming_and_going_fills_no_log", &[]) else { return };
    let filter = vec!["port 53"; 60].join(" or ");
    let attach = Attach { capture: "office".to_owned(), filter, ..Attach::default() };
    for round in 0..ROUNDS {
        let client = Client::connect(&daemon.socket(), "busy").unwrap();
        drop(client.attach(&attach).unwrap());
        if round % 3 == 0 {
            let mut client = UnixStream::connect(daemon.socket()).unwrap();
            let _ = client.write_all(
                b"{\"hello\":{\"version\":1,\"program\":\"x\"}}\n{\"a\\ntapline: forged\\u001b[2J\":1}\n",
            );
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer);
        }
    }
    wait_for("readers to leave", || daemon.readers().is_empty());
    let (_, told) = daemon.end();
    let told: String = told
        .lines()
        .filter(|line| line.contains("user 0") || line.contains("forged"))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        told.lines().count() <= 22 && told.len() < 16 << 10,
        "{} lines of {} bytes",
        told.lines().count(),
        told.len()
    );
    assert!(
        !told.contains('\u{1b}') && !told.lines().any(|line| line.starts_with("tapline: forged")),
        "{told}"
    );
    let sum = told.lines().last().unwrap();
    assert!(
        sum.contains("user 0: not told one by one: ") && sum.contains("came ") && sum.contains("left "),
        "{sum}"
    );
}

#[test]
fn it_is_confined_and_tells_the_service_manager() {
    const TEST: &str = "it_is_confined_and_tells_the_service_manager";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("serve").unwrap();
    let mut daemon = Daemon { live: None, folder: tempfile::tempdir().unwrap(), namespace };
    let manager = UnixDatagram::bind(daemon.file("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 256];
        let len = manager.recv(&mut message).expect("it tells");
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    daemon.write_rules("");
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules()).env("NOTIFY_SOCKET", daemon.file("notify"));
    daemon.live = Some(Live::start_command(&daemon.namespace, 1, &mut command));
    assert_eq!(told(), "READY=1\n");
    let pid = daemon.live.as_ref().unwrap().pid();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for line in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    // Rules are read again all the same, and an interface that is made anew is captured again.
    daemon.live.as_ref().unwrap().signal("HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1\n");
    let reader = daemon.reader("all.pcap", &[]);
    daemon.send(&frames(19, 300));
    daemon.settle(300, 1);
    daemon.namespace.ip(&["link", "delete", FAR]).unwrap();
    daemon.namespace.add_pair(NEAR, FAR).unwrap();
    wait_for("the interface to be captured again", || {
        let before = daemon.readers()[0]["counts"]["delivered"].as_u64().unwrap();
        daemon.send(&frames(20, 10));
        let after = daemon.readers()[0]["counts"]["delivered"].as_u64().unwrap();
        after > before
    });
    reader.interrupt();
    daemon.live.as_ref().unwrap().signal("INT");
    assert_eq!(told(), "STOPPING=1\n");
    let finished = daemon.live.take().unwrap().wait().succeeded();
    assert!(!finished.stderr.contains("stay within reach"), "{}", finished.stderr);
}

#[test]
fn the_service_file_is_one() {
    if !program_or_skip("the_service_file_is_one", "systemd-analyze") {
        return;
    }
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/tapline.service")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tapline.service");
    // Where it is installed is not ours to say, nor is the manual.
    let text = text.replace("/usr/bin/tapline", TAPLINE).replace("Documentation=man:tapline(1)\n", "");
    fs::write(&file, text).unwrap();
    let finished = finish(Command::new("systemd-analyze").arg("verify").arg(&file));
    let ours = finished.stderr.lines().filter(|line| line.contains("tapline.service"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn names_of_hosts_are_not_asked_for() {
    let Some(mut daemon) = Daemon::start("names_of_hosts_are_not_asked_for", &[]) else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "-w", "/dev/null", "--socket"]);
    let refused = finish(command.arg(daemon.socket()).arg("udp and host www.example.com"));
    refused.failed_saying(&["unknown host 'www.example.com'", "DNS is not asked there"]);
    // Nor is one compiled that takes others' time.
    let long = vec!["host 10.0.0.1"; 600].join(" or ");
    let mut command = tapline(["capture", "-i", "tap:office", "-w", "/dev/null", "--socket"]);
    let refused = finish(command.arg(daemon.socket()).arg(long));
    refused.failed_saying(&["8192 are the most"]);
    daemon.reader("local.pcap", &["host localhost"]).interrupt();
    daemon.end();
}

#[test]
fn garbage_is_refused_counted_and_told_once() {
    let Some(mut daemon) = Daemon::start("garbage_is_refused_counted_and_told_once", &[]) else { return };
    let hello = format!("{{\"hello\":{{\"version\":{VERSION},\"program\":\"x\\u001b[2J\"}}}}\n");
    let attach = "{\"attach\":{\"capture\":\"office\",\"entries\":7}}\n";
    let bad_filter = "{\"attach\":{\"capture\":\"office\",\"filter\":\"tcp port\"}}\n";
    let lines: [(&str, bool); 6] = [
        ("garbage\n", true),
        ("{\"attach\":{\"entries\":-1}}\n", true),
        ("{\"status\":{}}\n", false),
        ("{\"hello\":{\"version\":99,\"program\":\"\"}}\n", false),
        (attach, false),
        (bad_filter, false),
    ];
    for (line, ends) in lines {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        if [attach, bad_filter].contains(&line) {
            stream.write_all(hello.as_bytes()).unwrap();
        }
        stream.write_all(line.as_bytes()).unwrap();
        let mut channel = Channel::new(stream.try_clone().unwrap(), true);
        let mut reply: Reply = channel.receive().unwrap();
        if matches!(reply, Reply::Hello { .. }) {
            reply = channel.receive().unwrap();
        }
        assert!(matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        if ends {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "{line}");
        }
    }
    // Descriptors that nobody asked for, a line without an end, and a client that never reads what it is answered.
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    let file = File::open("/dev/null").unwrap();
    passing::send(stream.as_fd(), b"{}\n", &[file.as_fd()]).unwrap();
    let mut endless = UnixStream::connect(daemon.socket()).unwrap();
    let _ = endless.write_all(&vec![b' '; 1 << 20]);
    let mut deaf = UnixStream::connect(daemon.socket()).unwrap();
    deaf.write_all(hello.as_bytes()).unwrap();
    while deaf.write_all(&b"{\"status\":{}}\n".repeat(1000)).is_ok() {}
    wait_for("all to be refused", || daemon.status()["refused"] == 6);
    let (_, told) = daemon.end();
    assert_eq!(told.matches("refused: ").count(), 6, "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
}

/// The library that programs find under libpcap's name, if it was built beside this test.
fn library(folder: &std::path::Path) -> bool {
    let places =
        ["deps/libpcap.so", "libpcap.so"].map(|name| std::path::Path::new(TAPLINE).with_file_name(name));
    let built = places.iter().find(|path| path.is_file());
    built.is_some_and(|built| std::os::unix::fs::symlink(built, folder.join("libpcap.so.0.8")).is_ok())
}

/// Programs that know nothing of the daemon, on our library.
struct Programs<'d>(&'d Daemon);

impl Programs<'_> {
    fn new<'d>(test: &str, daemon: &'d Daemon) -> Option<Programs<'d>> {
        if !library(daemon.folder.path()) {
            eprintln!("skipped: {test}: no libpcap.so beside the program: cargo build -p tapline-capi");
            return None;
        }
        fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Some(Programs(daemon))
    }

    fn command(&self, program: &str) -> Command {
        let Programs(daemon) = self;
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", daemon.folder.path()).env("TAPLINE_SOCKET", daemon.socket());
        // A name that there is not: only the map makes it one.
        command.env("TAPLINE_DEVICE_MAP", "monitor0=tap:office");
        command
    }

    fn tcpdump(&self, device: &str, file: &str, filter: &str) -> Reader {
        self.start(self.command("tcpdump").args(["-Z", "root", "-i", device]), file, &[filter])
    }

    fn dumpcap(&self, file: &str, filter: &str) -> Reader {
        self.start(self.command("dumpcap").args(["-q", "-i", "tap:office"]), file, &["-f", filter])
    }

    /// Starts a program that writes into a file, and waits until it reads with its filter.
    fn start(&self, command: &mut Command, file: &str, filter: &[&str]) -> Reader {
        let Programs(daemon) = self;
        let file = daemon.file(file);
        let known = daemon.readers().len();
        command.arg("-w").arg(&file).args(filter);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let reader = Reader { child: Some(command.spawn().expect("it is there")), file };
        let has_filter = |reader: &Value| reader["filter"] != "";
        wait_for("a reader with its filter", || {
            let readers = daemon.readers();
            readers.len() > known && readers.iter().all(has_filter)
        });
        reader
    }
}

/// Three tcpdumps, a dumpcap and our own capture, on one daemon.
#[test]
fn unmodified_programs_read_one_capture_each_with_its_own_filter() {
    const TEST: &str = "unmodified_programs_read_one_capture_each_with_its_own_filter";
    if !program_or_skip(TEST, "tcpdump") || !program_or_skip(TEST, "dumpcap") {
        return;
    }
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let Some(programs) = Programs::new(TEST, &daemon) else { return };
    for (program, line) in
        [("tcpdump", "tap:office (Capture of tapline serve on far0)"), ("dumpcap", "tap:office")]
    {
        let listed = finish(programs.command(program).arg("-D")).succeeded();
        let said = [listed.stdout, listed.stderr.into_bytes()].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.trim_end().lines().last().is_some_and(|last| last.contains(line)), "{said}");
    }
    // One that hangs holds nobody up, and lists nothing.
    let live = daemon.live.as_ref().expect("it runs");
    live.signal("STOP");
    let listed = finish(programs.command("tcpdump").arg("-D")).succeeded();
    live.signal("CONT");
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(said.contains("any") && !said.contains("tap:"), "{said}");
    let filters = ["tcp", "udp dst portrange 1-2000", "icmp or arp", "ip and greater 300", "not tcp"];
    let readers = [
        programs.tcpdump("tap:office", "1.pcap", filters[0]),
        programs.tcpdump("monitor0", "2.pcap", filters[1]),
        programs.tcpdump("tap:office", "3.pcap", filters[2]),
        programs.dumpcap("4.pcapng", filters[3]),
        daemon.reader("5.pcapng", &[filters[4]]),
    ];
    let oracles = Oracles::start(&daemon, &filters);
    daemon.send(&frames(18, 8000));
    daemon.settle(8000, 5);
    let counts: Vec<Value> = daemon.readers().iter().map(|reader| reader["counts"].clone()).collect();
    for ((mut reader, expected), filter) in readers.into_iter().zip(oracles.end()).zip(filters) {
        reader.signal("INT");
        let finished = reader.end();
        let file = reader.file.clone();
        assert!(finished.status.success(), "{filter}: {}", finished.stderr);
        let got = bytes_of(packets_of(&file));
        assert!(got == expected, "{filter}: {} of {}: {}", got.len(), expected.len(), finished.stderr);
        // What the daemon offered is that, and no more.
        assert!(
            counts
                .iter()
                .any(|counts| counts["offered"] == expected.len() && counts["delivered"] == expected.len()),
            "{filter}: {counts:?}"
        );
        if filter == filters[0] {
            let said = format!("{} packets received by filter\n0 packets dropped by kernel", expected.len());
            assert!(finished.stderr.contains(&said), "{}", finished.stderr);
        }
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["stored"]), (&8000.into(), &8000.into()), "{account}");
}

/// The same five under a load of several times the buffer, while some of them stand still: those have lost as many as they say, the others none.
#[test]
fn unmodified_programs_that_are_too_slow_know_what_they_lost() {
    const TEST: &str = "unmodified_programs_that_are_too_slow_know_what_they_lost";
    if !program_or_skip(TEST, "tcpdump") || !program_or_skip(TEST, "dumpcap") {
        return;
    }
    let Some(mut daemon) = Daemon::start(TEST, &["--buffer", "8"]) else { return };
    let Some(programs) = Programs::new(TEST, &daemon) else { return };
    let filters = ["tcp", "ip", "udp or icmp", "ip or arp", "not tcp"];
    let readers = [
        programs.tcpdump("tap:office", "1.pcap", filters[0]),
        programs.tcpdump("tap:office", "2.pcap", filters[1]),
        programs.tcpdump("monitor0", "3.pcap", filters[2]),
        programs.dumpcap("4.pcapng", filters[3]),
        daemon.reader("5.pcapng", &["--policy", "lossy", filters[4]]),
    ];
    let oracles = Oracles::start(&daemon, &filters);
    let is_slow = [false, true, true, true, true];
    let slow = || readers.iter().zip(is_slow).filter_map(|(reader, is_slow)| is_slow.then_some(reader));
    let frames = frames(19, 20_000);
    let (fits, floods) = frames.split_at(300);
    daemon.send(fits);
    slow().for_each(|reader| reader.signal("STOP"));
    daemon.send(floods);
    daemon.settle(20_000, 1);
    slow().for_each(|reader| reader.signal("CONT"));
    // What comes when they run again is theirs.
    daemon.send(fits);
    daemon.settle(20_300, 5);
    let counts: Vec<Value> = daemon.readers().iter().map(|reader| reader["counts"].clone()).collect();
    let of_tcpdump: fn(usize, usize) -> String = |got, lost| {
        let offered = got + lost;
        format!(
            "{got} packets captured\n{offered} packets received by filter\n{lost} packets dropped by kernel"
        )
    };
    let of_dumpcap: fn(usize, usize) -> String = |got, lost| format!("{got}/{lost} (pcap:{lost}/");
    let of_ours: fn(usize, usize) -> String = |_, _| String::new();
    let words = [of_tcpdump, of_tcpdump, of_tcpdump, of_dumpcap, of_ours];
    for ((((mut reader, expected), filter), is_slow), words) in
        readers.into_iter().zip(oracles.end()).zip(filters).zip(is_slow).zip(words)
    {
        reader.signal("INT");
        let finished = reader.end();
        let got = bytes_of(packets_of(&reader.file));
        assert!(finished.status.success(), "{filter}: {}", finished.stderr);
        let (offered, lost) = (expected.len(), expected.len() - got.len());
        assert_eq!(lost > 0, is_slow, "{filter}: {lost} lost: {}", finished.stderr);
        // In order, and as they were sent.
        let mut rest = expected.iter();
        assert!(got.iter().all(|packet| rest.any(|frame| frame == packet)), "{filter}");
        // The daemon's count, and what the program itself says.
        let is_it = |counts: &&Value| counts["offered"] == offered && counts["delivered"] == got.len();
        let count = counts
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{filter}: {got:?} of {offered}: {counts:?}", got = got.len()));
        let causes = ["index_full", "overwritten", "damaged"].map(|cause| count[cause].as_u64().unwrap());
        assert_eq!((causes.iter().sum::<u64>(), causes[2]), (lost as u64, 0), "{filter}: {count}");
        let said = words(got.len(), lost);
        assert!(finished.stderr.contains(&said), "{filter}: {said}: {}", finished.stderr);
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["stored"], &account["not_stored"]), (&20_300.into(), &0.into()), "{account}");
}

/// A file of these frames.
fn write(path: &std::path::Path, frames: &[Vec<u8>]) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for frame in frames {
        for word in [1, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    fs::write(path, bytes).unwrap();
}

/// Attaches by hand: the descriptors of the first buffer.
fn descriptors(daemon: &Daemon) -> (Channel, [OwnedFd; 3]) {
    let mut channel = Channel::new(UnixStream::connect(daemon.socket()).unwrap(), true);
    channel.send(&Request::Hello { version: VERSION, program: "test".to_owned() }, &[]).unwrap();
    assert!(matches!(channel.receive().unwrap(), Reply::Hello { .. }));
    let attach = Attach { capture: "office".to_owned(), policy: Policy::Lossy, ..Attach::default() };
    channel.send(&Request::Attach(attach), &[]).unwrap();
    assert!(matches!(channel.receive().unwrap(), Reply::Attached(_)));
    assert_eq!(channel.receive::<Reply>().unwrap(), Reply::Buffer(0));
    let parts = std::array::from_fn(|_| channel.take_descriptor().expect("three came"));
    (channel, parts)
}

#[test]
fn what_is_read_cannot_be_written_or_cut() {
    let Some(mut daemon) = Daemon::start("what_is_read_cannot_be_written_or_cut", &[]) else { return };
    let honest = daemon.reader("honest.pcap", &[]);
    let (_channel, [buffer, index, _bell]) = descriptors(&daemon);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&buffer));
    let buffer_file = File::from(buffer.try_clone().unwrap());
    for file in [&buffer_file, &File::options().read(true).write(true).open(again).unwrap()] {
        assert!(file.set_len(0).is_err() && file.set_len(1 << 40).is_err());
        assert!(file.write_at(b"x", 0).is_err());
        assert!(Memfd::adopt(OwnedFd::from(file.try_clone().unwrap())).map().is_err(), "mapped for writing");
    }
    // The index is ours to write, and only ourselves to hurt: random words all over it.
    let index_file = File::from(index);
    assert!(index_file.set_len(0).is_err());
    let noise: Vec<u8> = (0..4096 * 4).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    index_file.write_at(&noise, 128).unwrap();
    let frames = frames(15, 3000);
    daemon.send(&frames);
    daemon.settle(3000, 1);
    let (packets, _) = honest.interrupt();
    assert!(packets == frames, "another's index is nobody else's harm");
    daemon.end();
}

#[test]
fn a_reader_can_begin_in_the_past() {
    let Some(mut daemon) = Daemon::start("a_reader_can_begin_in_the_past", &["--history", "udp or tcp"])
    else {
        return;
    };
    let oracles = Oracles::start(&daemon, &["udp or tcp", "udp"]);
    daemon.send(&frames(16, 2000));
    let oracles = oracles.end();
    let stored = oracles[0].len() as u64;
    daemon.settle(stored, 0);
    let since = [&["--since", "all"][..], &["--since", "1h", "udp"]];
    for (arguments, expected) in since.into_iter().zip(oracles) {
        let reader = daemon.reader("later.pcap", arguments);
        daemon.settle(stored, 1);
        let (packets, tap) = reader.interrupt();
        assert!(packets == expected && !packets.is_empty(), "{arguments:?}: {tap}");
    }
    daemon.end();
}

#[test]
fn the_past_may_be_more_than_an_index_holds() {
    let Some(mut daemon) =
        Daemon::start("the_past_may_be_more_than_an_index_holds", &["--history", "", "--buffer", "128"])
    else {
        return;
    };
    // An index has 65,536 places; and packets go on coming while the past is read.
    let (past, present) = (frames(31, 100_000), frames(32, 20_000));
    daemon.send(&past);
    daemon.settle(past.len() as u64, 0);
    let reader = daemon.reader("all.pcap", &["--since", "all"]);
    daemon.send(&present);
    daemon.settle((past.len() + present.len()) as u64, 1);
    let (packets, tap) = reader.interrupt();
    let all: Vec<_> = past.into_iter().chain(present).collect();
    assert!(packets == all, "{} of {}: {tap}", packets.len(), all.len());
    daemon.end();
}

#[test]
fn the_end_of_the_daemon_is_told() {
    let Some(mut daemon) = Daemon::start("the_end_of_the_daemon_is_told", &[]) else { return };
    let mut reader = daemon.reader("orderly.pcap", &[]);
    let frames = frames(17, 1000);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.end();
    reader.end().succeeded().account();
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    assert!(!daemon.socket().exists());

    let mut daemon = daemon.begin(&[]);
    let mut reader = daemon.reader("sudden.pcap", &[]);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.live.as_ref().unwrap().signal("KILL");
    let finished = reader.end();
    assert_eq!(finished.account().output("written"), 1000);
    assert_eq!(unknown(&finished), ["after the last that the daemon could tell"]);
    finished.failed_saying(&["tap:office: the daemon is gone; all that it had stored was read"]);
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    // Its socket is in nobody's way.
    daemon.live = None;
    let mut daemon = daemon.begin(&[]);
    let list = |arguments: [&str; 3]| {
        let listed = Finished::new(tapline(arguments).arg("--socket").arg(daemon.socket()).output().unwrap());
        String::from_utf8(listed.succeeded().stdout).unwrap()
    };
    let listed: Value = serde_json::from_str(&list(["capture", "-D", "--json"])).unwrap();
    let office = listed.as_array().unwrap().last().unwrap();
    assert_eq!((&office["name"], &office["kind"]), (&"tap:office".into(), &"tap".into()), "{office}");
    assert_eq!(office["interfaces"][0]["name"], FAR);
    assert!(list(["capture", "-Li", "tap:office"]).contains("EN10MB (Ethernet)"));
    let second = tapline(["serve", "-i", "lo", "--socket"]).arg(daemon.socket()).output().unwrap();
    Finished::new(second).failed_saying(&["another daemon listens there"]);
    daemon.end();
    let arguments = ["capture", "-i", "tap:office", "--socket", daemon.folder.path().to_str().unwrap()];
    run(arguments).failed_saying(&["no daemon at", "tapline serve"]);
}

/// Losses of the tap of which nobody can tell how many they are.
fn unknown(finished: &Finished) -> Vec<String> {
    let account = finished.account();
    let losses = account.interface("tap:office")["losses"].as_array().expect("a list");
    let unknown = losses.iter().filter(|loss| loss["count"].is_null());
    unknown.map(|loss| loss["counter"].as_str().expect("a name").to_owned()).collect()
}

/// One that does not answer is no reason to hang, and no reason to say that nothing was lost.
#[test]
fn a_stopped_daemon_keeps_nobody() {
    let Some(mut daemon) = Daemon::start("a_stopped_daemon_keeps_nobody", &[]) else { return };
    let mut reader = daemon.reader("stopped.pcap", &[]);
    let frames = frames(23, 1000);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.live.as_ref().unwrap().signal("STOP");
    reader.signal("INT");
    let finished = reader.end().succeeded();
    assert_eq!(unknown(&finished), ["after the last that the daemon could tell"]);
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    let status = tapline(["status", "--socket"]).arg(daemon.socket()).output().unwrap();
    Finished::new(status).failed_saying(&["the daemon does not answer"]);
    daemon.live.as_ref().unwrap().signal("CONT");
    daemon.end();
}

/// Whoever presses Ctrl-C after the last packet has it, though the kernel has not handed its block over yet.
#[test]
fn the_last_packet_before_the_end_is_read() {
    let Some(mut daemon) = Daemon::start("the_last_packet_before_the_end_is_read", &[]) else { return };
    let frames = frames(28, 10);
    for (at, frame) in frames.iter().enumerate() {
        let arguments: &[&str] = if at % 2 == 0 { &[] } else { &["--immediate-mode"] };
        let reader = daemon.reader(&format!("{at}.pcap"), arguments);
        daemon.send(std::slice::from_ref(frame));
        assert_eq!(reader.interrupt().0, std::slice::from_ref(frame), "{at}");
    }
    daemon.end();
}

/// Workers have a buffer each. Their packets come in the order in which they were captured, also when there is a pause of some milliseconds after each, so that one
/// worker's are often there before older ones of the other.
#[test]
fn packets_of_several_workers_come_in_order() {
    let Some(mut daemon) = Daemon::with_rules("packets_of_several_workers_come_in_order", "workers = 2\n")
    else {
        return;
    };
    let looker = daemon.reader("looker.pcap", &["--immediate-mode"]);
    let sleeper = daemon.reader("sleeper.pcap", &[]);
    assert_eq!(daemon.status()["captures"][0]["readers"].as_array().map(Vec::len), Some(2));
    let frames = frames(27, 1000);
    let mut sender = Sender::near(&daemon.namespace).unwrap();
    sender.send(&frames, 1000, Pace::PerSecond(400)).unwrap();
    daemon.settle(1000, 2);
    for reader in [looker, sleeper] {
        let (packets, account) = reader.interrupt();
        assert_eq!(account["offered"], 1000);
        let late = packets.iter().zip(&frames).filter(|(packet, frame)| packet != frame).count();
        assert_eq!((packets.len(), late), (1000, 0));
    }
    daemon.end();
}

/// SIGUSR1: what became of packets up to now, while it goes on.
#[test]
fn the_account_is_told_on_the_way() {
    let Some(daemon) = Daemon::new("the_account_is_told_on_the_way") else { return };
    let mut command =
        tapline(["serve", "--netns", daemon.namespace.name(), "-i", FAR, "--name", "office", "--json"]);
    let told = daemon.file("told");
    command.arg("--socket").arg(daemon.socket()).stderr(File::create(&told).unwrap());
    let mut daemon = daemon.begin_command(&mut command);
    let row = || {
        let told = fs::read_to_string(&told).unwrap();
        told.lines().find(|line| line.contains("tap:office  delivered")).map(str::to_owned)
    };
    let reader = daemon.reader("all.pcap", &[]);
    let frames = frames(24, 1234);
    daemon.send(&frames);
    daemon.settle(1234, 1);
    daemon.live.as_ref().unwrap().signal("USR1");
    // A signal is obeyed some time after it was sent: packets that come before are in the account too.
    wait_for("the account", || row().is_some());
    daemon.send(&frames);
    daemon.settle(2468, 1);
    let (packets, _) = reader.interrupt();
    assert_eq!(packets.len(), 2468);
    let (account, _) = daemon.end();
    assert_eq!(account["stored"], 2468);
    assert!(row().is_some_and(|row| row.contains("1,234")), "{row:?}", row = row());
}

#[test]
fn a_reader_comes_back_to_the_next_daemon() {
    let Some(mut daemon) = Daemon::start("a_reader_comes_back_to_the_next_daemon", &[]) else { return };
    let mut reader = daemon.reader("all.pcapng", &["--reconnect", "--policy", "leased", "tcp or udp"]);
    let oracles = Oracles::start(&daemon, &["tcp or udp"]);
    let frames = frames(21, 1000);
    daemon.send(&frames);
    let wanted = oracles.end().remove(0);
    daemon.settle(wanted.len() as u64, 1);
    for signal in ["KILL", "INT"] {
        let live = daemon.live.take().unwrap();
        live.signal(signal);
        let _ = live.wait();
        daemon = daemon.begin(&[]);
        wait_for("the reader to be back", || daemon.readers().len() == 1);
        daemon.send(&frames);
        daemon.settle(wanted.len() as u64, 1);
    }
    reader.signal("INT");
    let finished = reader.end().succeeded();
    let account = finished.account();
    assert!(bytes_of(packets_of(&reader.file)) == [&wanted[..], &wanted, &wanted].concat());
    assert_eq!(account.interface("tap:office")["tap"]["offered"], 3 * wanted.len());
    assert_eq!(unknown(&finished), ["while there was no daemon"]);
    assert_eq!(finished.stderr.matches("the daemon is there again").count(), 2, "{}", finished.stderr);
    // Other interfaces are not the same capture.
    let reader = daemon.reader("other.pcapng", &["--reconnect"]);
    daemon.end();
    let mut command = tapline(["serve", "--netns", daemon.namespace.name(), "-i", NEAR, "--name", "office"]);
    command.arg("--socket").arg(daemon.socket());
    let other = Live::start_command(&daemon.namespace, 1, &mut command);
    let mut reader = reader;
    reader.end().failed_saying(&["serves other interfaces"]);
    drop(other);
}

#[test]
fn a_file_is_served_whole_to_whoever_waits_for_it() {
    if !namespaces_or_skip("a_file_is_served_whole_to_whoever_waits_for_it") {
        return;
    }
    let namespace = Namespace::with_pair("serve").unwrap();
    let mut daemon = Daemon { live: None, folder: tempfile::tempdir().unwrap(), namespace };
    let file = daemon.file("in.pcap");
    // A batch of these is several times the buffer.
    let frames: Vec<Vec<u8>> = (0..700_u32).map(|n| n.to_be_bytes().repeat(15_000)).collect();
    write(&file, &frames);
    let mut command = tapline(["serve", "--json", "--name", "office", "--buffer", "4", "-r"]);
    command.arg(&file).arg("--socket").arg(daemon.socket()).stderr(Stdio::piped());
    daemon.live = Some(Live::start_command(&daemon.namespace, 0, &mut command));
    daemon.wait_until_served();
    let mut reader = daemon.reader_of_file("all.pcap");
    reader.end().succeeded().account();
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    let mut small = Channel::new(UnixStream::connect(daemon.socket()).unwrap(), true);
    small.send(&Request::Hello { version: VERSION, program: "test".to_owned() }, &[]).unwrap();
    assert!(matches!(small.receive().unwrap(), Reply::Hello { .. }));
    let attach =
        Attach { capture: "office".into(), policy: Policy::Lossless, entries: 128, ..Attach::default() };
    small.send(&Request::Attach(attach), &[]).unwrap();
    let Reply::Error(text) = small.receive().unwrap() else { panic!("it was taken") };
    assert!(text.contains("a lossless reader needs 256"), "{text}");
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["ended"]), (&700.into(), &"".into()), "{account}");
}

impl Daemon {
    /// A lossless reader, which may be at its end at once.
    fn reader_of_file(&self, file: &str) -> Reader {
        let mut command =
            tapline(["capture", "-i", "tap:office", "--json", "--policy", "lossless", "--socket"]);
        command.arg(self.socket()).arg("-w").arg(self.file(file));
        Reader { child: Some(command.spawn().expect("the program was built")), file: self.file(file) }
    }
}

/// Who is woken seldom gets every packet: when traffic stops, when its index fills, and while others come who want theirs at once.
#[test]
fn who_is_woken_seldom_gets_every_packet() {
    let Some(mut daemon) = Daemon::start("who_is_woken_seldom_gets_every_packet", &[]) else { return };
    let patient = daemon.reader("patient.pcap", &[]);
    // Few packets, and then none that would wake anybody.
    let first = frames(21, 5);
    daemon.send(&first);
    daemon.settle(5, 1);
    let second = frames(22, 40_000);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| daemon.send(&second));
        let mut hasty = 0;
        while !sending.is_finished() {
            let name = format!("hasty{hasty}.pcap");
            let mut command = tapline(["capture", "-i", "tap:office", "-U", "-c", "3", "--socket"]);
            command.arg(daemon.socket()).arg("-w").arg(daemon.file(&name));
            let child = command.spawn().expect("the program was built");
            let mut reader = Reader { child: Some(child), file: daemon.file(&name) };
            wait_for("packets for who is in haste", || {
                let child = reader.child.as_mut().expect("it runs");
                child.try_wait().expect("our child").is_some() || sending.is_finished()
            });
            drop(reader);
            hasty += 1;
        }
        assert!(hasty > 0);
    });
    daemon.settle(40_005, 1);
    let (packets, tap) = patient.interrupt();
    assert_eq!((&tap["overwritten"], &tap["index_full"]), (&0.into(), &0.into()), "{tap}");
    assert!(packets == [first, second].concat());
    daemon.end();
}

/// A reader that sleeps on its descriptor is woken by its wish, or before it loses packets; also when nothing more comes.
#[test]
fn a_descriptor_tells_what_was_wished_for() {
    let Some(mut daemon) = Daemon::start("a_descriptor_tells_what_was_wished_for", &[]) else { return };
    let attach = Attach { capture: "office".to_owned(), entries: 256, delay_ms: 20, ..Attach::default() };
    let client = Client::connect(&daemon.socket(), "test").unwrap();
    let mut tap = client.attach(&attach).unwrap();
    let mut sent = 0;
    for (min_bytes, max_delay, count) in [
        (u64::MAX, Duration::from_millis(100), 3),
        (u64::MAX, Duration::ZERO, 1),
        (2000, Duration::MAX, 200),
        // A quarter of the index.
        (u64::MAX, Duration::MAX, 70),
    ] {
        tap.set_wake(WakeThreshold { min_bytes, max_delay });
        assert_eq!(tap.advance(Duration::ZERO).unwrap(), Advance::Idle);
        let frames = frames(30, count);
        daemon.send(&frames);
        sent += count as u64;
        let mut read = 0;
        while read < count {
            let mut poller = Poller::new();
            tap.descriptors().for_each(|descriptor| poller.add(descriptor));
            assert_eq!(poller.wait(PATIENCE).unwrap(), 1, "not woken: {min_bytes} {max_delay:?}");
            // What came in several batches may leave too little for another wake. A wish is told when an advance finds
            // nothing, so it comes before the last of them.
            tap.set_wake(WakeThreshold::IMMEDIATE);
            while tap.advance(Duration::ZERO).unwrap() == Advance::Batch {
                read += tap.batch().len();
            }
        }
        assert_eq!(read, count);
    }
    daemon.settle(sent, 1);
    tap.stop().unwrap();
    while tap.advance(PATIENCE).unwrap() != Advance::End {}
    drop(tap);
    daemon.end();
}

#[test]
fn what_makes_no_sense_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[capture]]\nname = \"x\"\n").unwrap();
    let config = ["serve", "--config", rules.to_str().unwrap()];
    run(config).failed_saying(&["rules.toml", "either interfaces or a file"]);
    run(["serve", "-i", "no-such-if"]).failed_saying(&["no-such-if"]);
    run(["serve"]).failed_saying(&["--interface", "--read", "--config"]);
    // A path that is something else already is a slip of the pen, and stays what it is.
    let precious = folder.path().join("precious.pcap");
    fs::write(&precious, "packets").unwrap();
    let served = folder.path().join("served.pcap");
    write(&served, &frames(26, 3));
    let serve = ["serve", "-r", served.to_str().unwrap(), "--socket", precious.to_str().unwrap()];
    run(serve).failed_saying(&["precious.pcap", "is no socket"]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "packets");
    run(["capture", "-i", "tap:x", "-i", "lo"]).failed_saying(&["one tap:NAME and nothing else"]);
    run(["capture", "-i", NEAR, "--since", "5s"]).failed_saying(&["are for captures of tapline serve"]);
}

/// A log that is a pipe, and that nothing reads: requests are answered, packets flow, and the end comes.
#[test]
fn an_unread_log_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = tapline(["serve", "-r", sample::STORED, "--name", "office", "--json", "--socket"]);
    let mut child = command.arg(&socket).spawn().unwrap();
    wait_for("the socket", || Client::connect(&socket, "test").is_ok());
    // A line of 70 bytes for each; the pipe holds 64 KiB.
    for _ in 0..5000 {
        process::signal(child.id(), SIGHUP).unwrap();
        Client::connect(&socket, "test").unwrap();
    }
    for _ in 0..5 {
        process::signal(child.id(), SIGUSR1).unwrap();
        Client::connect(&socket, "test").unwrap().status().unwrap();
    }
    process::signal(child.id(), SIGTERM).unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the daemon does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    // The pipe was full.
    assert!(output.stderr.len() >= 60_000, "{}", output.stderr.len());
}
