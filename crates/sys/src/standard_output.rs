//! Standard output, as the program was given it.
//!
//! A program that is started without standard output (`program >&-`) finds the descriptor closed. The standard library opens /dev/null in its
//! place before `main`, so that no file which is opened later takes the number; what is written there is lost, and no call fails. The
//! look here is earlier: the dynamic linker calls it before the library starts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the dynamic linker as the program or library is loaded (System V ABI, chapter 5, "Initialization and Termination Functions").
#[used]
// SAFETY: the section holds pointers to functions of the C calling convention, which `look` is. It allocates nothing and
// relies on nothing of the standard library that would have to be set up.
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
/// EBADF if it was closed: what is written there is lost.
pub fn check() -> io::Result<()> {
    match IS_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => Ok(()),
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
