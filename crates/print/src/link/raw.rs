//! Raw IP: no header before the IP header.

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::net::{ipv4, ipv6};
use crate::text::Text;

/// Prints a packet of IPv4 or IPv6, by its version.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "raw";
    match span.u8(0)? >> 4 {
        4 => {
            cx.text(if cx.options.link_header { "IP " } else { "" });
            ipv4::print(cx, span)
        }
        6 => {
            cx.text(if cx.options.link_header { "IP6 " } else { "" });
            ipv6::print(cx, span)
        }
        version => {
            put!(cx, "IP{version}");
            cx.invalid();
            Ok(())
        }
    }
}
