//! Tunnels: frames within packets.
//!
//! ```text
//! GRE      flags+version 2, type 2, [checksum 2 + reserved 2], [key 4], [sequence 4], payload
//! VXLAN    flags 1 = 8, reserved 3, network 3, reserved 1, Ethernet frame
//! Geneve   version+options length 1, flags 1, type 2, network 3, reserved 1, options, payload
//! ```

/// GRE (RFC 2784, RFC 2890) with a key if there is one, before `payload`. IP protocol 47.
pub fn gre(ethertype: u16, key: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let flags: u16 = if key.is_some() { 0x2000 } else { 0 };
    let mut bytes = [flags.to_be_bytes(), ethertype.to_be_bytes()].concat();
    bytes.extend(key.iter().flat_map(|key| key.to_be_bytes()));
    bytes.extend_from_slice(payload);
    bytes
}

/// VXLAN (RFC 7348) of a 24-bit network around an Ethernet frame. UDP port 4789.
pub fn vxlan(network: u32, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0], &(network << 8).to_be_bytes()[..], frame].concat()
}

/// Geneve (RFC 8926) of a 24-bit network, with options as they stand, around `payload`. UDP port 6081.
///
/// `options` must be whole words, at most 252 bytes. An Ethernet frame has the type 0x6558.
pub fn geneve(network: u32, ethertype: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (options.len() / 4) as u8 & 0x3f;
    let head = [words, 0];
    [&head, &ethertype.to_be_bytes()[..], &(network << 8).to_be_bytes(), options, payload].concat()
}
