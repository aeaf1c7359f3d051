//! `tapline probe --export parquet:DIR`: engines that are not ours read the directory, also while it grows, and find
//! the contents of the JSON lines of the same run. The questions are those of docs/flows.md, taken from there.
#![cfg(feature = "parquet")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{
    Finished, TAPLINE, captures_or_skip, finish, module_or_skip, python, run, tapline, wait_for,
};
use serde_json::Value;
use tapline_testkit::capture_file::{EPOCH, ETHERNET, StoredPacket, Unit, read_packets, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, flags};

/// 2026-11-22 20:50 UTC.
const START: u64 = 1_795_380_600;

/// Runs SQL in a folder, statement by statement; of each question the answer, all of it as text.
const RUN_SQL: &str = "
import duckdb, json, sys
con = duckdb.connect()
con.execute(\"SET TimeZone = 'UTC'\")
for text in sys.argv[1:]:
    text = text.strip().rstrip(';')
    if text.upper().startswith('CREATE'):
        con.execute(text)
    elif text.upper().startswith('DESCRIBE'):
        print(json.dumps([row[:2] for row in con.execute(text).fetchall()]))
    else:
        print(json.dumps(con.execute('SELECT COLUMNS(*)::VARCHAR FROM (' + text + '\\n)').fetchall()))
";

const ALL: &str = "read_parquet('flows/**/*.parquet')";

type Rows = Vec<Vec<String>>;

/// The answer to a question, computed from the lines of JSON.
type Oracle = fn(&[Value]) -> Rows;

fn sql(folder: &Path, statements: &[&str]) -> Vec<Rows> {
    let output = finish(python().current_dir(folder).args(["-c", RUN_SQL]).args(statements)).succeeded();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

fn sum_of(folder: &Path, what: &str) -> u64 {
    let answers = sql(folder, &[&format!("SELECT {what} FROM {ALL}")]);
    answers[0][0][0].parse().unwrap()
}

/// Flows over four hours and midnight, of both versions of IP, and two scanners: one of many hosts, the other of many
/// ports.
fn traffic(folder: &Path) -> PathBuf {
    let made = folder.join("made.pcap");
    let recipe =
        format!("udp tcp icmp ip ip6 size=80..900 flows=40 order=random rate=1 count=12k start={START}");
    let words =
        [&["generate", "-w", made.to_str().unwrap()][..], &recipe.split(' ').collect::<Vec<_>>()].concat();
    run(words).succeeded();
    let mut packets: Vec<(u64, Vec<u8>)> = read_packets(&fs::read(&made).unwrap())
        .unwrap()
        .into_iter()
        .map(|StoredPacket { time_ns, data, .. }| (time_ns, data))
        .collect();
    for at in 0..60 {
        let time = START * 1_000_000_000 + at * 1_000_000;
        packets.push((time, syn(100, 200 + at as u16, 443)));
        packets.push((time, syn(101, 199, 1000 + at as u16)));
        // A client with unanswered requests to a single server is not suspicious.
        packets.push((time, syn(102, 199, 443)));
    }
    packets.extend((0..15).flat_map(handshake));
    packets.sort();
    let path = folder.join("traffic.pcap");
    let frames = packets.into_iter().map(|(time, data)| (Duration::from_nanos(time) - EPOCH, data));
    write_pcap(&mut File::create(&path).unwrap(), ETHERNET, Unit::Nanoseconds, frames).unwrap();
    path
}

fn syn(from: u16, to: u16, port: u16) -> Vec<u8> {
    segment((from, 40_000), (to, port), flags::SYN, 0)
}

fn segment(from: (u16, u16), to: (u16, u16), flags: u8, ack: u32) -> Vec<u8> {
    let tcp = Tcp { src: from.1, dst: to.1, flags, ack, window: 1024, ..Tcp::default() };
    let (from, to) = (Host::number(from.0), Host::number(to.0));
    Ethernet::between(&from, &to).ip(&tcp.packet(IpPair::between(&from, &to, IpVersion::V4), b""))
}

/// One of three with each of five servers, of which each takes longer than the one before.
fn handshake(at: u16) -> [(u64, Vec<u8>); 3] {
    let (client, server) = ((110, 41_000 + at), (120 + at % 5, 8443));
    let begin = (START + 5) * 1_000_000_000 + u64::from(at) * 100_000_000;
    let takes = (u64::from(at % 5) * 10 + u64::from(at / 5)) * 1_000_000 + 7;
    [
        (begin, segment(client, server, flags::SYN, 0)),
        (begin + takes, segment(server, client, flags::SYN | flags::ACK, 1)),
        (begin + takes + 500_000, segment(client, server, flags::ACK, 1)),
    ]
}

/// Meters a file into the directory `flows` of a folder, and into lines of JSON, which it gives.
fn probe(folder: &Path, file: &Path, words: &[&str]) -> (Finished, Vec<Value>) {
    let arguments =
        ["probe", "--json", "--idle-timeout", "60", "--export", "parquet:flows,json:rows.json", "-r"];
    let finished = finish(tapline(arguments).arg(file).args(words).current_dir(folder));
    let text = fs::read_to_string(folder.join("rows.json")).unwrap();
    (finished, text.lines().map(|line| serde_json::from_str(line).expect(line)).collect())
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

fn text<'r>(row: &'r Value, names: [&str; 2]) -> &'r str {
    row[names[0]].as_str().or(row[names[1]].as_str()).unwrap_or_else(|| panic!("no {names:?} in {row}"))
}

fn source(row: &Value) -> &str {
    text(row, ["sourceIPv4Address", "sourceIPv6Address"])
}

fn destination(row: &Value) -> &str {
    text(row, ["destinationIPv4Address", "destinationIPv6Address"])
}

/// Octets, packets and flows of rows that have something in common.
fn grouped<K: Ord>(rows: &[Value], key: impl Fn(&Value) -> Option<K>) -> BTreeMap<K, [u64; 3]> {
    let mut groups: BTreeMap<K, [u64; 3]> = BTreeMap::new();
    for row in rows {
        if let Some(key) = key(row) {
            let sums = groups.entry(key).or_default();
            let more = [number(row, "octetDeltaCount"), number(row, "packetDeltaCount"), 1];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    groups
}

/// The greatest ten groups by octets.
fn greatest<K: Ord>(groups: BTreeMap<K, [u64; 3]>) -> Vec<(K, [u64; 3])> {
    let mut all: Vec<(K, [u64; 3])> = groups.into_iter().collect();
    all.sort_by_key(|(_, sums)| std::cmp::Reverse(sums[0]));
    all.truncate(10);
    all
}

fn words<const N: usize>(cells: [&dyn ToString; N]) -> Vec<String> {
    cells.map(ToString::to_string).to_vec()
}

fn is_tcp_or_udp(row: &Value) -> bool {
    [6, 17].contains(&number(row, "protocolIdentifier"))
}

fn top_talkers(rows: &[Value]) -> Rows {
    let talkers = greatest(grouped(rows, |row| Some(source(row).to_owned())));
    talkers.iter().map(|(source, [octets, packets, flows])| words([source, octets, packets, flows])).collect()
}

fn ports(rows: &[Value]) -> Rows {
    let service = |row: &Value| {
        let port = number(row, "sourceTransportPort").min(number(row, "destinationTransportPort"));
        is_tcp_or_udp(row).then(|| (number(row, "protocolIdentifier"), port))
    };
    let services = greatest(grouped(rows, service));
    services
        .iter()
        .map(|((protocol, port), [octets, _, flows])| words([protocol, port, octets, flows]))
        .collect()
}

/// `2026-11-22T20:50:01.123456789Z` is 2026-11-22, 20, 50.
fn end(row: &Value) -> (&str, &str, &str) {
    let time = row["flowEndNanoseconds"].as_str().unwrap();
    (&time[..10], &time[11..13], &time[14..16])
}

fn timeline(rows: &[Value]) -> Rows {
    let minute = |row: &Value| {
        let (date, hour, minute) = end(row);
        Some(format!("{date} {hour}:{minute}:00+00"))
    };
    let minutes = grouped(rows, minute);
    minutes.iter().map(|(minute, [octets, packets, flows])| words([minute, octets, packets, flows])).collect()
}

fn hours(rows: &[Value]) -> Rows {
    let hour = |row: &Value| {
        let (date, hour, _) = end(row);
        ["20", "21"].contains(&hour).then(|| (date.to_owned(), hour.to_owned()))
    };
    let hours = grouped(rows, hour);
    hours.iter().map(|((date, hour), [octets, _, flows])| words([date, hour, octets, flows])).collect()
}

fn scan_suspects(rows: &[Value]) -> Rows {
    let mut asked: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<u64>, u64)> = BTreeMap::new();
    for row in rows.iter().filter(|row| number(row, "protocolIdentifier") == 6) {
        if number(row, "tcpControlBits") & 0x12 == 0x02 {
            let (hosts, ports, flows) = asked.entry(source(row)).or_default();
            hosts.insert(destination(row));
            ports.insert(number(row, "destinationTransportPort"));
            *flows += 1;
        }
    }
    let mut suspects: Vec<_> =
        asked.iter().map(|(source, (h, p, flows))| (*source, h.len(), p.len(), *flows)).collect();
    suspects.retain(|(_, hosts, ports, _)| *hosts >= 20 || *ports >= 20);
    suspects.sort_by_key(|(_, _, _, flows)| std::cmp::Reverse(*flows));
    suspects
        .iter()
        .take(10)
        .map(|(source, hosts, ports, flows)| words([source, hosts, ports, flows]))
        .collect()
}

fn slowest_handshakes(rows: &[Value]) -> Rows {
    let mut taken: BTreeMap<(&str, u64), Vec<u64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["initialTCPFlags"].as_u64().is_some_and(|set| set & 18 == 2)) {
        if let Some(rtt) = row["tcpServerRttNanoseconds"].as_u64() {
            taken.entry((destination(row), number(row, "destinationTransportPort"))).or_default().push(rtt);
        }
    }
    let mut servers: Vec<_> = taken.into_iter().collect();
    servers.iter_mut().for_each(|(_, rtts)| rtts.sort_unstable());
    // Of an even number the lower one of the two in the middle.
    let median = |rtts: &[u64]| rtts[(rtts.len() - 1) / 2];
    servers.sort_by_key(|(_, rtts)| std::cmp::Reverse(median(rtts)));
    let made = servers.iter().filter(|((_, port), rtts)| *port == 8443 && rtts.len() == 3);
    assert_eq!(made.count(), 5);
    let slowest = |rtts: &[u64]| rtts.iter().max().copied().unwrap_or_default();
    servers
        .iter()
        .take(10)
        .map(|((server, port), rtts)| words([server, port, &rtts.len(), &median(rtts), &slowest(rtts)]))
        .collect()
}

/// The statements of docs/flows.md: first what is said once, then the questions, each with what its first line calls
/// it.
fn documented() -> (String, Vec<(String, String)>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/flows.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned());
    let (questions, once): (Vec<String>, Vec<String>) = blocks.partition(|block| block.starts_with("-- "));
    let name = |block: &String| block[3..].split([':', '\n']).next().unwrap().to_owned();
    (once.concat(), questions.into_iter().map(|block| (name(&block), block)).collect())
}

#[test]
fn documented_queries_have_the_answers_of_lines() {
    const TEST: &str = "documented_queries_have_the_answers_of_lines";
    if !module_or_skip(TEST, "duckdb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (finished, rows) = probe(folder.path(), &traffic(folder.path()), &["--details", "tcp"]);
    let account = finished.succeeded().account();
    assert_eq!(account.value["lost"], 0, "{account:?}");
    let (once, questions) = documented();
    let oracles: [(&str, Oracle); 6] = [
        ("Top talkers", top_talkers),
        ("Ports", ports),
        ("Timeline", timeline),
        ("Scan suspects", scan_suspects),
        ("Slowest handshakes", slowest_handshakes),
        ("Hours", hours),
    ];
    let names: Vec<&str> = questions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, oracles.map(|(name, _)| name));
    let statements: Vec<&str> =
        std::iter::once(once.as_str()).chain(questions.iter().map(|(_, block)| block.as_str())).collect();
    let answers = sql(folder.path(), &statements);
    for ((name, oracle), answer) in oracles.iter().zip(answers) {
        let wanted = oracle(&rows);
        assert!(!wanted.is_empty(), "{name}");
        assert_eq!(answer, wanted, "{name}");
    }
    let suspects: Vec<String> = scan_suspects(&rows).into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(suspects.len(), 2, "{suspects:?}");
    // In which hour a row lies is what its own time says; four hours and midnight are there.
    let hour = "strftime(flowEndMilliseconds AT TIME ZONE 'UTC', '%Y-%m-%d %H')";
    let places = "strftime(date, '%Y-%m-%d') || ' ' || lpad(hour::VARCHAR, 2, '0')";
    let answers = sql(
        folder.path(),
        &[
            &format!("SELECT count(*) FROM {ALL} WHERE {hour} <> {places}"),
            &format!("SELECT DISTINCT {places} AS place FROM {ALL} ORDER BY place"),
            &format!("SELECT count(*), sum(packetDeltaCount) FROM {ALL}"),
        ],
    );
    assert_eq!(answers[0], [["0"]]);
    assert_eq!(
        answers[1],
        [["2026-11-22 20"], ["2026-11-22 21"], ["2026-11-22 22"], ["2026-11-22 23"], ["2026-11-23 00"]]
    );
    assert_eq!(answers[2], [[rows.len().to_string(), "12225".to_owned()]]);
}

#[test]
fn columns_have_the_types_of_their_elements() {
    const TEST: &str = "columns_have_the_types_of_their_elements";
    if !module_or_skip(TEST, "duckdb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let template = "flowStartSeconds,flowEndMilliseconds,flowEndNanoseconds,sourceIPv4Address,destinationTransportPort,protocolIdentifier,\
        octetDeltaCount,ingressInterface,mplsTopLabelStackSection,communityId";
    let file = traffic(folder.path());
    probe(folder.path(), &file, &["--template", template]).0.succeeded();
    let answers = sql(folder.path(), &[&format!("DESCRIBE SELECT * EXCLUDE (date, hour) FROM {ALL}")]);
    let wanted = [
        ["flowStartSeconds", "TIMESTAMP WITH TIME ZONE"],
        ["flowEndMilliseconds", "TIMESTAMP WITH TIME ZONE"],
        ["flowEndNanoseconds", "TIMESTAMPTZ_NS"],
        ["sourceIPv4Address", "VARCHAR"],
        ["sourceIPv6Address", "VARCHAR"],
        ["destinationTransportPort", "USMALLINT"],
        ["protocolIdentifier", "UTINYINT"],
        ["octetDeltaCount", "UBIGINT"],
        ["ingressInterface", "UINTEGER"],
        ["mplsTopLabelStackSection", "BLOB"],
        ["communityId", "VARCHAR"],
    ];
    assert_eq!(answers[0], wanted);
    // Every value is that of the line, to the nanosecond.
    let ends = "(epoch_ns(flowEndNanoseconds) // 1000000000)::VARCHAR || '.' || lpad((epoch_ns(flowEndNanoseconds) % 1000000000)::VARCHAR, 9, '0')";
    let question = format!(
        "SELECT {ends} AS ended, communityId, octetDeltaCount, coalesce(sourceIPv4Address, sourceIPv6Address) FROM {ALL}"
    );
    let mut got = sql(folder.path(), &[&question]).remove(0);
    let text = fs::read_to_string(folder.path().join("rows.json")).unwrap();
    let mut wanted: Rows = text.lines().map(|line| of_line(&serde_json::from_str(line).unwrap())).collect();
    got.sort();
    wanted.sort();
    assert_eq!(got, wanted);
}

fn of_line(row: &Value) -> Vec<String> {
    let end: jiff::Timestamp = row["flowEndNanoseconds"].as_str().unwrap().parse().unwrap();
    let ended = format!("{}.{:09}", end.as_second(), end.subsec_nanosecond());
    words([&ended, &row["communityId"].as_str().unwrap(), &number(row, "octetDeltaCount"), &source(row)])
}

/// Every capture that there is, into one directory.
#[test]
fn parquet_agrees_with_lines_on_real_captures() {
    const TEST: &str = "parquet_agrees_with_lines_on_real_captures";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !module_or_skip(TEST, "duckdb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut flows, mut octets, mut packets) = (0, 0, 0);
    for capture in captures {
        let capture = capture.canonicalize().unwrap();
        let (_, rows) = probe(folder.path(), &capture, &["--domain", "7"]);
        flows += rows.len() as u64;
        octets += rows.iter().map(|row| number(row, "octetDeltaCount")).sum::<u64>();
        packets += rows.iter().map(|row| number(row, "packetDeltaCount")).sum::<u64>();
    }
    assert!(packets > 1000);
    let sums = "count(*), sum(octetDeltaCount), sum(packetDeltaCount), min(observationDomainId), max(observationDomainId)";
    let answers = sql(folder.path(), &[&format!("SELECT {sums} FROM {ALL}")]);
    assert_eq!(answers[0], [words([&flows, &octets, &packets, &7, &7])]);
}

/// Each engine reads what is there while the probe waits for more, and all of it in the end.
#[test]
fn engines_read_the_directory_while_it_grows() {
    const TEST: &str = "engines_read_the_directory_while_it_grows";
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(traffic(folder.path())).unwrap();
    let mut command = tapline(["probe", "--json", "--idle-timeout", "60", "--parquet-time", "10m"]);
    command.args(["--export", "parquet:flows", "-r", "-"]).current_dir(folder.path()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&file[..file.len() / 2]).unwrap();
    input.flush().unwrap();
    let is_there = |hour: &str| folder.path().join(format!("flows/date=2026-11-22/hour={hour}")).is_dir();
    wait_for("the second hour", || is_there("21"));
    let readers = [
        (
            "duckdb",
            "import duckdb; print(duckdb.sql(\"SELECT sum(packetDeltaCount) FROM 'flows/**/*.parquet'\").fetchall()[0][0])",
        ),
        (
            "polars",
            "import polars; print(polars.scan_parquet('flows').select('packetDeltaCount').sum().collect().item())",
        ),
        (
            "pyarrow",
            "import pyarrow.dataset as d, pyarrow.compute as c; \
            print(c.sum(d.dataset('flows', partitioning='hive').to_table()['packetDeltaCount']).as_py())",
        ),
    ];
    let readers: Vec<_> = readers.into_iter().filter(|(module, _)| module_or_skip(TEST, module)).collect();
    let read = |script: &str| -> u64 {
        let output = finish(python().current_dir(folder.path()).args(["-c", script])).succeeded();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    for (module, script) in &readers {
        let packets = read(script);
        assert!((1..12_225).contains(&packets), "{module}: {packets}");
    }
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    input.write_all(&file[file.len() / 2..]).unwrap();
    drop(input);
    let finished = Finished::new(child.wait_with_output().unwrap()).succeeded();
    assert_eq!(written(&finished), (12_225, 0));
    for (module, script) in &readers {
        assert_eq!(read(script), 12_225, "{module}");
    }
}

/// Packets that the export has written, and lost.
fn written(finished: &Finished) -> (u64, u64) {
    let account = finished.account();
    let stages = account.value["stages"].as_array().unwrap();
    let output = &stages.iter().find(|stage| stage["class"] == "flowlog").unwrap()["output"];
    assert_eq!(output["buffered"], 0);
    (output["written"].as_u64().unwrap(), output["lost"].as_u64().unwrap())
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// SIGINT ends a probe with whole files; SIGKILL leaves those that were whole, and nothing else.
#[test]
fn signals_leave_whole_files() {
    const TEST: &str = "signals_leave_whole_files";
    for signal in ["INT", "KILL"] {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::read(traffic(folder.path())).unwrap();
        let mut command = tapline(["probe", "--json", "--export", "parquet:flows", "-r", "-"]);
        let mut child = command.current_dir(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&file[..file.len() / 2]).unwrap();
        let flows = folder.path().join("flows");
        wait_for("a file", || flows.is_dir() && !files_below(&flows).is_empty());
        let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        if signal == "INT" {
            // The rest of the file lets it see the signal at once.
            let _ = input.write_all(&file[file.len() / 2..]);
        }
        drop(input);
        let output = child.wait_with_output().unwrap();
        let files = files_below(&flows);
        let is_whole = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1")
        };
        assert!(!files.is_empty() && files.iter().all(is_whole), "{signal}: {files:?}");
        if signal == "INT" {
            let finished = Finished::new(output);
            let (packets, lost) = written(&finished);
            assert_eq!(lost, 0);
            if module_or_skip(TEST, "duckdb") {
                assert_eq!(sum_of(folder.path(), "sum(packetDeltaCount)"), packets);
            }
        }
    }
}

/// No file may grow beyond 20 kB: hours that have fewer flows are whole, the others are gone, and the account says
/// exactly which.
#[test]
fn a_full_disk_leaves_whole_files() {
    const TEST: &str = "a_full_disk_leaves_whole_files";
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path());
    let script = format!(
        "trap '' XFSZ; ulimit -f 40; exec {TAPLINE} probe -r {} --export parquet:flows --parquet-time 10h --json",
        path.display()
    );
    let finished = finish(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
    finished.failed_saying(&["File too large", "hour=", "its flows are lost"]);
    let (packets, lost) = written(&finished);
    assert!(packets > 0 && lost > 0, "{packets} {lost}");
    let files = files_below(&folder.path().join("flows"));
    assert!(!files.is_empty() && files.iter().all(|path| fs::metadata(path).unwrap().len() <= 40 * 512));
    if module_or_skip(TEST, "duckdb") {
        assert_eq!(sum_of(folder.path(), "sum(packetDeltaCount)"), packets);
    }
}

#[test]
fn standard_output_takes_one_file() {
    const TEST: &str = "standard_output_takes_one_file";
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path());
    let arguments = ["probe", "--account", "full", "--idle-timeout", "60", "--export", "parquet:-"];
    let arguments = [&arguments[..], &["-r", path.to_str().unwrap()]].concat();
    let all = run(&arguments).succeeded();
    let none = run([&arguments[..], &["udp port 1"]].concat()).succeeded();
    for (finished, packets) in [(&all, "12225"), (&none, "NULL")] {
        assert!(finished.stdout.starts_with(b"PAR1") && finished.stdout.ends_with(b"PAR1"));
        fs::create_dir_all(folder.path().join("flows")).unwrap();
        fs::write(folder.path().join("flows/one.parquet"), &finished.stdout).unwrap();
        if module_or_skip(TEST, "duckdb") {
            let question = format!("SELECT coalesce(sum(packetDeltaCount)::VARCHAR, 'NULL') FROM {ALL}");
            assert_eq!(sql(folder.path(), &[&question])[0], [[packets]]);
        }
    }
    assert!(all.stderr.contains("12,225 written"), "{}", all.stderr);
    let script = format!("exec {TAPLINE} {} > /dev/full", arguments.join(" "));
    let full = finish(Command::new("sh").args(["-c", &script]));
    full.failed_saying(&["No space left", "standard output", "12,225 LOST"]);
    run([&arguments[..], &["--workers", "2"]].concat())
        .failed_saying(&["several workers cannot write one file"]);
}

#[test]
fn workers_write_into_one_directory() {
    const TEST: &str = "workers_write_into_one_directory";
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path());
    let arguments = ["probe", "--json", "--workers", "3", "--domain", "5", "--export", "parquet:flows", "-r"];
    let finished = finish(tapline(arguments).arg(&path).current_dir(folder.path())).succeeded();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let told = &results["results"]["lines0"][0];
    assert_eq!(files_below(&folder.path().join("flows")).len() as u64, number(told, "files"));
    assert_eq!(number(told, "files_lost"), 0);
    if module_or_skip(TEST, "duckdb") {
        let sums =
            "count(*), sum(packetDeltaCount), count(DISTINCT observationDomainId), min(observationDomainId)";
        let answers = sql(folder.path(), &[&format!("SELECT {sums} FROM {ALL}")]);
        assert_eq!(answers[0], [words([&number(told, "records"), &12_225, &3, &5])]);
    }
}

#[test]
fn mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path());
    for (to, more, told) in [
        ("parquet:/dev/null", &[][..], "cannot export to /dev/null"),
        ("parquet:flows", &["--template", "octetDelta"], "did you mean octetDeltaCount?"),
        ("parquet:flows", &["--parquet-size", "10"], "10 is not from 64000 to"),
        ("parquet:flows", &["--parquet-time", "10ms"], "it may be 1 s to"),
        ("parquet:-,json:-", &[], "only one output can use standard output"),
    ] {
        let arguments = ["probe", "-r", path.to_str().unwrap(), "--export", to];
        finish(tapline(arguments).args(more).current_dir(folder.path())).failed_saying(&[told]);
    }
}

/// `tapline find --flows -w NAME.parquet`: as many flows, packets and octets as the lines of `--flows --json`.
#[test]
fn flows_that_a_search_finds_are_parquet() {
    if !module_or_skip("flows_that_a_search_finds_are_parquet", "duckdb") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = traffic(folder.path());
    let words = ["record", "--to", "store", "--size", "16MiB", "--segment", "4MiB", "-r"];
    finish(tapline(words).arg(&file).current_dir(folder.path())).succeeded();
    let find = |words: &[&str]| {
        let command = ["find", "store", "--flows"].iter().chain(words);
        finish(tapline(command).arg("ip and udp").current_dir(folder.path())).succeeded()
    };
    let lines = String::from_utf8(find(&["--json"]).stdout).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    find(&["-w", "found.parquet"]);
    let columns = "count(*), sum(packetDeltaCount), sum(octetDeltaCount), count(DISTINCT protocolIdentifier)";
    let asked = format!("SELECT {columns} FROM read_parquet('found.parquet/**/*.parquet')");
    let sums = |name: &str| rows.iter().map(|row| number(row, name)).sum::<u64>();
    let wanted = [rows.len() as u64, sums("packetDeltaCount"), sums("octetDeltaCount"), 1];
    assert!(wanted[0] > 10, "{wanted:?}");
    assert_eq!(sql(folder.path(), &[&asked])[0], [wanted.map(|sum| sum.to_string()).to_vec()]);
}
