//! Results of the search's threads, in the order of time.
//!
//! ```text
//! found, in the order of recording, each in the order of time --add--> held --next, up to the limit--> lent, in the order of time
//! ```
//!
//! The limit is the least time that a packet of the next slots may have: a packet that was recorded up to [`REACH`]
//! slots before an older one is lent behind it. Of packets whose clocks differ by more, as after a step of the clock,
//! the newer ones are lent first, and counted.
//!
//! [`REACH`]: crate::search::REACH

use std::collections::VecDeque;

use tapline_packet::{Record, Timestamp};

use super::examine::FoundPackets;

/// Results that wait for older packets at most: as many as a step of the clock leaves behind, and some more.
const HELD_MAX: usize = 8;

/// Results that still have packets.
#[derive(Default)]
pub(super) struct TimeOrder {
    /// In the order of recording, each with the packets that were not lent.
    held: VecDeque<FoundPackets>,
    /// Packets up to this time may be lent.
    limit: Option<Timestamp>,
    /// The time of the newest packet that was lent.
    newest: Option<Timestamp>,
    /// Packets that were lent behind a newer one.
    late: u64,
}

impl TimeOrder {
    /// Takes the next result. Gives it back if it has no packets.
    pub(super) fn add(&mut self, found: FoundPackets) -> Option<FoundPackets> {
        self.limit = Some(found.later);
        if found.records.is_empty() {
            return Some(found);
        }
        self.held.push_back(found);
        None
    }

    /// No result is to come: all packets may be lent.
    pub(super) fn end(&mut self) {
        self.limit = Some(Timestamp::from_nanos(i64::MAX));
    }

    /// Packets that were lent behind a newer one.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// The next packets that may be lent, in the order of time.
    pub(super) fn next(&mut self) -> Option<FoundPackets> {
        let limit = self.limit?;
        let limit = match self.held.front().and_then(|found| found.records.last()) {
            Some(last) if self.held.len() > HELD_MAX => limit.max(last.meta.timestamp),
            _ => limit,
        };
        let ready = |found: &FoundPackets| up_to(&found.records, limit);
        let newest = self.held.iter().rposition(|found| ready(found) > 0)?;
        // Packets left in older results come first, with those of the newest that belong among them.
        let of_older = self.held.range(..newest).filter_map(|found| found.records[..ready(found)].last());
        let lent = match of_older.map(|record| record.meta.timestamp).max() {
            Some(bound) => self.merge(bound),
            None => self.part(newest, limit),
        };
        self.note(&lent.records);
        Some(lent)
    }

    /// Packets of several results up to a time.
    fn merge(&mut self, bound: Timestamp) -> FoundPackets {
        let mut lent = FoundPackets::default();
        for found in &mut self.held {
            let mut records: Vec<Record> = found.records.drain(..up_to(&found.records, bound)).collect();
            copy_out(&found.bytes, &mut records, &mut lent.bytes);
            lent.records.append(&mut records);
        }
        lent.records.sort_by_key(|record| record.meta.timestamp);
        self.held.retain(|found| !found.records.is_empty());
        lent
    }

    /// Packets of one result up to a time. The few that are left are copied.
    fn part(&mut self, at: usize, limit: Timestamp) -> FoundPackets {
        let Some(mut lent) = self.held.remove(at) else { return FoundPackets::default() };
        let mut rest = lent.records.split_off(up_to(&lent.records, limit));
        if !rest.is_empty() {
            let mut bytes = Vec::new();
            copy_out(&lent.bytes, &mut rest, &mut bytes);
            self.held.insert(at, FoundPackets { bytes, records: rest, ..FoundPackets::default() });
        }
        lent
    }

    fn note(&mut self, records: &[Record]) {
        let newest = self.newest.unwrap_or(Timestamp::from_nanos(i64::MIN));
        self.late += records.partition_point(|record| record.meta.timestamp < newest) as u64;
        self.newest = records.last().map(|record| record.meta.timestamp.max(newest)).or(self.newest);
    }
}

/// Number of these packets, sorted by time, up to `limit`.
fn up_to(records: &[Record], limit: Timestamp) -> usize {
    records.partition_point(|record| record.meta.timestamp <= limit)
}

/// Bytes of a packet and its options.
pub(super) fn len_of(record: &Record) -> usize {
    (record.cap_len as usize).next_multiple_of(4).saturating_add(record.options_len as usize)
}

/// Copies packets behind `bytes`, and has their records point there.
pub(super) fn copy_out(base: &[u8], records: &mut [Record], bytes: &mut Vec<u8>) {
    for record in records {
        let (start, len) = (bytes.len(), len_of(record));
        let end = record.offset.saturating_add(len).min(base.len());
        bytes.extend_from_slice(base.get(record.offset..end).unwrap_or(&[]));
        // The last packet of the base may have no padding.
        bytes.resize(start + len, 0);
        record.offset = start;
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;

    use super::*;

    /// Packets of these times, each with its time as its bytes.
    fn found(times: &[i64], later: i64) -> FoundPackets {
        let mut found = FoundPackets { later: Timestamp::from_nanos(later), ..FoundPackets::default() };
        for &time in times {
            let meta = Meta { timestamp: Timestamp::from_nanos(time), ..Meta::default() };
            found.records.push(Record { offset: found.bytes.len(), cap_len: 8, meta, ..Record::default() });
            found.bytes.extend_from_slice(&time.to_le_bytes());
        }
        found
    }

    /// The times of all that may be lent, as the packets' bytes say.
    fn lent(order: &mut TimeOrder) -> Vec<i64> {
        let mut times = Vec::new();
        while let Some(found) = order.next() {
            let time = |record: &Record| {
                let bytes = found.bytes[record.offset..].first_chunk().unwrap();
                let time = i64::from_le_bytes(*bytes);
                assert_eq!(time, record.meta.timestamp.as_nanos());
                time
            };
            times.extend(found.records.iter().map(time));
        }
        times
    }

    #[test]
    fn packets_of_neighbouring_slots_are_put_in_order() {
        let mut order = TimeOrder::default();
        assert!(order.add(found(&[1, 2, 5, 9], 4)).is_none());
        assert_eq!(lent(&mut order), [1, 2]);
        assert!(order.add(found(&[4, 6, 7, 8], 9)).is_none());
        assert_eq!(lent(&mut order), [4, 5, 6, 7, 8, 9]);
        assert!(order.add(found(&[], 9)).is_some(), "there is nothing in it");
        order.add(found(&[9, 10], i64::MIN));
        assert!(lent(&mut order).is_empty());
        order.end();
        assert_eq!((lent(&mut order), order.late()), (vec![9, 10], 0));
    }

    #[test]
    fn a_clock_set_back_is_counted_and_keeps_no_packet() {
        let mut order = TimeOrder::default();
        order.add(found(&[100, 101], 102));
        assert_eq!(lent(&mut order), [100, 101]);
        // The clock goes back by a hundred within the reach of this one.
        order.add(found(&[102, 103], 2));
        assert!(lent(&mut order).is_empty());
        let mut times = Vec::new();
        for at in 1..30 {
            order.add(found(&[2 * at, 2 * at + 1], 2 * at + 2));
            times.append(&mut lent(&mut order));
            assert!(order.held.len() <= HELD_MAX);
        }
        order.end();
        times.append(&mut lent(&mut order));
        assert!(times.is_sorted() && times.len() == 60, "{times:?}");
        assert_eq!(order.late(), 58, "all that are older than 101");
    }

    #[test]
    fn results_of_random_times_are_all_lent() {
        let mut random = tapline_testkit::random::Random::new(5);
        for round in 0..200 {
            // Each packet stands up to 30 places from where its time is, a result has 20.
            let mut times: Vec<i64> = (0..2_000).collect();
            times.sort_by_cached_key(|time| time + random.below(31) as i64);
            let mut results: Vec<Vec<i64>> = times.chunks(20).map(<[i64]>::to_vec).collect();
            results.iter_mut().for_each(|result| result.sort_unstable());
            let mut order = TimeOrder::default();
            let mut all = Vec::new();
            for (at, result) in results.iter().enumerate() {
                let next = results[at + 1..].iter().take(3).flatten().min();
                order.add(found(result, next.copied().unwrap_or(i64::MIN)));
                all.append(&mut lent(&mut order));
            }
            order.end();
            all.append(&mut lent(&mut order));
            assert!(all.is_sorted() && all.len() == 2_000, "round {round}");
            assert_eq!(order.late(), 0, "round {round}");
        }
    }
}
