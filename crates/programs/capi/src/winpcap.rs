//! WinPcap's additions, as functions of this library: buffers, modes, dumps by the library, queues of packets to send,
//! sampling.
//!
//! ```text
//! send queue := (pcap_pkthdr data)*       one behind the other, unpadded, up to the length that was asked for
//! ```

use std::ffi::{c_char, c_int, c_uchar, c_uint};
use std::ptr;
use std::time::{Duration, Instant};

use crate::af_packet::ring_len;
use crate::dump::file_header;
use crate::failure::{Failure, text_at};
use crate::handle::{Handle, HandleState, Kind, on};
use crate::live_dump::{DumpSettings, Limits, LiveDump, Work};
use crate::memory;
use crate::query::statistics;
use crate::raw::{PacketHeader, Sampling, SendQueue, Stat};
use crate::settings::Settings;
use crate::tally::Tally;

/// Bytes of a packet's header in a send queue.
const HEADER_LEN: usize = size_of::<PacketHeader>();
/// `MODE_CAPT`.
const MODE_CAPTURE: c_int = 0;
/// `MODE_STAT`.
const MODE_STATISTICS: c_int = 1;
/// `MODE_STAT | MODE_DUMP`.
const MODE_STATISTICS_AND_DUMP: c_int = 0x11;
/// A wait that sleep may overshoot by is spun.
const SPIN: Duration = Duration::from_micros(200);

/// `pcap_setbuff`: another size of the kernel's buffer, in bytes; packets in it are lost.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile, and after a fork no other process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setbuff(p: *mut Handle, bytes: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        let Ok(wanted @ 1..) = u32::try_from(bytes) else {
            return Err(Failure::error("The size of the buffer must be positive"));
        };
        resize(state, Settings { buffer_len: Some(wanted), ..state.settings.clone() })
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_setmintocopy`: how many bytes wake the reader before the timeout, to the next power of two: the kernel hands
/// packets over by blocks that must hold the longest one, 64 KiB unless the snap length is less. Changing it empties the
/// buffer.
///
/// # Safety
/// As for [`pcap_setbuff`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setmintocopy(p: *mut Handle, bytes: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        let wanted =
            u32::try_from(bytes).map_err(|_| Failure::error("The number of bytes must not be negative"))?;
        resize(state, Settings { wake_len: Some(wanted.max(1)), ..state.settings.clone() })
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// Another buffer, as these settings have it.
fn resize(state: &mut HandleState, settings: Settings) -> Result<c_int, Failure> {
    match &mut state.kind {
        Kind::Created { .. } => {}
        Kind::Live(source) => source.resize(ring_len(&settings), settings.wake_len)?,
        _ => return Err(Failure::error("Only live captures have a buffer in the kernel")),
    }
    state.settings = settings;
    Ok(0)
}

/// `pcap_setmode`: 0 for packets, 1 for counts, 17 for counts and the position of the file while `pcap_live_dump` writes
/// the packets. The kernel
/// counts; where it does not, packets are read and counted here, and there is no mode 17.
///
/// # Safety
/// As for [`pcap_setbuff`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setmode(p: *mut Handle, mode: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        state.require_active()?;
        let Kind::Live(source) = &mut state.kind else {
            return Err(Failure::error("Only live captures have modes"));
        };
        state.extras.tally = match mode {
            MODE_CAPTURE => {
                source.stop_count()?;
                None
            }
            MODE_STATISTICS => {
                Some(source.count_in_kernel(false).map_or_else(|_| Tally::default(), Tally::in_kernel))
            }
            MODE_STATISTICS_AND_DUMP => {
                Some(Tally::beside_dump(source.count_in_kernel(true).map_err(|why| {
                    Failure::error(format!(
                        "Counts with a dump are those of the kernel, which does not count: {why}"
                    ))
                })?))
            }
            _ => {
                return Err(Failure::error(format!(
                    "unknown mode {mode}: 0 captures packets, 1 counts them, 17 counts while pcap_live_dump writes them"
                )));
            }
        };
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_live_dump`: the library writes the packets to a file, up to a number of bytes and of packets; 0 is unlimited.
///
/// # Safety
/// As for [`pcap_setbuff`]; `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_live_dump(
    p: *mut Handle,
    name: *mut c_char,
    bytes_max: c_int,
    packets_max: c_int,
) -> c_int {
    let body = |state: &mut HandleState| {
        state.check_readable()?;
        // SAFETY: as the caller promises.
        let path = unsafe { text_at(name) }
            .ok_or_else(|| Failure::error("A null pointer was supplied as the file name"))?;
        let header = file_header(state)?;
        let limit = |number: c_int| u64::try_from(number).unwrap_or(0);
        let limits = Limits { bytes: limit(bytes_max), packets: limit(packets_max) };
        let source = match std::mem::replace(&mut state.kind, Kind::Dead) {
            Kind::Live(source) => source,
            other => {
                state.kind = other;
                return Err(Failure::error("Only live captures can be dumped by the library"));
            }
        };
        let work = Box::new(Work { source, engine: state.engine.take() });
        let form = DumpSettings { precision: state.precision, snap_len: state.snap_len as u32 };
        match LiveDump::start(&path, &header, form, limits, work) {
            Ok(dump) => {
                state.extras.live_dump = Some(dump);
                Ok(0)
            }
            Err((work, failure)) => {
                (state.kind, state.engine) = (Kind::Live(work.source), work.engine);
                Err(failure)
            }
        }
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_live_dump_ended`: 1 if the dump has ended; with `sync` waits until it has.
///
/// # Safety
/// As for [`pcap_setbuff`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_live_dump_ended(p: *mut Handle, sync: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        let Some(dump) = state.extras.live_dump.take() else {
            return Err(Failure::error("No dump was started with pcap_live_dump"));
        };
        if sync == 0 && !dump.is_ended() {
            state.extras.live_dump = Some(dump);
            return Ok(0);
        }
        let (work, result) = dump
            .join(false)
            .ok_or_else(|| Failure::error("internal error in this libpcap: the dump's thread ended"))?;
        (state.kind, state.engine) = (Kind::Live(work.source), work.engine);
        state.at = usize::MAX;
        result.map(|()| 1)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_stats_ex`: the counters in memory of the handle's, and how many bytes they have.
///
/// # Safety
/// As for [`pcap_setbuff`]; `size` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_stats_ex(p: *mut Handle, size: *mut c_int) -> *mut Stat {
    let mut found = ptr::null_mut();
    let body = |state: &mut HandleState| {
        *state.extras.stat = statistics(state)?;
        found = &raw mut *state.extras.stat;
        // SAFETY: as the caller promises.
        unsafe { *size = size_of::<Stat>() as c_int };
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) };
    found
}

/// `pcap_setsampling`: the program writes its choice of packets there.
///
/// # Safety
/// As for [`pcap_setbuff`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setsampling(p: *mut Handle) -> *mut Sampling {
    let mut place = ptr::null_mut();
    let body = |state: &mut HandleState| {
        place = &raw mut *state.extras.sampling;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) };
    place
}

/// `pcap_sendqueue_alloc`: a queue with room for this many bytes, headers included; null if there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_sendqueue_alloc(bytes: c_uint) -> *mut SendQueue {
    // SAFETY: malloc(3) takes any size.
    unsafe {
        let queue = libc::malloc(size_of::<SendQueue>()).cast::<SendQueue>();
        let buffer = libc::malloc((bytes as usize).max(1)).cast::<c_char>();
        if queue.is_null() || buffer.is_null() {
            memory::free(queue);
            memory::free(buffer);
            return ptr::null_mut();
        }
        queue.write(SendQueue { max_len: bytes, len: 0, buffer });
        queue
    }
}

/// `pcap_sendqueue_destroy`.
///
/// # Safety
/// `queue` is null, or came from `pcap_sendqueue_alloc` and it is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendqueue_destroy(queue: *mut SendQueue) {
    if !queue.is_null() {
        // SAFETY: as the caller promises; both came from malloc(3).
        unsafe {
            memory::free((*queue).buffer);
            memory::free(queue);
        }
    }
}

/// `pcap_sendqueue_queue`: puts a packet into a queue; -1 if there is no room.
///
/// # Safety
/// `queue` came from `pcap_sendqueue_alloc`; `data` has as many bytes as the header says were captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendqueue_queue(
    queue: *mut SendQueue,
    header: *const PacketHeader,
    data: *const c_uchar,
) -> c_int {
    // SAFETY: as the caller promises.
    let (Some(queue), Some(header)) = (unsafe { (queue.as_mut(), header.as_ref()) }) else { return -1 };
    let needed = HEADER_LEN as u64 + u64::from(header.cap_len);
    if data.is_null() || u64::from(queue.len) + needed > u64::from(queue.max_len) {
        return -1;
    }
    // SAFETY: the buffer has `max_len` bytes, and what is put behind `len` fits (checked).
    unsafe {
        let place = queue.buffer.add(queue.len as usize);
        place.cast::<PacketHeader>().write_unaligned(*header);
        ptr::copy_nonoverlapping(data.cast(), place.add(HEADER_LEN), header.cap_len as usize);
    }
    queue.len += needed as u32;
    0
}

/// `pcap_sendqueue_transmit`: sends a queue's packets, with `sync` as far apart as their times are. Returns the bytes
/// of the queue that were sent: fewer than it has if one was refused, and the handle then has the error's text.
///
/// # Safety
/// As for [`pcap_setbuff`]; `queue` came from `pcap_sendqueue_alloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendqueue_transmit(
    p: *mut Handle,
    queue: *mut SendQueue,
    sync: c_int,
) -> c_uint {
    let mut sent = 0;
    let body = |state: &mut HandleState| {
        // SAFETY: as the caller promises; the queue's first `len` bytes were written.
        let bytes = unsafe {
            let Some(queue) = queue.as_ref() else { return Ok(0) };
            std::slice::from_raw_parts(queue.buffer.cast::<u8>(), queue.len.min(queue.max_len) as usize)
        };
        transmit(state, bytes, sync != 0, &mut sent).map(|()| 0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) };
    sent
}

fn transmit(state: &mut HandleState, bytes: &[u8], keeps_gaps: bool, sent: &mut u32) -> Result<(), Failure> {
    let (precision, waits) = (state.precision, !state.is_nonblocking);
    let Kind::Live(source) = &mut state.kind else {
        return Err(Failure::error("Packets can only be sent on a live capture"));
    };
    let start = Instant::now();
    let mut first_ns = None;
    let mut rest = bytes;
    while let Some((header, after)) = split_header(rest) {
        let Some(frame) = after.get(..header.cap_len as usize) else { break };
        if keeps_gaps {
            let time_ns = header
                .ts
                .tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(precision.to_nanos(header.ts.tv_usec));
            let gap_ns = time_ns.saturating_sub(*first_ns.get_or_insert(time_ns));
            wait_until(start + Duration::from_nanos(u64::try_from(gap_ns).unwrap_or(0)));
        }
        source.send(frame, waits)?;
        *sent += (HEADER_LEN + frame.len()) as u32;
        rest = &after[frame.len()..];
    }
    Ok(())
}

fn split_header(bytes: &[u8]) -> Option<(PacketHeader, &[u8])> {
    let (header, after) = bytes.split_at_checked(HEADER_LEN)?;
    // SAFETY: there are as many bytes as a header has, and any bytes are one.
    Some((unsafe { header.as_ptr().cast::<PacketHeader>().read_unaligned() }, after))
}

/// Sleeps, then spins: sleeping alone is late by some fifty microseconds.
fn wait_until(time: Instant) {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        match left {
            Duration::ZERO => return,
            _ if left > SPIN => std::thread::sleep(left - SPIN),
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::query::pcap_close;
    use crate::read::pcap_next_ex;

    /// A source that need not drop its batch for another buffer goes on in it.
    #[test]
    fn another_buffer_gives_no_packet_twice() {
        let p = Fake::of(&[b"abc", b"d"]).into_handle();
        let (mut header, mut data) = (ptr::null_mut(), ptr::null());
        // SAFETY: the test's handle, and places of its own; packets have a byte.
        unsafe {
            for byte in b"abcd" {
                assert_eq!(pcap_next_ex(p, &mut header, &mut data), 1);
                assert_eq!(*data, *byte);
                assert_eq!((pcap_setbuff(p, 1 << 20), pcap_setmintocopy(p, 1 << 16)), (0, 0));
            }
            pcap_close(p);
        }
    }

    #[test]
    fn a_queue_takes_packets_that_fit_and_no_more() {
        let room = 2 * (HEADER_LEN + 10);
        let queue = pcap_sendqueue_alloc(room as u32 + 5);
        let header = PacketHeader { cap_len: 10, len: 10, ..PacketHeader::ZERO };
        let data = [7u8; 10];
        // SAFETY: the queue is open until it is destroyed; the data has 10 bytes.
        unsafe {
            assert_eq!(pcap_sendqueue_queue(queue, &header, data.as_ptr()), 0);
            assert_eq!(pcap_sendqueue_queue(queue, &header, data.as_ptr()), 0);
            assert_eq!(pcap_sendqueue_queue(queue, &header, data.as_ptr()), -1);
            let long = PacketHeader { cap_len: u32::MAX, ..header };
            assert_eq!(pcap_sendqueue_queue(queue, &long, data.as_ptr()), -1);
            assert_eq!((*queue).len as usize, room);
            let bytes = std::slice::from_raw_parts((*queue).buffer.cast::<u8>(), room);
            let (first, after) = split_header(bytes).expect("a header");
            assert_eq!((first.cap_len, &after[..10]), (10, &data[..]));
            pcap_sendqueue_destroy(queue);
        }
    }

    #[test]
    fn a_wait_does_not_end_early() {
        let time = Instant::now() + Duration::from_micros(700);
        wait_until(time);
        assert!(Instant::now() >= time);
    }
}
