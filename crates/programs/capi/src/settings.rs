//! The settings of a handle before it is activated.

use std::ffi::c_int;

use tapline_capture::af_packet::TimestampSource;

/// The longest packet: libpcap's `MAXIMUM_SNAPLEN`.
pub(crate) const SNAP_LEN_MAX: c_int = 262_144;

/// Settings by `pcap_set_*`; by default those of a fresh `pcap_create`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) snap_len: c_int,
    pub(crate) promiscuous: bool,
    pub(crate) rfmon: bool,
    pub(crate) timeout_ms: c_int,
    pub(crate) is_immediate: bool,
    /// Bytes of the kernel's buffer.
    pub(crate) buffer_len: Option<u32>,
    /// Bytes of it that wake the reader before the timeout.
    pub(crate) wake_len: Option<u32>,
    /// The clock that stamps packets.
    pub(crate) timestamps: Option<TimestampSource>,
    /// The protocol to receive; 0 for all.
    pub(crate) protocol: u16,
}

impl Settings {
    /// The snap length as libpcap takes it: what makes no sense means everything.
    pub(crate) fn snap_len_or_max(&self) -> c_int {
        if self.snap_len <= 0 { SNAP_LEN_MAX } else { self.snap_len.min(SNAP_LEN_MAX) }
    }

    /// Milliseconds that packets may wait in the kernel; `None` if the program does not care.
    pub(crate) fn latency_ms(&self) -> Option<u32> {
        match self.timeout_ms {
            _ if self.is_immediate => Some(1),
            timeout if timeout > 0 => Some(timeout as u32),
            _ => None,
        }
    }
}
