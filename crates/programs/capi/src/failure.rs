//! Failures on their way to C: a code to return and a text for `pcap_geterr` or a caller's buffer.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::raw::{ERRBUF_SIZE, ERROR};

/// A code of `pcap/pcap.h` with its text, which may be empty where the code says it all.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: Cow<'static, str>,
}

impl Failure {
    /// `PCAP_ERROR` with a text.
    pub(crate) fn error(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { code: ERROR, text: text.into() }
    }

    /// A code that says it all.
    pub(crate) fn code(code: c_int) -> Failure {
        Failure { code, text: Cow::Borrowed("") }
    }

    pub(crate) fn new(code: c_int, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { code, text: text.into() }
    }

    /// `what: ` and the system's message, as libpcap prints it.
    pub(crate) fn system(what: &str, error: &io::Error) -> Failure {
        Failure::error(format!("{what}: {}", system_text(error)))
    }
}

/// The system's words alone: `io::Error` adds the number.
pub(crate) fn system_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => errno_text(errno),
        None => error.to_string(),
    }
}

/// strerror(3).
pub(crate) fn errno_text(errno: c_int) -> String {
    let mut buffer = [0 as c_char; ERRBUF_SIZE];
    // SAFETY: the pointer and the length describe `buffer`; the XSI function writes a text with its zero byte there.
    let result = unsafe { libc::strerror_r(errno, buffer.as_mut_ptr(), buffer.len()) };
    if result != 0 {
        return format!("Unknown error: {errno}");
    }
    // SAFETY: as above, there is a zero byte in the buffer.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

/// Puts a text into a buffer of [`ERRBUF_SIZE`] bytes, cut where it does not fit, never within a character.
///
/// # Safety
/// `buffer` is null or has that much room.
pub(crate) unsafe fn put(buffer: *mut c_char, text: &str) {
    if buffer.is_null() {
        return;
    }
    // A zero byte would end the text for C.
    let text = text.split('\0').next().unwrap_or_default();
    let mut len = text.len().min(ERRBUF_SIZE - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: the caller promises room for ERRBUF_SIZE bytes, of which at most that many are written.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, len);
        *buffer.add(len) = 0;
    }
}

/// The error that a caught panic becomes. None is known; it would be a fault of this library, and the program above
/// goes on.
pub(crate) const PANIC_TEXT: &str = "internal error in this libpcap (a panic was caught)";

/// Runs the body of a function that C calls. A panic ends here and gives `fallback`.
pub(crate) fn guard<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// As [`guard`], for a function that returns errors in a caller's buffer.
///
/// # Safety
/// `errbuf` is null or has room for [`ERRBUF_SIZE`] bytes.
pub(crate) unsafe fn guard_into<T>(
    errbuf: *mut c_char,
    on_error: impl Fn(c_int) -> T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::error(PANIC_TEXT),
    };
    // SAFETY: as the caller promises.
    unsafe { put(errbuf, &failure.text) };
    on_error(failure.code)
}

/// A C string as text; invalid UTF-8 is replaced.
///
/// # Safety
/// `text` is null or ends in a zero byte.
pub(crate) unsafe fn text_at(text: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        for filler in 250..258 {
            let text = format!("{}éé", "x".repeat(filler));
            let mut buffer = [1 as c_char; ERRBUF_SIZE + 1];
            // SAFETY: the buffer has the room.
            unsafe { put(buffer.as_mut_ptr(), &text) };
            assert_eq!(buffer[ERRBUF_SIZE], 1, "one past the end stays");
            // SAFETY: `put` wrote a zero byte.
            let got = unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().expect("whole characters");
            assert!(text.starts_with(got) && got.len() >= 254.min(text.len()), "{}", got.len());
        }
    }

    #[test]
    fn a_panic_stays_inside_and_is_told() {
        let mut buffer = [0 as c_char; ERRBUF_SIZE];
        // SAFETY: the buffer has the room.
        let code = unsafe { guard_into(buffer.as_mut_ptr(), |code| code, || panic!("a test's panic")) };
        // SAFETY: `put` wrote a zero byte.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        assert_eq!((code, text.to_str()), (ERROR, Ok(PANIC_TEXT)));
        assert_eq!(guard(7, || panic!("another")), 7);
    }

    #[test]
    fn the_systems_words_have_no_number() {
        assert_eq!(errno_text(libc::ENOENT), "No such file or directory");
        assert_eq!(system_text(&io::Error::from_raw_os_error(libc::EPERM)), "Operation not permitted");
    }
}
