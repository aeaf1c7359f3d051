//! Waiting for any of several descriptors, and being woken from another thread.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::SyscallError;
use crate::error::check;
use crate::tsc;
use crate::usage::thread_time;

thread_local! {
    /// Processor time of this thread's waits, while it is measured.
    static WAIT_TIME: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Measures the processor time of this thread's waits from now on, at the cost of two calls of the system a wait.
pub fn measure_waits() {
    WAIT_TIME.set(Some(Duration::ZERO));
}

/// The processor time that waits of this thread took since [`measure_waits`]: going to sleep, and waking up.
pub fn measured_waits() -> Option<Duration> {
    WAIT_TIME.get()
}

/// A list of descriptors to wait for, kept between calls so that waiting allocates nothing.
#[derive(Debug, Default)]
pub struct Poller {
    fds: Vec<libc::pollfd>,
    waited: u64,
}

impl Poller {
    /// An empty list.
    pub fn new() -> Poller {
        Poller::default()
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.fds.clear();
    }

    /// Adds a descriptor. The descriptor must stay open until the list is cleared; the wait merely reports one that
    /// is not.
    pub fn add(&mut self, fd: BorrowedFd<'_>) {
        self.add_raw(fd.as_raw_fd());
    }

    /// Adds a place for a descriptor that is not waited for: nothing is ever reported for it.
    pub fn add_none(&mut self) {
        // ppoll(2) leaves descriptors less than 0 out.
        self.add_raw(-1);
    }

    /// Waits until a descriptor can be read or has an error, a signal arrives, or `wait` is over. Returns how many
    /// descriptors have something to say: 0 after a signal too.
    ///
    /// # Errors
    /// The error of ppoll(2).
    pub fn wait(&mut self, wait: Duration) -> Result<usize, SyscallError> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let count = self.fds.len() as libc::nfds_t;
        let cpu = WAIT_TIME.get().map(|sum| (sum, thread_time()));
        let start = tsc::now();
        // SAFETY: `fds` points to `count` pollfd, which the kernel may write to; `timeout` lives through the call; no
        // signal mask is given.
        let result = unsafe { libc::ppoll(self.fds.as_mut_ptr(), count, &timeout, std::ptr::null()) };
        self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(start));
        if let Some((sum, before)) = cpu {
            WAIT_TIME.set(Some(sum + thread_time().saturating_sub(before)));
        }
        match check("ppoll", result) {
            Ok(ready) => Ok(ready as usize),
            Err(error) if error.errno() == libc::EINTR => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Ticks of the [`tsc`] that all waits took together.
    pub fn waited_ticks(&self) -> u64 {
        self.waited
    }

    /// Whether the descriptor at `index`, in the order added, can be read.
    pub fn is_readable(&self, index: usize) -> bool {
        self.fds.get(index).is_some_and(|fd| fd.revents & libc::POLLIN != 0)
    }

    /// Whether the other end of the descriptor at `index` is gone: a terminal was closed.
    pub fn has_hung_up(&self, index: usize) -> bool {
        self.fds.get(index).is_some_and(|fd| fd.revents & libc::POLLHUP != 0)
    }

    /// Whether the descriptor at `index` has an error.
    pub fn has_error(&self, index: usize) -> bool {
        self.fds.get(index).is_some_and(|fd| fd.revents & (libc::POLLERR | libc::POLLNVAL) != 0)
    }

    fn add_raw(&mut self, fd: RawFd) {
        self.fds.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    }
}

/// Wakes a thread that waits: an eventfd(2). Any number of [`notify`](Self::notify) make one wake-up.
#[derive(Debug)]
pub struct Wakeup {
    fd: OwnedFd,
}

impl Wakeup {
    /// A new one, not notified.
    ///
    /// # Errors
    /// The error of eventfd(2).
    pub fn new() -> Result<Wakeup, SyscallError> {
        // SAFETY: eventfd(2) takes integers only.
        let fd = check("eventfd", unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        Ok(Wakeup { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Wakes the thread that waits. Only write(2) is called, so this may run in a signal handler.
    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the pointer and the length describe `one`. The only failure, a full counter, means notified already.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Whether it was notified since the last call.
    pub fn take(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: the pointer and the length describe `count`, which the kernel may write to.
        let len = unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        len == 8
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_measured_once_that_is_asked_for() {
        let mut poller = Poller::new();
        poller.wait(Duration::ZERO).unwrap();
        assert_eq!(measured_waits(), None);
        measure_waits();
        let before = thread_time();
        for _ in 0..100 {
            poller.wait(Duration::from_micros(1)).unwrap();
        }
        let waited = measured_waits().unwrap();
        assert!(waited > Duration::ZERO && waited <= thread_time() - before);
    }

    #[test]
    fn a_notified_wakeup_ends_the_wait_once() {
        let wakeup = Wakeup::new().unwrap();
        let mut poller = Poller::new();
        poller.add_none();
        poller.add(wakeup.as_fd());
        assert_eq!(poller.wait(Duration::ZERO).unwrap(), 0);
        wakeup.notify();
        wakeup.notify();
        assert_eq!(poller.wait(Duration::from_secs(60)).unwrap(), 1);
        assert!(poller.is_readable(1) && !poller.has_error(1));
        assert!(!poller.is_readable(0) && !poller.has_error(0), "nothing is waited for there");
        assert!(wakeup.take() && !wakeup.take());
        assert_eq!(poller.wait(Duration::ZERO).unwrap(), 0);
    }
}
