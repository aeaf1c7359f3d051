//! The five-tuple: one direction of one flow.

use std::fmt;
use std::net::IpAddr;

use super::Headers;
use crate::numbers::ip_protocol::{SCTP, TCP, UDP, has_ports};

/// One direction of a flow. As text it is a filter: `ip src host 192.0.2.1 and ip dst host 192.0.2.2 and tcp src port
/// 1024 and tcp dst port 80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// The source address.
    pub src: IpAddr,
    /// The destination address, of the same IP version.
    pub dst: IpAddr,
    /// 6 TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// The port that it comes from; 0 where the protocol has none.
    pub src_port: u16,
    /// The port that it goes to; 0 where the protocol has none.
    pub dst_port: u16,
}

impl FiveTuple {
    /// The other direction.
    #[must_use]
    pub fn reversed(self) -> FiveTuple {
        let FiveTuple { src, dst, src_port, dst_port, .. } = self;
        FiveTuple { src: dst, dst: src, src_port: dst_port, dst_port: src_port, ..self }
    }

    /// Orders the ends, so that both directions give the same tuple: the lower address first, or the lower port if
    /// the addresses are equal.
    #[must_use]
    pub fn canonical(self) -> FiveTuple {
        if (self.src, self.src_port) <= (self.dst, self.dst_port) { self } else { self.reversed() }
    }
}

/// The transports whose ports filters can name.
const NAMES: [(u8, &str); 3] = [(TCP, "tcp"), (UDP, "udp"), (SCTP, "sctp")];

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FiveTuple { src, dst, protocol, src_port, dst_port } = self;
        let ip = if src.is_ipv4() { "ip" } else { "ip6" };
        let Some((_, name)) = NAMES.iter().find(|(number, _)| number == protocol) else {
            return write!(f, "{ip} proto {protocol} and {ip} src host {src} and {ip} dst host {dst}");
        };
        write!(f, "{ip} src host {src} and {ip} dst host {dst} and ")?;
        write!(f, "{name} src port {src_port} and {name} dst port {dst_port}")
    }
}

impl Headers {
    /// The flow that an IP packet belongs to. The ports are 0 where the protocol has none, and in later fragments.
    ///
    /// Returns `None` if there is no IP, or if the expected ports were not captured.
    #[inline]
    pub fn five_tuple(&self, data: &[u8]) -> Option<FiveTuple> {
        let (src, dst) = self.addresses(data)?;
        let protocol = self.protocol?;
        let is_later = self.fragment.is_some_and(|fragment| fragment.is_later());
        let (src_port, dst_port) = match has_ports(protocol) && !is_later {
            true => self.ports(data)?,
            false => (0, 0),
        };
        Some(FiveTuple { src, dst, protocol, src_port, dst_port })
    }
}
