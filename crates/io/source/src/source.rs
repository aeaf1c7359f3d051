//! Sources of packets.

use std::sync::Arc;
use std::time::Duration;

use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Interface, InterfaceId};
use tapline_sys::{Poller, Wakeup};

use crate::{Error, InterfaceAccount, PieceReader, UncapturedCounts};

/// A source of packets: interfaces, files, generators.
///
/// `advance` and `batch` are two calls, so that one source's batch can be read while another source advances:
/// [`advance`](Source::advance) ends the last batch and finds the next one, [`batch`](Source::batch) lends it. The
/// packets stay in place until the next call of `advance`.
pub trait Source: Send {
    /// The interfaces known so far. The table only grows, so that an [`InterfaceId`] stays valid.
    fn interfaces(&self) -> &[Interface];

    /// Ends the last batch and finds the next, waiting for at most `wait` if there is none yet.
    ///
    /// # Errors
    /// Packets before the fault have been lent by then. After an error the source is at its end.
    fn advance(&mut self, wait: Duration) -> Result<Advance, Error>;

    /// The batch that the last `advance` found; empty unless that returned [`Advance::Batch`].
    fn batch(&self) -> Batch<'_>;

    /// Takes no new packets from here on. Those taken before are still lent, then `advance` returns [`Advance::End`].
    fn stop(&mut self) -> Result<(), Error>;

    /// Whether packets of this interface already passed the capture filter (in the kernel, say), so that the filter
    /// need not run again.
    fn is_filtered(&self, _interface: InterfaceId) -> bool {
        false
    }

    /// Narrows the packets to those that this program accepts, which must be among those of the capture filter;
    /// `None` returns to the capture filter. Others may still come: packets that wait already, and those that a
    /// kernel lets through after it refused the program. Returns whether the source can narrow at all.
    ///
    /// # Errors
    /// Some packets that are wanted now may not come.
    fn restrict(&self, _program: Option<&CompiledFilter>) -> Result<bool, Error> {
        Ok(false)
    }

    /// Sets the longest time that a packet may wait to be lent; zero at first. With more, a source may let packets
    /// that have arrived gather instead of waking for few of them, as long as none is lost by that.
    fn set_max_latency(&mut self, _latency: Duration) {}

    /// The fate of packets before they were lent, for each interface; counted since the source was opened.
    /// Sources that read wrapping kernel counters do so in `advance` too, at least once a second.
    fn account(&mut self) -> Vec<InterfaceAccount>;

    /// Failures to capture interfaces that are meant, which are in the [`account`](Source::account) by name. None for
    /// a source that is not live.
    fn uncaptured(&self) -> UncapturedCounts {
        UncapturedCounts::default()
    }

    /// Ticks of the processor's counter ([`tapline_sys::tsc`]) for which `advance` slept while no packets came, in
    /// all; they are not a cost of the packets. Files never sleep.
    fn waited_ticks(&self) -> u64 {
        0
    }

    /// The longest wait in [`advance`](Source::advance) that this source benefits from; `None` if the length makes no
    /// difference. A source whose packets gather until the wait is over saves wake-ups by long waits. Zero is for one
    /// that polls, so that it is asked at every turn next to others.
    fn preferred_wait(&self) -> Option<Duration> {
        None
    }

    /// The handle that ends a wait in [`advance`](Source::advance) at once, from any thread; `None` for a source that
    /// never waits.
    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        None
    }

    /// Adds the events that end a wait in [`advance`](Source::advance) to `poller`, so that a caller can wait for
    /// several sources at once and then call `advance` without a wait. Returns whether that is all; `false` if the
    /// source must wait itself.
    fn wait_on(&self, _poller: &mut Poller) -> bool {
        false
    }

    /// Events since the last call that a user should know of: a link went down, an interface appeared.
    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }

    /// The progress of the reading, if the end is known: bytes read and bytes in all.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Moves the packets into pieces that up to `threads` threads read at once; this source is at its end then. `None`
    /// leaves a source as it is that one thread has to read, as most do.
    fn split(&mut self, _threads: usize) -> Option<Arc<dyn PieceReader>> {
        None
    }
}

/// The result of [`Source::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Packets: [`Source::batch`] lends them.
    Batch,
    /// No packets within the time allowed; ask again.
    Idle,
    /// No packets will come any more.
    End,
}

/// An event that a user should know of while a capture runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The interface of the event; empty if it concerns the whole source.
    pub interface: String,
    /// The event, as a clause: "link went down".
    pub text: String,
    /// Whether packets may be missing because of it.
    pub is_warning: bool,
}
