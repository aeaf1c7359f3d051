//! Whether the system's clock is kept in step with a reference: adjtimex(2).

use crate::SyscallError;
use crate::error::check;

/// The kernel's estimate of its clock's error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// Whether a program (NTP, PTP) disciplines it. Some programs that set the clock do not inform the kernel.
    pub is_synchronised: bool,
    /// The largest error that the program admits, in microseconds; the kernel adds 500 parts per million of the time
    /// since.
    pub error_max_us: u64,
    /// The error that it expects, in microseconds.
    pub error_estimate_us: u64,
    /// Seconds that TAI is ahead of UTC; 0 if the kernel does not know.
    pub tai_offset: i32,
}

/// Reads it. Changes nothing and needs no capability.
///
/// # Errors
/// The error of adjtimex(2).
pub fn read() -> Result<ClockState, SyscallError> {
    // SAFETY: all-zero bytes are a valid timex, and `modes` of 0 asks to change nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a timex that lives through the call.
    check("adjtimex", unsafe { libc::adjtimex(&raw mut timex) })?;
    Ok(ClockState {
        is_synchronised: timex.status & libc::STA_UNSYNC == 0,
        error_max_us: u64::try_from(timex.maxerror).unwrap_or(0),
        error_estimate_us: u64::try_from(timex.esterror).unwrap_or(0),
        tai_offset: timex.tai,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        let state = super::read().unwrap();
        assert!(state.error_max_us >= state.error_estimate_us || !state.is_synchronised, "{state:?}");
    }
}
