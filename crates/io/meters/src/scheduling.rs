//! Processor time and delay of a thread: /proc/thread-self/schedstat.
//!
//! The time stamp counter runs on while another thread has the processor. The kernel's figure for the time that a
//! thread was ready but had to wait shows how much of a measured time was not the thread's cost.

use std::fs;
use std::time::Duration;

use serde::Serialize;

/// The scheduler's counters of one thread, in all or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scheduling {
    /// Time running.
    pub ran: Duration,
    /// Time ready while another thread ran.
    pub delayed: Duration,
}

impl Scheduling {
    /// Scheduling of the calling thread; `None` if the kernel does not report it (`CONFIG_SCHED_INFO`).
    pub fn of_thread() -> Option<Scheduling> {
        parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Scheduling) -> Scheduling {
        Scheduling {
            ran: self.ran.saturating_sub(earlier.ran),
            delayed: self.delayed.saturating_sub(earlier.delayed),
        }
    }
}

/// Nanoseconds run, nanoseconds delayed, time slices.
fn parse(text: &str) -> Option<Scheduling> {
    let mut nanos = text.split_whitespace().map_while(|word| word.parse().ok()).map(Duration::from_nanos);
    Some(Scheduling { ran: nanos.next()?, delayed: nanos.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let now = parse("1723437 25740547 2\n").expect("three numbers");
        assert_eq!((now.ran.as_nanos(), now.delayed.as_nanos()), (1_723_437, 25_740_547));
        assert_eq!(now.since(now), Scheduling::default());
        assert_eq!(parse("1723437"), None);
        assert_eq!(parse(""), None);
    }
}
