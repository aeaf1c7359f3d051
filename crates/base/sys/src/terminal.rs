//! The terminal: how large it is, and its keys one by one. termios(3), ioctl_tty(2).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::SyscallError;
use crate::error::{check, check_len};

/// Columns and lines of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Letters in a line.
    pub columns: u16,
    /// Lines.
    pub lines: u16,
}

impl TerminalSize {
    /// Size of the terminal behind this descriptor; `None` if it is not a terminal, or does not report its size.
    pub fn of(fd: BorrowedFd<'_>) -> Option<TerminalSize> {
        // SAFETY: all-zero bytes are a valid winsize, and TIOCGWINSZ writes one.
        let size = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            let result = libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size);
            (result == 0).then_some(size)
        }?;
        (size.ws_col > 0 && size.ws_row > 0)
            .then_some(TerminalSize { columns: size.ws_col, lines: size.ws_row })
    }
}

/// A terminal that gives its keys at once and does not show them. Ctrl-C still is a signal. As it was when dropped.
pub struct KeyInput {
    fd: OwnedFd,
    before: libc::termios,
}

impl KeyInput {
    /// Takes key input from the terminal behind this descriptor.
    ///
    /// # Errors
    /// The error of tcgetattr(3), dup(2) or tcsetattr(3), such as that it is not a terminal.
    pub fn new(fd: BorrowedFd<'_>) -> Result<KeyInput, SyscallError> {
        let fd = fd.try_clone_to_owned().map_err(|source| SyscallError { call: "fcntl(F_DUPFD)", source })?;
        let raw = fd.as_raw_fd();
        // SAFETY: all-zero bytes are a valid termios, and tcgetattr(3) writes one.
        let before = unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            check("tcgetattr", libc::tcgetattr(raw, &raw mut before))?;
            before
        };
        let mut now = before;
        now.c_lflag &= !(libc::ICANON | libc::ECHO);
        // A read gives what there is, and waits for nothing.
        (now.c_cc[libc::VMIN], now.c_cc[libc::VTIME]) = (0, 0);
        // SAFETY: `now` is a termios of the same terminal.
        check("tcsetattr", unsafe { libc::tcsetattr(raw, libc::TCSANOW, &raw const now) })?;
        Ok(KeyInput { fd, before })
    }

    /// A key that was pressed, if one was.
    ///
    /// # Errors
    /// The error of read(2).
    pub fn key(&self) -> Result<Option<u8>, SyscallError> {
        let mut key = 0_u8;
        // SAFETY: one byte may be written to `key`.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut key).cast(), 1) };
        match check_len("read", read) {
            Ok(read) => Ok((read == 1).then_some(key)),
            Err(error) if error.errno() == libc::EINTR => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for KeyInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for KeyInput {
    fn drop(&mut self) {
        // SAFETY: `before` is what this terminal had. If it is gone, nothing is left to be put right.
        unsafe { libc::tcsetattr(self.fd.as_raw_fd(), libc::TCSANOW, &raw const self.before) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(TerminalSize::of(file.as_fd()), None);
        assert!(KeyInput::new(file.as_fd()).is_err());
    }
}
