//! A program at an interface, before the stack: XDP.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::attributes::{LinkCreate, LinkUpdate};
use super::{LoadedProgram, call, command, open};
use crate::SyscallError;

/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;

/// The place of the program in a packet's path. The numbers are `XDP_FLAGS_*` of linux/if_link.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it can, else in the stack.
    #[default]
    Any = 0,
    /// In the stack, on any interface; every packet was copied into a socket buffer before.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

/// An XDP program at an interface. Dropping this detaches the program, and so does the death of the process.
///
/// Minimum kernel: 5.9. Needs `CAP_NET_ADMIN`.
#[derive(Debug)]
pub struct XdpLink {
    fd: OwnedFd,
}

impl XdpLink {
    /// Lets the program see every packet that the interface receives.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EBUSY` or `EEXIST` if another program is there, which stays; `EOPNOTSUPP` if
    /// the driver knows no XDP and `mode` asks for it; `EINVAL` if there is no such interface, and before kernel 5.9.
    pub fn attach(program: &LoadedProgram, if_index: u32, mode: XdpMode) -> Result<XdpLink, SyscallError> {
        let mut attributes = LinkCreate {
            prog_fd: program.as_fd().as_raw_fd() as u32,
            target_ifindex: if_index,
            attach_type: ATTACH_XDP,
            flags: mode as u32,
        };
        // SAFETY: no address in it; the command returns a descriptor.
        let fd = unsafe { open("bpf(BPF_LINK_CREATE, XDP)", command::LINK_CREATE, &mut attributes)? };
        Ok(XdpLink { fd })
    }

    /// Puts another program in the place of the present one, with no packet between them.
    ///
    /// # Errors
    /// `ENOLINK` if the interface is gone; `EINVAL` for a program of another kind.
    pub fn replace(&self, program: &LoadedProgram) -> Result<(), SyscallError> {
        let mut attributes = LinkUpdate {
            link_fd: self.fd.as_raw_fd() as u32,
            new_prog_fd: program.as_fd().as_raw_fd() as u32,
            ..LinkUpdate::default()
        };
        // SAFETY: no address in it.
        unsafe { call("bpf(BPF_LINK_UPDATE)", command::LINK_UPDATE, &mut attributes)? };
        Ok(())
    }
}

impl AsFd for XdpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
