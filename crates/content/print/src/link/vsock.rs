//! Linux's `vsockmon`: sockets between a virtual machine and its host.
//!
//! ```text
//! | source 8 | destination 8 | source port 4 | destination port 4 | operation 2 | transport 2 | length 2 | 0 2 |
//! virtio: | source 8 | destination 8 | ports 4, 4 | length 4 | type 2 | operation 2 | flags 4 | buffer 4 | forwarded 4 |
//! payload                                                                                     all little-endian
//! ```
//!
//! Source: Linux, `include/uapi/linux/vsockmon.h`, `include/uapi/linux/virtio_vsock.h`.

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HEADER_LEN: usize = 32;
const VIRTIO_LEN: usize = 44;
const VIRTIO: u16 = 2;
const PAYLOAD: u16 = 4;

const TRANSPORTS: [&str; 3] = ["UNKNOWN", "NO_INFO", "VIRTIO"];
const OPERATIONS: [&str; 5] = ["UNKNOWN", "CONNECT", "DISCONNECT", "CONTROL", "PAYLOAD"];
const VIRTIO_OPERATIONS: [&str; 8] =
    ["INVALID", "REQUEST", "RESPONSE", "RST", "SHUTDOWN", "RW", "CREDIT UPDATE", "CREDIT REQUEST"];

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "vsock";
    if span.captured() < HEADER_LEN {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    cx.link_header_len += HEADER_LEN;
    let (operation, transport) = (span.u16_le(24)?, span.u16_le(26)?);
    match TRANSPORTS.get(usize::from(transport)) {
        Some(name) => cx.text(name),
        None => put!(cx, "Invalid transport ({transport})"),
    }
    let header_len = HEADER_LEN + if transport == VIRTIO { VIRTIO_LEN } else { 0 };
    let is_cut = span.captured() < header_len;
    if cx.verbose() == 0 {
        cx.text(" ");
    } else if !is_cut {
        if transport == VIRTIO {
            print_virtio(cx, span.skip(HEADER_LEN))?;
        }
        cx.text("\n\t");
    }
    put!(cx, "{}.{} > ", u64_le(span, 0)?, span.u32_le(16)?);
    put!(cx, "{}.{} ", u64_le(span, 8)?, span.u32_le(20)?);
    match OPERATIONS.get(usize::from(operation)) {
        Some(name) => cx.text(name),
        None => put!(cx, " invalid op ({operation})"),
    }
    put!(cx, ", length {}", span.captured());
    if cx.verbose() > 0 && is_cut {
        cx.cut();
    } else if cx.verbose() > 1 && operation == PAYLOAD {
        let payload = span.skip(header_len);
        if payload.captured() == 0 {
            cx.cut();
        } else {
            cx.text("\n");
            cx.hex_lines("\t", payload.with_length(payload.captured()));
        }
    }
    Ok(())
}

fn print_virtio(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    put!(cx, " (len {}", span.u32_le(24)?);
    match span.u16_le(28)? {
        1 => cx.text(", type STREAM"),
        kind => put!(cx, ", type Invalid type ({kind})"),
    }
    let operation = span.u16_le(30)?;
    match VIRTIO_OPERATIONS.get(usize::from(operation)) {
        Some(name) => put!(cx, ", op {name}"),
        None => put!(cx, ", op Invalid op ({operation})"),
    }
    let [flags, buffer, forwarded] = [span.u32_le(32)?, span.u32_le(36)?, span.u32_le(40)?];
    put!(cx, ", flags {flags:x}, buf_alloc {buffer}, fwd_cnt {forwarded})");
    Ok(())
}

fn u64_le(span: Span<'_>, at: usize) -> Result<u64, crate::bytes::Cut> {
    span.array(at).map(u64::from_le_bytes)
}
