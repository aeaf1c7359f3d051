//! `tapline probe`: what it sends is decoded by collectors and dissectors that are not ours, and sums to what a slow meter counts.

use crate::support;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::{Finished, Live, TAPLINE, finish, program_or_skip, run, tapline, wait_for};
use serde_json::Value;
use tapline_testkit::capture_file::read_packets;
use tapline_testkit::flow_meter::{Flow, FlowMeter, Rules, Way};
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

/// What the slow meter makes of a file.
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

fn ways(flows: &[Flow]) -> impl Iterator<Item = Way> {
    flows.iter().flat_map(|flow| flow.ways).flatten()
}

/// Records, packets, bytes.
fn sums(flows: &[Flow]) -> [u64; 3] {
    let sum = |of: fn(&Way) -> u64| ways(flows).map(|way| of(&way)).sum();
    [ways(flows).count() as u64, sum(|way| way.packets), sum(|way| way.bytes)]
}

/// A slip of the pen costs no capture: what is read is not written to, under whichever name.
#[test]
fn what_is_read_is_not_overwritten() {
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
fn what_makes_no_sense_is_said() {
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
fn what_a_collector_does_not_take_of_a_file_is_an_error() {
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
    let lost_by = export["lost_by"].as_str().expect("somebody lost some");
    assert!(lost_by.starts_with(&left) && !lost_by.contains(&stays), "{lost_by}");
    assert_eq!(finished.account().value["balanced"], true);
    finished.failed_saying(&["not all was taken", &left, "is gone"]);
}

/// Whoever has no time for `--rate` any more says so twice, and is told what was not sent.
#[test]
fn a_second_interrupt_leaves_what_waits_for_the_rate() {
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

/// A collector that keeps what comes in a folder; ended when dropped.
struct Nfcapd(Child, u16);

impl Nfcapd {
    fn start(folder: &Path) -> Nfcapd {
        // A port that nobody has: whoever takes it in between makes the test fail, and that is seldom.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("nfcapd")
            .arg("-l")
            .arg(folder)
            // A file each two seconds: what stands in files was stored.
            .args(["-b", "127.0.0.1", "-B", "8000000", "-t", "2", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfcapd starts");
        let nfcapd = Nfcapd(child, port);
        wait_for("nfcapd listens", || {
            let listening = fs::read_to_string("/proc/net/udp").unwrap_or_default();
            listening.contains(&format!("0100007F:{port:04X} "))
        });
        nfcapd
    }

    /// Waits until so many records stand in its files, and ends it.
    fn finish(mut self, folder: &Path, records: usize) {
        wait_for("nfcapd stores all", || told_by_nfdump(folder).len() >= records);
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Drop for Nfcapd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records as nfdump tells them: protocol, addresses, ports, packets, bytes, first and last in milliseconds.
type Told = (u64, String, String, u64, u64, u64, u64, i64, i64);

fn told_by_nfdump(folder: &Path) -> Vec<Told> {
    let output = Command::new("nfdump")
        .arg("-R")
        .arg(folder)
        .args(["-q", "-o", "json"])
        .env("TZ", "UTC")
        .output()
        .expect("nfdump starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Without its frame (-q) the array has no brackets; where there is nothing it says so in words.
    let objects = text.find('{').map_or("", |at| &text[at..]);
    let text = format!("[{}]", objects.trim().trim_end_matches([']', ',']));
    let records: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut told: Vec<Told> = records.iter().map(told).collect();
    told.sort();
    told
}

fn told(record: &Value) -> Told {
    let number = |name: &str| record[name].as_u64().unwrap_or(0);
    let text =
        |v4: &str, v6: &str| record[v4].as_str().or(record[v6].as_str()).unwrap_or_default().to_owned();
    let is_icmp = matches!(number("proto"), 1 | 58);
    let ports = match is_icmp {
        true => (0, number("icmp_type") << 8 | number("icmp_code")),
        false => (number("src_port"), number("dst_port")),
    };
    (
        number("proto"),
        text("src4_addr", "src6_addr"),
        text("dst4_addr", "dst6_addr"),
        ports.0,
        ports.1,
        number("in_packets"),
        number("in_bytes"),
        millis(record["first"].as_str().unwrap_or_default()),
        millis(record["last"].as_str().unwrap_or_default()),
    )
}

/// Of the time within the day.
fn millis(text: &str) -> i64 {
    let time = text.split('T').nth(1).unwrap_or_default();
    let parts: Vec<&str> = time.split([':', '.']).collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<i64>().ok()).unwrap_or(0);
    ((number(0) * 60 + number(1)) * 60 + number(2)) * 1000 + number(3)
}

fn told_by_reference(flows: &[Flow], has_v6: bool) -> Vec<Told> {
    let mut all = Vec::new();
    for flow in flows {
        for (at, way) in flow.ways.iter().enumerate() {
            let Some(way) = way else { continue };
            let (from, to) = (flow.ends[at], flow.ends[1 - at]);
            let within = |time: i64| time / 1_000_000 % 86_400_000;
            let times = (within(way.times.0), within(way.times.1));
            if has_v6 || from.0.is_ipv4() {
                let (source, destination) = (from.0.to_string(), to.0.to_string());
                all.push((
                    u64::from(flow.protocol),
                    source,
                    destination,
                    from.1.into(),
                    to.1.into(),
                    way.packets,
                    way.bytes,
                    times.0,
                    times.1,
                ));
            }
        }
    }
    all.sort();
    all
}

/// nfcapd and nfdump have every record of each version, to the millisecond.
#[test]
fn nfdump_tells_what_the_slow_meter_counts() {
    const TEST: &str = "nfdump_tells_what_the_slow_meter_counts";
    if !program_or_skip(TEST, "nfcapd") || !program_or_skip(TEST, "nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), MIX);
    let flows = reference(&path);
    // Elements that it does not know it leaves out, also such whose lengths vary.
    let details = "tcp,sizes,gaps,dns,tls,http,application,payload";
    for (version, details) in [("5", "none"), ("9", "none"), ("10", "none"), ("10", details)] {
        let into = folder.path().join(format!("{version}-{details}"));
        fs::create_dir(&into).unwrap();
        let nfcapd = Nfcapd::start(&into);
        let to = format!("127.0.0.1:{}", nfcapd.1);
        let more = ["--version", version, "--rate", "500", "--details", details];
        let (results, account) = probe(&[&["-r", &path, "--export", &to][..], &more].concat());
        let wanted = told_by_reference(&flows, version != "5");
        nfcapd.finish(&into, wanted.len());
        let got = told_by_nfdump(&into);
        assert_eq!(got.len(), wanted.len(), "version {version}");
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_eq!(got, wanted, "version {version}");
        }
        let export = &results["export"][0];
        assert_eq!(export["records"], wanted.len());
        // What has no place in version 5 is in the account as lost.
        let left_out = export["packets_left_out"].as_u64().unwrap();
        assert_eq!(left_out > 0, version == "5");
        assert_eq!(account["lost"], left_out);
    }
}

/// What tshark finds in a file of messages: one line for each field that was asked for.
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

/// tshark reads files of IPFIX, finds nothing wrong, and every record is there; sequence numbers begin at 0 and count data records.
/// Community IDs are those that tshark reckons of each packet.
#[test]
fn lines_of_json_agree_with_tshark() {
    const TEST: &str = "lines_of_json_agree_with_tshark";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), &MIX.replace("count=20k", "count=2k"));
    let finished = run(["probe", "--export", "json:-", "-r", &path]).succeeded();
    let text = String::from_utf8(finished.stdout).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let ours: BTreeSet<String> = rows.map(|row| row["communityId"].as_str().unwrap().to_owned()).collect();
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", &path, "--enable-protocol", "communityid", "-T", "fields", "-e", "communityid"]);
    let told = finish(&mut tshark);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let theirs: BTreeSet<String> = told.split_whitespace().map(str::to_owned).collect();
    assert!(theirs.len() > 100, "{told}");
    assert_eq!(ours, theirs);
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

#[test]
fn tshark_reads_files_of_ipfix() {
    const TEST: &str = "tshark_reads_files_of_ipfix";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), MIX);
    let flows = reference(&path);
    let [records, packets, bytes] = sums(&flows);
    let out = folder.path().join("flows.ipfix");
    probe(&["-r", &path, "--export", &format!("file:{}", out.display()), "--sample", "1"]);
    let fields = [
        "cflow.sequence",
        "cflow.packets",
        "cflow.octets",
        "_ws.malformed",
        "_ws.expert.message",
        "cflow.exporttime",
    ];
    let lines = tshark(&out, &fields);
    let column = |at: usize| numbers(&lines, at);
    assert_eq!(column(1).len() as u64, records);
    assert_eq!([column(1).iter().sum::<u64>(), column(2).iter().sum()], [packets, bytes]);
    for line in &lines {
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!((cells[3], cells[4]), ("", ""), "{line}");
    }
    let mut before = 0;
    for line in &lines {
        let one = std::slice::from_ref(line);
        assert_eq!(numbers(one, 0), [before]);
        before += numbers(one, 1).len() as u64;
    }
    // Of the capture's time, not of today.
    assert!(column(5).iter().all(|time| (1_700_000_000..1_700_000_100).contains(time)), "{:?}", column(5));
}

/// Both directions in one record, with the reverse elements of RFC 5103, sampling told in options, fields of our choice.
#[test]
fn biflows_and_options_are_read_too() {
    const TEST: &str = "biflows_and_options_are_read_too";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), MIX);
    let [_, packets, bytes] = sums(&reference(&path));
    let out = folder.path().join("flows.ipfix");
    let to = format!("file:{}", out.display());
    let template = "sourceIPv4Address,destinationIPv4Address,flowStartNanoseconds,packetDeltaCount,octetDeltaCount,initialTCPFlags";
    probe(&["-r", &path, "--export", &to, "--biflow", "--template", template]);
    let lines = tshark(&out, &["cflow.packets", "cflow.octets", "_ws.malformed"]);
    // tshark tells reverse elements under the same names.
    assert_eq!(numbers(&lines, 0).iter().sum::<u64>(), packets);
    assert_eq!(numbers(&lines, 1).iter().sum::<u64>(), bytes);
    assert!(lines.iter().all(|line| line.ends_with('\t')), "{lines:?}");
    let (results, account) = probe(&["-r", &path, "--export", &to, "--sample", "10"]);
    assert_eq!(results["meter"][0]["sampled_out"], 18_000);
    assert_eq!(account["lost"], 0);
    let lines = tshark(
        &out,
        &["cflow.sampling_interval", "cflow.sampling_algorithm", "cflow.packets", "_ws.malformed"],
    );
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (vec![10], vec![2]));
    assert_eq!(numbers(&lines, 2).iter().sum::<u64>(), 2_000);
}

/// Over TCP the whole stream is messages, templates once.
#[test]
fn tcp_carries_what_files_hold() {
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

/// Datagrams fit the MTU, begin with templates again as often as was asked for, and several collectors get all or share.
#[test]
fn datagrams_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=300 count=600 start=1700000000");
    let sockets: Vec<UdpSocket> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let to: Vec<String> = sockets.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    let datagrams = |socket: &UdpSocket| {
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
        (&["--export", "file:x", "--version", "5"], "TCP and files"),
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

/// A disk that becomes full: what was written is whole messages, and the account tells exactly those.
#[test]
fn what_a_full_disk_took_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "udp flows=3000 count=6k start=1700000000");
    let out = folder.path().join("flows.ipfix");
    // No file may grow beyond so many blocks of 512 bytes; the write that would be cut short fails then.
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
    if program_or_skip("what_a_full_disk_took_is_whole", "tshark") {
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
