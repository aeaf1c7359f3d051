//! Other processes and groups of them: kill(2), prctl(2).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// Has the process of a command get SIGTERM when the thread that starts it ends, even if it is killed.
/// [`drop_to`](crate::privilege::drop_to) keeps this; another change of user or capabilities cancels it. The command does
/// not begin if that thread's process has ended by then.
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let ask = move || {
        set_parent_signal(libc::SIGTERM).map_err(|error| error.source)?;
        // SAFETY: getppid(2) cannot fail and has no conditions.
        match unsafe { libc::getppid() } as u32 == parent {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec only prctl(2) and getppid(2) are called, which allocate nothing and take no lock.
    unsafe { command.pre_exec(ask) }
}

/// The signal that the end of the parent sends to this process; 0 for none.
pub(crate) fn parent_signal() -> Result<i32, SyscallError> {
    let mut signal = 0;
    // SAFETY: the kernel writes an integer to `signal`, which lives through the call.
    check("prctl(PR_GET_PDEATHSIG)", unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) })?;
    Ok(signal)
}

pub(crate) fn set_parent_signal(signal: i32) -> Result<(), SyscallError> {
    // SAFETY: prctl(2) with this option takes integers only.
    check("prctl(PR_SET_PDEATHSIG)", unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).map(|_| ())
}

/// The number of the calling thread.
pub fn thread() -> u32 {
    // SAFETY: gettid(2) cannot fail and has no conditions.
    unsafe { libc::gettid() as u32 }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::thread;

    use super::*;

    #[test]
    fn a_command_ends_with_the_thread_that_began_it() {
        let begin = || {
            let mut command = Command::new("sleep");
            end_with_parent(&mut command).arg("1000").stdin(Stdio::null()).spawn().unwrap()
        };
        let mut child = thread::spawn(begin).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

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
