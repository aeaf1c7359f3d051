//! Finds the headers of a packet once, at the program's start, and loads the fields that the program names.
//!
//! ```text
//! link       EtherType behind up to 2 tags, bytes before the network header
//!   |
//! network    switch on the EtherType: IPv4, IPv6 (extension headers: a loop), ARP, none
//!   |
//! transport  switch on the protocol: TCP, UDP, ICMP, ICMPv6, none
//! ```
//!
//! At the end of each layer all ways meet, with a value for every field: what was loaded, or 0. So a field costs one load per packet
//! however often it is named, and never ends the program.

use super::min;
use crate::fpl::field::{Header, Item, Link};
use crate::ir::{
    Binary, BlockId, Builder, Case, Op, Place, Search, Target, Terminator, Test, Type, Value, Width,
};

/// The most VLAN tags that are stepped over.
const TAGS_MAX: u32 = 2;
/// 802.1Q, 802.1ad, and what preceded it.
const TAG_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
/// The most IPv6 extension headers that are stepped over.
const EXTENSIONS_MAX: u32 = 8;
/// Hop-by-hop options, routing, fragment, authentication, destination options.
const EXTENSIONS: [u64; 5] = [0, 43, FRAGMENT, AUTHENTICATION, 60];
const FRAGMENT: u64 = 44;
const AUTHENTICATION: u64 = 51;

/// The values of the fields, in their order.
pub(super) fn lower(builder: &mut Builder, items: &[Item], link: Link, length: Value) -> Vec<Value> {
    let captured = builder.field(crate::ir::Field::CapLen);
    let mut headers = Headers { builder, items, captured, length, found: vec![None; items.len()] };
    let network = headers.link(link);
    if headers.wants(Layer::Network) || headers.wants(Layer::Transport) {
        let transport = headers.network(network);
        if headers.wants(Layer::Transport) {
            headers.transport(transport);
        }
    }
    headers.found.iter().map(|value| value.unwrap_or(length)).collect()
}

/// Where a field becomes known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    Ethernet,
    Vlan,
    Link,
    Network,
    Transport,
}

fn layer(item: Item) -> Layer {
    match item {
        Item::Bits { header, .. } | Item::Present(header) | Item::Start(header) => match header {
            Header::Ethernet => Layer::Ethernet,
            Header::Vlan => Layer::Vlan,
            Header::Arp | Header::Ip | Header::Ip6 => Layer::Network,
            Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6 => Layer::Transport,
        },
        Item::EtherType => Layer::Link,
        Item::IpVersion | Item::Protocol | Item::TransportStart | Item::Fragment => Layer::Network,
        Item::DataStart | Item::DataLength => Layer::Transport,
    }
}

/// What the link layer finds: the EtherType or 0, and where the network header starts.
#[derive(Clone, Copy)]
struct Network {
    ether_type: Value,
    start: Value,
}

/// What the network layer finds. All are u32.
#[derive(Clone, Copy)]
struct Transport {
    /// 0 if there is none.
    protocol: Value,
    start: Value,
    /// Where the IP packet ends, or the captured bytes if it does not say.
    end: Value,
    is_fragment: Value,
}

struct Headers<'a> {
    builder: &'a mut Builder,
    items: &'a [Item],
    captured: Value,
    length: Value,
    found: Vec<Option<Value>>,
}

impl Headers<'_> {
    fn wants(&self, wanted: Layer) -> bool {
        self.items.iter().any(|item| layer(*item) == wanted)
    }

    fn zero(&mut self) -> Value {
        self.builder.const32(0)
    }

    /// Runs `fill` in a block of its own; what it gives goes to the block `join`.
    fn arm(&mut self, block: BlockId, join: BlockId, fill: impl FnOnce(&mut Self) -> Vec<Value>) {
        self.builder.switch_to(block);
        let arguments = fill(self);
        self.builder.finish(Terminator::Goto(Target { block: join, arguments }));
    }

    /// Goes on at a block where ways meet, with parameters of these types.
    fn arrive(&mut self, join: BlockId, types: &[Type]) -> Vec<Value> {
        self.builder.switch_to(join);
        types.iter().map(|ty| self.builder.parameter(join, *ty)).collect()
    }

    /// Ends the current block with a way to one of two, by whether bytes were captured up to `len` behind `start`.
    fn if_captured(&mut self, start: Option<Value>, len: u32, yes: BlockId, no: BlockId) {
        let mut end = self.builder.const32(len);
        if let Some(start) = start {
            end = self.builder.binary(Binary::Add, start, end);
        }
        self.builder.branch(Test::GreaterEqual, self.captured, end, yes, no);
    }

    fn link(&mut self, link: Link) -> Network {
        if self.wants(Layer::Ethernet) {
            self.ethernet();
        }
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.if_captured(None, link.header_len.max(1), yes, no);
        self.arm(yes, join, |headers| {
            let ether_type = match link.type_at {
                Some(at) => headers.builder.load(Place::at(at), Width::Half),
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
            self.found[number] = Some(network.ether_type);
        }
        network
    }

    /// Gives the fields of a layer that this link type does not have their 0.
    fn absent(&mut self, of: Layer) {
        for (number, item) in self.items.iter().enumerate() {
            if layer(*item) == of {
                self.found[number] = Some(self.builder.push(Op::Const(0), item_type(*item)));
            }
        }
    }

    fn ethernet(&mut self) {
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.if_captured(None, Header::Ethernet.len_min(), yes, no);
        let start = Place::at(0);
        self.arm(yes, join, |headers| headers.fill(Layer::Ethernet, Some(Header::Ethernet), start, None));
        self.arm(no, join, |headers| headers.fill(Layer::Ethernet, None, start, None));
        self.keep(Layer::Ethernet, join, &[]);
    }

    /// The EtherType that stands for the version in the packet's first 4 bits; 0 for other versions.
    fn type_by_version(&mut self) -> Value {
        let first = self.builder.load(Place::at(0), Width::Byte);
        let four = self.builder.const32(4);
        let version = self.builder.binary(Binary::Shr, first, four);
        let mut sum = self.zero();
        for (number, header) in [(4, Header::Ip), (6, Header::Ip6)] {
            let wanted = self.builder.const32(number);
            let is_it = self.builder.compare(Test::Equal, version, wanted);
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
        let tag = Place::from(network.start, 0);
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
        let values = self.keep(Layer::Vlan, join, &[Type::U32, Type::U32]);
        Network { ether_type: values[0], start: values[1] }
    }

    fn go(&mut self, block: BlockId, arguments: Vec<Value>) {
        self.builder.finish(Terminator::Goto(Target { block, arguments }));
    }

    /// Goes on in a block where a tag is present; to `none` if it is not.
    fn tag(&mut self, network: Network, none: BlockId) -> Network {
        let (long_enough, is_tag) = (self.builder.block(), self.builder.block());
        let cases = TAG_TYPES.map(|key| Case { key: key.into(), to: Target::to(long_enough) });
        self.switch(network.ether_type, cases.into(), none);
        self.builder.switch_to(long_enough);
        self.if_captured(Some(network.start), Header::Vlan.len_min(), is_tag, none);
        self.builder.switch_to(is_tag);
        network
    }

    fn switch(&mut self, value: Value, cases: Vec<Case>, default: BlockId) {
        let default = Target::to(default);
        let mut cases = cases;
        cases.sort_by_key(|case| case.key);
        let search = Search::Binary;
        self.builder.finish(Terminator::Switch { value, cases: cases.into(), default, search });
    }

    fn untagged(&mut self, network: Network) -> Network {
        let ether_type = self.builder.load(Place::from(network.start, 2), Width::Half);
        let four = self.builder.const32(Header::Vlan.len_min());
        Network { ether_type, start: self.builder.binary(Binary::Add, network.start, four) }
    }

    fn network(&mut self, network: Network) -> Transport {
        const HEADERS: [Header; 3] = [Header::Ip, Header::Arp, Header::Ip6];
        let (none, join) = (self.builder.block(), self.builder.block());
        let checks = HEADERS.map(|_| self.builder.block());
        let key_of = |header: Header| header.number().unwrap_or(0).into();
        let cases = HEADERS
            .iter()
            .zip(checks)
            .map(|(header, check)| Case { key: key_of(*header), to: Target::to(check) });
        self.switch(network.ether_type, cases.collect(), none);
        for (header, check) in HEADERS.into_iter().zip(checks) {
            let present = self.builder.block();
            self.builder.switch_to(check);
            self.if_captured(Some(network.start), header.len_min(), present, none);
            self.arm(present, join, |headers| headers.network_header(header, network.start));
        }
        self.arm(none, join, |headers| {
            let nothing = headers.nothing();
            headers.network_fields(None, network.start, nothing)
        });
        let values = self.keep(Layer::Network, join, &[Type::U32; 4]);
        Transport { protocol: values[0], start: values[1], end: values[2], is_fragment: values[3] }
    }

    fn nothing(&mut self) -> Transport {
        let zero = self.zero();
        Transport { protocol: zero, start: zero, end: zero, is_fragment: zero }
    }

    fn network_header(&mut self, header: Header, start: Value) -> Vec<Value> {
        let needed = self.wants(Layer::Transport)
            || self
                .items
                .iter()
                .any(|item| matches!(item, Item::Protocol | Item::TransportStart | Item::Fragment));
        let transport = match header {
            Header::Ip if needed => self.behind_ipv4(start),
            Header::Ip6 if needed => self.behind_ipv6(start),
            _ => self.nothing(),
        };
        self.network_fields(Some(header), start, transport)
    }

    fn network_fields(&mut self, header: Option<Header>, start: Value, transport: Transport) -> Vec<Value> {
        let mut values = Vec::new();
        for item in self.items.iter().filter(|item| layer(**item) == Layer::Network) {
            let value = match item {
                Item::Protocol => transport.protocol,
                Item::TransportStart => transport.start,
                Item::Fragment => transport.is_fragment,
                Item::IpVersion => {
                    let version = match header {
                        Some(Header::Ip) => 4,
                        Some(Header::Ip6) => 6,
                        _ => 0,
                    };
                    self.builder.const32(version)
                }
                _ => self.item(*item, header, Place::from(start, 0), Some(start)),
            };
            values.push(value);
        }
        values.extend([transport.protocol, transport.start, transport.end, transport.is_fragment]);
        values
    }

    fn behind_ipv4(&mut self, start: Value) -> Transport {
        let first = self.builder.load(Place::from(start, 0), Width::Byte);
        let header_len = self.nibble_times_4(first, 0);
        let flags = self.builder.load(Place::from(start, 6), Width::Half);
        let protocol = self.builder.load(Place::from(start, 9), Width::Byte);
        let is_fragment = self.any_bits(flags, 0x3fff);
        let is_later = self.any_bits(flags, 0x1fff);
        let least = self.builder.const32(20);
        let is_whole = self.builder.compare(Test::GreaterEqual, header_len, least);
        let zero = self.zero();
        let is_first = self.builder.compare(Test::Equal, is_later, zero);
        let known = self.builder.binary(Binary::And, is_whole, is_first);
        let behind = self.builder.binary(Binary::Add, start, header_len);
        let end = self.end_of(start, 2, 0);
        Transport {
            protocol: self.builder.binary(Binary::Mul, protocol, known),
            start: self.start_if(protocol, known, behind),
            end,
            is_fragment,
        }
    }

    /// Where the transport header starts; 0 if there is none.
    fn start_if(&mut self, protocol: Value, known: Value, start: Value) -> Value {
        let zero = self.zero();
        let is_named = self.builder.compare(Test::Greater, protocol, zero);
        let known = self.builder.binary(Binary::And, known, is_named);
        self.builder.binary(Binary::Mul, start, known)
    }

    /// 4 bits of a byte as a length in units of 4 bytes.
    fn nibble_times_4(&mut self, byte: Value, shift: u32) -> Value {
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
        self.builder.compare(Test::AnySet, value, mask)
    }

    /// Where an IP packet ends by its length field, `more` bytes later; the captured length where the field is 0, as the kernel
    /// leaves it in packets that the interface will cut.
    fn end_of(&mut self, start: Value, field_at: u32, more: u32) -> Value {
        let len = self.builder.load(Place::from(start, field_at), Width::Half);
        let zero = self.zero();
        let is_absent = self.builder.compare(Test::Equal, len, zero);
        let unknown = self.builder.binary(Binary::Mul, self.captured, is_absent);
        let from = self.builder.binary(Binary::Add, start, len);
        let more = self.builder.const32(more);
        let end = self.builder.binary(Binary::Add, from, more);
        let end = self.builder.binary(Binary::Add, end, unknown);
        min(self.builder, end, self.captured)
    }

    fn behind_ipv6(&mut self, start: Value) -> Transport {
        let next = self.builder.load(Place::from(start, 6), Width::Byte);
        let forty = self.builder.const32(Header::Ip6.len_min());
        let at = self.builder.binary(Binary::Add, start, forty);
        let end = self.end_of(start, 4, Header::Ip6.len_min());
        let zero = self.zero();
        let (head, known, lost) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.go(head, vec![next, at, zero, zero]);
        let values = self.arrive(head, &[Type::U32; 4]);
        let (next, at, is_fragment, count) = (values[0], values[1], values[2], values[3]);
        let step = self.builder.block();
        let cases = EXTENSIONS.map(|key| Case { key, to: Target::to(step) });
        self.switch(next, cases.into(), known);
        self.builder.switch_to(step);
        self.step_over(head, lost, [next, at, is_fragment, count]);
        self.join_ipv6((known, [next, at, is_fragment]), lost, end)
    }

    /// Leads back to `head` behind one extension header; to `lost`, which is told whether it is a fragment, where no
    /// transport header follows.
    fn step_over(&mut self, head: BlockId, lost: BlockId, [next, at, is_fragment, count]: [Value; 4]) {
        let (checked, whole, turn) = (self.builder.block(), self.builder.block(), self.builder.block());
        let (cut, most) = (self.builder.block(), self.builder.const32(EXTENSIONS_MAX));
        self.builder.branch(Test::GreaterEqual, count, most, cut, checked);
        self.builder.switch_to(checked);
        self.if_captured(Some(at), 8, whole, cut);
        self.arm(cut, lost, |_| vec![is_fragment]);
        self.builder.switch_to(whole);
        let after = self.builder.load(Place::from(at, 0), Width::Byte);
        let units = self.builder.load(Place::from(at, 1), Width::Byte);
        let (fragment, authentication) = (self.builder.block(), self.builder.block());
        let ordinary = self.builder.block();
        let special = [(FRAGMENT, fragment), (AUTHENTICATION, authentication)];
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
        let offset = self.builder.load(Place::from(at, 2), Width::Half);
        let mask = self.builder.const32(0xfff8);
        let one = self.builder.const32(1);
        let eight = self.builder.const32(8);
        let to_lost = Target { block: lost, arguments: vec![one] };
        let to_turn = Target { block: turn, arguments: vec![eight, one] };
        let test = Test::AnySet;
        self.builder.finish(Terminator::Branch {
            test,
            left: offset,
            right: mask,
            yes: to_lost,
            no: to_turn,
        });
    }

    fn join_ipv6(&mut self, known: (BlockId, [Value; 3]), lost: BlockId, end: Value) -> Transport {
        let join = self.builder.block();
        let (known, [next, at, is_fragment]) = known;
        self.arm(known, join, |headers| {
            let always = headers.builder.const32(1);
            vec![next, headers.start_if(next, always, at), is_fragment]
        });
        let was_fragment = self.builder.parameter(lost, Type::U32);
        self.arm(lost, join, |headers| {
            let zero = headers.zero();
            vec![zero, zero, was_fragment]
        });
        let values = self.arrive(join, &[Type::U32; 3]);
        Transport { protocol: values[0], start: values[1], end, is_fragment: values[2] }
    }

    fn transport(&mut self, transport: Transport) {
        const HEADERS: [Header; 4] = [Header::Icmp, Header::Tcp, Header::Udp, Header::Icmp6];
        let (none, join) = (self.builder.block(), self.builder.block());
        let checks = HEADERS.map(|_| self.builder.block());
        let key_of = |header: Header| header.number().unwrap_or(0).into();
        let cases = HEADERS
            .iter()
            .zip(checks)
            .map(|(header, check)| Case { key: key_of(*header), to: Target::to(check) });
        self.switch(transport.protocol, cases.collect(), none);
        for (header, check) in HEADERS.into_iter().zip(checks) {
            let present = self.builder.block();
            self.builder.switch_to(check);
            self.if_captured(Some(transport.start), header.len_min(), present, none);
            self.arm(present, join, |headers| headers.transport_fields(Some(header), transport));
        }
        self.arm(none, join, |headers| headers.transport_fields(None, transport));
        self.keep(Layer::Transport, join, &[]);
    }

    fn transport_fields(&mut self, header: Option<Header>, transport: Transport) -> Vec<Value> {
        let wants_data = self.items.iter().any(|item| matches!(item, Item::DataStart | Item::DataLength));
        let data = match header {
            Some(header) if wants_data => self.data_start(header, transport.start),
            _ => self.zero(),
        };
        let mut values = Vec::new();
        for item in self.items.iter().filter(|item| layer(**item) == Layer::Transport) {
            let value = match item {
                Item::DataStart => data,
                Item::DataLength if header.is_some() => self.data_len(data, transport.end),
                Item::DataLength => self.zero(),
                _ => self.item(*item, header, Place::from(transport.start, 0), Some(transport.start)),
            };
            values.push(value);
        }
        values
    }

    /// Where the data start; 0 for a TCP header that says it is shorter than it must be.
    fn data_start(&mut self, header: Header, start: Value) -> Value {
        if header != Header::Tcp {
            let eight = self.builder.const32(8);
            return self.builder.binary(Binary::Add, start, eight);
        }
        let offset = self.builder.load(Place::from(start, 12), Width::Byte);
        let header_len = self.nibble_times_4(offset, 4);
        let least = self.builder.const32(Header::Tcp.len_min());
        let is_whole = self.builder.compare(Test::GreaterEqual, header_len, least);
        let behind = self.builder.binary(Binary::Add, start, header_len);
        self.builder.binary(Binary::Mul, behind, is_whole)
    }

    /// Bytes from the data's start to the packet's end; 0 without a start or where the end comes first.
    fn data_len(&mut self, start: Value, end: Value) -> Value {
        let end = min(self.builder, end, self.length);
        let zero = self.zero();
        let has_start = self.builder.compare(Test::Greater, start, zero);
        let is_behind = self.builder.compare(Test::Greater, end, start);
        let len = self.builder.binary(Binary::Sub, end, start);
        let known = self.builder.binary(Binary::And, has_start, is_behind);
        self.builder.binary(Binary::Mul, len, known)
    }

    /// The values of a layer's fields where this header was found, or none.
    fn fill(&mut self, of: Layer, header: Option<Header>, start: Place, base: Option<Value>) -> Vec<Value> {
        let items: Vec<Item> = self.items.iter().copied().filter(|item| layer(*item) == of).collect();
        items.into_iter().map(|item| self.item(item, header, start, base)).collect()
    }

    /// A field's value where this header was found.
    fn item(&mut self, item: Item, header: Option<Header>, start: Place, base: Option<Value>) -> Value {
        match item {
            Item::Present(wanted) => self.builder.const32((Some(wanted) == header).into()),
            Item::Start(wanted) if Some(wanted) == header => match base {
                Some(base) => base,
                None => self.zero(),
            },
            Item::Bits { header: wanted, offset, width, shift, bits, scale } if Some(wanted) == header => {
                let value = self.builder.load(Place { offset: start.offset + offset, ..start }, width);
                self.bits(value, width, shift, bits, scale)
            }
            _ => self.builder.push(Op::Const(0), item_type(item)),
        }
    }

    fn bits(&mut self, mut value: Value, width: Width, shift: u32, bits: u32, scale: u32) -> Value {
        let ty = width.ty();
        let constant = |builder: &mut Builder, value: u64| builder.push(Op::Const(value), ty);
        if shift > 0 {
            let shift = constant(self.builder, shift.into());
            value = self.builder.binary(Binary::Shr, value, shift);
        }
        if bits + shift < width.bytes() * 8 {
            let mask = constant(self.builder, u64::MAX >> (64 - bits));
            value = self.builder.binary(Binary::And, value, mask);
        }
        if scale > 1 {
            let scale = constant(self.builder, scale.into());
            value = self.builder.binary(Binary::Mul, value, scale);
        }
        value
    }

    /// Goes on at a block where ways meet: first the fields of a layer, then values of other types.
    fn keep(&mut self, of: Layer, join: BlockId, others: &[Type]) -> Vec<Value> {
        let numbers: Vec<usize> =
            (0..self.items.len()).filter(|number| layer(self.items[*number]) == of).collect();
        let types = numbers.iter().map(|number| item_type(self.items[*number])).chain(others.iter().copied());
        let types: Vec<Type> = types.collect();
        let values = self.arrive(join, &types);
        for (number, value) in numbers.iter().zip(&values) {
            self.found[*number] = Some(*value);
        }
        values[numbers.len()..].to_vec()
    }
}

fn item_type(item: Item) -> Type {
    match item {
        Item::Bits { width: Width::Double, .. } => Type::U64,
        _ => Type::U32,
    }
}
