//! Raw IP: no header before the IP header.

use crate::bytes::{Printed, Span};
use crate::context::Context;
use crate::net;
use crate::text::Text;

/// Prints a packet of IPv4 or IPv6, by its version.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if cx.options.link_header {
        cx.text("ip: ");
    }
    net::ip(cx, span)
}
