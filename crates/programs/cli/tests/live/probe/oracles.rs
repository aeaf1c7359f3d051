//! Flows compared with those of nfdump and tshark.

use super::*;

/// A collector that keeps what comes in a folder; ended when dropped.
struct Nfcapd(Child, u16);

impl Nfcapd {
    fn start(folder: &Path) -> Nfcapd {
        // A free port of an address at which few other tests have one.
        let port = UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("nfcapd")
            .arg("-l")
            .arg(folder)
            // A file each two seconds: what stands in files was stored.
            .args(["-b", "127.0.0.2", "-B", "8000000", "-t", "2", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nfcapd starts");
        let nfcapd = Nfcapd(child, port);
        wait_for("nfcapd listens", || {
            let listening = fs::read_to_string("/proc/net/udp").unwrap_or_default();
            listening.contains(&format!("0200007F:{port:04X} "))
        });
        nfcapd
    }

    /// Waits until `records` records are in the files, and ends nfcapd.
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

/// Records as nfdump prints them: protocol, addresses, ports, packets, bytes, first and last in milliseconds.
type NfdumpRecord = (u64, String, String, u64, u64, u64, u64, i64, i64);

fn told_by_nfdump(folder: &Path) -> Vec<NfdumpRecord> {
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
    let mut told: Vec<NfdumpRecord> = records.iter().map(told).collect();
    told.sort();
    told
}

fn told(record: &Value) -> NfdumpRecord {
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

/// Milliseconds of the day.
fn millis(text: &str) -> i64 {
    let time = text.split('T').nth(1).unwrap_or_default();
    let parts: Vec<&str> = time.split([':', '.']).collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<i64>().ok()).unwrap_or(0);
    ((number(0) * 60 + number(1)) * 60 + number(2)) * 1000 + number(3)
}

fn told_by_reference(flows: &[Flow], has_v6: bool) -> Vec<NfdumpRecord> {
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
fn nfdump_agrees_with_the_slow_meter() {
    const TEST: &str = "nfdump_agrees_with_the_slow_meter";
    if !program_or_skip(TEST, "nfcapd") || !program_or_skip(TEST, "nfdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), MIX);
    let flows = reference(&path);
    // Elements that it does not know it leaves out, also such whose lengths vary.
    let details = "tcp,sizes,gaps,dns,tls,http,application,payload,ethernet,mpls";
    for (version, details) in [("5", "none"), ("9", "none"), ("10", "none"), ("10", details)] {
        let into = folder.path().join(format!("{version}-{details}"));
        fs::create_dir(&into).unwrap();
        let nfcapd = Nfcapd::start(&into);
        let to = format!("127.0.0.2:{}", nfcapd.1);
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
        // Packets of flows that version 5 cannot express are lost in the account.
        let left_out = export["packets_left_out"].as_u64().unwrap();
        assert_eq!(left_out > 0, version == "5");
        assert_eq!(account["lost"], left_out);
    }
}

/// Sums of packets and bytes, by protocol and addresses, as nfdump aggregates records of whole keys.
fn aggregated(folder: &Path, fields: &str, filter: &str) -> BTreeSet<String> {
    let format = "fmt:%pr|%sa|%da|%pkt|%byt";
    let mut nfdump = Command::new("nfdump");
    nfdump.arg("-R").arg(folder).args(["-q", "-N", "-6", "-A", fields, "-o", format, filter]);
    let text = String::from_utf8_lossy(&finish(&mut nfdump).stdout).into_owned();
    let cells = |line: &str| line.split('|').map(str::trim).collect::<Vec<_>>().join(" ");
    text.lines().filter(|line| line.contains('|')).map(cells).collect()
}

/// Flows whose keys leave something out are what nfdump makes of those with whole keys, on real captures.
#[test]
fn merged_flows_are_those_of_nfdump() {
    const TEST: &str = "merged_flows_are_those_of_nfdump";
    if !program_or_skip(TEST, "nfcapd") || !program_or_skip(TEST, "nfdump") {
        return;
    }
    let Some(captures) = crate::support::captures_or_skip(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [all, into] = ["all.pcapng", "flows"].map(|name| folder.path().join(name));
    let words = ["dns", "http", "tls", "ipv6", "icmp"];
    let chosen =
        captures.iter().filter(|path| words.iter().any(|word| path.to_string_lossy().contains(word)));
    let inputs = chosen.flat_map(|path| ["-r".to_owned(), path.display().to_string()]);
    let command = ["capture".to_owned(), "-w".to_owned(), all.display().to_string()];
    run(command.into_iter().chain(inputs)).succeeded();
    let all = all.display().to_string();
    fs::create_dir(&into).unwrap();
    let nfcapd = Nfcapd::start(&into);
    let to = format!("127.0.0.2:{}", nfcapd.1);
    let (results, _) = probe(&["-r", &all, "--rate", "500", "--export", &to]);
    nfcapd.finish(&into, results["export"][0]["records"].as_u64().unwrap() as usize);
    for (key, fields, filter) in [
        ("no-ports", "proto,srcip,dstip", "any"),
        ("no-protocol", "srcip,dstip", "any"),
        ("no-ports,ipv4/24", "proto,srcip4/24,dstip4/24", "ipv4"),
    ] {
        let wanted = aggregated(&into, fields, filter);
        let finished = run(["probe", "-r", &all, "--key", key, "--export", "json:-"]).succeeded();
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in String::from_utf8(finished.stdout).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            if filter == "ipv4" && record["sourceIPv4Address"].is_null() {
                continue;
            }
            let text = |v4: &str, v6: &str| record[v4].as_str().or(record[v6].as_str()).unwrap().to_owned();
            let source = text("sourceIPv4Address", "sourceIPv6Address");
            let destination = text("destinationIPv4Address", "destinationIPv6Address");
            let sum =
                sums.entry(format!("{} {source} {destination}", record["protocolIdentifier"])).or_default();
            *sum = (
                sum.0 + record["packetDeltaCount"].as_u64().unwrap(),
                sum.1 + record["octetDeltaCount"].as_u64().unwrap(),
            );
        }
        let ours: BTreeSet<String> =
            sums.into_iter().map(|(key, (packets, bytes))| format!("{key} {packets} {bytes}")).collect();
        assert!(wanted.len() > 100, "{key}: {}", wanted.len());
        assert_eq!(ours, wanted, "{key}");
    }
}

/// tshark reads files of IPFIX, finds nothing wrong, and every record is there; sequence numbers begin at 0 and count
/// data records. Community IDs are those that tshark reckons of each packet.
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

/// Both directions in one record, with the reverse elements of RFC 5103, sampling reported in options, fields of our
/// choice.
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
