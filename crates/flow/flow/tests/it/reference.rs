//! The meter against one that is slow and plainly right, flow by flow; and the sums on whatever comes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tapline_file::FileSource;
use tapline_flow::{EndReason, Endpoint, Flow, Journal, KeyFields, Meter, MeterSettings};
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Meta, Record, Selection, Timestamp, VlanTag};
use tapline_testkit::flow_meter::{self, FlowMeter, Rules};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};
use tapline_testkit::gallery;
use tapline_testkit::random::Random;
use tapline_testkit::surroundings::captures_or_skip;
use tapline_testkit::traffic::Traffic;

use crate::journal::Replay;

/// A frame with its time and its length on the wire.
type Timed = (i64, Vec<u8>, u32);

/// Both meters' flows in one form and order.
type Plain =
    (flow_meter::AddressPort, flow_meter::AddressPort, u8, u8, [Option<flow_meter::DirectionTotals>; 2]);

fn of_reference(flow: &flow_meter::Flow) -> Plain {
    (flow.ends[0], flow.ends[1], flow.protocol, flow.reason, flow.ways)
}

fn of_meter(flow: &Flow) -> Plain {
    let [one, other] = flow.endpoints;
    (
        (one.address, one.port),
        (other.address, other.port),
        flow.protocol,
        flow.end_reason as u8,
        [way(&one), way(&other)],
    )
}

fn way(side: &Endpoint) -> Option<flow_meter::DirectionTotals> {
    (side.packets > 0).then(|| flow_meter::DirectionTotals {
        packets: side.packets,
        bytes: side.bytes,
        times: (side.first.as_nanos(), side.last.as_nanos()),
        flags: (side.tcp_flags, side.tcp_flags_first),
        ttl: (side.ttl_min, side.ttl_max),
        tos: side.tos,
    })
}

fn sorted(flows: impl Iterator<Item = Plain>) -> Vec<Plain> {
    let mut flows: Vec<Plain> = flows.collect();
    flows.sort_by_key(|(one, other, protocol, _, ways)| {
        (*one, *other, *protocol, ways.map(|way| way.map(|way| (way.times, way.packets))))
    });
    flows
}

struct Metered {
    flows: Vec<Flow>,
    meter: Meter,
}

/// Meters frames in batches, and lets flows end by the clock after each, as the stage does.
fn metered(settings: &MeterSettings, frames: &[Timed], expires: bool) -> Metered {
    let mut meter = Meter::new(settings).expect("settings are right");
    // The meter must be right with a journal and without.
    if expires {
        meter.keep_journal();
    }
    let mut replay = Replay::default();
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
    let mut flows = Vec::new();
    for chunk in frames.chunks(BATCH_MAX) {
        let mut base = Vec::new();
        let mut records = Vec::new();
        for (time, frame, wire_len) in chunk {
            let timestamp = Timestamp::from_nanos(*time);
            let meta = Meta { timestamp, wire_len: *wire_len, ..Meta::default() };
            records.push(Record { offset: base.len(), cap_len: frame.len() as u32, options_len: 0, meta });
            base.extend_from_slice(frame);
        }
        let batch = Batch::new(&base, &records);
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        meter.push(&batch, &mut selection, &interfaces, &mut flows);
        while expires && !meter.expire(&mut flows) {}
        meter.take_journal(Journal::default()).iter().for_each(|journal| replay.read(journal));
    }
    while !meter.finish(&mut flows) {}
    if let Some(journal) = meter.journal() {
        replay.read(journal);
        replay.assert_ended(&flows);
    }
    assert_sums(&meter, &flows, frames);
    Metered { flows, meter }
}

/// Packets and bytes over all records, and those that are in none, are those that came.
fn assert_sums(meter: &Meter, flows: &[Flow], frames: &[Timed]) {
    let statistics = meter.statistics();
    let read = statistics.read();
    let wire: u64 = frames.iter().map(|(_, _, len)| u64::from(*len)).sum();
    assert_eq!((read.packets, read.bytes), (frames.len() as u64, wire));
    assert_eq!(flows.iter().map(Flow::packets).sum::<u64>(), statistics.metered.packets);
    assert_eq!(flows.iter().map(Flow::bytes).sum::<u64>(), statistics.flow_bytes);
    assert_eq!(
        (statistics.made, statistics.ended.sum(), statistics.active),
        (flows.len() as u64, flows.len() as u64, 0)
    );
}

fn reference(settings: &MeterSettings, frames: &[Timed]) -> FlowMeter {
    let rules = Rules { active: settings.active_ns, idle: settings.idle_ns, closed: settings.closed_ns };
    let mut reference = FlowMeter::new(rules);
    frames.iter().for_each(|(time, frame, wire_len)| reference.push(*time, frame, *wire_len as usize));
    reference.finish();
    reference
}

/// Both meters give the same flows for these frames, whether flows end by the clock or are found to have ended by
/// their next packet. All come from one interface: with that in the key they are the same flows, by wide keys.
fn assert_equal(settings: &MeterSettings, frames: &[Timed], what: &str) {
    let reference = reference(settings, frames);
    let wanted = sorted(reference.ended.iter().map(of_reference));
    let interface = KeyFields { interface: true, ..settings.key };
    let ways = [true, false].map(|expires| [(settings.key, expires), (interface, expires)]);
    for (key, expires) in ways.into_iter().flatten() {
        let Metered { flows, meter } = metered(&MeterSettings { key, ..*settings }, frames, expires);
        let not: Vec<u64> = meter.statistics().not_metered.iter().map(|tally| tally.packets).collect();
        assert_eq!(not[..2], reference.not_metered, "{what}");
        let got = sorted(flows.iter().map(of_meter));
        for (got, wanted) in got.iter().zip(&wanted) {
            assert_eq!(got, wanted, "{what}, expires {expires}, key {key:?}");
        }
        assert_eq!(got.len(), wanted.len(), "{what}, expires {expires}, key {key:?}");
    }
}

/// Room for more flows than any input here has, and for few enough that thousands of meters are made in a moment.
fn settings() -> MeterSettings {
    MeterSettings { flows_max: 1 << 16, ..MeterSettings::default() }
}

fn short() -> MeterSettings {
    MeterSettings { active_ns: 3_000_000_000, idle_ns: 400_000_000, closed_ns: 50_000_000, ..settings() }
}

fn captures() -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let entries = std::fs::read_dir(examples).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.extend(captures_or_skip("real captures of the reference").unwrap_or_default());
    paths.retain(|path| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng"));
    paths.sort();
    paths
}

/// The packets of a file, as far as it can be read, and whether all are Ethernet.
fn frames_of(path: &Path) -> (Vec<Timed>, Vec<Interface>, bool) {
    let mut frames = Vec::new();
    let Ok(mut file) = FileSource::open(path) else { return (frames, Vec::new(), false) };
    while let Ok(true) = file.advance() {
        for packet in file.batch().iter() {
            frames.push((packet.meta.timestamp.as_nanos(), packet.data.to_vec(), packet.meta.wire_len));
        }
    }
    let is_ethernet = file.interfaces().iter().all(|interface| interface.link_type == LinkType::ETHERNET);
    (frames, file.interfaces().to_vec(), is_ethernet)
}

/// Whether the reference can read a frame: neither 802.2, PPPoE, MPLS nor a jumbo's length.
fn is_simple(frame: &[u8]) -> bool {
    let mut at = 12;
    loop {
        let Some(kind) = frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]])) else {
            return true;
        };
        match kind {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0..=1500 | 0x8847 | 0x8848 | 0x8864 | 0x8870 => return false,
            _ => return true,
        }
    }
}

#[test]
fn captures_give_the_same_flows() {
    let mut compared = 0;
    for path in captures() {
        let (frames, _, is_ethernet) = frames_of(&path);
        let frames: Vec<Timed> = frames.into_iter().filter(|(_, frame, _)| is_simple(frame)).collect();
        if is_ethernet && !frames.is_empty() {
            for settings in [settings(), short()] {
                assert_equal(&settings, &frames, &path.display().to_string());
            }
            compared += 1;
        }
    }
    println!("{compared} captures compared");
    assert!(compared > 0, "the repository's own sample is there");
}

/// Every link type, every frame, the sums; with every choice of key, inside tunnels and not.
#[test]
fn the_sums_are_right_on_every_capture() {
    let all = KeyFields::parse("vlan,mpls,tunnel,tos,interface").unwrap();
    for path in captures() {
        let Ok(mut file) = FileSource::open(&path) else { continue };
        let settings = |key, inner| MeterSettings { key, inner, ..short() };
        let choices = [
            settings(KeyFields::default(), false),
            settings(all, false),
            settings(all, true),
            settings(KeyFields::default(), true),
        ];
        let mut meters = choices.map(|settings| (Meter::new(&settings).unwrap(), Vec::new()));
        let (mut packets, mut bytes) = (0, 0);
        while let Ok(true) = file.advance() {
            let batch = file.batch();
            packets += batch.len() as u64;
            bytes += batch.records().iter().map(|record| u64::from(record.meta.wire_len)).sum::<u64>();
            for (meter, flows) in &mut meters {
                let mut selection = Selection::none();
                selection.select_all(batch.len());
                meter.push(&batch, &mut selection, file.interfaces(), flows);
                while !meter.expire(flows) {}
            }
        }
        for (mut meter, mut flows) in meters {
            while !meter.finish(&mut flows) {}
            let statistics = meter.statistics();
            assert_eq!(
                (statistics.read().packets, statistics.read().bytes),
                (packets, bytes),
                "{}",
                path.display()
            );
            assert_eq!(flows.iter().map(Flow::packets).sum::<u64>(), statistics.metered.packets);
            assert_eq!(flows.iter().map(Flow::bytes).sum::<u64>(), statistics.flow_bytes);
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |settings: MeterSettings| {
        Meter::new(&settings).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let defaults = MeterSettings::default();
    assert_eq!(refused(defaults), "");
    assert!(refused(MeterSettings { flows_max: 0, ..defaults }).contains("--flows-max"));
    assert!(refused(MeterSettings { idle_ns: 0, ..defaults }).contains("idle timeout"));
    assert!(refused(MeterSettings { active_ns: i64::MAX, ..defaults }).contains("active timeout"));
    let closed = refused(MeterSettings { closed_ns: -1, ..defaults });
    assert!(closed.contains("closed timeout") && closed.contains("0 to 10 years"), "{closed}");
    assert_eq!(refused(MeterSettings { closed_ns: 0, ..defaults }), "");
}

#[test]
fn mixed_traffic_gives_the_same_flows() {
    for seed in 1..6 {
        let mut random = Random::new(seed);
        let mut frames: Vec<Timed> = Vec::new();
        for (at, frame) in Traffic::new(seed).take(4000) {
            let wire_len = frame.len() as u32;
            let cut = if random.one_of(1, 20) {
                random.below(frame.len() as u64 + 1) as usize
            } else {
                frame.len()
            };
            // Some come late.
            let late = if random.one_of(1, 30) { random.below(900_000_000) as i64 } else { 0 };
            if is_simple(&frame) {
                frames.push((at.as_nanos() as i64 + 1_000_000_000 - late, frame[..cut].to_vec(), wire_len));
            }
        }
        assert_equal(&short(), &frames, &format!("seed {seed}"));
        assert_equal(&settings(), &frames, &format!("seed {seed}"));
    }
}

#[test]
fn every_exhibit_gives_the_same_flow() {
    for (name, frame) in gallery::exhibits().into_iter().filter(|(_, frame)| is_simple(frame)) {
        for cut in 0..=frame.len() {
            let frames = [(5, frame[..cut].to_vec(), frame.len() as u32)];
            assert_equal(&settings(), &frames, &format!("{name}, {cut} bytes"));
        }
    }
}

/// A few hosts and ports, so that flows meet again; times that go forth, back, and leap.
fn frames_from(seed: u64, count: usize) -> Vec<Timed> {
    let mut random = Random::new(seed);
    let mut time: i64 = 1_000_000_000;
    (0..count)
        .map(|_| {
            time += match random.below(100) {
                0 => 5_000_000_000,
                1..=4 => -(random.below(700_000_000) as i64),
                5..=20 => random.below(300_000_000) as i64,
                _ => random.below(2_000_000) as i64,
            };
            (time, frame_from(&mut random), 100)
        })
        .collect()
}

fn frame_from(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20];
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[14..];
    ip[0] = 0x45;
    ip[1] = random.below(3) as u8;
    ip[3] = 40 + random.below(9) as u8;
    ip[8] = 60 + random.below(5) as u8;
    ip[9] = [6, 6, 6, 17, 1][random.below(5) as usize];
    (ip[15], ip[19]) = (random.below(3) as u8, random.below(3) as u8);
    (ip[21], ip[23]) = (random.below(2) as u8, random.below(2) as u8);
    ip[32] = 0x50;
    ip[33] = [0x02, 0x12, 0x10, 0x10, 0x18, 0x11, 0x04][random.below(7) as usize];
    frame
}

fn datagram(port: u16) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    Ethernet::between(&a, &b).ip(&Udp { src: port, dst: 53 }.packet(pair, b"a question"))
}

fn push_one(meter: &mut Meter, time: i64, frame: &[u8], flows: &mut Vec<Flow>) {
    push_tagged(meter, time, frame, None, flows);
}

fn push_tagged(meter: &mut Meter, time: i64, frame: &[u8], vlan: Option<VlanTag>, flows: &mut Vec<Flow>) {
    let timestamp = Timestamp::from_nanos(time);
    let meta = Meta { timestamp, wire_len: frame.len() as u32, vlan, ..Meta::default() };
    let records = [Record { offset: 0, cap_len: frame.len() as u32, options_len: 0, meta }];
    let mut selection = Selection::none();
    selection.select_all(1);
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
    meter.push(&Batch::new(frame, &records), &mut selection, &interfaces, flows);
    while !meter.expire(flows) {}
}

const SECOND: i64 = 1_000_000_000;

/// A frame of TCP with these flags, from and to these ports.
fn segment(ports: [u16; 2], flags: u8) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20];
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip = &mut frame[14..];
    (ip[0], ip[3], ip[8], ip[9], ip[15], ip[19]) = (0x45, 40, 64, 6, 1, 2);
    ip[20..22].copy_from_slice(&ports[0].to_be_bytes());
    ip[22..24].copy_from_slice(&ports[1].to_be_bytes());
    (ip[32], ip[33]) = (0x50, flags);
    frame
}

/// A frame of UDP over IPv6 between these addresses.
fn datagram_v6(source: u128, destination: u128) -> Vec<u8> {
    let mut frame = vec![0; 14 + 40 + 8];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let ip = &mut frame[14..];
    (ip[0], ip[5], ip[6], ip[7]) = (0x60, 8, 17, 64);
    ip[8..24].copy_from_slice(&source.to_be_bytes());
    ip[24..40].copy_from_slice(&destination.to_be_bytes());
    (ip[41], ip[43], ip[45]) = (1, 2, 8);
    frame
}

/// A reset in a meter that is new ends its flow after the time that closed ones have, although all flows before it have
/// longer.
#[test]
fn a_reset_in_a_fresh_meter_ends_its_flow_soon() {
    let (mut meter, mut flows) = (Meter::new(&settings()).unwrap(), Vec::new());
    push_one(&mut meter, 100 * SECOND, &datagram(7), &mut flows);
    push_one(&mut meter, 100 * SECOND, &segment([1, 80], 0x02), &mut flows);
    push_one(&mut meter, 100 * SECOND, &segment([80, 1], 0x14), &mut flows);
    for tenth in 1..=50 {
        push_one(&mut meter, 100 * SECOND + tenth * SECOND / 10, &datagram(7), &mut flows);
        assert_eq!(flows.len(), usize::from(tenth > 20), "after {tenth} tenths");
    }
    assert_eq!((flows[0].end_reason, flows[0].protocol), (EndReason::End, 6));
}

/// Neither a full table nor silence that may be longer makes an active flow outlast its time.
#[test]
fn the_active_timeout_holds_in_a_full_table() {
    for (idle_ns, active_ns) in [(20 * SECOND, 10 * SECOND), (5 * SECOND, 10 * SECOND)] {
        let settings = MeterSettings { flows_max: 4, active_ns, idle_ns, ..MeterSettings::default() };
        let (mut meter, mut flows) = (Meter::new(&settings).unwrap(), Vec::new());
        let (mut full, mut active) = (0, 0);
        for tenth in 0..1000 {
            let now = tenth * SECOND / 10;
            // Three flows that are never silent for as long as a tick of the wheel, and others, of which only one at a
            // time has room.
            (0..3).for_each(|port| push_one(&mut meter, now, &datagram(port), &mut flows));
            push_one(&mut meter, now, &datagram(100 + tenth as u16), &mut flows);
            // By the clock alone: the next packet would find it out.
            meter.set_clock(Timestamp::from_nanos(now + SECOND / 20));
            while !meter.expire(&mut flows) {}
            for flow in flows.drain(..) {
                let lasted = flow.last().since(flow.first());
                assert!(lasted < active_ns, "{flow:?}");
                match (flow.end_reason, flow.endpoints[0].port < 3) {
                    (EndReason::Full, false) => full += 1,
                    (EndReason::Active, true) => {
                        assert!(lasted >= active_ns - SECOND / 5, "{flow:?}");
                        active += 1;
                    }
                    _ => panic!("{flow:?}"),
                }
            }
        }
        assert!(full > 900 && (27..=30).contains(&active), "{full} full, {active} active");
    }
}

/// A flow whose packets go on and whose record is due is found by the clock at once, however long the wheel's ticks
/// are.
#[test]
fn active_flows_end_in_time_beside_long_silences() {
    let settings = MeterSettings { idle_ns: 86_400 * SECOND, active_ns: 10 * SECOND, ..settings() };
    let (mut meter, mut flows) = (Meter::new(&settings).unwrap(), Vec::new());
    for second in 0..10 {
        push_one(&mut meter, second * SECOND, &datagram(1), &mut flows);
    }
    meter.set_clock(Timestamp::from_nanos(10 * SECOND - 1));
    assert!(meter.expire(&mut flows) && flows.is_empty());
    meter.set_clock(Timestamp::from_nanos(10 * SECOND));
    assert!(meter.expire(&mut flows));
    assert_eq!(
        flows.iter().map(|flow| (flow.end_reason, flow.packets())).collect::<Vec<_>>(),
        [(EndReason::Active, 10)]
    );
}

/// Addresses that are the constants of the digest would all have one digest, were there no seed.
#[test]
fn flows_that_somebody_chose_do_not_meet() {
    const CHOSEN: [u64; 3] = [0xb7e1_5162_8aed_2a6a, 0xbf71_5880_9cf4_f3c7, 0x62e7_160f_38b4_da56];
    for interface in CHOSEN {
        for is_prefix in [false, true] {
            let (mut meter, mut flows) = (Meter::new(&settings()).unwrap(), Vec::new());
            // As many as the index has grown for: at most half of each bucket is taken.
            for at in 1..=4100_u64 {
                let (high, low) = if is_prefix { (interface, at) } else { (at, interface) };
                let address = u128::from(high) << 64 | u128::from(low);
                push_one(&mut meter, 1, &datagram_v6(address, u128::MAX), &mut flows);
                push_one(&mut meter, 1, &datagram_v6(address, 0), &mut flows);
            }
            let statistics = meter.statistics();
            assert_eq!(statistics.active, 8200);
            assert!(statistics.chain_max <= 3, "{} buckets in a row", statistics.chain_max);
        }
    }
}

/// The index grows several times between a flow's packets, first while some places are in no use: each flow of either
/// version of IP is found again.
#[test]
fn flows_are_found_when_the_index_has_grown() {
    let frame = |at: u16| if at.is_multiple_of(3) { datagram_v6(at.into(), u128::MAX) } else { datagram(at) };
    // There is room for 2,048 at first. 300 of 1,900 fall silent, then come 6,000 more.
    let rounds = [(0, 1..1901), (10, 301..1901), (20, 301..1901), (21, 301..7901), (22, 301..7901)];
    let packets = rounds.into_iter().flat_map(|(second, flows)| flows.map(move |at| (second, at)));
    let timed = packets.map(|(second, at): (i64, u16)| {
        let frame = frame(at);
        let len = frame.len() as u32;
        (second * SECOND, frame, len)
    });
    let metered = metered(&settings(), &timed.collect::<Vec<Timed>>(), true);
    let with = |packets: u64| metered.flows.iter().filter(|flow| flow.packets() == packets).count();
    assert_eq!((metered.flows.len(), with(1), with(5), with(2)), (7900, 300, 1600, 6000));
}

/// Equal addresses and identifiers on two VLANs are two packets, if the key distinguishes VLANs.
#[test]
fn fragments_belong_to_their_own_network() {
    let fragment = |offset: u16, port: u16| {
        let mut frame = datagram(port);
        let more = if offset == 0 { 0x2000 } else { 0 };
        frame[18..20].copy_from_slice(&7_u16.to_be_bytes());
        frame[20..22].copy_from_slice(&(more | offset).to_be_bytes());
        frame
    };
    let key = KeyFields { vlan: true, ..KeyFields::default() };
    let (mut meter, mut flows) = (Meter::new(&MeterSettings { key, ..settings() }).unwrap(), Vec::new());
    let tag = |id: u16| Some(VlanTag { tpid: 0x8100, tci: id });
    for (vlan, offset, port) in [(1, 0, 11), (2, 0, 22), (1, 3, 0), (2, 3, 0), (3, 3, 0)] {
        push_tagged(&mut meter, 1, &fragment(offset, port), tag(vlan), &mut flows);
    }
    while !meter.finish(&mut flows) {}
    let mut told: Vec<(u16, u16, u64)> =
        flows.iter().map(|flow| (flow.context.vlan, flow.endpoints[0].port, flow.packets())).collect();
    told.sort_unstable();
    assert_eq!(told, [(1, 11, 2), (2, 22, 2), (3, 0, 1)]);
}

/// A clock that is wrong on a live interface holds no timer back.
#[test]
fn packets_from_the_future_stop_no_timer() {
    let (mut meter, mut flows) = (Meter::new(&settings()).unwrap(), Vec::new());
    for second in 0..40 {
        meter.set_latest(Timestamp::from_nanos((second + 1) * SECOND));
        let time = if second == 3 { i64::MAX } else { second * SECOND };
        push_one(&mut meter, time, &datagram(if second < 10 { 1 } else { 2 }), &mut flows);
    }
    assert_eq!(meter.statistics().ahead, 1);
    let ended: Vec<_> =
        flows.iter().map(|flow| (flow.end_reason, flow.packets(), flow.last().seconds())).collect();
    assert_eq!(ended, [(EndReason::Idle, 10, 9)]);
}

/// A meter that has finished starts again, in the same memory.
#[test]
fn a_meter_goes_on_after_its_end() {
    let (mut meter, mut flows) = (Meter::new(&settings()).unwrap(), Vec::new());
    for round in 1..=3_usize {
        (0..2000).for_each(|port| push_one(&mut meter, round as i64, &datagram(port), &mut flows));
        while !meter.finish(&mut flows) {}
        assert_eq!((flows.len(), meter.statistics().active), (2000 * round, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_times_gives_the_same_flows(seed in any::<u64>()) {
        assert_equal(&short(), &frames_from(seed, 1500), "made");
    }

    /// With little room no packet is lost, and the flow that ends early is the one that was idle longest, to within a
    /// tick.
    #[test]
    fn a_full_table_gives_up_the_longest_silent(seed in any::<u64>(), room in 1_usize..12) {
        const TICK: i64 = 1 << 25;
        let settings = MeterSettings { flows_max: room, ..MeterSettings::default() };
        let (mut random, mut meter) = (Random::new(seed), Meter::new(&settings).unwrap());
        let (mut time, mut full, mut flows) = (0, 0, Vec::new());
        // When each flow that is there was last seen, by its port.
        let mut there: BTreeMap<u16, i64> = BTreeMap::new();
        for _ in 0..400 {
            time += random.below(200_000_000) as i64;
            let port = random.below(20) as u16;
            push_one(&mut meter, time, &datagram(port), &mut flows);
            for flow in flows.drain(..) {
                let gone = there.remove(&flow.endpoints[0].port).expect("it was there");
                prop_assert_eq!(gone, flow.last().as_nanos());
                if flow.end_reason == EndReason::Full {
                    full += 1;
                    let longest = there.values().min().copied().unwrap_or(gone);
                    prop_assert!(gone <= longest + TICK, "{} gone at {}, {} stays", gone, time, longest);
                }
            }
            there.insert(port, time);
            prop_assert_eq!(meter.statistics().active, there.len() as u64);
            prop_assert!(there.len() <= room);
        }
        prop_assert!(full > 0);
    }

    #[test]
    fn bytes_of_any_kind_are_metered_or_counted(bytes in prop::collection::vec(any::<u8>(), 0..200), inner in any::<bool>()) {
        let mut settings = MeterSettings { inner, ..settings() };
        metered(&settings, &[(0, bytes.clone(), 200)], true);
        settings.key = KeyFields::parse("vlan,mpls,tunnel,tos,interface").unwrap();
        metered(&settings, &[(i64::MIN, bytes.clone(), 200), (i64::MAX, bytes, 200)], true);
    }
}
