//! Memory of flows with all details, and without: the memory that a process of its own has in use.

use tapline_flow::{DetailFields, Meter, MeterSettings};
use tapline_packet::{Batch, Interface, LinkType, Meta, Record, Selection, Timestamp};
use tapline_testkit::frames::*;
use tapline_testkit::own_process::is_alone;

/// Bytes of this program that are in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|word| word.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

/// A flow of one packet has no more details than the flow itself: details take the places of their numbers.
#[test]
fn flows_of_one_packet_need_few_details() {
    if !is_alone(module_path!(), "flows_of_one_packet_need_few_details") {
        return;
    }
    const FLOWS: u64 = 200_000;
    let memory = |details: &str| {
        let details = DetailFields::parse(details).unwrap();
        let before = resident();
        let mut meter =
            Meter::new(&MeterSettings { details, flows_max: FLOWS as usize, ..MeterSettings::default() })
                .unwrap();
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let mut frame = Ethernet::between(&a, &b).ip(&Udp { src: 9, dst: 9 }.packet(pair, b"nothing"));
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        let (mut selection, mut flows) = (Selection::none(), Vec::new());
        let timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);
        let meta = Meta { timestamp, wire_len: frame.len() as u32, ..Meta::default() };
        for number in 0..FLOWS as u32 {
            frame[26..30].copy_from_slice(&number.to_be_bytes());
            let records = [Record { cap_len: frame.len() as u32, meta, ..Record::default() }];
            selection.select_all(1);
            meter.push(&Batch::new(&frame, &records), &mut selection, &interfaces, &mut flows);
        }
        assert_eq!(meter.statistics().active, FLOWS);
        (resident().saturating_sub(before)) / FLOWS
    };
    if resident() == 0 {
        println!("skipped: flows_of_one_packet_need_few_details: /proc/self/status does not tell");
        return;
    }
    let (all, none) = (memory("tcp,sizes,gaps,dns,tls,http,application"), memory("none"));
    println!("{all} bytes a flow with details, {none} without");
    assert!(all < 300, "{all} bytes a flow with details, {none} without");
}
