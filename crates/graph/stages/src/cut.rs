//! `cut`: drops the bytes behind the headers.

use tapline_graph::catalog::{Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::{Batch, Record};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "cut",
    summary: "packets without the bytes behind their headers",
    description: "Keeps the headers up to a layer, and `bytes` bytes more. Lengths on the wire stay. A packet without such a layer is cut after \
        its last layer below; one without any known layer keeps its first 14 bytes and `bytes` more.",
    parameters: &[
        Parameter::new("after", ParameterType::Choice(&["l2", "l3", "l4"]), "l4")
            .means("the last layer to keep: link header, IP with its extensions, TCP or UDP"),
        Parameter::new("bytes", ParameterType::Number(0, 65_535), "0").means("bytes to keep behind it"),
    ],
    example: "file(\"all.pcap\") -> cut(l4, 16) -> record(\"headers.pcap\")",
    make: Constructor::Stage(|arguments, _| {
        let after = match arguments.text("after") {
            "l2" => Layer::Link,
            "l3" => Layer::Ip,
            _ => Layer::Transport,
        };
        Ok(Box::new(Cut { after, bytes: arguments.number("bytes") as usize, records: Vec::new() }))
    }),
    ..StageClass::BASE
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
    /// The offset behind the layer to be kept.
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

/// The length of an IP header with unknown bytes behind it: its payload begins behind the captured bytes, or IPv6
/// extensions are cut short.
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

#[cfg(test)]
mod tests {
    use tapline_packet::{LinkType, Meta};
    use tapline_testkit::frames::*;

    use crate::trial::{Trial, whole};

    fn pair(version: IpVersion) -> IpPair {
        IpPair::between(&Host::number(1), &Host::number(2), version)
    }

    fn link() -> Ethernet {
        Ethernet::between(&Host::number(1), &Host::number(2))
    }

    /// The captured lengths after each of `cut(l2)`, `cut(l3)`, `cut(l4)`.
    fn lengths(frame: &[u8]) -> [usize; 3] {
        ["l2", "l3", "l4"].map(|layer| {
            let mut trial = Trial::of(&format!("cut({layer})"));
            trial.push_frames(&[frame.to_vec()]);
            let packet = trial.arrived().remove(0);
            assert_eq!(packet.meta.wire_len as usize, frame.len(), "the wire had it all");
            assert!(frame.starts_with(&packet.data));
            packet.data.len()
        })
    }

    #[test]
    fn each_layer_ends_where_its_header_does() {
        let v4 = pair(IpVersion::V4);
        let tcp = Tcp { src: 1, dst: 2, flags: flags::ACK, ..Tcp::default() };
        assert_eq!(lengths(&link().ip(&tcp.packet(v4, &[7; 50]))), [14, 34, 54]);
        let udp = Udp { src: 1, dst: 2 }.packet(v4, &[7; 50]);
        assert_eq!(lengths(&link().ip(&udp)), [14, 34, 42]);
        assert_eq!(lengths(&vlan(&link().ip(&udp), 0x8100, 5)), [18, 38, 46]);
        let v6 = pair(IpVersion::V6);
        let segment = Udp { src: 1, dst: 2 }.datagram(v6, &[7; 50]);
        assert_eq!(lengths(&link().ip(&v6.packet(0, &hop_by_hop(17, &segment)))), [14, 62, 70]);
        // No header known behind IP: cut behind IP.
        assert_eq!(lengths(&link().ip(&v4.packet(89, &[7; 50]))), [14, 34, 34]);
        let arp = link().frame(0x0806, &arp(1, &Host::number(1), [0; 6], Host::number(2).v4));
        assert_eq!(lengths(&arp), [14, 14, 14]);
        assert_eq!(lengths(&[9; 40]), [14, 14, 14]);
        assert_eq!(lengths(&[9; 3]), [3, 3, 3]);
    }

    /// Later fragments have no transport header: their data begins behind IP and all of its extensions.
    #[test]
    fn later_fragments_lose_their_data() {
        let IpPair::V4(src, dst) = pair(IpVersion::V4) else { unreachable!() };
        let header = Ipv4 { fragment_offset: 3, options: vec![1; 8], ..Ipv4::new(src, dst, 17) };
        assert_eq!(lengths(&link().ip(&header.packet(&[7; 40]))), [14, 42, 42]);
        let v6 = pair(IpVersion::V6);
        let later = hop_by_hop(44, &fragment_header(17, 7, 9, false, &[7; 40]));
        assert_eq!(lengths(&link().ip(&v6.packet(0, &later))), [14, 70, 70]);
    }

    #[test]
    fn bytes_behind_are_kept_as_far_as_there_are_any() {
        let frame = link().ip(&Udp { src: 1, dst: 2 }.packet(pair(IpVersion::V4), &[7; 50]));
        for (bytes, expected) in [(0, 42), (16, 58), (50, 92), (65_535, 92)] {
            let mut trial = Trial::of(&format!("cut(l4, {bytes})"));
            trial.push_frames(std::slice::from_ref(&frame));
            assert_eq!(trial.data()[0].len(), expected);
        }
    }

    #[test]
    fn cuts_at_every_byte_keep_existing_bytes_only() {
        let v6 = pair(IpVersion::V6);
        let frames = [
            link().ip(&Tcp { src: 1, dst: 2, ..Tcp::default() }.packet(pair(IpVersion::V4), &[7; 5])),
            vlan(
                &link().ip(&v6.packet(0, &hop_by_hop(44, &fragment_header(17, 7, 9, false, &[7; 5])))),
                0x8100,
                3,
            ),
        ];
        for frame in frames {
            let cut: Vec<(Vec<u8>, Meta)> =
                (0..=frame.len()).map(|len| (frame[..len].to_vec(), whole(&frame))).collect();
            for layer in ["l2", "l3", "l4"] {
                let mut trial = Trial::of(&format!("cut({layer})"));
                trial.interfaces.push(trial.interfaces[0].clone());
                trial.interfaces[0].link_type = LinkType::ETHERNET;
                trial.push_all(&cut, 256);
                let kept: Vec<usize> = trial.data().iter().map(Vec::len).collect();
                assert_eq!(kept.len(), cut.len());
                assert!(kept.iter().zip(&cut).all(|(kept, (data, _))| *kept <= data.len()));
                trial.assert_balanced();
            }
        }
    }
}
