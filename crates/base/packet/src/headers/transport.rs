//! Transport headers: ports, and where the payload is.
//!
//! ```text
//! TCP   source 2 | destination 2 | sequence 4 | acknowledgement 4 | words 4b, ... | ... | options
//! UDP   source 2 | destination 2 | length 2 | sum 2
//! SCTP  source 2 | destination 2 | tag 4 | sum 4
//! ICMP  type 1 | code 1 | sum 2 | 4 bytes that depend on the type
//! ```
//!
//! Sources: RFC 9293, 3.1; RFC 768; RFC 9260, 3.1; RFC 792; RFC 4443, 2.1.

use super::read::{array, u8_at};
use super::{Headers, PackedOffset};
use crate::numbers::ip_protocol::{ICMP, ICMPV6, SCTP, TCP, UDP, has_ports};

const TCP_LEN: usize = 20;
pub(super) const UDP_LEN: usize = 8;
const ICMP_LEN: usize = 8;
const SCTP_LEN: usize = 12;

impl Headers {
    /// Source and destination port of TCP, UDP or SCTP; `None` for other protocols, in later fragments, and if they
    /// were not captured.
    ///
    /// `data` must be the parsed bytes; with other bytes any answer may come, but no panic.
    #[inline]
    pub fn ports(&self, data: &[u8]) -> Option<(u16, u16)> {
        let at = self.l4()?;
        if !has_ports(self.protocol?) || at + 4 > self.ip_end() {
            return None;
        }
        let &[s0, s1, d0, d1] = array(data, at)?;
        Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }

    /// The header of `protocol` at `at` in a packet that ends at `end`.
    #[inline(always)]
    pub(super) fn walk_transport(&mut self, data: &[u8], protocol: u8, at: usize, end: usize) -> Option<()> {
        if at > end {
            return None;
        }
        self.l4 = PackedOffset::at(at);
        let header_len = match protocol {
            TCP => Some(usize::from(u8_at(data, at + 12)? >> 4) * 4).filter(|len| *len >= TCP_LEN)?,
            UDP => UDP_LEN,
            ICMP | ICMPV6 => ICMP_LEN,
            SCTP => SCTP_LEN,
            _ => return None,
        };
        if at + header_len <= end {
            self.payload = PackedOffset::at(at + header_len);
        }
        Some(())
    }
}
