//! `tapline probe`: collectors and dissectors that are not ours decode its messages, which sum to the counts of a slow
//! meter.

mod oracles;

use crate::support;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::{Finished, Live, TAPLINE, finish, program_or_skip, run, tapline, wait_for};
use serde_json::Value;
use tapline_testkit::capture_file::read_packets;
use tapline_testkit::flow_meter::{DirectionTotals, Flow, FlowMeter, Rules};
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

const SECOND: i64 = 1_000_000_000;

/// A file of UDP, TCP and ICMP flows over both versions of IP. Gives its path.
fn traffic(folder: &Path, recipe: &str) -> String {
    let path = folder.join("traffic.pcap").display().to_string();
    let words = [&["generate", "-w", &path][..], &recipe.split_whitespace().collect::<Vec<_>>()].concat();
    run(words).succeeded();
    path
}

const MIX: &str =
    "udp tcp icmp ip ip6 size=80..900 flows=200 order=random rate=1k count=20k start=1700000000";

/// The flows of a file, by the reference meter.
fn reference(path: &str) -> Vec<Flow> {
    let rules = Rules { active: 60 * SECOND, idle: 15 * SECOND, closed: 2 * SECOND };
    let mut meter = FlowMeter::new(rules);
    for packet in read_packets(&fs::read(path).unwrap()).unwrap() {
        meter.push(packet.time_ns as i64, &packet.data, packet.wire_len as usize);
    }
    meter.finish();
    assert_eq!(meter.not_metered, [0, 0]);
    meter.ended
}

fn ways(flows: &[Flow]) -> impl Iterator<Item = DirectionTotals> {
    flows.iter().flat_map(|flow| flow.ways).flatten()
}

/// Records, packets, bytes.
fn sums(flows: &[Flow]) -> [u64; 3] {
    let sum = |of: fn(&DirectionTotals) -> u64| ways(flows).map(|way| of(&way)).sum();
    [ways(flows).count() as u64, sum(|way| way.packets), sum(|way| way.bytes)]
}

/// A slip of the pen costs no capture: what is read is not written to, under whichever name.
#[test]
fn the_input_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp count=20");
    let before = fs::read(&path).unwrap();
    let link = folder.path().join("link").display().to_string();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let [json, file] = ["json", "file"].map(|way| format!("{way}:{link}"));
    let graph = format!("file({path:?}) -> record({link:?})");
    for words in [
        &["probe", "-r", &path, "--export", &json][..],
        &["probe", "-r", &path, "--export", &file],
        &["capture", "-r", &path, "-w", &link],
        &["run", "-e", &graph],
    ] {
        run(words.iter().copied()).failed_saying(&["packets are read from it"]);
        assert!(fs::read(&path).unwrap() == before, "{words:?}");
    }
}

#[test]
fn contradicting_options_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp count=20");
    for (words, told) in [
        (&["--export", ""][..], "--export names nothing"),
        (&["--export", " , "], "--export names nothing"),
        (&["--biflow"], "name a collector or a file"),
        (&["--idle-timeout", "99999999h"], "--idle-timeout"),
    ] {
        run([&["probe", "-r", &path][..], words].concat()).failed_saying(&[told]);
    }
}

/// A file is all there, so what a collector did not take of its flows is an error, which names the collector.
#[test]
fn a_collector_that_refuses_a_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=20000 count=20k");
    let [one, other] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [left, stays] = [&one, &other].map(|listener| format!("tcp://{}", listener.local_addr().unwrap()));
    let leaver = thread::spawn(move || drop(one.accept().unwrap()));
    let reader =
        thread::spawn(move || std::io::copy(&mut other.accept().unwrap().0, &mut std::io::sink()).unwrap());
    let finished = run(["probe", "-r", &path, "--json", "--export", &format!("{left},{stays}")]);
    leaver.join().unwrap();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().next().expect("results")).expect("JSON");
    let export = &results["results"]["export"][0];
    assert_eq!(export["octets"], reader.join().unwrap(), "the other has all");
    let lost_by = export["lost_by"].as_str().expect("a collector with losses");
    assert!(lost_by.starts_with(&left) && !lost_by.contains(&stays), "{lost_by}");
    assert_eq!(finished.account().value["balanced"], true);
    finished.failed_saying(&["not all was taken", &left, "is gone"]);
}

/// A second interrupt stops the waiting for `--rate`; the flows that were not sent are reported.
#[test]
fn a_second_interrupt_drops_waiting_flows() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=20000 count=20k");
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = collector.local_addr().unwrap().to_string();
    let words = ["probe", "-r", &path, "--rate", "2", "--json", "--export", &to];
    let mut child = tapline(words).stdin(Stdio::null()).spawn().expect("it starts");
    collector.recv(&mut [0; 2048]).expect("a message");
    let interrupt = |child: &Child| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    };
    interrupt(&child);
    let mut told = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    assert!(told.any(|line| line.unwrap().contains("Ctrl-C again")), "it says what can be done");
    interrupt(&child);
    let rest: Vec<String> = told.map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.contains("not all was taken")), "{rest:?}");
    let finished = Finished::new(child.wait_with_output().unwrap());
    let account = finished.account().value.clone();
    let stages = account["stages"].as_array().expect("stages");
    let output = stages.iter().map(|stage| &stage["output"]).find(|output| !output.is_null()).expect("one");
    let [written, lost] = ["written", "lost"].map(|name| output[name].as_u64().unwrap());
    assert!(written > 0 && lost > 0, "{account}");
    assert_eq!(written + lost, account["delivered"].as_u64().unwrap());
    assert_eq!(account["balanced"], true);
}

/// The results and the account of `tapline probe --json`.
fn probe(words: &[&str]) -> (Value, Value) {
    let output = Command::new(TAPLINE).arg("probe").args(words).arg("--json").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Finished::new(output).succeeded();
    let mut objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let results = objects.next().expect("results")["results"].clone();
    let account = objects.next().expect("an account")["account"].clone();
    assert_eq!(account["balanced"], true, "{account}");
    (results, account)
}

#[test]
fn lines_have_every_packet_in_json_and_in_csv() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    run(["generate", "-w", file.to_str().unwrap(), "flows=300", "count=20k", "seed=5"]).succeeded();
    let [json, csv] = ["out.json", "out.csv"].map(|name| folder.path().join(name));
    let to = format!("json:{},csv:{}", json.display(), csv.display());
    let finished = finish(tapline(["probe", "--json", "--export", &to, "-r"]).arg(&file)).succeeded();
    let text = fs::read_to_string(&json).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let packets: u64 = rows.iter().map(|row| row["packetDeltaCount"].as_u64().unwrap()).sum();
    assert_eq!(packets, 20_000);
    let text = fs::read_to_string(&csv).unwrap();
    let (head, lines) = text.split_once('\n').unwrap();
    let at = head.split(',').position(|name| name == "packetDeltaCount").unwrap();
    let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    assert!(lines.lines().all(|line| cells(line).len() == head.split(',').count()));
    assert_eq!(lines.lines().map(|line| cells(line)[at].parse::<u64>().unwrap()).sum::<u64>(), 20_000);
    assert_eq!(lines.lines().count(), rows.len());
    let account = String::from_utf8_lossy(&finished.stdout).into_owned();
    assert!(account.contains("\"balanced\":true"), "{account}");
    // Standard output has the lines and nothing else; the table goes where the account goes.
    let arguments =
        ["probe", "--export", "csv:-", "--top", "3", "--biflow", "--template", "octetDeltaCount", "-r"];
    let finished = finish(tapline(arguments).arg(&file)).succeeded();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    assert!(text.starts_with("octetDeltaCount,reverseOctetDeltaCount\n"), "{text}");
    assert!(
        text.lines().skip(1).all(|line| cells(line).iter().all(|cell| cell.parse::<u64>().is_ok())),
        "{text}"
    );
    assert!(finished.stderr.contains("proto  source"), "{}", finished.stderr);
}

/// Over TCP the whole stream is messages, templates once.
#[test]
fn tcp_carries_the_bytes_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp tcp flows=50 count=2k start=1700000000");
    let out = folder.path().join("flows.ipfix");
    probe(&["-r", &path, "--export", &format!("file:{}", out.display())]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp://{}", listener.local_addr().unwrap());
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut listener.accept().unwrap().0, &mut bytes).unwrap();
        bytes
    });
    probe(&["-r", &path, "--export", &to]);
    assert_eq!(reader.join().unwrap(), fs::read(&out).unwrap());
}

/// Datagrams fit the MTU, begin with templates again as often as was asked for, and several collectors get all or
/// share.
#[test]
fn datagrams_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=300 count=600 start=1700000000");
    let sockets: Vec<UdpSocket> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let to: Vec<String> = sockets.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    let datagrams = |socket: &UdpSocket| {
        support::wait_for_backlog();
        socket.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 70_000];
        let mut all = Vec::new();
        while let Ok(len) = socket.recv(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
        all
    };
    let words = ["-r", &path, "--export", &to.join(","), "--mtu", "600", "--template-messages", "3"];
    probe(&words);
    let [first, second] = [datagrams(&sockets[0]), datagrams(&sockets[1])];
    assert_eq!(first, second);
    assert!(
        first.iter().all(|datagram| datagram.len() <= 600 - 28)
            && first.iter().any(|datagram| datagram.len() > 500)
    );
    for (at, datagram) in first.iter().enumerate() {
        assert_eq!(u16::from_be_bytes([datagram[2], datagram[3]]) as usize, datagram.len());
        // Set 2 comes first in every third message.
        assert_eq!(datagram[16..18] == [0, 2], at % 3 == 0, "message {at}");
    }
    probe(&[&words[..], &["--spread", "flow"]].concat());
    let [first, second] = [datagrams(&sockets[0]), datagrams(&sockets[1])];
    assert!(first.len() > 3 && second.len() > 3);
    assert_ne!(first, second);
}

#[test]
fn the_greatest_flows_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), MIX);
    let flows = reference(&path);
    let (results, _) = probe(&["-r", &path, "--top", "5"]);
    let bytes = |flow: &Flow| flow.ways.iter().flatten().map(|way| way.bytes).sum::<u64>();
    let mut wanted: Vec<u64> = flows.iter().map(bytes).collect();
    wanted.sort_unstable_by(|a, b| b.cmp(a));
    let rows = results["top"].as_array().unwrap();
    let got: Vec<u64> =
        rows.iter().map(|row| row["bytes"].as_u64().unwrap() + row["bytes_back"].as_u64().unwrap()).collect();
    assert_eq!(got, wanted[..5]);
    assert_eq!(results["meter"][0]["flows"], flows.len());
    assert_eq!(results["meter"][0]["packets"], 20_000);
}

#[test]
fn mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp count=10");
    for (words, told) in [
        (&["--export", "sctp://a"][..], "collectors are udp://HOST:PORT"),
        (&["--export", "sctp://a"], "parquet:DIRECTORY"),
        (&["--payload", "20"], "--details payload"),
        (&["--key", "colour"], "vlan, mpls, tunnel"),
        (&["--export", "127.0.0.1:9", "--version", "9", "--biflow"], "only IPFIX has biflows"),
        (&["--export", "127.0.0.1:9", "--template", "octetDelta"], "did you mean octetDeltaCount?"),
        (&["--export", "file:x", "--version", "5"], "TCP, TLS and files"),
        (&["--idle-timeout", "0"], "idle timeout"),
        (&["--export", "127.0.0.1:9", "--version", "5", "--sample", "16384"], "one of 16383 at most"),
        (&["udp prt 53"], "prt"),
    ] {
        let all = [&["probe", "-r", &path][..], words].concat();
        run(all).failed_saying(&[told]);
    }
    run(["probe"]).failed_saying(&["name an interface"]);
}

#[test]
fn a_key_that_does_nothing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp count=10");
    let told = |words: &[&str]| {
        let finished = run([&["probe", "-r", &path][..], words].concat()).succeeded();
        finished.stderr.contains("without --inner")
    };
    assert!(told(&["--key", "vlan,tunnel"]));
    assert!(!told(&["--key", "vlan,tunnel", "--inner"]) && !told(&["--key", "vlan"]));
}

/// The lengths of the messages of a file, which must be whole.
fn messages_of(path: &Path) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let (mut rest, mut lengths) = (bytes.as_slice(), Vec::new());
    while let Some(&[0, 10, high, low]) = rest.first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low]));
        assert!(len <= rest.len(), "half a message");
        rest = &rest[len..];
        lengths.push(len);
    }
    assert!(rest.is_empty(), "half a message");
    lengths
}

/// A disk that becomes full: whole messages were written, and the account counts exactly those.
#[test]
fn a_full_disk_leaves_whole_messages() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=3000 count=6k start=1700000000");
    let out = folder.path().join("flows.ipfix");
    // The file size limit, in blocks of 512 bytes, makes the write fail that would exceed it.
    let script = format!(
        "trap '' XFSZ; ulimit -f 100; exec {TAPLINE} probe -r {path} --export file:{} --json",
        out.display()
    );
    let finished = support::finish(Command::new("sh").args(["-c", &script]));
    finished.failed_saying(&["File too large", "the messages before are there"]);
    let account = finished.account();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let export = &results["results"]["export"][0];
    let stages = account.value["stages"].as_array().unwrap();
    let output = &stages.iter().find(|stage| stage["class"] == "ipfix").unwrap()["output"];
    let lengths = messages_of(&out);
    let count = |name: &str| export[name].as_u64().unwrap();
    assert!(!lengths.is_empty() && lengths.iter().sum::<usize>() <= 100 * 512);
    assert_eq!(lengths.len() as u64, count("messages") - count("messages_lost"));
    let (written, lost) = (output["written"].as_u64().unwrap(), output["lost"].as_u64().unwrap());
    assert!(written > 0 && lost > 0);
    if program_or_skip("a_full_disk_leaves_whole_messages", "tshark") {
        let packets: u64 = numbers(&tshark(&out, &["cflow.packets"]), 0).iter().sum();
        assert_eq!(packets, written);
    }
    let full = run(["probe", "-r", &path, "--export", "file:/dev/full", "--json"]);
    full.failed_saying(&["No space left"]);
    assert_eq!(full.account().value["lost"], 6000);
}

/// Live: packets of a virtual link, IPFIX over loopback, all of it accounted for; flows end while the link is silent.
#[test]
fn flows_of_an_interface_reach_a_collector() {
    const TEST: &str = "flows_of_an_interface_reach_a_collector";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("probe").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let to = socket.local_addr().unwrap().to_string();
    let mut command = support::tapline(["probe", "--netns", namespace.name(), "-i", FAR, "--json"]);
    command.args(["--idle-timeout", "500ms", "--export", &to, "ip or ip6"]);
    let live = Live::start_command(&namespace, 1, &mut command);
    let sent = Sender::near(&namespace)
        .unwrap()
        .send(&support::frames(1, 3000), 3000, Pace::PerSecond(20_000))
        .unwrap();
    assert_eq!(sent.packets, 3000);
    // Nothing more comes, and yet there are records.
    let mut message = [0; 2000];
    let len = socket.recv(&mut message).expect("a message");
    assert!(len > 100 && message[..2] == [0, 10]);
    let finished = live.interrupt().succeeded();
    let account = finished.account();
    let stages = account.value["stages"].as_array().unwrap();
    let stage = |class: &str| stages.iter().find(|stage| stage["class"] == class).unwrap();
    let refused: u64 = ["filter", "flow"].map(|class| stage(class)["refused"].as_u64().unwrap()).iter().sum();
    let written = stage("ipfix")["output"]["written"].as_u64().unwrap();
    assert_eq!(written, account.value["delivered"].as_u64().unwrap() - refused);
    assert!(written > 0);
}

/// SIGHUP, as logrotate sends it, ends no probe: a file of lines that was renamed is opened again.
#[test]
fn a_hang_up_opens_files_again_and_ends_nothing() {
    const TEST: &str = "a_hang_up_opens_files_again_and_ends_nothing";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("hup").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [file, old] = ["flows.csv", "flows.csv.1"].map(|name| folder.path().join(name));
    let [messages, old_messages] = ["flows.ipfix", "flows.ipfix.1"].map(|name| folder.path().join(name));
    let to = format!("csv:{},file:{}", file.display(), messages.display());
    let mut command = support::tapline(["probe", "--netns", namespace.name(), "-i", FAR, "--json"]);
    command.args(["--idle-timeout", "500ms", "--export", &to]);
    let live = Live::start_command(&namespace, 1, &mut command);
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let send = |seed: u64| {
        Sender::near(&namespace)
            .unwrap()
            .send(&support::frames(seed, 100), 100, Pace::PerSecond(20_000))
            .unwrap();
    };
    send(1);
    wait_for("flows in the file", || lines(&file) > 1);
    fs::rename(&file, &old).unwrap();
    fs::rename(&messages, &old_messages).unwrap();
    live.signal("HUP");
    wait_for("the new files", || file.exists() && messages.exists());
    let before = lines(&old);
    send(2);
    wait_for("flows in the new file", || lines(&file) > 1);
    assert_eq!(lines(&old), before, "nothing more comes into the file before");
    let header = |path: &Path| fs::read_to_string(path).unwrap().lines().next().map(str::to_owned);
    assert_eq!(header(&file), header(&old), "each file of CSV has its header");
    let finished = live.interrupt().succeeded();
    assert!(finished.stderr.contains("opened again"), "{}", finished.stderr);
}

/// The values of fields that tshark finds in a file of messages: one line for each field.
fn tshark(path: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn numbers(lines: &[String], at: usize) -> Vec<u64> {
    let column = lines.iter().filter_map(|line| line.split('\t').nth(at));
    column.flat_map(|cell| cell.split(',')).filter_map(|number| number.parse().ok()).collect()
}
