//! Headers within headers. Each test here also moves the offsets for all that comes after it.
//!
//! ```text
//! vlan     EtherType 8100, 88a8, 9100 | tag control (2) | EtherType            payload and type + 4
//! mpls     label (20 bits) | class | bottom of stack | time to live            network + 4
//! pppoes   EtherType 8864 | version | code | session (2) | length | PPP        PPP in the payload + 6
//! geneve   UDP 6081 | options length | flags | type (2) | VNI (3) | 0 | options | Ethernet, or what the type says
//! vxlan    UDP 4789 | flags | 0 (3) | VNI (3) | 0 | Ethernet
//! ```
//!
//! The start of an inner packet depends on the lengths of the headers around it, so it is put in scratch cells when
//! the tunnel's test holds. The cells are 0 before: a test after `geneve or` on a packet without Geneve looks at the
//! packet's own start, as libpcap's does since 1.10.7.
//!
//! On a live Linux capture the outer VLAN tag may be in the packet's metadata and not in its bytes. Then `vlan` tests
//! the metadata first, and the offsets move only on packets that have the tag in their bytes. A test left of `vlan`
//! reads the bytes, and finds a tagged packet's inner type there, as with libpcap; scoped, it reads the frame as it
//! was on the wire.
//!
//! Sources: IEEE 802.1Q-2022, 9.5; RFC 3032, 2.1; RFC 2516, 4; RFC 8926, 3.4; RFC 7348, 5; `linux/filter.h`.

use tapline_packet::LinkType;

use super::layers::{Offset, equal, masked};
use super::numbers::ethertype;
use super::numbers::{ip_protocol, port};
use super::port::{PortRange, PortTest};
use super::transport::address;
use super::{Result, Scope, check_max};
use crate::ast::Direction;
use crate::predicate::{Base, FieldOffset, NumberExpr, Predicate, ScratchCell};
use tapline_bpf::ancillary;
use tapline_bpf::cfg::{Alu, Width};
use tapline_syntax::Error;

/// Link types whose packets may have VLAN tags.
pub(super) const TAGGED: [LinkType; 10] = [
    LinkType::ETHERNET,
    LinkType::NETANALYZER,
    LinkType::NETANALYZER_TRANSPARENT,
    LinkType::DSA_TAG_BRCM,
    LinkType::DSA_TAG_DSA,
    LinkType::DSA_TAG_EDSA,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_PRISM,
    LinkType::IEEE802_11_AVS,
    LinkType::IEEE802_11_RADIOTAP,
];
const VNI_MAX: u32 = 0x00ff_ffff;
const VLAN_ID_MAX: u32 = 0x0fff;

impl Scope<'_> {
    pub(super) fn vlan(&mut self, id: Option<u32>) -> Result<Predicate> {
        if self.layers.labels > 0 {
            return Err(Error::whole("no VLAN match after MPLS"));
        }
        if let Some(id) = id {
            check_max("VLAN tag", id, VLAN_ID_MAX)?;
        }
        let vlan = match self.link_type() {
            LinkType::ETHERNET if self.may_have_metadata() && self.scoped => self.vlan_on_the_wire(id)?,
            LinkType::ETHERNET if self.may_have_metadata() => self.vlan_with_metadata(id)?,
            link_type if TAGGED.contains(&link_type) => self.vlan_in_packet(id)?,
            _ => return Err(self.unsupported("vlan")),
        };
        self.layers.vlans += 1;
        Ok(vlan)
    }

    fn vlan_in_packet(&mut self, id: Option<u32>) -> Result<Predicate> {
        let tagged = self.is_tagged()?;
        let id = id.map(|id| self.vlan_id(id));
        self.layers.payload = self.layers.payload.plus(4);
        self.layers.link_type = self.layers.link_type.plus(4);
        self.layers.kind = None;
        Ok(Predicate::all([tagged].into_iter().chain(id)))
    }

    pub(super) fn is_tagged(&mut self) -> Result<Predicate> {
        let vlan = self.link_protocol_in_bytes(ethertype::VLAN)?;
        let service = self.link_protocol_in_bytes(ethertype::VLAN_PROVIDER)?;
        Ok(vlan.or(service).or(self.link_protocol_in_bytes(ethertype::VLAN_STACKED)?))
    }

    /// Whether the packet's tag is in its metadata.
    pub(super) fn tag_in_metadata(&self) -> Predicate {
        equal(self.at_packet(ancillary::VLAN_TAG_PRESENT), Width::Byte, 1, "VLAN tag in metadata")
    }

    fn id_in_metadata(&self, id: u32) -> Predicate {
        let at_tag = self.at_packet(ancillary::VLAN_TAG);
        masked(at_tag, Width::Half, id, VLAN_ID_MAX, "VLAN identifier in metadata")
    }

    /// The outermost tag, wherever it is; a cell holds the position in the bytes of the type behind it.
    fn vlan_on_the_wire(&mut self, id: Option<u32>) -> Result<Predicate> {
        let place = self.new_cell()?;
        let in_metadata = self.tag_in_metadata();
        let tagged = self.is_tagged()?;
        let at = |constant| Predicate::Assign(place, NumberExpr::Constant(constant));
        let type_at = self.layers.link_type.constant;
        let metadata = [in_metadata.clone()].into_iter().chain(id.map(|id| self.id_in_metadata(id)));
        let bytes = [in_metadata.not(), tagged].into_iter().chain(id.map(|id| self.vlan_id(id)));
        let bytes = bytes.chain([at(type_at.wrapping_add(4))]);
        let found = Predicate::all(metadata).or(Predicate::all(bytes));
        self.layers.link_type = Offset { cell: Some(place), constant: 0 };
        self.layers.payload = self.layers.link_type.plus(2);
        Ok(at(type_at).and(found))
    }

    /// The EtherType of the frame on the wire, on a live capture: with a tag in the metadata, the type of that tag.
    pub(super) fn link_protocol_on_the_wire(&mut self, protocol: u32) -> Result<Predicate> {
        let in_metadata = self.tag_in_metadata();
        let in_bytes = self.link_protocol_in_bytes(protocol)?;
        let untagged = in_metadata.clone().not().and(in_bytes);
        Ok(match protocol {
            ethertype::VLAN | ethertype::VLAN_PROVIDER | ethertype::VLAN_STACKED => {
                let tpid = self.at_packet(ancillary::VLAN_TPID);
                in_metadata.and(equal(tpid, Width::Half, protocol, "VLAN protocol in metadata")).or(untagged)
            }
            _ => untagged,
        })
    }

    fn vlan_id(&mut self, id: u32) -> Predicate {
        masked(self.at_network(0), Width::Half, id, VLAN_ID_MAX, "VLAN identifier")
    }

    fn vlan_with_metadata(&mut self, id: Option<u32>) -> Result<Predicate> {
        let in_metadata = self.tag_in_metadata();
        let tagged = self.is_tagged()?;
        let id_in_packet = id.map(|id| self.vlan_id(id));
        let moved = self.move_at_run_time()?;
        let vlan = in_metadata.clone().or(moved.and(tagged));
        let (Some(id), Some(id_in_packet)) = (id, id_in_packet) else { return Ok(vlan) };
        let found = in_metadata.clone().and(self.id_in_metadata(id));
        Ok(vlan.and(found.or(in_metadata.not().and(id_in_packet))))
    }

    /// Moves payload and type by 4 on the packets for which it is evaluated.
    fn move_at_run_time(&mut self) -> Result<Predicate> {
        let (payload, link_type) = (self.new_cell()?, self.new_cell()?);
        self.layers.payload.cell = Some(payload);
        self.layers.link_type.cell = Some(link_type);
        let moved = |cell| Predicate::Assign(cell, NumberExpr::Cell(cell).plus(4));
        Ok(moved(payload).and(moved(link_type)))
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Result<Predicate> {
        let found = if self.layers.labels > 0 {
            let before = self.at_network(0u32.wrapping_sub(2));
            masked(before, Width::Byte, 0, 0x01, "MPLS bottom of stack")
        } else {
            match self.link_type() {
                LinkType::ETHERNET
                | LinkType::NETANALYZER
                | LinkType::NETANALYZER_TRANSPARENT
                | LinkType::DSA_TAG_BRCM
                | LinkType::DSA_TAG_DSA
                | LinkType::DSA_TAG_EDSA
                | LinkType::C_HDLC
                | LinkType::HDLC => self.link_protocol(ethertype::MPLS)?,
                LinkType::PPP => self.link_protocol(0x0281)?,
                _ => return Err(self.unsupported("mpls")),
            }
        };
        let label = match label {
            None => None,
            Some(label) => {
                check_max("MPLS label", label, 0xf_ffff)?;
                Some(masked(self.at_network(0), Width::Word, label << 12, 0xffff_f000, "MPLS label"))
            }
        };
        self.layers.network = self.layers.network.wrapping_add(4);
        self.layers.network_no_snap = self.layers.network_no_snap.wrapping_add(4);
        self.layers.labels += 1;
        Ok(Predicate::all([found].into_iter().chain(label)))
    }

    /// The payload under the last label: MPLS does not name it, so the version of IP is guessed from its nibble.
    pub(super) fn mpls_payload(&mut self, protocol: u32) -> Result<Predicate> {
        let version = match protocol {
            ethertype::IPV4 => 0x40,
            ethertype::IPV6 => 0x60,
            _ => {
                return Err(Error::whole("unsupported protocol over mpls")
                    .hint("after mpls, only ip and ip6 and what they carry can be tested"));
            }
        };
        let before = self.at_network(0u32.wrapping_sub(2));
        let bottom = masked(before, Width::Byte, 0x01, 0x01, "MPLS bottom of stack");
        Ok(bottom.and(masked(self.at_network(0), Width::Byte, version, 0xf0, "IP version")))
    }

    pub(super) fn pppoed(&mut self) -> Result<Predicate> {
        self.link_protocol(ethertype::PPPOE_DISCOVERY)
    }

    pub(super) fn pppoes(&mut self, session: Option<u32>) -> Result<Predicate> {
        let found = self.link_protocol(ethertype::PPPOE_SESSION)?;
        let session = match session {
            None => None,
            Some(session) => {
                check_max("PPPoE session number", session, 0xffff)?;
                Some(equal(self.at_network(2), Width::Half, session, "PPPoE session"))
            }
        };
        let ppp = self.layers.payload.plus(self.layers.network).plus(6);
        self.layers.push(LinkType::PPP, ppp);
        self.layers.link_type = ppp;
        self.layers.payload = ppp.plus(2);
        self.layers.network = 0;
        self.layers.network_no_snap = 0;
        Ok(Predicate::all([found].into_iter().chain(session)))
    }

    pub(super) fn geneve(&mut self, vni: Option<u32>) -> Result<Predicate> {
        check_vni("Geneve VNI", vni)?;
        let version = |place| masked(place, Width::Byte, 0, 0xc0, "Geneve version");
        let cells = self.tunnel_cells()?;
        let [v4, v6] = self.tunnel(port::GENEVE, version, vni, cells.link_type)?;
        let geneve = FieldOffset { base: Base::Cell(cells.link_type), offset: 0 };
        let options =
            NumberExpr::binary(Alu::And, NumberExpr::load(geneve, Width::Byte), NumberExpr::Constant(0x3f));
        let options = NumberExpr::binary(Alu::Shl, options, NumberExpr::Constant(2));
        let end = NumberExpr::binary(Alu::Add, options, NumberExpr::Cell(cells.link_type)).plus(8);
        let at_type = FieldOffset { offset: 2, ..geneve };
        let is_ethernet =
            equal(at_type, Width::Half, ethertype::TRANSPARENT_BRIDGING, "Geneve protocol type");
        let after =
            |cell, from: ScratchCell, more| Predicate::Assign(cell, NumberExpr::Cell(from).plus(more));
        let ethernet = is_ethernet.and(after(cells.link_type, cells.link_header, 12)).and(after(
            cells.payload,
            cells.link_header,
            14,
        ));
        let other =
            after(cells.link_type, cells.link_type, 2).and(after(cells.payload, cells.link_header, 0));
        self.enter_tunnel(cells);
        self.provable = false;
        Ok(v4.or(v6).and(Predicate::Assign(cells.link_header, end)).and(ethernet.or(other)))
    }

    pub(super) fn vxlan(&mut self, vni: Option<u32>) -> Result<Predicate> {
        check_vni("VXLAN VNI", vni)?;
        let flags = |place| equal(place, Width::Byte, 0x08, "VXLAN flags");
        let cells = self.tunnel_cells()?;
        let [v4, v6] = self.tunnel(port::VXLAN, flags, vni, cells.link_header)?;
        let after = |cell, more| Predicate::Assign(cell, NumberExpr::Cell(cells.link_header).plus(more));
        let found = v4.or(v6).and(after(cells.link_header, 8));
        let found = found.and(after(cells.link_type, 12)).and(after(cells.payload, 14));
        self.enter_tunnel(cells);
        Ok(found)
    }

    /// The tunnel in IPv4 and in IPv6: UDP to a port, the header's first byte as it should be, the identifier. If the
    /// predicate holds, the header's place is in the cell.
    fn tunnel(
        &mut self,
        port: u32,
        first_byte: impl Fn(FieldOffset) -> Predicate,
        vni: Option<u32>,
        cell: ScratchCell,
    ) -> Result<[Predicate; 2]> {
        const UDP_LEN: u32 = 8;
        let (range, protocol) = (PortRange::one(port), Some(ip_protocol::UDP));
        let to_port = PortTest { range, protocol, direction: Some(Direction::Dst), word: "port" };
        let identifier =
            |place, vni: u32| masked(place, Width::Word, vni << 8, 0xffff_ff00, "virtual network identifier");

        let udp = self.ports_ipv4(to_port)?;
        let first = first_byte(self.after_ipv4(UDP_LEN));
        let vni4 = vni.map(|vni| identifier(self.after_ipv4(UDP_LEN + 4), vni));
        let start = self.ipv4_end().plus(UDP_LEN);
        let v4 = [udp, first].into_iter().chain(vni4).chain([Predicate::Assign(cell, start)]);

        let udp = self.ports_ipv6(to_port)?;
        let first = first_byte(self.after_ipv6(UDP_LEN));
        let vni6 = vni.map(|vni| identifier(self.after_ipv6(UDP_LEN + 4), vni));
        let start = address(self.after_ipv6(UDP_LEN));
        let v6 = [udp, first].into_iter().chain(vni6).chain([Predicate::Assign(cell, start)]);
        Ok([Predicate::all(v4), Predicate::all(v6)])
    }

    /// The end of the IPv4 header.
    pub(super) fn ipv4_end(&mut self) -> NumberExpr {
        let header = self.at_network(0);
        let words =
            NumberExpr::binary(Alu::And, NumberExpr::load(header, Width::Byte), NumberExpr::Constant(0xf));
        let len = NumberExpr::binary(Alu::Shl, words, NumberExpr::Constant(2));
        match header.base {
            Base::Cell(cell) => NumberExpr::binary(Alu::Add, len, NumberExpr::Cell(cell)).plus(header.offset),
            _ => len.plus(header.offset),
        }
    }

    fn tunnel_cells(&mut self) -> Result<TunnelCells> {
        Ok(TunnelCells {
            link_type: self.new_cell()?,
            link_header: self.new_cell()?,
            payload: self.new_cell()?,
        })
    }

    fn enter_tunnel(&mut self, cells: TunnelCells) {
        let at = |cell| Offset { cell: Some(cell), constant: 0 };
        self.layers.push(LinkType::ETHERNET, at(cells.link_header));
        self.layers.link_type = at(cells.link_type);
        self.layers.payload = at(cells.payload);
        self.layers.network = 0;
        self.layers.in_tunnel = true;
    }

    /// Geneve may carry a packet without an Ethernet header; then header and payload start at one place.
    pub(super) fn has_inner_ethernet(&mut self) -> Option<Predicate> {
        let header = self.layers.link_header.cell?;
        let payload = self.layers.payload.cell?;
        Some(Predicate::Differ(header, payload))
    }
}

/// The cells with the places of an inner packet's parts.
#[derive(Clone, Copy)]
struct TunnelCells {
    link_type: ScratchCell,
    link_header: ScratchCell,
    payload: ScratchCell,
}

fn check_vni(what: &str, vni: Option<u32>) -> Result<()> {
    vni.map_or(Ok(()), |vni| check_max(what, vni, VNI_MAX))
}
