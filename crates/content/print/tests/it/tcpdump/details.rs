//! Details of protocols: packets made for these tests, with the text that tcpdump 4.99.3 prints of them. Where that
//! version is installed, it is asked again.

use std::process::Command;

use tapline_packet::{Interface, LinkType, Meta};

use super::comparison::{printed, tcpdump};
use crate::captures::{self, Recorded};

/// A packet of a link type, of which `captured` bytes are kept.
fn packet(link_type: LinkType, bytes: &[u8], captured: usize) -> Recorded {
    Recorded {
        data: bytes[..captured.min(bytes.len())].to_vec(),
        meta: Meta { wire_len: bytes.len() as u32, ..Meta::default() },
        interface: Interface::new("", link_type),
    }
}

/// Compares our text of packets with the expected text, and with that of tcpdump.
fn check(flags: &str, packets: &[Recorded], expected: &str) {
    assert_eq!(String::from_utf8_lossy(&printed(flags, packets)), expected, "{flags}");
    let version = Command::new("tcpdump").arg("--version").output().map(|output| output.stdout);
    if !version.is_ok_and(|text| text.starts_with(b"tcpdump version 4.99.3")) {
        return;
    }
    let file = tempfile::NamedTempFile::with_suffix(".pcap").expect("a temporary file");
    let link_type = packets[0].interface.link_type;
    std::fs::write(file.path(), captures::pcap(link_type, packets)).expect("the file can be written");
    let theirs = tcpdump(flags, file.path()).expect("tcpdump reads the packets");
    assert_eq!(String::from_utf8_lossy(&theirs), expected, "tcpdump {flags}");
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

/// An Ethernet frame of an IPv4 packet from 10.0.0.`source` to 10.0.0.`destination`.
fn ipv4(ends: (u8, u8), protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    let mut frame = bytes("0180c20000000200000000010800");
    let start = frame.len();
    frame.extend([
        0x40 | (header_len / 4) as u8,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        1,
        0,
        0,
        64,
        protocol,
    ]);
    frame.extend([0, 0, 10, 0, 0, ends.0, 10, 0, 0, ends.1]);
    frame.extend(options);
    let checksum = tapline_packet::checksum::internet(&frame[start..]);
    frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Frames a UDP datagram.
fn udp(ends: (u8, u8), ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for word in [ports.0, ports.1, (8 + payload.len()) as u16, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(payload);
    ipv4(ends, 17, &[], &datagram)
}

/// An IKE message of version 1 with one hash payload.
fn isakmp(initiator: u8, responder: u8, exchange: u8, flags: u8, message: u8) -> Vec<u8> {
    let mut payload = vec![initiator; 8];
    payload.extend([responder; 8]);
    payload.extend([8, 0x10, exchange, flags, 0, 0, 0, message, 0, 0, 0, 36]);
    payload.extend([0, 0, 0, 8, 1, 2, 3, 4]);
    payload
}

#[test]
fn isakmp_tells_initiators_from_responders() {
    let packets = [
        udp((1, 2), (500, 500), &isakmp(1, 0, 2, 0, 0)),
        udp((2, 1), (500, 500), &isakmp(1, 2, 2, 0, 0)),
        udp((1, 2), (500, 500), &isakmp(1, 2, 2, 0, 0)),
        udp((3, 1), (500, 500), &isakmp(1, 2, 4, 0, 0)),
        udp((1, 2), (500, 500), &isakmp(9, 2, 5, 1, 7)),
        udp((1, 2), (500, 500), &isakmp(1, 2, 2, 4, 0)),
    ]
    .map(|frame| packet(LinkType::ETHERNET, &frame, usize::MAX));
    let expected = "\
IP 10.0.0.1.500 > 10.0.0.2.500: isakmp: phase 1 I ident
IP 10.0.0.2.500 > 10.0.0.1.500: isakmp: phase 1 R ident
IP 10.0.0.1.500 > 10.0.0.2.500: isakmp: phase 1 I ident
IP 10.0.0.3.500 > 10.0.0.1.500: isakmp: phase 1 ? agg
IP 10.0.0.1.500 > 10.0.0.2.500: isakmp: phase 2/others ? inf[E]
IP 10.0.0.1.500 > 10.0.0.2.500: isakmp: phase 1 I ident[]
";
    check("-nt", &packets, expected);
}

#[test]
fn cut_isakmp_bytes_start_after_the_link_header() {
    let frame = udp((1, 2), (500, 500), &isakmp(1, 0, 2, 0, 0));
    let expected = "IP 10.0.0.1.500 > 10.0.0.2.500:  [|isakmp]
\t0x0000:  4500 0040 0001 0000 4011 66aa 0a00 0001
\t0x0010:  0a00 0002 01f4 01f4 002c 0000 0101 0101
\t0x0020:  0101 0101 0000 0000 0000 0000 0810
";
    check("-ntx", &[packet(LinkType::ETHERNET, &frame, 60)], expected);
}

#[test]
fn ip_options_end_where_the_capture_ends() {
    // A route of 10 bytes holds two addresses, of which the second goes past the option.
    let route = [7, 10, 4, 1, 2, 3, 4, 5, 6, 7, 0, 0];
    let frame = ipv4((1, 2), 253, &route, &[0; 8]);
    let expected = "\
IP (tos 0x0, ttl 64, id 1, offset 0, flags [none], proto unknown (253), length 40, options (RR [bad length 10] \
1.2.3.4 [truncated-option]))
    10.0.0.1 > 10.0.0.2:  [|ip]
";
    check("-ntv", &[packet(LinkType::ETHERNET, &frame, 14 + 20 + 10)], expected);
}

/// A TCP segment of BGP from port 179, without data of its own before `payload`.
fn bgp(payload: &[u8]) -> Vec<u8> {
    let mut segment = bytes("00b30fa0000003e8000007d0501003e800000000");
    segment.extend(payload);
    ipv4((1, 2), 6, &[], &segment)
}

#[test]
fn bgp_messages_are_marked_where_they_are_cut() {
    let mut message = vec![0xff; 16];
    message.extend([0, 19, 4]);
    let mut late = vec![1, 2, 3];
    late.extend(&message);
    let mut long = message.clone();
    long[17] = 30;
    let head = |length: u16, data: u16| {
        format!(
            "IP (tos 0x0, ttl 64, id 1, offset 0, flags [none], proto TCP (6), length {length})\n    10.0.0.1.179 > \
             10.0.0.2.4000: Flags [.], seq 1000:{}, ack 2000, win 1000, length {data}: BGP",
            1000 + data
        )
    };
    let cases = [
        (late, format!("{} [|bgp]\n\tKeepalive Message (4), length: 19\n", head(62, 22))),
        (long, format!("{}\n[|BGP Keepalive]\n", head(59, 19))),
        (message[..17].to_vec(), format!("{} [|bgp]\n", head(57, 17))),
    ];
    for (payload, expected) in cases {
        check("-ntvSK", &[packet(LinkType::ETHERNET, &bgp(&payload), usize::MAX)], &expected);
    }
}

/// A management frame of 802.11 with addresses that end in ff, 1 and 2.
fn management(subtype: u8, flags: u8, body: &str) -> Vec<u8> {
    let mut frame = vec![subtype << 4, flags, 0, 0];
    frame.extend(bytes("ffffffffffff0200000000010200000000020000"));
    frame.extend(bytes(body));
    frame
}

#[test]
fn management_frames_show_their_result() {
    const FRAMES: &[(u8, u8, &str, &str)] = &[
        (1, 0, "1104000001c0010482848b96", "Assoc Response AID(1) : PRIVACY : Successful"),
        (
            1,
            0,
            "010011000000",
            "Assoc Response AID(0) :: Association denied because AP is unable to handle additional associated STAs",
        ),
        (3, 0, "0100c800ffff", "ReAssoc Response AID(3fff) :: n/a"),
        (2, 0, "01040a000200000000090003616263", "ReAssoc Request (abc) AP : 02:00:00:00:00:09"),
        (10, 0, "0800", "Disassociation: Disassociated because sending STA is leaving (or has left) BSS"),
        (12, 0, "0f00", "DeAuthentication (02:00:00:00:00:01): 4-Way Handshake timeout"),
        (12, 0, "4300", "DeAuthentication (02:00:00:00:00:01): Reserved"),
        (
            11,
            0,
            "000001000d00",
            "Authentication (Open System)-1: Responding STA does not support the specified authentication algorithm",
        ),
        (11, 0, "020003000000", "Authentication (EAP)-3: Successful"),
        (13, 0, "0300", "Action (02:00:00:00:00:01): BA ADDBA Request"),
        (13, 0, "0301", "Action (02:00:00:00:00:01): BA ADDBA Response"),
        (13, 0, "0302", "Action (02:00:00:00:00:01): BA DELBA"),
        (13, 0, "0309", "Action (02:00:00:00:00:01): BA Act#9"),
        (13, 0, "0f03", "Action (02:00:00:00:00:01): SelfprotectAction Peering Close"),
        (13, 0, "7f01", "Action (02:00:00:00:00:01): Vendor Act#1"),
        (13, 0, "2101", "Action (02:00:00:00:00:01): Reserved(33) Act#1"),
        (13, 0, "03", "Action [|802.11]"),
        (12, 0x40, "11223344", "DeAuthentication IV:332211 Pad 4 KeyID 1"),
    ];
    let mut packets = Vec::new();
    let mut expected = String::new();
    for (subtype, flags, body, text) in FRAMES {
        packets.push(packet(LinkType(105), &management(*subtype, *flags, body), usize::MAX));
        expected.push_str(text);
        expected.push('\n');
    }
    check("-nt", &packets, &expected);
}

#[test]
fn dhcpv6_names_servers_of_time_and_tunnels() {
    let mut message = bytes("07112233");
    // NTP server (RFC 5908): an address and a name; AFTR (RFC 6334): a name without its root.
    message
        .extend(bytes("0038002500010010fe8000000000000000000000000000010003000d036e7470076578616d706c6500"));
    message.extend(bytes("0040000e0461667472076578616d706c6500"));
    let frame = udp((1, 2), (547, 546), &message);
    let expected = "\
IP (tos 0x0, ttl 64, id 1, offset 0, flags [none], proto UDP (17), length 91)
    10.0.0.1.547 > 10.0.0.2.546: dhcp6 reply (xid=112233 (NTP-server subopt:1 fe80::1 subopt:3 ntp.example.) \
(AFTR-Name aftr.example))
";
    check("-ntv", &[packet(LinkType::ETHERNET, &frame, usize::MAX)], expected);
}
