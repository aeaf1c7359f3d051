//! A process of our own that keeps rights which this one gives up, at the other end of a socket.
//!
//! ```text
//! program (confined)  ◄──── stream socket ────►  helper (a fork: same program and user, not confined)
//!                           (closed)        ──►  exits
//! ```
//!
//! The helper inherits nothing that is open but its end of the socket and standard error, and no signal ends it: it
//! lives as long as the program.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::SyscallError;
use crate::error::check;

/// Starts a helper that runs `serve`, and returns the program's end of the connection.
///
/// Call it before the process has more than one thread: a fork of a threaded process may find locks held for ever.
///
/// # Errors
/// If a process or socket cannot be created.
pub fn start(serve: impl FnOnce(UnixStream)) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: fork has no memory preconditions; the child ends in `_exit`, so that no destructor or buffer of the parent
    // runs twice. The caller is asked to be single-threaded.
    match check("fork", unsafe { libc::fork() }).map_err(|error| error.source)? {
        0 => {
            drop(ours);
            let run = || {
                detach(&theirs)?;
                serve(theirs);
                Ok::<(), SyscallError>(())
            };
            let ended = catch_unwind(AssertUnwindSafe(run));
            exit(i32::from(!matches!(ended, Ok(Ok(())))))
        }
        _ => Ok(ours),
    }
}

/// Ends a helper at once: nothing of the program that it was forked from is flushed or run.
pub fn exit(status: i32) -> ! {
    // SAFETY: _exit(2) ends the process and has no conditions.
    unsafe { libc::_exit(status) }
}

/// Ignores a signal, but only in this process: programs that it starts have the default again.
extern "C" fn ignore(_: libc::c_int) {}

fn detach(socket: &UnixStream) -> Result<(), SyscallError> {
    let handler = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGXFSZ] {
        // SAFETY: the handler does nothing, and so is safe at any time.
        unsafe { libc::signal(signal, handler) };
    }
    // SAFETY: opens a file by a NUL-terminated name; the descriptor is duplicated and closed right away.
    unsafe {
        let null = check("open", libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))?;
        check("dup2", libc::dup2(null, libc::STDIN_FILENO))?;
        check("dup2", libc::dup2(null, libc::STDOUT_FILENO))?;
    }
    close_others(&[libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO, socket.as_raw_fd()]);
    Ok(())
}

/// Closes descriptors of the parent that a child must not hold: the program's own end of the socket above all, without
/// whose close the child would never learn that the program has gone; and its standard output, whose reader waits for
/// the end.
pub(crate) fn close_others(keep: &[RawFd]) {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep.into_iter().chain([RawFd::MAX]) {
        if first < fd {
            close_range(first, fd - 1);
        }
        first = fd.saturating_add(1);
    }
}

/// Closes descriptors from one number to another.
fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: closes descriptors that nothing in this process uses again.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Before Linux 5.9.
    // SAFETY: sysconf only reads a limit.
    let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(0, 1 << 20) as RawFd;
    for fd in first..=last.min(limit) {
        // SAFETY: closing a number that is not open fails harmlessly; nothing in this process uses these again.
        unsafe { libc::close(fd) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn it_answers_and_ends_with_the_program() {
        let mut socket = start(|mut socket| {
            let mut byte = [0];
            while let Ok(1) = socket.read(&mut byte) {
                let _ = socket.write_all(&[byte[0] + 1]);
            }
            panic!("an end by a panic runs nothing of the parent");
        })
        .unwrap();
        let mut byte = [7];
        socket.write_all(&byte).unwrap();
        socket.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [8]);
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(socket.read(&mut byte).unwrap(), 0, "the helper has ended");
    }
}
