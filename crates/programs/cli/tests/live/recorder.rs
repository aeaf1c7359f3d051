//! A recording from end to end: mixed traffic comes by a link and is found by host, port, name of a port and time, as
//! tcpdump finds it in the same files; other programs read them while they are written.

use std::fs;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tapline_testkit::capture_file::StoredPacket;
use tapline_testkit::frames::application::{dns_query, dns_response, tls_client_hello};
use tapline_testkit::frames::{Ethernet, Host, IpPair, Tcp, Udp, flags};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::random::Random;
use tapline_testkit::sender::{Pace, Sender};

use crate::support::{Live, files_in, frames, packets_of, program_or_skip, run, tapline, text, wait_for};

/// Packets a second.
const RATE: u64 = 2000;

fn count(store: &Path, filter: &str) -> u64 {
    run(["find", text(store), "--count", "--json", "--", filter]).succeeded().account().output("written")
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let mut files = files_in(&store.join("seg"));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "pcapng"));
    files
}

fn record(namespace: &Namespace, store: &Path) -> Live {
    let arguments = ["record", "--netns", namespace.name(), "-i", FAR, "--json"];
    let of_store = ["--to", text(store), "--size", "128MiB", "--segment", "4MiB"];
    Live::start_command(namespace, 1, tapline(arguments).args(of_store))
}

/// Packets that tcpdump finds in files.
fn scanned(files: &[PathBuf], filter: &str, folder: &Path) -> Vec<StoredPacket> {
    let out = folder.join("scanned.pcap");
    let of_file = |file: &PathBuf| {
        let words = ["-Z", "root", "--nano", "-r", text(file), "-w", text(&out), filter];
        let output = Command::new("tcpdump").args(words).output().unwrap();
        assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
        packets_of(&out)
    };
    files.iter().flat_map(of_file).collect()
}

fn found(store: &Path, arguments: &[&str], folder: &Path) -> Vec<StoredPacket> {
    let out = folder.join("found.pcapng");
    run(["find", text(store), "-w", text(&out)].into_iter().chain(arguments.iter().copied())).succeeded();
    packets_of(&out)
}

/// Filters that mean some of the traffic: protocols, ports by number and name, hosts and networks that occur.
fn filters(sent: &[Vec<u8>], random: &mut Random) -> Vec<String> {
    let mut filters: Vec<String> =
        ["tcp port 443", "port domain", "udp", "icmp or arp", "ip6", "vlan", "not ip", "host 203.0.113.9"]
            .map(str::to_owned)
            .to_vec();
    let is_ipv4 = |frame: &&Vec<u8>| frame.len() >= 34 && frame[12..14] == [0x08, 0x00];
    let ipv4: Vec<&Vec<u8>> = sent.iter().filter(is_ipv4).collect();
    for _ in 0..6 {
        let frame = random.pick(&ipv4);
        let [a, b, c, d] = [frame[26], frame[27], frame[28], frame[29]];
        filters.push(format!("host {a}.{b}.{c}.{d}"));
        filters.push(format!("net {a}.{b}.{c}.0/24 and not tcp"));
        filters.push(format!("src host {a}.{b}.{c}.{d} and (port 80 or port 53 or greater 200)"));
    }
    filters
}

/// `TAPLINE_RECORD_SECONDS=60` records a minute.
#[test]
fn traffic_is_found_as_tcpdump_finds_it() {
    let test = "traffic_is_found_as_tcpdump_finds_it";
    if !namespaces_or_skip(test) || !program_or_skip(test, "tcpdump") {
        return;
    }
    let seconds: u64 = std::env::var("TAPLINE_RECORD_SECONDS").map_or(3, |text| text.parse().unwrap());
    let namespace = Namespace::with_pair("recorder").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let live = record(&namespace, &store);
    let sent = frames(81, (seconds * RATE) as usize);
    let mut sender = Sender::near(&namespace).expect("the link is ours");
    sender.send(&sent, sent.len() as u64, Pace::PerSecond(RATE)).expect("the link takes them");
    wait_for("all packets to be found", || count(&store, "") == sent.len() as u64);
    // While it records, with the open segment.
    let mut random = Random::new(81);
    let filters = filters(&sent, &mut random);
    let compare = |filter: &str| {
        let (wanted, got) = (
            scanned(&segments(&store), filter, folder.path()),
            found(&store, &["--", filter], folder.path()),
        );
        let bytes = |packets: &[StoredPacket]| {
            packets.iter().map(|packet| (packet.time_ns, packet.data.clone())).collect::<Vec<_>>()
        };
        assert!(
            bytes(&wanted) == bytes(&got),
            "{filter}: tcpdump finds {}, a search {}",
            wanted.len(),
            got.len()
        );
        wanted.len()
    };
    let hits = filters.iter().filter(|filter| compare(filter) > 0).count();
    assert!(hits * 2 > filters.len(), "{hits} of {} filters find something", filters.len());
    live.interrupt().succeeded();
    for filter in &filters {
        compare(filter);
    }
    // Times: what a scan finds between the same moments.
    let all = found(&store, &[], folder.path());
    for _ in 0..6 {
        let [from, to] = [0, 0].map(|_| all[random.below(all.len() as u64) as usize].time_ns);
        let (from, to) = (from.min(to), from.max(to) + 1);
        let moment = |time: u64| format!("@{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        let window = ["--from", &moment(from), "--to", &moment(to), "--", "tcp"];
        let is_meant = |packet: &&StoredPacket| (from..to).contains(&packet.time_ns);
        let wanted = scanned(&segments(&store), "tcp", folder.path()).iter().filter(is_meant).count();
        assert_eq!(found(&store, &window, folder.path()).len(), wanted, "{window:?}");
    }
}

/// Names that hosts ask for, and say in their hellos.
const NAMES: [&str; 5] =
    ["www.example.org", "mail.example.org", "www.example.com", "example.org", "notexample.org"];

fn host(number: u8) -> Host {
    let v4 = Ipv4Addr::new(198, 51, 100, number);
    Host { mac: [2, 0, 0, 0, 1, number], v4, v6: v4.to_ipv6_mapped() }
}

/// Lookups of a name and hellos to its server, from many hosts.
fn named_frames(random: &mut Random, range: Range<usize>) -> Vec<Vec<u8>> {
    let frame = |at: usize| {
        let name = *random.pick(&NAMES);
        let (client, server) = (host(1 + random.below(40) as u8), host(200 + random.below(8) as u8));
        let (forth, back) = (Ethernet::between(&client, &server), Ethernet::between(&server, &client));
        let (to, from) = (IpPair::V4(client.v4, server.v4), IpPair::V4(server.v4, client.v4));
        // No port twice: tshark does not dissect a hello that looks as if it were sent again.
        let (id, port) = (at as u16, 20_000 + (at % 45_000) as u16);
        match random.below(3) {
            0 => forth.ip(&Udp { src: port, dst: 53 }.packet(to, &dns_query(id, name, 1))),
            1 => {
                let answer = dns_response(id, name, 1, 300, &[server.v4.into()]);
                back.ip(&Udp { src: 53, dst: port }.packet(from, &answer))
            }
            _ => {
                let flags = flags::PSH | flags::ACK;
                let header = Tcp { src: port, dst: 443, seq: 1, ack: 1, flags, ..Tcp::default() };
                forth.ip(&header.packet(to, &tls_client_hello(name, [at as u8; 32])))
            }
        }
    };
    range.map(frame).collect()
}

/// Sends a recipe of `tapline generate` out of the near end; gives the packets that were sent.
fn generate(namespace: &Namespace, recipe: &[&str]) -> u64 {
    let place = ["generate", "--json", "--netns", namespace.name(), "-i", NEAR];
    let finished = run(place.into_iter().chain(recipe.iter().copied())).succeeded();
    let account: serde_json::Value = serde_json::from_slice(&finished.stdout).expect("one object");
    account["account"]["sent"].as_u64().unwrap_or_else(|| panic!("{account}"))
}

/// Packets that tshark finds in files by a display filter.
fn dissected(files: &[PathBuf], filter: &str, folder: &Path) -> Vec<StoredPacket> {
    let out = folder.join("dissected.pcapng");
    let of_file = |file: &PathBuf| {
        let words = ["-n", "-r", text(file), "-Y", filter, "-w", text(&out)];
        let output = Command::new("tshark").args(words).output().unwrap();
        assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
        packets_of(&out)
    };
    files.iter().flat_map(of_file).collect()
}

/// Records recipes of `tapline generate`, lookups of names and hellos of TLS; each search by host, MAC address, port,
/// name and time finds the packets that tcpdump or tshark find. `TAPLINE_RECORD_SECONDS=60` records a minute.
#[test]
fn mixed_traffic_is_found_as_others_find_it() {
    let test = "mixed_traffic_is_found_as_others_find_it";
    let programs = ["tcpdump", "tshark"];
    if !namespaces_or_skip(test) || !programs.iter().all(|program| program_or_skip(test, program)) {
        return;
    }
    let seconds: u64 = std::env::var("TAPLINE_RECORD_SECONDS").map_or(3, |text| text.parse().unwrap());
    let namespace = Namespace::with_pair("recorder").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let arguments = ["record", "--netns", namespace.name(), "-i", FAR, "--json", "--index", "names,mac"];
    let of_store = ["--to", text(&store), "--size", "512MiB", "--segment", "4MiB"];
    let live = Live::start_command(&namespace, 1, tapline(arguments).args(of_store));
    let mut random = Random::new(84);
    let mut sender = Sender::near(&namespace).expect("the link is ours");
    let mut sent = 0;
    for second in 0..seconds {
        let seed = format!("seed={}", 1 + second);
        for recipe in [
            "tcp ip ip6 size=80..1400 flows=80 dport=80,443 rate=4k count=1000",
            "udp size=60..1400 flows=300 dport=53,123,5000 rate=4k count=500",
            "udp icmp vlan=5 flows=20 rate=4k count=500",
        ] {
            let words: Vec<&str> = recipe.split(' ').chain([seed.as_str()]).collect();
            sent += generate(&namespace, &words);
        }
        let first = second as usize * 600;
        let frames = named_frames(&mut random, first..first + 600);
        sender.send(&frames, 600, Pace::PerSecond(RATE)).expect("the link takes them");
        sent += 600;
    }
    wait_for("all packets to be found", || count(&store, "") == sent);
    let same = |what: &str, wanted: Vec<StoredPacket>, got: Vec<StoredPacket>| {
        let bytes = |packets: Vec<StoredPacket>| {
            packets.into_iter().map(|packet| (packet.time_ns, packet.data)).collect::<Vec<_>>()
        };
        let counts = (wanted.len(), got.len());
        assert!(bytes(wanted) == bytes(got), "{what}: {counts:?}");
        assert!(counts.0 > 0, "{what} finds nothing");
    };
    let compare = |segments: &[PathBuf]| {
        for filter in [
            "host 198.51.100.7",
            "net 198.51.100.192/26",
            "ether host 02:00:00:00:01:05",
            "port 53",
            "tcp port 443",
            "vlan and icmp",
            "vlan 5",
            "ip6 and tcp",
        ] {
            let wanted = scanned(segments, filter, folder.path());
            same(filter, wanted, found(&store, &["--", filter], folder.path()));
        }
        for name in ["www.example.org", ".example.org", "example.org", "mail.example.org"] {
            let pattern = match name.strip_prefix('.') {
                Some(parent) => format!("matches \"(^|[.]){}$\"", parent.replace('.', "[.]")),
                None => format!("== \"{name}\""),
            };
            let fields = ["dns.qry.name", "tls.handshake.extensions_server_name"];
            let filter = fields.map(|field| format!("{field} {pattern}")).join(" or ");
            let wanted = dissected(segments, &filter, folder.path());
            same(name, wanted, found(&store, &["--name", name], folder.path()));
        }
    };
    compare(&segments(&store));
    live.interrupt().succeeded();
    compare(&segments(&store));
    let all = found(&store, &[], folder.path());
    for _ in 0..4 {
        let [from, to] = [0, 0].map(|_| all[random.below(all.len() as u64) as usize].time_ns);
        let (from, to) = (from.min(to), from.max(to) + 1);
        let moment = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
        let filter = format!("frame.time_epoch >= {} and frame.time_epoch < {}", moment(from), moment(to));
        let window = ["--from", &format!("@{}", moment(from)), "--to", &format!("@{}", moment(to))];
        let wanted = dissected(&segments(&store), &filter, folder.path());
        same(&filter, wanted, found(&store, &window, folder.path()));
    }
}

/// tcpdump, tshark and capinfos read segments while they are written, and say nothing against them.
#[test]
fn others_read_segments_that_are_written() {
    let test = "others_read_segments_that_are_written";
    if !namespaces_or_skip(test) {
        return;
    }
    let namespace = Namespace::with_pair("recorder").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let live = record(&namespace, &store);
    let sent = frames(82, 12_000);
    let mut sender = Sender::near(&namespace).expect("the link is ours");
    let programs =
        [("tcpdump", vec!["-n", "-r"]), ("tshark", vec!["-n", "-r"]), ("capinfos", vec!["-c", "-M"])];
    let there: Vec<_> = programs.iter().filter(|(name, _)| program_or_skip(test, name)).collect();
    for part in sent.chunks(4000) {
        sender.send(part, part.len() as u64, Pace::PerSecond(8000)).expect("the link takes them");
        for segment in segments(&store) {
            for (name, words) in &there {
                // A program that reads while a chunk is written may find half of it, and the whole a moment later.
                wait_for(&format!("{name} to read {}", segment.display()), || {
                    let complaint = complaint_of(name, words, &segment);
                    if !complaint.is_empty() {
                        eprintln!("{name}: {complaint}");
                    }
                    complaint.is_empty()
                });
            }
        }
    }
    wait_for("all packets to be found", || count(&store, "") == sent.len() as u64);
    // The same number by each of them.
    if there.iter().any(|(name, _)| *name == "tshark") {
        let lines = |segment: &PathBuf| {
            let output = Command::new("tshark").args(["-n", "-r"]).arg(segment).output().unwrap();
            output.stdout.iter().filter(|byte| **byte == b'\n').count()
        };
        assert_eq!(segments(&store).iter().map(lines).sum::<usize>(), sent.len());
    }
    live.interrupt().succeeded();
}

/// The complaint of a program about a file; empty if it reads the file without one.
fn complaint_of(name: &str, words: &[&str], file: &Path) -> String {
    let output = Command::new(name).args(words).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    let complaints = ["error", "corrupt", "damaged", "truncated", "malformed", "cut short"];
    if output.status.success() && !complaints.iter().any(|word| said.contains(word)) {
        return String::new();
    }
    format!("{}: {said}", output.status)
}

/// A finder that is killed at any moment leaves the store as it was, and the recorder at work.
#[test]
fn a_killed_finder_does_no_harm() {
    let test = "a_killed_finder_does_no_harm";
    if !namespaces_or_skip(test) {
        return;
    }
    let kills: u64 = std::env::var("TAPLINE_STORE_FAULTS").map_or(10, |text| text.parse().unwrap());
    let namespace = Namespace::with_pair("recorder").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let live = record(&namespace, &store);
    let sent = frames(83, 8000);
    let mut sender = Sender::near(&namespace).expect("the link is ours");
    sender.send(&sent, sent.len() as u64, Pace::PerSecond(20_000)).expect("the link takes them");
    wait_for("all packets to be found", || count(&store, "") == sent.len() as u64);
    // A full segment is synced before its index is made, on a busy disk after its packets are found.
    live.wait_until_idle();
    let names = |folder: &Path| -> Vec<PathBuf> { files_in(folder) };
    let before = (names(&store), names(&store.join("seg")));
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut random = Random::new(seed);
    let out = folder.path().join("out.pcapng");
    for _ in 0..kills {
        let mut finder = tapline(["find", text(&store), "-w", text(&out), "ip"]).spawn().unwrap();
        sleep(Duration::from_micros(random.below(40_000)));
        // It may have ended by itself.
        let _ = finder.kill();
        finder.wait().unwrap();
        let _ = fs::remove_file(&out);
    }
    assert_eq!((names(&store), names(&store.join("seg"))), before);
    sender.send(&sent, 1000, Pace::PerSecond(20_000)).expect("the link takes them");
    wait_for("what came later to be found", || count(&store, "") == sent.len() as u64 + 1000);
    let finished = live.interrupt().succeeded();
    assert_eq!(finished.account().output("lost"), 0);
    run(["store", "verify", text(&store)]).succeeded();
}
