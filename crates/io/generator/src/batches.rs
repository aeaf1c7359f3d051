//! Frames as sources lend them: a batch at a time, in one stretch of memory that is used again.

use tapline_packet::{BATCH_MAX, Batch, InterfaceId, Meta, Record, Timestamp};

use crate::error::Error;
use crate::generator::{Generator, MarkPlace};

/// Frames begin at multiples of this.
const ALIGNMENT: usize = 16;
/// The most memory of a batch, unless one frame is longer.
const BYTES_MAX: usize = 1 << 20;

/// A generator that fills batches.
pub struct Batches {
    generator: Generator,
    base: Vec<u8>,
    records: Vec<Record>,
    /// Stream and place of each packet's mark.
    marks: Vec<(u8, MarkPlace)>,
    /// Departure time of the first packet.
    start: Timestamp,
    /// The generator's error, returned once all packets before it were lent.
    fault: Option<Error>,
}

impl Batches {
    /// Batches whose first packet leaves at `start`.
    pub fn new(generator: Generator, start: Timestamp) -> Batches {
        let frame = generator.frame_max().next_multiple_of(ALIGNMENT);
        let base = vec![0; frame.max((frame * BATCH_MAX).min(BYTES_MAX))];
        Batches {
            generator: generator.starting(start),
            base,
            records: Vec::with_capacity(BATCH_MAX),
            marks: Vec::with_capacity(BATCH_MAX),
            start,
            fault: None,
        }
    }

    /// Sets the time at which the first packet leaves.
    #[must_use]
    pub fn starting(self, start: Timestamp) -> Batches {
        Batches { generator: self.generator.starting(start), start, ..self }
    }

    /// Makes the next batch, in the place of the last one. Whether there is one.
    ///
    /// # Errors
    /// As [`Generator::next_into`], once all packets before it were lent.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.records.clear();
        self.marks.clear();
        if let Some(error) = self.fault.take() {
            return Err(error);
        }
        let frame_max = self.generator.frame_max();
        let mut offset = 0;
        while self.records.len() < BATCH_MAX && self.base.len() - offset >= frame_max {
            match self.generator.next_into(&mut self.base[offset..]) {
                Ok(Some(departure)) => {
                    let meta = Meta {
                        timestamp: self.start.plus_nanos(departure.at_ns as i64),
                        wire_len: departure.len,
                        interface: InterfaceId(0),
                        ..Meta::default()
                    };
                    self.marks.extend(departure.mark.map(|place| (self.records.len() as u8, place)));
                    self.records.push(Record { offset, cap_len: departure.len, options_len: 0, meta });
                    offset += (departure.len as usize).next_multiple_of(ALIGNMENT);
                    if offset > self.base.len() {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) if self.records.is_empty() => return Err(error),
                Err(error) => {
                    self.fault = Some(error);
                    break;
                }
            }
        }
        Ok(!self.records.is_empty())
    }

    /// Sets the marks of the batch to leave now: for senders that do not keep to the times of the recipe.
    pub fn restamp(&mut self, now: Timestamp) {
        for &(index, place) in &self.marks {
            let Record { offset, cap_len, .. } = self.records[usize::from(index)];
            place.restamp(&mut self.base[offset..offset + cap_len as usize], now);
        }
    }

    /// The packets that the last [`advance`](Self::advance) made.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }

    /// The generator.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }
}
