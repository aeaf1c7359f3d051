//! Writing capture files: `pcap_dump_open` and its kin. A `pcap_dumper_t *` is the `FILE *` itself, as programs expect
//! that mix the two.
//!
//! ```text
//! file = magic u32, 2 u16, 4 u16, 0 u32, 0 u32, snap length u32, link type u32; then for each packet: seconds, fraction, captured, wire u32, data
//! ```
//!
//! In this machine's byte order; microseconds or nanoseconds as the handle has them.

use std::ffi::{CString, c_char, c_int, c_long, c_uchar};
use std::io;
use std::ptr;

use libc::FILE;

use crate::failure::{Failure, guard, system_text, text_at};
use crate::file_header::{FILE_HEADER_LEN, FileHeader, MAGIC_MICRO, MAGIC_NANO, record_header};
use crate::handle::{Handle, HandleState, on};
use crate::raw::{ERROR, PacketHeader};
use crate::stdio;

/// Magic numbers of pcap files that are read only: Kuznetzov's, Navtel's.
const NO_APPEND: [u32; 2] = [0xa1b2_cd34, 0xa12b_3c4d];

/// # Safety
/// `file` is an open stream.
unsafe fn write(file: *mut FILE, bytes: &[u8]) -> bool {
    // SAFETY: pointer and length describe `bytes`; the stream is open.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file) == bytes.len() }
}

/// The file header for the packets of a handle.
pub(crate) fn file_header(state: &HandleState) -> Result<FileHeader, Failure> {
    let link_type = state.link_type().ok_or_else(|| {
        Failure::error(format!("link-layer type {} isn't supported in savefiles", state.dlt))
    })?;
    Ok(FileHeader::new(link_type, state.dlt_extra, state.snap_len, state.precision))
}

/// The header for a handle; errors begin with `name`.
fn header_of(state: &HandleState, name: &str) -> Result<FileHeader, Failure> {
    if !state.is_active() {
        return Err(Failure::error(format!("{name}: not-yet-activated pcap_t passed to pcap_dump_open")));
    }
    file_header(state).map_err(|failure| Failure::error(format!("{name}: {}", failure.text)))
}

/// # Safety
/// `file` is an open stream.
unsafe fn begin(file: *mut FILE, header: &FileHeader, name: &str) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    if unsafe { write(file, &header.bytes()) } {
        return Ok(());
    }
    Err(Failure::error(format!("Can't write to {name}: {}", system_text(&io::Error::last_os_error()))))
}

/// Runs a body that opens a stream; null, and the error's text in the handle, if it fails.
///
/// # Safety
/// As for [`on`].
unsafe fn opening(
    p: *mut Handle,
    body: impl FnOnce(&mut HandleState) -> Result<*mut FILE, Failure>,
) -> *mut FILE {
    let mut opened = ptr::null_mut();
    let body = |state: &mut HandleState| {
        opened = body(state)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) };
    opened
}

/// `pcap_dump_open(3PCAP)`; "-" is standard output.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile; `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_open(p: *mut Handle, name: *const c_char) -> *mut FILE {
    let body = |state: &mut HandleState| {
        // SAFETY: as the caller promises.
        let text = unsafe { text_at(name) }
            .ok_or_else(|| Failure::error("A null pointer was supplied as the file name"))?;
        let header = header_of(state, &text)?;
        let is_standard = text == "-";
        let (file, shown) = match is_standard {
            true => (stdio::standard_output(), "standard output"),
            false => {
                // SAFETY: the name ends in a zero byte.
                let file = unsafe { stdio::open(name, &CString::from(c"wb")) };
                (
                    file.map_err(|error| Failure::error(format!("{text}: {}", system_text(&error))))?,
                    text.as_str(),
                )
            }
        };
        // SAFETY: the stream is open, and new unless it is standard output.
        unsafe { begin(file, &header, shown).inspect_err(|_| close_unless(is_standard, file)) }?;
        Ok(file)
    };
    // SAFETY: as the caller promises.
    unsafe { opening(p, body) }
}

/// # Safety
/// `file` is an open stream that is not used any more.
unsafe fn close_unless(is_standard: bool, file: *mut FILE) {
    if !is_standard {
        // SAFETY: as the caller promises.
        unsafe { libc::fclose(file) };
    }
}

/// `pcap_dump_fopen(3PCAP)`.
///
/// # Safety
/// As for [`pcap_dump_open`]; `file` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_fopen(p: *mut Handle, file: *mut FILE) -> *mut FILE {
    let body = |state: &mut HandleState| {
        let header = header_of(state, "stream")?;
        // SAFETY: as the caller promises.
        unsafe { begin(file, &header, "stream") }?;
        Ok(file)
    };
    // SAFETY: as the caller promises.
    unsafe { opening(p, body) }
}

/// `pcap_dump_open_append(3PCAP)`: appends to a file of the same kind.
///
/// # Safety
/// As for [`pcap_dump_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_open_append(p: *mut Handle, name: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    if unsafe { text_at(name) }.is_some_and(|text| text == "-") {
        // SAFETY: as the caller promises.
        return unsafe { pcap_dump_open(p, name) };
    }
    let body = |state: &mut HandleState| {
        // SAFETY: as the caller promises.
        let text = unsafe { text_at(name) }
            .ok_or_else(|| Failure::error("A null pointer was supplied as the file name"))?;
        let header = header_of(state, &text)?;
        // SAFETY: the name ends in a zero byte.
        let file = unsafe { stdio::open(name, &CString::from(c"ab+")) }
            .map_err(|error| Failure::error(format!("{text}: {}", system_text(&error))))?;
        // SAFETY: the stream is new.
        unsafe { continue_file(file, &header, &text).inspect_err(|_| close_unless(false, file)) }?;
        Ok(file)
    };
    // SAFETY: as the caller promises.
    unsafe { opening(p, body) }
}

/// Checks that a file may go on with packets of this header, or begins it if it is empty.
///
/// # Safety
/// `file` is an open stream.
unsafe fn continue_file(file: *mut FILE, wanted: &FileHeader, name: &str) -> Result<(), Failure> {
    let seek_error = |what: &str| {
        Failure::error(format!(
            "Can't seek to {what} of {name}: {}",
            system_text(&io::Error::last_os_error())
        ))
    };
    // SAFETY: as the caller promises, here and below.
    if unsafe { libc::fseek(file, 0, libc::SEEK_SET) } != 0 {
        return Err(seek_error("the beginning"));
    }
    let mut bytes = [0u8; FILE_HEADER_LEN];
    // SAFETY: pointer and length describe `bytes`.
    let have = unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), file) };
    match have {
        // SAFETY: as above.
        0 => return unsafe { begin(file, wanted, name) },
        FILE_HEADER_LEN => check_same(&bytes, wanted, name)?,
        _ => return Err(Failure::error(format!("{name}: truncated pcap file header"))),
    }
    // SAFETY: as above.
    if unsafe { libc::fseek(file, 0, libc::SEEK_END) } != 0 {
        return Err(seek_error("the end"));
    }
    Ok(())
}

fn check_same(bytes: &[u8; FILE_HEADER_LEN], wanted: &FileHeader, name: &str) -> Result<(), Failure> {
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let refuse = |why: &str| Err(Failure::error(format!("{name}: {why}")));
    let magic = word(0);
    let others = [MAGIC_MICRO, MAGIC_NANO];
    match magic {
        _ if magic == wanted.magic => {}
        _ if others.contains(&magic) => {
            return refuse("different time stamp precision, cannot append to file");
        }
        _ if others.contains(&magic.swap_bytes()) => {
            return refuse("different byte order, cannot append to file");
        }
        _ if [magic, magic.swap_bytes()].iter().any(|magic| NO_APPEND.contains(magic)) => {
            return refuse("not a pcap file to which we can append");
        }
        _ => return refuse("not a pcap file"),
    }
    if word(4) != wanted.version {
        return refuse(&format!("version is {}.{}, cannot append to file", half(4), half(6)));
    }
    if word(20) != wanted.link_field {
        return refuse("different linktype, cannot append to file");
    }
    if word(16) != wanted.snap_len {
        return refuse("different snaplen, cannot append to file");
    }
    Ok(())
}

/// `pcap_dump(3PCAP)`, a `pcap_handler`. Errors show in the stream, as `ferror` and `pcap_dump_flush` say.
///
/// # Safety
/// `user` is a `pcap_dumper_t *`; `data` has as many bytes as the header says were captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump(user: *mut c_uchar, header: *const PacketHeader, data: *const c_uchar) {
    let file = user.cast::<FILE>();
    // SAFETY: as the caller promises.
    unsafe {
        if libc::ferror(file) != 0 {
            return;
        }
        if write(file, &record_header(&*header)) {
            libc::fwrite(data.cast(), (*header).cap_len as usize, 1, file);
        }
    }
}

/// `pcap_dump_file(3PCAP)`.
#[unsafe(no_mangle)]
pub extern "C" fn pcap_dump_file(dumper: *mut FILE) -> *mut FILE {
    dumper
}

/// `pcap_dump_ftell(3PCAP)`.
///
/// # Safety
/// `dumper` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_ftell(dumper: *mut FILE) -> c_long {
    // SAFETY: as the caller promises.
    unsafe { libc::ftell(dumper) }
}

/// `pcap_dump_ftell64(3PCAP)`.
///
/// # Safety
/// `dumper` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_ftell64(dumper: *mut FILE) -> i64 {
    // SAFETY: as the caller promises.
    unsafe { libc::ftello(dumper) }
}

/// `pcap_dump_flush(3PCAP)`.
///
/// # Safety
/// `dumper` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_flush(dumper: *mut FILE) -> c_int {
    // SAFETY: as the caller promises.
    guard(ERROR, || if unsafe { libc::fflush(dumper) } == 0 { 0 } else { ERROR })
}

/// `pcap_dump_close(3PCAP)`.
///
/// # Safety
/// `dumper` is open, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_close(dumper: *mut FILE) {
    // SAFETY: as the caller promises.
    unsafe { libc::fclose(dumper) };
}
