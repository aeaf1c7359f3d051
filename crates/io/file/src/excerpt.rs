//! Excerpts of files: packets by number and time, with times that are moved.

use std::ops::RangeInclusive;

use tapline_packet::{Batch, Record, Timestamp};

use crate::error::Error;

/// Ranges of packet numbers, from 1 in the order of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketNumbers {
    /// Sorted, and apart from each other; never empty.
    ranges: Vec<RangeInclusive<u64>>,
}

impl PacketNumbers {
    /// Parses `10-20`, `7`, `30-`, or several of them with commas.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn parse(text: &str) -> Result<PacketNumbers, String> {
        let parsed = text.split(',').map(|part| range(part.trim())).collect::<Option<Vec<_>>>();
        let mut parsed =
            parsed.ok_or_else(|| format!("'{text}' is not a range of packets: 10-20, 7, 30-"))?;
        parsed.sort_by_key(|range| *range.start());
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for range in parsed {
            match ranges.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => ranges.push(range),
            }
        }
        Ok(PacketNumbers { ranges })
    }
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    let (first, last) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((first, "")) => (number(first)?, u64::MAX),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    (first <= last).then_some(first..=last)
}

/// The packets of files to read, and a shift of their times.
#[derive(Clone, Debug)]
pub struct Excerpt {
    from: Timestamp,
    to: Option<Timestamp>,
    /// Ranges that are not over yet, the last one first; `None` means all numbers.
    numbers: Option<Vec<RangeInclusive<u64>>>,
    shift_ns: i64,
    /// Packets read so far.
    read: u64,
}

impl Default for Excerpt {
    /// All packets.
    fn default() -> Excerpt {
        Excerpt { from: Timestamp::from_nanos(i64::MIN), to: None, numbers: None, shift_ns: 0, read: 0 }
    }
}

impl Excerpt {
    /// Limits the excerpt to packets from `from` on and before `to`, by their times in the file. Packets without a time
    /// are left out.
    #[must_use]
    pub fn between(self, from: Timestamp, to: Option<Timestamp>) -> Excerpt {
        Excerpt { from, to, ..self }
    }

    /// Limits the excerpt to packets with these numbers.
    #[must_use]
    pub fn numbered(self, numbers: &PacketNumbers) -> Excerpt {
        Excerpt { numbers: Some(numbers.ranges.iter().rev().cloned().collect()), ..self }
    }

    /// Adds this many nanoseconds to the time of each packet.
    #[must_use]
    pub fn shifted(self, shift_ns: i64) -> Excerpt {
        Excerpt { shift_ns, ..self }
    }

    /// Whether all packets are in it as they are.
    pub(crate) fn is_all(&self) -> bool {
        !self.has_window() && self.numbers.is_none() && self.shift_ns == 0
    }

    fn has_window(&self) -> bool {
        self.from.as_nanos() > i64::MIN || self.to.is_some()
    }

    /// Whether no packet can follow.
    pub(crate) fn is_over(&self) -> bool {
        self.numbers.as_ref().is_some_and(Vec::is_empty)
    }

    /// Puts the records of the excerpt into `chosen`; counts the others by interface.
    ///
    /// # Errors
    /// If the shift moves a packet out of the times from 1970 to 2262.
    pub(crate) fn choose(
        &mut self,
        batch: &Batch<'_>,
        chosen: &mut Vec<Record>,
        refused: &mut [u64],
    ) -> Result<(), Error> {
        chosen.clear();
        for record in batch.records() {
            self.read += 1;
            if self.has_number() && self.has_time(record) {
                let mut record = *record;
                self.shift(&mut record)?;
                chosen.push(record);
            } else if let Some(refused) = refused.get_mut(record.meta.interface.0 as usize) {
                *refused += 1;
            }
        }
        Ok(())
    }

    /// Whether the number of the packet that was read last is wanted.
    fn has_number(&mut self) -> bool {
        let Some(ranges) = &mut self.numbers else { return true };
        let has = ranges.last().is_some_and(|range| range.contains(&self.read));
        if ranges.last().is_some_and(|range| *range.end() <= self.read) {
            ranges.pop();
        }
        has
    }

    fn has_time(&self, record: &Record) -> bool {
        let time = record.meta.timestamp;
        let is_in = self.from <= time && self.to.is_none_or(|to| time < to);
        !self.has_window() || is_in && !record.meta.is_untimed
    }

    fn shift(&self, record: &mut Record) -> Result<(), Error> {
        if self.shift_ns == 0 || record.meta.is_untimed {
            return Ok(());
        }
        let moved = record.meta.timestamp.as_nanos().checked_add(self.shift_ns);
        let moved = moved.filter(|time| *time >= 0).ok_or(Error::Shift { packet: self.read })?;
        record.meta.timestamp = Timestamp::from_nanos(moved);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(excerpt: Excerpt, count: usize) -> Vec<usize> {
        let mut excerpt = excerpt;
        let records = [Record::default()];
        let batch = Batch::new(&[], &records);
        let (mut chosen, mut refused) = (Vec::new(), [0]);
        let mut found = Vec::new();
        for number in 1..=count {
            if excerpt.is_over() {
                return found;
            }
            excerpt.choose(&batch, &mut chosen, &mut refused).expect("no shift");
            found.extend((!chosen.is_empty()).then_some(number));
        }
        assert_eq!(found.len() + refused[0] as usize, count);
        found
    }

    #[test]
    fn ranges_choose_packets_by_number() {
        let chosen = |text: &str| {
            numbers(Excerpt::default().numbered(&PacketNumbers::parse(text).expect("ranges")), 12)
        };
        assert_eq!(chosen("3-5"), [3, 4, 5]);
        assert_eq!(chosen("10-,2,1-3,4"), [1, 2, 3, 4, 10, 11, 12]);
        assert_eq!(chosen("13-14"), [0_usize; 0]);
        assert_eq!(chosen("1-18446744073709551615,5-"), (1..=12).collect::<Vec<_>>());
        for wrong in ["", "0", "0-3", "5-3", "-3", "a", "1-2-3", "1,,2", "1 2"] {
            assert!(PacketNumbers::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_choose_and_move_packets() {
        let at = |time: i64| {
            let mut record = Record::default();
            record.meta.timestamp = Timestamp::from_nanos(time);
            record
        };
        let mut untimed = at(15);
        untimed.meta.is_untimed = true;
        let records = [at(9), at(10), at(19), at(20), untimed];
        let batch = Batch::new(&[], &records);
        let (mut chosen, mut refused) = (Vec::new(), [0]);
        let window = |to| Excerpt::default().between(Timestamp::from_nanos(10), to);
        let mut excerpt = window(Some(Timestamp::from_nanos(20))).shifted(-10);
        excerpt.choose(&batch, &mut chosen, &mut refused).expect("times after 1970");
        let times: Vec<i64> = chosen.iter().map(|record| record.meta.timestamp.as_nanos()).collect();
        assert_eq!((times.as_slice(), refused), (&[0, 9][..], [3]));
        for shift in [-11, i64::MAX] {
            assert!(
                window(None).shifted(shift).choose(&batch, &mut chosen, &mut refused).is_err(),
                "{shift}"
            );
        }
    }
}
