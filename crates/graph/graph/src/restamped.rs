//! A source whose packets get their times here: when they are looked at, by a clock of the user's choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tapline_meters::{Stamp, StampMode};
use tapline_packet::{Batch, Record};
use tapline_source::{Advance, Error, Source};
use tapline_sys::tsc;

use crate::delegate::delegate_source;

/// A source with other times.
pub struct RestampedSource {
    source: Box<dyn Source>,
    stamp: Stamp,
    records: Vec<Record>,
    ticks: StampTicks,
}

/// Ticks of the processor's counter that stamping took so far.
#[derive(Clone, Debug, Default)]
pub struct StampTicks(Arc<AtomicU64>);

impl StampTicks {
    /// Number of restamped packets.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RestampedSource {
    /// Replaces the times of `source` by those of this mode; the cost is added to `ticks`. In mode `kernel` it is the
    /// source itself.
    pub fn wrap(source: Box<dyn Source>, mode: StampMode, ticks: &StampTicks) -> Box<dyn Source> {
        if mode == StampMode::Kernel {
            return source;
        }
        Box::new(RestampedSource {
            source,
            stamp: Stamp::new(mode),
            records: Vec::new(),
            ticks: ticks.clone(),
        })
    }
}

impl Source for RestampedSource {
    delegate_source!(interfaces stop is_filtered account uncaptured preferred_wait wakeup wait_on waited_ticks events progress);

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        let advance = self.source.advance(wait)?;
        if advance == Advance::Batch {
            let start = tsc::now();
            self.stamp.begin_batch();
            self.records.clear();
            self.records.extend_from_slice(self.source.batch().records());
            for record in &mut self.records {
                record.meta.timestamp = self.stamp.stamp(record.meta.timestamp);
            }
            self.ticks.0.fetch_add(tsc::now().wrapping_sub(start), Ordering::Relaxed);
        }
        Ok(advance)
    }

    fn batch(&self) -> Batch<'_> {
        let own = self.source.batch();
        match own.is_empty() {
            true => own,
            false => Batch::new(own.base(), &self.records).cut(own.snap_len()),
        }
    }
}
