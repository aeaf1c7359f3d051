//! A flow meter that is slow and plainly right, for comparison with the fast one.
//!
//! Every rule is written out: a packet, the flow of its key, has that ended by now, then count. All flows are in one
//! map, every time is kept whole, nothing is forgotten early. Packets are read by hand from their bytes, not by the
//! header views of the product.
//!
//! ```text
//! clock = greatest time so far
//! over  = silent for longer than idle (after TCP's end: than closed), or lasted for active      by the clock at which packets came
//! ```
//!
//! Known are Ethernet with VLAN tags, IPv4, and IPv6 with extension headers; any other packet is an error.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Rules by which packets become flows; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A flow that lasts so long ends.
    pub active: i64,
    /// So does one that is silent for longer.
    pub idle: i64,
    /// The idle timeout once TCP has ended, if that is less.
    pub closed: i64,
}

/// One end of a flow: address and port.
pub type AddressPort = (IpAddr, u16);

/// The packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Packets.
    pub packets: u64,
    /// Bytes by the lengths in IP headers.
    pub bytes: u64,
    /// The least and the greatest time.
    pub times: (i64, i64),
    /// All TCP flags, and those of the first packet.
    pub flags: (u8, u8),
    /// The least and the greatest time to live.
    pub ttl: (u8, u8),
    /// The type of service of the first packet.
    pub tos: u8,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender of the first packet, and its receiver.
    pub ends: [AddressPort; 2],
    /// The IP protocol.
    pub protocol: u8,
    /// The packets of each end; `None` if there are none.
    pub ways: [Option<DirectionTotals>; 2],
    /// Reason for the end: 1 idle, 2 active, 3 TCP's end, 4 the end of all.
    pub reason: u8,
    born: i64,
    seen: i64,
}

/// A packet's part in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowPacket {
    from: AddressPort,
    to: AddressPort,
    protocol: u8,
    bytes: u64,
    flags: u8,
    ttl: u8,
    tos: u8,
}

/// The reason that a packet is in no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmeteredReason {
    /// The packet is not IP.
    Ip,
    /// Something that must be known was not captured.
    Whole,
}

type Key = (AddressPort, AddressPort, u8);
type Datagram = (IpAddr, IpAddr, u32, u8);

/// The meter.
#[derive(Debug)]
pub struct FlowMeter {
    rules: Rules,
    clock: i64,
    flows: HashMap<Key, Flow>,
    firsts: HashMap<Datagram, (i64, u8, u16, u16)>,
    /// Flows that have ended.
    pub ended: Vec<Flow>,
    /// Packets that are not IP, and packets that were cut short.
    pub not_metered: [u64; 2],
}

impl FlowMeter {
    /// No flow yet.
    pub fn new(rules: Rules) -> FlowMeter {
        let (flows, firsts) = (HashMap::new(), HashMap::new());
        FlowMeter { rules, clock: i64::MIN, flows, firsts, ended: Vec::new(), not_metered: [0; 2] }
    }

    /// Meters an Ethernet frame of which `frame` was captured.
    pub fn push(&mut self, time: i64, frame: &[u8], wire_len: usize) {
        let part = match self.read(time, frame, wire_len) {
            Ok(part) => part,
            Err(not) => {
                self.not_metered[not as usize] += 1;
                return;
            }
        };
        self.clock = self.clock.max(time);
        let key = (part.from.min(part.to), part.from.max(part.to), part.protocol);
        if let Some(flow) = self.flows.get(&key) {
            let begins = part.flags & 0x16 == 0x02 && is_closed(flow);
            let reason = self.over(flow).or(begins.then_some(3));
            if let Some(reason) = reason {
                self.ended.push(Flow { reason, ..*flow });
                self.flows.remove(&key);
            }
        }
        let clock = self.clock;
        let flow = self.flows.entry(key).or_insert(Flow {
            ends: [part.from, part.to],
            protocol: part.protocol,
            ways: [None, None],
            reason: 0,
            born: clock,
            seen: clock,
        });
        flow.seen = clock;
        // Both ends of a flow to oneself are the same.
        let which = usize::from(flow.ends[0] != part.from);
        let way = flow.ways[which].get_or_insert(DirectionTotals {
            packets: 0,
            bytes: 0,
            times: (time, time),
            flags: (0, part.flags),
            ttl: (part.ttl, part.ttl),
            tos: part.tos,
        });
        way.packets += 1;
        way.bytes += part.bytes;
        way.times = (way.times.0.min(time), way.times.1.max(time));
        way.flags.0 |= part.flags;
        way.ttl = (way.ttl.0.min(part.ttl), way.ttl.1.max(part.ttl));
    }

    /// Ends all flows.
    pub fn finish(&mut self) {
        for flow in std::mem::take(&mut self.flows).into_values() {
            let reason = self.over(&flow).unwrap_or(4);
            self.ended.push(Flow { reason, ..flow });
        }
    }

    fn over(&self, flow: &Flow) -> Option<u8> {
        let (silence, why) = match is_closed(flow) && self.rules.closed < self.rules.idle {
            true => (self.rules.closed, 3),
            false => (self.rules.idle, 1),
        };
        let (silent_until, active_until) =
            (flow.seen.saturating_add(silence), flow.born.saturating_add(self.rules.active));
        let is_over = self.clock > silent_until || self.clock >= active_until;
        is_over.then_some(if silent_until < active_until { why } else { 2 })
    }

    fn read(&mut self, time: i64, frame: &[u8], wire_len: usize) -> Result<FlowPacket, UnmeteredReason> {
        let mut at = 12;
        let mut kind = word(frame, at).ok_or(UnmeteredReason::Ip)?;
        while matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            at += 4;
            kind = word(frame, at).ok_or(UnmeteredReason::Ip)?;
        }
        at += 2;
        match kind {
            0x0800 => self.read_v4(time, frame, at, wire_len),
            0x86dd => self.read_v6(time, frame, at, wire_len),
            _ => Err(UnmeteredReason::Ip),
        }
    }

    fn read_v4(
        &mut self,
        time: i64,
        frame: &[u8],
        at: usize,
        wire_len: usize,
    ) -> Result<FlowPacket, UnmeteredReason> {
        let h = frame.get(at..at + 20).ok_or(UnmeteredReason::Whole)?;
        let header_len = usize::from(h[0] & 15) * 4;
        if h[0] >> 4 != 4 || header_len < 20 {
            return Err(UnmeteredReason::Ip);
        }
        let total = usize::from(u16::from_be_bytes([h[2], h[3]]));
        let address = |at: usize| IpAddr::from(Ipv4Addr::new(h[at], h[at + 1], h[at + 2], h[at + 3]));
        let end = if total == 0 { frame.len() } else { frame.len().min(at + total) };
        let cut = u16::from_be_bytes([h[6], h[7]]);
        let id = (cut & 0x3fff != 0).then(|| (u32::from(u16::from_be_bytes([h[4], h[5]])), h[9]));
        let carried = Carried {
            data: frame,
            at: at + header_len,
            end,
            protocol: h[9],
            id,
            is_later: cut & 0x1fff != 0,
        };
        let (ports, protocol, flags) = self.transport(time, address(12), address(16), &carried)?;
        Ok(FlowPacket {
            from: (address(12), ports.0),
            to: (address(16), ports.1),
            protocol,
            bytes: if total == 0 { wire_len - at } else { total } as u64,
            flags,
            ttl: h[8],
            tos: h[1],
        })
    }

    fn read_v6(
        &mut self,
        time: i64,
        frame: &[u8],
        at: usize,
        wire_len: usize,
    ) -> Result<FlowPacket, UnmeteredReason> {
        let h = frame.get(at..at + 40).ok_or(UnmeteredReason::Whole)?;
        if h[0] >> 4 != 6 {
            return Err(UnmeteredReason::Ip);
        }
        let payload = usize::from(u16::from_be_bytes([h[4], h[5]]));
        let end = if payload == 0 { frame.len() } else { frame.len().min(at + 40 + payload) };
        let address = |at: usize| {
            let bytes: [u8; 16] = h[at..at + 16].try_into().expect("sixteen bytes");
            IpAddr::from(Ipv6Addr::from(bytes))
        };
        let carried = extensions(&frame[..end], h[6], at + 40)?;
        let (ports, protocol, flags) = self.transport(time, address(8), address(24), &carried)?;
        Ok(FlowPacket {
            from: (address(8), ports.0),
            to: (address(24), ports.1),
            protocol,
            bytes: if payload == 0 { wire_len - at } else { payload + 40 } as u64,
            flags,
            ttl: h[7],
            tos: h[0] << 4 | h[1] >> 4,
        })
    }

    /// Ports, protocol, TCP flags.
    fn transport(
        &mut self,
        time: i64,
        from: IpAddr,
        to: IpAddr,
        carried: &Carried<'_>,
    ) -> Result<((u16, u16), u8, u8), UnmeteredReason> {
        let protocol = carried.protocol;
        if carried.is_later {
            let (id, said) = carried.id.ok_or(UnmeteredReason::Whole)?;
            let first =
                self.firsts.get(&(from, to, id, said)).filter(|first| time - first.0 <= 30_000_000_000);
            return Ok(first.map_or(((0, 0), protocol, 0), |first| ((first.2, first.3), first.1, 0)));
        }
        let Carried { data, at, end, .. } = *carried;
        let bytes = data.get(at..end).unwrap_or_default();
        let ports = match protocol {
            6 | 17 | 132 => {
                let b = bytes.get(..4).ok_or(UnmeteredReason::Whole)?;
                (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]]))
            }
            1 | 58 => {
                let b = bytes.get(..2).ok_or(UnmeteredReason::Whole)?;
                (0, u16::from_be_bytes([b[0], b[1]]))
            }
            _ => (0, 0),
        };
        if let Some((id, said)) = carried.id {
            self.firsts.insert((from, to, id, said), (time, protocol, ports.0, ports.1));
        }
        let flags = if protocol == 6 { bytes.get(13).copied().unwrap_or(0) } else { 0 };
        Ok((ports, protocol, flags))
    }
}

/// The payload of an IP packet.
struct Carried<'f> {
    data: &'f [u8],
    at: usize,
    end: usize,
    protocol: u8,
    /// Packet of a fragment, and the protocol that its header names.
    id: Option<(u32, u8)>,
    is_later: bool,
}

/// Over IPv6's extension headers, eight at most.
fn extensions(data: &[u8], mut next: u8, mut at: usize) -> Result<Carried<'_>, UnmeteredReason> {
    let mut id = None;
    for _ in 0..8 {
        let len = match next {
            0 | 43 | 60 => (usize::from(*data.get(at + 1).ok_or(UnmeteredReason::Whole)?) + 1) * 8,
            51 => (usize::from(*data.get(at + 1).ok_or(UnmeteredReason::Whole)?) + 2) * 4,
            44 => {
                let h = data.get(at..at + 8).ok_or(UnmeteredReason::Whole)?;
                let cut = u16::from_be_bytes([h[2], h[3]]);
                let own = (u32::from_be_bytes([h[4], h[5], h[6], h[7]]), h[0]);
                if cut & !6 != 0 && id.is_none() {
                    id = Some(own);
                }
                if cut & !7 != 0 {
                    return Ok(Carried { data, at, end: at, protocol: h[0], id, is_later: true });
                }
                8
            }
            _ => break,
        };
        (next, at) = (*data.get(at).ok_or(UnmeteredReason::Whole)?, at + len);
    }
    Ok(Carried { data, at, end: data.len(), protocol: next, id, is_later: false })
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

fn is_closed(flow: &Flow) -> bool {
    let flags = flow.ways.map(|way| way.map_or(0, |way| way.flags.0));
    flow.protocol == 6 && ((flags[0] | flags[1]) & 4 != 0 || flags[0] & flags[1] & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Ethernet, Host, IpPair, IpVersion, Udp};

    /// By hand: three packets one way, one back, a silence, one more.
    #[test]
    fn flows_as_counted_by_hand() {
        let (a, b) = (Host::number(1), Host::number(2));
        let frame = |from: &Host, to: &Host, ports: (u16, u16)| {
            let pair = IpPair::between(from, to, IpVersion::V4);
            Ethernet::between(from, to).ip(&Udp { src: ports.0, dst: ports.1 }.packet(pair, b"12345678"))
        };
        let mut meter = FlowMeter::new(Rules { active: 100, idle: 10, closed: 2 });
        for (time, forth) in [(0, true), (5, false), (7, true), (9, true), (20, true)] {
            let frame = if forth { frame(&a, &b, (7, 53)) } else { frame(&b, &a, (53, 7)) };
            meter.push(time, &frame, frame.len());
        }
        meter.push(21, &[0; 60], 60);
        meter.finish();
        let shown: Vec<_> = meter
            .ended
            .iter()
            .map(|flow| {
                (flow.reason, flow.ways.map(|way| way.map(|way| (way.packets, way.bytes, way.times))))
            })
            .collect();
        assert_eq!(
            shown,
            [(1, [Some((3, 108, (0, 9))), Some((1, 36, (5, 5)))]), (4, [Some((1, 36, (20, 20))), None])]
        );
        assert_eq!(meter.not_metered, [1, 0]);
    }
}
