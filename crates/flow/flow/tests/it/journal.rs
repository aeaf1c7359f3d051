//! Journals: a reader that replays them has the flows that the meter ends, packet for packet.

use std::collections::HashMap;

use tapline_flow::{
    DetailFields, EndReason, Flow, FlowBegin, Journal, JournalEntry, Meter, MeterSettings, NamedAddresses,
};
use tapline_packet::{Batch, Interface, LinkType, Meta, Record, Selection, Timestamp};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};
use tapline_testkit::traffic::Traffic;

/// Both addresses of a flow, as journals have them.
type AddressPair = [[u64; 2]; 2];

/// A flow as a reader of journals knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Replayed {
    begin: FlowBegin,
    packets: [u64; 2],
    bytes: [u64; 2],
    flags: [u8; 2],
    application: Option<&'static str>,
    name: Option<Box<str>>,
}

/// The knowledge of a reader of journals.
#[derive(Default)]
pub(crate) struct Replay {
    slots: HashMap<u32, Replayed>,
    ended: Vec<(Replayed, EndReason)>,
    /// Packets of slots of which no flow is known.
    pub(crate) unknown: u64,
    /// For each packet the addresses of its flow, and the name that it has said before.
    of_packets: Vec<(AddressPair, Option<Box<str>>)>,
    named: Vec<NamedAddresses>,
}

impl Replay {
    pub(crate) fn read(&mut self, journal: &Journal) {
        for entry in journal.entries() {
            match entry {
                JournalEntry::Begun { slot, flow } => {
                    let new = Replayed {
                        begin: *flow,
                        packets: [0; 2],
                        bytes: [0; 2],
                        flags: [0; 2],
                        application: flow.application,
                        name: None,
                    };
                    self.slots.insert(slot, new);
                }
                JournalEntry::Packet { slot, side, tcp_flags, bytes } => {
                    let Some(flow) = self.slots.get_mut(&slot) else {
                        self.unknown += 1;
                        continue;
                    };
                    let side = usize::from(side ^ flow.begin.first_side);
                    flow.packets[side] += 1;
                    flow.bytes[side] += u64::from(bytes);
                    flow.flags[side] |= tcp_flags;
                    self.of_packets.push((flow.begin.addresses, flow.name.clone()));
                }
                JournalEntry::Said { slot, said } => {
                    let flow = self.slots.get_mut(&slot).expect("a flow says something");
                    (flow.application, flow.name) = (said.application, said.name.clone());
                }
                JournalEntry::Named { named, .. } => self.named.push(named.clone()),
                JournalEntry::Ended { slot, reason } => {
                    let flow = self.slots.remove(&slot).expect("a flow ends");
                    self.ended.push((flow, reason));
                }
            }
        }
    }

    /// The flows that ended are these, in their order.
    pub(crate) fn assert_ended(&self, flows: &[Flow]) {
        assert_eq!((self.unknown, self.slots.len(), self.ended.len()), (0, 0, flows.len()));
        for ((replayed, reason), flow) in self.ended.iter().zip(flows) {
            let Replayed { begin, packets, bytes, flags, application, name } = replayed;
            let sides = &flow.endpoints;
            assert_eq!(*reason, flow.end_reason);
            assert_eq!(begin.addresses, sides.map(|side| FlowBegin::address_words(side.address)));
            assert_eq!(begin.ports, [sides[0].port, sides[1].port]);
            assert_eq!((begin.protocol, begin.context), (flow.protocol, flow.context));
            assert_eq!(begin.tcp_flags_first, sides[0].tcp_flags_first);
            assert_eq!(*packets, [sides[0].packets, sides[1].packets], "{flow:?}");
            assert_eq!(*bytes, [sides[0].bytes, sides[1].bytes]);
            assert_eq!(*flags, [sides[0].tcp_flags, sides[1].tcp_flags]);
            let details = flow.details.as_deref();
            assert_eq!(*application, details.and_then(|details| details.application));
            let asked = details.and_then(|details| {
                let dns = details.dns.as_ref().map(|dns| &dns.name);
                let tls = details.tls.as_ref().map(|tls| &tls.server_name);
                dns.or(tls).or(details.http.as_ref().map(|http| &http.host))
            });
            assert_eq!(name.as_ref(), asked.filter(|name| !name.is_empty()), "{flow:?}");
        }
    }
}

/// Meters mixed traffic, a packet at a time; `each` gets the number of the packet and the meter.
fn meter_packets(settings: &MeterSettings, count: usize, each: impl FnMut(usize, &mut Meter)) -> Meter {
    meter_batches(settings, (count, 1), each).0
}

/// Meters mixed traffic in batches of a length; `each` gets the number of the batch and the meter. Returns the flows that
/// ended meanwhile, too.
fn meter_batches(
    settings: &MeterSettings,
    (count, len): (usize, usize),
    mut each: impl FnMut(usize, &mut Meter),
) -> (Meter, Vec<Flow>) {
    let mut meter = Meter::new(settings).expect("settings are right");
    meter.keep_journal();
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
    let (mut flows, frames) = (Vec::new(), Traffic::new(5).take(count).collect::<Vec<_>>());
    for (number, frames) in frames.chunks(len).enumerate() {
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        for (at, frame) in frames {
            let timestamp = Timestamp::from_nanos(at.as_nanos() as i64);
            let meta = Meta { timestamp, wire_len: frame.len() as u32, ..Meta::default() };
            records.push(Record { offset: bytes.len(), cap_len: frame.len() as u32, options_len: 0, meta });
            bytes.extend_from_slice(frame);
        }
        let mut selection = Selection::none();
        selection.select_all(records.len());
        meter.push(&Batch::new(&bytes, &records), &mut selection, &interfaces, &mut flows);
        each(number, &mut meter);
    }
    (meter, flows)
}

/// Many packets are written together, but in the order of packets, names, begins and ends that one at a time have. The
/// table is so small that each window ends flows.
#[test]
fn a_batch_is_written_as_its_packets_are() {
    let details = DetailFields::parse("dns,tls,http,application").unwrap();
    for flows_max in [16, 1 << 12] {
        let settings = MeterSettings { flows_max, details, ..MeterSettings::default() };
        let [one, many] = [1, 256].map(|len| {
            let mut replay = Replay::default();
            let (mut meter, mut flows) = meter_batches(&settings, (20_000, len), |_, meter| {
                replay.read(&meter.take_journal(Journal::default()).expect("it keeps one"));
            });
            while !meter.finish(&mut flows) {}
            replay.read(meter.journal().expect("it keeps one"));
            replay.assert_ended(&flows);
            (replay.of_packets, replay.named, replay.ended)
        });
        assert!(one.0.iter().any(|(_, name)| name.is_some()) && one.0.len() > 10_000);
        assert!(one == many, "a table of {flows_max}");
    }
}

/// A reader that begins in the middle knows the flow of each packet, once flows are described again.
#[test]
fn flows_are_described_again_on_request() {
    const LATE: usize = 2000;
    let details = DetailFields::parse("dns,tls,http,application").unwrap();
    let settings = MeterSettings { flows_max: 1 << 12, details, ..MeterSettings::default() };
    let (mut first, mut late) = (Replay::default(), Replay::default());
    let mut meter = meter_packets(&settings, 2 * LATE, |number, meter| {
        let journal = meter.take_journal(Journal::default()).expect("it keeps one");
        first.read(&journal);
        if number >= LATE {
            late.read(&journal);
        }
        if number == LATE - 1 {
            meter.describe_again();
        }
    });
    // Flows that had no packet since then end without a word to a reader that does not know them.
    let mut ended = Vec::new();
    while !meter.finish(&mut ended) {}
    let ends = meter.take_journal(Journal::default()).expect("it keeps one");
    first.read(&ends);
    late.read(&ends);
    assert!(late.slots.is_empty() && !first.slots.is_empty());
    assert_eq!(late.ended.len() + first.slots.len(), ended.len());
    assert_eq!((first.unknown, late.unknown), (0, 0));
    assert!(late.of_packets.iter().any(|(_, name)| name.is_some()));
    assert!(late.of_packets.len() > LATE / 2, "{}", late.of_packets.len());
    assert!(first.of_packets.ends_with(&late.of_packets));
    // Without the request packets of old flows would be unknown.
    let mut deaf = Replay::default();
    meter_packets(&settings, 2 * LATE, |number, meter| {
        let journal = meter.take_journal(Journal::default()).expect("it keeps one");
        if number >= LATE {
            deaf.read(&journal);
        }
    });
    assert!(deaf.unknown > 0);
}

/// The memory of an earlier journal is used, and nothing of it comes back.
#[test]
fn a_journal_goes_on_in_an_empty_one() {
    let mut replay = Replay::default();
    let mut spare = Journal::default();
    let meter = meter_packets(&MeterSettings::default(), 3000, |_, meter| {
        if meter.journal().is_some_and(Journal::is_full) {
            let journal = meter.take_journal(std::mem::take(&mut spare)).expect("it keeps one");
            replay.read(&journal);
            spare = journal;
            spare.clear();
        }
    });
    let rest = meter.journal().expect("it keeps one");
    assert!(!rest.is_empty());
    replay.read(rest);
    assert_eq!(replay.of_packets.len() as u64, meter.statistics().metered.packets);
}

/// The addresses of names in DNS answers come out, over UDP and TCP, of each answer of a flow; queries and failures have
/// none.
#[test]
fn answers_of_dns_name_their_addresses() {
    let question = b"\x03www\x07example\0\0\x01\0\x01";
    let record = |last: u8| [b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\0\0", &[last][..]].concat();
    let message = |flags: [u8; 2], lasts: &[u8]| {
        let head = [0, 7, flags[0], flags[1], 0, 1, 0, lasts.len() as u8, 0, 0, 0, 0];
        [&head[..], question, &lasts.iter().flat_map(|last| record(*last)).collect::<Vec<u8>>()].concat()
    };
    let [client, server] = [1, 2].map(Host::number);
    let datagram = |message: &[u8]| {
        let ip = IpPair::between(&server, &client, IpVersion::V4);
        Ethernet::between(&server, &client).ip(&Udp { src: 53, dst: 4000 }.packet(ip, message))
    };
    let stream = |message: &[u8]| {
        let bytes = [&(message.len() as u16).to_be_bytes()[..], message].concat();
        let tcp = Tcp { src: 53, dst: 4001, seq: 1, flags: 0x18, ..Tcp::default() };
        let ip = IpPair::between(&server, &client, IpVersion::V4);
        Ethernet::between(&server, &client).ip(&tcp.packet(ip, &bytes))
    };
    let (answer, failure) = ([0x81, 0x80], [0x81, 0x83]);
    let many: Vec<u8> = (0..40).collect();
    let frames = [
        datagram(&message(answer, &[1, 2])),
        datagram(&message([1, 0], &[3])),
        datagram(&message(failure, &[4])),
        datagram(&message(answer, &[5])),
        datagram(&message(answer, &[])),
        datagram(&message(answer, &many)),
        stream(&message(answer, &[6])),
    ];
    let named = |fields: DetailFields| {
        let mut meter =
            Meter::new(&MeterSettings { details: fields, ..MeterSettings::default() }).expect("a meter");
        meter.keep_journal();
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        for frame in &frames {
            let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
            let records = [Record { offset: 0, cap_len: frame.len() as u32, options_len: 0, meta }];
            let mut selection = Selection::none();
            selection.select_all(1);
            meter.push(&Batch::new(frame, &records), &mut selection, &interfaces, &mut Vec::new());
        }
        let mut replay = Replay::default();
        replay.read(meter.journal().expect("a journal"));
        replay.named
    };
    let found = named(DetailFields { dns: true, ..DetailFields::NONE });
    assert!(found.iter().all(|one| &*one.name == "www.example"), "{found:?}");
    let lasts = |one: &NamedAddresses| one.addresses.iter().map(|of| of.to_string()).collect::<Vec<_>>();
    let lasts: Vec<Vec<String>> = found.iter().map(lasts).collect();
    let host = |last: u8| format!("10.0.0.{last}");
    let first: Vec<String> = (0..16).map(host).collect();
    assert_eq!(lasts, [vec![host(1), host(2)], vec![host(5)], first, vec![host(6)]]);
    assert!(named(DetailFields { application: true, ..DetailFields::NONE }).is_empty());
}
