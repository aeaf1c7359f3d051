//! `decap`: the packet inside.
//!
//! ```text
//! | Ethernet | IP | UDP | VXLAN | Ethernet | IP | ... | padding |     a layer: the packet inside begins later and may end sooner
//!                               ^ start                ^ end
//! | MAC addresses | tags | type | ...                                 a layer: the addresses move over the tags, in a copy
//! ```
//!
//! Without tags nothing is copied: the records say where the packets inside lie. If tags go from the bytes of one
//! packet, its whole batch is copied, so that the order stays.

use std::any::Any;

use tapline_graph::catalog::{Constructor, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table};
use tapline_packet::headers::{Headers, Tunnel};
use tapline_packet::numbers::ethertype;
use tapline_packet::{Batch, Checksum, Interface, InterfaceId, LinkType, Meta, Packet, Record};
use tapline_source::Error;

pub(crate) const CLASS: StageClass = StageClass {
    name: "decap",
    summary: "the packets inside tunnels, without VLAN tags",
    description: "Removes the headers in front of the packet inside, layer by layer, as long as a layer is one of `what`. All VLAN tags of an Ethernet frame together are one \
        layer, as are all labels of a stack. Lengths on the wire shrink by the removed bytes; time stamps stay. A packet inside that begins with IP \
        belongs to an interface of link type RAW, named eth0/raw; one that begins with Ethernet to eth0/ethernet; one that only lost its tags \
        stays with eth0. Tunnels in fragments are found in the first fragment only, which holds a part of the packet inside. The result has the \
        number of removed layers of each kind.",
    parameters: &[
        Parameter::new("what", ParameterType::Text, "gre,erspan,vxlan,geneve,gtp,ipip,mpls,vlan")
            .means("layers to remove, with commas between"),
        Parameter::new("layers", ParameterType::Number(1, 16), "8").means("layers to remove at most"),
        Parameter::new("keep", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether packets without such a layer are passed on unchanged; if not, they are refused"),
    ],
    example: "device(eth0) -> decap(\"vxlan,vlan\", keep=yes) -> top",
    make: Constructor::Stage(|arguments, _| {
        let wanted = wanted(arguments.text("what"))?;
        let (layers, keeps) = (arguments.number("layers") as usize, arguments.text("keep") == "yes");
        let lending = Lending::default();
        Ok(Box::new(Decap { wanted, layers, keeps, lending, taken: [0; KINDS.len()] }))
    }),
    ..StageClass::BASE
};

/// The layers that can be removed.
const KINDS: [&str; 8] = ["gre", "erspan", "vxlan", "geneve", "gtp", "ipip", "mpls", "vlan"];
const VLAN: usize = 7;

/// Both addresses of an Ethernet frame.
const ADDRESSES_LEN: usize = 12;
const TAG_LEN: usize = 4;
/// Tags that are taken off one frame.
const TAGS_MAX: usize = 16;

fn kind(tunnel: Tunnel) -> Option<usize> {
    KINDS.iter().position(|kind| *kind == tunnel.name())
}

/// The [`KINDS`] that a list names.
fn wanted(list: &str) -> Result<[bool; KINDS.len()], String> {
    let mut wanted = [false; KINDS.len()];
    for word in list.split(',').map(str::trim) {
        let kind = KINDS.iter().position(|kind| *kind == word);
        wanted[kind
            .ok_or_else(|| format!("unknown layer `{word}`; expected one of {}", KINDS.join(", ")))?] = true;
    }
    Ok(wanted)
}

struct Decap {
    wanted: [bool; KINDS.len()],
    layers: usize,
    keeps: bool,
    lending: Lending,
    /// Layers of each kind.
    taken: [u64; KINDS.len()],
}

/// The packet inside, after removal of outer layers.
struct Inside {
    /// Index in the batch.
    index: usize,
    link_type: LinkType,
    /// Offset in the captured bytes.
    start: usize,
    len: usize,
    /// Bytes of tags behind its addresses that are to go.
    tags_len: usize,
    /// Whether it was in a tunnel.
    is_inner: bool,
    meta: Meta,
}

impl Decap {
    /// The packet inside; `None` if no layer was removed and such packets are refused.
    fn inside(&mut self, packets: &Packets<'_>, index: usize) -> Option<Inside> {
        let Packet { data, meta } = packets.batch.packet(index);
        let interface = packets.interfaces.get(meta.interface.0 as usize);
        let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
        let (meta, len) = (*meta, data.len());
        let mut inside = Inside { index, link_type, start: 0, len, tags_len: 0, is_inner: false, meta };
        for layer in 0..self.layers {
            let Some(kind) = self.take_off(&mut inside, data) else {
                return (layer > 0 || self.keeps).then_some(inside);
            };
            self.taken[kind] += 1;
        }
        Some(inside)
    }

    /// Takes off one layer, and says of which kind.
    fn take_off(&self, inside: &mut Inside, outer: &[u8]) -> Option<usize> {
        let data = outer.get(inside.start..)?.get(..inside.len)?;
        if self.wanted[VLAN] && inside.tags_len == 0 {
            let tags_len = if inside.link_type == LinkType::ETHERNET { tags_len(data) } else { 0 };
            if inside.meta.vlan.take().is_some() || tags_len > 0 {
                inside.tags_len = tags_len;
                return Some(VLAN);
            }
        }
        let inner = Headers::parse_data(inside.link_type, data).inner(data)?;
        let kind = kind(inner.tunnel).filter(|kind| self.wanted[*kind])?;
        let meta = Meta { vlan: None, checksum: of_inner(inside.meta.checksum), rx_hash: 0, ..inside.meta };
        *inside = Inside {
            index: inside.index,
            link_type: inner.link_type,
            start: inside.start + inner.offset,
            len: inner.len,
            tags_len: 0,
            is_inner: true,
            meta,
        };
        Some(kind)
    }
}

/// The checksum state of an inner packet. A check of the outer checksum says nothing of the inner one; a checksum left
/// to the adapter is the innermost.
fn of_inner(checksum: Checksum) -> Checksum {
    if checksum == Checksum::NotReady { checksum } else { Checksum::Unknown }
}

/// Bytes of the tags that follow the addresses of a frame, as far as the type behind each was captured.
fn tags_len(frame: &[u8]) -> usize {
    let is_tag = |at: usize| {
        let kind = frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        kind.is_some_and(ethertype::is_vlan) && frame.len() >= at + TAG_LEN + 2
    };
    let starts = (0..TAGS_MAX).map(|tag| ADDRESSES_LEN + tag * TAG_LEN);
    starts.take_while(|at| is_tag(*at)).count() * TAG_LEN
}

impl Inside {
    /// Whether the captured bytes are those that came.
    fn is_whole(&self, outer: &[u8]) -> bool {
        self.start == 0 && self.tags_len == 0 && self.len == outer.len()
    }

    /// Bytes of the packet: the addresses before the tags to remove, if there are any, and the rest.
    fn parts<'a>(&self, outer: &'a [u8]) -> [&'a [u8]; 2] {
        let data = &outer[self.start..self.start + self.len];
        match self.tags_len {
            0 => [data, &[]],
            tags_len => [&data[..ADDRESSES_LEN], &data[ADDRESSES_LEN + tags_len..]],
        }
    }
}

/// The batch that goes on, and the interfaces of its packets.
#[derive(Default)]
struct Lending {
    found: Vec<Inside>,
    records: Vec<Record>,
    /// Copies, where tags had to go from among the bytes.
    bytes: Vec<u8>,
    interfaces: Vec<Interface>,
    /// Origin of each of these interfaces: the one that packets came by, whether they were in a tunnel, and the link
    /// type of their first header.
    origins: Vec<(usize, bool, LinkType)>,
}

impl Lending {
    /// Notes the place of shortened packets in their own batch.
    fn lend_in_place(&mut self, packets: &Packets<'_>) {
        for at in 0..self.found.len() {
            let mut record = packets.batch.records()[self.found[at].index];
            let outer = packets.batch.packet(self.found[at].index);
            if !self.found[at].is_whole(outer.data) {
                record.offset += self.found[at].start;
                (record.cap_len, record.options_len) = (self.found[at].len as u32, 0);
            }
            record.meta = self.meta(packets, at);
            self.records.push(record);
        }
    }

    /// Copies the remaining bytes of packets.
    fn lend_copies(&mut self, packets: &Packets<'_>) {
        for at in 0..self.found.len() {
            let inside = &self.found[at];
            let outer = packets.batch.packet(inside.index).data;
            let offset = self.bytes.len();
            inside.parts(outer).into_iter().for_each(|part| self.bytes.extend_from_slice(part));
            let cap_len = self.bytes.len() - offset;
            let is_whole = inside.is_whole(outer);
            let options = if is_whole { packets.batch.options(inside.index) } else { &[] };
            if !options.is_empty() {
                self.bytes.resize(offset + cap_len.next_multiple_of(4), 0);
                self.bytes.extend_from_slice(options);
            }
            let (cap_len, options_len) = (cap_len as u32, options.len() as u32);
            let meta = self.meta(packets, at);
            self.records.push(Record { offset, cap_len, options_len, meta });
        }
    }

    fn meta(&mut self, packets: &Packets<'_>, at: usize) -> Meta {
        let inside = &self.found[at];
        let wire_len = wire_len(packets.batch.packet(inside.index), inside);
        let meta = inside.meta;
        Meta { wire_len, interface: self.interface(packets.interfaces, at), ..meta }
    }

    /// The number of the interface for the rest of a packet.
    fn interface(&mut self, known: &[Interface], at: usize) -> InterfaceId {
        let inside = &self.found[at];
        // A number that the source does not explain is a fault of the source; all such are one.
        let from = (inside.meta.interface.0 as usize).min(known.len());
        let origin = (from, inside.is_inner, inside.link_type);
        let index = self.origins.iter().position(|known| *known == origin).unwrap_or_else(|| {
            self.origins.push(origin);
            self.interfaces.push(interface(known.get(from), inside));
            self.origins.len() - 1
        });
        InterfaceId(index as u32)
    }
}

fn interface(from: Option<&Interface>, inside: &Inside) -> Interface {
    let from = from.cloned().unwrap_or_else(|| Interface::new("", LinkType::ETHERNET));
    if !inside.is_inner {
        return from;
    }
    let suffix = if inside.link_type == LinkType::ETHERNET { "ethernet" } else { "raw" };
    Interface {
        name: format!("{}/{suffix}", from.name),
        link_type: inside.link_type,
        // These speak of the outer packets.
        filter: String::new(),
        fcs_len: None,
        ..from
    }
}

/// The length on the wire without the outer layers, the tags, and the bytes captured behind the inner packet.
fn wire_len(outer: Packet<'_>, inside: &Inside) -> u32 {
    if inside.is_whole(outer.data) {
        return outer.meta.wire_len;
    }
    let kept = inside.len - inside.tags_len;
    let lost = (outer.data.len() - kept) as u32;
    outer.meta.wire_len.saturating_sub(lost).max(kept as u32)
}

impl Stage for Decap {
    fn has_own_interfaces(&self) -> bool {
        true
    }

    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lending = std::mem::take(&mut self.lending);
        lending.records.clear();
        lending.bytes.clear();
        lending.found.clear();
        lending.found.extend(packets.selection.iter().filter_map(|index| self.inside(packets, index)));
        let is_copied = lending.found.iter().any(|inside| inside.tags_len > 0);
        let base = if is_copied {
            lending.lend_copies(packets);
            lending.bytes.as_slice()
        } else {
            lending.lend_in_place(packets);
            packets.batch.base()
        };
        // Packets lent in place get the snap length of the batch; copies are short enough already.
        let batch = Batch::new(base, &lending.records).cut(packets.batch.snap_len());
        let result = out.pass(&mut packets.replaced(batch, &lending.interfaces));
        self.lending = lending;
        result
    }

    fn result(&self) -> Option<Table> {
        let rows = KINDS.iter().zip(self.taken).filter(|(_, layers)| *layers > 0);
        let rows = rows.map(|(kind, layers)| vec![Cell::from((*kind).to_owned()), layers.into()]);
        Some(Table { columns: vec!["kind", "layers"], rows: rows.collect() })
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Decap>() {
            self.taken.iter_mut().zip(other.taken).for_each(|(ours, theirs)| *ours += theirs);
        }
    }
}

#[cfg(test)]
#[path = "decap_tests.rs"]
mod tests;
