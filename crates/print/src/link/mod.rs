//! Link layers: the first header of a packet.

use tapline_packet::LinkType;

use crate::bytes::{Printed, Span};
use crate::context::Context;

/// Prints a packet from its first header on.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, _link_type: LinkType) -> Printed {
    cx.unknown(span);
    Ok(())
}
