//! IEEE 802.11 frames, with a radiotap header before them or without.
//!
//! ```text
//! radiotap: version 1 | pad 1 | length 2 (little-endian) | fields
//! frame control 2 (version 2 bits, type 2, subtype 4; to DS, from DS, more, retry, power, more data, protected, order)
//! duration 2 | receiver 6 | transmitter 6 | address 3 6 | sequence 2 | [address 4 6] | [QoS 2 [HT control 4]] | body
//! ```

use super::link;
use super::walk::Walk;
use super::write::Writer;
use crate::bytes::{Printed, Span};

const TO_DS: u16 = 0x0100;
const FROM_DS: u16 = 0x0200;
const RETRY: u16 = 0x0800;
const PROTECTED: u16 = 0x4000;
const ORDER: u16 = 0x8000;

const DATA: u16 = 2;
/// Subtypes of data frames: with a QoS field; without a body.
const QOS: u16 = 8;
const NO_DATA: u16 = 4;

/// Writes a radiotap header and the frame behind it.
pub(super) fn radiotap(walk: &mut Walk, span: Span<'_>) -> Printed {
    let length = walk.layer("radiotap", |json| {
        let length = span.u16_le(2)?;
        json.number_field("length", length);
        json.hex_field("present", span.u32_le(4)?, 8);
        Ok(usize::from(length))
    })?;
    if length < 8 {
        walk.malformed("radiotap");
        return Ok(());
    }
    frame(walk, span.skip(length))
}

/// A frame. Only data that is not encrypted is looked into.
pub(super) fn frame(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (control, header_len) = walk.layer("wlan", |json| {
        let control = span.u16_le(0)?;
        let (kind, subtype) = (control >> 2 & 3, control >> 4 & 15);
        json.number_field("type", kind);
        json.number_field("subtype", subtype);
        json.boolean_field("to_ds", control & TO_DS != 0);
        json.boolean_field("from_ds", control & FROM_DS != 0);
        json.boolean_field("retry", control & RETRY != 0);
        json.boolean_field("protected", control & PROTECTED != 0);
        json.mac_field("receiver", span.bytes(4, 6)?);
        // Control frames (type 1) have at most a transmitter.
        if kind == 1 {
            return Ok((control, 10));
        }
        json.mac_field("transmitter", span.bytes(10, 6)?);
        json.mac_field("address3", span.bytes(16, 6)?);
        json.number_field("sequence", span.u16_le(22)? >> 4);
        let mut header_len = 24;
        if control & (TO_DS | FROM_DS) == TO_DS | FROM_DS {
            json.mac_field("address4", span.bytes(24, 6)?);
            header_len += 6;
        }
        if kind == DATA && subtype & QOS != 0 {
            header_len += if control & ORDER != 0 { 6 } else { 2 };
        }
        if control & PROTECTED == 0 {
            verdict(json, (kind, subtype), span.skip(header_len));
        }
        Ok((control, header_len))
    })?;
    let body = span.skip(header_len);
    let is_data = control >> 2 & 3 == DATA && control >> 4 & NO_DATA == 0;
    if is_data && control & PROTECTED == 0 {
        return link::llc(walk, body);
    }
    walk.payload(body);
    Ok(())
}

/// Writes the result in a management frame (type 0), if its body was captured: the reason of a disassociation or
/// deauthentication, the status of a response (IEEE 802.11, 9.3.3).
fn verdict(json: &mut Writer<'_>, frame: (u16, u16), body: Span<'_>) {
    let (name, at) = match frame {
        (0, 1 | 3) => ("status", 2),
        (0, 11) => ("status", 4),
        (0, 10 | 12) => ("reason", 0),
        _ => return,
    };
    if let Ok(code) = body.u16_le(at) {
        json.number_field(name, code);
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Interface, LinkType, Meta, Packet};

    #[test]
    fn farewells_give_their_reason() {
        let mut frame = vec![0xc0, 0, 0, 0];
        frame.extend([2; 20]);
        frame.extend([15, 0]);
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        let mut line = Vec::new();
        let interface = Interface::new("", LinkType(105));
        crate::json::packet(Packet { data: &frame, meta: &meta }, &interface, 1, &mut line);
        let line = String::from_utf8(line).expect("UTF-8");
        assert!(line.contains("\"reason\":15"), "{line}");
    }
}
