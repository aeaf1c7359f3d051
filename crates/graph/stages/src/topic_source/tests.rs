//! Topics whose messages are given, whatever they are.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapline_export::{
    Block, Carrier, ChunkHead, Delivery, Encoding, Limits, Offer, Outcome, PacketExporter, Report,
};
use tapline_file::Section;
use tapline_packet::{InterfaceId, LinkType, Meta, Packet, Timestamp};

use super::*;

/// A receiver that keeps all.
#[derive(Clone, Default)]
struct Keeper {
    blocks: Arc<Mutex<Vec<Block>>>,
    reports: Vec<Report>,
}

impl Carrier for Keeper {
    fn name(&self) -> &str {
        "keeper"
    }

    fn offer(&mut self, block: &Arc<Block>) -> Offer {
        self.blocks.lock().expect("no test panics there").push((**block).clone());
        self.reports.push(Report { block: Arc::clone(block), outcome: Outcome::Delivered });
        Offer::Taken
    }

    fn poll(&mut self, _: Duration) -> Option<Report> {
        self.reports.pop()
    }

    fn give_up(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }
}

/// Chunks of this number of packets on two interfaces, taken in turn; the third packet reports 7 lost before it.
fn chunks(packets: u64) -> Vec<Block> {
    let keeper = Keeper::default();
    let delivery = Delivery {
        name: "topic".to_owned(),
        id: "s-1-0".parse().expect("an id"),
        encoding: Encoding::Pcapng,
        groups: 1,
        carrier: Box::new(keeper.clone()),
        spool: None,
        limits: Limits { block: 2000, ..Limits::default() },
    };
    let exporter = PacketExporter::start(delivery, &Section::default());
    let mut exporter = exporter.expect("a thread");
    let interfaces = [Interface::new("a", LinkType::ETHERNET), Interface::new("b", LinkType::RAW)];
    for number in 0..packets {
        let meta = Meta {
            timestamp: Timestamp::from_nanos(1_700_000_000_000_000_001 + number as i64),
            wire_len: 1000,
            interface: InterfaceId(1 - (number % 2) as u32),
            drops_before: if number == 2 { 7 } else { 0 },
            ..Meta::default()
        };
        let data = [number as u8; 100];
        let interface = &interfaces[meta.interface.0 as usize];
        exporter.push(&Packet { data: &data, meta: &meta }, interface, &[], Timestamp::EPOCH, false);
    }
    exporter.finish();
    let account = exporter.deliveries();
    assert!(account.is_balanced() && account.acknowledged.packets == packets, "{account:?}");
    let blocks = keeper.blocks.lock().expect("no test panics there");
    blocks.clone()
}

/// A message: its headers, and its bytes.
type Given = (Result<ChunkHead, &'static str>, Vec<u8>);

/// A topic of given messages.
struct GivenTopic {
    messages: std::vec::IntoIter<Given>,
    is_shared: bool,
    /// Whether the last message was read when the reading ended.
    ended: Arc<Mutex<Option<bool>>>,
}

impl GivenTopic {
    fn whole(messages: Vec<Given>) -> GivenTopic {
        GivenTopic { messages: messages.into_iter(), is_shared: false, ended: Arc::default() }
    }
}

impl Topic for GivenTopic {
    fn name(&self) -> &str {
        "kafka://h:9092/t"
    }

    fn is_whole(&self) -> bool {
        !self.is_shared
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn next(
        &mut self,
        _: Duration,
        take: &mut dyn FnMut(&Message<'_>),
    ) -> Result<NextMessage, tapline_export::Error> {
        let Some((head, bytes)) = self.messages.next() else { return Ok(NextMessage::End) };
        take(&Message { partition: 0, offset: 5, head, bytes: &bytes });
        Ok(NextMessage::Taken)
    }

    fn take_events(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn finish(&mut self, was_read: bool) {
        *self.ended.lock().expect("no test panics there") = Some(was_read);
    }
}

fn message(block: &Block) -> Given {
    let Block { id, packets, packets_before, bytes, .. } = block.clone();
    (Ok(ChunkHead { id, packets, packets_before }), bytes)
}

/// The first bytes of all packets, events, and losses.
fn read(messages: Vec<Given>) -> (Vec<u8>, Vec<String>, Vec<u64>) {
    let mut source = TopicSource::new(Box::new(GivenTopic::whole(messages))).expect("a topic");
    let mut found = Vec::new();
    loop {
        match source.advance(Duration::ZERO).expect("no fault ends it") {
            Advance::Batch => {}
            Advance::Idle => continue,
            Advance::End => break,
        }
        for packet in source.batch().iter() {
            assert_eq!((packet.data.len(), packet.meta.wire_len), (100, 1000));
            assert_eq!(packet.meta.drops_before, if packet.data[0] == 2 { 7 } else { 0 });
            let name = &source.interfaces()[packet.meta.interface.0 as usize].name;
            assert_eq!(name, if packet.data[0] % 2 == 0 { "b" } else { "a" });
            found.push(packet.data[0]);
        }
    }
    let account = source.account();
    assert_eq!(account.iter().map(|row| row.delivered).sum::<u64>(), found.len() as u64);
    let losses = account.iter().flat_map(|row| &row.losses).filter(|loss| loss.place == LossPoint::Topic);
    let losses = losses.filter_map(|loss| loss.count.known());
    let events = source.events().into_iter().map(|event| event.text).collect();
    (found, events, losses.collect())
}

#[test]
fn packets_of_chunks_are_those_that_were_written() {
    let chunks = chunks(100);
    assert!(chunks.len() > 5 && chunks.iter().all(|chunk| chunk.bytes.len() <= 2000));
    let (found, events, losses) = read(chunks.iter().map(message).collect());
    assert_eq!((found, events.len(), losses.len()), ((0..100).collect(), 0, 0));
}

#[test]
fn chunks_that_come_twice_or_not_are_counted() {
    let chunks = chunks(100);
    let mut messages: Vec<_> = chunks.iter().chain(&chunks[..3]).map(message).collect();
    drop(messages.remove(1));
    let (found, events, losses) = read(messages);
    assert_eq!((found.len(), losses), (100, vec![]), "the second time it is there");
    assert_eq!(events, ["kafka://h:9092/t: 2 messages came twice, and counted once"]);
    let without = chunks.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, chunk)| message(chunk));
    let (found, _, losses) = read(without.collect());
    assert_eq!((found.len() as u64 + losses[0], losses[0]), (100, chunks[2].packets));
}

#[test]
fn hostile_messages_are_told_and_never_a_panic() {
    let chunks = chunks(30);
    let good = message(&chunks[0]);
    for cut in 0..good.1.len() {
        let (found, events, _) = read(vec![(good.0.clone(), good.1[..cut].to_vec())]);
        assert!((found.len() as u64) < chunks[0].packets && events.len() == 2, "{cut}: {events:?}");
    }
    for (head, bytes) in [
        (Err("it has no headers"), b"garbage".to_vec()),
        (good.0.clone(), b"garbage".to_vec()),
        (good.0.clone(), vec![0x0a; MESSAGE_MAX + 1]),
        (good.0.clone(), good.1[28..].to_vec()),
    ] {
        let (found, events, _) = read(vec![(head, bytes), message(&chunks[1])]);
        assert_eq!(found.len() as u64, chunks[1].packets);
        assert!(events[0].contains("message 5 of partition 0 is not a chunk"), "{events:?}");
    }
    let many = (0..1000).map(|_| (Err("it has no headers"), Vec::new())).collect();
    let (_, events, _) = read(many);
    assert_eq!(events.len() as u64, FAULTS_SHOWN_MAX + 1);
}

#[test]
fn any_changed_byte_of_a_chunk_is_survived() {
    let chunks = chunks(10);
    let (head, bytes) = message(&chunks[0]);
    for at in 0..bytes.len() {
        for mask in [0xff, 0x01, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            let topic = GivenTopic::whole(vec![(head.clone(), changed)]);
            let Ok(mut source) = TopicSource::new(Box::new(topic)) else { continue };
            while source.advance(Duration::ZERO).is_ok_and(|advance| advance == Advance::Batch) {}
        }
    }
}

#[test]
fn a_chunk_that_was_cut_was_not_read() {
    let chunks = chunks(40);
    // The second of three chunks went to another reader.
    let messages = vec![message(&chunks[0]), message(&chunks[2])];
    for (batches, was_read) in [(0, false), (1, false), (3, true)] {
        let ended = Arc::new(Mutex::new(None));
        let topic =
            GivenTopic { is_shared: true, ended: Arc::clone(&ended), ..GivenTopic::whole(messages.clone()) };
        let mut source = TopicSource::new(Box::new(topic)).expect("a topic");
        (0..batches).for_each(|_| drop(source.advance(Duration::ZERO)));
        source.stop().expect("it stops");
        assert_eq!(*ended.lock().expect("no test panics there"), Some(was_read), "{batches} batches");
        let dropped_before: u64 = if batches == 0 { 0 } else { 7 };
        let losses = source.account().into_iter().flat_map(|row| row.losses);
        let counts: Vec<(String, Option<u64>)> =
            losses.map(|loss| (loss.counter, loss.count.known())).collect();
        let expected = (dropped_before > 0).then(|| ("epb_dropcount".to_owned(), Some(dropped_before)));
        assert_eq!(counts, Vec::from_iter(expected));
    }
}

#[test]
fn a_chunk_of_too_many_interfaces_is_refused() {
    let chunks = chunks(10);
    let (head, bytes) = message(&chunks[0]);
    // Interface descriptions without options, behind the chunk's own.
    let interface: Vec<u8> = [1_u32, 20, 1, 0, 20].iter().flat_map(|word| word.to_le_bytes()).collect();
    for (more, is_taken) in [(1000, true), (1024, false)] {
        let long = [bytes.clone(), interface.repeat(more)].concat();
        let (found, events, _) = read(vec![(head.clone(), long)]);
        assert_eq!(!found.is_empty(), is_taken, "{events:?}");
        assert_eq!(events.iter().any(|event| event.contains("1024 interfaces")), !is_taken, "{events:?}");
    }
}
