//! sFlow (version 5) and LDP (RFC 5036) by their headers.
//!
//! ```text
//! sFlow = version 4 | address type 4 (1 IPv4, 2 IPv6) | agent 4 or 16 | agent id 4 | sequence 4 | uptime 4 | samples 4
//! LDP   = version 2 | length 2 | router 4, label space 2 | messages: type 2, length 2, id 4, ...
//! ```

use crate::bytes::{Cut, Printed, Span};
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

/// `LDP, Label-Space-ID: 10.0.0.1:0, pdu-length: 30`.
pub(super) fn ldp(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ldp";
    let header = ldp_header(span);
    // What is no header of version 1, or is longer than the packet, is passed over without a word.
    let Ok((router, space, length)) = header else { return Ok(()) };
    cx.text(if cx.verbose() > 0 { "\n\tLDP, Label-Space-ID: " } else { "LDP, Label-Space-ID: " });
    cx.host(router.into());
    put!(cx, ":{space}, pdu-length: {length}");
    Ok(())
}

fn ldp_header(span: Span<'_>) -> Result<([u8; 4], u16, u16), Cut> {
    let (version, length) = (span.u16(0)?, span.u16(2)?);
    if version != 1 || usize::from(length) + 4 > span.length {
        return Err(Cut);
    }
    Ok((span.array(4)?, span.u16(8)?, length))
}
