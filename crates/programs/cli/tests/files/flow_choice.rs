//! Flows that are left out, scaled or packed: the account still has every packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use serde_json::Value;

/// 60 packets of 3 flows and 10 flows of a packet.
fn input(folder: &Path) -> std::path::PathBuf {
    let [large, small, both] = ["large.pcap", "small.pcap", "both.pcap"].map(|name| folder.join(name));
    run(["generate", "-w", text(&large), "count=60", "udp", "flows=3", "seed=1", "oneway"]).succeeded();
    run(["generate", "-w", text(&small), "count=10", "udp", "flows=10", "seed=2", "dport=77", "oneway"])
        .succeeded();
    run(["capture", "-r", text(&large), "-r", text(&small), "-w", text(&both)]).succeeded();
    both
}

/// The packets in the records of a file of lines.
fn packets(lines: &str) -> Vec<u64> {
    let of = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("an object a line");
        record["packetDeltaCount"].as_u64().expect("a number")
    };
    lines.lines().map(of).collect()
}

/// The account of a stage that is an output, once all of the account balances.
fn output_of(told: &Finished, stage: &str) -> Value {
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let value: Value = serde_json::from_str(text.lines().last().expect("an account")).expect("an object");
    assert_eq!(value["account"]["balanced"], true, "{value}");
    let stages = value["account"]["stages"].as_array().expect("stages");
    let found = stages.iter().find(|found| found["name"] == stage).expect("the stage");
    found["output"].clone()
}

#[test]
fn small_flows_are_left_out_and_counted() {
    let folder = tempfile::tempdir().expect("there is room");
    let (input, out) = (input(folder.path()), folder.path().join("flows.json"));
    let to = format!("json:{}", out.display());
    let told =
        run(["probe", "-r", text(&input), "--export", &to, "--min-packets", "2", "--json"]).succeeded();
    let records = packets(&fs::read_to_string(&out).expect("it was written"));
    assert!(records.iter().all(|packets| *packets >= 2), "{records:?}");
    let written: u64 = records.iter().sum();
    let output = output_of(&told, "lines0");
    assert_eq!((written, &output["written"], &output["lost"]), (60, &60.into(), &0.into()));
    assert_eq!(output["unsent"]["small_flow"], 10);
    let output = String::from_utf8_lossy(&told.stdout).into_owned();
    let results: Value = serde_json::from_str(output.lines().next().expect("results")).expect("an object");
    assert_eq!(results["results"]["meter"][0]["small"], 10);
}

/// Limits by protocol, and flows by their directions: records and account together have every packet.
#[test]
fn flows_are_chosen_by_bytes_and_directions() {
    let folder = tempfile::tempdir().expect("there is room");
    let names = ["udp.pcap", "tcp.pcap", "both.pcap", "all.pcap"].map(|name| folder.path().join(name));
    let [udp, tcp, both, all] = names.each_ref().map(|path| text(path));
    run(["generate", "-w", udp, "count=10", "udp", "flows=10", "size=100", "seed=1", "oneway"]).succeeded();
    run(["generate", "-w", tcp, "count=6", "tcp", "flows=6", "size=100", "seed=2", "oneway"]).succeeded();
    run(["generate", "-w", both, "count=40", "tcp", "flows=2", "dport=77", "size=400", "seed=3"]).succeeded();
    run(["capture", "-r", udp, "-r", tcp, "-r", both, "-w", all]).succeeded();
    let out = folder.path().join("flows.json");
    let to = format!("json:{}", out.display());
    for (options, written, unsent) in [
        (&["--min-bytes", "1000"][..], 50, 6),
        (&["--min-bytes", "0:200"], 46, 10),
        (&["--directions", "both"], 40, 16),
        (&["--directions", "one"], 16, 40),
        (&["--directions", "one", "--min-bytes", "1000"], 10, 46),
    ] {
        let probe = ["probe", "-r", all, "--export", &to, "--json", "--template", "default,flowId"];
        let told = run(probe.iter().chain(options).copied()).succeeded();
        let lines = fs::read_to_string(&out).expect("it was written");
        let output = output_of(&told, "lines0");
        assert_eq!(packets(&lines).iter().sum::<u64>(), written, "{options:?}");
        assert_eq!((&output["written"], &output["lost"]), (&written.into(), &0.into()), "{options:?}");
        assert_eq!(output["unsent"]["left_out_flow"], unsent, "{options:?}");
        let ids: BTreeSet<String> =
            lines.lines().map(|line| line.split("\"flowId\":").nth(1).expect("an id").to_owned()).collect();
        assert!(ids.len() >= 2, "{lines}");
    }
    let wrong = run(["probe", "-r", all, "--min-bytes", "1:2:3:4"]);
    assert!(wrong.stderr.contains("more than three limits"));
}

#[test]
fn sampled_flows_are_scaled() {
    let folder = tempfile::tempdir().expect("there is room");
    let (input, out) = (input(folder.path()), folder.path().join("flows.json"));
    let to = format!("json:{}", out.display());
    let probe = ["probe", "-r", text(&input), "--export", &to, "--sample", "5", "--scale", "--json"];
    let template = ["--template", "default,samplingInterval"];
    let told = run(probe.into_iter().chain(template)).succeeded();
    let lines = fs::read_to_string(&out).expect("it was written");
    assert_eq!(packets(&lines).iter().sum::<u64>(), 70, "14 of 70 packets, five times");
    assert_eq!(output_of(&told, "lines0")["written"], 14, "the account has the packets that were metered");
    assert!(lines.contains("\"samplingInterval\":1"), "{lines}");
}

/// The records of lines, by addresses, ports, protocol and the time of the first packet.
fn by_key(lines: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for line in lines.lines() {
        let mut record: Value = serde_json::from_str(line).expect("an object a line");
        // Packets of other flows let the clock pass a timeout, where else the end of the file comes first.
        record.as_object_mut().expect("an object").remove("flowEndReason");
        let fields = [
            "sourceIPv4Address",
            "sourceIPv6Address",
            "destinationIPv4Address",
            "destinationIPv6Address",
            "sourceTransportPort",
            "destinationTransportPort",
            "protocolIdentifier",
            "flowStartNanoseconds",
        ];
        let key: Vec<String> = fields.iter().map(|field| record[field].to_string()).collect();
        found.insert(key.join(" "), record);
    }
    found
}

/// Output of `tapline probe` for a file, as lines of JSON with the default fields, and its account.
fn lines_of(path: &Path, more: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("there is room");
    let out = folder.path().join("flows.json");
    let to = format!("json:{}", out.display());
    let told =
        run(["probe", "-r", text(path), "--export", &to, "--json"].into_iter().chain(more.iter().copied()));
    (fs::read_to_string(&out).unwrap_or_default(), account_of(&told))
}

fn account_of(told: &Finished) -> Value {
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let value: Value =
        text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    assert_eq!(value["account"]["balanced"], true, "{value}: {}", told.stderr);
    value["account"].clone()
}

/// Flows of the sample are those of the whole, both directions and with all their packets; two processes choose the
/// same, two seeds others.
#[test]
fn sampled_flows_are_whole() {
    let test = "sampled_flows_are_whole";
    let Some(captures) = captures_or_skip(test) else { return };
    let (mut all, mut chosen, mut differ) = (0, 0, false);
    let chosen_captures = captures
        .iter()
        .filter(|path| ["dns", "http", "tls", "ipv6", "frag"].iter().any(|word| text(path).contains(word)));
    for path in thinned(chosen_captures, 3) {
        let whole = by_key(&lines_of(path, &[]).0);
        let sample = ["--sample-flows", "3", "--sample-seed", "7"];
        let (lines, account) = lines_of(path, &sample);
        let sampled = by_key(&lines);
        for (key, record) in &sampled {
            assert_eq!(whole.get(key), Some(record), "{}", path.display());
        }
        let ways = |records: &BTreeMap<String, Value>| -> BTreeMap<String, usize> {
            let mut ways = BTreeMap::new();
            records.values().for_each(|record| *ways.entry(community_id(record)).or_default() += 1);
            ways
        };
        let whole_ways = ways(&whole);
        // Requests and replies of ICMP are flows of their own.
        for (id, count) in ways(&sampled) {
            let icmp = sampled.values().any(|record| {
                record["communityId"] == id && [1.into(), 58.into()].contains(&record["protocolIdentifier"])
            });
            assert!(icmp || whole_ways[&id] == count, "{}: {id}", path.display());
        }
        let mut again = sample.to_vec();
        again.extend(["--key", "none", "--flows-max", "77777"]);
        assert_eq!(lines_of(path, &again).0, lines, "{}", path.display());
        differ |= lines_of(path, &["--sample-flows", "3", "--sample-seed", "8"]).0 != lines;
        let refused =
            account["stages"].as_array().expect("stages").iter().find(|stage| stage["name"] == "meter");
        let packets: u64 = packets(&lines).iter().sum();
        let meter = refused.expect("a meter");
        assert_eq!(
            meter["received"].as_u64(),
            meter["refused"].as_u64().map(|refused| refused + packets),
            "{meter}"
        );
        (all, chosen) = (all + whole.len(), chosen + sampled.len());
    }
    assert!(differ && all > 90, "{all}");
    assert!((all / 6..all / 2).contains(&chosen), "{chosen} of {all}");
}

/// Flows are estimated by the interval; options report the sample, which tshark reads, and NetFlow v5 does not.
#[test]
fn a_sample_of_flows_is_told() {
    let test = "a_sample_of_flows_is_told";
    let folder = tempfile::tempdir().expect("there is room");
    let (path, out) = (folder.path().join("in.pcap"), folder.path().join("flows.ipfix"));
    run(["generate", "-w", text(&path), "count=4000", "udp", "flows=1000", "seed=1", "oneway"]).succeeded();
    let (lines, account) = lines_of(&path, &["--sample-flows", "4"]);
    let metered: u64 = packets(&lines).iter().sum();
    assert!((700..1300).contains(&metered), "{metered} of 4000");
    let stage =
        account["stages"].as_array().and_then(|all| all.iter().find(|stage| stage["name"] == "meter"));
    assert_eq!(stage.expect("a meter")["refused"], 4000 - metered);
    let (lines, account) = lines_of(&path, &["--sample-flows", "4", "--scale"]);
    assert_eq!(packets(&lines).iter().sum::<u64>(), 4 * metered);
    let output =
        account["stages"].as_array().and_then(|all| all.iter().find(|stage| stage["name"] == "lines0"));
    assert_eq!(output.expect("an output")["output"]["written"], metered);
    let probe = ["probe", "-r", text(&path), "--sample-flows", "4", "--export"];
    run(probe.into_iter().chain(["127.0.0.1:9", "--version", "5"]))
        .failed_saying(&["sampled flows", "--version 9"]);
    let to = format!("file:{}", out.display());
    run(probe.into_iter().chain([to.as_str()])).succeeded();
    if !program_or_skip(test, "tshark") {
        return;
    }
    let fields = [
        "cflow.flow_selector_algorithm",
        "cflow.sampling_probability",
        "cflow.hash_output_range_min",
        "cflow.hash_output_range_max",
        "cflow.hash_selected_range_min",
        "cflow.hash_selected_range_max",
        "_ws.malformed",
    ];
    let told = fields_of_tshark(&out, "cflow.flow_selector_algorithm", &fields);
    let wanted = "6\t0.25\t0\t4294967295\t0\t1073741823\t";
    assert_eq!(told.into_iter().collect::<Vec<_>>(), [wanted]);
    let lines = fields_of_tshark(&out, "_ws.malformed", &["frame.number"]);
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn lines_are_packed_as_their_name_says() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = input(folder.path());
    let [plain, packed, wrong] = ["f.json", "f.json.gz", "f.json.bz2"].map(|name| folder.path().join(name));
    for path in [&plain, &packed] {
        let to = format!("json:{}", path.display());
        run(["probe", "-r", text(&input), "--export", &to]).succeeded();
    }
    let unpacked = Command::new("gzip").arg("-dc").arg(&packed).output().expect("gzip is everywhere");
    assert!(unpacked.status.success());
    assert_eq!(unpacked.stdout, fs::read(&plain).expect("it was written"));
    let to = format!("json:{}", wrong.display());
    run(["probe", "-r", text(&input), "--export", &to]).failed_saying(&["are not written"]);
}

/// Windows and throughput compared with tshark's, on a real connection.
#[test]
fn windows_are_those_of_tshark() {
    let test = "windows_are_those_of_tshark";
    let Some(captures) = captures_or_skip(test).filter(|_| program_or_skip(test, "tshark")) else { return };
    let mut checked = 0;
    for path in captures.iter().filter(|path| text(path).contains("tls-") || text(path).contains("http")) {
        for (port, least, greatest) in by_probe(path) {
            let (theirs_least, theirs_greatest) = by_tshark(path, port);
            assert_eq!((least, greatest), (theirs_least, theirs_greatest), "{} port {port}", path.display());
            checked += 1;
        }
        if checked > 20 {
            break;
        }
    }
    assert!(checked > 5, "{checked} directions");
}

/// Source port, least and greatest window of directions whose port is alone in its file.
fn by_probe(path: &Path) -> Vec<(u64, u64, u64)> {
    let template = "sourceTransportPort,tcpWindowMinimum,tcpWindowMaximum,packetDeltaCount,flowEndReason";
    let probe = ["probe", "-r", text(path), "--export", "json:-", "--details", "tcp", "--template", template];
    let long = ["--active-timeout", "10h", "--idle-timeout", "10h", "--closed-timeout", "10h"];
    let told = run(probe.into_iter().chain(long).chain(["tcp"]));
    let lines = String::from_utf8_lossy(&told.stdout).into_owned();
    let records: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let port = |record: &Value| record["sourceTransportPort"].as_u64();
    let alone = |record: &&Value| records.iter().filter(|other| port(other) == port(record)).count() == 1;
    let of = |record: &Value| {
        Some((port(record)?, record["tcpWindowMinimum"].as_u64()?, record["tcpWindowMaximum"].as_u64()?))
    };
    records.iter().filter(alone).filter_map(of).collect()
}

fn by_tshark(path: &Path, port: u64) -> (u64, u64) {
    let filter = format!("tcp.srcport == {port} && tcp.flags.syn == 0 && tcp.flags.reset == 0");
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=f", "-e", "tcp.window_size", "-Y", &filter, "-r"]);
    let output = tshark.arg(path).output().expect("tshark runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let windows: Vec<u64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    (windows.iter().min().copied().unwrap_or(0), windows.iter().max().copied().unwrap_or(0))
}

/// The lines of fields that tshark prints of a file, once each.
fn fields_of_tshark(path: &Path, filter: &str, fields: &[&str]) -> BTreeSet<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=f", "-Y", filter, "-r"]).arg(path);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.output().expect("tshark runs");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// MAC addresses, VLANs and labels of flows are those of packets that tshark shows, in lines and in IPFIX.
#[test]
fn link_headers_are_those_of_tshark() {
    let test = "link_headers_are_those_of_tshark";
    let Some(captures) = captures_or_skip(test).filter(|_| program_or_skip(test, "tshark")) else { return };
    let folder = tempfile::tempdir().expect("there is room");
    let (lines, messages) = (folder.path().join("flows.json"), folder.path().join("flows.ipfix"));
    let elements = "sourceMacAddress,destinationMacAddress,mplsTopLabelStackSection";
    let (mut with_labels, mut checked) = (0, 0);
    let (rare, many): (Vec<_>, Vec<_>) = captures
        .iter()
        .filter(|path| ["http-", "vlan", "tunnels-mpls"].iter().any(|word| text(path).contains(word)))
        .partition(|path| !text(path).contains("http-"));
    for path in rare.into_iter().chain(thinned(many.into_iter(), 4)) {
        let packets = fields_of_tshark(path, "ip || ipv6", &["eth.src", "eth.dst", "mpls.label"]);
        let probe = ["probe", "-r", text(path), "--details", "ethernet,mpls", "--template", elements];
        let _ = (fs::remove_file(&lines), fs::remove_file(&messages));
        for to in [format!("json:{}", lines.display()), format!("file:{}", messages.display())] {
            run(probe.into_iter().chain(["--export", &to]));
        }
        let Ok(written) = fs::read_to_string(&lines) else { continue };
        let records = written.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
        let word = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let mut ours = BTreeSet::new();
        for record in records.filter(|record| record["destinationMacAddress"].is_string()) {
            let [source, destination, label] = elements.split(',').collect::<Vec<_>>()[..] else {
                unreachable!()
            };
            // A flow without labels has zeros there: the bottom of a stack has its bit.
            let label = u32::from_str_radix(&word(&record, label), 16).unwrap_or(0);
            let label = if label == 0 { String::new() } else { (label >> 4).to_string() };
            with_labels += usize::from(!label.is_empty());
            let [source, destination] = [source, destination].map(|name| word(&record, name));
            assert!(
                packets.contains(&format!("{source}\t{destination}\t{label}")),
                "{}: {record}",
                path.display()
            );
            ours.insert(format!("{source}\t{destination}"));
            checked += 1;
        }
        let mut theirs = fields_of_tshark(&messages, "cflow.srcmac", &["cflow.srcmac", "cflow.dstmac"]);
        // Packets of loopback have zeros as addresses, as flows without addresses have in IPFIX.
        for pairs in [&mut theirs, &mut ours] {
            pairs.retain(|pair| !pair.contains("00:00:00:00:00:00"));
        }
        assert!(theirs.is_subset(&ours) && theirs.is_empty() == ours.is_empty(), "{theirs:?}, {ours:?}");
    }
    assert!(checked > 15 && with_labels > 0, "{checked} flows, {with_labels} with labels");
}

fn community_id(record: &Value) -> String {
    record["communityId"].as_str().unwrap_or_default().to_owned()
}
