//! Signals that wait: pthread_sigmask(3).

use std::mem::MaybeUninit;
use std::ptr;

/// Has signals to this thread wait until `work` has ended. Threads that it makes take none, and signals to programs that
/// it starts wait until these [`accept_signals`].
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sets of this frame: sigfillset(3) writes the whole of one before it is read, and pthread_sigmask(3) the whole
    // of the other, as SIG_BLOCK is valid (its only error).
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let _end = Restored(before);
    work()
}

/// Unblocks all signals of this thread, those that wait included: the starter of this program may have withheld them.
pub fn accept_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set of this frame, which sigemptyset(3) writes before pthread_sigmask(3) reads it.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Sets the mask again, also after a panic.
struct Restored(libc::sigset_t);

impl Drop for Restored {
    fn drop(&mut self) {
        // SAFETY: a whole set, which is only read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic;
    use std::process::Command;

    use super::*;

    /// The signals that this thread blocks (`SigBlk` of `proc_pid_status(5)`).
    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn signals_that_a_starter_withheld_come_again() {
        let in_program = || {
            let status = Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
            String::from_utf8(status).unwrap().contains("SigBlk:\t0000000000000000")
        };
        assert!(!without_signals(in_program), "programs inherit the mask");
        let accepted = without_signals(|| {
            accept_signals();
            (blocked(), in_program())
        });
        assert_eq!(accepted, (0, true));
    }

    #[test]
    fn the_mask_is_that_of_before() {
        let before = blocked();
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGUSR2] {
            assert_eq!(without_signals(blocked) >> (signal - 1) & 1, 1, "signal {signal}");
        }
        assert_eq!(blocked(), before);
        panic::catch_unwind(|| without_signals(|| panic::resume_unwind(Box::new(())))).unwrap_err();
        assert_eq!(blocked(), before);
    }
}
