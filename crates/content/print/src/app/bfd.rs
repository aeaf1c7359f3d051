//! Bidirectional forwarding detection (RFC 5880): `BFDv1, Control, State Up, Flags: [none], length: 24`.
//!
//! ```text
//! version 3 bits, diagnostic 5 | state 2 bits, flags 6 | multiplier 1 | length 1 | my discriminator 4 | yours 4
//! desired interval 4 | required interval 4 | required echo interval 4 (microseconds) | [authentication]
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::text::Text;

pub(super) const CONTROL: u16 = 3784;
pub(super) const ECHO: u16 = 3785;
pub(super) const MULTIHOP: u16 = 4784;
pub(super) const LAG: u16 = 6784;

const HEADER_LEN: usize = 24;

const STATES: [&str; 4] = ["AdminDown", "Down", "Init", "Up"];

const FLAGS: &[(u32, &str)] = &[
    (0x20, "Poll"),
    (0x10, "Final"),
    (0x08, "Control Plane Independent"),
    (0x04, "Authentication Present"),
    (0x02, "Demand"),
    (0x01, "Multipoint"),
];

const FLAGS_0: &[(u32, &str)] = &[
    (0x80, "I Hear You"),
    (0x40, "Demand"),
    (0x20, "Poll"),
    (0x10, "Final"),
    (0x08, "Control Plane Independent"),
    (0x04, "Authentication Present"),
    (0x02, "Reserved"),
    (0x01, "Reserved"),
];
const AUTHENTICATED: u8 = 0x04;

const AUTHENTICATIONS: [&str; 6] = [
    "Unknown",
    "Simple Password",
    "Keyed MD5",
    "Meticulous Keyed MD5",
    "Keyed SHA1",
    "Meticulous Keyed SHA1",
];

const DIAGNOSTICS: [&str; 9] = [
    "No Diagnostic",
    "Control Detection Time Expired",
    "Echo Function Failed",
    "Neighbor Signaled Session Down",
    "Forwarding Plane Reset",
    "Path Down",
    "Concatenated Path Down",
    "Administratively Down",
    "Reverse Concatenated Path Down",
];

/// One packet; its port gives the kind.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, port: u16) -> Printed {
    cx.protocol = "bfd";
    let kind = match port {
        ECHO => {
            put!(cx, "BFD, Echo, length: {}", span.length);
            print_bytes(cx, span);
            return Ok(());
        }
        MULTIHOP => "Multihop",
        LAG => "Lag",
        _ => "Control",
    };
    span.need(HEADER_LEN)?;
    let (first, second) = (span.u8(0)?, span.u8(1)?);
    let version = first >> 5;
    // Version 0 keeps the state in its flags.
    let (state, flags, names) = match version {
        0 => (None, second, FLAGS_0),
        1 => (Some(STATES[usize::from(second >> 6)]), second & 0x3f, FLAGS),
        _ => {
            put!(cx, "BFDv{version}, Control, length: {}", span.length);
            print_bytes(cx, span);
            return Ok(());
        }
    };
    let kind = if version == 0 { "Control" } else { kind };
    match cx.verbose() {
        0 => put!(cx, "BFDv{version}, {kind}"),
        _ => put!(cx, "BFDv{version}, length: {}\n\t{kind}", span.length),
    }
    if let Some(state) = state {
        put!(cx, ", State {state}");
    }
    cx.text(", Flags: [");
    put_bits(cx, names, "none", ", ", u32::from(flags));
    cx.text("]");
    if cx.verbose() == 0 {
        put!(cx, ", length: {}", span.length);
        return Ok(());
    }
    print_fields(cx, span, first & 0x1f)?;
    if second & AUTHENTICATED != 0 {
        print_authentication(cx, span.skip(HEADER_LEN))?;
    }
    Ok(())
}

/// type 1 | length 1 | key 1 | password, or: 0 | sequence 4 | digest
fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    span.need(4)?;
    let (kind, length, key) = (span.u8(0)?, span.u8(1)?, span.u8(2)?);
    let name = AUTHENTICATIONS.get(usize::from(kind)).copied().unwrap_or("Unknown");
    put!(cx, "\n\tAuthentication: {name} ({kind}), length: {length}\n\t  Auth Key ID: {key}");
    let (valid, title, digest_len) = match kind {
        1 => ((4..=19).contains(&length), "", 0),
        2 | 3 => (length == 24, "Digest", 16),
        4 | 5 => (length == 28, "Hash", 20),
        _ => return Ok(()),
    };
    if !valid {
        put!(cx, "[invalid length {length}]");
        return Ok(());
    }
    if kind == 1 {
        cx.text(", Password: ");
        cx.visible_all(span.bytes(3, usize::from(length) - 3)?);
        return Ok(());
    }
    put!(cx, ", Sequence Number: 0x{:08x}", span.u32(4)?);
    let digest = span.bytes(8, digest_len)?;
    put!(cx, "\n\t  {title}: ");
    digest.iter().for_each(|&byte| cx.hex(byte, 2));
    Ok(())
}

/// With `-v`, the bytes that are not decoded.
fn print_bytes(cx: &mut Context<'_>, span: Span<'_>) {
    if cx.verbose() > 0 {
        cx.hex_lines("\n\t", span);
    }
}

fn print_fields(cx: &mut Context<'_>, span: Span<'_>, diagnostic: u8) -> Printed {
    let name = DIAGNOSTICS.get(usize::from(diagnostic)).copied().unwrap_or("unknown");
    put!(cx, ", Diagnostic: {name} (0x{diagnostic:02x})");
    let (multiplier, length) = (span.u8(2)?, span.u8(3)?);
    let [desired, required, echo] = [span.u32(12)?, span.u32(16)?, span.u32(20)?].map(|micros| micros / 1000);
    // tcpdump multiplies in 32 bits.
    let detection = u32::from(multiplier).wrapping_mul(span.u32(12)?) / 1000;
    put!(
        cx,
        "\n\tDetection Timer Multiplier: {multiplier} ({detection} ms Detection time), BFD Length: {length}"
    );
    put!(cx, "\n\tMy Discriminator: 0x{:08x}, Your Discriminator: 0x{:08x}", span.u32(4)?, span.u32(8)?);
    put!(cx, "\n\t  Desired min Tx Interval:    {desired:4} ms");
    put!(cx, "\n\t  Required min Rx Interval:   {required:4} ms");
    put!(cx, "\n\t  Required min Echo Interval: {echo:4} ms");
    Ok(())
}
