//! Frames to ask filters about. Addresses: 10.0.0.1 to 10.0.0.2, 2001:db8::1 to 2001:db8::2.

pub(super) fn ether(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// An 802.3 frame: a length, what follows, and zeros up to the least that Ethernet sends.
pub(super) fn llc(payload: &[u8]) -> Vec<u8> {
    let mut frame = ether(payload.len() as u16, payload);
    frame.resize(60, 0);
    frame
}

pub(super) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(payload);
    packet
}

pub(super) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for last in [1, 2] {
        packet.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend(payload);
    packet
}

/// A SYN.
pub(super) fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let mut segment = ports(source, destination);
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    segment
}

pub(super) fn udp(source: u16, destination: u16) -> Vec<u8> {
    udp_with(source, destination, &[])
}

pub(super) fn udp_with(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = ports(source, destination);
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

pub(super) fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2];
    packet.extend(sender);
    packet.extend([0; 6]);
    packet.extend(target);
    packet
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}
