//! Capabilities of the calling thread: capabilities(7).

use crate::SyscallError;
use crate::error::check;

/// A right that capturing needs. The numbers are those of linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To open and make files whatever their mode and their folder's is.
    DacOverride = 1,
    /// To change a file group or groups: needed to drop privileges to another user.
    SetGid = 6,
    /// To change the user.
    SetUid = 7,
    /// To change interfaces: hardware timestamps.
    NetAdmin = 12,
    /// To open packet sockets.
    NetRaw = 13,
    /// To lock memory beyond the limit: AF_XDP before kernel 5.11 counts its buffers so.
    IpcLock = 14,
    /// To enter another network namespace.
    SysAdmin = 21,
    /// To run before others, and on processors of one's choice.
    SysNice = 23,
    /// For programs in the kernel that compute pointers, since 5.8.
    Perfmon = 38,
    /// To load programs into the kernel, since 5.8.
    Bpf = 39,
}

impl Capability {
    /// Name, as setcap(8) knows it.
    pub fn name(self) -> &'static str {
        match self {
            Capability::DacOverride => "CAP_DAC_OVERRIDE",
            Capability::SetGid => "CAP_SETGID",
            Capability::SetUid => "CAP_SETUID",
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::IpcLock => "CAP_IPC_LOCK",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    /// Whether the calling thread has it in effect.
    ///
    /// # Errors
    /// The error of capget(2).
    pub fn is_effective(self) -> Result<bool, SyscallError> {
        Ok(effective()? & 1 << self as u32 != 0)
    }
}

/// Gives up all capabilities of the calling thread, for good.
pub(crate) fn drop_all() -> Result<(), SyscallError> {
    keep_only(&[])
}

/// Gives up all capabilities of the calling thread but these, which must be permitted and come into effect.
///
/// # Errors
/// `EPERM` if one of them is not permitted.
pub fn keep_only(kept: &[Capability]) -> Result<(), SyscallError> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let set = kept.iter().fold(0u64, |set, &capability| set | 1 << capability as u32);
    let half = |set: u32| Data { effective: set, permitted: set, inheritable: 0 };
    let data = [half(set as u32), half((set >> 32) as u32)];
    // SAFETY: both pointers are to values of the layout that version 3 asks for, which live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    check("capset", result as libc::c_int).map(|_| ())
}

/// The effective set of the calling thread, one bit for each capability.
///
/// # Errors
/// The error of capget(2).
pub fn effective() -> Result<u64, SyscallError> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: both pointers are to values of the layout that version 3 asks for; the kernel writes two `Data`.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    check("capget", result as libc::c_int)?;
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}

/// `_LINUX_CAPABILITY_VERSION_3`: two `Data`, 64 capabilities.
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_equals_that_of_proc() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        assert_eq!(effective().unwrap(), u64::from_str_radix(line.trim(), 16).unwrap());
    }

    #[test]
    fn a_thread_gives_up_its_own_only() {
        let before = effective().unwrap();
        std::thread::spawn(|| {
            drop_all().unwrap();
            assert!(!Capability::NetRaw.is_effective().unwrap());
        })
        .join()
        .unwrap();
        assert_eq!(effective().unwrap(), before);
    }
}
