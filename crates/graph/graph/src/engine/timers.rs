//! Deadlines of the loop.

use super::Control;

/// Deadlines of the loop, by the clock.
pub(super) struct Timers {
    pub(super) tick: Timer,
    pub(super) counters: Timer,
    reports_seen: u64,
}

impl Timers {
    pub(super) fn starting(now_ns: i64) -> Timers {
        let timer = || Timer { last_ns: now_ns };
        Timers { tick: timer(), counters: timer(), reports_seen: 0 }
    }

    /// Number of reports requested so far, if there are new requests.
    pub(super) fn asked(&mut self, control: &Control) -> Option<u64> {
        let reports = control.reports_requested();
        (std::mem::replace(&mut self.reports_seen, reports) != reports).then_some(reports)
    }
}

pub(super) struct Timer {
    /// In nanoseconds of the steady clock.
    last_ns: i64,
}

impl Timer {
    /// Whether `period` nanoseconds have passed since the last time it was due.
    pub(super) fn due(&mut self, now_ns: i64, period: i64) -> bool {
        let due = now_ns.saturating_sub(self.last_ns) >= period;
        if due {
            self.last_ns = now_ns;
        }
        due
    }
}
