//! A capture file that is open as libpcap has it: packets, and the position of its stream.
//!
//! # The position of the stream
//! libpcap's `FILE *` is positioned behind the file header (of pcapng: behind the first interface), then behind each
//! packet, and the next packet is read from its position. Programs see and set that position with ftell(3) and
//! fseek(3), of which we do not learn. So:
//!
//! ```text
//! pcap_open_offline   header ──pcap_file─────> packet by packet <─────────── fseek(3) to libpcap's position
//!                            └─first packet──> read ahead ──pcap_file──> a file ┘
//!                                                                   └──> a pipe: read ahead still, as nothing can be given back
//! pcap_fopen_offline  packet by packet: the caller has the stream
//! packed files        read ahead: no byte of one is the beginning of a packet
//! ```

use std::ffi::c_int;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::FILE;
use tapline_file::{Error, FileSource, ReadMode};
use tapline_packet::{Batch, LinkType};

use crate::failure::Failure;
use crate::stdio::{self, Stream};

mod beginning;
mod words;

use beginning::{Beginning, beginning, is_plain};
use words::failure;

/// A capture file that is open.
pub(crate) struct Savefile {
    // Before the stream that it reads: fields are dropped in their order.
    source: FileSource,
    stream: Owned,
    /// Packets of another link type end the file, as no filter fits both.
    link_type: LinkType,
    snap_len: c_int,
    dlt_extra: c_int,
    is_swapped: bool,
    version: (c_int, c_int),
    /// The stream's position when it was opened; `None` for a stream without positions.
    start: Option<u64>,
    reading: ReadMode,
    /// Whether the first packet begins to read ahead.
    may_read_ahead: bool,
    waits_for_all: Arc<AtomicBool>,
}

impl Savefile {
    /// Opens a capture file. The stream is closed with the result; after an error it stays the caller's.
    ///
    /// # Safety
    /// `file` is an open stream that no other code reads.
    pub(crate) unsafe fn open(file: *mut FILE, name: &str, owner: Owner) -> Result<Savefile, Failure> {
        let start = stdio::position(file);
        // SAFETY: as the caller promises; the fields of a savefile drop the source before they close the stream.
        let Packets { source, beginning, reading, waits_for_all } = unsafe { packets(file, name, start) }?;
        let Some(first) = source.interfaces().first() else {
            return Err(Failure::error("the capture file has no Interface Description Blocks"));
        };
        let (link_type, snap_len) = (first.link_type, adjusted_snap_len(first.snap_len, first.link_type));
        let version = if source.format_name() == "pcapng" { (1, 0) } else { beginning.version };
        let mut savefile = Savefile {
            source,
            stream: Owned(file),
            link_type,
            snap_len,
            dlt_extra: beginning.dlt_extra,
            is_swapped: beginning.is_swapped,
            version,
            start,
            reading,
            may_read_ahead: reading == ReadMode::ByPacket,
            waits_for_all,
        };
        if owner == Owner::Program {
            savefile.stop_reading_ahead(0);
        }
        Ok(savefile)
    }

    /// Releases the last batch and gets the next; `false` is the end.
    pub(crate) fn advance(&mut self) -> Result<bool, Failure> {
        if std::mem::take(&mut self.may_read_ahead) {
            self.reading = ReadMode::Ahead;
            self.waits_for_all.store(false, Ordering::Relaxed);
            self.source.read_ahead();
        }
        self.source.advance().map_err(|mut error| {
            self.correct_place(&mut error);
            failure(&error, self.source.format_name(), self.snap_len as u32)
        })
    }

    /// The program may have moved the stream, of which the source does not know.
    fn correct_place(&self, error: &mut Error) {
        let (ReadMode::ByPacket, Some(start)) = (self.reading, self.start) else { return };
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

    /// Sets the stream to the position that libpcap's would have after `lent` packets of the batch, and reads packet by
    /// packet from its position from then on. Does nothing if the stream has that position already, or has none.
    pub(crate) fn stop_reading_ahead(&mut self, lent: usize) {
        self.may_read_ahead = false;
        let (ReadMode::Ahead, Some(start), None) = (self.reading, self.start, self.source.compression())
        else {
            return;
        };
        if stdio::set_position(self.stream.0, start + self.source.batch_offset()) {
            self.reading = ReadMode::ByPacket;
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

    /// Whether there is more than one interface.
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

    /// libpcap's number of the link type.
    pub(crate) fn dlt(&self) -> c_int {
        c_int::from(self.link_type.dlt())
    }

    /// The upper bits of the link type field: the length of the frame check sequence.
    pub(crate) fn dlt_extra(&self) -> c_int {
        self.dlt_extra
    }

    /// The snap length of the first interface, as libpcap takes it.
    pub(crate) fn snap_len(&self) -> c_int {
        self.snap_len
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
pub(crate) enum Owner {
    Library,
    Program,
}

/// The packets of a stream, and what its first bytes say.
struct Packets {
    source: FileSource,
    beginning: Beginning,
    reading: ReadMode,
    waits_for_all: Arc<AtomicBool>,
}

/// Examines the beginning of a stream at position `start`, and begins to read its packets.
///
/// # Safety
/// `file` is an open stream that no other code reads, and stays open as long as the source of the result.
unsafe fn packets(file: *mut FILE, name: &str, start: Option<u64>) -> Result<Packets, Failure> {
    // SAFETY: as the caller promises.
    let mut stream = unsafe { Stream::new(file) };
    let waits_for_all = stream.waits_for_all();
    let mut read = Vec::new();
    waits_for_all.store(true, Ordering::Relaxed);
    let first = beginning(&mut stream, &mut read)?;
    let reading = if is_plain(&read) { ReadMode::ByPacket } else { ReadMode::Ahead };
    waits_for_all.store(reading == ReadMode::ByPacket, Ordering::Relaxed);
    let read_len = read.len() as u64;
    let reader = Box::new(io::Cursor::new(read).chain(stream));
    let source = FileSource::packets_from_reader(reader, name, reading).map_err(|error| {
        if let (Error::NotACapture { .. }, Some(start)) = (&error, start) {
            // libpcap leaves an unknown file at this position, for another reader of the stream.
            stdio::set_position(file, start + read_len);
        }
        // The reader does not say the format of a file that it could not open; the magic number has.
        failure(&error, if first.version.0 == 1 { "pcapng" } else { "pcap" }, u32::MAX)
    })?;
    let beginning = match source.compression() {
        // The first bytes were those of the compression.
        Some(_) => beginning(&mut source.head(), &mut Vec::new())?,
        None => first,
    };
    Ok(Packets { source, beginning, reading, waits_for_all })
}

/// A snap length of 0, or one that fits no `int`, means as much as the link type may have.
fn adjusted_snap_len(snap_len: u32, link_type: LinkType) -> c_int {
    match c_int::try_from(snap_len) {
        Ok(len) if len > 0 => len,
        _ => link_type.snap_len_max() as c_int,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;
    use std::ptr;

    use super::*;

    /// The header of a pcap file of this version, in this machine's byte order.
    pub(super) fn header(major: u16, minor: u16) -> Vec<u8> {
        let mut header = 0xa1b2_c3d4u32.to_ne_bytes().to_vec();
        header.extend([major.to_ne_bytes(), minor.to_ne_bytes()].concat());
        header.extend([0; 16]);
        header
    }

    /// The reader of a stream is dropped before the stream is closed.
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
            dlt_extra: 0,
            is_swapped: false,
            version: (2, 4),
            start: None,
            reading: ReadMode::Ahead,
            may_read_ahead: false,
            waits_for_all: Arc::default(),
        });
        assert_eq!(*LOG.lock().expect("a log"), ["source", "stream"]);
    }
}
