//! Packets of a topic: the chunks that `capture -w kafka://` has written, as a source.
//!
//! ```text
//! message --no chunk, too long--> told, counted        --seen before--> counted
//!    '--new--> section --> batches; damaged: packets before the fault are lent, the others are lost
//! ```
//!
//! Its packets are like those of a file: time is theirs, and slow stages behind them make the source wait.

use std::time::{Duration, Instant};

use tapline_export::{ChunkHead, MESSAGE_MAX, Message, NextMessage, Runs, Topic};
use tapline_file::SectionReader;
use tapline_packet::{Batch, Interface};
use tapline_source::{Advance, Count, Error, Event, InterfaceAccount, Loss, LossPoint, Source};

/// Maximum number of reported faults of messages; the others are counted.
const FAULTS_SHOWN_MAX: u64 = 16;
/// The longest wait for the first packets when the source is opened, so that their interface is known.
const FIRST_PACKETS_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of interfaces of a chunk: their names stay in memory.
const INTERFACES_MAX: usize = 1024;
/// The type of a section header, with which a chunk begins.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Number of interfaces that a chunk describes, as far as its blocks can be parsed.
fn interfaces_in(chunk: &[u8]) -> usize {
    let is_big = chunk.get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
    let number = |at: usize| {
        let octets: [u8; 4] = chunk.get(at..)?.first_chunk().copied()?;
        Some(if is_big { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) })
    };
    let (mut at, mut found) = (0, 0);
    while let (Some(kind), Some(len)) = (number(at), number(at + 4)) {
        found += usize::from(kind == 1);
        // The shortest block has 12 bytes, and blocks are padded to four.
        at += (len as usize).max(12).next_multiple_of(4);
    }
    found
}

/// A topic as a source.
pub struct TopicSource {
    topic: Box<dyn Topic>,
    name: String,
    reader: SectionReader,
    /// The chunk that is being lent.
    chunk: Option<LentChunk>,
    inner: Counters,
    /// Packets lent of each interface, and packets lost before them, as chunks report them.
    lent: Vec<(u64, u64)>,
    /// The first batch was found when the source was opened.
    is_found: bool,
    has_batch: bool,
    is_stopped: bool,
    is_ended: bool,
}

/// A chunk, and its packets that were lent.
struct LentChunk {
    /// Id for messages.
    id: String,
    packets: u64,
    lent: u64,
}

/// Sums of the messages.
#[derive(Default)]
struct Counters {
    runs: Runs,
    /// Messages that were seen before, are not chunks, or are damaged.
    repeated: u64,
    foreign: u64,
    damaged: u64,
    /// Packets of damaged chunks that were not lent, as their heads say.
    damaged_packets: u64,
    faults: Vec<String>,
    told: u64,
}

impl Counters {
    fn tell(&mut self, fault: impl FnOnce() -> String) {
        self.told += 1;
        if self.told <= FAULTS_SHOWN_MAX {
            self.faults.push(fault());
        }
    }

    /// The head of a chunk that is to be lent.
    fn look(&mut self, message: &Message<'_>) -> Option<ChunkHead> {
        let refusal = match &message.head {
            Err(why) => *why,
            Ok(_) if message.bytes.len() > MESSAGE_MAX => "it is longer than 2 MiB",
            Ok(_) if !message.bytes.starts_with(&SECTION_HEADER) => "it is not a section of pcapng",
            Ok(_) if interfaces_in(message.bytes) > INTERFACES_MAX => {
                "it describes more than 1024 interfaces"
            }
            Ok(head) if self.runs.add(head, message.partition) => return Some(head.clone()),
            Ok(_) => {
                self.repeated += 1;
                return None;
            }
        };
        self.foreign += 1;
        let (partition, offset) = (message.partition, message.offset);
        self.tell(|| {
            format!("message {offset} of partition {partition} is not a chunk of packets: {refusal}")
        });
        None
    }
}

impl TopicSource {
    /// Begins with the first packets that come soon: they describe the interface for which filters are compiled.
    ///
    /// # Errors
    /// Those of the topic.
    pub fn new(topic: Box<dyn Topic>) -> Result<TopicSource, Error> {
        let mut source = TopicSource {
            name: topic.name().to_owned(),
            topic,
            reader: SectionReader::new(),
            chunk: None,
            inner: Counters::default(),
            lent: Vec::new(),
            is_found: false,
            has_batch: false,
            is_stopped: false,
            is_ended: false,
        };
        source.is_found = source.find(FIRST_PACKETS_WAIT)?;
        Ok(source)
    }

    /// Goes on to the next batch, whose packets are not counted as lent yet.
    fn find(&mut self, wait: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        loop {
            if self.next_of_chunk() {
                return Ok(true);
            }
            let left = wait.saturating_sub(start.elapsed());
            match self.next_message(left)? {
                NextMessage::Taken => {}
                NextMessage::Idle if !left.is_zero() => {}
                NextMessage::Idle => return Ok(false),
                NextMessage::End => {
                    self.end();
                    return Ok(false);
                }
            }
            if left.is_zero() && self.chunk.is_none() {
                return Ok(false);
            }
        }
    }

    /// Goes on to the next batch of the chunk.
    fn next_of_chunk(&mut self) -> bool {
        let Some(mut chunk) = self.chunk.take() else { return false };
        loop {
            let advanced = self.reader.advance();
            match advanced {
                Ok(true) if self.reader.batch().is_empty() => {}
                Ok(true) => {
                    chunk.lent += self.reader.batch().len() as u64;
                    self.chunk = Some(chunk);
                    return true;
                }
                Ok(false) if chunk.lent == chunk.packets => return false,
                Ok(false) => {
                    let how = if chunk.lent < chunk.packets { "fewer" } else { "more" };
                    self.note_damage(&chunk, &format!("it has {how} packets than its headers say"));
                    return false;
                }
                Err(why) => {
                    self.note_damage(&chunk, &why);
                    return false;
                }
            }
        }
    }

    fn note_damage(&mut self, chunk: &LentChunk, why: &str) {
        self.inner.damaged += 1;
        let missing = chunk.packets.saturating_sub(chunk.lent);
        self.inner.damaged_packets = self.inner.damaged_packets.saturating_add(missing);
        let (id, lent) = (&chunk.id, chunk.lent);
        self.inner.tell(|| format!("chunk {id} is damaged behind {lent} packets: {why}"));
    }

    fn next_message(&mut self, wait: Duration) -> Result<NextMessage, Error> {
        let TopicSource { topic, reader, chunk, inner, .. } = self;
        let next = topic.next(wait, &mut |message| {
            let Some(head) = inner.look(message) else { return };
            let filled: Result<(), ()> = reader.refill(|buffer| {
                buffer.clear();
                buffer.extend_from_slice(message.bytes);
                Ok(())
            });
            if filled.is_ok() {
                *chunk = Some(LentChunk { id: head.id.to_string(), packets: head.packets, lent: 0 });
            }
        });
        next.map_err(|error| Error::source("topic", error))
    }

    /// Counts the batch as lent.
    fn lend(&mut self) -> Advance {
        self.lent.resize(self.reader.interfaces().len(), (0, 0));
        for record in self.reader.batch().records() {
            if let Some((lent, drops)) = self.lent.get_mut(record.meta.interface.0 as usize) {
                *lent += 1;
                *drops = drops.saturating_add(record.meta.drops_before);
            }
        }
        self.has_batch = true;
        Advance::Batch
    }

    /// The end: all messages about messages are reported.
    fn end(&mut self) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        // Of a chunk that was not lent to its end the rest must come again.
        self.topic.finish(self.chunk.is_none());
        let Counters { repeated, foreign, damaged, .. } = self.inner;
        let name = &self.name;
        let counts = [
            (repeated, "came twice, and counted once"),
            (foreign, "were no chunks of packets"),
            (damaged, "were damaged"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            self.inner.faults.push(format!("{name}: {count} messages {what}"));
        }
    }

    fn losses(&self) -> Vec<Loss> {
        let lacking = match self.topic.is_shared() {
            true => 0,
            false => self.inner.runs.lacking(self.topic.is_whole()),
        };
        let counts =
            [("of chunks that did not come", lacking), ("in damaged chunks", self.inner.damaged_packets)];
        let loss = |(counter, count): (&str, u64)| Loss {
            place: LossPoint::Topic,
            counter: counter.to_owned(),
            count: Count::Known(count),
        };
        counts.into_iter().filter(|(_, count)| *count > 0).map(loss).collect()
    }
}

impl Source for TopicSource {
    fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.has_batch = false;
        if self.is_stopped {
            return Ok(Advance::End);
        }
        if std::mem::take(&mut self.is_found) || !self.is_ended && self.find(wait)? {
            return Ok(self.lend());
        }
        Ok(if self.is_ended { Advance::End } else { Advance::Idle })
    }

    fn batch(&self) -> Batch<'_> {
        if self.has_batch { self.reader.batch() } else { Batch::empty() }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        self.has_batch = false;
        self.end();
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let dropped = |drops: u64| Loss {
            place: LossPoint::File,
            counter: "epb_dropcount".to_owned(),
            count: Count::Known(drops),
        };
        let row = |(interface, (lent, drops)): (&Interface, &(u64, u64))| InterfaceAccount {
            is_partial: self.is_stopped,
            losses: (*drops > 0).then(|| dropped(*drops)).into_iter().collect(),
            ..InterfaceAccount::of_file(format!("{} {}", self.name, interface.label()).trim_end(), *lent)
        };
        let mut rows: Vec<InterfaceAccount> =
            self.reader.interfaces().iter().zip(&self.lent).map(row).collect();
        if rows.is_empty() {
            rows.push(InterfaceAccount::of_file(&self.name, 0));
        }
        let losses = self.losses();
        rows.iter_mut().take(1).for_each(|row| row.losses.extend(losses.clone()));
        rows
    }

    fn events(&mut self) -> Vec<Event> {
        let faults = std::mem::take(&mut self.inner.faults);
        let lines = faults.into_iter().chain(self.topic.take_events());
        lines.map(|text| Event { interface: String::new(), text, is_warning: true }).collect()
    }
}

#[cfg(test)]
mod tests;
