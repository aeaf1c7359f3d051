//! Addresses and ports of flows.

use tapline_packet::headers::IpVersion;
use tapline_packet::mix::mixed;

use crate::checksum;
use crate::error::Error;
use crate::random::shuffled;
use crate::recipe::{AddressOrder, Recipe, Transport};
use crate::space::NumberRanges;

/// One flow: the client's addresses first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Addresses, those of IPv4 in the first four bytes.
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
    /// Ports; of ICMP the identifier and 0.
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    /// The source port of the tunnel's UDP header (RFC 7348, 5: from the inner headers, of the dynamic range).
    pub(crate) tunnel_port: u16,
    /// Index of its headers' shape.
    pub(crate) shape: u16,
    /// The sum of both addresses.
    pub(crate) addresses_sum: u32,
}

/// Addresses and ports of the flows of one protocol and IP version.
#[derive(Clone, Debug)]
pub(crate) struct FlowRanges {
    pub(crate) version: IpVersion,
    pub(crate) src: NumberRanges,
    pub(crate) src_ports: NumberRanges,
    pub(crate) dst: NumberRanges,
    pub(crate) dst_ports: NumberRanges,
}

impl FlowRanges {
    pub(crate) fn new(recipe: &Recipe, transport: Transport, version: IpVersion) -> FlowRanges {
        let (src, dst) = match version {
            IpVersion::V4 => (&recipe.src_v4, &recipe.dst_v4),
            IpVersion::V6 => (&recipe.src_v6, &recipe.dst_v6),
        };
        let usual = match transport {
            Transport::Udp => 9,
            Transport::Tcp => 80,
            Transport::Icmp => 0,
        };
        let dst_ports = recipe.dst_ports.clone().filter(|_| transport != Transport::Icmp);
        FlowRanges {
            version,
            src: src.clone(),
            src_ports: recipe.src_ports.clone(),
            dst: dst.clone(),
            dst_ports: dst_ports.unwrap_or(NumberRanges::one(usual)),
        }
    }

    /// Number of different flows, as far as they are counted.
    pub(crate) fn len(&self) -> u64 {
        const COUNTED_MAX: u64 = 1 << 62;
        let lens = [&self.src_ports, &self.dst, &self.dst_ports].map(NumberRanges::len);
        lens.into_iter().fold(self.src.len(), u64::saturating_mul).min(COUNTED_MAX)
    }

    /// The flow at `index`, less than [`len`](Self::len).
    pub(crate) fn flow(&self, index: u64, walk: AddressOrder, seed: u64, shape: u16) -> Flow {
        let mut rest = match walk {
            AddressOrder::Step => index,
            AddressOrder::Random => shuffled(index, self.len(), seed),
        };
        let mut digit = |space: &NumberRanges| {
            let number = space.at(rest);
            rest /= space.len();
            number
        };
        let (src, src_port) = (digit(&self.src), digit(&self.src_ports) as u16);
        let (dst, dst_port) = (digit(&self.dst), digit(&self.dst_ports) as u16);
        let bytes = |address: u128| match self.version {
            IpVersion::V4 => (address << 96).to_be_bytes(),
            IpVersion::V6 => address.to_be_bytes(),
        };
        let (src, dst) = (bytes(src), bytes(dst));
        let hash = mixed(
            u64::from(src_port) << 16 ^ u64::from(dst_port) ^ folded(src) ^ folded(dst).rotate_left(21),
        );
        Flow {
            src,
            dst,
            src_port,
            dst_port,
            tunnel_port: 49_152 + (hash % 16_384) as u16,
            shape,
            addresses_sum: checksum::sum(&src) + checksum::sum(&dst),
        }
    }
}

fn folded(address: [u8; 16]) -> u64 {
    let number = u128::from_be_bytes(address);
    (number >> 64) as u64 ^ number as u64
}

/// `count` flows that take turns at the kinds; kind `n` has the shape `n`.
pub(crate) fn all(recipe: &Recipe, kinds: &[FlowRanges], count: u32) -> Result<Vec<Flow>, Error> {
    let share = |kind: usize| (u64::from(count) + kinds.len() as u64 - 1 - kind as u64) / kinds.len() as u64;
    for (kind, spaces) in kinds.iter().enumerate() {
        if spaces.len() < share(kind) {
            let what = format!(
                "{} flows are wanted, but addresses and ports make {} of a kind",
                share(kind),
                spaces.len()
            );
            return Err(Error::unmet("flows", what, "widen src, sport, dst or dport"));
        }
    }
    let flow = |index: u32| {
        let (kind, place) = (index as usize % kinds.len(), u64::from(index) / kinds.len() as u64);
        kinds[kind].flow(place, recipe.walk, recipe.seed, kind as u16)
    };
    Ok((0..count).map(flow).collect())
}
