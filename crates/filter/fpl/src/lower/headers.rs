//! Finds the headers of a packet, each step where the program first needs their fields.
//!
//! ```text
//! link       EtherType behind up to 2 tags, bytes before the network header
//! network    which network header is there: IPv4, IPv6, ARP, none
//! transport  behind IPv4, or behind IPv6 and its extension headers (a loop): the protocol, and where its header starts
//! ports      which transport header is there: TCP, UDP, ICMP, ICMPv6, none
//! ```
//!
//! A step is a part of the graph with one end; it hands on a number for the header found: an EtherType, a protocol,
//! or 0. Fields are loaded behind the steps ([`super::fields`]). Headers that a program never asks for are not looked
//! for.

use super::fields::Layer;
use super::{Headers, min};
use crate::field::{Header, Item};
use tapline_ir::{
    Binary, BlockId, Case, Comparison, PacketOffset, SwitchSearch, Target, Terminator, Type, Value, Width,
};
use tapline_packet::numbers::ethertype::VLAN_TAGS;
use tapline_packet::numbers::ip_protocol::{AH, FRAGMENT, IPV6_EXTENSIONS};

/// The most VLAN tags that are stepped over.
const TAGS_MAX: u32 = 2;
/// The most IPv6 extension headers that are stepped over.
const EXTENSIONS_MAX: u32 = 8;

/// The result of the link layer: the EtherType or 0, and the start of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) ether_type: Value,
    pub(super) start: Value,
}

/// The result of the network layer. All are u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    /// 0 if there is none.
    pub(super) protocol: Value,
    pub(super) start: Value,
    pub(super) is_fragment: Value,
}

impl Headers<'_> {
    pub(super) fn zero(&mut self) -> Value {
        self.builder.const32(0)
    }

    /// Runs `fill` in a block of its own; its result goes to the block `join`.
    pub(super) fn arm(&mut self, block: BlockId, join: BlockId, fill: impl FnOnce(&mut Self) -> Vec<Value>) {
        self.builder.switch_to(block);
        let arguments = fill(self);
        self.go(join, arguments);
    }

    /// Goes on at a block where paths join, with parameters of these types.
    pub(super) fn arrive(&mut self, join: BlockId, types: &[Type]) -> Vec<Value> {
        self.builder.switch_to(join);
        types.iter().map(|ty| self.builder.parameter(join, *ty)).collect()
    }

    pub(super) fn go(&mut self, block: BlockId, arguments: Vec<Value>) {
        self.builder.finish(Terminator::Goto(Target { block, arguments }));
    }

    /// Ends the current block with an edge to one of two, by whether bytes were captured up to `len` behind `start`.
    pub(super) fn if_captured(&mut self, start: Option<Value>, len: u32, yes: BlockId, no: BlockId) {
        match start {
            None => {
                let end = self.builder.const32(len);
                self.builder.branch(Comparison::GreaterEqual, self.captured, end, yes, no);
            }
            // In 64 bits, so that the sum cannot wrap.
            Some(start) => {
                let (start, len) = (self.builder.extend(start), self.builder.const64(len.into()));
                let end = self.builder.binary(Binary::Add, start, len);
                let captured = self.builder.extend(self.captured);
                self.builder.branch(Comparison::GreaterEqual, captured, end, yes, no);
            }
        }
    }

    pub(super) fn switch(&mut self, value: Value, cases: Vec<Case>, default: BlockId) {
        let default = Target::to(default);
        let mut cases = cases;
        cases.sort_by_key(|case| case.key);
        let search = SwitchSearch::Binary;
        self.builder.finish(Terminator::Switch { value, cases: cases.into(), default, search });
    }

    /// Ends the current block with edges to a block for each of the headers, by the number that announces it.
    pub(super) fn by_header(
        &mut self,
        number: Value,
        headers: &[Header],
        none: BlockId,
    ) -> Vec<(Header, BlockId)> {
        let blocks: Vec<_> = headers.iter().map(|header| (*header, self.builder.block())).collect();
        let case = |(header, block): &(Header, BlockId)| Case {
            key: header.number().unwrap_or(0).into(),
            to: Target::to(*block),
        };
        self.switch(number, blocks.iter().map(case).collect(), none);
        blocks
    }

    pub(super) fn link(&mut self) -> Network {
        let link = self.link_type;
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.if_captured(None, link.header_len.max(1), yes, no);
        self.arm(yes, join, |headers| {
            let ether_type = match link.type_at {
                Some(at) => headers.builder.load(PacketOffset::at(at), Width::Half),
                None => headers.type_by_version(),
            };
            vec![ether_type]
        });
        self.arm(no, join, |headers| vec![headers.zero()]);
        let ether_type = self.arrive(join, &[Type::U32])[0];
        let start = self.builder.const32(link.header_len);
        let mut network = Network { ether_type, start };
        if link.type_at.is_some() {
            network = self.tags(network);
        } else {
            self.absent(Layer::Vlan);
        }
        for (number, _) in self.items.iter().enumerate().filter(|(_, item)| **item == Item::EtherType) {
            self.found.fields[number] = Some(network.ether_type);
        }
        network
    }

    /// The EtherType of the version in the packet's first 4 bits; 0 for other versions.
    fn type_by_version(&mut self) -> Value {
        let first = self.builder.load(PacketOffset::at(0), Width::Byte);
        let four = self.builder.const32(4);
        let version = self.builder.binary(Binary::Shr, first, four);
        let mut sum = self.zero();
        for (number, header) in [(4, Header::Ip), (6, Header::Ip6)] {
            let wanted = self.builder.const32(number);
            let is_it = self.builder.compare(Comparison::Equal, version, wanted);
            let ether_type = self.builder.const32(header.number().unwrap_or(0));
            let part = self.builder.binary(Binary::Mul, is_it, ether_type);
            sum = self.builder.binary(Binary::Add, sum, part);
        }
        sum
    }

    /// Steps over tags, and loads the fields of the first one.
    fn tags(&mut self, network: Network) -> Network {
        let (none, join) = (self.builder.block(), self.builder.block());
        let first = self.tag(network, none);
        let mut inner = self.untagged(first);
        let tag = PacketOffset::from(network.start, 0);
        let fields = self.fill(Layer::Vlan, Some(Header::Vlan), tag, Some(network.start));
        for _ in 1..TAGS_MAX {
            let (last, after) = (self.builder.block(), self.builder.block());
            let outer = inner;
            let next = self.tag(outer, last);
            let behind = self.untagged(next);
            self.go(after, vec![behind.ether_type, behind.start]);
            self.arm(last, after, |_| vec![outer.ether_type, outer.start]);
            let values = self.arrive(after, &[Type::U32, Type::U32]);
            inner = Network { ether_type: values[0], start: values[1] };
        }
        self.go(join, [fields, vec![inner.ether_type, inner.start]].concat());
        self.arm(none, join, |headers| {
            let fields = headers.fill(Layer::Vlan, None, tag, None);
            [fields, vec![network.ether_type, network.start]].concat()
        });
        let values = self.keep_layer(Layer::Vlan, join, &[Type::U32, Type::U32]);
        Network { ether_type: values[0], start: values[1] }
    }

    /// Goes on in a block where a tag is present; to `none` if it is not.
    fn tag(&mut self, network: Network, none: BlockId) -> Network {
        let (long_enough, is_tag) = (self.builder.block(), self.builder.block());
        let cases = VLAN_TAGS.map(|key| Case { key: key.into(), to: Target::to(long_enough) });
        self.switch(network.ether_type, cases.into(), none);
        self.builder.switch_to(long_enough);
        self.if_captured(Some(network.start), Header::Vlan.len_min(), is_tag, none);
        self.builder.switch_to(is_tag);
        network
    }

    fn untagged(&mut self, network: Network) -> Network {
        let ether_type = self.builder.load(PacketOffset::from(network.start, 2), Width::Half);
        let four = self.builder.const32(Header::Vlan.len_min());
        Network { ether_type, start: self.builder.binary(Binary::Add, network.start, four) }
    }

    /// The EtherType of the header behind the link layer, or 0.
    pub(super) fn network(&mut self, network: Network, wanted: &[Header]) -> Value {
        let (none, join) = (self.builder.block(), self.builder.block());
        for (header, check) in self.by_header(network.ether_type, wanted, none) {
            self.present(check, network.start, header, none, join);
        }
        self.arm(none, join, |headers| vec![headers.zero()]);
        self.arrive(join, &[Type::U32])[0]
    }

    /// Fills `check`: where the header's fixed part was captured, its number goes to `join`.
    fn present(&mut self, check: BlockId, start: Value, header: Header, none: BlockId, join: BlockId) {
        let present = self.builder.block();
        self.builder.switch_to(check);
        self.if_captured(Some(start), header.len_min(), present, none);
        self.arm(present, join, |headers| vec![headers.builder.const32(header.number().unwrap_or(0))]);
    }

    /// The protocol that the network header carries.
    pub(super) fn transport(&mut self, kind: Value, start: Value) -> Transport {
        let (none, join) = (self.builder.block(), self.builder.block());
        for (header, block) in self.by_header(kind, &[Header::Ip, Header::Ip6], none) {
            self.builder.switch_to(block);
            match header {
                Header::Ip => self.behind_ipv4(start, join),
                _ => self.behind_ipv6(start, join),
            }
        }
        self.arm(none, join, |headers| vec![headers.zero(); 3]);
        let values = self.arrive(join, &[Type::U32; 3]);
        Transport { protocol: values[0], start: values[1], is_fragment: values[2] }
    }

    /// The protocol of the header behind the network layer, or 0.
    pub(super) fn ports(&mut self, transport: Transport, wanted: &[Header]) -> Value {
        let (none, join) = (self.builder.block(), self.builder.block());
        for (header, check) in self.by_header(transport.protocol, wanted, none) {
            self.present(check, transport.start, header, none, join);
        }
        self.arm(none, join, |headers| vec![headers.zero()]);
        self.arrive(join, &[Type::U32])[0]
    }

    /// To `join` with protocol, start, and whether it is a fragment. A header that says it is too short, and later
    /// fragments, carry nothing.
    fn behind_ipv4(&mut self, start: Value, join: BlockId) {
        let first = self.builder.load(PacketOffset::from(start, 0), Width::Byte);
        let header_len = self.nibble_times_4(first, 0);
        let flags = self.builder.load(PacketOffset::from(start, 6), Width::Half);
        let protocol = self.builder.load(PacketOffset::from(start, 9), Width::Byte);
        let is_fragment = self.any_bits(flags, 0x3fff);
        let (whole, carries, nothing) = (self.builder.block(), self.builder.block(), self.builder.block());
        let least = self.builder.const32(20);
        self.builder.branch(Comparison::GreaterEqual, header_len, least, whole, nothing);
        self.builder.switch_to(whole);
        let place = self.builder.const32(0x1fff);
        self.builder.branch(Comparison::AnySet, flags, place, nothing, carries);
        self.arm(nothing, join, |headers| {
            let zero = headers.zero();
            vec![zero, zero, is_fragment]
        });
        self.arm(carries, join, |headers| {
            let behind = headers.builder.binary(Binary::Add, start, header_len);
            vec![protocol, behind, is_fragment]
        });
    }

    /// The end of an IP packet by its length field, `more` bytes later; the captured length if the field is 0, as the
    /// kernel leaves it in packets that the interface will cut.
    pub(super) fn end_of(&mut self, start: Value, field_at: u32, more: u32) -> Value {
        let len = self.builder.load(PacketOffset::from(start, field_at), Width::Half);
        let zero = self.zero();
        let is_absent = self.builder.compare(Comparison::Equal, len, zero);
        let unknown = self.builder.binary(Binary::Mul, self.captured, is_absent);
        let from = self.builder.binary(Binary::Add, start, len);
        let more = self.builder.const32(more);
        let end = self.builder.binary(Binary::Add, from, more);
        let end = self.builder.binary(Binary::Add, end, unknown);
        min(self.builder, end, self.captured)
    }

    /// 4 bits of a byte as a length in units of 4 bytes.
    pub(super) fn nibble_times_4(&mut self, byte: Value, shift: u32) -> Value {
        let shift = self.builder.const32(shift);
        let nibble = self.builder.binary(Binary::Shr, byte, shift);
        let mask = self.builder.const32(15);
        let nibble = self.builder.binary(Binary::And, nibble, mask);
        let two = self.builder.const32(2);
        self.builder.binary(Binary::Shl, nibble, two)
    }

    /// 1 if any of the bits is set.
    fn any_bits(&mut self, value: Value, mask: u32) -> Value {
        let mask = self.builder.const32(mask);
        self.builder.compare(Comparison::AnySet, value, mask)
    }

    /// Finds the transport header behind extension headers.
    fn behind_ipv6(&mut self, start: Value, join: BlockId) {
        let next = self.builder.load(PacketOffset::from(start, 6), Width::Byte);
        let forty = self.builder.const32(Header::Ip6.len_min());
        let at = self.builder.binary(Binary::Add, start, forty);
        let zero = self.zero();
        let (head, known, lost) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.go(head, vec![next, at, zero, zero]);
        let values = self.arrive(head, &[Type::U32; 4]);
        let (next, at, is_fragment, count) = (values[0], values[1], values[2], values[3]);
        let step = self.builder.block();
        let cases = IPV6_EXTENSIONS.map(|key| Case { key: key.into(), to: Target::to(step) });
        self.switch(next, cases.into(), known);
        self.builder.switch_to(step);
        self.step_over(head, lost, [next, at, is_fragment, count]);
        self.arm(known, join, |_| vec![next, at, is_fragment]);
        let was_fragment = self.builder.parameter(lost, Type::U32);
        self.arm(lost, join, |headers| {
            let zero = headers.zero();
            vec![zero, zero, was_fragment]
        });
    }

    /// Leads back to `head` behind one extension header; or to `lost`, with the information whether it is a fragment,
    /// if no transport header follows.
    fn step_over(&mut self, head: BlockId, lost: BlockId, [next, at, is_fragment, count]: [Value; 4]) {
        let (checked, whole, turn) = (self.builder.block(), self.builder.block(), self.builder.block());
        let (cut, most) = (self.builder.block(), self.builder.const32(EXTENSIONS_MAX));
        self.builder.branch(Comparison::GreaterEqual, count, most, cut, checked);
        self.builder.switch_to(checked);
        self.if_captured(Some(at), 8, whole, cut);
        self.arm(cut, lost, |_| vec![is_fragment]);
        self.builder.switch_to(whole);
        let after = self.builder.load(PacketOffset::from(at, 0), Width::Byte);
        let units = self.builder.load(PacketOffset::from(at, 1), Width::Byte);
        let (fragment, authentication) = (self.builder.block(), self.builder.block());
        let ordinary = self.builder.block();
        let special =
            [(FRAGMENT, fragment), (AH, authentication)].map(|(number, block)| (u64::from(number), block));
        let cases = special.map(|(key, block)| Case { key, to: Target::to(block) });
        self.switch(next, cases.into(), ordinary);
        self.arm(ordinary, turn, |headers| vec![headers.length_of(units, 1, 3), is_fragment]);
        self.arm(authentication, turn, |headers| vec![headers.length_of(units, 2, 2), is_fragment]);
        self.fragment_header(fragment, at, turn, lost);
        let values = self.arrive(turn, &[Type::U32; 2]);
        let onward = self.builder.binary(Binary::Add, at, values[0]);
        let one = self.builder.const32(1);
        let count = self.builder.binary(Binary::Add, count, one);
        self.go(head, vec![after, onward, values[1], count]);
        self.builder.declare_loop(head, EXTENSIONS_MAX.into());
    }

    /// `(units + more) << shift` bytes.
    fn length_of(&mut self, units: Value, more: u32, shift: u32) -> Value {
        let more = self.builder.const32(more);
        let units = self.builder.binary(Binary::Add, units, more);
        let shift = self.builder.const32(shift);
        self.builder.binary(Binary::Shl, units, shift)
    }

    fn fragment_header(&mut self, block: BlockId, at: Value, turn: BlockId, lost: BlockId) {
        self.builder.switch_to(block);
        let offset = self.builder.load(PacketOffset::from(at, 2), Width::Half);
        let mask = self.builder.const32(0xfff8);
        let one = self.builder.const32(1);
        let eight = self.builder.const32(8);
        let to_lost = Target { block: lost, arguments: vec![one] };
        let to_turn = Target { block: turn, arguments: vec![eight, one] };
        let test = Comparison::AnySet;
        self.builder.finish(Terminator::Branch {
            test,
            left: offset,
            right: mask,
            yes: to_lost,
            no: to_turn,
        });
    }
}
