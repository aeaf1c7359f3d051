//! Standard output, as the program was given it.
//!
//! A program that is started without standard output (`program >&-`) finds the descriptor closed. The standard
//! library opens /dev/null in its place before `main`, so that no file which is opened later takes the number; output
//! there is lost, and no call fails. The look here is earlier: the dynamic linker calls it before the library starts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the dynamic linker as the program or library is loaded (System V ABI, chapter 5, "Initialization and
/// Termination Functions").
#[used]
// SAFETY: the section holds pointers to functions of the C calling convention, which `look` is. `look` allocates
// nothing and relies on no part of the standard library that would have to be set up.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the call takes a number and fails with EBADF if no descriptor has it.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was open when the program began.
///
/// # Errors
/// If it was closed: output would be lost.
pub fn check() -> io::Result<()> {
    match IS_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it was closed when the program began")),
        false => Ok(()),
    }
}

/// Standard output as a file, without the line buffer of the standard library, which keeps unwritten bytes and takes
/// a closed descriptor for an open one.
///
/// # Errors
/// As [`check`], and as dup(2).
pub fn file() -> io::Result<File> {
    check()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Makes every write to a standard output that was closed fail (as on a full disk) instead of getting lost. Call it
/// early in `main`.
///
/// # Errors
/// As open(2) of /dev/full, null(4), and dup2(2).
pub fn refuse_if_closed() -> io::Result<()> {
    if check().is_ok() {
        return Ok(());
    }
    let full = OpenOptions::new().write(true).open("/dev/full")?;
    // SAFETY: both are open descriptors; the second is /dev/null, which the standard library opened in the place of a
    // closed one.
    match unsafe { libc::dup2(full.as_raw_fd(), libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_runner_gives_a_standard_output() {
        check().expect("it is open");
    }
}
