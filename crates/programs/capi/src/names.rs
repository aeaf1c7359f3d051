//! Names and texts: of codes, link types, clocks, and of the library itself.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use tapline_packet::LinkType;

use crate::failure::{guard, put, text_at};
use crate::raw::*;

/// The text of `pcap_lib_version`: it begins with the version that programs search for, of the libpcap with this
/// interface.
const VERSION: &CStr = match CStr::from_bytes_with_nul(
    concat!("libpcap version 1.10.3 (Tapline ", env!("CARGO_PKG_VERSION"), ", with TPACKET_V3)\0").as_bytes(),
) {
    Ok(text) => text,
    Err(_) => c"libpcap version 1.10.3",
};

/// The version of the interface, as old programs read it.
#[unsafe(no_mangle)]
pub static pcap_version: [u8; 7] = *b"1.10.3\0";

/// `pcap_lib_version(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_lib_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The text of a code; `pcap_statustostr`.
pub(crate) fn status_text(code: c_int) -> Cow<'static, str> {
    Cow::Borrowed(match code {
        WARNING => "Generic warning",
        WARNING_TSTAMP_TYPE_NOTSUP => "That type of time stamp is not supported by that device",
        WARNING_PROMISC_NOTSUP => "That device doesn't support promiscuous mode",
        ERROR => "Generic error",
        ERROR_BREAK => "Loop terminated by pcap_breakloop",
        ERROR_NOT_ACTIVATED => "The pcap_t has not been activated",
        ERROR_ACTIVATED => "The setting can't be changed after the pcap_t is activated",
        ERROR_NO_SUCH_DEVICE => "No such device exists",
        ERROR_RFMON_NOTSUP => "That device doesn't support monitor mode",
        ERROR_NOT_RFMON => "That operation is supported only in monitor mode",
        ERROR_PERM_DENIED => "You don't have permission to perform this capture on that device",
        ERROR_IFACE_NOT_UP => "That device is not up",
        ERROR_CANTSET_TSTAMP_TYPE => "That device doesn't support setting the time stamp type",
        ERROR_PROMISC_PERM_DENIED => {
            "You don't have permission to capture in promiscuous mode on that device"
        }
        ERROR_TSTAMP_PRECISION_NOTSUP => "That device doesn't support that time stamp precision",
        other => return Cow::Owned(format!("Unknown error: {other}")),
    })
}

/// A text that C may read until the thread's next call.
fn lend(text: &str) -> *mut c_char {
    thread_local! {
        static TEXT: Cell<[c_char; ERRBUF_SIZE]> = const { Cell::new([0; ERRBUF_SIZE]) };
    }
    TEXT.with(|kept| {
        let kept = kept.as_ptr().cast::<c_char>();
        // SAFETY: the buffer has that room, and belongs to this thread.
        unsafe { put(kept, text) };
        kept
    })
}

/// `pcap_statustostr(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_statustostr(code: c_int) -> *const c_char {
    guard(ptr::null(), || lend(&status_text(code)).cast_const())
}

/// `pcap_strerror(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_strerror(errno: c_int) -> *const c_char {
    // SAFETY: strerror(3) takes any number.
    unsafe { libc::strerror(errno) }
}

/// A link type for C.
struct Dlt {
    number: c_int,
    name: CString,
    description: CString,
}

/// All link types that have a name, by libpcap's number.
fn table() -> &'static [Dlt] {
    static TABLE: OnceLock<Vec<Dlt>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let c = |text: &str| CString::new(text).unwrap_or_default();
        let entry = |link_type: LinkType| {
            Some(Dlt {
                number: c_int::from(link_type.dlt()),
                name: c(link_type.name()?),
                description: c(link_type.description()?),
            })
        };
        let mut table: Vec<Dlt> = LinkType::all().filter_map(entry).collect();
        table.sort_by_key(|dlt| dlt.number);
        table
    })
}

fn find(number: c_int) -> Option<&'static Dlt> {
    let table = table();
    table.binary_search_by_key(&number, |dlt| dlt.number).ok().map(|place| &table[place])
}

/// The name of a link type.
pub(crate) fn dlt_name(number: c_int) -> Option<&'static CStr> {
    find(number).map(|dlt| dlt.name.as_c_str())
}

/// `pcap_datalink_val_to_name(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_datalink_val_to_name(number: c_int) -> *const c_char {
    guard(ptr::null(), || find(number).map_or(ptr::null(), |dlt| dlt.name.as_ptr()))
}

/// `pcap_datalink_val_to_description(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_datalink_val_to_description(number: c_int) -> *const c_char {
    guard(ptr::null(), || find(number).map_or(ptr::null(), |dlt| dlt.description.as_ptr()))
}

/// `pcap_datalink_val_to_description_or_dlt(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_datalink_val_to_description_or_dlt(number: c_int) -> *const c_char {
    guard(ptr::null(), || {
        find(number)
            .map_or_else(|| lend(&format!("DLT {number}")).cast_const(), |dlt| dlt.description.as_ptr())
    })
}

/// `pcap_datalink_name_to_val(3PCAP)`: -1 for no name of ours.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_datalink_name_to_val(name: *const c_char) -> c_int {
    guard(ERROR, || {
        // SAFETY: as the caller promises.
        let Some(name) = (unsafe { text_at(name) }) else { return ERROR };
        let is_it = |dlt: &&Dlt| dlt.name.to_bytes().eq_ignore_ascii_case(name.as_bytes());
        table().iter().find(is_it).map_or(ERROR, |dlt| dlt.number)
    })
}

/// Clocks: number, name, description.
const CLOCKS: [(&CStr, &CStr); 6] = [
    (c"host", c"Host"),
    (c"host_lowprec", c"Host, low precision"),
    (c"host_hiprec", c"Host, high precision"),
    (c"adapter", c"Adapter"),
    (c"adapter_unsynced", c"Adapter, not synced with system time"),
    (c"host_hiprec_unsynced", c"Host, high precision, not synced with system time"),
];

fn clock(number: c_int) -> Option<&'static (&'static CStr, &'static CStr)> {
    CLOCKS.get(usize::try_from(number).ok()?)
}

/// `pcap_tstamp_type_val_to_name(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_tstamp_type_val_to_name(number: c_int) -> *const c_char {
    clock(number).map_or(ptr::null(), |clock| clock.0.as_ptr())
}

/// `pcap_tstamp_type_val_to_description(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_tstamp_type_val_to_description(number: c_int) -> *const c_char {
    clock(number).map_or(ptr::null(), |clock| clock.1.as_ptr())
}

/// `pcap_tstamp_type_name_to_val(3PCAP)`.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int {
    guard(ERROR, || {
        // SAFETY: as the caller promises.
        let Some(name) = (unsafe { text_at(name) }) else { return ERROR };
        let is_it = |clock: &(&CStr, &CStr)| clock.0.to_bytes().eq_ignore_ascii_case(name.as_bytes());
        CLOCKS.iter().position(is_it).map_or(ERROR, |number| number as c_int)
    })
}
