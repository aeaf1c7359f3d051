use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tapline_packet::headers::Headers;
use tapline_packet::{FiveTuple, LinkType};
use tapline_testkit::traffic::Traffic;

use crate::trial::Trial;

struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("site.rules")
    }

    /// Replaces the file as a whole.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("written");
        fs::rename(&new, self.path()).expect("in its place");
    }

    /// A graph whose outputs 0, 1 and 2 are the ends 0, 1 and 2.
    fn trial(&self) -> Trial {
        let text = format!(
            "r :: rules(\"{}\", outputs=\"a, b\"); file(\"in\") -> r; r[0] -> json; r[1] -> json; r[2] -> json",
            self.path().display()
        );
        Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"))
    }
}

fn frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
    Traffic::new(seed).take(count).map(|(_, frame)| frame).collect()
}

fn tuple(frame: &[u8]) -> Option<FiveTuple> {
    let headers = Headers::parse_data(LinkType::ETHERNET, frame);
    let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
    headers.five_tuple(frame).filter(|tuple| !is_later || !matches!(tuple.protocol, 6 | 17 | 132))
}

fn end(address: std::net::IpAddr, port: u16, protocol: u8) -> String {
    match protocol {
        6 | 17 | 132 => std::net::SocketAddr::new(address, port).to_string(),
        _ => address.to_string(),
    }
}

/// A rule for the flow of a tuple.
fn flow(tuple: &FiveTuple, arrow: &str, actions: &str) -> String {
    let FiveTuple { src, dst, protocol, src_port, dst_port } = *tuple;
    format!(
        "flow {protocol} {} {arrow} {} => {actions}\n",
        end(src, src_port, protocol),
        end(dst, dst_port, protocol)
    )
}

fn accepts(filter: &str, frame: &[u8]) -> bool {
    let options =
        tapline_filter::Options { link_type: LinkType::ETHERNET, ..tapline_filter::Options::default() };
    let filter = tapline_filter::compile(filter, &options).expect("a filter");
    let meta = crate::trial::whole(frame);
    tapline_bpf::PacketFilter::accepts(&filter, tapline_packet::Packet { data: frame, meta: &meta })
}

#[test]
fn verdicts_are_those_of_the_rules_one_by_one() {
    let frames = frames(11, 6000);
    let mut rules =
        String::from("filter not arp\ndefault to b\nrule u: udp => to a\nrule t: tcp => to b, go on\n");
    rules.push_str("rule l: greater 600 => drop\n");
    let mut exact: HashMap<FiveTuple, &str> = HashMap::new();
    for (number, tuple) in frames.iter().filter_map(|frame| tuple(frame)).enumerate() {
        if number % 3 != 0 || exact.contains_key(&tuple) || exact.contains_key(&tuple.reversed()) {
            continue;
        }
        let actions = ["drop", "pass", "to a", "count", "to a, to b, go on"][number / 3 % 5];
        let arrow = if number % 2 == 0 { "<->" } else { "->" };
        exact.insert(tuple, actions);
        if number % 2 == 0 {
            exact.insert(tuple.reversed(), actions);
        }
        rules.push_str(&flow(&tuple, arrow, actions));
    }
    let mut expected: [Vec<Vec<u8>>; 3] = Default::default();
    for frame in frames.iter().filter(|frame| accepts("not arp", frame)) {
        let mut outputs = Vec::new();
        let is_decided = match tuple(frame).and_then(|tuple| exact.get(&tuple)) {
            Some(&"drop") => true,
            Some(&"pass") => {
                outputs.push(0);
                true
            }
            Some(&"to a") => {
                outputs.push(1);
                true
            }
            Some(&"to a, to b, go on") => {
                outputs.extend([1, 2]);
                false
            }
            _ => false,
        };
        if !is_decided {
            if accepts("udp", frame) {
                outputs.push(1);
            } else {
                outputs.extend(accepts("tcp", frame).then_some(2));
                outputs.extend((!accepts("greater 600", frame)).then_some(2));
            }
        }
        outputs.sort_unstable();
        outputs.dedup();
        outputs.iter().for_each(|output: &usize| expected[*output].push(frame.clone()));
    }
    let scratch = Scratch::new();
    scratch.write(&rules);
    let mut trial = scratch.trial();
    frames.chunks(97).for_each(|some| trial.push_frames(some));
    trial.finish();
    for (output, expected) in expected.iter().enumerate() {
        let arrived: Vec<Vec<u8>> = trial.arrived_at(output).into_iter().map(|packet| packet.data).collect();
        assert!(
            !arrived.is_empty() && arrived == *expected,
            "output {output}: {} of {}",
            arrived.len(),
            expected.len()
        );
    }
    trial.assert_balanced();
    assert!(exact.len() > 50, "{} exact rules", exact.len());
}

#[test]
fn samples_are_exact_for_each_rule() {
    let scratch = Scratch::new();
    scratch.write("rule: udp => sample 1/10, to a\nrule: tcp => sample 1/3, to b, go on\nsample 1/4\n");
    let mut trial = scratch.trial();
    let frames = frames(3, 4000);
    frames.chunks(61).for_each(|some| trial.push_frames(some));
    let count = |filter: &str| frames.iter().filter(|frame| accepts(filter, frame)).count();
    let (udp, tcp) = (count("udp"), count("tcp"));
    let is_share = |part: usize, of: usize, all: usize| part == all / of || part == all / of + 1;
    let [passed, a, b] = [0, 1, 2].map(|output| trial.arrived_at(output).len());
    assert!(is_share(a, 10, udp), "{a} of {udp}");
    assert!(is_share(b, 3, tcp), "{b} of {tcp}");
    assert!(is_share(passed, 4, frames.len() - udp), "{passed}");
    trial.assert_balanced();
}

/// Pushes packets until the stage has reported the file, at most for half a minute.
fn until_told(trial: &mut Trial, word: &str) -> String {
    let limit = Instant::now() + Duration::from_secs(30);
    while Instant::now() < limit {
        let told: Vec<String> = trial.graph.events().into_iter().map(|event| event.text).collect();
        if let Some(told) = told.into_iter().find(|told| told.contains(word)) {
            return told;
        }
        trial.tick(0);
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing was told of `{word}`");
}

#[test]
fn a_changed_file_is_obeyed_and_counters_stay() {
    let scratch = Scratch::new();
    let frames = frames(5, 300);
    let udp = frames.iter().filter(|frame| accepts("udp", frame)).count() as u64;
    scratch.write("rule u: udp => to a\nrule x: tcp => to b\n");
    let mut trial = scratch.trial();
    trial.push_frames(&frames);
    scratch.write("rule new: arp => drop\nrule u: udp => to a\ndefault drop\n");
    until_told(&mut trial, "rules read again: 0 exact, 2 in the list");
    trial.push_frames(&frames);
    assert_eq!(trial.numbers("r", Some("rule u"))[0], 2 * udp);
    let tcp = frames.iter().filter(|frame| accepts("tcp", frame)).count() as u64;
    assert_eq!(trial.numbers("r", Some("removed"))[0], tcp);
    assert_eq!(trial.arrived_at(2).len() as u64, tcp, "none after the change");
    // A mistake changes nothing, and is told with its place.
    scratch.write("default pass\nrule u: udp => to nowhere\n");
    let told = until_told(&mut trial, "there is no output `nowhere`");
    assert!(told.contains("line 2, column 19") && told.contains("the rules before stay"), "{told}");
    scratch.write("default pass\nrule u: tcp port 99999 => drop\n");
    let told = until_told(&mut trial, "illegal port");
    assert!(told.contains("line 2, for eth0"), "{told}");
    trial.push_frames(&frames);
    assert_eq!(trial.numbers("r", Some("rule u"))[0], 3 * udp);
    trial.finish();
    trial.assert_balanced();
}

#[test]
fn a_request_reads_a_file_of_the_same_stamp() {
    let scratch = Scratch::new();
    scratch.write("default pass\n");
    let mut trial = scratch.trial();
    trial.control().reloads().request();
    until_told(&mut trial, "rules read again");
    fs::remove_file(scratch.path()).expect("removed");
    trial.control().reloads().request();
    let told = until_told(&mut trial, "cannot read");
    assert!(told.contains("the rules before stay"), "{told}");
}

#[test]
fn batches_see_one_file_or_the_other() {
    let scratch = Scratch::new();
    let files = [
        "rule: udp => to a\nrule: tcp => to a\ndefault to a\n",
        "rule: udp => to b\nrule: tcp => to b\ndefault to b\n",
    ];
    scratch.write(files[0]);
    let mut trial = scratch.trial();
    let frames = frames(8, 200);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    thread::scope(|scope| {
        let (is_over, folder, control) = (Arc::clone(&stop), &scratch, trial.control());
        scope.spawn(move || {
            for turn in 0.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                folder.write(files[turn % 2]);
                control.reloads().request();
                thread::sleep(Duration::from_millis(3));
            }
        });
        let mut met = [0, 0];
        let limit = Instant::now() + Duration::from_secs(30);
        while met.contains(&0) && Instant::now() < limit {
            trial.push_frames(&frames);
            let [a, b] = [1, 2].map(|output| trial.arrived_at(output).len());
            assert!([(200, 0), (0, 200)].contains(&(a, b)), "{a} and {b}");
            met[usize::from(b > 0)] += 1;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(!met.contains(&0), "{met:?}");
    });
    trial.finish();
    trial.assert_balanced();
}

#[test]
fn faults_are_told_when_the_graph_is_made() {
    let scratch = Scratch::new();
    scratch.write("rule: ip => to c\n");
    let path = scratch.path();
    let fault = |arguments: &str| {
        let text = format!("r :: rules({arguments}); file(\"in\") -> r -> json");
        Trial::graph(&text).err().unwrap_or_else(|| panic!("{arguments} is taken"))
    };
    let file = |path: &Path| format!("\"{}\"", path.display());
    assert!(fault(&format!("{}, outputs=\"a, b\"", file(&path))).contains("there is no output `c`"));
    assert!(fault(&format!("{}, outputs=\"c, c\"", file(&path))).contains("is given twice"));
    assert!(fault(&format!("{}, outputs=\"c,\"", file(&path))).contains("cannot be a name"));
    assert!(fault(&file(&path.join("x"))).contains("cannot read"));
}

/// A frame of a TCP flow, in a second.
fn at(second: i64, port: u16) -> (Vec<u8>, tapline_packet::Meta) {
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
    let (a, b) = (Host::number(1), Host::number(2));
    let tcp = Tcp { src: port, dst: 80, ..Tcp::default() };
    let frame = Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), b"x"));
    let timestamp = tapline_packet::Timestamp::from_nanos(second * 1_000_000_000);
    let meta = tapline_packet::Meta { timestamp, ..crate::trial::whole(&frame) };
    (frame, meta)
}

/// The row of a rule: actions, packets, seconds since the last one.
fn row(trial: &Trial, rule: &str) -> String {
    let rows = trial.result("r").rows;
    let row =
        rows.iter().find(|row| row[0].to_string().starts_with(rule)).unwrap_or_else(|| panic!("{rows:?}"));
    [1, 2, 4].map(|at| row[at].to_string()).join("; ")
}

#[test]
fn idle_rules_end_and_results_show_the_time() {
    use tapline_testkit::frames::Host;
    let scratch = Scratch::new();
    let (a, b) = (Host::number(1).v4, Host::number(2).v4);
    let rule = |port: u16, actions: &str| format!("flow tcp {a}:{port} <-> {b}:80 => {actions}\n");
    let rules = [rule(1, "drop, idle 5s"), rule(2, "drop"), rule(3, "to a, idle 60s")].concat();
    scratch.write(&format!("{rules}idle 20s\ndefault to b\n"));
    let mut trial = scratch.trial();
    // Time goes on with packets of other flows, in batches of any length.
    let others = [117, 122, 126].map(|second| at(second, 9));
    let first = [at(100, 1), at(105, 1), at(108, 9), at(111, 1), at(112, 2)];
    trial.push_all(&[&first[..], &others, &[at(130, 3)]].concat(), 3);
    // The first rule was idle for six seconds.
    assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [0, 1, 5]);
    assert_eq!(row(&trial, "flow tcp 10.0.0.1:2 "), "drop; 1; 18");
    assert_eq!(row(&trial, "flow tcp 10.0.0.1:3 "), "to a, idle 60s; 1; 0");
    assert_eq!(row(&trial, "flow (all)"), "3 rules, 3 met, 1 purged; 4; -");
    trial.push_all(&[at(135, 9), at(140, 2), at(141, 3)], 1);
    assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [0, 1, 2]);
    assert_eq!(row(&trial, "flow (all)"), "3 rules, 3 met, 2 purged; 5; -");
    trial.assert_balanced();
}

#[test]
fn wrong_times_end_no_rule_in_use() {
    use tapline_testkit::frames::Host;
    let scratch = Scratch::new();
    let (a, b) = (Host::number(1).v4, Host::number(2).v4);
    scratch.write(&format!("flow tcp {a}:1 -> {b}:80 => drop, idle 5m\n"));
    let now = 1_700_000_000;
    let without_time = |port: u16| {
        let (frame, meta) = at(0, port);
        (frame, tapline_packet::Meta { is_untimed: true, ..meta })
    };
    let mut trial = scratch.trial();
    // A batch of packets without a time, packets of the rule, one of them stamped a day ahead.
    trial.push_all(&vec![without_time(9); 256], 256);
    trial.push_all(&[at(now, 1), at(now + 86_400, 1), at(now + 1, 1), without_time(1), at(now + 2, 1)], 256);
    assert_eq!(trial.arrived_at(0).len(), 256);
    assert_eq!(row(&trial, "flow (all)"), "1 rules, 1 met; 5; -");
    trial.assert_balanced();
}

#[test]
fn a_packet_without_room_is_counted_once() {
    let scratch = Scratch::new();
    scratch.write("learn 1\nrule b: tcp => to a, learn, go on\nrule c: tcp => to b, learn, go on\ndefault pass, learn\n");
    let mut trial = scratch.trial();
    trial.push_all(&[at(1, 7), at(1, 8), at(1, 9)], 3);
    assert_eq!(row(&trial, "learned"), "1 flows, 0 purged, 2 packets without room; 0; -");
}

#[test]
fn a_rule_learns_flows_up_to_a_bound() {
    let scratch = Scratch::new();
    // The rule meets the first packet alone; the others of the flow follow it.
    scratch.write("learn 2\nidle 30s\nrule first: tcp src port 7 or tcp src port 8 or tcp src port 9 => to a, learn\ndefault pass\n");
    let mut trial = scratch.trial();
    let back = |second: i64, port: u16| {
        use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
        let (a, b) = (Host::number(1), Host::number(2));
        let tcp = Tcp { src: 80, dst: port, ..Tcp::default() };
        let frame = Ethernet::between(&b, &a).ip(&tcp.packet(IpPair::between(&b, &a, IpVersion::V4), b"y"));
        (frame, at(second, port).1)
    };
    trial.push_all(&[back(1, 7), at(1, 7), back(2, 7), at(2, 8), at(2, 9), back(3, 9), back(3, 8)], 1);
    assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [2, 5, 0]);
    assert_eq!(row(&trial, "learned"), "2 flows, 0 purged, 1 packets without room; 2; -");
    trial.push_all(&[back(31, 7), at(40, 9), back(41, 9), back(75, 7)], 1);
    assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [1, 3, 0]);
    assert_eq!(row(&trial, "learned"), "2 flows, 1 purged, 1 packets without room; 4; -");
    trial.assert_balanced();
}
