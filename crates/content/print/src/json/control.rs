//! Control protocols: PTP, OpenFlow, LISP, Babel, LSP ping, OLSR, RPKI to router, UDLD; their headers.

use super::walk::Walk;
use crate::bytes::{Cut, Printed, Span};

/// Maximum number of listed messages in a packet.
const MESSAGES_MAX: usize = 64;

/// Precision time protocol (IEEE 1588).
pub(super) fn ptp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("ptp", |json| {
        let version = span.u8(1)? & 0x0f;
        json.number_field("version", version);
        if version != 2 {
            return Ok(());
        }
        json.number_field("type", span.u8(0)? & 0x0f);
        json.number_field("length", span.u16(2)?);
        json.number_field("domain", span.u8(4)?);
        json.hex_field("flags", span.u16(6)?, 4);
        json.bytes_field("clock", span.bytes(20, 8)?);
        json.number_field("port", span.u16(28)?);
        json.number_field("sequence", span.u16(30)?);
        Ok(())
    })
}

/// The first OpenFlow message of a segment.
pub(super) fn openflow(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("openflow", |json| {
        json.hex_field("version", span.u8(0)?, 2);
        json.number_field("type", span.u8(1)?);
        json.number_field("length", span.u16(2)?);
        json.hex_field("transaction", span.u32(4)?, 8);
        Ok(())
    })
}

/// LISP's control messages (RFC 6833).
pub(super) fn lisp(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("lisp", |json| {
        json.number_field("type", span.u8(0)? >> 4);
        json.number_field("records", span.u8(3)?);
        Ok(())
    })
}

/// Babel (RFC 8966): the types of its messages.
pub(super) fn babel(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("babel", |json| {
        json.number_field("version", span.u8(1)?);
        let length = usize::from(span.u16(2)?);
        json.number_field("length", length as u64);
        let mut rest = span.skip(4).limit(length.min(span.length.saturating_sub(4)));
        let is_whole = json.array_field("messages", |json| {
            for _ in 0..MESSAGES_MAX {
                if rest.length == 0 {
                    return Ok(true);
                }
                let kind = rest.u8(0)?;
                json.number(kind);
                let size = if kind == 0 { 1 } else { 2 + usize::from(rest.u8(1)?) };
                rest = rest.skip(size);
            }
            Ok(rest.length == 0)
        })?;
        if !is_whole {
            json.boolean_field("messages_truncated", true);
        }
        Ok(())
    })
}

/// OLSR (RFC 3626): the types of its messages.
pub(super) fn olsr(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("olsr", |json| {
        let length = usize::from(span.u16(0)?);
        json.number_field("length", length as u64);
        json.number_field("sequence", span.u16(2)?);
        let mut rest = span.limit(length.min(span.length)).skip(4);
        let is_whole = json.array_field("messages", |json| {
            for _ in 0..MESSAGES_MAX {
                if rest.length < 4 {
                    return Ok(true);
                }
                let (kind, size) = (rest.u8(0)?, usize::from(rest.u16(2)?));
                json.number(kind);
                if size < 4 {
                    return Ok(true);
                }
                rest = rest.skip(size);
            }
            Ok(rest.length < 4)
        })?;
        if !is_whole {
            json.boolean_field("messages_truncated", true);
        }
        Ok(())
    })
}

/// LSP ping (RFC 4379).
pub(super) fn lsp_ping(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("lsp_ping", |json| {
        json.number_field("version", span.u16(0)?);
        json.number_field("type", span.u8(4)?);
        json.number_field("reply_mode", span.u8(5)?);
        json.number_field("return_code", span.u8(6)?);
        json.number_field("return_subcode", span.u8(7)?);
        json.hex_field("handle", span.u32(8)?, 8);
        json.number_field("sequence", span.u32(12)?);
        Ok(())
    })
}

/// The first message of a segment between a router and a validating cache (RFC 6810).
pub(super) fn rpki(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("rpki_rtr", |json| {
        json.number_field("version", span.u8(0)?);
        json.number_field("type", span.u8(1)?);
        json.number_field("length", span.u32(4)?);
        Ok::<(), Cut>(())
    })
}

/// Unidirectional link detection (RFC 5171).
pub(super) fn udld(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("udld", |json| {
        let first = span.u8(0)?;
        json.number_field("version", first >> 5);
        json.number_field("code", first & 0x1f);
        json.hex_field("flags", span.u8(1)?, 2);
        Ok(())
    })
}
