//! Capture files as handles: `pcap_open_offline` and its kin, and `pcap_open_dead`.
//!
//! ```text
//! FILE * --Stream--> first bytes: what libpcap refuses, in its words
//!              └───> FileSource: packets in place, 256 at a time; pcap, pcapng, and what libpcap does not read: ERF, gzip, zstd, lz4
//! ```

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::Path;
use std::ptr;

use libc::FILE;
use tapline_store::StoreName;
use tapline_sys::Wakeup;

use crate::failure::{Failure, guard_into, system_text};
use crate::handle::{Handle, HandleState, Kind};
use crate::precision::Precision;
use crate::savefile::{Owner, Savefile};
use crate::settings::Settings;
use crate::stdio;
use crate::stored::{self, Stored};

/// Opens a stream; it is closed with the handle.
///
/// # Safety
/// `file` is an open stream that no other code reads.
unsafe fn open(file: *mut FILE, name: &str, precision: c_uint, owner: Owner) -> Result<*mut Handle, Failure> {
    let precision = precision_of(precision)?;
    // SAFETY: as the caller promises.
    let savefile = unsafe { Savefile::open(file, name, owner) }?;
    let (dlt, dlt_extra, snap_len) = (savefile.dlt(), savefile.dlt_extra(), savefile.snap_len());
    let mut state = HandleState::new(Kind::File(Box::new(savefile)));
    state.dlt = dlt;
    state.dlt_extra = dlt_extra;
    state.snap_len = snap_len;
    state.precision = precision;
    Ok(Handle::boxed(state))
}

/// A stream opened by name; "-" is standard input.
///
/// # Safety
/// `name` is null or ends in a zero byte.
unsafe fn open_named(name: *const c_char, precision: c_uint) -> Result<*mut Handle, Failure> {
    if name.is_null() {
        return Err(Failure::error("A null pointer was supplied as the file name"));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if text == "-" {
        let file = stdio::standard_input();
        if file.is_null() {
            return Err(Failure::error("The standard input is not open"));
        }
        // SAFETY: standard input is open, and the program reads from us now.
        return unsafe { open(file, "stdin", precision, Owner::Library) };
    }
    if let Some(name) = stored::name_of(&text).filter(|_| !Path::new(&text).exists()) {
        return open_store(&name?, &text, precision);
    }
    // SAFETY: the name ends in a zero byte.
    let file = unsafe { stdio::open(name, &CString::from(c"rb")) }
        .map_err(|error| Failure::error(format!("{text}: {}", system_text(&error))))?;
    // SAFETY: the stream is new.
    let opened = unsafe { open(file, &text, precision, Owner::Library) };
    if opened.is_err() {
        // SAFETY: no handle has it.
        unsafe { libc::fclose(file) };
    }
    opened
}

/// A store that was named in place of a file.
fn open_store(name: &StoreName, text: &str, precision: c_uint) -> Result<*mut Handle, Failure> {
    let opened = Stored::open(name, &Settings::default());
    let opened = opened.map_err(|failure| Failure::error(format!("{text}: {}", failure.text)))?;
    let wakeup = Wakeup::new().map_err(|error| Failure::system("Could not open eventfd", &error.source))?;
    let mut state = HandleState::new(Kind::Live(opened.source));
    (state.dlt, state.snap_len) = (opened.dlt, opened.snap_len);
    state.precision = precision_of(precision)?;
    let handle = Handle::boxed(state);
    // SAFETY: the handle is ours until it is returned.
    let _ = unsafe { &*handle }.wakeup.set(wakeup);
    Ok(handle)
}

fn precision_of(number: c_uint) -> Result<Precision, Failure> {
    let precision = c_int::try_from(number).ok().and_then(Precision::from_number);
    precision.ok_or_else(|| Failure::error(format!("unknown time stamp resolution {number}")))
}

/// `pcap_open_offline_with_tstamp_precision(3PCAP)`.
///
/// # Safety
/// As the manual page says: `name` ends in a zero byte, `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_offline_with_tstamp_precision(
    name: *const c_char,
    precision: c_uint,
    errbuf: *mut c_char,
) -> *mut Handle {
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |_| ptr::null_mut(), || open_named(name, precision)) }
}

/// `pcap_open_offline(3PCAP)`.
///
/// # Safety
/// As for [`pcap_open_offline_with_tstamp_precision`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_offline(name: *const c_char, errbuf: *mut c_char) -> *mut Handle {
    // SAFETY: as the caller promises.
    unsafe { pcap_open_offline_with_tstamp_precision(name, 0, errbuf) }
}

/// `pcap_fopen_offline_with_tstamp_precision(3PCAP)`. The stream belongs to the handle if it succeeds.
///
/// # Safety
/// `file` is null or an open stream, `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fopen_offline_with_tstamp_precision(
    file: *mut FILE,
    precision: c_uint,
    errbuf: *mut c_char,
) -> *mut Handle {
    let body = || match file.is_null() {
        true => Err(Failure::error("Null FILE * pointer provided to savefile open routine")),
        // SAFETY: as the caller promises.
        false => unsafe { open(file, "stream", precision, Owner::Program) },
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |_| ptr::null_mut(), body) }
}

/// `pcap_fopen_offline(3PCAP)`.
///
/// # Safety
/// As for [`pcap_fopen_offline_with_tstamp_precision`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fopen_offline(file: *mut FILE, errbuf: *mut c_char) -> *mut Handle {
    // SAFETY: as the caller promises.
    unsafe { pcap_fopen_offline_with_tstamp_precision(file, 0, errbuf) }
}

/// `pcap_open_dead_with_tstamp_precision(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_open_dead_with_tstamp_precision(
    dlt: c_int,
    snap_len: c_int,
    precision: c_uint,
) -> *mut Handle {
    // There is no way to tell of one that is unknown: as libpcap, we take microseconds.
    let known = c_int::try_from(precision).ok().and_then(Precision::from_number);
    let mut state = HandleState::new(Kind::Dead);
    state.dlt = dlt;
    state.snap_len = snap_len;
    state.precision = known.unwrap_or(Precision::Micro);
    Handle::boxed(state)
}

/// `pcap_open_dead(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_open_dead(dlt: c_int, snap_len: c_int) -> *mut Handle {
    pcap_open_dead_with_tstamp_precision(dlt, snap_len, 0)
}
