//! `rtp` compared with `tshark -z rtp,streams`, on calls with losses and jitter.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::*;
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};
use tapline_testkit::random::Random;

/// A datagram between the two hosts.
fn frame(from: u16, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let [one, other] = if from == 1 { [1, 2] } else { [2, 1] }.map(Host::number);
    let ip = IpPair::between(&one, &other, IpVersion::V4);
    Ethernet::between(&one, &other).ip(&Udp { src: ports.0, dst: ports.1 }.packet(ip, payload))
}

fn address(number: u16) -> String {
    Host::number(number).v4.to_string()
}

fn message(start: &str, host: u16, port: u16) -> Vec<u8> {
    let address = address(host);
    format!(
        "{start}\r\nVia: SIP/2.0/UDP {address}:5060;branch=z9hG4bK1\r\nMax-Forwards: 70\r\nCall-ID: call-1\r\n\
         From: <sip:alice@example.org>;tag=1\r\nTo: <sip:bob@example.org>;tag=2\r\nCSeq: 1 INVITE\r\n\
         Contact: <sip:x@{address}>\r\nContent-Type: application/sdp\r\n\r\nv=0\r\no=- 1 1 IN IP4 {address}\r\ns=-\r\n\
         c=IN IP4 {address}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
    )
    .into_bytes()
}

/// One direction of a call of 400 packets, some of which do not arrive, all of which arrive a little late.
fn stream(seed: u64, from: u16, ports: (u16, u16)) -> Vec<(Duration, Vec<u8>)> {
    let mut random = Random::new(seed);
    let mut packets = Vec::new();
    for number in 0..400u32 {
        if number > 0 && random.below(20) == 0 {
            continue;
        }
        let sequence = (65_400 + number) as u16;
        let mut packet = vec![0x80, 0];
        packet.extend(sequence.to_be_bytes());
        packet.extend((number * 160).to_be_bytes());
        packet.extend((0xabc0 + u32::from(from)).to_be_bytes());
        packet.extend([0xd5; 160]);
        let late = random.below(9_000);
        let time = Duration::from_micros(1_000_000 + u64::from(number) * 20_000 + late);
        packets.push((time, frame(from, ports, &packet)));
    }
    packets
}

fn write(path: &Path) {
    let mut packets = vec![
        (Duration::ZERO, frame(1, (5060, 5060), &message("INVITE sip:bob@example.org SIP/2.0", 1, 4000))),
        (Duration::from_millis(100), frame(2, (5060, 5060), &message("SIP/2.0 200 OK", 2, 6000))),
    ];
    packets.extend(stream(1, 1, (4000, 6000)));
    packets.extend(stream(2, 2, (6000, 4000)));
    packets.sort_by_key(|(time, _)| *time);
    let start = Duration::from_secs(1_700_000_000);
    let packets = packets.into_iter().map(|(time, frame)| (start + time, frame));
    let mut file = File::create(path).expect("there is room");
    write_pcap(&mut file, ETHERNET, Unit::Microseconds, packets).expect("there is room");
}

/// A program's numbers of a stream: packets, lost, mean and greatest jitter in microseconds.
type StreamNumbers = (u64, u64, f64, f64);

/// Lines of `tshark -z rtp,streams`: by destination port.
fn by_tshark(path: &Path, port: u16) -> StreamNumbers {
    let output = Command::new("tshark").args(["-q", "-z", "rtp,streams", "-r"]).arg(path).output();
    let text = String::from_utf8_lossy(&output.expect("tshark runs").stdout).into_owned();
    let line = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let words = line.clone().find(|words| words.get(5) == Some(&port.to_string().as_str()));
    let words = words.unwrap_or_else(|| panic!("no stream to {port}: {text}"));
    let number = |at: usize| words[at].parse::<f64>().unwrap_or_else(|_| panic!("{at}: {words:?}"));
    // Start, end, source, port, destination, port, source's number, payload, packets, lost, percent, deltas, jitters.
    let lost = words.iter().position(|word| word.starts_with('(')).expect("lost in percent");
    (number(lost - 2) as u64, number(lost - 1) as u64, number(lost + 5) * 1e3, number(lost + 6) * 1e3)
}

#[test]
fn a_call_is_measured_as_tshark_measures_it() {
    if !program_or_skip("a_call_is_measured_as_tshark_measures_it", "tshark") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("call.pcap");
    write(&path);
    let graph = format!("file(\"{}\") -> r :: rtp", path.display());
    let told = run(["run", "-e", &graph, "--json"]).succeeded();
    let output = String::from_utf8_lossy(&told.stdout).into_owned();
    let results: Value = serde_json::from_str(output.lines().next().expect("results")).expect("an object");
    let rows = results["results"]["r"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!((&row["call"], &row["from"]), (&"call-1".into(), &"sip:alice@example.org".into()));
        let to = row["dst"].as_str().expect("an end").rsplit(':').next().expect("a port").to_owned();
        let (packets, lost, mean, greatest) = by_tshark(&path, to.parse().expect("a number"));
        let number = |name: &str| row[name].as_u64().expect("a number");
        assert_eq!((number("packets"), number("lost")), (packets, lost));
        assert!(lost > 0, "some packets were lost on purpose");
        // tshark rounds to microseconds, and counts the first packet's jitter of 0.
        assert!((number("jitter_max_us") as f64 - greatest).abs() <= 2.0, "{row} {greatest}");
        assert!((number("jitter_mean_us") as f64 - mean).abs() <= 2.0 + mean / 100.0, "{row} {mean}");
        let mos: f64 = row["mos"].as_str().expect("a text").parse().expect("a number");
        assert!((3.0..4.4).contains(&mos), "{mos}");
    }
}
