//! `tapline generate` and the source `generate`: files that other programs read without complaint, the same for the
//! same recipe.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Finished, Live, TAPLINE, bytes_of, packets_of, program_or_skip};
use serde_json::Value;
use tapline_testkit::capture_file::{StoredPacket, read_packets};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};

fn tapline(folder: &Path, arguments: &[&str]) -> Finished {
    Finished::new(Command::new(TAPLINE).current_dir(folder).args(arguments).output().expect("it starts"))
}

/// Runs `tapline generate --json -w FILE` with the words of a recipe, and gives how many packets were written.
fn generate(folder: &Path, file: &str, recipe: &str) -> u64 {
    let words =
        [&["generate", "--json", "-w", file][..], &recipe.split_whitespace().collect::<Vec<_>>()].concat();
    let account = tapline(folder, &words).succeeded().account();
    assert_eq!(account.count("delivered"), account.output("written"), "{recipe}");
    account.output("written")
}

/// tshark's result for each checksum of each packet: 0 bad, 1 good, 2 unchecked, 3 absent.
fn checksums(folder: &Path, file: &str) -> Vec<Vec<char>> {
    let fields = ["ip", "tcp", "udp", "icmp", "icmpv6"].map(|name| format!("{name}.checksum.status"));
    let mut command = Command::new("tshark");
    command.current_dir(folder).args(["-n", "-r", file, "-T", "fields"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for field in &fields {
        command.args(["-e", field]);
    }
    let output = command.stderr(Stdio::null()).output().expect("tshark starts");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.chars().filter(char::is_ascii_digit).collect()).collect()
}

const RECIPES: [&str; 7] = [
    "udp tcp icmp ip ip6 size=78..400 flows=30",
    "udp tcp size=imix payload=random flows=7 walk=random gaps=poisson rate=1M",
    "udp tcp icmp ip ip6 size=200 vlan=100.5 mpls=16.17 vxlan=42 mark flows=60",
    "tcp ip ip6 size=1514 segments=3 flows=9 payload=counting",
    "udp icmp ip ip6 size=121 mark payload=text tos=184 ttl=1",
    "udp tcp ip ip6 size=3000 fragment=576 mark flows=5",
    "match=tcp share=1/3 flows=30 size=100",
];

#[test]
fn tshark_finds_every_checksum_right() {
    const TEST: &str = "tshark_finds_every_checksum_right";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for recipe in RECIPES {
        generate(folder.path(), "a.pcapng", &format!("{recipe} count=600"));
        let found = checksums(folder.path(), "a.pcapng");
        assert_eq!(found.len(), 600, "{recipe}");
        let is_right = |states: &Vec<char>| states.iter().all(|state| matches!(state, '1' | '2' | '3'));
        assert!(found.iter().all(is_right), "{recipe}: {:?}", found.iter().find(|states| !is_right(states)));
        let good = found.iter().filter(|states| states.contains(&'1')).count();
        assert!(good > 300, "{recipe}: {good} were looked at");
    }
    // The same eyes see what is wrong.
    generate(folder.path(), "a.pcapng", "udp icmp ip ip6 flows=8 size=100 bad=checksum:1/4 count=600");
    let bad = checksums(folder.path(), "a.pcapng").iter().filter(|states| states.contains(&'0')).count();
    assert_eq!(bad, 150);
    generate(folder.path(), "a.pcapng", "tcp flows=8 size=100 bad=ip-checksum:1/4 count=600");
    let bad = checksums(folder.path(), "a.pcapng").iter().filter(|states| states[0] == '0').count();
    assert_eq!(bad, 150);
}

#[test]
fn tcpdump_parses_every_packet() {
    const TEST: &str = "tcpdump_parses_every_packet";
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let print = |filter: &str| {
        let mut command = Command::new("tcpdump");
        command.current_dir(folder.path()).args(["-n", "-v", "-r", "a.pcap"]);
        let output =
            command.args(Some(filter).filter(|filter| !filter.is_empty())).output().expect("tcpdump starts");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for recipe in RECIPES {
        generate(folder.path(), "a.pcap", &format!("{recipe} count=600"));
        let text = print("");
        // A line with the time for each packet, and more.
        let lines = text.lines().filter(|line| line.starts_with("00:00:0")).count();
        assert_eq!(lines, 600, "{recipe}");
        for complaint in ["bad", "incorrect", "truncated", "malformed", "invalid", "wrong", "[|"] {
            let line = text.lines().find(|line| line.contains(complaint));
            assert_eq!(line, None, "{recipe}");
        }
    }
    let words = [
        "generate",
        "-w",
        "a.pcap",
        "match=tcp port 80 or host 192.0.2.1",
        "share=2/7",
        "flows=70",
        "count=700",
    ];
    tapline(folder.path(), &words).succeeded();
    let of_it = print("tcp port 80 or host 192.0.2.1");
    assert_eq!(of_it.lines().filter(|line| !line.starts_with(' ')).count(), 200);
}

#[test]
fn the_same_recipe_gives_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let read = |file: &str| fs::read(folder.path().join(file)).unwrap();
    let recipe = "udp tcp ip ip6 size=100:3,1514:1 payload=random flows=100 walk=random mark count=5000";
    for ending in ["pcap", "pcapng", "pcapng.zst", "pcap.gz"] {
        let (one, two, other) = (format!("a.{ending}"), format!("b.{ending}"), format!("c.{ending}"));
        generate(folder.path(), &one, recipe);
        generate(folder.path(), &two, recipe);
        generate(folder.path(), &other, &format!("{recipe} seed=2"));
        assert!(read(&one) == read(&two), "{ending}");
        assert!(read(&one) != read(&other), "{ending}");
    }
    let (pcap, pcapng) = (read_packets(&read("a.pcap")).unwrap(), read_packets(&read("a.pcapng")).unwrap());
    assert_eq!(pcap.len(), 5000);
    assert!(pcap.iter().zip(&pcapng).all(|(a, b)| (a.time_ns, &a.data) == (b.time_ns, &b.data)));
    assert_eq!(pcap[0].time_ns, 946_684_800_000_000_000);
}

#[test]
fn sizes_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let packets = |file: &str| read_packets(&fs::read(folder.path().join(file)).unwrap()).unwrap();
    tapline(folder.path(), &["generate", "-w", "a.pcap", "-s", "42", "size=100 count=10"]).succeeded();
    assert!(packets("a.pcap").iter().all(|packet| (packet.data.len(), packet.wire_len) == (42, 100)));
    tapline(folder.path(), &["generate", "-w", "r.pcap", "-C", "1k", "size=985 count=3"]).succeeded();
    assert_eq!(packets("r.pcap").len() + packets("r.pcap1").len() + packets("r.pcap2").len(), 3);
    tapline(folder.path(), &["generate", "-w", "x", "--format", "pcapng", "count=1"]).succeeded();
    assert!(fs::read(folder.path().join("x")).unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
}

#[test]
fn an_interrupt_leaves_a_whole_file() {
    let mut child = Command::new(TAPLINE)
        .args(["generate", "--account", "full", "-w", "-", "size=590 flows=100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut bytes = vec![0; 1 << 20];
    stdout.read_exact(&mut bytes).expect("packets without end");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    stdout.read_to_end(&mut bytes).expect("the end");
    let finished = Finished::new(child.wait_with_output().expect("it ends")).succeeded();
    assert!(finished.stderr.contains("balanced: every packet"), "{}", finished.stderr);
    let packets = read_packets(&bytes).expect("a whole file");
    let line = finished.stderr.lines().find(|line| line.contains("written")).expect("an account");
    assert!(line.ends_with(&format!(" {}", tapline_graph::grouped(packets.len() as u64))), "{line}");
}

#[test]
fn a_reader_that_has_enough_ends_a_recipe() {
    let mut command = Command::new(TAPLINE);
    command.args(["generate", "--account", "full", "-w", "-", "size=590 flows=100"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut bytes = vec![0; 1 << 20];
    child.stdout.take().expect("a pipe").read_exact(&mut bytes).expect("packets without end");
    let finished = Finished::new(child.wait_with_output().expect("it ends")).succeeded();
    assert!(!finished.stderr.contains("the reader has gone"), "{}", finished.stderr);
    assert!(finished.stderr.contains("balanced: every packet"), "{}", finished.stderr);
}

#[test]
fn a_source_of_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let results = |arguments: &[&str]| -> Value {
        let finished = tapline(folder.path(), &[&["run", "--json"], arguments].concat()).succeeded();
        finished.account();
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("{\"results\"")).expect("results");
        serde_json::from_str::<Value>(line).expect("JSON")["results"].clone()
    };
    let found = results(&["-e", "generate(\"udp size=64 count=1000\") -> c :: count -> drop"]);
    assert_eq!((&found["c"][0]["packets"], &found["c"][0]["bytes"]), (&1000.into(), &64_000.into()));
    let graph = "generate(\"udp tcp flows=100 size=100 count=10k\") -> c :: count -> drop";
    assert_eq!(results(&["--workers", "2", "-e", graph])["c"][0]["packets"], 10_000);
    let graph = "generate(\"mark flows=9 count=10k\") -> sample(9/10) -> v :: verify -> drop";
    let row = results(&["-e", graph])["v"][0].clone();
    let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!((number("packets"), number("doubled"), number("reordered")), (9000, 0, 0));
    assert_eq!(number("lost"), number("last") - number("first") + 1 - 9000);
    assert_eq!(row["latency max"], "0 ns");
}

#[test]
fn captures_verify_marks() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), "a.pcap", "mark=4 ip6 size=100 flows=3 count=1000");
    let text = tapline(folder.path(), &["capture", "-r", "a.pcap", "--verify", "dst port 9"]).succeeded();
    let stdout = String::from_utf8_lossy(&text.stdout).into_owned();
    let lines: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines.len(), &lines[1][..6]), (2, &["4", "1,000", "0", "999", "0", "0"][..]), "{stdout}");
    let object = tapline(
        folder.path(),
        &["capture", "-r", "a.pcap", "--verify", "--json", "-w", "b.pcap", "src host fd00::2"],
    )
    .succeeded();
    assert_eq!(object.account().output("written"), 333);
    let stdout = String::from_utf8_lossy(&object.stdout).into_owned();
    let marks: Value = serde_json::from_str(stdout.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&marks["marks"][0]["packets"], &marks["marks"][0]["lost"]),
        (&333.into(), &664.into()),
        "{marks}"
    );
    tapline(folder.path(), &["capture", "-i", "lo", "--workers", "2", "--verify"])
        .failed_saying(&["--workers"]);
}

/// A recipe sent and captured gives the packets that it writes into a file; the marks show that none is missing, and
/// the send times.
#[test]
fn packets_of_a_recipe_are_sent_at_their_times() {
    if !namespaces_or_skip("packets_of_a_recipe_are_sent_at_their_times") {
        return;
    }
    let namespace = Namespace::with_pair("generate").expect("a probe succeeded");
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("file.pcap"), folder.path().join("out.pcap"));
    let [file_name, out_name] = [&file, &out].map(|path| path.to_str().expect("our names are UTF-8"));
    let recipe = "udp tcp ip ip6 size=80..1514+7 flows=40 payload=random seed=5 count=4000";
    for pace in ["rate=20k", "", "rate=100Mbit gaps=poisson"] {
        let recipe = format!("{recipe} {pace}");
        generate(folder.path(), file_name, &recipe);
        let live = Live::start(&namespace, 1, &["-i", FAR, "-w", out_name, "--json"]);
        let (rate, account) = send(&namespace, &recipe);
        assert_eq!(live.interrupt().succeeded().account().output("written"), 4000);
        assert_eq!(
            (&account["made"], &account["sent"], &account["balanced"]),
            (&4000.into(), &4000.into(), &true.into())
        );
        assert_eq!(rate["planned_seconds"].is_null(), pace.is_empty(), "{rate}");
        assert!(
            pace != "rate=20k"
                || rate["asked_packets_per_second"].as_f64().is_some_and(|asked| (asked - 20e3).abs() < 0.01)
        );
        assert!(
            bytes_of(packets_of(&out)) == bytes_of(packets_of(&file)),
            "{pace}: other packets than in the file"
        );
    }
    let live = Live::start(&namespace, 1, &["-i", FAR, "--verify", "--json", "-w", out_name]);
    let (_, account) = send(&namespace, "mark size=60..1514 flows=9 count=3000 rate=30k");
    assert_eq!(account["sent"], 3000);
    let verified = live.interrupt().succeeded();
    let stdout = String::from_utf8_lossy(&verified.stdout).into_owned();
    let marks: Value = serde_json::from_str(stdout.lines().next().expect("a line")).expect("JSON");
    let marks = &marks["marks"][0];
    let counts = ["packets", "lost", "doubled", "reordered"].map(|name| marks[name].as_u64());
    assert_eq!(counts, [Some(3000), Some(0), Some(0), Some(0)], "{marks}");
    // Without a rate the departure time is not known in advance; the mark has the time of sending.
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", out_name]);
    assert_eq!(send(&namespace, "mark flows=9 count=3000").1["sent"], 3000);
    live.interrupt().succeeded();
    let packets = packets_of(&out);
    let latency = |packet: &StoredPacket| {
        let mark = tapline_generator::Mark::find(&packet.data, packet.data.len()).expect("a mark");
        packet.time_ns as i64 - mark.sent.as_nanos()
    };
    let latencies: Vec<i64> = packets.iter().map(latency).collect();
    let span = packets.last().expect("packets").time_ns - packets[0].time_ns;
    assert!(latencies.iter().all(|latency| *latency >= 0), "{latencies:?}");
    let late = latencies.iter().filter(|latency| **latency > span as i64 / 2).count();
    assert!(late < packets.len() / 2, "{late} marks are from before half of all were sent");
    let refused = Command::new(TAPLINE).args(["generate", "-i", "no-such-link", "count=1"]).output().unwrap();
    Finished::new(refused).failed_saying(&["no-such-link"]);
}

/// Rate and account of `tapline generate` out of the near end.
fn send(namespace: &Namespace, recipe: &str) -> (Value, Value) {
    let words: Vec<&str> = recipe.split_whitespace().collect();
    let fixed = ["generate", "--json", "--netns", namespace.name(), "-i", NEAR];
    let sent = Command::new(TAPLINE).args(fixed).args(words).output().expect("it starts");
    let sent = Finished::new(sent).succeeded();
    let mut value: Value = serde_json::from_slice(&sent.stdout).expect("JSON");
    (value["rate"].take(), value["account"].take())
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], expected: &[&str]| {
        tapline(folder.path(), &[&["generate"], words].concat()).failed_saying(expected);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{words:?}: a file was made");
    };
    refused(&["-w", "a", "udp", "sise=60"], &["  udp sise=60\n      ^^^^\n", "did you mean `size`?"]);
    refused(&["-w", "a", "udp"], &["how many packets?", "count=1000"]);
    refused(&["-w", "a", "count=1", "match=tcp port"], &["match='tcp port'"]);
    refused(
        &["-w", "a", "count=1", "size=20"],
        &["  count=1 size=20\n          ^^^^^^^\n", "size=42 or more"],
    );
    refused(&["count=1"], &["-w <FILE>"]);
    let graph = "generate(\"udp sise=60\") -> drop";
    tapline(folder.path(), &["run", "-e", graph]).failed_saying(&["there is no key `sise`", graph]);
    let help = tapline(folder.path(), &["generate", "--help"]).succeeded();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for key in tapline_generator::KEYS {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {} ", key.name))), "{}", key.name);
    }
}
