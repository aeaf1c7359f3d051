//! Resources, used and present: processor time, getrusage(2) and clock_gettime(2); memory, sysconf(3).

use std::time::Duration;

/// Processor time of one thread or process. Kernels that account by the timer tick report it in steps of a few
/// milliseconds; [`thread_time`] measures shorter times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user space.
    pub user: Duration,
    /// In the kernel on our behalf. Packets received in interrupts count for the interrupted process.
    pub system: Duration,
}

impl CpuTime {
    /// Processor time of the calling thread.
    pub fn of_thread() -> CpuTime {
        read(libc::RUSAGE_THREAD)
    }

    /// Processor time of all threads of this process, with those that have ended.
    pub fn of_process() -> CpuTime {
        read(libc::RUSAGE_SELF)
    }

    /// Processor time of all processes that this one started and has waited for, and those that they had waited for.
    pub fn of_children() -> CpuTime {
        read(libc::RUSAGE_CHILDREN)
    }

    /// Both together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// The time used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Processor time of the calling thread, exact to about a microsecond; not divided into user and system.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of all threads of this process, those that have ended too; exact as [`thread_time`].
pub fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    // SAFETY: all-zero bytes are a valid timespec, and clock_gettime(2) writes one. The call can only fail for
    // another clock.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// Bytes of memory that this machine has; 0 if it does not say.
pub fn physical_memory() -> u64 {
    // SAFETY: sysconf(3) takes an integer and has no conditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * page_len() as u64
}

/// Bytes of a page of memory.
pub fn page_len() -> usize {
    // SAFETY: sysconf(3) takes an integer and has no conditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Times that the processor was given up, and that memory was brought in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// To wait for something: each wake-up is one.
    pub waiting: u64,
    /// Because the kernel gave the processor to another thread.
    pub preempted: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
}

impl SchedulerCounts {
    /// Counts of the calling thread.
    pub fn of_thread() -> SchedulerCounts {
        SchedulerCounts::read(libc::RUSAGE_THREAD)
    }

    /// Counts of all threads of this process.
    pub fn of_process() -> SchedulerCounts {
        SchedulerCounts::read(libc::RUSAGE_SELF)
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: SchedulerCounts) -> SchedulerCounts {
        SchedulerCounts {
            waiting: self.waiting.saturating_sub(earlier.waiting),
            preempted: self.preempted.saturating_sub(earlier.preempted),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }

    fn read(who: libc::c_int) -> SchedulerCounts {
        let usage = rusage(who);
        SchedulerCounts {
            waiting: usage.ru_nvcsw.unsigned_abs(),
            preempted: usage.ru_nivcsw.unsigned_abs(),
            minor_faults: usage.ru_minflt.unsigned_abs(),
            major_faults: usage.ru_majflt.unsigned_abs(),
        }
    }
}

/// Units in a second of the times in /proc/stat (`USER_HZ`): 100 on all machines that we know.
pub fn clock_units_per_second() -> u64 {
    // SAFETY: sysconf(3) takes an integer and has no conditions.
    let units = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(units).unwrap_or(0).max(1)
}

fn read(who: libc::c_int) -> CpuTime {
    let usage = rusage(who);
    CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

fn rusage(who: libc::c_int) -> libc::rusage {
    // SAFETY: all-zero bytes are a valid rusage, and getrusage(2) writes one. The call can only fail for another
    // first argument.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(physical_memory() > 16 << 20);
    }

    #[test]
    fn work_of_less_than_a_timer_tick_takes_time() {
        let before = thread_time();
        std::hint::black_box((0..10_000_u32).map(std::hint::black_box).sum::<u32>());
        assert!(thread_time() > before);
    }

    #[test]
    fn a_waiting_thread_is_switched() {
        let before = SchedulerCounts::of_thread();
        std::thread::sleep(Duration::from_millis(1));
        let since = SchedulerCounts::of_thread().since(before);
        assert!(since.waiting >= 1);
        assert!(SchedulerCounts::of_process().waiting >= since.waiting);
        assert!(clock_units_per_second() >= 1);
    }

    #[test]
    fn time_only_grows() {
        let before = CpuTime::of_thread();
        let after = CpuTime::of_thread();
        assert!(after.total() >= before.total());
        assert!(CpuTime::of_process().total() >= after.total());
        assert!(after.since(before).total() <= after.total());
    }
}
