//! The next batch of a handle, and the wait for it.

use std::ffi::c_uchar;
use std::time::{Duration, Instant};

use tapline_packet::Packet;

use crate::failure::Failure;
use crate::handle::{Handle, HandleState, Kind};
use crate::raw::PacketHeader;
use crate::source::sleep;

/// A packet as C gets it, until the next one is requested.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub(crate) header: PacketHeader,
    pub(crate) data: *const c_uchar,
}

/// Gets the next batch, if there is one.
pub(crate) fn advance(state: &mut HandleState) -> Result<bool, Failure> {
    state.at = 0;
    match &mut state.kind {
        Kind::File(file) => file.advance(),
        Kind::Live(source) => {
            let (engine, is_needed) = (&mut state.engine, source.wants_filter());
            let mut keep = |packet: Packet<'_>| {
                !is_needed || engine.as_mut().is_none_or(|engine| engine.accepts(packet))
            };
            source.advance(&mut keep)
        }
        _ => Ok(false),
    }
}

/// A wait for packets, by the handle's timeout.
#[derive(Default)]
pub(crate) struct Wait {
    until: Option<Instant>,
}

impl Wait {
    pub(crate) fn until(time: Instant) -> Wait {
        Wait { until: Some(time) }
    }

    /// Waits until there may be packets. `false` if the time is over, or the handle does not wait.
    pub(crate) fn once(&mut self, handle: &Handle) -> Result<bool, Failure> {
        // SAFETY: no other reference to the state is alive, and nothing here calls back.
        let state = unsafe { handle.state() };
        let waits = !state.is_nonblocking && state.settings.timeout_ms >= 0;
        let left = if waits { self.left(state) } else { Some(Duration::ZERO) };
        let Kind::Live(source) = &mut state.kind else { return Ok(false) };
        if waits && left == Some(Duration::ZERO) {
            return Ok(false);
        }
        // Errors are told also without a wait: until they are taken, the descriptor stays readable.
        sleep(source.as_mut(), handle.wakeup.get(), left)?;
        Ok(waits)
    }

    /// Whether the time is over for which a call may wait without packets.
    pub(crate) fn is_over(&mut self, state: &HandleState) -> bool {
        self.left(state) == Some(Duration::ZERO)
    }

    /// The rest of the time, which begins at the first call; `None` without an end.
    fn left(&mut self, state: &HandleState) -> Option<Duration> {
        let timeout_ms = state.settings.timeout_ms;
        if self.until.is_none() && timeout_ms > 0 {
            self.until = Some(Instant::now() + Duration::from_millis(timeout_ms as u64));
        }
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}
