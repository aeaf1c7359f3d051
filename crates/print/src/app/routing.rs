//! EIGRP (RFC 7868) by its header.
//!
//! ```text
//! EIGRP = version 1 | operation 1 | checksum 2 | flags 4 | sequence 4 | acknowledgment 4 | router 2 | system 2 | ...
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};

const EIGRP_OPERATIONS: &[(u8, &str)] =
    &[(1, "Update"), (3, "Query"), (4, "Reply"), (5, "Hello"), (6, "IPX SAP"), (7, "Probe")];

/// `EIGRP Hello, length: 40`; with `-v` the fixed fields.
pub(super) fn eigrp(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "eigrp";
    if span.need(20).is_err() {
        cx.cut();
        return Ok(());
    }
    let (version, operation) = (span.u8(0)?, span.u8(1)?);
    if version != 2 {
        put!(cx, "EIGRP version {version} packet not supported");
        return Ok(());
    }
    let name = lookup(EIGRP_OPERATIONS, operation);
    if cx.verbose() == 0 {
        match name {
            Some(name) => put!(cx, "EIGRP {name}, length: {}", span.length),
            None => put!(cx, "EIGRP unknown ({operation}), length: {}", span.length),
        }
        return Ok(());
    }
    put!(cx, "\n\tEIGRP v{version}, opcode: {} ({operation}), ", name.unwrap_or("unknown"));
    let flags = match span.u32(4)? & 3 {
        0 => "none",
        1 => "Init",
        2 => "Conditional Receive",
        _ => "Init, Conditional Receive",
    };
    put!(cx, "chksum: 0x{:04x}, Flags: [{flags}]", span.u16(2)?);
    put!(cx, "\n\tseq: 0x{:08x}, ack: 0x{:08x}, ", span.u32(8)?, span.u32(12)?);
    put!(cx, "VRID: {}, AS: {}, length: {}", span.u16(16)?, span.u16(18)?, span.length - 20);
    Ok(())
}
