//! The clocks of live interfaces, as stages go by them.
//!
//! ```text
//!          wall - 1 s                   wall                   wall + 1 s
//!   all packets have come | on their way | the adapter is ahead | time stamps that are wrong
//!
//! wall - steady clock: as before but for nanoseconds, or the wall clock was set
//! ```

use tapline_packet::ClockReading;

/// Time that packets of a live interface may take to reach us: time without packets stays so far behind.
pub(crate) const ON_THEIR_WAY_NS: i64 = 1_000_000_000;
/// Time by which their clock may be ahead of ours: a time further ahead is wrong, and would stop all timers until
/// then.
pub(crate) const AHEAD_NS: i64 = 1_000_000_000;
/// The least step back that is noticed; with a lesser one timers only last that much longer.
const STEP_BACK_NS: i64 = 1_000_000_000;

/// Notices that the wall clock was set back: packets bear its time, and no timer would end before it has come there
/// again.
#[derive(Debug, Default)]
pub(crate) struct LiveClock {
    /// The wall clock less the steady one, when the clocks were last looked at.
    offset_ns: Option<i64>,
}

impl LiveClock {
    /// By how many nanoseconds the wall clock was set back since the clocks were last looked at, if it was.
    pub(crate) fn step_back(&mut self, clocks: ClockReading) -> Option<i64> {
        let offset_ns = clocks.wall.as_nanos().saturating_sub(clocks.steady_ns);
        let before = self.offset_ns.replace(offset_ns)?;
        let step_ns = before.saturating_sub(offset_ns);
        (step_ns >= STEP_BACK_NS).then_some(step_ns)
    }
}
