//! LDP (RFC 5036) by its header.
//!
//! ```text
//! LDP = version 2 | length 2 | router 4, label space 2 | messages: type 2, length 2, id 4, ...
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

/// A header and one message's. Shorter packets are skipped without a word.
const LDP_LEN_MIN: usize = 18;

/// `LDP, Label-Space-ID: 10.0.0.1:0, pdu-length: 30`.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ldp";
    if span.length <= LDP_LEN_MIN {
        return Ok(());
    }
    span.need(10)?;
    let (version, length) = (span.u16(0)?, span.u16(2)?);
    if cx.verbose() > 0 {
        cx.text("\n\t");
    }
    if version != 1 {
        put!(cx, "LDP version {version} packet not supported");
    } else if length < 6 {
        put!(cx, "LDP, pdu-length: {length} (too short, < 6)");
    } else {
        cx.text("LDP, Label-Space-ID: ");
        cx.host(span.array::<4>(4)?.into());
        put!(cx, ":{}, pdu-length: {length}", span.u16(8)?);
    }
    Ok(())
}
