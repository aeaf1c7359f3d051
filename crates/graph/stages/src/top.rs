//! `top`: the values of a field with the most traffic.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::IpAddr;

use tapline_graph::catalog::{Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table};
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_source::Error;

/// The number of rows in the result.
pub(super) const ROWS: Parameter =
    Parameter::new("n", ParameterType::Number(1, 1_000_000), "10").means("rows to show");

/// The quantity that ranks the rows.
pub(super) const RANKED_BY: Parameter =
    Parameter::new("order", ParameterType::Choice(&["bytes", "packets"]), "bytes")
        .means("the quantity that ranks them");

pub(crate) const CLASS: StageClass = StageClass {
    name: "top",
    summary: "ranks hosts, flows, ports and others by traffic",
    description: "Counts are exact up to `entries` different values; the packets of those that come after that are counted together, in the row \
        `others`. Packets without such a field are in the row `none`. All packets are passed on.",
    parameters: &[
        Parameter::new("by", ParameterType::Choice(&By::NAMES), "host")
            .means("source address, destination, either (a packet counts for both), both together without direction, flow without direction, the lower port, \
                source port, destination port, IP protocol, outer VLAN, EtherType"),
        ROWS,
        RANKED_BY,
        Parameter::new("entries", ParameterType::Number(1, 100_000_000), "1000000")
            .means("values that are counted one by one; about 100 bytes each"),
    ],
    example: "device(eth0) -> top(by=flow, n=20)",
    make: Constructor::Stage(|arguments, _| {
        let by = By::of_name(arguments.text("by")).unwrap_or(By::Host);
        Ok(Box::new(Top {
            by,
            n: arguments.number("n") as usize,
            is_by_packets: arguments.text("order") == "packets",
            entries_max: arguments.number("entries") as usize,
            counts: HashMap::new(),
            others: Amount::default(),
            none: Amount::default(),
        }))
    }),
    ..StageClass::BASE
};

tapline_packet::named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum By {
        Src = "src",
        Dst = "dst",
        Host = "host",
        Pair = "pair",
        Flow = "flow",
        Port = "port",
        SrcPort = "sport",
        DstPort = "dport",
        Protocol = "protocol",
        Vlan = "vlan",
        EtherType = "ethertype",
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Address(IpAddr),
    Pair(IpAddr, IpAddr),
    Flow(FiveTuple),
    Number(u16),
    EtherType(u16),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Address(address) => address.fmt(f),
            Key::Pair(one, other) => write!(f, "{one} <-> {other}"),
            Key::Flow(flow) => flow.fmt(f),
            Key::Number(number) => number.fmt(f),
            Key::EtherType(number) => write!(f, "0x{number:04x}"),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

struct Top {
    by: By,
    n: usize,
    is_by_packets: bool,
    entries_max: usize,
    counts: HashMap<Key, Amount>,
    others: Amount,
    none: Amount,
}

impl Top {
    fn keys(&self, headers: &Headers, data: &[u8]) -> [Option<Key>; 2] {
        let addresses = || headers.addresses(data);
        let ports = || headers.ports(data);
        let one = match self.by {
            By::Host => {
                let Some((src, dst)) = addresses() else { return [None, None] };
                return [Some(Key::Address(src)), (src != dst).then_some(Key::Address(dst))];
            }
            By::Src => addresses().map(|(src, _)| Key::Address(src)),
            By::Dst => addresses().map(|(_, dst)| Key::Address(dst)),
            By::Pair => addresses().map(|(src, dst)| Key::Pair(src.min(dst), src.max(dst))),
            By::Flow => headers.five_tuple(data).map(|flow| Key::Flow(flow.canonical())),
            By::Port => ports().map(|(src, dst)| Key::Number(src.min(dst))),
            By::SrcPort => ports().map(|(src, _)| Key::Number(src)),
            By::DstPort => ports().map(|(_, dst)| Key::Number(dst)),
            By::Protocol => headers.protocol().map(|protocol| Key::Number(protocol.into())),
            By::Vlan => headers.vlans().first().map(|tag| Key::Number(tag.id())),
            By::EtherType => headers.ether_type().map(Key::EtherType),
        };
        [one, None]
    }

    fn add(&mut self, key: Key, amount: Amount) {
        let room = self.counts.len() < self.entries_max;
        match self.counts.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().add(amount),
            Entry::Vacant(entry) if room => {
                entry.insert(amount);
            }
            Entry::Vacant(_) => self.others.add(amount),
        }
    }
}

impl Stage for Top {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let amount = Amount { packets: 1, bytes: packet.meta.wire_len.into() };
            let keys = self.keys(&packets.headers(index), packet.data);
            if keys == [None, None] {
                self.none.add(amount);
            }
            keys.into_iter().flatten().for_each(|key| self.add(key, amount));
        }
        out.pass(packets)
    }

    fn result(&self) -> Option<Table> {
        let rank = |amount: &Amount| if self.is_by_packets { amount.packets } else { amount.bytes };
        let mut ranked: Vec<(&Key, &Amount)> = self.counts.iter().collect();
        ranked.sort_unstable_by_key(|(key, amount)| (Reverse(rank(amount)), **key));
        let row = |name: String, amount: &Amount| {
            vec![Cell::from(name), amount.packets.into(), amount.bytes.into()]
        };
        let mut rows: Vec<_> =
            ranked.iter().take(self.n).map(|(key, amount)| row(key.to_string(), amount)).collect();
        let mut rest = self.others;
        ranked.iter().skip(self.n).for_each(|(_, amount)| rest.add(**amount));
        for (name, amount) in [("others", &rest), ("none", &self.none)] {
            if amount.packets > 0 {
                rows.push(row(name.to_owned(), amount));
            }
        }
        let name = self.by.name();
        Some(Table { columns: vec![name, "packets", "bytes"], rows })
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Top>() {
            other.counts.iter().for_each(|(key, amount)| self.add(*key, *amount));
            self.others.add(other.others);
            self.none.add(other.none);
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_testkit::frames::*;
    use tapline_testkit::traffic::Traffic;

    use crate::trial::Trial;
    use tapline_graph::Cell;

    fn datagram(src: u16, dst: u16, len: usize) -> Vec<u8> {
        let (src, dst) = (Host::number(src), Host::number(dst));
        let pair = IpPair::between(&src, &dst, IpVersion::V4);
        Ethernet::between(&src, &dst).ip(&Udp { src: 1000, dst: 53 }.packet(pair, &vec![7; len]))
    }

    fn arp_frame() -> Vec<u8> {
        let host = Host::number(1);
        Ethernet::broadcast(&host).frame(0x0806, &arp(1, &host, [0; 6], Host::number(2).v4))
    }

    /// The rows as text: value, packets, bytes.
    fn rows(trial: &Trial) -> Vec<String> {
        let words = |row: &Vec<Cell>| row.iter().map(Cell::to_string).collect::<Vec<_>>().join(" ");
        trial.result("t").rows.iter().map(words).collect()
    }

    fn ranked(arguments: &str, frames: &[Vec<u8>]) -> Vec<String> {
        let mut trial = Trial::of(&format!("t :: top({arguments})"));
        trial.push_frames(frames);
        assert_eq!(trial.data().len(), frames.len(), "all go on");
        trial.assert_balanced();
        rows(&trial)
    }

    #[test]
    fn each_field_of_a_packet() {
        let frames = [vlan(&datagram(1, 2, 58), 0x8100, 5), datagram(2, 1, 58)]; // 104 and 100 bytes
        for (by, expected) in [
            ("src", vec!["10.0.0.1 1 104", "10.0.0.2 1 100"]),
            ("dst", vec!["10.0.0.2 1 104", "10.0.0.1 1 100"]),
            ("host", vec!["10.0.0.1 2 204", "10.0.0.2 2 204"]),
            ("pair", vec!["10.0.0.1 <-> 10.0.0.2 2 204"]),
            ("port", vec!["53 2 204"]),
            ("sport", vec!["1000 2 204"]),
            ("dport", vec!["53 2 204"]),
            ("protocol", vec!["17 2 204"]),
            ("vlan", vec!["5 1 104", "none 1 100"]),
            ("ethertype", vec!["0x0800 2 204"]),
        ] {
            assert_eq!(ranked(by, &frames), expected, "{by}");
        }
        assert_eq!(ranked("flow", &frames).len(), 2, "the ports do not change places here");
    }

    #[test]
    fn values_not_shown_have_rows_with_their_sums() {
        let frames: Vec<Vec<u8>> = [(1, 100), (2, 90), (2, 10), (3, 80), (4, 70)]
            .map(|(src, len)| datagram(src, 9, len))
            .into_iter()
            .chain([arp_frame()])
            .collect();
        assert_eq!(
            ranked("src, n=2", &frames),
            ["10.0.0.2 2 184", "10.0.0.1 1 142", "others 2 234", "none 1 42"]
        );
        assert_eq!(ranked("src, n=1, order=packets", &frames)[0], "10.0.0.2 2 184");
        // Two values are counted; packets of the rest are together.
        assert_eq!(
            ranked("src, entries=2", &frames),
            ["10.0.0.2 2 184", "10.0.0.1 1 142", "others 2 234", "none 1 42"]
        );
    }

    #[test]
    fn two_workers_give_the_result_of_one() {
        let frames: Vec<Vec<u8>> = Traffic::new(8).take(3000).map(|(_, frame)| frame).collect();
        for by in ["src", "host", "pair", "flow", "port", "protocol", "ethertype"] {
            let text = format!("t :: top({by}, n=5)");
            let (mut one, mut other, mut all) = (Trial::of(&text), Trial::of(&text), Trial::of(&text));
            frames.chunks(100).enumerate().for_each(|(number, chunk)| match number % 2 {
                0 => one.push_frames(chunk),
                _ => other.push_frames(chunk),
            });
            all.push_frames(&frames);
            one.graph.merge(&other.graph);
            assert_eq!(rows(&one), rows(&all), "{by}");
        }
    }
}
