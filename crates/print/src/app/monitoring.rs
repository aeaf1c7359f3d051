//! sFlow (version 5) and LDP (RFC 5036) by their headers.
//!
//! ```text
//! sFlow = version 4 | address type 4 (1 IPv4, 2 IPv6) | agent 4 or 16 | agent id 4 | sequence 4 | uptime 4 | samples 4
//! LDP   = version 2 | length 2 | router 4, label space 2 | messages: type 2, length 2, id 4, ...
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

/// `sFlowv5, IPv4 agent 10.0.0.1, agent-id 0, length 48`.
pub(super) fn sflow(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "sflow";
    if sflow_fields(cx, span).is_err() {
        cx.cut();
    }
    Ok(())
}

fn sflow_fields(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let version = span.u32(0)?;
    if version != 5 {
        put!(cx, "sFlow version {version} packet not supported");
        return Ok(());
    }
    let at = match span.u32(4)? {
        1 => {
            span.need(28)?;
            cx.text("sFlowv5, IPv4 agent ");
            cx.host(span.array::<4>(8)?.into());
            12
        }
        _ => {
            span.need(40)?;
            cx.text("sFlowv5, IPv6 agent ");
            cx.host(span.array::<16>(8)?.into());
            24
        }
    };
    put!(cx, ", agent-id {}", span.u32(at)?);
    if cx.verbose() > 0 {
        let (sequence, uptime, samples) = (span.u32(at + 4)?, span.u32(at + 8)?, span.u32(at + 12)?);
        put!(cx, ", seqnum {sequence}, uptime {uptime}, samples {samples}");
    }
    put!(cx, ", length {}", span.length);
    Ok(())
}

/// A header and one message's. What is not longer is passed over without a word.
const LDP_LEN_MIN: usize = 18;

/// `LDP, Label-Space-ID: 10.0.0.1:0, pdu-length: 30`.
pub(super) fn ldp(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
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
