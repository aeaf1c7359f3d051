//! RADIUS (RFC 2865), its accounting (RFC 2866) and dynamic authorization (RFC 5176).
//!
//! ```text
//! code 1 | identifier 1 | length 2 | authenticator 16 | (type 1, length 1 with both, value)*
//! ```

use super::eap;
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 20;

const CODES: &[(u8, &str)] = &[
    (1, "Access-Request"),
    (2, "Access-Accept"),
    (3, "Access-Reject"),
    (4, "Accounting-Request"),
    (5, "Accounting-Response"),
    (11, "Access-Challenge"),
    (12, "Status-Server"),
    (13, "Status-Client"),
    (40, "Disconnect-Request"),
    (41, "Disconnect-ACK"),
    (42, "Disconnect-NAK"),
    (43, "CoA-Request"),
    (44, "CoA-ACK"),
    (45, "CoA-NAK"),
    (255, "Reserved"),
];

/// How the value of an attribute reads.
#[derive(Clone, Copy)]
enum Form {
    Text,
    /// Text behind a byte that groups attributes of a tunnel, if that is below 0x20.
    Tagged,
    Number,
    /// A number of an IPX network.
    Network,
    /// A number with names, the first of them of number 0; empty names are none.
    Named(&'static [&'static str]),
    /// As `Named`, with the byte that groups attributes of a tunnel before it.
    TaggedNamed(&'static [&'static str]),
    /// Seconds.
    Duration,
    Address,
    Address6,
    Time,
    /// Why a change was refused.
    Cause,
    Vendor,
    Eap,
    /// Not shown, as it is a secret or has no known form.
    Hidden,
}

const SERVICES: &[&str] = &[
    "",
    "Login",
    "Framed",
    "Callback Login",
    "Callback Framed",
    "Outbound",
    "Administrative",
    "NAS Prompt",
    "Authenticate Only",
    "Callback NAS Prompt",
    "Call Check",
    "Callback Administrative",
    "Voice",
    "Fax",
    "Modem Relay",
    "IAPP-Register",
    "IAPP-AP-Check",
    "Authorize Only",
    "Framed-Management",
    "Additional-Authorization",
];
const FRAMED_PROTOCOLS: &[&str] = &[
    "",
    "PPP",
    "SLIP",
    "ARAP",
    "Gandalf proprietary",
    "Xylogics IPX/SLIP",
    "X.75 Synchronous",
    "GPRS PDP Context",
];
const ROUTINGS: &[&str] = &["None", "Send", "Listen", "Send&Listen"];
const COMPRESSIONS: &[&str] = &["None", "VJ TCP/IP", "IPX", "Stac-LZS"];
const LOGIN_SERVICES: &[&str] = &[
    "Telnet",
    "Rlogin",
    "TCP Clear",
    "PortMaster(proprietary)",
    "LAT",
    "X.25-PAD",
    "X.25-T3POS",
    "Unassigned",
    "TCP Clear Quiet",
];
const TERMINATIONS: &[&str] = &["Default", "RADIUS-Request"];
const PORT_TYPES: &[&str] = &[
    "Async",
    "Sync",
    "ISDN Sync",
    "ISDN Async V.120",
    "ISDN Async V.110",
    "Virtual",
    "PIAFS",
    "HDLC Clear Channel",
    "X.25",
    "X.75",
    "G.3 Fax",
    "SDSL",
    "ADSL-CAP",
    "ADSL-DMT",
    "ISDN-DSL",
    "Ethernet",
    "xDSL",
    "Cable",
    "Wireless - Other",
    "Wireless - IEEE 802.11",
];
const ACCOUNTING_STATUSES: &[&str] = &[
    "",
    "Start",
    "Stop",
    "Interim-Update",
    "Unassigned",
    "Unassigned",
    "Unassigned",
    "Accounting-On",
    "Accounting-Off",
    "Tunnel-Start",
    "Tunnel-Stop",
    "Tunnel-Reject",
    "Tunnel-Link-Start",
    "Tunnel-Link-Stop",
    "Tunnel-Link-Reject",
    "Failed",
];
const AUTHENTICATORS: &[&str] = &["", "RADIUS", "Local", "Remote", "Diameter"];
const CAUSES: &[&str] = &[
    "",
    "User Request",
    "Lost Carrier",
    "Lost Service",
    "Idle Timeout",
    "Session Timeout",
    "Admin Reset",
    "Admin Reboot",
    "Port Error",
    "NAS Error",
    "NAS Request",
    "NAS Reboot",
    "Port Unneeded",
    "Port Preempted",
    "Port Suspended",
    "Service Unavailable",
    "Callback",
    "User Error",
    "Host Request",
    "Supplicant Restart",
    "Reauthentication Failure",
    "Port Reinitialized",
    "Port Administratively Disabled",
    "Lost Power",
];
const TUNNELS: &[&str] = &[
    "",
    "PPTP",
    "L2F",
    "L2TP",
    "ATMP",
    "VTP",
    "AH",
    "IP-IP",
    "MIN-IP-IP",
    "ESP",
    "GRE",
    "DVS",
    "IP-in-IP Tunneling",
    "VLAN",
];
const MEDIA: &[&str] = &[
    "",
    "IPv4",
    "IPv6",
    "NSAP",
    "HDLC",
    "BBN 1822",
    "802",
    "E.163",
    "E.164",
    "F.69",
    "X.121",
    "IPX",
    "Appletalk",
    "Decnet IV",
    "Banyan Vines",
    "E.164 with NSAP subaddress",
];
const PROMPTS: &[&str] = &["No Echo", "Echo"];

/// Attributes: type, name, form (IANA, "RADIUS Attribute Types").
const ATTRIBUTES: &[(u8, &str, Form)] = &[
    (1, "User-Name", Form::Text),
    (2, "User-Password", Form::Hidden),
    (3, "CHAP-Password", Form::Hidden),
    (4, "NAS-IP-Address", Form::Address),
    (5, "NAS-Port", Form::Number),
    (6, "Service-Type", Form::Named(SERVICES)),
    (7, "Framed-Protocol", Form::Named(FRAMED_PROTOCOLS)),
    (8, "Framed-IP-Address", Form::Address),
    (9, "Framed-IP-Netmask", Form::Address),
    (10, "Framed-Routing", Form::Named(ROUTINGS)),
    (11, "Filter-Id", Form::Text),
    (12, "Framed-MTU", Form::Number),
    (13, "Framed-Compression", Form::Named(COMPRESSIONS)),
    (14, "Login-IP-Host", Form::Address),
    (15, "Login-Service", Form::Named(LOGIN_SERVICES)),
    (16, "Login-TCP-Port", Form::Number),
    (18, "Reply-Message", Form::Text),
    (19, "Callback-Number", Form::Text),
    (20, "Callback-Id", Form::Text),
    (22, "Framed-Route", Form::Text),
    (23, "Framed-IPX-Network", Form::Network),
    (24, "State", Form::Text),
    (25, "Class", Form::Text),
    (26, "Vendor-Specific", Form::Vendor),
    (27, "Session-Timeout", Form::Duration),
    (28, "Idle-Timeout", Form::Duration),
    (29, "Termination-Action", Form::Named(TERMINATIONS)),
    (30, "Called-Station-Id", Form::Text),
    (31, "Calling-Station-Id", Form::Text),
    (32, "NAS-Identifier", Form::Text),
    (33, "Proxy-State", Form::Text),
    (34, "Login-LAT-Service", Form::Text),
    (35, "Login-LAT-Node", Form::Text),
    (36, "Login-LAT-Group", Form::Text),
    (37, "Framed-AppleTalk-Link", Form::Number),
    (38, "Framed-AppleTalk-Network", Form::Number),
    (39, "Framed-AppleTalk-Zone", Form::Text),
    (40, "Acct-Status-Type", Form::Named(ACCOUNTING_STATUSES)),
    (41, "Acct-Delay-Time", Form::Duration),
    (42, "Acct-Input-Octets", Form::Number),
    (43, "Acct-Output-Octets", Form::Number),
    (44, "Acct-Session-Id", Form::Text),
    (45, "Acct-Authentic", Form::Named(AUTHENTICATORS)),
    (46, "Acct-Session-Time", Form::Duration),
    (47, "Acct-Input-Packets", Form::Number),
    (48, "Acct-Output-Packets", Form::Number),
    (49, "Acct-Terminate-Cause", Form::Named(CAUSES)),
    (50, "Acct-Multi-Session-Id", Form::Text),
    (51, "Acct-Link-Count", Form::Number),
    (52, "Acct-Input-Gigawords", Form::Number),
    (53, "Acct-Output-Gigawords", Form::Number),
    (55, "Event-Timestamp", Form::Time),
    (60, "CHAP-Challenge", Form::Text),
    (61, "NAS-Port-Type", Form::Named(PORT_TYPES)),
    (62, "Port-Limit", Form::Number),
    (63, "Login-LAT-Port", Form::Text),
    (64, "Tunnel-Type", Form::TaggedNamed(TUNNELS)),
    (65, "Tunnel-Medium-Type", Form::TaggedNamed(MEDIA)),
    (66, "Tunnel-Client-Endpoint", Form::Tagged),
    (67, "Tunnel-Server-Endpoint", Form::Tagged),
    (68, "Acct-Tunnel-Connection", Form::Text),
    (74, "ARAP-Security-Data", Form::Text),
    (75, "Password-Retry", Form::Number),
    (76, "Prompt", Form::Named(PROMPTS)),
    (77, "Connect-Info", Form::Text),
    (78, "Configuration-Token", Form::Text),
    (79, "EAP-Message", Form::Eap),
    (80, "Message-Authenticator", Form::Text),
    (81, "Tunnel-Private-Group-ID", Form::Tagged),
    (82, "Tunnel-Assignment-ID", Form::Tagged),
    (85, "Acct-Interim-Interval", Form::Duration),
    (86, "Acct-Tunnel-Packets-Lost", Form::Number),
    (87, "NAS-Port-Id", Form::Text),
    (88, "Framed-Pool", Form::Text),
    (89, "CUI", Form::Text),
    (90, "Tunnel-Client-Auth-ID", Form::Tagged),
    (91, "Tunnel-Server-Auth-ID", Form::Tagged),
    (92, "NAS-Filter-Rule", Form::Text),
    (95, "NAS-IPv6-Address", Form::Address6),
    (98, "Login-IPv6-Host", Form::Address6),
    (99, "Framed-IPv6-Route", Form::Text),
    (100, "Framed-IPv6-Pool", Form::Text),
    (101, "Error-Cause", Form::Cause),
];

/// Why a change of authorization was refused (RFC 5176, 3.5).
const ERROR_CAUSES: &[(u32, &str)] = &[
    (201, "Residual Session Context Removed"),
    (202, "Invalid EAP Packet (Ignored)"),
    (401, "Unsupported Attribute"),
    (402, "Missing Attribute"),
    (403, "NAS Identification Mismatch"),
    (404, "Invalid Request"),
    (405, "Unsupported Service"),
    (406, "Unsupported Extension"),
    (407, "Invalid Attribute Value"),
    (501, "Administratively Prohibited"),
    (502, "Request Not Routable (Proxy)"),
    (503, "Session Context Not Found"),
    (504, "Session Context Not Removable"),
    (505, "Other Proxy Processing Error"),
    (506, "Resources Unavailable"),
    (507, "Request Initiated"),
    (508, "Multiple Session Selection Unsupported"),
    (509, "Location Info Required"),
];

/// Vendors that are met most, by their enterprise numbers.
const VENDORS: &[(u32, &str)] =
    &[(0, "Reserved"), (2, "IBM"), (9, "Cisco"), (43, "3Com"), (311, "Microsoft")];

/// One packet: `RADIUS, Access-Request (1), id: 0x05 length: 139`; with `-v` its authenticator and attributes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "radius";
    span.need(HEADER_LEN)?;
    let length = usize::from(span.u16(2)?);
    if length < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let length = length.min(span.length);
    let code = span.u8(0)?;
    let name = lookup(CODES, code).unwrap_or("Unknown Command");
    if cx.verbose() == 0 {
        put!(cx, "RADIUS, {name} ({code}), id: 0x{:02x} length: {length}", span.u8(1)?);
        return Ok(());
    }
    put!(cx, "RADIUS, length: {length}\n\t{name} ({code}), id: 0x{:02x}, Authenticator: ", span.u8(1)?);
    for &byte in span.bytes(4, 16)? {
        cx.hex(byte, 2);
    }
    print_attributes(cx, span.limit(length).skip(HEADER_LEN))
}

fn print_attributes(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length > 0 {
        if rest.length < 2 {
            cx.cut();
            return Ok(());
        }
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let attribute = ATTRIBUTES.iter().find(|(number, ..)| *number == kind);
        let name = attribute.map_or("Unknown", |(_, name, _)| name);
        put!(cx, "\n\t  {name} Attribute ({kind}), length: {length}");
        if length < 2 {
            cx.text(" (bogus, must be >= 2)");
            return Ok(());
        }
        if length > rest.length {
            cx.text(" (bogus, goes past end of packet)");
            return Ok(());
        }
        cx.text(", Value: ");
        let value = rest.skip(2).limit(length - 2);
        if let Some((.., form)) = attribute {
            print_value(cx, *form, value)?;
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", value);
        }
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    let needed = match form {
        Form::Number | Form::Network | Form::Named(_) | Form::TaggedNamed(_) | Form::Duration => 4,
        Form::Address | Form::Time | Form::Cause => 4,
        Form::Address6 => 16,
        _ => value.length,
    };
    if value.length != needed {
        put!(cx, "ERROR: length {} != {needed}", value.length);
        return Ok(());
    }
    if !matches!(form, Form::Hidden) {
        value.need(value.length)?;
    }
    match form {
        Form::Text => print_text(cx, value.data),
        Form::Tagged => match value.data {
            [tag @ 0..=0x1f, text @ ..] => {
                print_tag(cx, *tag);
                print_text(cx, text);
            }
            text => print_text(cx, text),
        },
        Form::Network if value.u32(0)? == 0xffff_fffe => cx.text("NAS Select"),
        Form::Number | Form::Network => put!(cx, "{}", value.u32(0)?),
        Form::Named(names) => print_name(cx, names, value.u32(0)?),
        Form::TaggedNamed(names) => {
            print_tag(cx, value.u8(0)?);
            print_name(cx, names, value.u24(1)?);
        }
        Form::Duration => print_duration(cx, value.u32(0)?),
        Form::Address => print_address(cx, value.array(0)?),
        Form::Address6 => cx.host(value.array::<16>(0)?.into()),
        Form::Time => {
            if let Ok(time) = jiff::Timestamp::from_second(i64::from(value.u32(0)?)) {
                put!(cx, "{}", time.strftime("%a %b %e %H:%M:%S %Y"));
            }
        }
        Form::Cause => {
            let cause = value.u32(0)?;
            put!(cx, "Error cause {cause}: {}", lookup(ERROR_CAUSES, cause).unwrap_or("Error-Cause Unknown"));
        }
        Form::Vendor => print_vendor(cx, value)?,
        Form::Eap => eap::print(cx, value)?,
        Form::Hidden => {}
    }
    Ok(())
}

/// Up to a NUL; a dot for what is not printable.
fn print_text(cx: &mut Context<'_>, text: &[u8]) {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    print_characters(cx, &text[..end]);
}

fn print_characters(cx: &mut Context<'_>, text: &[u8]) {
    for &byte in text {
        cx.raw(&[if (0x20..0x7f).contains(&byte) { byte } else { b'.' }]);
    }
}

fn print_tag(cx: &mut Context<'_>, tag: u8) {
    match tag {
        0 => cx.text("Tag[Unused] "),
        _ => put!(cx, "Tag[{tag}] "),
    }
}

fn print_name(cx: &mut Context<'_>, names: &[&str], value: u32) {
    match usize::try_from(value).ok().and_then(|index| names.get(index)) {
        Some(name) if !name.is_empty() => cx.text(name),
        _ => put!(cx, "#{value}"),
    }
}

fn print_duration(cx: &mut Context<'_>, seconds: u32) {
    let (hours, minutes) = (seconds / 3600, seconds / 60);
    match seconds {
        0..60 => put!(cx, "{seconds:02} secs"),
        60..3600 => put!(cx, "{minutes:02}:{:02} min", seconds % 60),
        _ => put!(cx, "{hours:02}:{:02}:{:02} hours", minutes % 60, seconds % 60),
    }
}

/// The two highest addresses leave the choice to others (RFC 2865, 5.8).
fn print_address(cx: &mut Context<'_>, address: [u8; 4]) {
    match address {
        [0xff, 0xff, 0xff, 0xff] => cx.text("User Selected"),
        [0xff, 0xff, 0xff, 0xfe] => cx.text("NAS Select"),
        _ => cx.host(address.into()),
    }
}

/// Number of the vendor 4, (type 1, length 1 with both, value)*.
fn print_vendor(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if value.length < 4 {
        cx.cut();
        return Ok(());
    }
    let vendor = value.u32(0)?;
    put!(cx, "Vendor: {} ({vendor})", lookup(VENDORS, vendor).unwrap_or("Unknown"));
    let mut rest = value.skip(4);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let fault = match length {
            0 | 1 => Some("must be >= 2"),
            _ if length > rest.length => Some("goes past end of vendor-specific attribute"),
            _ => None,
        };
        if let Some(fault) = fault {
            put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {length} (bogus, {fault})");
            return Ok(());
        }
        put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {}, Value: ", length - 2);
        print_characters(cx, rest.bytes(2, length - 2)?);
        rest = rest.skip(length);
    }
    Ok(())
}
