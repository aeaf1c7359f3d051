//! `cut`: what lies behind the headers is left out.

use tapline_capture::Error;
use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::{Batch, Record};

use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::Stage;

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "cut",
    summary: "packets without what lies behind their headers",
    description: "Keeps the headers up to a layer and so many bytes more. Lengths on the wire stay. Where a packet has no such layer it is cut after the \
        last one below that it has; one without any layer that is known keeps its first 14 bytes and what `bytes` adds.",
    parameters: &[
        Parameter {
            name: "after",
            kind: Kind::Choice(&["l2", "l3", "l4"]),
            default: Some("l4"),
            meaning: "the last layer to keep: link header, IP with its extensions, TCP or UDP",
        },
        Parameter {
            name: "bytes",
            kind: Kind::Number(0, 65_535),
            default: Some("0"),
            meaning: "bytes to keep behind it",
        },
    ],
    outputs: Outputs::One,
    order: Order::Free,
    example: "file(\"all.pcap\") -> cut(l4, 16) -> record(\"headers.pcap\")",
    make: Make::Stage(|arguments, _| {
        let after = match arguments.text("after") {
            "l2" => Layer::Link,
            "l3" => Layer::Ip,
            _ => Layer::Transport,
        };
        Ok(Box::new(Cut { after, bytes: arguments.number("bytes") as usize, records: Vec::new() }))
    }),
};

/// Bytes of an Ethernet header.
const LINK_LEN: usize = 14;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Link,
    Ip,
    Transport,
}

struct Cut {
    after: Layer,
    bytes: usize,
    records: Vec<Record>,
}

impl Cut {
    /// Where what is to be kept ends.
    fn end(&self, headers: &Headers, data: &[u8]) -> usize {
        let Some(l3) = headers.l3() else { return LINK_LEN };
        // In a later fragment what IP carries begins where its data does.
        let carried = || headers.l4().or_else(|| headers.fragment().and(headers.payload()));
        let ip = || carried().unwrap_or_else(|| l3 + ip_len(headers, &data[l3.min(data.len())..]));
        match self.after {
            Layer::Link => l3,
            Layer::Ip => ip(),
            Layer::Transport => headers.payload().unwrap_or_else(ip),
        }
    }
}

/// The length of an IP header behind which nothing is known: what it carries begins behind the captured bytes, or IPv6 extensions are cut short.
fn ip_len(headers: &Headers, data: &[u8]) -> usize {
    match headers.ip() {
        Some(IpVersion::V4) => data.first().map_or(20, |first| usize::from(first & 15) * 4),
        Some(IpVersion::V6) => 40,
        None => 0,
    }
}

impl Stage for Cut {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        records.extend_from_slice(packets.batch.records());
        for index in packets.selection.iter() {
            let data = packets.batch.packet(index).data;
            let kept = self.end(&packets.headers(index), data).saturating_add(self.bytes).min(data.len());
            // The options lie behind the bytes as they were captured.
            let record = &mut records[index];
            (record.cap_len, record.options_len) = (kept as u32, 0);
        }
        let result = out.pass(&mut packets.changed(Batch::new(packets.batch.base(), &records)));
        self.records = records;
        result
    }
}
