//! Applications: by the payload, else by the port.

use tapline_dissect::application::{self, Sign};
use tapline_dissect::{Detection, quic};
use tapline_packet::numbers::ip_protocol::{TCP, UDP};

/// The name of an application: that of IANA's registry of service names, where it has one.
pub type Application = &'static str;

tapline_packet::named_enum! {
    /// The way in which an application was found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FoundBy {
        /// By the payload.
        Content = "content",
        /// By the port alone: another protocol may use it.
        Port = "port",
    }
}

pub(super) const DNS: Application = "domain";
pub(super) const HTTP: Application = "http";
pub(super) const TLS: Application = "tls";
pub(super) const SSH: Application = "ssh";
pub(super) const QUIC: Application = "quic";
/// IANA registers no name for DTLS.
pub(super) const DTLS: Application = "dtls";

const BOTH: u8 = 0;

/// Ports of servers (IANA, Service Name and Transport Protocol Port Number Registry), in ascending order.
const PORTS: &[(u16, u8, Application)] = &[
    (7, BOTH, "echo"),
    (20, TCP, "ftp-data"),
    (21, TCP, "ftp"),
    (22, TCP, SSH),
    (23, TCP, "telnet"),
    (25, TCP, "smtp"),
    (43, TCP, "nicname"),
    (49, TCP, "tacacs"),
    (53, BOTH, DNS),
    (67, UDP, "bootps"),
    (68, UDP, "bootpc"),
    (69, UDP, "tftp"),
    (80, TCP, HTTP),
    (88, BOTH, "kerberos"),
    (110, TCP, "pop3"),
    (111, BOTH, "sunrpc"),
    (119, TCP, "nntp"),
    (123, UDP, "ntp"),
    (135, TCP, "epmap"),
    (137, UDP, "netbios-ns"),
    (138, UDP, "netbios-dgm"),
    (139, TCP, "netbios-ssn"),
    (143, TCP, "imap"),
    (161, UDP, "snmp"),
    (162, UDP, "snmptrap"),
    (179, TCP, "bgp"),
    (389, BOTH, "ldap"),
    (443, TCP, "https"),
    (443, UDP, QUIC),
    (445, TCP, "microsoft-ds"),
    (465, TCP, "submissions"),
    (500, UDP, "isakmp"),
    (514, UDP, "syslog"),
    (515, TCP, "printer"),
    (520, UDP, "router"),
    (546, UDP, "dhcpv6-client"),
    (547, UDP, "dhcpv6-server"),
    (554, TCP, "rtsp"),
    (587, TCP, "submission"),
    (631, BOTH, "ipp"),
    (636, TCP, "ldaps"),
    (646, BOTH, "ldp"),
    (853, TCP, "domain-s"),
    (853, UDP, "domain-s"),
    (873, TCP, "rsync"),
    (989, TCP, "ftps-data"),
    (990, TCP, "ftps"),
    (993, TCP, "imaps"),
    (995, TCP, "pop3s"),
    (1194, BOTH, "openvpn"),
    (1433, TCP, "ms-sql-s"),
    (1521, TCP, "oracle"),
    (1701, UDP, "l2tp"),
    (1723, TCP, "pptp"),
    (1812, UDP, "radius"),
    (1813, UDP, "radius-acct"),
    (1883, TCP, "mqtt"),
    (1900, UDP, "ssdp"),
    (2049, BOTH, "nfs"),
    (2055, UDP, "netflow"),
    (2123, UDP, "gtp-control"),
    (2152, UDP, "gtp-user"),
    (3260, TCP, "iscsi-target"),
    (3306, TCP, "mysql"),
    (3389, BOTH, "ms-wbt-server"),
    (3478, BOTH, "stun"),
    (3784, UDP, "bfd-control"),
    (4500, UDP, "ipsec-nat-t"),
    (4739, BOTH, "ipfix"),
    (4789, UDP, "vxlan"),
    (5060, BOTH, "sip"),
    (5061, TCP, "sips"),
    (5222, TCP, "xmpp-client"),
    (5353, UDP, "mdns"),
    (5355, UDP, "llmnr"),
    (5432, TCP, "postgresql"),
    (5672, TCP, "amqp"),
    (5900, TCP, "rfb"),
    (6081, UDP, "geneve"),
    (6343, UDP, "sflow"),
    (6379, TCP, "redis"),
    (8080, TCP, "http-alt"),
    (8443, TCP, "pcsync-https"),
    (8883, TCP, "secure-mqtt"),
    (9100, TCP, "pdl-datastream"),
    (27017, TCP, "mongodb"),
    (51820, UDP, "wireguard"),
];

/// The application registered for a port: the destination's port of the first packet comes before the source's.
pub(super) fn of_ports(protocol: u8, caller: u16, called: u16) -> Option<Application> {
    of_port(protocol, called).or_else(|| of_port(protocol, caller))
}

fn of_port(protocol: u8, port: u16) -> Option<Application> {
    let first = PORTS.partition_point(|(known, ..)| *known < port);
    let here = PORTS[first..].iter().take_while(|(known, ..)| *known == port);
    let mut fits = here.filter(|(_, of, _)| *of == protocol || *of == BOTH && [TCP, UDP].contains(&protocol));
    fits.next().map(|(_, _, name)| *name)
}

/// The application that the first bytes of a TCP stream show, for protocols that are recognised by nothing else.
pub(super) fn of_stream(bytes: &[u8]) -> Option<Application> {
    bytes.starts_with(b"SSH-").then_some(SSH)
}

/// The application that the first payload of a flow shows, else that of its ports: `caller` sent the flow's first
/// packet to `called`. `None` if neither is known.
pub fn recognise(protocol: u8, caller: u16, called: u16, payload: &[u8]) -> Option<Application> {
    let shown = match protocol {
        TCP => of_stream(payload).or_else(|| of_first_bytes(payload)).or_else(|| of_text_or_record(payload)),
        UDP => of_datagram(payload),
        _ => None,
    };
    shown.or_else(|| of_ports(protocol, caller, called))
}

/// The names that [`recognise`] may give.
pub fn names() -> impl Iterator<Item = Application> {
    PORTS.iter().map(|(_, _, name)| *name).chain([TLS, DTLS])
}

fn of_first_bytes(bytes: &[u8]) -> Option<Application> {
    match application::of_stream(bytes, true) {
        Detection::Match(Sign::Application(name)) => Some(name),
        _ => None,
    }
}

/// A request or answer of HTTP/1, or a handshake record of TLS.
fn of_text_or_record(bytes: &[u8]) -> Option<Application> {
    const BEGINS: [&[u8]; 10] = [
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"CONNECT ",
        b"TRACE ",
        b"HTTP/1.",
    ];
    match bytes {
        [22, 3, 0..=4, ..] => Some(TLS),
        _ if BEGINS.iter().any(|begin| bytes.starts_with(begin)) => Some(HTTP),
        _ => None,
    }
}

/// A long header of QUIC, version 1 or 2 (RFC 9000 17.2, RFC 9369), a handshake record of DTLS, or the first bytes of
/// another protocol.
fn of_datagram(bytes: &[u8]) -> Option<Application> {
    match bytes {
        _ if quic::has_long_header(bytes) => Some(QUIC),
        [22, 0xfe, 0xfd | 0xff, ..] => Some(DTLS),
        _ => application::of_datagram(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_order_and_found() {
        assert!(PORTS.is_sorted_by_key(|(port, ..)| port));
        assert_eq!(of_ports(TCP, 51000, 443), Some("https"));
        assert_eq!(of_ports(UDP, 51000, 443), Some("quic"));
        // The answer was seen first; a port of a server calls another.
        assert_eq!(of_ports(TCP, 80, 51000), Some("http"));
        assert_eq!(of_ports(UDP, 53, 123), Some("ntp"));
        assert_eq!(
            (of_ports(UDP, 80, 51001), of_ports(1, 0, 53), of_ports(TCP, 40000, 50000)),
            (None, None, None)
        );
    }

    #[test]
    fn payloads_are_recognised_before_ports() {
        let tcp = |payload: &[u8]| recognise(TCP, 50_000, 443, payload);
        assert_eq!(tcp(b""), Some("https"));
        assert_eq!(tcp(&[22, 3, 1, 2, 0, 1]), Some("tls"));
        assert_eq!(tcp(b"SSH-2.0-x"), Some("ssh"));
        assert_eq!(tcp(b"GET / HTTP/1.1"), Some("http"));
        assert_eq!(tcp(b"GETTING"), Some("https"));
        assert_eq!(recognise(UDP, 50_000, 50_001, &[0xc3, 0, 0, 0, 1, 8]), Some("quic"));
        assert_eq!(recognise(UDP, 50_000, 50_001, &[0xc3, 0, 0, 0, 9, 8]), None);
        // Without the QUIC bit the connection IDs tell it from RTP.
        assert_eq!(recognise(UDP, 50_000, 50_001, &[0x83, 0, 0, 0, 1, 1, 7, 1, 9]), Some("quic"));
        assert_eq!(recognise(UDP, 50_000, 50_001, &[0x80, 0, 0, 0, 1, 160, 7, 1, 9]), None);
        assert_eq!(recognise(UDP, 50_000, 50_001, &[22, 0xfe, 0xfd]), Some("dtls"));
        assert_eq!(tcp(b"*1\r\n$4\r\nPING\r\n"), Some("redis"));
        assert_eq!(tcp(b"220 ready\r\n"), Some("https"));
        assert_eq!(recognise(UDP, 50_000, 50_001, b"OPTIONS sip:a@b SIP/2.0\r\n"), Some("sip"));
        assert_eq!(recognise(UDP, 50_000, 53, &[1]), Some("domain"));
        assert!(["tls", "domain", "sip"].iter().all(|name| names().any(|known| known == *name)));
    }
}
