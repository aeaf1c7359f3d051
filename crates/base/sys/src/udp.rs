//! UDP sockets: several datagrams in one call, udp(7).

use std::os::fd::BorrowedFd;

use crate::{SyscallError, option};

/// The most datagrams of one call (`UDP_MAX_SEGMENTS` of Linux 4.18; later kernels take 128).
pub const SEGMENTS_MAX: usize = 64;
/// The most bytes of one call: a packet of 65,535 bytes less the headers of IPv6 and UDP.
pub const SEGMENTS_LEN_MAX: usize = 65_535 - 40 - 8;

/// Makes the kernel cut the bytes of one call into datagrams of `len` bytes each, the last of which may be shorter; 0
/// sends it as one datagram (UDP_SEGMENT). Minimum kernel: 4.18.
///
/// # Errors
/// The error of setsockopt(2): `ENOPROTOOPT` from an older kernel. A later send may fail with `EIO` or `EINVAL` where the
/// device or the path cannot do it.
pub fn set_segment_len(socket: BorrowedFd<'_>, len: u16) -> Result<(), SyscallError> {
    let len = libc::c_int::from(len);
    option::set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, "setsockopt(UDP_SEGMENT)", &len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn one_call_sends_several_datagrams() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        if let Err(error) = set_segment_len(sender.as_fd(), 100) {
            return eprintln!("skipped: one_call_sends_several_datagrams: {error}");
        }
        let bytes: Vec<u8> = (0..350).map(|at| (at / 100) as u8).collect();
        assert_eq!(sender.send(&bytes).unwrap(), 350);
        set_segment_len(sender.as_fd(), 0).unwrap();
        assert_eq!(sender.send(&bytes).unwrap(), 350);
        let mut buffer = [9; 1000];
        for (len, first) in [(100, 0), (100, 1), (100, 2), (50, 3), (350, 0)] {
            assert_eq!(receiver.recv(&mut buffer).unwrap(), len);
            assert_eq!(buffer[0], first);
        }
    }
}
