//! IEEE 802.2 logical link control, SNAP, and their payload.
//!
//! ```text
//! destination SAP 1 (low bit: group) | source SAP 1 (low bit: response) | control 1 or 2
//! control: xxxxxx11 unnumbered, xxxxxx01 xxxxxxxP supervisory, xxxxxxx0 xxxxxxxP information
//! AA AA 03: SNAP = organization 3, protocol 2
//! ```

pub(crate) mod cdp;
mod dtp;
pub(crate) mod iso;
pub(crate) mod lldp;
pub(crate) mod slow;
mod stp;
mod udld;

use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::link::{self, ethertype};
use crate::text::Text;
use crate::{names, net};

/// The result of printing an LLC header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Llc {
    /// Bytes of LLC and SNAP headers: part of the link-layer header that `-x` leaves out.
    pub(crate) header_len: usize,
    /// `false` makes the caller show the bytes of the LLC frame.
    pub(crate) known: bool,
}

const SNAP_LEN: usize = 5;
/// Bytes before a bridged frame behind an LLC header (RFC 2684, 5.2).
const LLC_BRIDGE_PAD: usize = 2;
const UNNUMBERED_INFORMATION: u16 = 3;
const POLL_UNNUMBERED: u16 = 0x10;
const POLL: u16 = 0x100;
const EXCHANGE_IDENTIFICATION: u16 = 0xaf;

const GLOBAL: u8 = 0xff;
const IP: u8 = 0x06;
const SPANNING_TREE: u8 = 0x42;
const SNAP: u8 = 0xaa;
const IPX: u8 = 0xe0;
const ISO: u8 = 0xfe;

/// Service access points (IEEE 802.2, and those in use).
const ACCESS_POINTS: &[(u8, &str)] = &[
    (0x00, "Null"),
    (GLOBAL, "Global"),
    (0x02, "802.1B I"),
    (0x03, "802.1B G"),
    (IP, "IP"),
    (0x04, "SNA"),
    (0x0e, "ProWay NM"),
    (SPANNING_TREE, "STP"),
    (0x4e, "RS511"),
    (0x7e, "ISO8208"),
    (0x8e, "ProWay"),
    (SNAP, "SNAP"),
    (IPX, "IPX"),
    (0xf0, "NetBeui"),
    (ISO, "OSI"),
];

const COMMANDS: &[(u16, &str)] = &[
    (0x03, "ui"),
    (0xe3, "test"),
    (0xaf, "xid"),
    (0x63, "ua"),
    (0x43, "disc"),
    (0x0f, "dm"),
    (0x6f, "sabme"),
    (0x87, "frmr"),
];

const ETHERNET_ORGANIZATION: u32 = 0x00_0000;
const CISCO_BRIDGED: u32 = 0x00_00f8;
const CISCO: u32 = 0x00_000c;
const BRIDGED: u32 = 0x00_80c2;
const APPLETALK: u32 = 0x08_0007;

const CISCO_PROTOCOLS: &[(u16, &str)] = &[
    (0x2000, "CDP"),
    (0x2003, "VTP"),
    (0x2004, "DTP"),
    (0x0111, "UDLD"),
    (0x010b, "PVST"),
    (0x010c, "VLAN Bridge"),
];

/// Protocols that RFC 2684 bridges over ATM and frame relay.
const BRIDGED_PROTOCOLS: &[(u16, &str)] = &[
    (0x0001, "Ethernet + FCS"),
    (0x0007, "Ethernet w/o FCS"),
    (0x0002, "802.4 + FCS"),
    (0x0008, "802.4 w/o FCS"),
    (0x0003, "Token Ring + FCS"),
    (0x0009, "Token Ring w/o FCS"),
    (0x0004, "FDDI + FCS"),
    (0x000a, "FDDI w/o FCS"),
    (0x0005, "802.6 + FCS"),
    (0x000b, "802.6 w/o FCS"),
    (0x000e, "BPDU"),
];

/// The header of an LLC frame.
#[derive(Clone, Copy, Debug)]
struct Header {
    destination: u8,
    source: u8,
    control: u16,
    unnumbered: bool,
}

impl Header {
    fn len(self) -> usize {
        if self.unnumbered { 3 } else { 4 }
    }

    /// `None` if it is longer than the frame.
    fn read(span: Span<'_>) -> Option<Header> {
        let span = span.limit(span.length);
        let (destination, source, first) = (span.u8(0).ok()?, span.u8(1).ok()?, span.u8(2).ok()?);
        let unnumbered = first & 3 == 3;
        let control = if unnumbered { u16::from(first) } else { span.u16_le(2).ok()? };
        Some(Header { destination, source, control, unnumbered })
    }

    /// The access point, if both sides use the same and the frame carries data without sequence.
    fn plain_access_point(self) -> Option<u8> {
        let (source, destination) = (self.source & 0xfe, self.destination & 0xfe);
        (source == destination && self.control == UNNUMBERED_INFORMATION).then_some(source)
    }
}

/// An LLC frame; `source` and `destination` are the link-layer addresses, if there are any.
pub(crate) fn print(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source: Option<[u8; 6]>,
    destination: Option<[u8; 6]>,
) -> Result<Llc, Cut> {
    cx.protocol = "llc";
    let Some(header) = Header::read(span) else {
        cx.cut();
        cx.hex_and_ascii(span);
        return Ok(Llc { header_len: span.captured().min(span.length), known: true });
    };
    if header.source == GLOBAL && header.destination == GLOBAL {
        return print_raw_ipx(cx, span);
    }
    if cx.options.link_header {
        print_header(cx, header);
    }
    let header_len = header.len();
    let rest = span.skip(header_len);
    let known = match header.plain_access_point() {
        Some(SNAP) => {
            let known = print_snap(cx, rest, source, destination, LLC_BRIDGE_PAD)?;
            return Ok(Llc { header_len: header_len + SNAP_LEN, known });
        }
        Some(SPANNING_TREE) => stp::print(cx, rest).map(|()| true)?,
        Some(IP) => net::ipv4::print(cx, rest).map(|()| true)?,
        Some(ISO) => iso::print(cx, rest).map(|()| true)?,
        _ => {
            if !cx.options.link_header {
                print_access_points(cx, header, source, destination);
            }
            print_control(cx, header, rest)
        }
    };
    Ok(Llc { header_len, known })
}

/// IPX right behind an IEEE 802.3 length: its checksum, always FFFF, is in the place of the access points.
fn print_raw_ipx(cx: &mut Context<'_>, span: Span<'_>) -> Result<Llc, Cut> {
    if cx.options.link_header {
        cx.text("IPX 802.3: ");
    }
    put!(cx, "IPX, length {}", span.length);
    Ok(Llc { header_len: 0, known: true })
}

fn print_header(cx: &mut Context<'_>, header: Header) {
    let Header { destination, source, control, unnumbered } = header;
    let group = if destination & 1 != 0 { "Group" } else { "Individual" };
    let response = if source & 1 != 0 { "Response" } else { "Command" };
    let (destination, source) = (destination & 0xfe, source & 0xfe);
    put!(
        cx,
        "LLC, dsap {} (0x{destination:02x}) {group}, ssap {} (0x{source:02x}) {response}",
        lookup(ACCESS_POINTS, destination).unwrap_or("Unknown"),
        lookup(ACCESS_POINTS, source).unwrap_or("Unknown")
    );
    if unnumbered {
        put!(cx, ", ctrl 0x{control:02x}: ");
    } else {
        put!(cx, ", ctrl 0x{control:04x}: ");
    }
}

fn print_access_points(
    cx: &mut Context<'_>,
    header: Header,
    source_mac: Option<[u8; 6]>,
    destination_mac: Option<[u8; 6]>,
) {
    let (source, destination) = (header.source & 0xfe, header.destination & 0xfe);
    if let Some(mac) = source_mac.filter(|_| destination_mac.is_some()) {
        cx.mac(&mac);
        cx.text(" ");
    }
    if source != destination {
        print_access_point(cx, source, "SSAP");
        cx.text(" ");
    }
    if source != destination || source_mac.is_some() && destination_mac.is_some() {
        cx.text("> ");
    }
    if let Some(mac) = destination_mac.filter(|_| source_mac.is_some()) {
        cx.mac(&mac);
        cx.text(" ");
    }
    print_access_point(cx, destination, "DSAP");
    cx.text(" ");
}

fn print_access_point(cx: &mut Context<'_>, point: u8, kind: &str) {
    match lookup(ACCESS_POINTS, point) {
        Some(name) => cx.text(name),
        None => put!(cx, "Unknown {kind} 0x{point:02x}"),
    }
}

/// Prints the control field of a frame with an unknown service access point. Whether there is nothing more to print.
fn print_control(cx: &mut Context<'_>, header: Header, rest: Span<'_>) -> bool {
    let control = header.control;
    let length = rest.length + header.len();
    let poll = control & if header.unnumbered { POLL_UNNUMBERED } else { POLL } != 0;
    let flags = match (header.source & 1 != 0, poll) {
        (false, false) => "Command",
        (true, false) => "Response",
        (false, true) => "Poll",
        (true, true) => "Final",
    };
    if header.unnumbered {
        let command = control & 0xef;
        match lookup(COMMANDS, command) {
            Some(name) => put!(cx, "Unnumbered, {name}"),
            None => put!(cx, "Unnumbered, {command:02x}"),
        }
        put!(cx, ", Flags [{flags}], length {length}");
        return command == EXCHANGE_IDENTIFICATION && print_identification(cx, rest);
    }
    let received = control >> 9 & 0x7f;
    if control & 1 == 0 {
        let sent = control >> 1 & 0x7f;
        put!(cx, "Information, send seq {sent}, rcv seq {received}, Flags [{flags}], length {length}");
        return false;
    }
    let kind = ["Receiver Ready", "Receiver not Ready", "Reject", "?"][usize::from(control >> 2 & 3)];
    put!(cx, "Supervisory, {kind}, rcv seq {received}, Flags [{flags}], length {length}");
    true
}

/// The two bytes that follow an XID's format byte, 0x81.
fn print_identification(cx: &mut Context<'_>, rest: Span<'_>) -> bool {
    let rest = rest.limit(rest.length);
    match (rest.length, rest.u8(0)) {
        (0, _) => true,
        (_, Err(Cut)) => {
            cx.cut();
            true
        }
        (_, Ok(0x81)) => {
            match rest.array::<3>(0) {
                Ok([_, a, b]) => put!(cx, ": {a:02x} {b:02x}"),
                Err(Cut) => {
                    cx.cut();
                    cx.unknown(rest);
                }
            }
            true
        }
        _ => false,
    }
}

/// Prints a SNAP header and its payload. Returns whether the protocol was known. A bridged frame has `bridge_pad`
/// bytes before it.
pub(crate) fn print_snap(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source: Option<[u8; 6]>,
    destination: Option<[u8; 6]>,
    bridge_pad: usize,
) -> Result<bool, Cut> {
    cx.protocol = "snap";
    if span.limit(span.length).need(SNAP_LEN).is_err() {
        cx.cut();
        return Ok(true);
    }
    let (organization, protocol) = (span.u24(0)?, span.u16(3)?);
    let rest = span.skip(SNAP_LEN);
    if cx.options.link_header {
        print_snap_header(cx, organization, protocol, rest.length);
    }
    let known = print_snap_payload(cx, rest, organization, protocol, bridge_pad)?;
    if !known && !cx.options.link_header {
        if let (Some(source), Some(destination)) = (source, destination) {
            cx.mac(&source);
            cx.text(" > ");
            cx.mac(&destination);
            cx.text(" ");
        }
        cx.text("SNAP, ");
        if organization == ETHERNET_ORGANIZATION {
            let name = ethertype::name(protocol).unwrap_or("Unknown");
            put!(cx, "ethertype {name} (0x{protocol:04x}), length {}: ", rest.length);
        } else {
            print_snap_header(cx, organization, protocol, rest.length);
        }
    }
    Ok(known)
}

fn print_snap_header(cx: &mut Context<'_>, organization: u32, protocol: u16, length: usize) {
    let is_ethernet = organization == ETHERNET_ORGANIZATION;
    if !is_ethernet || cx.options.link_header {
        let name = names::organization(organization).unwrap_or("Unknown");
        put!(cx, "oui {name} (0x{organization:06x}), ");
    }
    let kind = if is_ethernet { "ethertype" } else { "pid" };
    let name = protocol_name(organization, protocol).unwrap_or("Unknown");
    put!(cx, "{kind} {name} (0x{protocol:04x}), length {length}: ");
}

/// Prints the payload of a SNAP header. Whether it was known.
fn print_snap_payload(
    cx: &mut Context<'_>,
    rest: Span<'_>,
    organization: u32,
    protocol: u16,
    bridge_pad: usize,
) -> Result<bool, Cut> {
    match (organization, protocol) {
        (ETHERNET_ORGANIZATION | CISCO_BRIDGED, _) => return net::ethertype(cx, rest, protocol),
        (APPLETALK, 0x809b) => return net::ethertype(cx, rest, protocol),
        (CISCO, 0x2000) => cdp::print(cx, rest)?,
        (CISCO, 0x2003) => print_trunk(cx, rest)?,
        (CISCO, 0x2004) => dtp::print(cx, rest)?,
        (CISCO, 0x0111) => udld::print(cx, rest)?,
        (CISCO, 0x010b | 0x010c) => stp::print(cx, rest)?,
        (BRIDGED, 0x0001 | 0x0007) => {
            rest.need(bridge_pad)?;
            link::ethernet::print(cx, rest.skip(bridge_pad))?;
        }
        (BRIDGED, 0x0004 | 0x000a) => {
            rest.need(bridge_pad + 1)?;
            cx.nested(|cx| link::fddi::frame(cx, rest.skip(bridge_pad + 1)).map(drop))?;
        }
        (BRIDGED, 0x000e) => stp::print(cx, rest)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Cisco's VLAN trunking protocol, by its version and message.
fn print_trunk(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), Cut> {
    const MESSAGES: &[(u8, &str)] = &[
        (1, "Summary advertisement"),
        (2, "Subset advertisement"),
        (3, "Advertisement request"),
        (4, "Join message"),
    ];
    cx.protocol = "vtp";
    let kind = span.u8(1)?;
    let name = lookup(MESSAGES, kind).unwrap_or("Unknown message type");
    put!(cx, "VTPv{}, Message {name} (0x{kind:02x}), length {}", span.u8(0)?, span.length);
    Ok(())
}

fn protocol_name(organization: u32, protocol: u16) -> Option<&'static str> {
    match organization {
        ETHERNET_ORGANIZATION | CISCO_BRIDGED | APPLETALK => ethertype::name(protocol),
        CISCO => lookup(CISCO_PROTOCOLS, protocol),
        BRIDGED => lookup(BRIDGED_PROTOCOLS, protocol),
        _ => None,
    }
}
