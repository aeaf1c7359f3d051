//! Fields of flows that other exporters metered, and which fields they gave.

use std::net::IpAddr;

/// Fields of a flow from the record of another exporter, in addition to those of every flow. A meter here knows none
/// of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The fields that the record gave. Others have no meaning in the flow, whatever their value.
    pub known: KnownFields,
    /// The exporter: the source of the message, or the address that the record or the sFlow agent gives.
    pub exporter: IpAddr,
    /// Observation domain (IPFIX), source id (v9), engine type and id (v5), or sub-agent (sFlow).
    pub domain: u32,
    /// Sampling interval N (1 packet in N was metered) of the counters; 1 for none, or for counters that were scaled;
    /// `None` if the exporter has not reported it.
    pub sampling: Option<u32>,
    /// The interface by which the packets left, by the exporter's number.
    pub egress: u32,
    /// Where the packets were metered: 0 as they came in, 1 as they left (`flowDirection`).
    pub direction: u8,
    /// Lengths of the prefixes by which source and destination were routed, in bits; 0 if unknown.
    pub prefix_lens: [u8; 2],
    /// Autonomous systems of source and destination; 0 if unknown.
    pub autonomous_systems: [u32; 2],
    /// The next router, if it is known.
    pub next_hop: Option<IpAddr>,
    /// Addresses of source and destination behind address translation (`postNATSourceIPv4Address` and its kin).
    pub post_addresses: [Option<IpAddr>; 2],
    /// Ports behind address translation.
    pub post_ports: [Option<u16>; 2],
    /// The event of address translation that the record reports (`natEvent`).
    pub nat_event: Option<u8>,
    /// The event of a firewall that the record reports (`firewallEvent`).
    pub firewall_event: Option<u8>,
    /// The packets of all collected flows are too many for the sums of accounts: in these each side that sent counts as
    /// one packet.
    pub is_beyond: bool,
}

impl Collected {
    /// Whether the record reports an event: it may count nothing.
    pub fn has_event(&self) -> bool {
        self.nat_event.is_some() || self.firewall_event.is_some()
    }
}

/// A field of a flow that an exporter may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KnownField {
    /// The protocol.
    Protocol,
    /// Type and code of ICMP.
    IcmpTypeCode,
    /// The interface by which the packets came in.
    Ingress,
    /// The interface by which they left.
    Egress,
    /// Where they were metered.
    Direction,
    /// The VLAN.
    Vlan,
    /// The top MPLS label.
    Label,
    /// The tunnel's identifier.
    Tunnel,
    /// The reason for the end.
    EndReason,
    /// Addresses of the first and the second endpoint.
    Address,
    /// Ports.
    Port = 11,
    /// Packets that each sent.
    Packets = 13,
    /// Bytes.
    Bytes = 15,
    /// TCP flags.
    TcpFlags = 17,
    /// TCP flags of the first packet.
    TcpFlagsFirst = 19,
    /// The least time to live.
    TtlMin = 21,
    /// The greatest time to live.
    TtlMax = 23,
    /// The type of service.
    Tos = 25,
}

/// A set of fields. Those from [`KnownField::Address`] on belong to one endpoint each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownFields(u32);

impl KnownFields {
    /// All fields.
    pub const ALL: KnownFields = KnownFields(u32::MAX);

    /// Adds a field; `side` is the number of the endpoint, 0 for fields that belong to none.
    #[inline]
    pub fn add(&mut self, field: KnownField, side: usize) {
        self.0 |= 1 << (field as usize + side);
    }

    /// The set as bits: of a field that of its number, with that of its endpoint added.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Whether the set has the field; `side` as for [`add`](Self::add).
    #[inline]
    pub fn has(self, field: KnownField, side: usize) -> bool {
        self.0 >> (field as usize + side) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_has_its_fields() {
        let of_side = [
            KnownField::Address,
            KnownField::Port,
            KnownField::Packets,
            KnownField::Bytes,
            KnownField::TcpFlags,
            KnownField::TcpFlagsFirst,
            KnownField::TtlMin,
            KnownField::TtlMax,
            KnownField::Tos,
        ];
        let mut known = KnownFields::default();
        for field in of_side {
            for side in 0..2 {
                assert!(!known.has(field, side), "{field:?} {side}");
                known.add(field, side);
                assert!(known.has(field, side));
            }
        }
        assert!(!known.has(KnownField::EndReason, 0));
    }
}
