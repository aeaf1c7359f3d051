//! `balance`: each flow to one of several outputs.

use std::any::Any;

use tapline_graph::catalog::{Constructor, Outputs, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, StageCounters, Table};
use tapline_packet::Packet;
use tapline_packet::headers::{FragmentFlows, Headers};
use tapline_packet::mix::scramble;
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "balance",
    summary: "each flow, both directions, to one of the connected outputs",
    description: "The output is chosen by a hash of the fields of `by`, so it stays the same in every run. By flow, fragments go where the first fragment \
        of their packet went; if that comes later, or 4096 others came since, they go by their addresses, and the result counts them. By host, all packets between two \
        addresses stay together. By color or hash, a packet goes by the class or the hash that it has: of an ERF record, or on live interfaces the receive hash if a stage \
        of the graph asks for it; packets without one go by their flow. By address, a packet goes to the outputs of both of its addresses, so that each output has all packets of its hosts.",
    parameters: &[
        Parameter::new("by", ParameterType::Choice(&By::NAMES), "flow")
            .means("addresses, protocol and ports; addresses only; the flow inside the innermost tunnel; flow and VLAN tags; each address by itself; or the color or hash of the packet"),
        Parameter::new("seed", ParameterType::Number(0, u64::MAX), "0")
            .means("another seed distributes in another way"),
    ],
    outputs: Outputs::Many,
    example: "b :: balance; device(eth0) -> b; b[0] -> record(\"a.pcap\"); b[1] -> record(\"b.pcap\")",
    make: Constructor::Stage(|arguments, _| {
        let by = By::of_name(arguments.text("by")).unwrap_or(By::Flow);
        let seed = arguments.number("seed");
        Ok(Box::new(Balance { by, seed, fragments: FragmentFlows::default(), early: 0, passed: 0 }))
    }),
    ..StageClass::BASE
};

tapline_packet::named_enum! {
    #[derive(Clone, Copy)]
    enum By {
        Flow = "flow",
        Host = "host",
        Inner = "inner",
        Vlan = "vlan",
        Address = "address",
        Color = "color",
        Hash = "hash",
    }
}

struct Balance {
    by: By,
    seed: u64,
    fragments: FragmentFlows,
    /// Fragments apart from their flow.
    early: u64,
    /// Packets, for a stage that hands some of them to two outputs.
    passed: u64,
}

impl Balance {
    /// The hashes that choose the outputs of a packet: one, except by address.
    fn hashes(&mut self, headers: &Headers, packet: Packet<'_>) -> [u64; 2] {
        let Balance { by, seed, ref mut fragments, .. } = *self;
        let data = packet.data;
        let of_card = match by {
            By::Color => packet.meta.color.map(u64::from),
            By::Hash => Some(packet.meta.rx_hash.into()).filter(|hash| *hash != 0),
            _ => None,
        };
        if let Some(value) = of_card {
            return [scramble(value ^ seed); 2];
        }
        let one = match by {
            By::Flow | By::Color | By::Hash => fragments.flow_hash(headers, data, seed),
            By::Host => headers.host_hash(data, seed),
            By::Inner => {
                let (headers, data) = headers.innermost(data);
                fragments.flow_hash(&headers, data, seed)
            }
            By::Vlan => headers.vlan_hash(fragments.flow_hash(headers, data, seed)),
            By::Address => return headers.address_hashes(data, seed),
        };
        [one, one]
    }
}

impl Stage for Balance {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let ports: Vec<usize> = out.connected().collect();
        if ports.is_empty() {
            return out.pass(packets);
        }
        let mut chosen = [[0_u8; 2]; tapline_packet::BATCH_MAX];
        // There are at most 256 outputs.
        let output = |hash: u64| ((u128::from(hash) * ports.len() as u128) >> 64) as u8;
        for index in packets.selection.iter() {
            let hashes = self.hashes(&packets.headers(index), packets.batch.packet(index));
            chosen[index] = hashes.map(output);
        }
        self.passed += packets.len() as u64;
        self.early += self.fragments.take_early();
        let mut result = Ok(());
        for (number, port) in ports.into_iter().enumerate() {
            let mut share = packets.clone();
            share.selection.retain(|index| chosen[index].contains(&(number as u8)));
            result = result.and(out.pass_to(port, &mut share));
        }
        result
    }

    fn counters(&self) -> StageCounters {
        let matched = matches!(self.by, By::Address).then_some(self.passed);
        StageCounters { matched, ..StageCounters::default() }
    }

    fn result(&self) -> Option<Table> {
        (self.early > 0).then(|| Table::of_numbers(&[("fragments_apart", self.early)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Balance>() {
            self.early += other.early;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use tapline_packet::headers::Headers;
    use tapline_packet::{FiveTuple, LinkType, Meta};
    use tapline_testkit::frames::*;
    use tapline_testkit::traffic::Traffic;

    use crate::trial::{Trial, whole};

    fn balanced(arguments: &str, outputs: &[usize]) -> Trial {
        let ends: String = outputs.iter().map(|output| format!("; b[{output}] -> json")).collect();
        Trial::graph(&format!("b :: balance({arguments}); file(\"in\") -> b{ends}")).unwrap()
    }

    fn flow(data: &[u8]) -> Option<FiveTuple> {
        Headers::parse_data(LinkType::ETHERNET, data).five_tuple(data).map(FiveTuple::canonical)
    }

    #[test]
    fn flows_keep_one_output_and_all_are_used() {
        let frames: Vec<Vec<u8>> = Traffic::new(5).take(4000).map(|(_, frame)| frame).collect();
        // Outputs that lead nowhere get nothing.
        for outputs in [&[0, 1][..], &[0, 1, 2], &[1, 4]] {
            let mut trial = balanced("", outputs);
            trial.push_frames(&frames);
            trial.assert_balanced();
            let mut ends: HashMap<FiveTuple, HashSet<usize>> = HashMap::new();
            let mut all = 0;
            for end in 0..outputs.len() {
                let arrived = trial.arrived_at(end);
                assert!(arrived.len() * outputs.len() * 4 > frames.len(), "{} of {outputs:?}", arrived.len());
                all += arrived.len();
                for flow in arrived.iter().filter_map(|packet| flow(&packet.data)) {
                    ends.entry(flow).or_default().insert(end);
                }
            }
            assert_eq!(all, frames.len());
            // Fragments have no ports behind the first, so one flow in the table below is several in the hash.
            assert!(ends.iter().all(|(flow, ends)| ends.len() == 1 || flow.src_port == 0), "{outputs:?}");
            assert!(ends.len() > 20);
        }
    }

    #[test]
    fn as_many_outputs_as_there_can_be() {
        let outputs: Vec<usize> = (0..256).collect();
        let mut trial = balanced("by=host", &outputs);
        let frame = |n: u16| {
            let (src, dst) = (Host::number(n), Host::number(n + 1));
            let pair = IpPair::between(&src, &dst, IpVersion::V6);
            Ethernet::between(&src, &dst).ip(&Udp { src: 1, dst: 2 }.packet(pair, &[]))
        };
        trial.push_frames(&(0..10_000).map(frame).collect::<Vec<_>>());
        assert!((0..256).all(|end| !trial.arrived_at(end).is_empty()));
        trial.assert_balanced();
    }

    #[test]
    fn fragments_and_tunnels_stay_with_their_host() {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let datagram = Udp { src: 9, dst: 10 }.datagram(pair, &[7; 3000]);
        let fragments = fragments_v4(&Ipv4::new(a.v4, b.v4, 17), &datagram, 1000);
        let mut frames: Vec<Vec<u8>> =
            fragments.iter().map(|packet| Ethernet::between(&a, &b).ip(packet)).collect();
        frames.push(
            Ethernet::between(&b, &a)
                .ip(&Udp { src: 10, dst: 9 }.packet(IpPair::between(&b, &a, IpVersion::V4), &[])),
        );
        for seed in 0..20 {
            let mut trial = balanced(&format!("host, seed={seed}"), &[0, 1]);
            trial.push_frames(&frames);
            let counts = [trial.arrived_at(0).len(), trial.arrived_at(1).len()];
            assert!(counts.contains(&frames.len()), "{counts:?}");
        }
        // One tunnel, many flows in it: by the flow outside they go one way.
        let inside = |n: u16| {
            let inner = Udp { src: n, dst: 53 }.packet(IpPair::between(&a, &b, IpVersion::V4), &[]);
            let outer = Udp { src: 4000, dst: 4789 };
            Ethernet::between(&a, &b)
                .ip(&outer.packet(pair, &vxlan(3, &Ethernet::between(&a, &b).ip(&inner))))
        };
        let tunnel: Vec<Vec<u8>> = (0..200).map(inside).collect();
        for (by, is_shared) in [("flow", false), ("inner", true)] {
            let mut trial = balanced(by, &[0, 1]);
            trial.push_frames(&tunnel);
            let first = trial.arrived_at(0).len();
            assert_eq!((1..200).contains(&first), is_shared, "{by}: {first}");
        }
    }

    #[test]
    fn without_an_output_all_go_nowhere() {
        let mut trial = Trial::graph("b :: balance; file(\"in\") -> b; file(\"in\") -> json").unwrap();
        trial.push_frames(&[vec![1; 60]]);
        trial.assert_balanced();
    }

    /// Whole packets and fragments of 30 flows, and the outputs of each flow.
    #[test]
    fn fragments_go_where_their_flow_goes() {
        let (a, b) = (Host::number(1), Host::number(2));
        let mut trial = balanced("", &[0, 1, 2]);
        let mut flow_of_id = HashMap::new();
        for flow in 0..30_u16 {
            let ips = IpPair::between(&a, &b, IpVersion::V4);
            let udp = Udp { src: 1000 + flow, dst: 53 };
            let header = Ipv4 { id: 500 + flow, dont_fragment: false, ..Ipv4::new(a.v4, b.v4, 17) };
            let datagram = udp.datagram(ips, &[7; 2000]);
            let mut frames = vec![Ethernet::between(&a, &b).ip(&udp.packet(ips, &flow.to_be_bytes()))];
            frames.extend(
                fragments_v4(&header, &datagram, 800)
                    .iter()
                    .map(|packet| Ethernet::between(&a, &b).ip(packet)),
            );
            assert!(frames.len() > 3);
            flow_of_id.insert(500 + flow, 1000 + flow);
            trial.push_frames(&frames);
        }
        let mut ends: HashMap<u16, HashSet<usize>> = HashMap::new();
        for end in 0..3 {
            for packet in trial.arrived_at(end) {
                let headers = Headers::parse_data(LinkType::ETHERNET, &packet.data);
                let flow = match headers.fragment() {
                    Some(fragment) => flow_of_id[&(fragment.id as u16)],
                    None => headers.five_tuple(&packet.data).expect("UDP").src_port,
                };
                ends.entry(flow).or_default().insert(end);
            }
        }
        assert!(ends.len() == 30 && ends.values().all(|ends| ends.len() == 1), "{ends:?}");
        // A fragment whose first one is not known goes by its addresses, and is counted.
        let header = Ipv4 { id: 9, dont_fragment: false, ..Ipv4::new(a.v4, b.v4, 17) };
        let lone = fragments_v4(&header, &[7; 2000], 800).remove(1);
        trial.push_frames(&[Ethernet::between(&a, &b).ip(&lone)]);
        assert_eq!(trial.numbers("b", None), [1]);
        trial.assert_balanced();
    }

    #[test]
    fn each_host_has_all_its_packets_in_one_output() {
        let frames: Vec<Vec<u8>> = Traffic::new(6).take(3000).map(|(_, frame)| frame).collect();
        let mut trial = balanced("by=address", &[0, 1, 2]);
        trial.push_frames(&frames);
        trial.assert_balanced();
        let mut ends: HashMap<std::net::IpAddr, Vec<HashSet<Vec<u8>>>> = HashMap::new();
        let hosts = |data: &[u8]| Headers::parse_data(LinkType::ETHERNET, data).addresses(data);
        for end in 0..3 {
            for packet in trial.arrived_at(end) {
                let Some((src, dst)) = hosts(&packet.data) else { continue };
                for host in [src, dst] {
                    ends.entry(host).or_insert_with(|| vec![HashSet::new(); 3])[end]
                        .insert(packet.data.clone());
                }
            }
        }
        for (host, ends) in ends {
            let is_of_host =
                |frame: &&Vec<u8>| hosts(frame).is_some_and(|(src, dst)| src == host || dst == host);
            let all = frames.iter().filter(is_of_host).collect::<HashSet<_>>().len();
            assert!(ends.iter().any(|end| end.len() == all), "{host}: {all}");
        }
    }

    /// A capture card chose: colours and hashes stay together whatever the flow, and spread; others go by flow.
    #[test]
    fn colors_and_hashes_of_a_card_stay_together() {
        let frames: Vec<Vec<u8>> = Traffic::new(7).take(600).map(|(_, frame)| frame).collect();
        let with = |by: &str, number: u16, frame: &[u8]| match by {
            "color" => Meta { color: Some(number), ..whole(frame) },
            _ => Meta { rx_hash: u32::from(number) << 16 | 1, ..whole(frame) },
        };
        for by in ["color", "hash"] {
            let mut trial = balanced(&format!("by={by}"), &[0, 1, 2]);
            let packets: Vec<_> = frames
                .iter()
                .enumerate()
                .map(|(at, frame)| (frame.clone(), with(by, at as u16 % 60, frame)))
                .collect();
            trial.push_all(&packets, 256);
            let mut ends: HashMap<(Option<u16>, u32), HashSet<usize>> = HashMap::new();
            for end in 0..3 {
                let arrived = trial.arrived_at(end);
                assert!(arrived.len() > 60, "{by}: {}", arrived.len());
                for packet in arrived {
                    ends.entry((packet.meta.color, packet.meta.rx_hash)).or_default().insert(end);
                }
            }
            assert!(ends.len() == 60 && ends.values().all(|ends| ends.len() == 1), "{by}: {ends:?}");
            trial.assert_balanced();
            let (mut by_card, mut by_flow) = (balanced(&format!("by={by}"), &[0, 1]), balanced("", &[0, 1]));
            by_card.push_frames(&frames);
            by_flow.push_frames(&frames);
            let data = |trial: &Trial| -> Vec<Vec<u8>> {
                trial.arrived_at(0).iter().map(|packet| packet.data.clone()).collect()
            };
            assert_eq!(data(&by_card), data(&by_flow), "{by}");
        }
    }

    #[test]
    fn vlan_tags_tell_flows_apart() {
        let (a, b) = (Host::number(1), Host::number(2));
        let packet = Udp { src: 7, dst: 53 }.packet(IpPair::between(&a, &b, IpVersion::V4), &[1]);
        let plain = Ethernet::between(&a, &b).ip(&packet);
        let tagged = |id: u16| [&plain[..12], &[0x81, 0], &id.to_be_bytes(), &plain[12..]].concat();
        let frames: Vec<Vec<u8>> = (1..=60).map(tagged).collect();
        for (by, used) in [("flow", 1), ("vlan", 3)] {
            let mut trial = balanced(&format!("by={by}"), &[0, 1, 2]);
            trial.push_frames(&frames);
            assert_eq!((0..3).filter(|end| !trial.arrived_at(*end).is_empty()).count(), used, "{by}");
            trial.assert_balanced();
        }
    }
}
