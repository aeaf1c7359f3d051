//! Capture files as handles: `pcap_open_offline` and its kin, and `pcap_open_dead`.
//!
//! ```text
//! FILE * --Stream--> first bytes: what libpcap refuses, in its words
//!              └───> FileSource: packets in place, 256 at a time; pcap, pcapng, and what libpcap does not read: ERF, gzip, zstd, lz4
//! ```
//!
//! # The position of the stream
//! libpcap's `FILE *` stands behind the file header (of pcapng: behind the first interface), then behind each packet,
//! and the next packet is read from where it stands. Programs see and set that position with ftell(3) and fseek(3), of
//! which we do not learn. So:
//!
//! ```text
//! pcap_open_offline   header ──pcap_file─────> packet by packet <─────────── fseek(3) to libpcap's position
//!                            └─first packet──> read ahead ──pcap_file──> a file ┘
//!                                                                   └──> a pipe: read ahead still, as nothing can be given back
//! pcap_fopen_offline  packet by packet: the caller has the stream
//! what is packed      read ahead: no byte of it is the beginning of a packet
//! ```

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::io::{self, Read};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::FILE;
use tapline_file::{Error, FileSource, Reading};
use tapline_packet::{Batch, LinkType};
use tapline_store::StoreName;
use tapline_sys::Wakeup;

use crate::failure::{Failure, guard_into, system_text};
use crate::handle::{Handle, Kind, Precision, State};
use crate::settings::Settings;
use crate::stdio::{self, Stream};
use crate::stored::{self, Stored};

const MAGIC_LEN: usize = 4;
const FILE_HEADER_LEN: usize = 24;
/// The first bytes of a pcapng file.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// What stands in a pcapng section header, in the section's byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const RECORD_HEADER_LEN: u64 = 16;
/// A block's type and length.
const BLOCK_START_LEN: u64 = 8;
/// The same of a section header block, with the byte-order magic.
const SECTION_START_LEN: u64 = 12;

/// Magic numbers of the pcap files that libpcap knows: standard, nanoseconds, Kuznetzov's, Navtel's.
const MAGICS: [u32; 4] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34, 0xa12b_3c4d];

/// A capture file that is open.
pub(crate) struct Savefile {
    // Before the stream that it reads: fields are dropped in their order.
    source: FileSource,
    stream: Owned,
    /// Packets of another link type end the file, as no filter fits both.
    link_type: LinkType,
    snap_len: u32,
    is_swapped: bool,
    version: (c_int, c_int),
    /// Where the stream stood when it was opened; none where it has no positions.
    start: Option<u64>,
    reading: Reading,
    /// Whether the first packet begins to read ahead.
    may_read_ahead: bool,
    waits_for_all: Arc<AtomicBool>,
}

impl Savefile {
    /// Gives the last batch back and gets the next; `false` is the end.
    pub(crate) fn advance(&mut self) -> Result<bool, Failure> {
        if std::mem::take(&mut self.may_read_ahead) {
            self.reading = Reading::Ahead;
            self.waits_for_all.store(false, Ordering::Relaxed);
            self.source.read_ahead();
        }
        self.source.advance().map_err(|mut error| {
            self.correct_place(&mut error);
            failure(&error, self.source.format_name(), self.snap_len)
        })
    }

    /// The program may have moved the stream, of which the source does not know.
    fn correct_place(&self, error: &mut Error) {
        let (Reading::ByPacket, Some(start)) = (self.reading, self.start) else { return };
        let Some(position) = stdio::position(self.stream.0) else { return };
        let moved = position.wrapping_sub(start + self.source.read_offset());
        match error {
            Error::Corrupt { place, .. } => place.offset = place.offset.wrapping_add(moved),
            Error::Truncated { place, item_offset, .. } => {
                place.offset = place.offset.wrapping_add(moved);
                *item_offset = item_offset.wrapping_add(moved);
            }
            _ => {}
        }
    }

    /// Puts the stream where libpcap's would stand after `lent` packets of the batch, and goes on by packet from there,
    /// wherever it then stands. Does nothing where the stream has that position already, and where it has none.
    pub(crate) fn stop_reading_ahead(&mut self, lent: usize) {
        self.may_read_ahead = false;
        let (Reading::Ahead, Some(start), None) = (self.reading, self.start, self.source.compression())
        else {
            return;
        };
        if stdio::set_position(self.stream.0, start + self.source.batch_offset()) {
            self.reading = Reading::ByPacket;
            self.waits_for_all.store(true, Ordering::Relaxed);
            self.source.stop_reading_ahead(lent);
        }
    }

    pub(crate) fn is_standard_input(&self) -> bool {
        self.stream.0 == stdio::standard_input()
    }

    #[inline]
    pub(crate) fn batch(&self) -> Batch<'_> {
        self.source.batch()
    }

    /// Whether a packet of this interface has the file's link type.
    pub(crate) fn check_interface(&self, interface: u32) -> Result<(), Failure> {
        let link_type =
            self.source.interfaces().get(interface as usize).map_or(self.link_type, |found| found.link_type);
        if link_type == self.link_type {
            return Ok(());
        }
        Err(Failure::error(format!(
            "an interface has a type {} different from the type of the first interface",
            link_type.dlt()
        )))
    }

    /// Whether there is more than one interface to tell apart.
    #[inline]
    pub(crate) fn has_interfaces(&self) -> bool {
        self.source.interfaces().len() > 1
    }

    pub(crate) fn file(&self) -> *mut FILE {
        self.stream.0
    }

    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the stream is open as long as this value.
        unsafe { libc::fileno(self.stream.0) }
    }

    pub(crate) fn is_swapped(&self) -> bool {
        self.is_swapped
    }

    pub(crate) fn version(&self) -> (c_int, c_int) {
        self.version
    }
}

/// A stream that is closed with its handle, but for standard input.
struct Owned(*mut FILE);

impl Drop for Owned {
    fn drop(&mut self) {
        if self.0 != stdio::standard_input() {
            // SAFETY: the stream is open, and it is ours: libpcap's functions that take one take it for good.
            unsafe { libc::fclose(self.0) };
        }
    }
}

/// The side that opened a stream: the program that did may move it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Library,
    Program,
}

/// Whether a file that begins so is a pcap or pcapng file as libpcap knows them.
fn is_plain(read: &[u8]) -> bool {
    let magic = number(read, 0);
    MAGICS.contains(&magic) || MAGICS.contains(&magic.swap_bytes()) || magic.to_ne_bytes() == SECTION
}

/// What a file's first bytes say that the reader of packets does not tell.
#[derive(Debug, PartialEq, Eq)]
struct Beginning {
    is_swapped: bool,
    version: (c_int, c_int),
    dlt_extra: c_int,
}

/// Looks at the beginning of a file as libpcap does, and refuses what it refuses in the same words. `read` is put back by the caller.
fn beginning(stream: &mut dyn Read, read: &mut Vec<u8>) -> Result<Beginning, Failure> {
    fill(stream, read, MAGIC_LEN)?;
    let magic = number(read, 0);
    let is_swapped = MAGICS.contains(&magic.swap_bytes());
    if !MAGICS.contains(&magic) && !is_swapped {
        return Ok(Beginning {
            is_swapped: is_swapped_section(stream, read)?,
            version: (1, 0),
            dlt_extra: 0,
        });
    }
    fill(stream, read, FILE_HEADER_LEN)?;
    let word = |at| if is_swapped { number(read, at).swap_bytes() } else { number(read, at) };
    let half = |at| {
        let half = u16::from_ne_bytes([read[at], read[at + 1]]);
        c_int::from(if is_swapped { half.swap_bytes() } else { half })
    };
    let version = (half(4), half(6));
    if version.0 < 2 {
        return Err(Failure::error("archaic pcap savefile format"));
    }
    if !matches!(version, (2, 0..=4) | (543, 0)) {
        return Err(Failure::error(format!("unsupported pcap savefile version {}.{}", version.0, version.1)));
    }
    // The FCS length and the bit that says that it is there.
    let dlt_extra = (word(20) & 0xfc00_0000) as c_int;
    Ok(Beginning { is_swapped, version, dlt_extra })
}

/// A number in this machine's byte order.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether a pcapng file begins with a section of the other byte order.
fn is_swapped_section(stream: &mut dyn Read, read: &mut Vec<u8>) -> Result<bool, Failure> {
    if read[..MAGIC_LEN] != SECTION {
        return Ok(false);
    }
    // libpcap takes what ends before its byte-order magic for no capture at all.
    fill(stream, read, SECTION_START_LEN as usize).map_err(|_| Failure::error("unknown file format"))?;
    match number(read, 8) {
        BYTE_ORDER_MAGIC => Ok(false),
        magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => Ok(true),
        _ => Err(Failure::error("unknown file format")),
    }
}

/// Reads until `len` bytes are there. libpcap reads the magic number by itself: it does not count in what it then got.
fn fill(stream: &mut dyn Read, read: &mut Vec<u8>, len: usize) -> Result<(), Failure> {
    let apart = if len > MAGIC_LEN { MAGIC_LEN } else { 0 };
    while read.len() < len {
        let mut bytes = [0; FILE_HEADER_LEN];
        match stream.read(&mut bytes[..len - read.len()]) {
            Ok(0) => {
                let got = read.len() - apart.min(read.len());
                return Err(Failure::error(format!(
                    "truncated dump file; tried to read {len} file header bytes, only got {got}"
                )));
            }
            Ok(len) => read.extend_from_slice(&bytes[..len]),
            Err(error) => return Err(Failure::system("error reading dump file", &error)),
        }
    }
    Ok(())
}

/// libpcap's words for what is wrong with a file, where it has any.
fn failure(error: &Error, format: &str, snap_len: u32) -> Failure {
    let text = match error {
        Error::Read { source, .. } | Error::Open { source, .. } => {
            format!("error reading dump file: {}", system_text(source))
        }
        Error::NotACapture { .. } => "unknown file format".to_owned(),
        Error::Empty { .. } => {
            "truncated dump file; tried to read 4 file header bytes, only got 0".to_owned()
        }
        Error::Truncated { place, item, item_offset, missing, .. } => {
            let have = place.offset.saturating_sub(*item_offset);
            // libpcap reads a block's type and length, of the first one the byte-order magic too, then the rest.
            let begun = if *item_offset == 0 { SECTION_START_LEN } else { BLOCK_START_LEN };
            truncated(format, item, have, *missing, begun, snap_len)
        }
        Error::Corrupt { cap_len: Some(cap_len), .. } => {
            format!("invalid packet capture length {cap_len}, bigger than snaplen of {snap_len}")
        }
        Error::Unsupported { libpcap, .. } => libpcap.clone(),
        other => other.to_string(),
    };
    Failure::error(text)
}

fn truncated(format: &str, item: &str, have: u64, missing: u64, begun: u64, snap_len: u32) -> String {
    let len = have + missing;
    match (format, item) {
        ("pcap", "packet header") => {
            format!("truncated dump file; tried to read {len} header bytes, only got {have}")
        }
        ("pcap", "packet") => {
            let (cap_len, got) = (len - RECORD_HEADER_LEN.min(len), have - RECORD_HEADER_LEN.min(have));
            // What is longer than the file's snap length is read up to there, then the rest to be passed over.
            let tried = if got < u64::from(snap_len) { cap_len.min(snap_len.into()) } else { cap_len };
            format!("truncated dump file; tried to read {tried} captured bytes, only got {got}")
        }
        ("pcapng", _) if have < begun => {
            format!("truncated pcapng dump file; tried to read {begun} bytes, only got {have}")
        }
        ("pcapng", _) => {
            let (tried, got) = (len - begun.min(len), have - begun);
            format!("truncated pcapng dump file; tried to read {tried} bytes, only got {got}")
        }
        _ => format!("truncated dump file; tried to read {len} bytes, only got {have}"),
    }
}

/// Opens a stream; it is closed with the handle.
///
/// # Safety
/// `file` is an open stream that nobody else reads.
unsafe fn open(file: *mut FILE, name: &str, precision: c_uint, owner: Owner) -> Result<*mut Handle, Failure> {
    let precision = precision_of(precision)?;
    // SAFETY: as the caller promises; the savefile drops its source before it closes the stream.
    let mut stream = unsafe { Stream::new(file) };
    let start = stdio::position(file);
    let waits_for_all = stream.waits_for_all();
    let mut read = Vec::new();
    waits_for_all.store(true, Ordering::Relaxed);
    let beginning = beginning(&mut stream, &mut read)?;
    let reading = if is_plain(&read) { Reading::ByPacket } else { Reading::Ahead };
    waits_for_all.store(reading == Reading::ByPacket, Ordering::Relaxed);
    let read_len = read.len() as u64;
    let reader = Box::new(io::Cursor::new(read).chain(stream));
    let source = FileSource::packets_from_reader(reader, name, reading).map_err(|error| {
        if let (Error::NotACapture { .. }, Some(start)) = (&error, start) {
            // Where libpcap leaves what it does not know, for the next one who looks at it.
            stdio::set_position(file, start + read_len);
        }
        // The reader does not say the format of what it could not open; the magic number has.
        failure(&error, if beginning.version.0 == 1 { "pcapng" } else { "pcap" }, u32::MAX)
    })?;
    let beginning = match source.compression() {
        // What was looked at was the packing.
        Some(_) => self::beginning(&mut source.head(), &mut Vec::new())?,
        None => beginning,
    };
    let first = source.interfaces().first();
    if first.is_none() {
        return Err(Failure::error("the capture file has no Interface Description Blocks"));
    }
    let link_type = first.map_or(LinkType::ETHERNET, |interface| interface.link_type);
    let snap_len = first.map_or(0, |interface| interface.snap_len);
    let version = if source.format_name() == "pcapng" { (1, 0) } else { beginning.version };
    let is_swapped = beginning.is_swapped;
    let snap_len = adjusted_snap_len(snap_len, link_type);
    let stream = Owned(file);
    let snap_len_u32 = snap_len as u32;
    let mut savefile = Savefile {
        source,
        stream,
        link_type,
        snap_len: snap_len_u32,
        is_swapped,
        version,
        start,
        reading,
        may_read_ahead: reading == Reading::ByPacket,
        waits_for_all,
    };
    if owner == Owner::Program {
        savefile.stop_reading_ahead(0);
    }
    let mut state = State::new(Kind::File(Box::new(savefile)));
    state.dlt = c_int::from(link_type.dlt());
    state.dlt_extra = beginning.dlt_extra;
    state.snap_len = snap_len;
    state.precision = precision;
    Ok(Handle::boxed(state))
}

/// A snap length of 0, or one that fits no `int`, means as much as the link type may have.
fn adjusted_snap_len(snap_len: u32, link_type: LinkType) -> c_int {
    match c_int::try_from(snap_len) {
        Ok(len) if len > 0 => len,
        _ => link_type.snap_len_max() as c_int,
    }
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
    let mut state = State::new(Kind::Live(opened.source));
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
    let mut state = State::new(Kind::Dead);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let mut read = Vec::new();
        beginning(&mut io::Cursor::new(bytes.to_vec()), &mut read).expect_err("refused").text.into_owned()
    }

    fn header(major: u16, minor: u16) -> Vec<u8> {
        let mut header = 0xa1b2_c3d4u32.to_ne_bytes().to_vec();
        header.extend([major.to_ne_bytes(), minor.to_ne_bytes()].concat());
        header.extend([0; 16]);
        header
    }

    #[test]
    fn beginnings_are_refused_in_libpcaps_words() {
        let short = "truncated dump file; tried to read";
        assert_eq!(refusal(b""), format!("{short} 4 file header bytes, only got 0"));
        assert_eq!(refusal(b"abc"), format!("{short} 4 file header bytes, only got 3"));
        assert_eq!(refusal(&header(2, 4)[..20]), format!("{short} 24 file header bytes, only got 16"));
        assert_eq!(refusal(&header(1, 9)), "archaic pcap savefile format");
        assert_eq!(refusal(&header(2, 5)), "unsupported pcap savefile version 2.5");
    }

    #[test]
    fn what_is_not_read_is_refused_in_libpcaps_words() {
        let refusal = |bytes: Vec<u8>| {
            let opened = FileSource::from_reader(Box::new(io::Cursor::new(bytes)), "test");
            failure(&opened.err().expect("refused"), "pcap", 0).text.into_owned()
        };
        let mut reserved = header(2, 4);
        reserved[20..24].copy_from_slice(&0x0030_0001u32.to_ne_bytes());
        assert_eq!(refusal(reserved), "savefile linktype reserved bits set (0x00300000)");
        assert_eq!(refusal(header(2, 5)), "unsupported pcap savefile version 2.5");
        let mut section = [0x0a0d_0d0au32, 28, BYTE_ORDER_MAGIC, 1 << 16, u32::MAX, u32::MAX, 28];
        if cfg!(target_endian = "big") {
            section[3] = 1;
        }
        let section = section.map(u32::to_ne_bytes).concat();
        assert_eq!(refusal(section), "unsupported pcapng savefile version 0.1");
    }

    /// Who reads the stream is gone before it is closed.
    #[test]
    #[cfg(target_env = "gnu")]
    fn the_source_goes_before_its_stream() {
        use std::ffi::c_void;
        use std::sync::Mutex;

        type Log = Mutex<Vec<&'static str>>;

        /// `cookie_io_functions_t` of stdio.h, of which only the last is set.
        #[repr(C)]
        struct Functions([*const c_void; 3], extern "C" fn(*mut c_void) -> c_int);

        unsafe extern "C" {
            fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
        }

        extern "C" fn close(log: *mut c_void) -> c_int {
            // SAFETY: the test's log, which outlives the stream.
            unsafe { &*log.cast::<Log>() }.lock().expect("a log").push("stream");
            0
        }

        struct Reader(io::Cursor<Vec<u8>>, &'static Log);

        impl Read for Reader {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.read(buffer)
            }
        }

        impl Drop for Reader {
            fn drop(&mut self) {
                self.1.lock().expect("a log").push("source");
            }
        }

        static LOG: Log = Mutex::new(Vec::new());
        let functions = Functions([ptr::null(); 3], close);
        // SAFETY: functions that are null or take a cookie; the mode ends in a zero byte.
        let file = unsafe { fopencookie((&raw const LOG).cast_mut().cast(), c"r".as_ptr(), functions) };
        let reader = Box::new(Reader(io::Cursor::new(header(2, 4)), &LOG));
        let source = FileSource::from_reader(reader, "test").expect("a header");
        drop(Savefile {
            source,
            stream: Owned(file),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            is_swapped: false,
            version: (2, 4),
            start: None,
            reading: Reading::Ahead,
            may_read_ahead: false,
            waits_for_all: Arc::default(),
        });
        assert_eq!(*LOG.lock().expect("a log"), ["source", "stream"]);
    }

    #[test]
    fn what_was_cut_is_told_as_libpcap_reads() {
        assert_eq!(
            truncated("pcap", "packet", 26, 214, 8, 65_535),
            "truncated dump file; tried to read 224 captured bytes, only got 10"
        );
        assert_eq!(
            truncated("pcapng", "block", 108, 40, 8, 65_535),
            "truncated pcapng dump file; tried to read 140 bytes, only got 100"
        );
    }
}
