//! The system's clocks, clock_gettime(2). The kernel answers these in user space (vDSO) where its clock source can be
//! read there, in some 20 to 40 ns, else by a system call.

/// CLOCK_REALTIME: nanoseconds since 1970 UTC; negative before, as wrongly set clocks may be. Jumps when the clock is
/// set.
#[inline]
pub fn realtime_ns() -> i64 {
    let time = read(libc::CLOCK_REALTIME);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// CLOCK_MONOTONIC: nanoseconds since some point, at the pace that NTP gives; never goes backwards.
#[inline]
pub fn monotonic_ns() -> u64 {
    unsigned(read(libc::CLOCK_MONOTONIC))
}

/// CLOCK_MONOTONIC_RAW in nanoseconds, at the pace of the hardware.
#[inline]
pub fn monotonic_raw_ns() -> u64 {
    unsigned(read(libc::CLOCK_MONOTONIC_RAW))
}

fn unsigned(time: libc::timespec) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec; it can only fail for other clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on() {
        let (monotonic, raw) = (monotonic_ns(), monotonic_raw_ns());
        assert!(realtime_ns() > 1_600_000_000_000_000_000);
        assert!(monotonic_ns() >= monotonic && monotonic_raw_ns() >= raw);
        assert!(monotonic > 0);
    }
}
