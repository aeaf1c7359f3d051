//! Statistics mode (WinPcap's `MODE_STAT`): counts in place of packets.
//!
//! ```text
//! counts:       in the kernel, by the filter's program; where that cannot be, of the packets read here
//! each timeout: one record, header { time, 16, 16 }, data { packets u64, bytes u64 } since the last one, in this machine's byte order
//! beside a dump: header { time, 24, 24 }, data { packets u64, bytes u64, bytes in the dump's file u64 }
//! ```

use std::ffi::c_int;
use std::time::{Duration, Instant, SystemTime};

use crate::failure::Failure;
use crate::fetch::{Lent, Wait, advance};
use crate::handle::{Handle, HandleState, Kind};
use crate::raw::{ERROR_BREAK, PacketHeader};
use crate::source::{Source, rest};
use crate::tally::Tally;

/// The interval where the program named no timeout, WinPcap's.
const INTERVAL_MS: u64 = 1000;

/// Counts for one interval and hands the record out.
pub(crate) fn deliver(handle: &Handle, sink: &mut dyn FnMut(Lent)) -> Result<c_int, Failure> {
    // SAFETY: `on_handle`'s caller promises that no other reference to the state is alive; the sink is called without a
    // reference to it.
    let timeout_ms = unsafe { handle.state() }.settings.timeout_ms;
    let interval_ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).unwrap_or(INTERVAL_MS);
    let until = Instant::now() + Duration::from_millis(interval_ms);
    let mut wait = Wait::until(until);
    loop {
        if handle.is_broken.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return Ok(ERROR_BREAK);
        }
        // SAFETY: as above.
        let state = unsafe { handle.state() };
        let goes_on = if state.extras.tally.as_ref().is_some_and(Tally::is_in_kernel) {
            rest_once(handle, until)?
        } else if advance(state)? {
            count(state);
            !wait.is_over(state)
        } else {
            wait.once(handle)?
        };
        if !goes_on {
            break;
        }
    }
    // SAFETY: as above.
    let Some(lent) = record(unsafe { handle.state() }) else { return Ok(0) };
    sink(lent);
    Ok(1)
}

/// Waits while the kernel counts. `false` if the time is over, or the handle does not wait.
fn rest_once(handle: &Handle, until: Instant) -> Result<bool, Failure> {
    // SAFETY: as in `deliver`; nothing here calls back.
    let state = unsafe { handle.state() };
    let waits = !state.is_nonblocking && state.settings.timeout_ms >= 0;
    let left = until.saturating_duration_since(Instant::now());
    if !waits || left.is_zero() {
        return Ok(false);
    }
    // While the library dumps packets, its thread has the source.
    let source: Option<&mut dyn Source> = match &mut state.kind {
        Kind::Live(source) => Some(&mut **source),
        _ => None,
    };
    rest(source, handle.wakeup.get(), left)?;
    Ok(true)
}

fn count(state: &mut HandleState) {
    let Kind::Live(source) = &state.kind else { return };
    let Some(tally) = &mut state.extras.tally else { return };
    source.batch().iter().for_each(|packet| tally.add(packet.meta.wire_len));
}

fn record(state: &mut HandleState) -> Option<Lent> {
    let precision = state.precision;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let ts = libc::timeval {
        tv_sec: now.as_secs() as libc::time_t,
        tv_usec: precision.of_nanos(now.subsec_nanos()),
    };
    let tally = state.extras.tally.as_mut()?;
    if let Some(dump) = &state.extras.live_dump {
        tally.set_dumped(dump.position());
    }
    let record = tally.take();
    let len = record.len() as u32;
    Some(Lent { header: PacketHeader { ts, cap_len: len, len }, data: record.as_ptr() })
}
