//! Settings between `pcap_create` and `pcap_activate`, and the activation itself.

use std::ffi::{c_char, c_int};
use std::ptr;

use tapline_sys::Wakeup;

use crate::af_packet::{ANY, timestamp_source, timestamp_types};
use crate::device_name;
use crate::failure::{Failure, guard_into, put, text_at};
use crate::handle::{Handle, HandleState, Kind, on, on_handle};
use crate::memory;
use crate::names::status_text;
use crate::precision::Precision;
use crate::raw::*;

/// `pcap_create(3PCAP)`.
///
/// # Safety
/// `device` is null or ends in a zero byte; `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Handle {
    let body = || {
        // SAFETY: as the caller promises.
        let device = unsafe { text_at(device) }.unwrap_or_else(|| ANY.to_owned());
        Ok(Handle::boxed(HandleState::new(Kind::Created { device })))
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |_| ptr::null_mut(), body) }
}

/// Changes a setting of a handle that is not active yet.
///
/// # Safety
/// As for [`on`].
unsafe fn set(p: *mut Handle, change: impl FnOnce(&mut HandleState) -> c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        on(p, |state| match state.is_active() {
            true => Err(Failure::new(ERROR_ACTIVATED, "can't perform  operation on activated capture")),
            false => Ok(change(state)),
        })
    }
}

/// `pcap_set_snaplen(3PCAP)`.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_snaplen(p: *mut Handle, snap_len: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.snap_len = snap_len;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_promisc(3PCAP)`.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_promisc(p: *mut Handle, promiscuous: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.promiscuous = promiscuous != 0;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_rfmon(3PCAP)`: monitor mode, which no device has here, so `pcap_activate` will refuse it.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_rfmon(p: *mut Handle, rfmon: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.rfmon = rfmon != 0;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_can_set_rfmon(3PCAP)`: never.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_can_set_rfmon(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        on(p, |state| match state.kind {
            Kind::Dead => Err(Failure::new(ERROR, "Rfmon mode doesn't apply on a pcap_open_dead pcap_t")),
            _ => Ok(0),
        })
    }
}

/// `pcap_set_timeout(3PCAP)`: milliseconds that packets may wait to come together.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_timeout(p: *mut Handle, timeout_ms: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.timeout_ms = timeout_ms;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_immediate_mode(3PCAP)`.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_immediate_mode(p: *mut Handle, immediate: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.is_immediate = immediate != 0;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_buffer_size(3PCAP)`: bytes; a number that is not positive is ignored.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_buffer_size(p: *mut Handle, bytes: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        if bytes > 0 {
            state.settings.buffer_len = Some(bytes as u32);
        }
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_tstamp_type(3PCAP)`: whose clock.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_tstamp_type(p: *mut Handle, number: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        let Kind::Created { device } = &state.kind else { return ERROR_ACTIVATED };
        match timestamp_types(device).contains(&number) {
            true => {
                state.settings.timestamps = timestamp_source(number);
                0
            }
            false => WARNING_TSTAMP_TYPE_NOTSUP,
        }
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_set_tstamp_precision(3PCAP)`.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_tstamp_precision(p: *mut Handle, number: c_int) -> c_int {
    let change = |state: &mut HandleState| match Precision::from_number(number) {
        Some(precision) => {
            state.precision = precision;
            0
        }
        None => ERROR_TSTAMP_PRECISION_NOTSUP,
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_get_tstamp_precision(3PCAP)`.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_tstamp_precision(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on(p, |state| Ok(c_int::from(state.precision == Precision::Nano))) }
}

/// `pcap_set_protocol_linux(3PCAP)`: the EtherType to receive, 0 for all.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_protocol_linux(p: *mut Handle, protocol: c_int) -> c_int {
    let change = |state: &mut HandleState| {
        state.settings.protocol = protocol as u16;
        0
    };
    // SAFETY: as the caller promises.
    unsafe { set(p, change) }
}

/// `pcap_list_tstamp_types(3PCAP)`. The list is freed by `pcap_free_tstamp_types`.
///
/// # Safety
/// As for [`pcap_set_snaplen`]; `list` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_list_tstamp_types(p: *mut Handle, list: *mut *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        on(p, |state| {
            let types = match &state.kind {
                Kind::Created { device } => timestamp_types(device),
                _ => vec![0],
            };
            memory::hand_out(&types, list)
        })
    }
}

/// `pcap_free_tstamp_types(3PCAP)`.
///
/// # Safety
/// `list` came from `pcap_list_tstamp_types`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_free_tstamp_types(list: *mut c_int) {
    // SAFETY: as the caller promises.
    unsafe { memory::free(list) }
}

/// `pcap_activate(3PCAP)`.
///
/// # Safety
/// As for [`pcap_set_snaplen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(p: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_handle(p, activate) }
}

fn activate(handle: &Handle) -> Result<c_int, Failure> {
    // SAFETY: `on_handle`'s caller promises that no other reference to the state is alive.
    let state = unsafe { handle.state() };
    let Kind::Created { device } = &state.kind else {
        return Err(Failure::new(ERROR_ACTIVATED, "can't perform  operation on activated capture"));
    };
    let opened =
        device_name::open(device, &state.settings).map_err(|failure| match failure.text.is_empty() {
            // A code that says it all has its own words as the text.
            true => Failure { text: status_text(failure.code), ..failure },
            false => failure,
        })?;
    let wakeup = Wakeup::new().map_err(|error| Failure::system("Could not open eventfd", &error.source))?;
    // The cell was empty: a handle is activated once.
    let _ = handle.wakeup.set(wakeup);
    state.kind = Kind::Live(opened.source);
    state.dlt = opened.dlt;
    state.snap_len = opened.snap_len;
    handle.set_error("");
    match opened.warning {
        Some(warning) => Err(warning),
        None => Ok(0),
    }
}

/// `pcap_open_live(3PCAP)`: all of the above in one call.
///
/// # Safety
/// As for [`pcap_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snap_len: c_int,
    promiscuous: c_int,
    timeout_ms: c_int,
    errbuf: *mut c_char,
) -> *mut Handle {
    // SAFETY: as the caller promises; the handle is ours until it is returned.
    unsafe {
        let p = pcap_create(device, errbuf);
        if p.is_null() {
            return p;
        }
        pcap_set_snaplen(p, snap_len);
        pcap_set_promisc(p, promiscuous);
        pcap_set_timeout(p, timeout_ms);
        let status = pcap_activate(p);
        if status >= 0 {
            return p;
        }
        let device = text_at(device).unwrap_or_else(|| ANY.to_owned());
        let text = text_at((*p).error_text()).unwrap_or_default();
        put(errbuf, &open_live_text(&device, status, &text));
        crate::query::pcap_close(p);
        ptr::null_mut()
    }
}

/// The text of `pcap_open_live` for a failed activation.
fn open_live_text(device: &str, status: c_int, text: &str) -> String {
    match status {
        ERROR => format!("{device}: {text}"),
        ERROR_NO_SUCH_DEVICE | ERROR_PERM_DENIED | ERROR_PROMISC_PERM_DENIED => {
            format!("{device}: {} ({text})", status_text(status))
        }
        _ => format!("{device}: {}", status_text(status)),
    }
}
