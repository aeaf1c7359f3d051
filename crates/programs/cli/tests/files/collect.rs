//! `tapline collect-flows`: what exporters send is what comes out, flow by flow and in sum.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use serde_json::Value;

/// A command that listens on a port of its own.
struct Listening {
    child: Child,
    port: u16,
    rest: BufReader<std::process::ChildStderr>,
}

impl Listening {
    fn start(arguments: &[&str]) -> Listening {
        let mut command = tapline(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tapline starts");
        let mut rest = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(rest.read_line(&mut line).expect("lines") > 0, "it ended");
        }
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Listening { child, port, rest }
    }

    fn collector(more: &[&str]) -> Listening {
        Listening::start(&[&["collect-flows", "--listen", "udp://127.0.0.1:0"], more].concat())
    }

    fn to(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ctrl-C, with what came until then still read. Its standard output and error.
    fn interrupt(mut self) -> (String, String) {
        let pid = self.child.id();
        wait_for("it catches signals", || catches_interrupts(pid));
        wait_for_backlog();
        let killed = Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill runs");
        assert!(killed.success());
        let (mut out, mut told) = (String::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
        self.rest.read_to_string(&mut told).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{told}");
        (out, told)
    }
}

/// 400 packets of 60 flows, IPv4 and IPv6.
fn trace(folder: &Path) -> PathBuf {
    let path = folder.join("trace.pcap");
    let recipe = [
        "generate",
        "-w",
        text(&path),
        "count=400",
        "udp",
        "tcp",
        "icmp",
        "ip",
        "ip6",
        "size=80..300",
        "flows=60",
        "rate=1k",
        "seed=7",
    ];
    run(recipe.iter().chain(&["start=1700000000"])).succeeded();
    path
}

/// Packets and octets of each record: by both ends, protocol and the times in milliseconds.
fn records(path: &Path) -> BTreeMap<String, (u64, u64)> {
    let mut all = BTreeMap::new();
    for line in fs::read_to_string(path).expect("lines were written").lines() {
        let record: Value = serde_json::from_str(line).expect("an object a line");
        let word = |name: &str| record[name].to_string();
        let either = |v4: &str, v6: &str| if record[v4].is_null() { word(v6) } else { word(v4) };
        let millis = |name: &str| word(name).get(..24).unwrap_or_default().to_owned();
        let key = [
            either("sourceIPv4Address", "sourceIPv6Address"),
            word("sourceTransportPort"),
            either("destinationIPv4Address", "destinationIPv6Address"),
            word("destinationTransportPort"),
            word("protocolIdentifier"),
            millis("flowStartNanoseconds"),
            millis("flowEndNanoseconds"),
        ];
        let number = |name: &str| record[name].as_u64().expect("a number");
        let counts = (number("packetDeltaCount"), number("octetDeltaCount"));
        assert!(all.insert(key.join(" "), counts).is_none(), "twice: {line}");
    }
    all
}

fn results(out: &str) -> (Value, Value) {
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    (lines[0]["results"].clone(), lines[1]["account"].clone())
}

#[test]
fn our_exporters_records_come_back_whole() {
    let folder = tempfile::tempdir().expect("there is room");
    let trace = trace(folder.path());
    let metered = folder.path().join("metered.json");
    run(["probe", "-r", text(&trace), "--export", &format!("json:{}", metered.display())]).succeeded();
    let metered = records(&metered);
    for version in ["5", "9", "10"] {
        let collected = folder.path().join(format!("collected{version}.json"));
        let listening =
            Listening::collector(&["--json", "--export", &format!("json:{}", collected.display())]);
        run(["probe", "-r", text(&trace), "--version", version, "--export", &listening.to()]);
        let (out, told) = listening.interrupt();
        let collected = records(&collected);
        // Version 5 has no place for IPv6.
        let wanted: BTreeMap<_, _> =
            metered.clone().into_iter().filter(|(key, _)| version != "5" || !key.contains("::")).collect();
        assert_eq!(collected, wanted, "version {version}");
        let (results, account) = results(&out);
        assert_eq!(account["balanced"], true, "{account} {told}");
        let source = &results["sources"][0];
        let packets: u64 = wanted.values().map(|(packets, _)| packets).sum();
        assert_eq!((&source["packets"], &source["lost"]), (&packets.into(), &0.into()), "{source}");
        assert_eq!((&source["exporter"], &source["domain"]), (&"127.0.0.1".into(), &1.into()), "{source}");
        let stages = account["stages"].as_array().expect("stages");
        let lines = stages.iter().find(|stage| stage["name"] == "lines0").expect("the lines");
        assert_eq!((&lines["reported"], &lines["output"]["written"]), (&packets.into(), &packets.into()));
    }
}

/// The datagrams of a socket are packets: kept in a file, they are collected from there, and exported again.
#[test]
fn messages_in_a_file_are_collected() {
    let folder = tempfile::tempdir().expect("there is room");
    let [trace, kept] = [trace(folder.path()), folder.path().join("export.pcap")];
    let graph = format!("listen(\"udp://127.0.0.1:0\") -> record(\"{}\")", kept.display());
    let listening = Listening::start(&["run", "-e", &graph]);
    run(["probe", "-r", text(&trace), "--export", &listening.to()]).succeeded();
    listening.interrupt();
    let [once, again] = ["once.json", "again.json"].map(|name| folder.path().join(name));
    let ipfix = folder.path().join("again.ipfix");
    let to = format!("json:{},file:{}", once.display(), ipfix.display());
    let told = run(["collect-flows", "-r", text(&kept), "--export", &to, "--json"]).succeeded();
    let (results, account) = results(&String::from_utf8_lossy(&told.stdout));
    assert_eq!(account["balanced"], true, "{account}");
    run(["probe", "-r", text(&trace), "--export", &format!("json:{}", again.display())]).succeeded();
    assert_eq!(records(&once), records(&again));
    assert_eq!(results["sources"][0]["flows"].as_u64(), Some(records(&once).len() as u64));
    let stages = account["stages"].as_array().expect("stages");
    let reported =
        |name: &str| stages.iter().find(|stage| stage["name"] == name).map(|stage| &stage["reported"]);
    assert_eq!(reported("export"), reported("lines0"));
    // Each record tells its exporter.
    let line: Value =
        serde_json::from_str(fs::read_to_string(&once).expect("lines").lines().next().expect("a line"))
            .expect("an object");
    assert_eq!(line["exporterIPv4Address"], "127.0.0.1");
}

#[test]
fn the_table_shows_flows_and_sources() {
    let folder = tempfile::tempdir().expect("there is room");
    let trace = trace(folder.path());
    let listening = Listening::collector(&["--top", "3", "--account", "full"]);
    run(["probe", "-r", text(&trace), "--version", "9", "--export", &listening.to()]).succeeded();
    let (out, told) = listening.interrupt();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("proto  source"), "{out}");
    assert!(lines[4].starts_with("exporter   protocol  domain  datagrams  flows"), "{out}");
    assert!(lines[5].starts_with("127.0.0.1  v9"), "{out}");
    assert!(lines[6].contains(" flows  400 packets"), "{out}");
    assert!(told.contains("udp://127.0.0.1:") && told.contains("LOST"), "{told}");
    assert!(told.contains("balanced: every packet is accounted for"), "{told}");
}

#[test]
fn templates_outlast_the_collector() {
    let folder = tempfile::tempdir().expect("there is room");
    let trace = trace(folder.path());
    let [kept, templates] = ["export.pcap", "templates"].map(|name| folder.path().join(name));
    let graph = format!("listen(\"udp://127.0.0.1:0\") -> record(\"{}\")", kept.display());
    let listening = Listening::start(&["run", "-e", &graph]);
    let small = ["--mtu", "400", "--template-messages", "1000"];
    let export = listening.to();
    run(["probe", "-r", text(&trace), "--export", &export].iter().chain(&small)).succeeded();
    listening.interrupt();
    // The templates are in the first datagram only.
    let rest = folder.path().join("rest.pcap");
    let all = packets_of(&kept).len();
    assert!(all > 3, "{all} datagrams");
    let bytes = fs::read(&kept).expect("a file");
    let behind = behind_first_packet(&bytes);
    fs::write(&rest, [&bytes[..24], &bytes[behind..]].concat()).expect("there is room");
    let flows = |more: &[&str], file: &Path| {
        let told = run([&["collect-flows", "-r", text(file), "--json"], more].concat()).succeeded();
        let (results, _) = results(&String::from_utf8_lossy(&told.stdout));
        let source = &results["sources"][0];
        (source["flows"].as_u64().expect("a number"), source["no_template"].as_u64().expect("a number"))
    };
    let keeping = ["--templates", text(&templates)];
    let (none, refused) = flows(&[], &rest);
    assert!(none == 0 && refused > 0, "{none} {refused}");
    let (whole, _) = flows(&keeping, &kept);
    let (known, refused) = flows(&keeping, &rest);
    assert!(known > 0 && known < whole && refused == 0, "{known} of {whole}, {refused}");
}

/// The place of the second packet of a pcap file in this machine's byte order.
fn behind_first_packet(bytes: &[u8]) -> usize {
    let len: [u8; 4] = bytes[32..36].try_into().expect("a record");
    24 + 16 + u32::from_le_bytes(len) as usize
}

/// Messages of a trace, in a file.
fn messages_of(trace: &Path, folder: &Path) -> PathBuf {
    let kept = folder.join("export.pcap");
    let graph = format!("listen(\"udp://127.0.0.1:0\") -> record(\"{}\")", kept.display());
    let listening = Listening::start(&["run", "-e", &graph]);
    run(["probe", "-r", text(trace), "--export", &listening.to()]).succeeded();
    listening.interrupt();
    kept
}

/// A file has the same messages whether its records are made of flows, which the table needs, or without them.
#[test]
fn files_are_equal_with_and_without_flows() {
    let folder = tempfile::tempdir().expect("there is room");
    let kept = messages_of(&trace(folder.path()), folder.path());
    let collected = |name: &str, more: &[&str]| {
        let file = folder.path().join(name);
        let to = format!("file:{}", file.display());
        let told = run([&["collect-flows", "-r", text(&kept), "--json", "--export", &to], more].concat());
        let (results, account) = results(&String::from_utf8_lossy(&told.succeeded().stdout));
        assert_eq!(account["balanced"], true, "{account}");
        let stages = account["stages"].as_array().expect("stages").clone();
        let export = stages.into_iter().find(|stage| stage["name"] == "export").expect("a stage");
        (
            fs::read(file).expect("it was made"),
            results["sources"].clone(),
            results["export"].clone(),
            export["reported"].clone(),
        )
    };
    let (octets, sources, export, reported) = collected("without.ipfix", &[]);
    assert!(octets.len() > 5_000 && reported.as_u64() > Some(0), "{} {reported}", octets.len());
    assert_eq!(collected("with.ipfix", &["--top", "3"]), (octets, sources, export, reported));
}

/// A filter is asked about the flows, that of `--messages` about the datagrams.
#[test]
fn the_filter_is_asked_about_flows() {
    let folder = tempfile::tempdir().expect("there is room");
    let kept = messages_of(&trace(folder.path()), folder.path());
    let lines = folder.path().join("lines.json");
    let collected = |more: &[&str]| {
        let to = format!("json:{}", lines.display());
        let told = run([&["collect-flows", "-r", text(&kept), "--json", "--export", &to], more].concat());
        let (results, account) = results(&String::from_utf8_lossy(&told.succeeded().stdout));
        assert_eq!(account["balanced"], true, "{account}");
        let protocols = fs::read_to_string(&lines).expect("lines were written");
        let protocols = protocols.lines().map(|line| {
            let record: Value = serde_json::from_str(line).expect("an object a line");
            record["protocolIdentifier"].as_u64().expect("a number")
        });
        let number = |name: &str| results["sources"][0][name].as_u64().unwrap_or(0);
        (protocols.collect::<Vec<u64>>(), number("flows"), number("filtered"))
    };
    let (all, flows, filtered) = collected(&[]);
    let tcp = all.iter().filter(|protocol| **protocol == 6).count() as u64;
    assert!(tcp > 0 && tcp < flows && filtered == 0 && flows == all.len() as u64, "{all:?}");
    let (some, flows, filtered) = collected(&["tcp"]);
    assert!(some.iter().all(|protocol| *protocol == 6));
    assert_eq!((some.len() as u64, flows, filtered), (tcp, tcp, all.len() as u64 - tcp));
    assert_eq!(collected(&["not net 127.0.0.0/8"]).0, all, "the exporter is not an end of a flow");
    assert_eq!(collected(&["--messages", "udp and net 127.0.0.0/8"]).0, all);
    assert!(collected(&["--messages", "tcp"]).0.is_empty());
    run(["collect-flows", "-r", text(&kept), "--messages", "udp prot 1"]).failed_saying(&["prot"]);
    run(["collect-flows", "-r", text(&kept), "greater 100"]).failed_saying(&["length of a packet", "a flow"]);
}

/// Each format takes what each command gives it without a template.
#[test]
fn every_format_takes_the_defaults() {
    let folder = tempfile::tempdir().expect("there is room");
    let trace = trace(folder.path());
    let kept = messages_of(&trace, folder.path());
    for (command, input) in [("collect-flows", &kept), ("probe", &trace)] {
        for format in ["json", "goflow", "ipfix", "native"] {
            let path = folder.path().join(format!("{command}.{format}"));
            let to = format!("batch+file:{}?format={format}", path.display());
            run([command, "-r", text(input), "--export", &to]).succeeded();
            assert!(fs::metadata(&path).expect("it was written").len() > 1000, "{command} {format}");
        }
        for version in ["5", "9", "10"] {
            let listening = Listening::collector(&["--json"]);
            run([command, "-r", text(input), "--version", version, "--export", &listening.to()]).succeeded();
            let (results, _) = results(&listening.interrupt().0);
            assert!(results["sources"][0]["flows"].as_u64() > Some(0), "{command} {version}: {results}");
        }
        for format in ["json", "csv", "file"] {
            let to = format!("{format}:{}", folder.path().join(format).display());
            run([command, "-r", text(input), "--export", &to]).succeeded();
        }
    }
}

#[test]
fn mistakes_are_told() {
    run(["collect-flows"]).failed_saying(&["no messages", "--listen udp://:4739"]);
    run(["collect-flows", "--listen", "tcp://:1"]).failed_saying(&["--listen", "`tcp://:1`", "udp://:4739"]);
    run(["collect-flows", "--listen", ":1", "-r", "x"]).failed_saying(&["cannot be used with"]);
}

/// The sums of nfdump, of flows, packets and octets.
fn nfdump_sums(folder: &Path) -> Option<[u64; 3]> {
    let told = Command::new("nfdump").args(["-I", "-R", text(folder)]).output().ok()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let number = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some([number("Flows:")?, number("Packets:")?, number("Bytes:")?])
}

/// Flows of softflowd have the same sums with nfcapd and with us.
#[test]
fn softflowds_flows_sum_as_nfcapd_has_them() {
    const TEST: &str = "softflowds_flows_sum_as_nfcapd_has_them";
    if ["softflowd", "nfcapd", "nfdump"].iter().any(|program| !program_or_skip(TEST, program)) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let trace = trace(folder.path());
    for version in ["5", "9", "10"] {
        let into = folder.path().join(format!("nfcapd{version}"));
        fs::create_dir(&into).expect("there is room");
        let kept = folder.path().join(format!("soft{version}.pcap"));
        let graph = format!("listen(\"udp://127.0.0.1:0\") -> record(\"{}\")", kept.display());
        let listening = Listening::start(&["run", "-e", &graph]);
        let softflowd = |to: &str| {
            let arguments = ["-r", text(&trace), "-n", to, "-v", version, "-d"];
            let ran = Command::new("softflowd").args(arguments).output().expect("softflowd runs");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        };
        softflowd(&listening.to());
        listening.interrupt();
        let told = run(["collect-flows", "-r", text(&kept), "--json"]).succeeded();
        let (results, _) = results(&String::from_utf8_lossy(&told.stdout));
        let sum = |name: &str| -> u64 {
            let rows = results["sources"].as_array().expect("rows");
            rows.iter().map(|row| row[name].as_u64().expect("a number")).sum()
        };
        let ours = [sum("flows"), sum("packets"), sum("bytes")];
        assert!(ours.iter().all(|number| *number > 0), "version {version}: {results}");
        let port = free_port();
        let mut nfcapd = Command::new("nfcapd")
            .args(["-l", text(&into), "-p", &port.to_string(), "-b", &HOST.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfcapd starts");
        wait_for("nfcapd listens", || is_bound(port));
        softflowd(&format!("{HOST}:{port}"));
        // What waits in its socket would go with it.
        wait_for_backlog();
        wait_for("nfcapd reads what came", || has_read_all(port));
        let killed = Command::new("kill").args(["-TERM", &nfcapd.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        nfcapd.wait().expect("it ends");
        assert_eq!(nfdump_sums(&into), Some(ours), "version {version}");
    }
}

/// Address of nfcapd, at which no other test has a socket.
const HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let socket = std::net::UdpSocket::bind((HOST, 0)).expect("loopback is there");
    socket.local_addr().expect("it is bound").port()
}

/// Whether nothing waits in the UDP socket of this port: the receive queue is the number after that of the send queue.
fn has_read_all(port: u16) -> bool {
    socket_at(port).is_some_and(|queues| queues.ends_with(":00000000"))
}

/// Whether a UDP socket of this machine has the port.
fn is_bound(port: u16) -> bool {
    socket_at(port).is_some()
}

/// The queues of the UDP socket with this port.
fn socket_at(port: u16) -> Option<String> {
    let sockets = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let address = format!(" {:08X}:{port:04X} ", u32::from_ne_bytes(HOST.octets()));
    let row = sockets.lines().find(|line| line.contains(&address))?;
    row.split_whitespace().nth(4).map(str::to_owned)
}
