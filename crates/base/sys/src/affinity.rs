//! The processors on which a thread may run.

use std::mem::{MaybeUninit, size_of};

use crate::SyscallError;
use crate::error::check;

/// Number of processors of the machine, those that are switched off included, at least 1.
pub fn configured() -> usize {
    // SAFETY: sysconf(3) takes an integer and has no conditions.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(processors).unwrap_or(0).max(1)
}

/// The processors that this thread may run on, by number, lowest first.
///
/// # Errors
/// `EINVAL` on a machine with more than 1024 processors.
pub fn allowed() -> Result<Vec<usize>, SyscallError> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: 0 is the calling thread; pointer and length describe `set`, which the kernel writes.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    check("sched_getaffinity", result)?;
    // SAFETY: a set of bits may be anything, and zeros stood there before.
    let set = unsafe { set.assume_init() };
    // SAFETY: CPU_ISSET reads the bit of a number below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Lets a thread run on these processors only. `thread` is its number (kernel threads have one too); `None` is the
/// calling thread, whose threads and programs started later inherit it. Numbers beyond 1023 are left out.
///
/// # Errors
/// `EINVAL` if none of them is there, `ESRCH` without such a thread, `EPERM` for others' threads without
/// `CAP_SYS_NICE`.
pub fn pin(thread: Option<u32>, cpus: &[usize]) -> Result<(), SyscallError> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: zeros are a set without members.
    let set = unsafe { set.assume_init_mut() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, set) };
    }
    let thread = thread.map_or(0, |thread| thread as libc::pid_t);
    // SAFETY: pointer and length describe `set`, which the kernel only reads.
    check("sched_setaffinity", unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), set) })
        .map(|_| ())
}

/// Runs `work` with this thread on one processor, and puts the thread back on its processors afterwards. Threads that
/// `work` starts stay.
///
/// # Errors
/// As [`pin`].
pub fn on<T>(cpu: usize, work: impl FnOnce() -> T) -> Result<T, SyscallError> {
    let before = allowed()?;
    pin(None, &[cpu])?;
    let result = work();
    pin(None, &before)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_was_put_and_comes_back() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        let inside = on(last, || (allowed().unwrap(), std::thread::spawn(allowed).join().unwrap().unwrap()));
        assert_eq!(inside.unwrap(), (vec![last], vec![last]));
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn nowhere_is_refused() {
        assert_eq!(pin(None, &[]).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(pin(None, &[usize::MAX]).unwrap_err().errno(), libc::EINVAL);
    }
}
