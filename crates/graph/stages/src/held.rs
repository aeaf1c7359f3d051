//! Packets that a stage keeps for a while: copies, handed on in the order of the times at which they are due.
//!
//! ```text
//! keep(due, packet) --copy--> bytes: | live | dead | live | live |        slots: where each lies, and its Meta
//! release(until)    <--lend-- heap of (due, number, slot): the earliest first, of equal ones that which came first
//! ```
//!
//! Bytes of packets that have gone stay until they are more than those of the packets that are kept; then the kept ones
//! move together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tapline_graph::catalog::{Parameter, ParameterType};
use tapline_graph::{Out, Packets};
use tapline_packet::{BATCH_MAX, Batch, ClockReading, Interface, Packet, Record, Timestamp};
use tapline_source::Error;

/// Bytes of a packet in addition to its data.
const RECORD_SIZE: usize = size_of::<Record>() + size_of::<DueEntry>();

/// The least number of freed bytes for which the rest is moved together.
const DEAD_MAX: usize = 64 * 1024;

/// The parameter that declares the room of such a stage. Any packet fits into the least room.
pub(super) const ROOM: Parameter = Parameter::new("room", ParameterType::Number(1_000_000, 16_000_000_000), "64M")
    .means("bytes of kept packets at most, with about 130 for each packet; the buffers behind them may take four times as many");

/// Due time, number in the order of arrival, slot.
type DueEntry = (Timestamp, u64, u32);

/// Packets that a stage keeps.
pub(super) struct HeldPackets {
    room: usize,
    /// Bytes that the kept packets take, with their records.
    used: usize,
    /// Bytes of kept packets, among them those of packets that have gone.
    bytes: Vec<u8>,
    live: usize,
    slots: Vec<Record>,
    free: Vec<u32>,
    places: BinaryHeap<Reverse<DueEntry>>,
    kept: u64,
    /// The latest due time of the packets handed on.
    gone: Option<Timestamp>,
    lent: Vec<Record>,
    interfaces: Vec<Interface>,
}

impl HeldPackets {
    /// Room for `room` bytes of packets with their records.
    pub(super) fn new(room: usize) -> HeldPackets {
        HeldPackets {
            room,
            used: 0,
            bytes: Vec::new(),
            live: 0,
            slots: Vec::new(),
            free: Vec::new(),
            places: BinaryHeap::new(),
            kept: 0,
            gone: None,
            lent: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    /// Number of kept packets.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// When the packet was due that was due last of those that have gone on.
    pub(super) fn gone(&self) -> Option<Timestamp> {
        self.gone
    }

    /// When the first of them is due.
    fn first_due(&self) -> Option<Timestamp> {
        self.places.peek().map(|Reverse((due, _, _))| *due)
    }

    /// Notes the meaning of the interface numbers of packets, before they are kept.
    pub(super) fn learn(&mut self, interfaces: &[Interface]) {
        self.interfaces.extend(interfaces.iter().skip(self.interfaces.len()).cloned());
    }

    /// Keeps a copy of a packet until it is due; `false` if the memory is full. Raw pcapng options are not kept.
    pub(super) fn keep(&mut self, due: Timestamp, packet: Packet<'_>) -> bool {
        let size = packet.data.len() + RECORD_SIZE;
        if self.used + size > self.room {
            return false;
        }
        self.make_compact();
        let record = Record {
            offset: self.bytes.len(),
            cap_len: packet.data.len() as u32,
            options_len: 0,
            meta: *packet.meta,
        };
        self.bytes.extend_from_slice(packet.data);
        self.live += packet.data.len();
        self.used += size;
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = record,
            None => self.slots.push(record),
        }
        self.places.push(Reverse((due, self.kept, slot)));
        self.kept += 1;
        true
    }

    /// Hands on packets that are due at `until` or before, in their order. `now` is the time of the clocks.
    ///
    /// # Errors
    /// The first of all stages that failed; all that is due has left all the same.
    pub(super) fn release(
        &mut self,
        until: Timestamp,
        now: ClockReading,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        while self.take(|due| due <= until, BATCH_MAX) {
            result = result.and(self.lend(now, out));
        }
        result
    }

    /// Hands on the first of all, due or not, up to a batch of them; how many they were, and whether all stages that
    /// follow took them.
    pub(super) fn release_some(
        &mut self,
        now: ClockReading,
        out: &mut Out<'_>,
    ) -> (usize, Result<(), Error>) {
        self.take(|_| true, BATCH_MAX);
        (self.lent.len(), self.lend(now, out))
    }

    /// Hands on everything.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub(super) fn release_all(&mut self, now: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        self.release(Timestamp::from_nanos(i64::MAX), now, out)
    }

    /// Moves the first packets that are due to `lent`; whether there are any.
    fn take(&mut self, is_due: impl Fn(Timestamp) -> bool, most: usize) -> bool {
        self.lent.clear();
        while self.lent.len() < most && self.first_due().is_some_and(&is_due) {
            let Some(Reverse((due, _, slot))) = self.places.pop() else { break };
            self.gone = self.gone.max(Some(due));
            let record = self.slots[slot as usize];
            self.free.push(slot);
            self.live -= record.cap_len as usize;
            self.used -= record.cap_len as usize + RECORD_SIZE;
            self.lent.push(record);
        }
        !self.lent.is_empty()
    }

    fn lend(&self, now: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        let batch = Batch::new(&self.bytes, &self.lent);
        out.pass(&mut Packets::all(batch, &self.interfaces, now))
    }

    /// Moves the kept packets together where more bytes are dead than live: each byte moves for one that has gone.
    fn make_compact(&mut self) {
        let dead = self.bytes.len() - self.live;
        if dead < self.live.max(DEAD_MAX) {
            return;
        }
        let mut slots: Vec<u32> = self.places.iter().map(|Reverse((_, _, slot))| *slot).collect();
        slots.sort_unstable_by_key(|&slot| self.slots[slot as usize].offset);
        let mut end = 0;
        for slot in slots {
            let record = &mut self.slots[slot as usize];
            let len = record.cap_len as usize;
            self.bytes.copy_within(record.offset..record.offset + len, end);
            record.offset = end;
            end += len;
        }
        self.bytes.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::Meta;

    fn packet_of<'a>(data: &'a [u8], meta: &'a Meta) -> Packet<'a> {
        Packet { data, meta }
    }

    /// The packets due at `until`, as bytes.
    fn taken(held: &mut HeldPackets, until: i64) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while held.take(|due| due.as_nanos() <= until, 3) {
            all.extend(Batch::new(&held.bytes, &held.lent).iter().map(|packet| packet.data.to_vec()));
        }
        all
    }

    #[test]
    fn packets_leave_by_time_then_by_arrival() {
        let mut held = HeldPackets::new(1 << 20);
        let meta = Meta::default();
        for (due, byte) in [(5, 1), (3, 2), (5, 3), (9, 4), (3, 5), (3, 6), (3, 7)] {
            assert!(held.keep(Timestamp::from_nanos(due), packet_of(&[byte; 2], &meta)));
        }
        assert_eq!(taken(&mut held, 2), Vec::<Vec<u8>>::new());
        let firsts: Vec<u8> = taken(&mut held, 5).iter().map(|data| data[0]).collect();
        assert_eq!((firsts, held.len()), (vec![2, 5, 6, 7, 1, 3], 1));
    }

    #[test]
    fn full_queues_refuse_packets_until_some_leave() {
        let mut held = HeldPackets::new(2 * (RECORD_SIZE + 10));
        let meta = Meta::default();
        let keeps = |held: &mut HeldPackets| held.keep(Timestamp::EPOCH, packet_of(&[1; 10], &meta));
        assert_eq!([keeps(&mut held), keeps(&mut held), keeps(&mut held)], [true, true, false]);
        assert_eq!(taken(&mut held, 0).len(), 2);
        assert_eq!((held.used, held.live), (0, 0));
        assert!(keeps(&mut held));
    }

    /// Packets of random sizes come and go: each comes out as it went in, and the bytes stay within twice those of
    /// the kept packets.
    #[test]
    fn compaction_keeps_bytes_unchanged() {
        let mut random = tapline_testkit::random::Random::new(4);
        let mut held = HeldPackets::new(600_000);
        let (mut inside, mut refused) = (Vec::<(i64, Vec<u8>)>::new(), 0);
        for step in 0..20_000_i64 {
            let len = random.below(1500) as usize;
            let (due, data) = (step + random.below(300) as i64, random.bytes(len));
            if held.keep(Timestamp::from_nanos(due), packet_of(&data, &Meta::default())) {
                inside.push((due, data));
            } else {
                refused += 1;
            }
            if random.one_of(1, 200) {
                inside.sort_by_key(|(due, _)| *due);
                let later = inside.split_off(inside.partition_point(|(due, _)| *due <= step));
                let expected: Vec<Vec<u8>> = inside.drain(..).map(|(_, data)| data).collect();
                assert_eq!(taken(&mut held, step), expected, "step {step}");
                inside = later;
            }
            assert!(held.bytes.len() <= 2 * held.live.max(DEAD_MAX) + 600_000, "step {step}");
        }
        assert!(refused > 0, "the bound was never met");
        assert!(held.slots.len() < 5000, "slots are used again");
    }
}
