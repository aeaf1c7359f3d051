//! The structures that C programs and this library hand to each other, laid out as `pcap/pcap.h` and `pcap/bpf.h` have
//! them.

use std::ffi::{c_char, c_int, c_uchar, c_uint};

use tapline_bpf::Insn;

/// Room for an error text in a caller's buffer: `PCAP_ERRBUF_SIZE`.
pub(crate) const ERRBUF_SIZE: usize = 256;

/// `PCAP_ERROR`: see the text.
pub(crate) const ERROR: c_int = -1;
/// `PCAP_ERROR_BREAK`: `pcap_breakloop` was called.
pub(crate) const ERROR_BREAK: c_int = -2;
/// `PCAP_ERROR_NOT_ACTIVATED`.
pub(crate) const ERROR_NOT_ACTIVATED: c_int = -3;
/// `PCAP_ERROR_ACTIVATED`.
pub(crate) const ERROR_ACTIVATED: c_int = -4;
/// `PCAP_ERROR_NO_SUCH_DEVICE`.
pub(crate) const ERROR_NO_SUCH_DEVICE: c_int = -5;
/// `PCAP_ERROR_RFMON_NOTSUP`.
pub(crate) const ERROR_RFMON_NOTSUP: c_int = -6;
/// `PCAP_ERROR_NOT_RFMON`.
pub(crate) const ERROR_NOT_RFMON: c_int = -7;
/// `PCAP_ERROR_PERM_DENIED`.
pub(crate) const ERROR_PERM_DENIED: c_int = -8;
/// `PCAP_ERROR_IFACE_NOT_UP`.
pub(crate) const ERROR_IFACE_NOT_UP: c_int = -9;
/// `PCAP_ERROR_CANTSET_TSTAMP_TYPE`.
pub(crate) const ERROR_CANTSET_TSTAMP_TYPE: c_int = -10;
/// `PCAP_ERROR_PROMISC_PERM_DENIED`.
pub(crate) const ERROR_PROMISC_PERM_DENIED: c_int = -11;
/// `PCAP_ERROR_TSTAMP_PRECISION_NOTSUP`.
pub(crate) const ERROR_TSTAMP_PRECISION_NOTSUP: c_int = -12;
/// `PCAP_WARNING`: see the text.
pub(crate) const WARNING: c_int = 1;
/// `PCAP_WARNING_PROMISC_NOTSUP`.
pub(crate) const WARNING_PROMISC_NOTSUP: c_int = 2;
/// `PCAP_WARNING_TSTAMP_TYPE_NOTSUP`.
pub(crate) const WARNING_TSTAMP_TYPE_NOTSUP: c_int = 3;

/// `PCAP_NETMASK_UNKNOWN`.
pub(crate) const NETMASK_UNKNOWN: u32 = 0xffff_ffff;

/// `DLT_EN10MB`.
pub(crate) const ETHERNET: c_int = 1;

/// `struct pcap_pkthdr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PacketHeader {
    /// The time; microseconds or nanoseconds in `tv_usec`, by the handle's precision.
    pub(crate) ts: libc::timeval,
    /// Captured bytes.
    pub(crate) cap_len: u32,
    /// Bytes on the wire.
    pub(crate) len: u32,
}

impl PacketHeader {
    pub(crate) const ZERO: PacketHeader =
        PacketHeader { ts: libc::timeval { tv_sec: 0, tv_usec: 0 }, cap_len: 0, len: 0 };
}

/// `pcap_handler`.
pub type Handler = unsafe extern "C" fn(*mut c_uchar, *const PacketHeader, *const c_uchar);

/// `struct bpf_program`. The instructions are malloc(3)'s.
#[repr(C)]
pub struct Code {
    pub(crate) len: c_uint,
    pub(crate) insns: *mut Insn,
}

/// `struct pcap_stat`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Stat {
    pub(crate) recv: c_uint,
    pub(crate) drop: c_uint,
    pub(crate) if_drop: c_uint,
}

/// `struct pcap_if`.
#[repr(C)]
pub struct Device {
    pub(crate) next: *mut Device,
    pub(crate) name: *mut c_char,
    pub(crate) description: *mut c_char,
    pub(crate) addresses: *mut DeviceAddress,
    pub(crate) flags: u32,
}

/// `struct pcap_addr`.
#[repr(C)]
pub struct DeviceAddress {
    pub(crate) next: *mut DeviceAddress,
    pub(crate) addr: *mut libc::sockaddr,
    pub(crate) netmask: *mut libc::sockaddr,
    pub(crate) broadaddr: *mut libc::sockaddr,
    pub(crate) dstaddr: *mut libc::sockaddr,
}

/// `struct pcap_samp`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Sampling {
    /// 0: all packets; 1: one of `value`; 2: the first that comes `value` milliseconds after the last.
    pub(crate) method: c_int,
    pub(crate) value: c_int,
}

/// `struct pcap_send_queue`.
#[repr(C)]
pub struct SendQueue {
    pub(crate) max_len: c_uint,
    pub(crate) len: c_uint,
    pub(crate) buffer: *mut c_char,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// The layouts of the headers by gcc on a 64-bit Linux.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn layouts_are_those_of_the_headers() {
        assert_eq!((size_of::<PacketHeader>(), offset_of!(PacketHeader, cap_len)), (24, 16));
        assert_eq!((size_of::<Code>(), offset_of!(Code, insns), size_of::<Insn>()), (16, 8, 8));
        assert_eq!((size_of::<Device>(), offset_of!(Device, flags)), (40, 32));
        assert_eq!((size_of::<DeviceAddress>(), size_of::<Stat>(), size_of::<SendQueue>()), (40, 12, 16));
    }
}
