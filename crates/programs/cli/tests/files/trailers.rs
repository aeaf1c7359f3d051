//! Time stamps of Ixia behind frames, compared with those that tshark reads.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tapline_testkit::capture_file::{EPOCH, ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};

use crate::support::*;

/// A frame with a trailer of Ixia, whose clock is ahead of the capture's by a little, and an FCS if `with_fcs`.
fn frame(number: u32, with_fcs: bool) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let packet = Udp { src: 1024, dst: 9 }.packet(IpPair::between(&a, &b, IpVersion::V4), &[7; 60]);
    let stamp = [&[3 + (number % 5) as u8, 8][..], &(EPOCH.as_secs() as u32 + number).to_be_bytes()].concat();
    let nanos = (123_456_789 + number * 7_654_321) % 1_000_000_000;
    let covered = [&stamp[..], &nanos.to_be_bytes(), &[10, 0xaf, 0x12]].concat();
    let checksum = tapline_packet::checksum::internet(&covered);
    let fcs: &[u8] = if with_fcs { &[1, 2, 3, 4] } else { &[] };
    [&Ethernet::between(&a, &b).ip(&packet)[..], &covered, &checksum.to_be_bytes(), fcs].concat()
}

/// A field of each packet, as tshark shows it.
fn fields(path: &Path, name: &str) -> Vec<String> {
    let output = Command::new("tshark").args(["-T", "fields", "-e", name, "-r"]).arg(path).output();
    let text = String::from_utf8_lossy(&output.expect("tshark runs").stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn ixia_stamps_are_those_of_tshark() {
    if !program_or_skip("ixia_stamps_are_those_of_tshark", "tshark") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    for with_fcs in [false, true] {
        let (file, stamped) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
        let frames = (0..20).map(|number| (Duration::from_secs(number.into()), frame(number, with_fcs)));
        let mut written = fs::File::create(&file).expect("a file");
        write_pcap(&mut written, ETHERNET, Unit::Nanoseconds, frames).expect("it is written");
        let graph = format!("file({file:?}) -> trailer(ixia) -> record({stamped:?})");
        run(["run", "-e", &graph]).succeeded();
        let expected = fields(&file, "ixiatrailer.timestamp");
        assert!(expected.iter().all(|time| !time.is_empty()), "{expected:?}");
        let found = fields(&stamped, "frame.time");
        assert_eq!(found, expected);
        assert!(fields(&stamped, "frame.len").iter().all(|len| len == "102"));
    }
}
