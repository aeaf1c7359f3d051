//! `mask`: packets that may be shown to others.
//!
//! The bytes of a batch are copied, and changed in the copy: other stages see the packets as they came.

use std::any::Any;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use tapline_graph::catalog::{Arguments, Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, Table};
use tapline_mask::{Counts, KEY_LEN, Key, Masker, Payload, Settings};
use tapline_packet::{Batch, LinkType, Meta, Record};
use tapline_source::Error;

use super::input_file;

pub(crate) const CLASS: StageClass = StageClass {
    name: "mask",
    summary: "packets with other addresses and without payload",
    description: "IP addresses become others that share prefixes as the originals do (Crypto-PAn), in IP, ARP, IPv6 extensions, neighbour discovery, group \
        membership, inside tunnels, and in packets that ICMP quotes. Payload becomes zeros, or the packet ends before it. Checksums that were right are \
        right afterwards, and wrong ones stay wrong; packets in fragments whose payload is removed are the exception. The same key gives the same \
        addresses; without one each run has its own. Packet comments are left out. Unknown protocols are removed like payload. The result counts such packets.",
    parameters: &[
        Parameter::new(
            "addresses",
            ParameterType::Choice(&["prefix-preserving", "keep"]),
            "prefix-preserving",
        )
        .means("what to do with IP addresses"),
        Parameter::new("payload", ParameterType::Choice(&["zero", "cut", "keep"]), "zero")
            .means("what to do with the bytes behind the headers; kept ones may contain names and addresses"),
        Parameter::new("macs", ParameterType::Choice(&["keep", "mask"]), "keep")
            .means("what to do with hardware addresses; those of groups stay"),
        Parameter::new("key", ParameterType::Text, "")
            .means("a file of 32 bytes or 64 hexadecimal digits; none: a random key for this run"),
    ],
    example: "file(\"all.pcap\") -> mask(key=\"site.key\") -> record(\"shown.pcap\")",
    access: |arguments, access| match arguments.text("key") {
        "" => access.allowed.reads.push("/dev/urandom".into()),
        key => access.reads_file(key),
    },
    make: Constructor::Stage(|arguments, _| {
        let masker = Masker::new(settings(arguments), &key(arguments.text("key"))?);
        Ok(Box::new(Mask { masker, before: Counts::default(), bytes: Vec::new(), records: Vec::new() }))
    }),
    ..StageClass::BASE
};

fn settings(arguments: &Arguments) -> Settings {
    Settings {
        masks_addresses: arguments.text("addresses") != "keep",
        masks_macs: arguments.text("macs") == "mask",
        payload: match arguments.text("payload") {
            "cut" => Payload::Cut,
            "keep" => Payload::Keep,
            _ => Payload::Zero,
        },
    }
}

/// The key in the file, or one that all stages of this process share.
fn key(file: &str) -> Result<Key, String> {
    static OF_THIS_RUN: OnceLock<[u8; KEY_LEN]> = OnceLock::new();
    if !file.is_empty() {
        let bytes = input_file::read(file.as_ref(), input_file::KEY_MAX)?;
        return Key::read(&bytes).map_err(|reason| format!("{file}: {reason}"));
    }
    if let Some(bytes) = OF_THIS_RUN.get() {
        return Ok(Key::new(*bytes));
    }
    let mut bytes = [0; KEY_LEN];
    let filled = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    filled.map_err(|error| format!("cannot make a random key of /dev/urandom: {error}"))?;
    Ok(Key::new(*OF_THIS_RUN.get_or_init(|| bytes)))
}

struct Mask {
    masker: Masker,
    /// Counts of other workers.
    before: Counts,
    bytes: Vec<u8>,
    records: Vec<Record>,
}

impl Mask {
    fn copy(&mut self, packets: &Packets<'_>, index: usize) {
        let packet = packets.batch.packet(index);
        let interface = packets.interfaces.get(packet.meta.interface.0 as usize);
        let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(packet.data);
        let kept = self.masker.mask(link_type, &mut self.bytes[offset..]);
        self.bytes.truncate(offset + kept);
        // Options may hold comments, and hashes of what the packet was.
        let meta = Meta { rx_hash: 0, ..*packet.meta };
        self.records.push(Record { offset, cap_len: kept as u32, options_len: 0, meta });
    }
}

impl Stage for Mask {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.bytes.clear();
        self.records.clear();
        for index in packets.selection.iter() {
            self.copy(packets, index);
        }
        out.pass(&mut packets.replaced(Batch::new(&self.bytes, &self.records), packets.interfaces))
    }

    fn result(&self) -> Option<Table> {
        let counts = sum(self.before, self.masker.counts());
        Some(Table {
            columns: vec!["packets", "ip_headers", "not_understood"],
            rows: vec![vec![counts.packets.into(), counts.ip_headers.into(), counts.not_understood.into()]],
        })
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Mask>() {
            self.before = sum(self.before, sum(other.before, other.masker.counts()));
        }
    }
}

fn sum(a: Counts, b: Counts) -> Counts {
    Counts {
        packets: a.packets + b.packets,
        ip_headers: a.ip_headers + b.ip_headers,
        not_understood: a.not_understood + b.not_understood,
    }
}

#[cfg(test)]
mod tests {
    use tapline_testkit::frames::*;

    use crate::trial::Trial;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let ip = IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4);
        let link = Ethernet::between(&Host::number(1), &Host::number(2));
        link.ip(&Udp { src: 1, dst: 2 }.packet(ip, payload))
    }

    #[test]
    fn packets_go_on_masked_and_the_account_balances() {
        let frame = frame(b"a secret");
        let mut trial = Trial::of("mask");
        trial.push_frames(&[frame.clone(), frame.clone()]);
        let data = trial.data();
        assert_eq!(data[0], data[1], "one key for a run");
        assert_eq!(data[0].len(), frame.len());
        assert_ne!(data[0][26..34], frame[26..34]);
        assert!(data[0][42..].iter().all(|byte| *byte == 0));
        trial.assert_balanced();
    }

    #[test]
    fn a_key_file_decides_the_addresses() {
        let key = tempfile::NamedTempFile::new().expect("there is room");
        std::fs::write(key.path(), [7; 32]).expect("there is room");
        let text = format!("mask(key=\"{}\", payload=keep)", key.path().display());
        let [first, second] = [(); 2].map(|()| {
            let mut trial = Trial::of(&text);
            trial.push_frames(&[frame(b"text")]);
            trial.data().remove(0)
        });
        assert_eq!(first, second);
        assert!(first.ends_with(b"text"));
    }
}
