//! `balance`: each flow to one of several outputs.

use tapline_capture::Error;
use tapline_packet::headers::Headers;

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "balance",
    summary: "each flow, both directions, to one of the connected outputs",
    description: "The output is chosen by a hash of what `by` says, so it stays the same in every run. By flow, fragments of a packet stay together, but \
        apart from the whole packets of their flow; by host, all packets between two addresses stay together, fragments too.",
    parameters: &[
        Parameter {
            name: "by",
            kind: Kind::Choice(&["flow", "host", "inner"]),
            default: Some("flow"),
            meaning: "addresses, protocol and ports; addresses only; or the flow inside the innermost tunnel",
        },
        Parameter {
            name: "seed",
            kind: Kind::Number(0, u64::MAX),
            default: Some("0"),
            meaning: "another seed shares out otherwise",
        },
    ],
    outputs: Outputs::Many,
    order: Order::Free,
    example: "b :: balance; device(eth0) -> b; b[0] -> record(\"a.pcap\"); b[1] -> record(\"b.pcap\")",
    make: Make::Stage(|arguments, _| {
        let by = match arguments.text("by") {
            "host" => By::Host,
            "inner" => By::Inner,
            _ => By::Flow,
        };
        Ok(Box::new(Balance { by, seed: arguments.number("seed") }))
    }),
};

/// So many tunnels are looked into.
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

/// What `look` says of the innermost packet.
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
