//! `tapline serve`: each reader gets what its filter selects, or its loss counted; no reader costs another a packet;
//! rules hold; hostile clients get nowhere.

mod appearing;
mod places;
mod programs;
mod readers;
mod recording;
mod rules;
mod searching;
mod service;

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
use tapline_source::{Advance, Source};
use tapline_sys::{Memfd, Poller, passing, process};
use tapline_tap_client::protocol::{AttachRequest, Policy, Reply, Request, VERSION};
use tapline_tap_client::{Channel, Client, WakeThreshold};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sample;
use tapline_testkit::sender::{Pace, Sender};

use crate::support::{
    Finished, Live, PATIENCE, TAPLINE, bytes_of, finish, frames, packets_of, program_or_skip, root_or_skip,
    run, tapline, wait_for, wait_for_backlog,
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

    /// Writes the rules. Lines before the first table of `access` apply to all captures; `match` applies to this one.
    fn write_rules(&self, access: &str) {
        let (of_all, access) = access.split_at(access.find("[[").unwrap_or(0));
        let (of_one, of_all): (Vec<&str>, Vec<&str>) =
            of_all.lines().partition(|line| line.starts_with("match"));
        let (of_one, of_all) = (of_one.join("\n"), of_all.join("\n"));
        let (socket, netns) = (self.socket(), self.namespace.name());
        let text = format!(
            "socket = {socket:?}\nmode = \"0666\"\n{of_all}\n[[capture]]\nname = \"office\"\ninterfaces = [\"{FAR}\"]\nnetns = {netns:?}\n{of_one}\n{access}"
        );
        fs::write(self.rules(), text).unwrap();
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.toml")
    }

    fn wait_until_served(&self) {
        wait_for("the socket", || Client::connect(&self.socket(), "test").is_ok());
    }

    #[cfg(feature = "view")]
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
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
        self.reader_of("tap:office", file, arguments)
    }

    /// As [`reader`](Self::reader), for a name with a group.
    fn reader_of(&self, name: &'static str, file: &str, arguments: &[&str]) -> Reader {
        let known = self.readers().len();
        let mut command = tapline(["capture", "-i", name, "--json", "--socket"]);
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
        wait_for_backlog();
    }

    /// Sends frames in parts that the smallest buffer holds, each once `readers` have read the one before: so these
    /// readers lose nothing, however long they wait for a processor. The daemon has had `before` packets.
    fn send_in_parts(&self, frames: &[Vec<u8>], before: usize, readers: usize) {
        let mut sent = before;
        for part in frames.chunks(1000) {
            self.send(part);
            sent += part.len();
            self.settle(sent as u64, readers);
        }
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

    /// Sends Ctrl-C; returns the account and the messages.
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

    /// Sends Ctrl-C; returns the packets, and the account of offered and lost ones.
    fn interrupt(self) -> (Vec<Vec<u8>>, Value) {
        self.interrupt_as("tap:office")
    }

    /// As [`interrupt`](Self::interrupt), for a reader of this name.
    fn interrupt_as(mut self, name: &str) -> (Vec<Vec<u8>>, Value) {
        self.signal("INT");
        let account = self.end().succeeded().account();
        let packets = bytes_of(packets_of(&self.file));
        assert_eq!(packets.len() as u64, account.output("written"));
        (packets, account.interface(name)["tap"].clone())
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

    /// All packets that each of them captured.
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
fn readers_get_packets_that_are_stored_once() {
    const TEST: &str = "readers_get_packets_that_are_stored_once";
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
fn the_kernel_filter_is_the_union_of_readers() {
    let Some(mut daemon) = Daemon::start("the_kernel_filter_is_the_union_of_readers", &[]) else { return };
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
fn unwanted_packets_are_counted_on_request() {
    let Some(mut daemon) = Daemon::start("unwanted_packets_are_counted_on_request", &["--count-all"]) else {
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
fn stopped_and_killed_readers_harm_no_other() {
    let Some(mut daemon) = Daemon::start("stopped_and_killed_readers_harm_no_other", &["--buffer", "4"])
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
    daemon.send_in_parts(&frames, 0, 1);
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

impl Daemon {
    /// A lossless reader, which may be at its end at once.
    fn reader_of_file(&self, file: &str) -> Reader {
        let mut command =
            tapline(["capture", "-i", "tap:office", "--json", "--policy", "lossless", "--socket"]);
        command.arg(self.socket()).arg("-w").arg(self.file(file));
        Reader { child: Some(command.spawn().expect("the program was built")), file: self.file(file) }
    }
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

/// Losses of the tap whose number is unknown.
fn unknown(finished: &Finished) -> Vec<String> {
    let account = finished.account();
    let losses = account.interface("tap:office")["losses"].as_array().expect("a list");
    let unknown = losses.iter().filter(|loss| loss["count"].is_null());
    unknown.map(|loss| loss["counter"].as_str().expect("a name").to_owned()).collect()
}
