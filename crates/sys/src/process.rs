//! Other processes and groups of them: kill(2).

use crate::SyscallError;
use crate::error::check;

/// Sends a signal to one process.
///
/// # Errors
/// `ESRCH` if there is none of this number (also 0, which would mean a group); `EPERM` if it is not ours.
pub fn signal(pid: u32, signal: i32) -> Result<(), SyscallError> {
    let one = i32::try_from(pid).ok().filter(|&pid| pid > 0);
    kill(one.ok_or(SyscallError::from_errno("kill", libc::ESRCH))?, signal)
}

/// Sends a signal to all processes of a group: the number of a group is that of the process that began it.
///
/// # Errors
/// `ESRCH` if there is none of this number (also 0 and 1, which would mean others); `EPERM` if none is ours.
pub fn signal_group(group: u32, signal: i32) -> Result<(), SyscallError> {
    let group = i32::try_from(group).ok().filter(|&group| group > 1);
    kill(-group.ok_or(SyscallError::from_errno("kill", libc::ESRCH))?, signal)
}

fn kill(pid: i32, signal: i32) -> Result<(), SyscallError> {
    // SAFETY: kill(2) takes integers only.
    check("kill", unsafe { libc::kill(pid, signal) }).map(|_| ())
}

/// The number of the calling thread.
pub fn thread() -> u32 {
    // SAFETY: gettid(2) cannot fail and has no conditions.
    unsafe { libc::gettid() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_there_and_groups_are_not_meant() {
        signal(std::process::id(), 0).unwrap();
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert_eq!(signal(pid, 0).unwrap_err().errno(), libc::ESRCH, "{pid}");
        }
        for group in [0, 1, u32::MAX, i32::MAX as u32] {
            assert_eq!(signal_group(group, 0).unwrap_err().errno(), libc::ESRCH, "{group}");
        }
    }
}
