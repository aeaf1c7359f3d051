//! A running command: its clocks, its title in the meters, its line of counters, its end after a time.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tapline_graph::Control;
use tapline_packet::{ClockReading, Timestamp};

/// The wall clock.
pub(crate) fn clock() -> Timestamp {
    Timestamp::from_nanos(tapline_sys::clock::realtime_ns())
}

/// Both clocks, which the engine reads once a batch.
pub(crate) fn clocks() -> ClockReading {
    ClockReading {
        wall: clock(),
        steady_ns: i64::try_from(tapline_sys::clock::monotonic_ns()).unwrap_or(i64::MAX),
    }
}

/// The title of this process for others: its command line.
pub(crate) fn title() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// One line of live counters on standard error, which is written over.
#[derive(Default)]
pub(crate) struct CounterLine {
    /// The time of the last line by the steady clock, and its packets.
    last: Option<(i64, u64)>,
    is_shown: bool,
}

impl CounterLine {
    /// Packets per second since the last call; 0 at the first.
    pub(crate) fn rate(&mut self, steady_ns: i64, packets: u64) -> u64 {
        let (then, before) = self.last.replace((steady_ns, packets)).unwrap_or((steady_ns, packets));
        let seconds = steady_ns.saturating_sub(then).max(1) as f64 / 1e9;
        (packets.saturating_sub(before) as f64 / seconds) as u64
    }

    /// Shows `counters` behind the share that is done, if the whole is known. Without a terminal each call is a line.
    pub(crate) fn show(&mut self, progress: Option<(u64, u64)>, counters: &str) {
        let share = match progress {
            Some((done, all @ 1..)) => {
                format!("{:3} %  ", (u128::from(done) * 100 / u128::from(all)).min(100))
            }
            _ => String::new(),
        };
        self.is_shown = io::stderr().is_terminal();
        let (start, end) = if self.is_shown { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(io::stderr(), "{start}{share}{counters}{end}");
    }

    /// Wipes the line before something else is printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Stops the command after `duration`.
pub(crate) fn stop_after(duration: Duration, control: Arc<Control>) {
    thread::spawn(move || {
        thread::sleep(duration);
        control.stop();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_since_the_last_line() {
        let mut line = CounterLine::default();
        let calls = [(5, 1000), (5 + 2_000_000_000, 3000), (5 + 2_500_000_000, 3000), (4, 9)];
        assert_eq!(calls.map(|(steady_ns, packets)| line.rate(steady_ns, packets)), [0, 1000, 0, 0]);
    }
}
