//! Packets to C: `pcap_loop`, `pcap_dispatch`, `pcap_next`, `pcap_next_ex`, and the end of them, `pcap_breakloop`.
//!
//! ```text
//! deliver:  packets of the batch --filter, sampling--> callback         in place: the pointers are into the file's buffer or the kernel's ring
//!           batch used up --advance--> next batch, maybe empty | end of the file | nothing yet: wait
//!           before each of these: was the loop broken?
//!
//! live:  return what came once there is no more, or PCAP_ERROR_BREAK     file:  return what came at the end, or before a break
//! ```

use std::ffi::{c_int, c_uchar};
use std::ptr;
use std::sync::atomic::Ordering;

use tapline_packet::Packet;

use crate::failure::Failure;
use crate::fetch::{Lent, Wait, advance};
use crate::handle::{Handle, HandleState, Kind, on_handle};
use crate::raw::{ERROR_BREAK, Handler, PacketHeader};
use crate::statistics_mode;
use crate::tally::Tally;

/// `pcap_dispatch(3PCAP)`.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile (`pcap_breakloop` may be called); `callback` may be called
/// with `user`. A process that was forked while a live capture was open has the same ring of packets: after that only
/// one of the two may use the handle; the other may only close it. That holds for all functions on the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dispatch(
    p: *mut Handle,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_handle(p, |handle| dispatch(handle, count, callback, user)) }
}

/// `pcap_loop(3PCAP)`.
///
/// # Safety
/// As for [`pcap_dispatch`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_loop(
    p: *mut Handle,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> c_int {
    let body = |handle: &Handle| {
        let mut left = count;
        loop {
            let done = dispatch(handle, left, callback, user)?;
            if done < 0 || done == 0 && has_end(handle) {
                return Ok(done);
            }
            if count > 0 {
                left -= done;
                if left <= 0 {
                    return Ok(0);
                }
            }
        }
    };
    // SAFETY: as the caller promises.
    unsafe { on_handle(p, body) }
}

/// `pcap_next_ex(3PCAP)`. The packet that it lends is there until the next call.
///
/// # Safety
/// As for [`pcap_dispatch`]; `header` and `data` are places for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next_ex(
    p: *mut Handle,
    header: *mut *mut PacketHeader,
    data: *mut *const c_uchar,
) -> c_int {
    let body = |handle: &Handle| {
        let mut got = None;
        let done = deliver(handle, 1, &mut |lent| got = Some(lent))?;
        let Some(lent) = got else {
            // At the end of a file there is nothing to wait for.
            return Ok(if done == 0 && has_end(handle) { ERROR_BREAK } else { done });
        };
        break_later(handle, done);
        // SAFETY: no other reference to the state is alive; the places are the caller's.
        unsafe {
            let state = handle.state();
            state.header = lent.header;
            *header = &mut state.header;
            *data = lent.data;
        }
        Ok(1)
    };
    // SAFETY: as the caller promises.
    unsafe { on_handle(p, body) }
}

/// `pcap_next(3PCAP)`.
///
/// # Safety
/// As for [`pcap_dispatch`]; `header` is a place for a header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next(p: *mut Handle, header: *mut PacketHeader) -> *const c_uchar {
    let mut data = ptr::null();
    let body = |handle: &Handle| {
        let mut take = |lent: Lent| {
            data = lent.data;
            // SAFETY: the place is the caller's.
            unsafe { *header = lent.header };
        };
        let done = deliver(handle, 1, &mut take)?;
        if !data.is_null() {
            break_later(handle, done);
        }
        Ok(done)
    };
    // SAFETY: as the caller promises.
    unsafe { on_handle(p, body) };
    data
}

/// `pcap_breakloop(3PCAP)`: from any thread, and from signal handlers.
///
/// # Safety
/// `p` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(p: *mut Handle) {
    // SAFETY: as the caller promises; flag and wake-up may be used by any thread.
    let Some(handle) = (unsafe { p.as_ref() }) else { return };
    handle.is_broken.store(true, Ordering::Relaxed);
    if let Some(wakeup) = handle.wakeup.get() {
        wakeup.notify();
    }
}

/// Delays a break when the call has a packet to give: the packet goes first, and the next call reports the break.
fn break_later(handle: &Handle, done: c_int) {
    if done == ERROR_BREAK {
        handle.is_broken.store(true, Ordering::Relaxed);
    }
}

fn dispatch(
    handle: &Handle,
    count: c_int,
    callback: Option<Handler>,
    user: *mut c_uchar,
) -> Result<c_int, Failure> {
    let callback = callback.ok_or_else(|| Failure::error("no callback was given"))?;
    // SAFETY: `on_handle`'s caller promises that the callback may be called so; no reference to the state is alive.
    let mut call = |lent: Lent| unsafe { callback(user, &lent.header, lent.data) };
    let done = deliver(handle, count, &mut call)?;
    // SAFETY: no other reference to the state is alive.
    release(unsafe { handle.state() });
    Ok(done)
}

fn is_file(handle: &Handle) -> bool {
    // SAFETY: no other reference to the state is alive.
    matches!(unsafe { handle.state() }.kind, Kind::File(_))
}

/// Whether a call that found nothing found the end.
fn has_end(handle: &Handle) -> bool {
    // SAFETY: no other reference to the state is alive.
    match &unsafe { handle.state() }.kind {
        Kind::File(_) => true,
        Kind::Live(source) => source.has_ended(),
        _ => false,
    }
}

/// Hands up to `count` packets to `sink`, all that are there if it is not positive. Returns how many, or
/// `PCAP_ERROR_BREAK`.
fn deliver(handle: &Handle, count: c_int, sink: &mut dyn FnMut(Lent)) -> Result<c_int, Failure> {
    // SAFETY: no other reference to the state is alive, here and below; no reference outlives its statement, so that
    // the sink may use the handle.
    unsafe { handle.state() }.check_readable()?;
    // SAFETY: as above.
    if unsafe { handle.state() }.extras.tally.is_some() {
        return statistics_mode::deliver(handle, sink);
    }
    let most = if count <= 0 { c_int::MAX } else { count };
    let is_file = is_file(handle);
    let mut done = 0;
    let mut wait = Wait::default();
    loop {
        if handle.is_broken.load(Ordering::Relaxed) {
            return Ok(broken(handle, is_file, done));
        }
        if done == most {
            return Ok(done);
        }
        // SAFETY: as above.
        if let Some(lent) = next_lent(unsafe { handle.state() })? {
            done += 1;
            sink(lent);
            continue;
        }
        // SAFETY: as above.
        let state = unsafe { handle.state() };
        let goes_on = match advance(state)? {
            // Packets may come without end while none passes the filter: then the timeout ends the call.
            true => state.has_batch() || !wait.is_over(state),
            false => done == 0 && !has_end(handle) && wait.once(handle)?,
        };
        if !goes_on {
            return Ok(done);
        }
    }
}

/// The result of a call that `pcap_breakloop` ended: a file's packets are returned first, and the next call reports the
/// break.
fn broken(handle: &Handle, is_file: bool, done: c_int) -> c_int {
    if is_file && done > 0 {
        return done;
    }
    handle.is_broken.store(false, Ordering::Relaxed);
    ERROR_BREAK
}

impl HandleState {
    /// Checks that packets can be read.
    pub(crate) fn check_readable(&self) -> Result<(), Failure> {
        self.require_active()?;
        match self.kind {
            // Also while the source is with the thread that dumps.
            _ if self.extras.tally.as_ref().is_some_and(Tally::is_in_kernel) => Ok(()),
            _ if self.extras.live_dump.is_some() => {
                Err(Failure::error("Packets go to the file of pcap_live_dump; wait for pcap_live_dump_ended"))
            }
            Kind::Dead => Err(Failure::error("Packets aren't available from a pcap_open_dead pcap_t")),
            _ => Ok(()),
        }
    }

    /// Puts the stream of a file where the program expects it; see [`crate::savefile`].
    pub(crate) fn stop_reading_ahead(&mut self) {
        // Before the first batch is requested, none of its packets was handed out.
        let lent = if self.at == usize::MAX { 0 } else { self.at };
        if let Kind::File(file) = &mut self.kind {
            file.stop_reading_ahead(lent);
        }
    }

    /// Whether the last `advance` brought packets.
    fn has_batch(&self) -> bool {
        match &self.kind {
            Kind::File(file) => !file.batch().is_empty(),
            Kind::Live(source) => !source.batch().is_empty(),
            _ => false,
        }
    }
}

/// The batch's next packet that is wanted.
#[inline]
fn next_lent(state: &mut HandleState) -> Result<Option<Lent>, Failure> {
    let HandleState { kind, at, engine, precision, snap_len, extras, .. } = state;
    let (batch, file) = match kind {
        Kind::File(file) => (file.batch(), Some(&*file)),
        Kind::Live(source) => (source.batch(), None),
        _ => return Ok(None),
    };
    // libpcap cuts packets longer than the snap length: of a file, or with a tag that was put back.
    let batch = batch.cut(*snap_len as u32);
    while *at < batch.len() {
        let index = *at;
        *at += 1;
        let packet = batch.packet(index);
        if let Some(file) = file.filter(|file| file.has_interfaces()) {
            file.check_interface(packet.meta.interface.0)?;
        }
        // Sources of live packets have filtered their batches.
        let accepts = |engine: &mut crate::engine::Engine| file.is_none() || engine.accepts(packet);
        if !engine.as_mut().is_none_or(accepts) || !extras.samples(packet) {
            continue;
        }
        let header = PacketHeader {
            ts: libc::timeval {
                tv_sec: packet.meta.timestamp.seconds(),
                tv_usec: precision.of_nanos(packet.meta.timestamp.subsec_nanos()),
            },
            cap_len: packet.data.len() as u32,
            len: packet.meta.wire_len,
        };
        return Ok(Some(Lent { header, data: packet.data.as_ptr() }));
    }
    Ok(None)
}

impl crate::handle::Extras {
    /// Whether sampling lets a packet through.
    #[inline]
    fn samples(&mut self, packet: Packet<'_>) -> bool {
        match self.sampling.method {
            0 => true,
            _ => self.samples_by_rule(packet),
        }
    }

    fn samples_by_rule(&mut self, packet: Packet<'_>) -> bool {
        let value = i64::from(self.sampling.value.max(0));
        let time_ns = packet.meta.timestamp.as_nanos();
        match self.sampling.method {
            1 if value > 1 => {
                self.sampled += 1;
                self.sampled.is_multiple_of(value as u64)
            }
            2 => {
                let is_due = self.sample_next_ns.is_none_or(|next| time_ns >= next);
                if is_due {
                    self.sample_next_ns = Some(time_ns.saturating_add(value.saturating_mul(1_000_000)));
                }
                is_due
            }
            _ => true,
        }
    }
}

/// Releases the ring's block if its last packet was handed out, so that it does not wake a waiter on the descriptor
/// again.
fn release(state: &mut HandleState) {
    if let Kind::Live(source) = &mut state.kind
        && state.at >= source.batch().len()
    {
        source.release();
        state.at = 0;
    }
}

#[cfg(test)]
mod tests;
