//! A running command: its clocks, its title in the meters, its end after a time.

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

/// Stops the command after `duration`.
pub(crate) fn stop_after(duration: Duration, control: Arc<Control>) {
    thread::spawn(move || {
        thread::sleep(duration);
        control.stop();
    });
}
