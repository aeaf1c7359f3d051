//! `FILE *` as something to read from: `pcap_file` must give a real one, and `pcap_fopen_offline` takes one.
//!
//! ```text
//! a file:           fread(3) of as much as is wanted: stdio reads large pieces past its own buffer
//! packet by packet  the same, of a header, then of a packet: what libpcap asks for
//! pipes of packed   one byte, which waits; then what stdio has in its buffer by now, which does not
//! ```
//!
//! fread(3) on a pipe waits until it has all that was asked for, so a reader ahead of a live stream would see packets
//! late.
//!
//! A signal that interrupts the wait ends the file with an error, as in libpcap: the program may want to end. So no
//! error from here is of a kind after which readers try again.

use std::ffi::{CString, c_char, c_int};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::FILE;

use crate::failure::system_text;

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
}

pub(crate) fn standard_input() -> *mut FILE {
    // SAFETY: the C library sets the pointer before main, and programs that change it do so with care of their own.
    unsafe { stdin }
}

pub(crate) fn standard_output() -> *mut FILE {
    // SAFETY: as for `standard_input`.
    unsafe { stdout }
}

/// fopen(3).
///
/// # Safety
/// `name` and `mode` end in zero bytes.
pub(crate) unsafe fn open(name: *const c_char, mode: &CString) -> io::Result<*mut FILE> {
    // SAFETY: as the caller promises.
    let file = unsafe { libc::fopen(name, mode.as_ptr()) };
    if file.is_null() { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// The first fields of glibc's `struct _IO_FILE`. Programs compiled years ago have `getc_unlocked` inlined, which reads
/// these two pointers and moves the first: they cannot move, nor mean anything else.
#[cfg(target_env = "gnu")]
#[repr(C)]
struct Begin {
    flags: c_int,
    read_ptr: *const u8,
    read_end: *const u8,
}

/// The position of a stream; `None` if it cannot be moved.
pub(crate) fn position(file: *mut FILE) -> Option<u64> {
    // SAFETY: the callers' streams are open.
    u64::try_from(unsafe { libc::ftello(file) }).ok()
}

/// Moves a stream. Whether that went well.
pub(crate) fn set_position(file: *mut FILE, position: u64) -> bool {
    let Ok(position) = libc::off_t::try_from(position) else { return false };
    // SAFETY: the callers' streams are open.
    unsafe { libc::fseeko(file, position, libc::SEEK_SET) == 0 }
}

/// A stream that is read to its end or until it fails.
pub(crate) struct Stream {
    file: *mut FILE,
    is_regular: bool,
    /// Whether a read waits for all that is wanted, and fails if not all came before an error.
    waits_for_all: Arc<AtomicBool>,
}

// SAFETY: stdio locks each stream for each call; the handle that has this one is used by one thread at a time.
unsafe impl Send for Stream {}

impl Stream {
    /// # Safety
    /// `file` is an open stream that stays open as long as this value.
    pub(crate) unsafe fn new(file: *mut FILE) -> Stream {
        // SAFETY: the stream is open; all-zero bytes are a valid stat; its pointer lives through the call.
        let is_regular = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(libc::fileno(file), &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
        };
        Stream { file, is_regular, waits_for_all: Arc::default() }
    }

    /// The switch for reads that wait for all that is wanted, and fail if an error came before. A stream that was given
    /// away is still switched by it.
    pub(crate) fn waits_for_all(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.waits_for_all)
    }

    /// fread(3). An error that follows bytes is left to the next call, unless all are waited for.
    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(target_env = "gnu")]
        if self.take_ready(buffer) {
            return Ok(buffer.len());
        }
        // SAFETY: pointer and length describe `buffer`, and the stream is open.
        let have = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), self.file) };
        if have == buffer.len() {
            return Ok(have);
        }
        // Before any other call sets it.
        let error = io::Error::last_os_error();
        // Not ferror(3): it tells of all errors that there ever were, and this may be the end after one.
        // SAFETY: the stream is open.
        if have > 0 && !self.waits_for_all.load(Ordering::Relaxed) || unsafe { libc::feof(self.file) } != 0 {
            return Ok(have);
        }
        match error.kind() {
            io::ErrorKind::Interrupted => Err(io::Error::other(system_text(&error))),
            _ => Err(error),
        }
    }

    /// Bytes in stdio's buffer, which can be read without waiting.
    #[cfg(target_env = "gnu")]
    fn ready(&self) -> usize {
        // SAFETY: the stream is open, and glibc lays it out so.
        let begin = unsafe { &*self.file.cast::<Begin>() };
        (begin.read_end as usize).saturating_sub(begin.read_ptr as usize)
    }

    /// As many calls of getc_unlocked(3) as `buffer` has room for, if stdio holds all of that; fread(3) costs more.
    #[cfg(target_env = "gnu")]
    #[inline]
    fn take_ready(&self, buffer: &mut [u8]) -> bool {
        if self.ready() < buffer.len() {
            return false;
        }
        debug_assert!(!self.file.is_null());
        // SAFETY: the stream is open, and glibc lays it out so; from `read_ptr` on it has as many bytes as were just
        // asked for, which are not those of `buffer`. As with getc_unlocked(3) no other thread uses the stream: the
        // handle is used by one thread at a time.
        unsafe {
            let begin = self.file.cast::<Begin>();
            let from = (*begin).read_ptr;
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len());
            (*begin).read_ptr = from.add(buffer.len());
        }
        true
    }

    #[cfg(not(target_env = "gnu"))]
    fn ready(&self) -> usize {
        0
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = buffer.split_first_mut() else { return Ok(0) };
        if self.is_regular || self.waits_for_all.load(Ordering::Relaxed) {
            return self.read_some(buffer);
        }
        if self.read_some(std::slice::from_mut(first))? == 0 {
            return Ok(0);
        }
        let ready = self.ready().min(rest.len());
        // They are there already, so nothing can fail.
        Ok(1 + self.read_some(&mut rest[..ready]).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::FromRawFd;

    use std::ptr;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Both ends of a pipe, the one to read as a stream.
    fn pipe() -> (*mut FILE, std::fs::File) {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors; they are new, and no other value owns them; the mode ends in a zero byte.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            (libc::fdopen(ends[0], c"r".as_ptr()), std::fs::File::from_raw_fd(ends[1]))
        }
    }

    /// A signal whose handler asks for no restart ends the read, which is reported once: data that come then are read,
    /// up to the end.
    #[test]
    fn an_interrupted_read_is_reported_once() {
        extern "C" fn on_alarm(_: c_int) {}
        let (file, mut writer) = pipe();
        // SAFETY: a handler that does nothing; all-zero bytes are an action without flags. The stream is open until the
        // end of the test.
        let mut stream = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_alarm as extern "C" fn(c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, ptr::null_mut()), 0);
            Stream::new(file)
        };
        // SAFETY: pthread_self(3) takes nothing.
        let reader = unsafe { libc::pthread_self() };
        let (done, is_done) = mpsc::channel::<()>();
        let alarm = thread::spawn(move || {
            // Again and again, as one may come before the read waits.
            while is_done.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(reader, libc::SIGALRM) };
            }
        });
        let mut buffer = [0; 100];
        let error = stream.read(&mut buffer).expect_err("interrupted");
        drop(done);
        alarm.join().expect("it ends");
        assert_eq!(system_text(&error), "Interrupted system call");
        assert_ne!(error.kind(), io::ErrorKind::Interrupted, "readers would try again");

        writer.write_all(b"more").expect("room");
        assert_eq!(stream.read(&mut buffer).expect("reads"), 4);
        drop(writer);
        // SAFETY: this thread's errno, as an earlier call may have left it; the stream is open, and it is not used any
        // more.
        unsafe {
            *libc::__errno_location() = libc::EINTR;
            assert_eq!(stream.read(&mut buffer).expect("the end"), 0);
            libc::fclose(file);
        }
    }

    #[test]
    fn a_pipe_gives_its_bytes_without_waiting_for_more() {
        let (file, mut writer) = pipe();
        // SAFETY: the stream is open until the end of the test.
        let mut stream = unsafe { Stream::new(file) };
        writer.write_all(b"first").expect("room");
        let mut buffer = [0; 100];
        // With fread(3) this would wait for 95 bytes more for ever.
        assert_eq!(stream.read(&mut buffer).expect("reads"), 5);
        writer.write_all(b"second").expect("room");
        assert_eq!(stream.read(&mut buffer).expect("reads"), 6);
        drop(writer);
        // SAFETY: the stream is open, and it is not used any more.
        unsafe {
            assert_eq!(stream.read(&mut buffer).expect("the end"), 0);
            libc::fclose(file);
        }
    }
}
