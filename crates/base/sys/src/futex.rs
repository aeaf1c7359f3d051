//! Sleeping on a word of memory that processes share: futex(2).
//!
//! The word has 64 bits, of which the kernel compares the lower half. Both processes must map the same file: the
//! private kind of futex, which most libraries use, wakes no thread of another process.

use std::ptr;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::SyscallError;

/// The reason that a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexWaitEnd {
    /// By [`wake`], or by a signal, or for no reason.
    Yes,
    /// The word did not have the expected value, so there was no wait.
    Changed,
    /// The time is over.
    TimedOut,
}

/// Sleeps while the lower half of `word` is that of `expected`, for `timeout` at most.
///
/// # Errors
/// The error of futex(2). None of it is to be expected of a word that exists.
pub fn wait(word: &AtomicU64, expected: u64, timeout: Duration) -> Result<FutexWaitEnd, SyscallError> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the address is of a word that lives through the call; the timeout is only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            lower_half(word),
            libc::FUTEX_WAIT,
            expected as u32,
            &raw const timeout,
        )
    };
    if result == 0 {
        return Ok(FutexWaitEnd::Yes);
    }
    let error = SyscallError::last("futex(FUTEX_WAIT)");
    match error.errno() {
        libc::EAGAIN => Ok(FutexWaitEnd::Changed),
        libc::ETIMEDOUT => Ok(FutexWaitEnd::TimedOut),
        libc::EINTR => Ok(FutexWaitEnd::Yes),
        _ => Err(error),
    }
}

/// Wakes one of the threads that sleep on `word`; returns whether there was one. Cannot fail on a word that exists.
///
/// One, because a word has one sleeper in every protocol of ours: another process that has the memory could put
/// thousands of threads to sleep there, and we would work for them all.
pub fn wake(word: &AtomicU64) -> bool {
    // SAFETY: the address is of a word that lives through the call.
    let woken =
        unsafe { libc::syscall(libc::SYS_futex, lower_half(word), libc::FUTEX_WAKE, 1, ptr::null::<u8>()) };
    woken > 0
}

fn lower_half(word: &AtomicU64) -> *const u32 {
    let half = word.as_ptr().cast_const().cast::<u32>();
    // SAFETY: both halves are inside of the word.
    unsafe { half.add(usize::from(cfg!(target_endian = "big"))) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use super::*;

    #[test]
    fn a_word_that_changed_is_not_waited_for() {
        let word = AtomicU64::new(1);
        assert_eq!(wait(&word, 0, Duration::from_secs(60)).unwrap(), FutexWaitEnd::Changed);
        assert_eq!(wait(&word, 1, Duration::from_millis(1)).unwrap(), FutexWaitEnd::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                word.store(1, SeqCst);
                wake(&word);
            });
            while word.load(SeqCst) == 0 {
                assert_ne!(wait(&word, 0, Duration::from_secs(60)).unwrap(), FutexWaitEnd::TimedOut);
            }
        });
    }

    #[test]
    fn one_call_wakes_one_sleeper() {
        const SLEEPERS: usize = 4;
        let word = AtomicU64::new(0);
        thread::scope(|scope| {
            let sleepers: Vec<_> = (0..SLEEPERS)
                .map(|_| {
                    scope.spawn(|| {
                        assert_eq!(wait(&word, 0, Duration::from_secs(60)).unwrap(), FutexWaitEnd::Yes)
                    })
                })
                .collect();
            // So that all sleep at once, most likely; what is asserted holds in any case.
            thread::sleep(Duration::from_millis(100));
            let mut woken = 0;
            while !sleepers.iter().all(|sleeper| sleeper.is_finished()) {
                woken += usize::from(wake(&word));
                thread::yield_now();
            }
            assert_eq!(woken, SLEEPERS);
        });
    }
}
