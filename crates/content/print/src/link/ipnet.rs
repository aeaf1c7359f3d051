//! Solaris's IP observability devices (`/dev/ipnet`).
//!
//! ```text
//! | version 1 | family 1 | hook 2 | length 4 | interface 4 | group 4 | source zone 4 | destination zone 4 | IP packet |
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net::{ipv4, ipv6};

const HEADER_LEN: usize = 24;
const INET: u8 = 2;
const INET6: u8 = 26;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ipnet";
    span.need(HEADER_LEN)?;
    cx.link_header_len += HEADER_LEN;
    if cx.options.link_header {
        print_header(cx, span)?;
    }
    let rest = span.skip(HEADER_LEN);
    match span.u8(1)? {
        INET => ipv4::print(cx, rest),
        INET6 => ipv6::print(cx, rest),
        _ => {
            if !cx.options.link_header {
                print_header(cx, span)?;
            }
            cx.unknown(rest.with_length(rest.captured()));
            Ok(())
        }
    }
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let family = span.u8(1)?;
    put!(cx, "{} > {}", span.u32(16)?, span.u32(20)?);
    let name = match family {
        INET => Some("IPv4"),
        INET6 => Some("IPv6"),
        _ => None,
    };
    match (name, cx.options.quiet) {
        (_, false) => put!(cx, ", family {} ({family})", name.unwrap_or("Unknown")),
        (Some(name), true) => put!(cx, ", {name}"),
        (None, true) => put!(cx, ", Unknown Ethertype (0x{family:04x})"),
    }
    put!(cx, ", length {}: ", span.length);
    Ok(())
}
