//! `tapline run`: graphs from files and the command line, on traffic made for them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Finished, TAPLINE};
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, read_packets, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Ipv4, Tcp, fragments_v4};
use tapline_testkit::traffic::Traffic;

fn tapline(folder: &Path, arguments: &[&str]) -> Finished {
    Finished::new(Command::new(TAPLINE).current_dir(folder).args(arguments).output().expect("it starts"))
}

fn stdout(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.stdout).into_owned()
}

/// The objects that standard output holds, a line each.
fn objects(finished: &Finished) -> Vec<Value> {
    stdout(finished).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Results and account of a graph that was run with --json.
fn results(finished: &Finished) -> (Value, Value) {
    assert!(finished.status.success(), "{}", finished.stderr);
    let objects = objects(finished);
    let [.., results, account] = objects.as_slice() else { panic!("{}", stdout(finished)) };
    assert_eq!(account["account"]["balanced"], true, "{account}");
    (results["results"].clone(), account["account"].clone())
}

/// The account of one stage.
fn stage<'a>(account: &'a Value, name: &str) -> &'a Value {
    let stages = account["stages"].as_array().expect("stages");
    stages.iter().find(|stage| stage["name"] == name).unwrap_or_else(|| panic!("no {name} in {account}"))
}

fn write(path: &Path, frames: Vec<Vec<u8>>) {
    let packets = frames.into_iter().enumerate().map(|(n, frame)| (Duration::from_micros(n as u64), frame));
    write_pcap(&mut fs::File::create(path).unwrap(), ETHERNET, Unit::Nanoseconds, packets).unwrap();
}

fn packets(path: &Path) -> usize {
    read_packets(&fs::read(path).unwrap()).unwrap().len()
}

/// A segment from one host to port 80 of another.
fn segment(client: u16, source_port: u16, payload: &[u8]) -> Vec<u8> {
    let (client, server) = (Host::number(client), Host::number(200));
    let ips = IpPair::between(&client, &server, IpVersion::V4);
    let tcp = Tcp { src: source_port, dst: 80, ..Tcp::default() };
    Ethernet::between(&client, &server).ip(&tcp.packet(ips, payload))
}

/// One big segment to a port, in pieces.
fn pieces(client: u16, id: u16, port: u16) -> Vec<Vec<u8>> {
    let (from, to) = (Host::number(client), Host::number(200));
    let ips = IpPair::between(&from, &to, IpVersion::V4);
    let tcp = Tcp { src: 4000, dst: port, ..Tcp::default() };
    let v4 = |host: &Host| match host.ip(IpVersion::V4) {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    let header = Ipv4 { id, ..Ipv4::new(v4(&from), v4(&to), 6) };
    let whole = tcp.segment(ips, &[b'x'; 3000]);
    fragments_v4(&header, &whole, 800).iter().map(|packet| Ethernet::between(&from, &to).ip(packet)).collect()
}

#[test]
fn two_users_share_a_filter_each_with_a_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let worm = b"GET /default.ida?NNNNNNNN HTTP/1.0\r\n";
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for flow in 0..40_u16 {
        // Every fourth flow is infected, and says so three times.
        let payload: &[u8] = if flow % 4 == 0 { worm } else { b"GET /index.html HTTP/1.0\r\n" };
        frames.extend((0..3).map(|_| segment(flow % 7, 10_000 + flow, payload)));
    }
    let web: Vec<Vec<u8>> = (0..5).flat_map(|id| pieces(id, 100 + id, 80)).collect();
    let other: Vec<Vec<u8>> = (0..3).flat_map(|id| pieces(id, 200 + id, 8080)).collect();
    let (of_web, all) = (120 + web.len(), 120 + web.len() + other.len());
    let counted = web.len();
    frames.extend(web);
    frames.extend(other);
    write(&folder.path().join("web.pcap"), frames);
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/graphs/worm.graph");
    let (results, account) = results(&tapline(folder.path(), &["run", "--json", graph]));

    // The filter that both share ran once, over every packet.
    let filters = account["stages"].as_array().unwrap().iter().filter(|stage| stage["name"] == "web");
    assert_eq!(filters.count(), 1);
    assert_eq!(
        (stage(&account, "web")["received"].as_u64(), stage(&account, "web")["passed"].as_u64()),
        (Some(all as u64), Some(of_web as u64))
    );
    // A: each of ten infected flows once, though it said so three times.
    assert_eq!(stage(&account, "worm")["passed"], 30);
    assert_eq!(packets(&folder.path().join("infected.pcap")), 10);
    let infected: u64 =
        results["infected"].as_array().unwrap().iter().map(|row| row["packets"].as_u64().unwrap()).sum();
    assert_eq!((infected, results["infected"].as_array().unwrap().len()), (30, 7));
    // B: every fragment is counted, the first of each packet is kept.
    assert_eq!(results["fragments"][0]["packets"], counted);
    assert_eq!(packets(&folder.path().join("fragmented.pcap")), 5);
}

#[test]
fn twelve_filters_agree_with_their_set() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("in.pcap");
    let traffic = Traffic::new(9).take(4000);
    write_pcap(&mut fs::File::create(&capture).unwrap(), ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    let texts = [
        "tcp",
        "udp",
        "icmp",
        "arp",
        "ip6",
        "tcp port 80",
        "tcp port 443",
        "udp port 53",
        "vlan",
        "ip[8] < 64",
        "greater 1000",
        "not ip",
    ];
    let text = texts.iter().enumerate().fold("s :: file(\"in.pcap\")".to_owned(), |graph, (n, text)| {
        format!("{graph}; s -> filter(\"{text}\") -> c{n} :: count")
    });
    let (together, account) = results(&tapline(folder.path(), &["run", "--json", "-e", &text]));
    assert!(
        account["stages"].as_array().unwrap().iter().any(|stage| stage["class"] == "filters"),
        "{account}"
    );
    for (n, text) in texts.iter().enumerate() {
        let alone = format!("file(\"in.pcap\") -> filter(\"{text}\") -> alone :: count");
        let (alone, _) = results(&tapline(folder.path(), &["run", "--json", "-e", &alone]));
        assert_eq!(together[format!("c{n}")], alone["alone"], "{text}");
    }
}

#[test]
fn two_files_are_two_sources_of_one_graph() {
    let folder = tempfile::tempdir().unwrap();
    for (name, packets) in [("a.pcap", 700), ("b.pcap", 500)] {
        let traffic = Traffic::new(3).take(packets);
        let mut file = fs::File::create(folder.path().join(name)).unwrap();
        write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    }
    let text = "both :: count; file(\"a.pcap\") -> both; file(\"b.pcap\") -> both -> record(\"both.pcapng\")";
    let (results, account) = results(&tapline(folder.path(), &["run", "--json", "-e", text]));
    assert_eq!(results["both"][0]["packets"], 1200);
    assert_eq!(account["delivered"], 1200);
    assert_eq!(packets(&folder.path().join("both.pcapng")), 1200);
}

#[test]
fn workers_agree_with_one_worker() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Traffic::new(21).take(9000);
    let mut file = fs::File::create(folder.path().join("in.pcap")).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    let text = "all :: count; file(\"in.pcap\") -> all; all -> flows :: top(by=flow, n=100000); all -> first -> new :: count;
                all -> filter(\"tcp\") -> hosts :: top(by=host, n=50) -> record(\"out.pcap\")";
    let of = |workers: &str| {
        let finished = tapline(folder.path(), &["run", "--json", "--workers", workers, "-e", text]);
        let (results, account) = results(&finished);
        let flow =
            |stage: &Value| ["name", "received", "passed", "refused", "bytes"].map(|key| stage[key].clone());
        let stages: Vec<_> = account["stages"].as_array().unwrap().iter().map(flow).collect();
        (results, account["delivered"].clone(), stages, packets(&folder.path().join("out.pcap")))
    };
    let one = of("1");
    assert_eq!(one.1, 9000);
    assert_eq!([of("2"), of("4")], [one.clone(), one]);
}

/// Stages that must see all packets in their order have them so, from however many workers: what they find and what
/// they write is the same, byte by byte, where many packets have one time stamp.
#[test]
fn stages_behind_workers_get_packets_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let coarse =
        |(at, frame): (Duration, Vec<u8>)| (Duration::from_millis(at.as_millis() as u64 / 7 * 7), frame);
    for (name, seed) in [("in.pcap", 22), ("other.pcap", 23)] {
        let mut file = fs::File::create(folder.path().join(name)).unwrap();
        let traffic = Traffic::new(seed).take(20_000).map(coarse);
        write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    }
    let order = "M[0] = M[0] * 31 + PKT.LEN + PKT.B[20]; RETURN M[0] % 3 == 0;";
    fs::write(folder.path().join("order.fpl"), order).unwrap();
    let text = "all :: count; file(in.pcap) -> all; all -> sample(1/3) -> sampled :: count -> record(\"a.pcap\");
                all -> filter(\"ip\") -> dedup -> sizes :: histogram -> fpl(\"order.fpl\", cells=1) -> record(\"b.pcap\");
                all -> filter(\"tcp\") -> gaps :: histogram(of=gap); all -> rate(100) -> shed :: count;
                m :: merge; all -> filter(\"udp\") -> m; file(other.pcap) -> m; m -> record(\"c.pcapng\")";
    let of = |workers: &str| {
        let finished = tapline(folder.path(), &["run", "--json", "--workers", workers, "-e", text]);
        let (results, account) = results(&finished);
        assert_eq!(
            (&account["balanced"], &account["delivered"]),
            (&true.into(), &40_000.into()),
            "{account}"
        );
        let flow =
            |stage: &Value| ["name", "received", "passed", "refused", "bytes"].map(|key| stage[key].clone());
        let is_joint = |stage: &&Value| stage["class"] == "join";
        let stages = account["stages"].as_array().unwrap().iter();
        let (joints, mut stages): (Vec<_>, Vec<_>) = stages.partition(is_joint);
        assert_eq!(joints.is_empty(), workers == "1");
        assert!(joints.iter().all(|joint| joint["received"] == joint["passed"]), "{joints:?}");
        stages.sort_by_key(|stage| stage["name"].to_string());
        let stages: Vec<_> = stages.into_iter().map(flow).collect();
        let files = ["a.pcap", "b.pcap"].map(|name| fs::read(folder.path().join(name)).unwrap());
        (results, stages, files, packets(&folder.path().join("c.pcapng")))
    };
    let one = of("1");
    for workers in ["2", "4"] {
        let several = of(workers);
        assert_eq!((&several.0, &several.1), (&one.0, &one.1));
        assert!(several.2 == one.2 && several.3 == one.3, "{workers} workers write something else");
    }
}

#[test]
fn graphs_are_read_again_while_others_run_on() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, other) = (folder.path().join("in"), folder.path().join("b.graph"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(folder.path().join("a.graph"), "file(in) -> mine :: count").unwrap();
    fs::write(&other, "file(in) -> tee -> gone :: count").unwrap();
    let mut run = Command::new(TAPLINE);
    run.current_dir(folder.path()).args(["run", "--json", "--reload", "a.graph", "b.graph"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut capture = Vec::new();
    let traffic = Traffic::new(2).take(1000);
    write_pcap(&mut capture, ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let mut pieces = capture.chunks(capture.len() / 20);
    pieces.by_ref().take(10).for_each(|piece| writer.write_all(piece).unwrap());
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut hangup = |text: &str| {
        fs::write(&other, text).unwrap();
        assert!(Command::new("kill").args(["-HUP", &run.id().to_string()]).status().unwrap().success());
        lines.find(|line| line.contains("graphs read again")).expect("it says so")
    };
    let broken = hangup("file(in) -> cuont");
    assert!(broken.contains("nothing is changed"), "{broken}");
    let moved = hangup("file(elsewhere) -> count");
    assert!(moved.contains("sources stay as they are"), "{moved}");
    let changed = hangup("file(in) -> filter(\"ip or not ip\") -> new :: count");
    assert_eq!(changed, "tapline: graphs read again: 2 new stages, 2 gone");
    pieces.for_each(|piece| {
        writer.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    });
    drop(writer);
    let finished = Finished::new(run.wait_with_output().unwrap());
    let (results, account) = results(&finished);
    let packets = |name: &str| results[name][0]["packets"].as_u64().unwrap_or(0);
    assert_eq!((packets("mine"), account["delivered"].as_u64()), (1000, Some(1000)));
    assert_eq!(
        packets("gone") + packets("new"),
        1000,
        "one took the place of the other between two batches: {results}"
    );
    assert!(packets("new") > 0, "{results}");
}

/// The loop waits for packets, and the pipe ends before it takes the change.
#[test]
fn graphs_that_are_read_again_too_late_are_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, graph) = (folder.path().join("in"), folder.path().join("a.graph"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(&graph, "file(in) -> first :: count").unwrap();
    let mut run = Command::new(TAPLINE);
    run.current_dir(folder.path()).args(["run", "--json", "--reload", "a.graph"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut capture = Vec::new();
    write_pcap(&mut capture, ETHERNET, Unit::Nanoseconds, Traffic::new(2).take(1000)).unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    // More than a pipe holds: until it is read, a hang-up would end the wait for the writer.
    writer.write_all(&capture).unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    fs::write(&graph, "file(in) -> filter(\"ip or not ip\") -> second :: count").unwrap();
    assert!(Command::new("kill").args(["-HUP", &run.id().to_string()]).status().unwrap().success());
    let read_again = lines.find(|line| line.contains("graphs read again")).expect("it says so");
    assert!(read_again.contains("2 new stages"), "{read_again}");
    drop(writer);
    let said: Vec<String> = lines.collect();
    let finished = Finished::new(run.wait_with_output().unwrap());
    let (results, _) = results(&finished);
    let is_said = said.iter().any(|line| line.ends_with("are not applied: the end came first"));
    assert_eq!(results["second"].is_null(), is_said, "{said:?} {results}");
}

#[test]
fn results_are_for_people_and_the_account_is_apart() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.pcap"), (0..10).map(|flow| segment(1, 5000 + flow, b"x")).collect());
    let finished = tapline(
        folder.path(),
        &["run", "--account", "full", "-e", "file(\"a.pcap\") -> talk :: top(by=src) -> sample(1/2) -> drop"],
    );
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(stdout(&finished).starts_with("talk :: top\n  src"), "{}", stdout(&finished));
    assert!(finished.stderr.contains("5 sampled out"), "{}", finished.stderr);
    assert!(finished.stderr.ends_with("balanced: every packet is accounted for\n"), "{}", finished.stderr);
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.graph"), "file(a.pcap)\n  -> smaple(1/10);\n").unwrap();
    let finished = tapline(folder.path(), &["run", "x.graph"]);
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("  -> smaple(1/10)"), "{}", finished.stderr);
    assert!(finished.stderr.contains("did you mean `sample`?"), "{}", finished.stderr);
    assert!(!tapline(folder.path(), &["run", "-e", "file(missing.pcap) -> count"]).status.success());
    assert!(!tapline(folder.path(), &["run"]).status.success());
    let check = tapline(folder.path(), &["run", "--check", "-e", "file(missing.pcap) -> count"]);
    assert_eq!(stdout(&check), "graph OK: 2 stages\n");
}

#[test]
fn every_class_has_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let list = stdout(&tapline(folder.path(), &["run", "--stages"]));
    let names: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 12, "{list}");
    for name in names {
        let page = tapline(folder.path(), &["run", "--stages", name]);
        assert!(page.status.success() && stdout(&page).contains("\nexample\n"), "{name}: {}", stdout(&page));
    }
}

/// Segments of many clients to port 80, and datagrams of others.
fn rules_traffic() -> Vec<Vec<u8>> {
    let segments = (0..300_u16).map(|n| segment(n % 30, 5000 + n % 30, b"x"));
    segments.chain(Traffic::new(4).take(700).map(|(_, frame)| frame)).collect()
}

/// The row of a rule in the result of the stage `r`.
fn rule_row<'r>(results: &'r Value, rule: &str) -> &'r Value {
    let rows = results["r"].as_array().expect("a table");
    rows.iter().find(|row| row["rule"] == rule).unwrap_or_else(|| panic!("no {rule} in {results}"))
}

#[test]
fn rules_distribute_packets_with_any_workers() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.pcap"), rules_traffic());
    let [client, server] = [3, 200].map(|n| Host::number(n).v4);
    let rules = format!(
        "flow tcp {client}:5003 <-> {server}:80 => drop\nrule web: tcp port 80 => to web\nsample 1/7\ndefault pass\n"
    );
    fs::write(folder.path().join("site.rules"), rules).unwrap();
    let graph = "r :: rules(\"site.rules\", outputs=\"web\"); file(\"in.pcap\") -> r; r[0] -> record(\"rest.pcap\"); r[1] -> record(\"web.pcap\")";
    let mut seen = Vec::new();
    for workers in ["1", "3"] {
        let (results, account) =
            results(&tapline(folder.path(), &["run", "--json", "--workers", workers, "-e", graph]));
        let [dropped, web, sampled, rest] = ["flow (all)", "rule web", "sample 1/7", "default"]
            .map(|rule| rule_row(&results, rule)["packets"].as_u64().expect("a number"));
        assert_eq!(dropped, 10, "{results}");
        assert_eq!(packets(&folder.path().join("web.pcap")) as u64, web);
        assert_eq!(packets(&folder.path().join("rest.pcap")) as u64, rest);
        assert_eq!(dropped + web + sampled + rest, 1000);
        assert_eq!(stage(&account, "r")["refused"], dropped + sampled);
        seen.push([dropped, web, sampled, rest]);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_wrong_rule_stops_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.pcap"), rules_traffic());
    fs::write(folder.path().join("kept.pcap"), "as it was").unwrap();
    let graph = "file(\"in.pcap\") -> r :: rules(\"site.rules\") -> record(\"kept.pcap\")";
    let refused = |rules: &str, arguments: &[&str], expected: &[&str]| {
        fs::write(folder.path().join("site.rules"), rules).unwrap();
        let finished = tapline(folder.path(), &[&["run"], arguments, &["-e", graph]].concat());
        assert!(!finished.status.success(), "{rules}");
        let all = expected.iter().all(|part| finished.stderr.contains(part));
        assert!(all, "{rules}: {}", finished.stderr);
        assert_eq!(fs::read(folder.path().join("kept.pcap")).unwrap(), b"as it was");
    };
    let place = ["r: site.rules: line 2, column 11: `192.0.2.300` is not an address", "such as 192.0.2.1"];
    let rules = "default pass\nflow icmp 192.0.2.300 <-> 192.0.2.9 => drop\n";
    refused(rules, &["--check"], &place);
    refused(rules, &[], &place);
    refused("\nrule: tcp port 99999 => drop\n", &[], &["r: site.rules: line 2: illegal port"]);
}

#[test]
fn a_signal_reloads_rules_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("site.rules");
    fs::write(&rules, "rule t: tcp => drop\n").unwrap();
    let graph = "file(\"-\") -> r :: rules(\"site.rules\") -> record(\"out.pcap\")";
    let mut child = Command::new(TAPLINE)
        .current_dir(folder.path())
        .args(["run", "--json", "-e", graph])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut until =
        |word: &str| lines.by_ref().map_while(Result::ok).find(|line| line.contains(word)).expect(word);
    let file = |frames: usize| {
        let mut bytes = Vec::new();
        let packets = (0..frames).map(|n| (Duration::from_micros(n as u64), segment(1, 5000, b"x")));
        write_pcap(&mut bytes, ETHERNET, Unit::Nanoseconds, packets).unwrap();
        bytes
    };
    input.write_all(&file(5)).unwrap();
    input.flush().unwrap();
    until("reading from");
    // The thread that reads the rules again is the last to begin.
    let threads = format!("/proc/{}/task", child.id());
    let has_begun = || {
        let names = fs::read_dir(&threads).into_iter().flatten().flatten();
        let mut names = names.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|name| name.trim_end() == "rules")
    };
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while !has_begun() && std::time::Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    let signal = |name: &str| {
        let kill = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
        assert!(kill.success());
    };
    fs::write(&rules, "rule t: tcp => pass\nrule u: => nowhere\n").unwrap();
    signal("-HUP");
    let refused = until("line 2, column 9: expected a filter");
    assert!(refused.ends_with("; the rules before stay"), "{refused}");
    fs::write(&rules, "rule t: tcp => pass\nrule u: udp => drop\n").unwrap();
    signal("-HUP");
    until("rules read again: 0 exact, 2 in the list");
    input.write_all(&file(3)[24..]).unwrap();
    drop(input);
    let finished = Finished::new(child.wait_with_output().expect("it ends"));
    let (results, _) = results(&finished);
    assert_eq!(rule_row(&results, "rule t")["packets"], 3);
    assert_eq!(rule_row(&results, "removed")["packets"], 5);
    assert_eq!(packets(&folder.path().join("out.pcap")), 3);
}

/// A pcapng file of an Ethernet and a raw IP interface, with a packet of each.
fn two_link_types(path: &Path) {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_ne_bytes();
        [&kind.to_ne_bytes()[..], &len, body, &len].concat()
    };
    let interface = |link_type: u32| block(1, &[link_type.to_ne_bytes(), [0; 4]].concat());
    let packet = |id: u32| {
        let header = [id, 0x0006_0000, 0, 60, 60].map(u32::to_ne_bytes).concat();
        block(6, &[&header[..], &[0x45; 60]].concat())
    };
    let section = [&0x1a2b_3c4d_u32.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[0; 2], &[0xff; 8]].concat();
    let blocks = [block(0x0a0d_0d0a, &section), interface(1), interface(101), packet(0), packet(1)];
    fs::write(path, blocks.concat()).unwrap();
}

/// A filter that raw IP does not support affects packets of raw IP only, in whatever stage.
#[test]
fn stages_refuse_packets_of_unfit_link_types() {
    let folder = tempfile::tempdir().unwrap();
    two_link_types(&folder.path().join("two.pcapng"));
    let text = "ether multicast or not ether multicast";
    fs::write(folder.path().join("r.rules"), format!("rule: {text} => pass\ndefault drop\n")).unwrap();
    let graphs = [
        format!("file(two.pcapng) -> filter(\"{text}\") -> c :: count"),
        format!("file(two.pcapng) -> filter(\"{text}\", fragments=follow) -> c :: count"),
        format!("s :: switch(\"{text}\"); file(two.pcapng) -> s; s[0] -> c :: count; s[1] -> rest :: count"),
        "r :: rules(\"r.rules\"); file(two.pcapng) -> r -> c :: count".to_owned(),
    ];
    for graph in graphs {
        let finished = tapline(folder.path(), &["run", "--json", "-e", &graph]);
        let (_, account) = results(&finished);
        assert_eq!(stage(&account, "c")["received"], 1, "{graph}: {account}");
        let told = finished.stderr.lines().filter(|line| line.contains("its link type RAW does not support"));
        assert_eq!(told.count(), 1, "{graph}: {}", finished.stderr);
    }
}
