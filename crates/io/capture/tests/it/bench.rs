//! A namespace with a pair, a sender, and captures driven to an end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_bpf::{Insn, Program, code};
use tapline_capture::af_packet::{AfPacket, AfPacketSettings};
use tapline_packet::Meta;
use tapline_source::{Advance, Event, InterfaceAccount, RingAccount, Source};
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// Longest wait for an event before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with a pair; `None`, said on standard error, where none can be made.
pub(crate) fn bench(test: &str) -> Option<Namespace> {
    namespaces_or_skip(test).then(|| Namespace::with_pair("live").expect("a namespace can be made"))
}

/// AfPacketSettings for these interfaces of the namespace. A ring holds a block for each stretch of the latency in
/// which a packet came, so a long one makes rings hold what a test sends however slowly that goes.
pub(crate) fn settings(namespace: &Namespace, interfaces: &[&str]) -> AfPacketSettings {
    AfPacketSettings {
        netns: Some(namespace.name().to_owned()),
        latency_ms: 100,
        ..AfPacketSettings::new(interfaces)
    }
}

/// A capture on the far end.
pub(crate) fn far(namespace: &Namespace) -> AfPacket {
    AfPacket::open(settings(namespace, &[FAR])).expect("the far end can be captured")
}

/// Sends `count` frames from an end of the namespace, made by `frame` from their number, and returns how many the
/// kernel took.
pub(crate) fn send(
    namespace: &Namespace,
    interface: &str,
    count: u32,
    frame: impl Fn(u32) -> Vec<u8>,
) -> u64 {
    let frames: Vec<Vec<u8>> = (0..count).map(frame).collect();
    namespace.wait_until_up(interface).expect("the interface comes up");
    let mut sender = Sender::open(Some(namespace.name()), interface).expect("a sender can be opened");
    sender.send(&frames, u64::from(count), Pace::Full).expect("the kernel takes frames").packets
}

/// Waits until `count` packets have reached the rings of a capture, or were dropped there: what the kernel took from a
/// sender may be on its way for a while.
pub(crate) fn arrive(source: &mut AfPacket, count: u64) {
    arrive_among(std::slice::from_mut(source), count);
}

/// As [`arrive`], for workers together.
pub(crate) fn arrive_among(sources: &mut [AfPacket], count: u64) {
    let start = Instant::now();
    loop {
        let rings = sources.iter_mut().flat_map(|source| source.account()).filter_map(|account| account.ring);
        let received: u64 = rings.map(|ring| ring.received).sum();
        if received >= count {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{received} of {count} packets arrived");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An Ethernet frame of 60 bytes with a number in it; its type is one for experiments (IEEE 802).
pub(crate) fn numbered(number: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend_from_slice(&number.to_be_bytes());
    frame.resize(60, 0xa5);
    frame
}

/// The number in a frame of [`numbered`].
pub(crate) fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().expect("four bytes"))
}

/// A packet, copied.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) meta: Meta,
    pub(crate) data: Vec<u8>,
}

/// Drives a capture until `enough` says so of the packets and events so far.
pub(crate) fn drive(
    source: &mut dyn Source,
    mut enough: impl FnMut(&[Copy], &[Event]) -> bool,
) -> (Vec<Copy>, Vec<Event>) {
    let (mut packets, mut events) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while !enough(&packets, &events) {
        assert!(
            start.elapsed() < PATIENCE,
            "nothing more came; so far {} packets and {events:?}",
            packets.len()
        );
        step(source, &mut packets);
        events.extend(source.events());
    }
    (packets, events)
}

/// Stops a capture and drives it to its end. Returns the rest of its packets.
pub(crate) fn finish(source: &mut dyn Source) -> Vec<Copy> {
    source.stop().expect("a capture can be stopped");
    let mut packets = Vec::new();
    while step(source, &mut packets) != Advance::End {}
    packets
}

fn step(source: &mut dyn Source, packets: &mut Vec<Copy>) -> Advance {
    let advance = source.advance(Duration::from_millis(100)).expect("the capture goes on");
    packets.extend(source.batch().iter().map(|p| Copy { meta: *p.meta, data: p.data.to_vec() }));
    assert_eq!(advance == Advance::Batch, !source.batch().is_empty());
    advance
}

/// The ring's counters of the only interface; the sums must agree.
pub(crate) fn ring_of(source: &mut AfPacket) -> (RingAccount, u64) {
    let accounts = source.account();
    let [InterfaceAccount { ring: Some(ring), delivered, .. }] = accounts.as_slice() else {
        panic!("one interface with a ring, not {accounts:?}");
    };
    assert_eq!(ring.received, ring.dropped + ring.unread + delivered, "{ring:?}");
    (*ring, *delivered)
}

/// Whether an event with this text came for this interface.
pub(crate) fn told(events: &[Event], interface: &str, text: &str) -> bool {
    events.iter().any(|event| event.interface == interface && event.text.contains(text))
}

/// Uses `program` as the filter of every interface.
pub(crate) fn with_filter(settings: AfPacketSettings, program: Vec<Insn>) -> AfPacketSettings {
    let program = Program::new(program).expect("a valid program");
    AfPacketSettings { filter: Some(Arc::new(move |_| Ok(Some(program.clone().into())))), ..settings }
}

/// Accepts frames whose 16 or 32 bits at `offset` are `value`.
pub(crate) fn equals(size: u16, offset: u32, value: u32) -> Vec<Insn> {
    vec![
        Insn::new(code::LD | size | code::ABS, offset),
        Insn::jump(code::JMP | code::JEQ | code::K, value, 0, 1),
        Insn::new(code::RET | code::K, 262_144),
        Insn::new(code::RET | code::K, 0),
    ]
}
