//! BSD loopback.
//!
//! ```text
//! | address family 4, in the byte order of the host that captured (NULL) or of the network (LOOP) | IP packet |
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::{ipv4, ipv6};
use crate::text::Text;

const HEADER_LEN: usize = 4;
const INET: u32 = 2;
/// IPv6 has another number on each BSD.
const INET6: [u32; 3] = [24, 28, 30];

/// Families of addresses, as BSD numbers them.
pub(crate) const FAMILIES: &[(u32, &str)] = &[
    (INET, "IPv4"),
    (6, "NS"),
    (7, "ISO"),
    (16, "Appletalk"),
    (23, "IPX"),
    (24, "IPv6"),
    (28, "IPv6"),
    (30, "IPv6"),
];

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "null";
    let native = span.u32_le(0)?;
    cx.link_header_len += HEADER_LEN;
    let family = if native & 0xffff_0000 != 0 { native.swap_bytes() } else { native };
    if cx.options.link_header {
        print_header(cx, family, span.length);
    }
    let payload = span.skip(HEADER_LEN);
    if family == INET {
        return ipv4::print(cx, payload);
    }
    if INET6.contains(&family) {
        return ipv6::print(cx, payload);
    }
    if !cx.options.link_header {
        print_header(cx, family, span.length);
    }
    cx.unknown(payload.with_length(payload.captured()));
    Ok(())
}

fn print_header(cx: &mut Context<'_>, family: u32, length: usize) {
    match (cx.options.quiet, lookup(FAMILIES, family)) {
        (false, name) => put!(cx, "AF {} ({family})", name.unwrap_or("Unknown")),
        (true, Some(name)) => cx.text(name),
        (true, None) => put!(cx, "Unknown AF {family}"),
    }
    put!(cx, ", length {length}: ");
}
