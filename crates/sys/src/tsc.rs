//! The processor's own clock: the time stamp counter of x86-64, the virtual counter of aarch64.
//!
//! Reading it takes some 20 cycles and no system call. It counts at a constant rate, which is not that of the instructions: on a processor
//! that changes its speed, a cycle here is a cycle at the nominal speed.

use std::time::{Duration, Instant};

/// The counter now; 0 on processors of other kinds.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc has no preconditions; every x86-64 has it, and Linux leaves it to user space unless a process asked otherwise.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let counter: u64;
        // SAFETY: reads a register that Linux lets user space read; touches no memory and no flags.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack, preserves_flags));
        }
        counter
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Ticks in a second, counted over `time`: 20 ms give four digits.
pub fn frequency(time: Duration) -> f64 {
    let (start, before) = (Instant::now(), now());
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
    let ticks = now().wrapping_sub(before);
    ticks as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_on() {
        let before = now();
        let rate = frequency(Duration::from_millis(5));
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(now() > before);
            assert!(rate > 1e6, "{rate} ticks a second");
        }
    }
}
