//! Properties of a handle: link types, numbers of its file, descriptors, statistics, modes, sending, and its end.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::ptr;
use std::slice;

use libc::FILE;

use crate::failure::{Failure, guard, guard_into, put, text_at};
use crate::handle::{Handle, HandleState, Kind, ask, on};
use crate::memory::{self, hand_out};
use crate::names::dlt_name;
use crate::raw::{ERROR, ERROR_NOT_ACTIVATED, Stat};

/// `pcap_close(3PCAP)`.
///
/// # Safety
/// `p` is null or an open handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(p: *mut Handle) {
    if p.is_null() {
        return;
    }
    guard((), || {
        // SAFETY: it was boxed by `Handle::boxed`, and this is its end.
        let handle = unsafe { Box::from_raw(p) };
        // SAFETY: no other reference to it is alive.
        let state = unsafe { handle.state() };
        if let Some(dump) = state.extras.live_dump.take() {
            dump.join(true);
        }
        // The stream stays open, and the program may read on behind the last packet.
        if matches!(&state.kind, Kind::File(file) if file.is_standard_input()) {
            state.stop_reading_ahead();
        }
    });
}

/// `pcap_geterr(3PCAP)`.
///
/// # Safety
/// `p` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_geterr(p: *mut Handle) -> *mut c_char {
    // SAFETY: as the caller promises.
    unsafe { p.as_ref() }.map_or(ptr::null_mut(), Handle::error_text)
}

/// `pcap_perror(3PCAP)`.
///
/// # Safety
/// `p` is an open handle; `prefix` is null or ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_perror(p: *mut Handle, prefix: *const c_char) {
    // SAFETY: as the caller promises.
    let (prefix, text) = unsafe { (text_at(prefix), text_at(pcap_geterr(p)).unwrap_or_default()) };
    guard((), || match prefix {
        Some(prefix) => eprintln!("{prefix}: {text}"),
        None => eprintln!("{text}"),
    });
}

/// `pcap_datalink(3PCAP)`.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_datalink(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| state.dlt) }
}

/// `pcap_datalink_ext`: the upper bits of a file's link type.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_datalink_ext(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| state.dlt_extra) }
}

fn dlts(state: &HandleState) -> Vec<c_int> {
    match &state.kind {
        Kind::Live(source) => source.dlts().to_vec(),
        _ => vec![state.dlt],
    }
}

/// `pcap_list_datalinks(3PCAP)`. The list is freed by `pcap_free_datalinks`.
///
/// # Safety
/// As for [`pcap_datalink`]; `list` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_list_datalinks(p: *mut Handle, list: *mut *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        on(p, |state| match state.is_active() {
            true => hand_out(&dlts(state), list),
            false => Err(Failure::code(ERROR_NOT_ACTIVATED)),
        })
    }
}

/// `pcap_free_datalinks(3PCAP)`.
///
/// # Safety
/// `list` came from `pcap_list_datalinks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_free_datalinks(list: *mut c_int) {
    // SAFETY: as the caller promises.
    unsafe { memory::free(list) }
}

/// `pcap_set_datalink(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_datalink(p: *mut Handle, dlt: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        state.require_active().map_err(|failure| Failure::error(failure.text))?;
        if !dlts(state).contains(&dlt) {
            let name = dlt_name(dlt)
                .map_or_else(|| format!("DLT {dlt}"), |name| name.to_string_lossy().into_owned());
            return Err(Failure::error(format!("{name} is not one of the DLTs supported by this device")));
        }
        if let Kind::Live(source) = &mut state.kind {
            source.set_dlt(dlt);
        }
        state.dlt = dlt;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_snapshot(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_snapshot(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| state.snap_len) }
}

/// `pcap_is_swapped(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_is_swapped(p: *mut Handle) -> c_int {
    let is_swapped = |state: &HandleState| matches!(&state.kind, Kind::File(file) if file.is_swapped());
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| c_int::from(is_swapped(state))) }
}

fn version(state: &HandleState) -> (c_int, c_int) {
    match &state.kind {
        Kind::File(file) => file.version(),
        _ => (0, 0),
    }
}

/// `pcap_major_version(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_major_version(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| version(state).0) }
}

/// `pcap_minor_version(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_minor_version(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { ask(p, |state| version(state).1) }
}

/// `pcap_bufsize`: bytes that a packet may have here; libpcap begins with at most 2,048 for a file, and has no buffer
/// where no packets come from.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_bufsize(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        ask(p, |state| match state.kind {
            Kind::Dead => 0,
            Kind::File(_) => state.snap_len.min(2048),
            _ => state.snap_len,
        })
    }
}

/// `pcap_file(3PCAP)`: null if the handle has no file. The stream is positioned behind the last packet, and packets are
/// read from its position, unless the file is packed.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_file(p: *mut Handle) -> *mut FILE {
    // SAFETY: as the caller promises.
    let Some(state) = (unsafe { p.as_ref().map(|handle| handle.state()) }) else { return ptr::null_mut() };
    guard(ptr::null_mut(), || {
        state.stop_reading_ahead();
        match &state.kind {
            Kind::File(file) => file.file(),
            _ => ptr::null_mut(),
        }
    })
}

fn fd(state: &HandleState) -> c_int {
    match &state.kind {
        Kind::File(file) => file.fd(),
        Kind::Live(source) => source.fd(),
        _ => ERROR,
    }
}

/// `pcap_fileno(3PCAP)`: of an interface; files have [`pcap_file`].
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fileno(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on(p, |state| Ok(if matches!(state.kind, Kind::File(_)) { ERROR } else { fd(state) })) }
}

/// `pcap_get_selectable_fd(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_selectable_fd(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on(p, |state| Ok(fd(state))) }
}

/// `pcap_get_required_select_timeout(3PCAP)`: null, as the descriptor signals everything, but for an interface that is
/// down: whether it is gone for good has to be polled.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_required_select_timeout(p: *mut Handle) -> *const libc::timeval {
    static SECOND: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
    // SAFETY: as the caller promises.
    let state = unsafe { p.as_ref().map(|handle| handle.state()) };
    match state.map(|state| &state.kind) {
        Some(Kind::Live(source)) if source.is_dozing() => &SECOND,
        _ => ptr::null(),
    }
}

/// `pcap_stats(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`]; `stat` is a place for the numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_stats(p: *mut Handle, stat: *mut Stat) -> c_int {
    let body = |state: &mut HandleState| {
        let found = statistics(state)?;
        // SAFETY: as the caller promises.
        unsafe { *stat = found };
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// The counters of a live handle.
pub(crate) fn statistics(state: &mut HandleState) -> Result<Stat, Failure> {
    state.require_active()?;
    match &mut state.kind {
        Kind::Live(source) => source.statistics(),
        Kind::File(_) => Err(Failure::error("Statistics aren't available from savefiles")),
        _ if state.extras.live_dump.is_some() => {
            Err(Failure::error("Statistics come once pcap_live_dump_ended says that the dump has ended"))
        }
        _ => Err(Failure::error("Statistics aren't available from a pcap_open_dead pcap_t")),
    }
}

/// `pcap_setdirection(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setdirection(p: *mut Handle, direction: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        if !(0..=2).contains(&direction) {
            return Err(Failure::error("Invalid direction"));
        }
        state.require_active()?;
        match &mut state.kind {
            Kind::Live(source) => source.set_direction(direction).map(|()| 0),
            Kind::File(_) => Err(Failure::error("Setting direction is not supported on savefiles")),
            _ => Err(Failure::error("The packet direction cannot be set on a pcap_open_dead pcap_t")),
        }
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// Runs a body whose errors go to a caller's buffer too.
///
/// # Safety
/// As for [`on`]; `errbuf` is null or has room for 256 bytes.
unsafe fn on_with(
    p: *mut Handle,
    errbuf: *mut c_char,
    body: impl FnOnce(&mut HandleState) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let result = on(p, body);
        if result < 0
            && let Some(handle) = p.as_ref()
        {
            put(errbuf, &text_at(handle.error_text()).unwrap_or_default());
        }
        result
    }
}

/// `pcap_getnonblock(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`]; `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_getnonblock(p: *mut Handle, errbuf: *mut c_char) -> c_int {
    let body = |state: &mut HandleState| match state.kind {
        Kind::Dead => {
            Err(Failure::error("A pcap_open_dead pcap_t does not have a non-blocking mode setting"))
        }
        // The value can be set before activation, but not be read.
        Kind::Created { .. } => state.require_active().map(|()| 0),
        _ => Ok(c_int::from(state.is_nonblocking)),
    };
    // SAFETY: as the caller promises.
    unsafe { on_with(p, errbuf, body) }
}

/// `pcap_setnonblock(3PCAP)`.
///
/// # Safety
/// As for [`pcap_getnonblock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setnonblock(p: *mut Handle, nonblock: c_int, errbuf: *mut c_char) -> c_int {
    let body = |state: &mut HandleState| match state.kind {
        Kind::Dead => {
            Err(Failure::error("A pcap_open_dead pcap_t does not have a non-blocking mode setting"))
        }
        Kind::File(_) => Err(Failure::error("Savefiles cannot be put into non-blocking mode")),
        _ => {
            state.is_nonblocking = nonblock != 0;
            Ok(0)
        }
    };
    // SAFETY: as the caller promises.
    unsafe { on_with(p, errbuf, body) }
}

/// Sends one frame; returns its length.
fn send(state: &mut HandleState, frame: &[u8]) -> Result<c_int, Failure> {
    state.require_active()?;
    let waits = !state.is_nonblocking;
    match &mut state.kind {
        Kind::Live(source) => source.send(frame, waits).map(|sent| sent as c_int),
        Kind::File(_) => Err(Failure::error("Sending packets isn't supported on savefiles")),
        _ => Err(Failure::error("Packets can't be sent on a pcap_open_dead pcap_t")),
    }
}

/// `pcap_inject(3PCAP)`.
///
/// # Safety
/// As for [`pcap_datalink`]; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_inject(p: *mut Handle, data: *const c_void, len: usize) -> c_int {
    let body = |state: &mut HandleState| {
        if len > c_int::MAX as usize {
            return Err(Failure::error(format!("More than {} bytes cannot be injected", c_int::MAX)));
        }
        if len == 0 || data.is_null() {
            return Err(Failure::error("The number of bytes to be injected must not be zero"));
        }
        // SAFETY: as the caller promises.
        send(state, unsafe { slice::from_raw_parts(data.cast(), len) })
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_sendpacket(3PCAP)`.
///
/// # Safety
/// As for [`pcap_inject`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendpacket(p: *mut Handle, data: *const c_uchar, len: c_int) -> c_int {
    let body = |state: &mut HandleState| {
        if len <= 0 || data.is_null() {
            return Err(Failure::error("The number of bytes to be sent must be positive"));
        }
        // SAFETY: as the caller promises.
        send(state, unsafe { slice::from_raw_parts(data, len as usize) }).map(|_| 0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_init(3PCAP)`: 0 for texts in the local encoding, 1 for UTF-8; here the two are one, as names and texts are
/// handed on as they are.
///
/// # Safety
/// `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_init(options: u32, errbuf: *mut c_char) -> c_int {
    use std::sync::atomic::{AtomicI32, Ordering};
    static CHOSEN: AtomicI32 = AtomicI32::new(-1);
    let body = || {
        let wanted = match options {
            0 | 1 => options as i32,
            _ => return Err(Failure::error("Unknown options specified")),
        };
        match CHOSEN.compare_exchange(-1, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Err(chosen) if chosen != wanted => {
                Err(Failure::error("Multiple pcap_init calls with different character encodings"))
            }
            _ => {
                crate::devices::refuse_lookupdev();
                Ok(0)
            }
        }
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |code| code, body) }
}
