//! The order in which packets of several interfaces are lent: a block at a time, or by time.
//!
//! ```text
//! tap a:  [10 12 15]         by time: a up to 11, b up to 12, a up to the time before which no packet of c can come
//! tap b:  [11 20]
//! tap c:  no block: nothing earlier than now - latency - hand-over can come
//! ```

use std::time::SystemTime;

use tapline_packet::Timestamp;
use tapline_source::Error;

use super::tap::Tap;
use super::{AfPacket, MergeOrder, Phase, call_error};
use crate::link_state::LinkState;

/// The latest hand-over of a block by the kernel's timer, in packets' time.
const HAND_OVER_NS: i64 = 20_000_000;

impl AfPacket {
    /// The tap to lend from, and until what time.
    pub(super) fn pick(&mut self) -> Result<Option<(usize, Timestamp)>, Error> {
        match self.opener.settings.order {
            MergeOrder::Time if self.taps.len() > 1 => self.pick_by_time(),
            _ => self.pick_in_turn(),
        }
    }

    fn pick_in_turn(&mut self) -> Result<Option<(usize, Timestamp)>, Error> {
        for step in 0..self.taps.len() {
            let index = (self.current + step) % self.taps.len();
            let tap = &mut self.taps[index];
            if tap.refill().map_err(|e| call_error(&tap.name, e))? {
                return Ok(Some((index, Timestamp::from_nanos(i64::MAX))));
            }
        }
        Ok(None)
    }

    fn pick_by_time(&mut self) -> Result<Option<(usize, Timestamp)>, Error> {
        let mut first: Option<(usize, Timestamp)> = None;
        // Before this time nothing more can come from any other tap.
        let mut until = Timestamp::from_nanos(i64::MAX);
        for index in 0..self.taps.len() {
            let tap = &mut self.taps[index];
            if !tap.refill().map_err(|e| call_error(&tap.name, e))? {
                until = until.min(self.horizon(index));
                continue;
            }
            // A block whose packets cannot be read is gone over at once.
            let time = self.taps[index].next_time().unwrap_or(Timestamp::from_nanos(i64::MIN));
            match first {
                Some((_, earliest)) if time >= earliest => until = until.min(time),
                _ => {
                    until = first.map_or(until, |(_, earliest)| until.min(earliest));
                    first = Some((index, time));
                }
            }
        }
        let is_early = first.is_some_and(|(_, earliest)| earliest > until);
        if is_early && self.taps.iter().any(Tap::is_half_full) {
            return self.pick_fullest();
        }
        self.is_holding = is_early;
        Ok(first.filter(|_| !is_early).map(|(index, _)| (index, until)))
    }

    /// A tap whose ring is half full, whatever the time of its packets.
    fn pick_fullest(&mut self) -> Result<Option<(usize, Timestamp)>, Error> {
        self.is_holding = false;
        let full = self.taps.iter().position(Tap::is_half_full);
        Ok(full.map(|index| (index, Timestamp::from_nanos(i64::MAX))))
    }

    /// Up to what time a tap without a block will hand over nothing more.
    fn horizon(&self, index: usize) -> Timestamp {
        let tap = &self.taps[index];
        match self.phase {
            _ if tap.state == LinkState::Gone && tap.is_drained() => Timestamp::from_nanos(i64::MAX),
            Phase::Running => {
                let latency_ns = i64::from(self.opener.settings.latency_ms) * 1_000_000;
                host_time().plus_nanos(-latency_ns - HAND_OVER_NS)
            }
            // Nothing new comes in; what is in flight has a block of its own to come.
            _ if tap.is_drained() => Timestamp::from_nanos(i64::MAX),
            _ => Timestamp::from_nanos(i64::MIN),
        }
    }
}

/// The clock that stamps packets.
fn host_time() -> Timestamp {
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::from_parts(since_epoch.as_secs() as i64, since_epoch.subsec_nanos().into())
}
