//! Published places of a graph: readers of other processes get the packets of the place by its rules; a reader that
//! stops costs the graph no packet, and none of the other readers any.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::support::{
    Finished, bytes_of, finish, packets_of, program_or_skip, root_or_skip, run, tapline, wait_for,
};

/// A user without rights.
const NOBODY: u32 = 65_534;
/// Bytes of the header of a pcap file.
const HEADER_LEN: usize = 24;

/// A graph that reads standard input, and publishes.
struct Graph {
    child: Option<Child>,
    input: Option<ChildStdin>,
    bytes: Vec<u8>,
    folder: tempfile::TempDir,
}

impl Graph {
    /// Starts `file("-") -> STAGES`, in which `SOCKET` is the socket's argument, and waits until places are there. The
    /// packets are those of a recipe.
    fn start(recipe: &str, stages: &str, arguments: &[&str]) -> Graph {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let input = folder.path().join("in.pcap");
        let words: Vec<&str> = recipe.split_whitespace().collect();
        run([&["generate", "-w", input.to_str().unwrap()][..], &words].concat()).succeeded();
        let bytes = fs::read(&input).unwrap();
        let socket = folder.path().join("socket");
        let text = format!("file(\"-\") -> {stages}").replace("SOCKET", &format!("socket={socket:?}"));
        let text = text.replace("FOLDER", folder.path().to_str().unwrap());
        let mut command = tapline(["run", "--json", "-e", &text]);
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // The graph begins once it knows the file's kind.
        input.write_all(&bytes[..HEADER_LEN]).unwrap();
        let graph = Graph { child: Some(child), input: Some(input), bytes, folder };
        wait_for("the socket", || finish(&mut graph.asking(&["status"])).status.success());
        graph
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that asks the graph's socket.
    fn asking(&self, arguments: &[&str]) -> Command {
        let mut command = tapline(arguments);
        command.env("TAPLINE_SOCKET", self.file("socket"));
        command
    }

    fn readers(&self) -> usize {
        let status = finish(&mut self.asking(&["status", "--json"])).succeeded();
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        let captures = status["captures"].as_array().expect("a list").iter();
        captures.map(|capture| capture["readers"].as_array().expect("a list").len()).sum()
    }

    /// Starts a reader, and waits until it is one.
    fn read(&self, command: &mut Command) -> Child {
        let known = self.readers();
        let child = command.spawn().expect("it is there");
        wait_for("a reader", || self.readers() > known);
        child
    }

    /// Feeds the packets; then the end. The account of the graph.
    fn end(&mut self) -> Value {
        let mut input = self.input.take().expect("it is open");
        input.write_all(&self.bytes[HEADER_LEN..]).unwrap();
        drop(input);
        ended(self.child.take().expect("it runs")).account().value
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn ended(child: Child) -> Finished {
    Finished::new(child.wait_with_output().unwrap()).succeeded()
}

/// The output of the first stage of a class in the account.
fn output(account: &Value, class: &str) -> Value {
    let stages = account["stages"].as_array().expect("a list");
    let stage = stages.iter().find(|stage| stage["class"] == class).expect("it is there");
    stage["output"].clone()
}

fn data(path: &Path) -> Vec<Vec<u8>> {
    bytes_of(packets_of(path))
}

const RECIPE: &str = "udp tcp size=80..400 flows=50 count=6000 rate=10k start=1700000000";

#[test]
fn a_place_of_a_graph_is_read_by_other_programs() {
    let stages =
        "filter(\"udp\") -> s :: sample(1/2) -> publish(half, SOCKET); s -> record(\"FOLDER/oracle.pcap\")";
    let mut graph = Graph::start(RECIPE, stages, &[]);
    let capture = |file: &str, filter: &str| {
        let path = graph.file(file).display().to_string();
        graph.read(&mut graph.asking(&["capture", "-i", "tap:half", "--json", "-w", &path, filter]))
    };
    let (all, some) = (capture("all.pcap", ""), capture("some.pcap", "ether[39] & 1 == 0"));
    let second = "device(\"tap:half\") -> filter(\"udp\") -> count";
    let second = graph.read(&mut graph.asking(&["run", "--json", "-e", second]));
    // Readers come and go.
    let mut gone = capture("gone.pcap", "");
    gone.kill().unwrap();
    gone.wait().unwrap();
    let account = graph.end();
    let expected = data(&graph.file("oracle.pcap"));
    let count = expected.len();
    assert!(count > 1000, "{count}");
    let even: Vec<Vec<u8>> = expected.iter().filter(|packet| packet[39] & 1 == 0).cloned().collect();
    let of_second = ended(second).account();
    ended(all);
    ended(some);
    assert!(data(&graph.file("all.pcap")) == expected);
    assert!(data(&graph.file("some.pcap")) == even && !even.is_empty());
    assert_eq!(of_second.count("delivered"), count as u64);
    let output = output(&account, "publish");
    assert_eq!((&output["written"], &output["lost"]), (&count.into(), &0.into()), "{output}");
}

/// A reader that is stopped, even one that everybody else would have to wait for, keeps neither the graph nor the others.
#[test]
fn a_stopped_reader_costs_the_graph_nothing() {
    let recipe = "udp size=400 flows=50 count=60000 rate=10k start=1700000000";
    let mut graph = Graph::start(recipe, "all :: count -> publish(all, SOCKET, buffer=4)", &[]);
    let capture = |policy: &str, file: &str| {
        let path = graph.file(file).display().to_string();
        graph
            .read(&mut graph.asking(&["capture", "-i", "tap:all", "--json", "--policy", policy, "-w", &path]))
    };
    let (mut lossless, lossy) = (capture("lossless", "a.pcap"), capture("lossy", "b.pcap"));
    let stopped = Command::new("kill").args(["-STOP", &lossless.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let account = graph.end();
    lossless.kill().unwrap();
    lossless.wait().unwrap();
    let output = output(&account, "publish");
    let told = ["written", "lost", "buffered"].map(|name| output[name].as_u64().unwrap_or(0));
    assert_eq!((told.iter().sum::<u64>(), told[2]), (60_000, 0), "{output}");
    // The daemon's thread waits for the lossless reader: what then finds no room in the queue is lost, and counted.
    assert!(told[1] > 0, "{output}");
    let of_lossy = ended(lossy).account();
    let tap = &of_lossy.interface("tap:all")["tap"];
    let lost = ["index_full", "overwritten", "damaged", "unread"].map(|name| tap[name].as_u64().unwrap_or(0));
    assert_eq!(
        tap["offered"].as_u64().unwrap(),
        of_lossy.count("delivered") + lost.iter().sum::<u64>(),
        "{tap}"
    );
}

#[test]
fn packets_without_a_reader_count_as_unwanted() {
    let mut graph = Graph::start(RECIPE, "publish(a, SOCKET)", &[]);
    let account = graph.end();
    let output = output(&account, "publish");
    let unwanted = output["unsent"]["unwanted"].as_u64().unwrap_or(0);
    assert_eq!(
        (unwanted + output["written"].as_u64().unwrap(), &output["lost"]),
        (6000, &0.into()),
        "{output}"
    );
    assert_eq!(account["lost"], 0, "{account}");
}

/// Readers that begin in the past get what the place had before they came; workers share one place.
#[test]
fn a_place_with_history_is_read_from_its_past() {
    let mut graph =
        Graph::start(RECIPE, "filter(\"tcp\") -> publish(past, SOCKET, history=yes)", &["--workers", "3"]);
    let input = graph.input.as_mut().expect("it is open");
    input.write_all(&graph.bytes[HEADER_LEN..]).unwrap();
    let packets = || {
        let status = finish(&mut graph.asking(&["status", "--json"])).succeeded();
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        status["captures"][0]["stored"].as_u64().expect("a number")
    };
    let expected = {
        let count = graph.file("tcp.pcap").display().to_string();
        let file = graph.file("in.pcap").display().to_string();
        run(["capture", "-r", &file, "-w", &count, "tcp"]).succeeded();
        data(Path::new(&count)).len() as u64
    };
    wait_for("packets to be stored", || packets() == expected);
    let path = graph.file("past.pcap").display().to_string();
    let since = ["capture", "-i", "tap:past", "--since", "all", "-c", &expected.to_string(), "-w", &path];
    finish(&mut graph.asking(&since)).succeeded();
    let sorted = |path: &Path| {
        let mut packets = data(path);
        packets.sort();
        packets
    };
    assert!(sorted(Path::new(&path)) == sorted(&graph.file("tcp.pcap")));
    drop(graph.input.take());
    let account = ended(graph.child.take().expect("it runs")).account().value;
    assert_eq!(output(&account, "publish")["written"], expected, "{account}");
}

/// The rules of a place hold: who reads, how many bytes, and which packets.
#[test]
fn users_read_a_place_by_its_rules() {
    if !root_or_skip("users_read_a_place_by_its_rules") {
        return;
    }
    let text = "all :: count -> publish(open, SOCKET, users=65534, filter=\"udp\", snap=60); all -> publish(closed, SOCKET)";
    let mut graph = Graph::start(RECIPE, text, &[]);
    let as_nobody = |capture: &str| {
        let mut command = graph.asking(&["capture", "-i", capture, "--json", "-w", "-"]);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let refused = finish(&mut as_nobody("tap:closed"));
    refused.failed_saying(&["no capture", "there is open"]);
    let path = graph.file("nobody.pcap");
    let mut command = as_nobody("tap:open");
    command.stdout(fs::File::create(&path).unwrap());
    let nobody = graph.read(&mut command);
    let mut all = graph.asking(&["capture", "-i", "tap:closed", "--json", "-w"]);
    let all = graph.read(all.arg(graph.file("root.pcap")));
    graph.end();
    ended(nobody);
    ended(all);
    let whole = data(&graph.file("in.pcap"));
    assert!(data(&graph.file("root.pcap")) == whole);
    let udp = |packet: &&Vec<u8>| packet[23] == 17;
    let seen: Vec<Vec<u8>> = whole.iter().filter(udp).map(|packet| packet[..60].to_vec()).collect();
    assert!(data(&path) == seen && !seen.is_empty());
}

/// A paused graph examines nothing, and goes on with what its stages know.
#[test]
fn a_graph_is_paused_and_resumed() {
    for workers in ["1", "3"] {
        let recipe = RECIPE.replace("6000", "12000");
        let mut graph = Graph::start(&recipe, "c :: count -> publish(a, SOCKET)", &["--workers", workers]);
        let pid = graph.child.as_ref().expect("it runs").id();
        let stderr = graph.child.as_mut().expect("it runs").stderr.take().expect("a pipe");
        let mut lines = BufReader::new(stderr).lines();
        let mut told = |words: &str| {
            let found = lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains(words));
            assert!(found.is_some(), "{words}");
        };
        let bytes = graph.bytes.split_off(HEADER_LEN);
        let ends = packet_ends(&bytes);
        // The part in the middle is longer than all that a pipe and the thread that reads it can hold.
        let (first, second) = (ends[1999], ends[9999]);
        let received = |graph: &Graph| {
            let status = finish(&mut graph.asking(&["status", "--json"])).succeeded();
            let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
            status["captures"][0]["packets"].as_u64().expect("a number")
        };
        let reader = graph.file("all.pcap").display().to_string();
        let reader = graph.read(&mut graph.asking(&["capture", "-i", "tap:a", "--json", "-w", &reader]));
        let write = |graph: &mut Graph, part: &[u8]| {
            graph.input.as_mut().expect("it is open").write_all(part).unwrap();
        };
        write(&mut graph, &bytes[..first]);
        wait_for("the first part", || received(&graph) == 2000);
        signal(pid, "USR2");
        told("paused");
        write(&mut graph, &bytes[first..second]);
        signal(pid, "USR2");
        told("resumed");
        write(&mut graph, &bytes[second..]);
        drop(graph.input.take());
        let rest = std::thread::spawn(move || lines.for_each(drop));
        let account = ended(graph.child.take().expect("it runs")).account().value;
        rest.join().unwrap();
        ended(reader);
        assert_eq!(account["delivered"], 12_000, "{account}");
        let paused = account["paused"].as_u64().expect("a number") as usize;
        assert!((1..=8000).contains(&paused), "{account}");
        let whole = data(&graph.file("in.pcap"));
        let got = data(&graph.file("all.pcap"));
        assert_eq!(got.len(), 12_000 - paused, "{workers} workers");
        // One worker keeps the order: what is missing lies in one piece, and begins with the order to pause.
        let before = whole.iter().zip(&got).take_while(|(one, other)| one == other).count();
        assert!(
            workers != "1" || before == 2000 && got[before..] == whole[before + paused..],
            "{before}, {paused}"
        );
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// The end of each record of a pcap file, behind its header.
fn packet_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        at += 16 + len;
        ends.push(at);
    }
    ends
}

#[test]
fn mistakes_of_places_are_told() {
    for (stages, words) in [
        ("publish(\"a b\", socket=\"/x\")", &["name = \"a b\"", "letters"][..]),
        ("publish(a, buffer=5, socket=\"/x\")", &["buffer = 5", "power of two"]),
        ("publish(a, users=\"no-such-user-7\", socket=\"/x\")", &["no-such-user-7"]),
        ("publish(a, socket=\"/nowhere/below/x\")", &["tap:a", "/nowhere/below"]),
    ] {
        let text = format!("generate(\"udp count=1\") -> {stages}");
        run(["run", "-e", &text]).failed_saying(words);
    }
}

/// tcpdump, on our library, reads a place by the same name.
#[test]
fn tcpdump_reads_a_place() {
    const TEST: &str = "tcpdump_reads_a_place";
    let places =
        ["deps/libpcap.so", "libpcap.so"].map(|name| Path::new(crate::support::TAPLINE).with_file_name(name));
    let Some(library) = places.iter().find(|path| path.is_file()) else {
        return eprintln!("skipped: {TEST}: no libpcap.so beside the program: cargo build -p tapline-capi");
    };
    if !program_or_skip(TEST, "tcpdump") || !root_or_skip(TEST) {
        return;
    }
    let mut graph = Graph::start(RECIPE, "publish(all, SOCKET)", &[]);
    std::os::unix::fs::symlink(library, graph.file("libpcap.so.0.8")).unwrap();
    let mut command = Command::new("tcpdump");
    command.args(["-Z", "root", "-i", "tap:all", "-w"]).arg(graph.file("t.pcap")).arg("udp");
    command.env("TAPLINE_SOCKET", graph.file("socket")).env("LD_LIBRARY_PATH", graph.folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = graph.read(&mut command);
    graph.end();
    child.wait_with_output().unwrap();
    let whole = data(&graph.file("in.pcap"));
    let udp: Vec<Vec<u8>> = whole.into_iter().filter(|packet| packet[23] == 17).collect();
    assert!(data(&graph.file("t.pcap")) == udp && !udp.is_empty());
}
