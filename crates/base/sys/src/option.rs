//! Socket options: the one funnel for setsockopt(2) and the one for getsockopt(2).

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};

use crate::SyscallError;
use crate::error::check;

/// Plain C data: any bytes are a value, and every byte of it is initialised.
///
/// # Safety
/// Only for types without padding, pointers to be followed, or forbidden bit patterns.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers are plain.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: integers are plain, and so are arrays of them.
unsafe impl Plain for [u32; 3] {}
// SAFETY: as above.
unsafe impl Plain for [u32; 9] {}
// SAFETY: three 32-bit integers.
unsafe impl Plain for libc::tpacket_stats_v3 {}
// SAFETY: seven 32-bit integers.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: 4 + 2 + 2 + 8 bytes of integers, aligned to 4.
unsafe impl Plain for libc::packet_mreq {}

/// setsockopt(2).
pub(crate) fn set<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    call: &'static str,
    value: &T,
) -> Result<(), SyscallError> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: the pointer and the length describe `value`, which lives through the call; the kernel only reads it.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) };
    check(call, result).map(|_| ())
}

/// getsockopt(2). An answer shorter than `T` leaves the rest zero.
pub(crate) fn get<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    call: &'static str,
) -> Result<T, SyscallError> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) };
    check(call, result)?;
    // SAFETY: all bytes were zeroed and perhaps overwritten, and any bytes are a value of a plain type.
    Ok(unsafe { value.assume_init() })
}
