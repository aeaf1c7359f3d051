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

const STATES: [&str; 4] = ["AdminDown", "Down", "Init", "Up"];

const FLAGS: &[(u32, &str)] = &[
    (0x20, "Poll"),
    (0x10, "Final"),
    (0x08, "Control Plane Independent"),
    (0x04, "Authentication Present"),
    (0x02, "Demand"),
    (0x01, "Multipoint"),
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

/// One packet; its port says what kind.
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
    if span.length < 24 {
        cx.cut();
        return Ok(());
    }
    let (first, second) = (span.u8(0)?, span.u8(1)?);
    let version = first >> 5;
    if version != 1 {
        put!(cx, "BFDv{version}, {kind}, length: {}", span.length);
        print_bytes(cx, span);
        return Ok(());
    }
    span.need(24)?;
    let is_verbose = cx.verbose() > 0;
    match is_verbose {
        true => put!(cx, "BFDv{version}, length: {}\n\t{kind}", span.length),
        false => put!(cx, "BFDv{version}, {kind}"),
    }
    put!(cx, ", State {}, Flags: [", STATES[usize::from(second >> 6)]);
    put_bits(cx, FLAGS, "none", ", ", u32::from(second & 0x3f));
    cx.text("]");
    if is_verbose {
        print_fields(cx, span, first & 0x1f)
    } else {
        put!(cx, ", length: {}", span.length);
        Ok(())
    }
}

/// With `-v`, what is not decoded.
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
    let detection = u64::from(multiplier) * u64::from(desired);
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
