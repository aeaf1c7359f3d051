//! Tunnels: frames within packets.
//!
//! ```text
//! GRE      flags+version 2, type 2, [checksum 2 + reserved 2], [key 4], [sequence 4], payload
//! VXLAN    flags 1 = 8, reserved 3, network 3, reserved 1, Ethernet frame
//! Geneve   version+options length 1, flags 1, type 2, network 3, reserved 1, options, payload
//! ERSPAN   II: version+VLAN 2, class+session 2, index 4, frame;  III: ... 2, ... 2, time 4, group 2, flags 2, [8], payload
//! GTP-U    flags 1, message 1 = 255, length 2, endpoint 4, [sequence 2, N-PDU 1, next 1, extensions], packet
//! ```

use super::checksum::internet_checksum;

/// The EtherType of an Ethernet frame in a tunnel (RFC 1701).
pub const TRANSPARENT_BRIDGING: u16 = 0x6558;
/// The GRE type of ERSPAN type I, which has no header of its own and no sequence number in GRE, and of type II.
pub const ERSPAN_I_II: u16 = 0x88be;
/// The GRE type of ERSPAN of type III.
pub const ERSPAN_III: u16 = 0x22eb;

/// A GRE header (RFC 2784, RFC 2890). IP protocol 47.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gre {
    /// The type of the payload.
    pub ethertype: u16,
    /// Whether the header has a checksum.
    pub checksum: bool,
    /// The key, if there is one.
    pub key: Option<u32>,
    /// The sequence number, if there is one.
    pub sequence: Option<u32>,
}

impl Gre {
    /// The bytes of this header, followed by `payload`.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(self.checksum, 0x8000)
            | flag(self.key.is_some(), 0x2000)
            | flag(self.sequence.is_some(), 0x1000);
        let mut bytes = [flags.to_be_bytes(), self.ethertype.to_be_bytes()].concat();
        bytes.resize(if self.checksum { 8 } else { 4 }, 0);
        bytes.extend(self.key.iter().chain(&self.sequence).flat_map(|word| word.to_be_bytes()));
        bytes.extend_from_slice(payload);
        if self.checksum {
            let sum = internet_checksum(&[&bytes]);
            bytes[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }
}

/// An ERSPAN header of type II (draft-foschiano-erspan-03), followed by `frame`. `session`: 0 to 1023.
pub fn erspan_ii(session: u16, frame: &[u8]) -> Vec<u8> {
    [&[0x10, 0x01], &(session & 0x3ff).to_be_bytes()[..], &[0, 0, 0, 7], frame].concat()
}

/// An ERSPAN header of type III (draft-foschiano-erspan-03), followed by `payload`. `session`: 0 to 1023. `frame_type`:
/// 0 for an Ethernet frame, 2 for an IP packet. `subheader`: whether the optional 8 bytes of the platform are there.
pub fn erspan_iii(session: u16, frame_type: u8, subheader: bool, payload: &[u8]) -> Vec<u8> {
    let flags = u16::from(frame_type & 0x1f) << 10 | u16::from(subheader);
    let head = [&[0x20, 0x01], &(session & 0x3ff).to_be_bytes()[..], &[0, 0, 0, 9, 0, 0]].concat();
    let more: &[u8] = if subheader { &[0x0c, 0, 0, 0, 0, 0, 0, 1] } else { &[] };
    [&head, &flags.to_be_bytes()[..], more, payload].concat()
}

/// A GTP-U header (3GPP TS 29.281), followed by `packet`. `endpoint`: the tunnel endpoint identifier (TEID). UDP port
/// 2152.
///
/// Each extension is a pair of its type and its content, which has 2, 6, 10 ... bytes.
pub fn gtp_u(endpoint: u32, sequence: Option<u16>, extensions: &[(u8, &[u8])], packet: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let long = sequence.is_some() || !extensions.is_empty();
    if long {
        body.extend_from_slice(&sequence.unwrap_or(0).to_be_bytes());
        body.push(0);
        body.push(extensions.first().map_or(0, |(kind, _)| *kind));
    }
    for (index, (_, content)) in extensions.iter().enumerate() {
        body.push(((content.len() + 2) / 4) as u8);
        body.extend_from_slice(content);
        body.push(extensions.get(index + 1).map_or(0, |(kind, _)| *kind));
    }
    body.extend_from_slice(packet);
    let flags =
        0x30 | if sequence.is_some() { 0x02 } else { 0 } | if extensions.is_empty() { 0 } else { 0x04 };
    let len = (body.len() as u16).to_be_bytes();
    [&[flags, 0xff], &len[..], &endpoint.to_be_bytes(), &body].concat()
}

/// A GRE header (RFC 2784, RFC 2890), with a key if one is given, followed by `payload`. IP protocol 47.
pub fn gre(ethertype: u16, key: Option<u32>, payload: &[u8]) -> Vec<u8> {
    Gre { ethertype, key, ..Gre::default() }.packet(payload)
}

/// A VXLAN header (RFC 7348), followed by an Ethernet frame. `network`: the 24-bit VNI. UDP port 4789.
pub fn vxlan(network: u32, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0], &(network << 8).to_be_bytes()[..], frame].concat()
}

/// A Geneve header (RFC 8926), followed by `payload`. `network`: the 24-bit VNI. UDP port 6081.
///
/// `options` are copied as they are: whole words of 4 bytes, at most 252 bytes. The type of an Ethernet frame is
/// 0x6558.
pub fn geneve(network: u32, ethertype: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (options.len() / 4) as u8 & 0x3f;
    let head = [words, 0];
    [&head, &ethertype.to_be_bytes()[..], &(network << 8).to_be_bytes(), options, payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_stand_in_order() {
        let gre = Gre { ethertype: 0x0800, checksum: true, key: Some(1), sequence: Some(2) };
        let bytes = gre.packet(&[9, 9]);
        assert_eq!(bytes[..4], [0xb0, 0, 8, 0]);
        assert_eq!(bytes[6..], [0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9]);
        assert_eq!(internet_checksum(&[&bytes]), 0);
        let gtp = gtp_u(5, None, &[(0x85, &[1, 2]), (0x40, &[3; 6])], &[0x45]);
        assert_eq!(gtp[..2], [0x34, 0xff]);
        assert_eq!(gtp[8..], [0, 0, 0, 0x85, 1, 1, 2, 0x40, 2, 3, 3, 3, 3, 3, 3, 0, 0x45]);
    }
}
