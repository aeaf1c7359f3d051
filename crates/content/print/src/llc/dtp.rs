//! Dynamic Trunking Protocol of Cisco: `DTPv1, length 29`; with `-v` its fields.
//!
//! ```text
//! version 1 | (type 2, length 2 with both, value)*      1 domain   2 status 1   3 type 1   4 neighbour 6
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const FIELD_HEADER_LEN: usize = 4;

const DOMAIN: u16 = 1;
const STATUS: u16 = 2;
const TYPE: u16 = 3;
const NEIGHBOR: u16 = 4;
const FIELDS: &[(u16, &str)] =
    &[(DOMAIN, "Domain"), (STATUS, "Status"), (TYPE, "DTP type"), (NEIGHBOR, "Neighbor")];

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "dtp";
    if span.length < 1 {
        cx.text("[zero packet length]");
        cx.invalid();
        return Ok(());
    }
    put!(cx, "DTPv{}, length {}", span.u8(0)?, span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    let mut rest = span.skip(1);
    while rest.length > 0 {
        if rest.length < FIELD_HEADER_LEN {
            put!(cx, "[{} bytes remaining]", rest.length);
            cx.invalid();
            return rest.need(rest.length);
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        if kind == 0 {
            return Ok(());
        }
        put!(cx, "\n\t{} (0x{kind:04x}) TLV, length {length}", lookup(FIELDS, kind).unwrap_or("Unknown"));
        let fits = length >= FIELD_HEADER_LEN && length <= rest.length;
        if !fits {
            put!(cx, "[invalid TLV length {length}]");
        }
        let wanted = match kind {
            STATUS | TYPE => 5,
            NEIGHBOR => 10,
            _ => length,
        };
        if !fits || length != wanted {
            cx.invalid();
            return rest.need(rest.length);
        }
        print_value(cx, kind, rest, length)?;
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, kind: u16, field: Span<'_>, length: usize) -> Printed {
    match kind {
        DOMAIN => {
            cx.text(", ");
            let name = field.skip(FIELD_HEADER_LEN).limit(length - FIELD_HEADER_LEN);
            if !cx.visible_until_nul(name.data) {
                name.need(name.length)?;
            }
        }
        STATUS | TYPE => put!(cx, ", 0x{:x}", field.u8(4)?),
        NEIGHBOR => {
            let address = field.bytes(4, 6)?;
            cx.text(", ");
            cx.mac(address);
        }
        _ => field.need(length)?,
    }
    Ok(())
}
