//! The processor's own clock: the time stamp counter of x86-64, the virtual counter of aarch64.
//!
//! Reading it takes some 20 cycles and no system call. An invariant counter ([`is_invariant`]) has a constant rate,
//! whatever the current frequency of the processor: on x86-64 a tick is a cycle at the nominal frequency.

use std::time::{Duration, Instant};

/// Reads the counter; returns 0 on other architectures.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc has no preconditions; every x86-64 has it, and Linux lets user space run it unless the process
    // disabled that (prctl(2), PR_SET_TSC).
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

/// Measures the ticks in a second by spinning for `time`. With 20 ms, four digits of the result are right. Returns 0 on
/// other architectures.
pub fn frequency(time: Duration) -> f64 {
    let (start, before) = (Instant::now(), now());
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
    let ticks = now().wrapping_sub(before);
    ticks as f64 / start.elapsed().as_secs_f64()
}

/// Whether the processor reports that its counter has one rate at every frequency, and continues in every idle state.
/// Only the kernel knows whether the counters of several processors agree (`/sys/devices/system/clocksource`).
pub fn is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    // Leaf 8000_0007H, EDX bit 8: "TscInvariant" (AMD APM 3, E.4.6), "Invariant TSC" (Intel SDM 3, 18.17.1).
    return leaf(0x8000_0000).eax >= 0x8000_0007 && leaf(0x8000_0007).edx & (1 << 8) != 0;
    // The architecture demands it of the generic timer: Arm ARM (DDI 0487), D12.1.
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Returns the ticks in a second that the processor or the hypervisor reports, and the source of the number; `None` if
/// neither does. The number may be wrong: compare it with a measurement.
///
/// The processor's base frequency (leaf 16H) is not used: it is rounded to a megahertz, and measuring for 10 ms is
/// better.
#[cfg(target_arch = "x86_64")]
pub fn reported_frequency() -> Option<(u64, &'static str)> {
    let crystal = || {
        let ratio = (leaf(0).eax >= 0x15).then(|| leaf(0x15))?;
        let ticks = u64::from(ratio.ecx) * u64::from(ratio.ebx);
        Some((ticks.checked_div(u64::from(ratio.eax))?, "CPUID leaf 15H"))
    };
    let hypervisor = || {
        let is_guest = leaf(1).ecx & (1 << 31) != 0;
        let kilohertz = (is_guest && leaf(0x4000_0000).eax >= 0x4000_0010).then(|| leaf(0x4000_0010).eax)?;
        Some((u64::from(kilohertz) * 1000, "the hypervisor, CPUID leaf 4000_0010H"))
    };
    // Many processors leave the crystal's frequency (ECX of leaf 15H) 0.
    crystal().filter(|told| told.0 > 0).or_else(|| hypervisor().filter(|told| told.0 > 0))
}

/// Returns the ticks in a second that the firmware wrote to `cntfrq_el0`; `None` if it did not.
#[cfg(target_arch = "aarch64")]
pub fn reported_frequency() -> Option<(u64, &'static str)> {
    let frequency: u64;
    // SAFETY: reads a register that Linux lets user space read; touches no memory and no flags.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    (frequency > 0).then_some((frequency, "cntfrq_el0"))
}

/// Returns `None`: other architectures report no frequency.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn reported_frequency() -> Option<(u64, &'static str)> {
    None
}

#[cfg(target_arch = "x86_64")]
fn leaf(number: u32) -> core::arch::x86_64::CpuidResult {
    core::arch::x86_64::__cpuid(number)
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

    #[test]
    fn a_reported_rate_is_plausible() {
        if let Some((hz, source)) = reported_frequency() {
            assert!((1_000_000..20_000_000_000).contains(&hz), "{hz} says {source}");
        }
    }
}
