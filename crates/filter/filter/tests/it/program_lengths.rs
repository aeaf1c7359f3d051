//! The length of programs: ours compared with libpcap's, on the texts of the differential corpus.
//!
//! `TAPLINE_WIDE_TEXTS=20000` sets how many texts are compiled.

use tapline_filter::{FixedNames, HandleKind, Options, compile};
use tapline_packet::LinkType;
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{CompileSettings, Libpcap};
use tapline_testkit::random::Random;
use tapline_testkit::volume::volume;

/// The link types of the differential corpus.
const LINK_TYPES: [i32; 24] =
    [1, 1, 1, 1, 1, 1, 1, 1, 0, 9, 10, 12, 50, 104, 105, 105, 113, 117, 119, 123, 127, 127, 192, 276];

fn options(dlt: i32) -> Options {
    Options {
        netmask: Some(0),
        handle: HandleKind::Dead,
        resolver: std::sync::Arc::new(FixedNames::default()),
        ..Options::new(LinkType::from_dlt(dlt as u16))
    }
}

fn texts(default: u64) -> u64 {
    volume("TAPLINE_WIDE_TEXTS", default / 4)
}

#[test]
fn programs_are_no_longer_than_those_of_libpcap() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut random = Random::new(7);
    let (mut theirs, mut ours, mut counted) = (0, 0, 0);
    for seed in 0..texts(2_000) {
        let dlt = *random.pick(&LINK_TYPES);
        let text = Expressions::new(seed, dlt).text();
        let Ok(libpcap) = pcap.compile(&text, CompileSettings::new(dlt)) else { continue };
        let Ok(program) = compile(&text, &options(dlt)) else { continue };
        counted += 1;
        theirs += libpcap.insns().len();
        ours += program.insns().len();
    }
    eprintln!("{counted} texts, {}: libpcap {theirs} instructions, ours {ours}", pcap.version());
    assert!(counted > texts(2_000) / 2, "only {counted} texts are filters");
    assert!(ours <= theirs, "ours {ours}, libpcap's {theirs}");
}
