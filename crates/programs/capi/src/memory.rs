//! Memory that C programs get from us: malloc(3)'s, since many free it themselves.

use std::ffi::{c_char, c_int, c_void};

use crate::failure::Failure;

/// Copies values to memory of malloc(3); null if there is none. An empty list gets a pointer too.
pub(crate) fn copy<T: Copy>(values: &[T]) -> *mut T {
    let bytes = size_of_val(values);
    // SAFETY: malloc(3) takes any size; its memory fits every type of C.
    let memory = unsafe { libc::malloc(bytes.max(1)) }.cast::<T>();
    if !memory.is_null() {
        // SAFETY: there is room for `bytes`, and the memory is new.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory, values.len()) };
    }
    memory
}

/// A text with its zero byte; it ends at the first zero byte in it.
pub(crate) fn text(text: &str) -> *mut c_char {
    let mut bytes = text.as_bytes().to_vec();
    bytes.truncate(text.find('\0').unwrap_or(text.len()));
    bytes.push(0);
    copy(&bytes).cast()
}

/// Frees memory of malloc(3).
///
/// # Safety
/// `memory` is null or came from malloc(3), and it is not used any more.
pub(crate) unsafe fn free<T>(memory: *mut T) {
    // SAFETY: as the caller promises.
    unsafe { libc::free(memory.cast::<c_void>()) }
}

/// Hands a list of numbers to C; returns their count.
///
/// # Safety
/// `list` is a place for a pointer.
pub(crate) unsafe fn hand_out(numbers: &[c_int], list: *mut *mut c_int) -> Result<c_int, Failure> {
    let memory = copy(numbers);
    if memory.is_null() || list.is_null() {
        // SAFETY: it came from malloc(3), or is null.
        unsafe { free(memory) };
        return Err(Failure::error("malloc: Cannot allocate memory"));
    }
    // SAFETY: as the caller promises.
    unsafe { *list = memory };
    Ok(numbers.len() as c_int)
}
