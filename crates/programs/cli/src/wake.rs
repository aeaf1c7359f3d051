//! `--wake PACKETS,TIME`: when a reader is woken.

use std::time::Duration;

use clap::Args;
use tapline_capture::af_packet::AfPacketSettings;
use tapline_syntax::units;
use tapline_tap_client::WakeThreshold;

/// Upper bound of the packets of a wish.
const PACKETS_MAX: u64 = 1_000_000;
/// The longest time: a capture that ends waits for it once.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The longest that packets wait at the daemon, as part of the time.
const AT_DAEMON_MS_MAX: u64 = 50;

/// When a reader is woken, for commands that read packets as they come.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WakeArgs {
    /// Wake the command once this many packets wait, or this long after the first one: 256,20ms. Fewer wake-ups cost
    /// less, and packets are seen later. 1 to 1000000 packets, 1ms to 1s. Default: depends on the outputs. Only for
    /// AF_PACKET interfaces, and captures of tapline serve.
    #[arg(long, value_name = "PACKETS,TIME", value_parser = wish, help_heading = "Input")]
    pub(crate) wake: Option<WakeWish>,
}

/// Packets and time of `--wake`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeWish {
    pub(crate) packets: u32,
    pub(crate) time_ms: u32,
}

impl WakeWish {
    /// Has a source keep to it.
    pub(crate) fn apply(self, settings: &mut AfPacketSettings) {
        settings.min_packets = Some(self.packets);
        settings.latency_ms = self.time_ms;
    }

    /// In terms of a tap: for how many milliseconds packets may wait at the daemon, and when sleep ends then.
    pub(crate) fn at_tap(self) -> (u32, WakeThreshold) {
        let time_ms = u64::from(self.time_ms);
        let at_daemon_ms = (time_ms / 2).min(AT_DAEMON_MS_MAX);
        let threshold = WakeThreshold {
            min_bytes: u64::MAX,
            min_packets: self.packets.into(),
            max_delay: Duration::from_millis(time_ms - at_daemon_ms),
        };
        (at_daemon_ms as u32, threshold)
    }
}

fn wish(text: &str) -> Result<WakeWish, String> {
    let hint = "PACKETS,TIME such as 256,20ms";
    let (packets, time) = text.split_once(',').ok_or_else(|| format!("{hint} is asked for"))?;
    let packets = units::count(packets).map_err(|error| format!("{error}; {hint}"))?;
    let time_ns = units::nanoseconds(time).map_err(|error| format!("{error}; {hint}"))?;
    if !(1..=PACKETS_MAX).contains(&packets) {
        return Err(format!("packets: 1 to {PACKETS_MAX}"));
    }
    let time = Duration::from_nanos(time_ns);
    if time < Duration::from_millis(1) || time > TIME_MAX {
        return Err("time: 1ms to 1s".to_owned());
    }
    Ok(WakeWish { packets: packets as u32, time_ms: time.as_millis() as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_time_have_bounds() {
        assert_eq!(wish("256,20ms"), Ok(WakeWish { packets: 256, time_ms: 20 }));
        assert_eq!(wish("1k,1s"), Ok(WakeWish { packets: 1000, time_ms: 1000 }));
        for (text, why) in
            [("5", "is asked for"), ("0,1ms", "1 to"), ("5,2s", "1ms to 1s"), ("x,1s", "PACKETS")]
        {
            assert!(wish(text).unwrap_err().contains(why), "{text}: {:?}", wish(text));
        }
    }

    #[test]
    fn the_time_is_shared_with_the_daemon() {
        let (at_daemon_ms, threshold) = WakeWish { packets: 64, time_ms: 500 }.at_tap();
        assert_eq!((at_daemon_ms, threshold.min_packets), (50, 64));
        assert_eq!(threshold.max_delay, Duration::from_millis(450));
        assert_eq!(WakeWish { packets: 64, time_ms: 1 }.at_tap().1.max_delay, Duration::from_millis(1));
    }
}
