//! RADIUS (RFC 2865), its accounting (RFC 2866) and dynamic authorization (RFC 5176).
//!
//! ```text
//! code 1 | identifier 1 | length 2 | authenticator 16 | (type 1, length 1 with both, value)*
//! ```

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
    Number,
    Address,
    Time,
    Vendor,
    /// Bytes, in hexadecimal.
    Bytes,
}

/// Attributes: type, name, form (IANA, "RADIUS Attribute Types").
const ATTRIBUTES: &[(u8, &str, Form)] = &[
    (1, "User-Name", Form::Text),
    (2, "User-Password", Form::Bytes),
    (3, "CHAP-Password", Form::Bytes),
    (4, "NAS-IP-Address", Form::Address),
    (5, "NAS-Port", Form::Number),
    (6, "Service-Type", Form::Number),
    (7, "Framed-Protocol", Form::Number),
    (8, "Framed-IP-Address", Form::Address),
    (9, "Framed-IP-Netmask", Form::Address),
    (10, "Framed-Routing", Form::Number),
    (11, "Filter-Id", Form::Text),
    (12, "Framed-MTU", Form::Number),
    (13, "Framed-Compression", Form::Number),
    (14, "Login-IP-Host", Form::Address),
    (15, "Login-Service", Form::Number),
    (16, "Login-TCP-Port", Form::Number),
    (18, "Reply-Message", Form::Text),
    (19, "Callback-Number", Form::Text),
    (20, "Callback-Id", Form::Text),
    (22, "Framed-Route", Form::Text),
    (23, "Framed-IPX-Network", Form::Number),
    (24, "State", Form::Text),
    (25, "Class", Form::Text),
    (26, "Vendor-Specific", Form::Vendor),
    (27, "Session-Timeout", Form::Number),
    (28, "Idle-Timeout", Form::Number),
    (29, "Termination-Action", Form::Number),
    (30, "Called-Station-Id", Form::Text),
    (31, "Calling-Station-Id", Form::Text),
    (32, "NAS-Identifier", Form::Text),
    (33, "Proxy-State", Form::Text),
    (34, "Login-LAT-Service", Form::Text),
    (35, "Login-LAT-Node", Form::Text),
    (36, "Login-LAT-Group", Form::Text),
    (40, "Acct-Status-Type", Form::Number),
    (41, "Acct-Delay-Time", Form::Number),
    (42, "Acct-Input-Octets", Form::Number),
    (43, "Acct-Output-Octets", Form::Number),
    (44, "Acct-Session-Id", Form::Text),
    (45, "Acct-Authentic", Form::Number),
    (46, "Acct-Session-Time", Form::Number),
    (47, "Acct-Input-Packets", Form::Number),
    (48, "Acct-Output-Packets", Form::Number),
    (49, "Acct-Terminate-Cause", Form::Number),
    (50, "Acct-Multi-Session-Id", Form::Text),
    (51, "Acct-Link-Count", Form::Number),
    (52, "Acct-Input-Gigawords", Form::Number),
    (53, "Acct-Output-Gigawords", Form::Number),
    (55, "Event-Timestamp", Form::Time),
    (60, "CHAP-Challenge", Form::Bytes),
    (61, "NAS-Port-Type", Form::Number),
    (62, "Port-Limit", Form::Number),
    (63, "Login-LAT-Port", Form::Text),
    (74, "ARAP-Security-Data", Form::Text),
    (76, "Prompt", Form::Number),
    (77, "Connect-Info", Form::Text),
    (78, "Configuration-Token", Form::Text),
    (79, "EAP-Message", Form::Bytes),
    (80, "Message-Authenticator", Form::Bytes),
    (85, "Acct-Interim-Interval", Form::Number),
    (87, "NAS-Port-Id", Form::Text),
    (88, "Framed-Pool", Form::Text),
    (95, "NAS-IPv6-Address", Form::Address),
    (101, "Error-Cause", Form::Number),
];

/// One packet: `RADIUS, Access-Request (1), id: 0x05 length: 139`; with `-v` its authenticator and attributes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "radius";
    span.need(HEADER_LEN)?;
    let length = usize::from(span.u16(2)?);
    if length < HEADER_LEN {
        cx.invalid();
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
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let attribute = ATTRIBUTES.iter().find(|(number, ..)| *number == kind);
        let name = attribute.map_or("Unknown", |(_, name, _)| name);
        put!(cx, "\n\t  {name} Attribute ({kind}), length: {length}");
        if length < 2 {
            cx.text(" (invalid)");
            return Ok(());
        }
        if length > rest.length {
            cx.text(" (goes past end of packet)");
            return Ok(());
        }
        rest.need(length)?;
        cx.text(", Value: ");
        print_value(cx, attribute.map_or(Form::Bytes, |(.., form)| *form), rest.skip(2).limit(length - 2))?;
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    match form {
        Form::Text => cx.visible_all(value.data),
        Form::Number if value.length == 4 => put!(cx, "{}", value.u32(0)?),
        Form::Address if value.length == 4 => cx.host(value.array::<4>(0)?.into()),
        Form::Address if value.length == 16 => cx.host(value.array::<16>(0)?.into()),
        Form::Time if value.length == 4 => {
            if let Ok(time) = jiff::Timestamp::from_second(i64::from(value.u32(0)?)) {
                put!(cx, "{}", time.strftime("%a %b %e %H:%M:%S %Y"));
            }
        }
        Form::Vendor if value.length >= 4 => print_vendor(cx, value)?,
        Form::Number | Form::Address | Form::Time | Form::Vendor | Form::Bytes => {
            value.data.iter().for_each(|&byte| cx.hex(byte, 2));
        }
    }
    Ok(())
}

/// Number of the vendor 4, (type 1, length 1 with both, value)*.
fn print_vendor(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    put!(cx, "Vendor: {}", value.u32(0)?);
    let mut rest = value.skip(4);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {}, Value: ", length.saturating_sub(2));
        if length < 2 || length > rest.length {
            cx.text("(invalid)");
            return Ok(());
        }
        cx.visible_all(rest.bytes(2, length - 2)?);
        rest = rest.skip(length);
    }
    Ok(())
}
