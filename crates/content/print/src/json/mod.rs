//! Packets as JSON: one object a packet, on one line. `docs/json.md` describes every key.
//!
//! ```text
//! {"number":1,"time":"2026-11-21T22:23:47.123456789Z","time_ns":"1795299827123456789","interface":"eth0",...,
//!  "eth":{...},"ipv4":{...},"udp":{...},"dns":{...},"protocols":["eth","ipv4","udp","dns"]}
//! ```
//!
//! Each protocol is an object under its own name, so that `.ipv4.src` always is the outermost address. The packet in
//! a tunnel, or in an error message, is an object of the same form under `inner`. A packet is never an error: a
//! header that was cut short has its fields as far as they were captured, and `truncated` names the protocol that was
//! cut.

mod application;
mod control;
mod dhcp;
mod dns;
mod link;
mod network;
mod security;
mod serial;
mod time;
mod transport;
mod tunnel;
mod walk;
mod wireless;
mod write;

use tapline_packet::{Checksum, Direction, Interface, Meta, Packet, PacketType};

use crate::bytes::Span;
use walk::Walk;
use write::Writer;

/// Appends `packet` to `out` as one line of JSON with its newline.
///
/// `interface` is where it was captured, `number` its number in the output, from 1. Nothing is allocated once `out` has
/// grown to the size of the longest line.
pub fn packet(packet: Packet<'_>, interface: &Interface, number: u64, out: &mut Vec<u8>) {
    let mut json = Writer::new(out);
    json.object(|json| {
        json.number_field("number", number);
        record(json, packet, interface);
        let mut walk = Walk::new(json);
        let span = Span { data: packet.data, length: packet.meta.wire_len as usize };
        link::packet(&mut walk, span, interface.link_type, packet.meta.vlan);
        walk.finish();
    });
    out.push(b'\n');
}

/// Writes the packet's metadata.
fn record(json: &mut Writer, packet: Packet<'_>, interface: &Interface) {
    let meta = packet.meta;
    if !meta.is_untimed {
        json.string_field("time", |part| time::rfc3339(meta.timestamp, part));
        json.string_field("time_ns", |part| time::nanoseconds(meta.timestamp, part));
    }
    if !interface.name.is_empty() {
        json.text_field("interface", interface.name.as_bytes());
    }
    json.number_field("interface_id", meta.interface.0);
    json.number_field("link_type", interface.link_type.0);
    json.number_field("length", meta.wire_len);
    json.number_field("captured", packet.data.len() as u64);
    state(json, meta);
}

/// Writes metadata of live captures and pcapng files: a key is left out if its value is not known.
fn state(json: &mut Writer, meta: &Meta) {
    match meta.direction {
        Direction::Unknown => {}
        Direction::In => json.text_field("direction", b"in"),
        Direction::Out => json.text_field("direction", b"out"),
    }
    if let Some(name) = packet_type(meta.packet_type) {
        json.text_field("packet_type", name);
    }
    match meta.checksum {
        Checksum::Unknown => {}
        Checksum::Valid => json.text_field("checksum", b"valid"),
        Checksum::NotReady => json.text_field("checksum", b"not_ready"),
    }
    if let Some(gso) = meta.gso {
        json.object_field("gso", |json| {
            json.number_field("size", gso.size);
            json.number_field("kind", gso.kind);
        });
    }
    if meta.rx_hash != 0 {
        json.hex_field("rx_hash", meta.rx_hash, 8);
    }
    if let Some(color) = meta.color {
        json.number_field("color", color);
    }
    if meta.label != 0 {
        json.number_field("label", meta.label);
    }
    if meta.drops_before != 0 {
        json.number_field("drops_before", meta.drops_before);
    }
}

/// `Host` is also the value of sources that do not know, so it has no name.
fn packet_type(packet_type: PacketType) -> Option<&'static [u8]> {
    match packet_type {
        PacketType::Host => None,
        PacketType::Broadcast => Some(b"broadcast"),
        PacketType::Multicast => Some(b"multicast"),
        PacketType::OtherHost => Some(b"other_host"),
        PacketType::Outgoing => Some(b"outgoing"),
    }
}

#[cfg(test)]
mod tests;
