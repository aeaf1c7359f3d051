//! Chooses the application of a payload by its ports: one table for text and JSON.
//!
//! If both ports have a service, the first of the two in this table holds: down to the mark, that is the order in which
//! tcpdump asks (print-tcp.c, print-udp.c). Services below the mark are known to JSON only.

use tapline_packet::numbers::ip_protocol::{TCP, UDP};

use super::{bfd, nfs};

/// The name of the service between two ports of a transport, if text or JSON know it. TLS and others that are
/// recognised by their first bytes are not among them.
pub fn service_name(protocol: u8, source: u16, destination: u16) -> Option<&'static str> {
    match protocol {
        TCP => TcpService::of(source, destination).map(TcpService::name),
        UDP => UdpService::of(source, destination).map(UdpService::name),
        _ => None,
    }
}

/// A service over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TcpService {
    Telnet,
    Smtp,
    Whois,
    Bgp,
    Redis,
    Ssh,
    OpenFlow,
    Ftp,
    Http,
    Rtsp,
    Rpki,
    Ldp,
    Dns,
    Nfs,
    // Known to JSON only.
    Submission,
    Pop3,
    Imap,
    Sip,
    Irc,
}

impl TcpService {
    /// The service of a segment between two ports.
    pub(crate) fn of(source: u16, destination: u16) -> Option<TcpService> {
        first(TcpService::of_port(source), TcpService::of_port(destination))
    }

    fn name(self) -> &'static str {
        match self {
            TcpService::Telnet => "telnet",
            TcpService::Smtp | TcpService::Submission => "smtp",
            TcpService::Whois => "whois",
            TcpService::Bgp => "bgp",
            TcpService::Redis => "redis",
            TcpService::Ssh => "ssh",
            TcpService::OpenFlow => "openflow",
            TcpService::Ftp => "ftp",
            TcpService::Http => "http",
            TcpService::Rtsp => "rtsp",
            TcpService::Rpki => "rpki",
            TcpService::Ldp => "ldp",
            TcpService::Dns => "dns",
            TcpService::Nfs => "nfs",
            TcpService::Pop3 => "pop3",
            TcpService::Imap => "imap",
            TcpService::Sip => "sip",
            TcpService::Irc => "irc",
        }
    }

    fn of_port(port: u16) -> Option<TcpService> {
        Some(match port {
            21 => TcpService::Ftp,
            22 => TcpService::Ssh,
            23 => TcpService::Telnet,
            25 => TcpService::Smtp,
            43 => TcpService::Whois,
            53 => TcpService::Dns,
            80 | 8080 => TcpService::Http,
            110 => TcpService::Pop3,
            143 => TcpService::Imap,
            179 => TcpService::Bgp,
            323 => TcpService::Rpki,
            554 | 8554 => TcpService::Rtsp,
            587 => TcpService::Submission,
            646 => TcpService::Ldp,
            nfs::PORT => TcpService::Nfs,
            5060 => TcpService::Sip,
            6379 => TcpService::Redis,
            6633 | 6653 => TcpService::OpenFlow,
            6667 => TcpService::Irc,
            _ => return None,
        })
    }
}

tapline_packet::named_enum! {
    /// A service over UDP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum UdpService {
        Nfs = "nfs",
        Dns = "dns",
        MulticastDns = "mdns",
        Tftp = "tftp",
        Dhcp = "dhcp",
        Isakmp = "isakmp",
        /// ISAKMP and ESP through translators of addresses (RFC 3948).
        IpsecTraversal = "udpencap",
        Rip = "rip",
        Snmp = "snmp",
        Ntp = "ntp",
        Kerberos = "kerberos",
        L2tp = "l2tp",
        RipNg = "ripng",
        Dhcpv6 = "dhcpv6",
        Babel = "babel",
        Hsrp = "hsrp",
        Radius = "radius",
        Ldp = "ldp",
        Olsr = "olsr",
        LspPing = "mpls-echo",
        Bfd = "bfd",
        Sflow = "sflow",
        Sip = "sip",
        Syslog = "syslog",
        Vxlan = "vxlan",
        Geneve = "geneve",
        Lisp = "lisp",
        VxlanGpe = "vxlan-gpe",
        Ptp = "ptp",
        // Known to JSON only.
        Llmnr = "llmnr",
        GtpU = "gtp",
        Quic = "quic",
    }
}

impl UdpService {
    /// The service of a datagram between two ports.
    pub(crate) fn of(source: u16, destination: u16) -> Option<UdpService> {
        let of_destination = UdpService::of_port(destination).or(match destination {
            // Only datagrams to these ports are of the service.
            1985 => Some(UdpService::Hsrp),
            bfd::CONTROL | bfd::ECHO | bfd::MULTIHOP | bfd::LAG => Some(UdpService::Bfd),
            _ => None,
        });
        first(UdpService::of_port(source), of_destination)
    }

    /// The service of the other port, where one port is NFS's.
    pub(crate) fn beside_nfs(source: u16, destination: u16) -> Option<UdpService> {
        let other = |port| if port == nfs::PORT { 0 } else { port };
        UdpService::of(other(source), other(destination))
    }

    fn of_port(port: u16) -> Option<UdpService> {
        Some(match port {
            53 => UdpService::Dns,
            67 | 68 => UdpService::Dhcp,
            69 => UdpService::Tftp,
            88 | 750 => UdpService::Kerberos,
            123 => UdpService::Ntp,
            161 | 162 => UdpService::Snmp,
            319 | 320 => UdpService::Ptp,
            443 => UdpService::Quic,
            500 => UdpService::Isakmp,
            514 => UdpService::Syslog,
            520 => UdpService::Rip,
            521 => UdpService::RipNg,
            546 | 547 => UdpService::Dhcpv6,
            646 => UdpService::Ldp,
            698 => UdpService::Olsr,
            1645 | 1646 | 1700 | 1812 | 1813 | 3799 => UdpService::Radius,
            1701 => UdpService::L2tp,
            nfs::PORT => UdpService::Nfs,
            2152 => UdpService::GtpU,
            3503 => UdpService::LspPing,
            4342 => UdpService::Lisp,
            4500 => UdpService::IpsecTraversal,
            4789 => UdpService::Vxlan,
            4790 => UdpService::VxlanGpe,
            5060 => UdpService::Sip,
            5353 => UdpService::MulticastDns,
            5355 => UdpService::Llmnr,
            6081 => UdpService::Geneve,
            6343 => UdpService::Sflow,
            6696 | 6697 => UdpService::Babel,
            _ => return None,
        })
    }
}

fn first<S: Ord>(one: Option<S>, other: Option<S>) -> Option<S> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_that_tcpdump_asks_for_first_holds() {
        assert_eq!(TcpService::of(80, 23), Some(TcpService::Telnet));
        assert_eq!(TcpService::of(53, 8080), Some(TcpService::Http));
        assert_eq!(TcpService::of(40_000, 110), Some(TcpService::Pop3));
        assert_eq!(UdpService::of(443, 53), Some(UdpService::Dns));
        assert_eq!(UdpService::of(40_000, 50_000), None);
    }

    #[test]
    fn some_services_are_those_of_the_destination() {
        assert_eq!(UdpService::of(3784, 40_000), None);
        assert_eq!(UdpService::of(40_000, 3784), Some(UdpService::Bfd));
        assert_eq!(UdpService::of(1985, 1985), Some(UdpService::Hsrp));
    }
}
