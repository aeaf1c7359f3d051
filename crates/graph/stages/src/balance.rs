//! `balance`: each flow to one of several outputs.

use tapline_graph::catalog::{Constructor, Outputs, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_packet::headers::Headers;
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "balance",
    summary: "each flow, both directions, to one of the connected outputs",
    description: "The output is chosen by a hash of the fields of `by`, so it stays the same in every run. By flow, fragments of a packet stay together, but \
        apart from the whole packets of their flow; by host, all packets between two addresses stay together, fragments too.",
    parameters: &[
        Parameter {
            name: "by",
            kind: ParameterType::Choice(&["flow", "host", "inner"]),
            default: Some("flow"),
            meaning: "addresses, protocol and ports; addresses only; or the flow inside the innermost tunnel",
        },
        Parameter {
            name: "seed",
            kind: ParameterType::Number(0, u64::MAX),
            default: Some("0"),
            meaning: "another seed distributes in another way",
        },
    ],
    outputs: Outputs::Many,
    example: "b :: balance; device(eth0) -> b; b[0] -> record(\"a.pcap\"); b[1] -> record(\"b.pcap\")",
    make: Constructor::Stage(|arguments, _| {
        let by = match arguments.text("by") {
            "host" => By::Host,
            "inner" => By::Inner,
            _ => By::Flow,
        };
        Ok(Box::new(Balance { by, seed: arguments.number("seed") }))
    }),
    ..StageClass::BASE
};

/// The most tunnels that are looked into.
pub(crate) const TUNNELS_MAX: usize = 4;

#[derive(Clone, Copy)]
enum By {
    Flow,
    Host,
    Inner,
}

struct Balance {
    by: By,
    seed: u64,
}

impl Balance {
    fn hash(&self, headers: &Headers, data: &[u8]) -> u64 {
        match self.by {
            By::Flow => headers.flow_hash(data, self.seed),
            By::Host => headers.host_hash(data, self.seed),
            By::Inner => innermost(headers, data, |headers, data| headers.flow_hash(data, self.seed)),
        }
    }
}

/// The value of `look` for the innermost packet.
fn innermost<T>(headers: &Headers, data: &[u8], look: impl FnOnce(&Headers, &[u8]) -> T) -> T {
    let (mut headers, mut data) = (*headers, data);
    for _ in 0..TUNNELS_MAX {
        let Some(inner) = headers.inner(data) else { break };
        (headers, data) = (inner.headers(data), inner.data(data));
    }
    look(&headers, data)
}

impl Stage for Balance {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let ports: Vec<usize> = out.connected().collect();
        if ports.is_empty() {
            return out.pass(packets);
        }
        let mut chosen = [0_u8; tapline_packet::BATCH_MAX];
        for index in packets.selection.iter() {
            let hash = self.hash(&packets.headers(index), packets.batch.packet(index).data);
            // There are at most 256 outputs.
            chosen[index] = ((u128::from(hash) * ports.len() as u128) >> 64) as u8;
        }
        let mut result = Ok(());
        for (number, port) in ports.into_iter().enumerate() {
            let mut share = packets.clone();
            share.selection.retain(|index| usize::from(chosen[index]) == number);
            result = result.and(out.pass_to(port, &mut share));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use tapline_packet::headers::Headers;
    use tapline_packet::{FiveTuple, LinkType};
    use tapline_testkit::frames::*;
    use tapline_testkit::traffic::Traffic;

    use crate::trial::Trial;

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
}
