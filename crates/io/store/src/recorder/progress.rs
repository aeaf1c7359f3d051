//! Counters and messages of the writing thread, for other threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Totals;
use super::overload::FreeBuffers;

/// State of the thread that others may see.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) written: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Packets in chunks that were given up under overload.
    pub(super) shed: AtomicU64,
    pub(super) free: FreeBuffers,
    pub(super) bytes: AtomicU64,
    pub(super) unpacked: AtomicU64,
    pub(super) index_bytes: AtomicU64,
    pub(super) segments: AtomicU64,
    pub(super) recycled: AtomicU64,
    news: Mutex<Vec<String>>,
}

impl Progress {
    pub(super) fn totals(&self) -> Totals {
        // Relaxed: counters on their own; the last look is after the thread was joined.
        Totals {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            cut: 0,
            overload: [0, self.shed.load(Ordering::Relaxed), 0],
            buffered: 0,
            bytes: self.bytes.load(Ordering::Relaxed),
            unpacked: self.unpacked.load(Ordering::Relaxed),
            index_bytes: self.index_bytes.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            recycled: self.recycled.load(Ordering::Relaxed),
        }
    }

    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports how much compression shortened chunks.
    pub(super) fn tell_packed(&self) {
        let Totals { bytes, unpacked, .. } = self.totals();
        if unpacked > 0 {
            let share = bytes as f64 * 100.0 / unpacked as f64;
            self.tell(format!("{unpacked} bytes of chunks were compressed to {bytes} bytes: {share:.1} %"));
        }
    }

    pub(super) fn tell(&self, text: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
