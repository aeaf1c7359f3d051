//! Sleeping to a point in time, closely, and not being kept waiting.

use std::time::Duration;

use crate::SyscallError;
use crate::clock::monotonic_ns;
use crate::error::check;

/// Sleeps until CLOCK_MONOTONIC shows this many nanoseconds, or a signal comes. Returns at once if it does already.
///
/// The kernel wakes up late by the thread's [timer slack](set_timer_slack) and the time for scheduling, never early.
pub fn sleep_until(monotonic: u64) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(monotonic / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (monotonic % 1_000_000_000) as libc::c_long,
    };
    let (clock, flags) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: `time` lives through the call, and no remaining time is asked for. Whatever it returns, the caller looks
    // at the clock.
    unsafe { libc::clock_nanosleep(clock, flags, &time, std::ptr::null_mut()) };
}

/// Sets the delay by which the kernel may wake the calling thread late, to save wake-ups; the default is 50
/// microseconds. At least a nanosecond.
///
/// # Errors
/// The error of prctl(2).
pub fn set_timer_slack(slack: Duration) -> Result<(), SyscallError> {
    let nanos = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: PR_SET_TIMERSLACK takes an integer, and concerns the calling thread only.
    check("prctl(PR_SET_TIMERSLACK)", unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos) }).map(|_| ())
}

/// Makes the calling thread a real-time one (`SCHED_FIFO`, the lowest such priority): it runs before every ordinary
/// thread of its processor, as long as it has something to do. Threads that it starts are ordinary ones. The kernel
/// leaves others a twentieth of the time (`sched_rt_runtime_us`).
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` (and `RLIMIT_RTPRIO` 0).
pub fn set_realtime() -> Result<(), SyscallError> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: numbers, all of which may be zero; some C libraries have more of them than the kernel reads.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: 0 is the calling thread; `parameters` lives through the call, and the kernel only reads it.
    check("sched_setscheduler(SCHED_FIFO)", unsafe { libc::sched_setscheduler(0, policy, &parameters) })
        .map(|_| ())
}

/// Sleeps for a while, by [`sleep_until`].
pub fn sleep(wait: Duration) {
    sleep_until(monotonic_ns().saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_no_less_than_asked() {
        set_timer_slack(Duration::from_nanos(1)).unwrap();
        let until = monotonic_ns() + 2_000_000;
        sleep_until(until);
        assert!(monotonic_ns() >= until);
        sleep_until(until);
        let before = monotonic_ns();
        sleep(Duration::from_millis(1));
        assert!(monotonic_ns() - before >= 1_000_000);
    }
}
