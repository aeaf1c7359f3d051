//! The values of the fields that a program names, each loaded where its first reader is.
//!
//! ```text
//! fields of one layer, wanted at one place:
//!     switch what was found { IPv4: load, load, ...; IPv6: load, ...; else: 0, 0, ... }   all paths join, with a value for each
//! ```
//!
//! So a field costs one load per packet however often it is named, and never ends the program; a packet without its
//! header costs none.

use super::headers::{Network, Transport};
use super::{Headers, min};
use crate::field::{Header, Item};
use tapline_ir::{Binary, BlockId, Builder, Comparison, Op, PacketOffset, Type, Value, Width};

/// The layer at which a field becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Ethernet,
    /// With the link layer's step.
    Vlan,
    /// With the link layer's step.
    Link,
    Network,
    /// The result of the transport step.
    Carried,
    Transport,
}

/// A set of fields, by their numbers, and of steps.
pub(super) type Wanted = u128;

/// The link layer's step.
const LINK: Wanted = 1 << 124;
/// The network header's step, with those before it.
const NETWORK: Wanted = 1 << 125 | LINK;
/// The protocol that the network header carries.
const TRANSPORT: Wanted = 1 << 126 | NETWORK;
/// The transport header.
const PORTS: Wanted = 1 << 127 | TRANSPORT;
/// Numbers of fields are less.
const NUMBERS_END: usize = 124;

/// The facts known of the packet at a place in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownHeaders {
    pub(super) network: Option<Network>,
    pub(super) kind: Option<Value>,
    pub(super) transport: Option<Transport>,
    pub(super) ports: Option<Value>,
    /// By number in [`crate::tree::Code::fields`].
    pub(super) fields: Vec<Option<Value>>,
}

impl KnownHeaders {
    pub(super) fn nothing(fields: usize) -> KnownHeaders {
        debug_assert!(fields <= NUMBERS_END);
        KnownHeaders { network: None, kind: None, transport: None, ports: None, fields: vec![None; fields] }
    }

    /// The facts that hold on both of two paths, which parted here or later.
    pub(super) fn meet(mut self, other: &KnownHeaders) -> KnownHeaders {
        self.network = self.network.filter(|known| other.network.as_ref() == Some(known));
        self.kind = self.kind.filter(|known| other.kind.as_ref() == Some(known));
        self.transport = self.transport.filter(|known| other.transport.as_ref() == Some(known));
        self.ports = self.ports.filter(|known| other.ports.as_ref() == Some(known));
        for (mine, theirs) in self.fields.iter_mut().zip(&other.fields) {
            *mine = mine.filter(|known| theirs.as_ref() == Some(known));
        }
        self
    }
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
        Item::IpVersion => Layer::Network,
        Item::Protocol | Item::TransportStart | Item::Fragment => Layer::Carried,
        Item::DataStart | Item::DataLength => Layer::Transport,
    }
}

/// A field, and the steps that lead to it.
pub(super) fn wanted(number: usize, item: Item) -> Wanted {
    let steps = match layer(item) {
        Layer::Ethernet => 0,
        Layer::Vlan | Layer::Link => LINK,
        Layer::Network => NETWORK,
        Layer::Carried => TRANSPORT,
        Layer::Transport => PORTS,
    };
    steps | 1 << number.min(NUMBERS_END)
}

/// The headers whose presence decides the value of a field.
fn headers_of(item: Item) -> &'static [Header] {
    use Header::{Arp, Ethernet, Icmp, Icmp6, Ip, Ip6, Tcp, Udp, Vlan};
    match item {
        Item::Bits { header, .. } | Item::Present(header) | Item::Start(header) => match header {
            Ethernet => &[Ethernet],
            Vlan => &[Vlan],
            Arp => &[Arp],
            Ip => &[Ip],
            Ip6 => &[Ip6],
            Tcp => &[Tcp, Ip, Ip6],
            Udp => &[Udp, Ip, Ip6],
            Icmp => &[Icmp, Ip, Ip6],
            Icmp6 => &[Icmp6, Ip, Ip6],
        },
        Item::EtherType => &[],
        Item::IpVersion | Item::Protocol | Item::TransportStart | Item::Fragment => &[Ip, Ip6],
        Item::DataStart | Item::DataLength => &[Icmp, Tcp, Udp, Icmp6, Ip, Ip6],
    }
}

impl Headers<'_> {
    /// Goes the steps and loads the fields that are wanted and not known yet.
    pub(super) fn find(&mut self, wanted: Wanted) {
        let wants = |step: Wanted| wanted & step == step;
        if wants(LINK) && self.found.network.is_none() {
            self.found.network = Some(self.link());
        }
        if let Some(network) = self.found.network.filter(|_| wants(NETWORK) && self.found.kind.is_none()) {
            let headers = self.ever_wanted(&[Header::Ip, Header::Arp, Header::Ip6]);
            self.found.kind = Some(self.network(network, &headers));
        }
        if let (Some(network), Some(kind)) = (self.found.network, self.found.kind) {
            if wants(TRANSPORT) && self.found.transport.is_none() {
                self.found.transport = Some(self.transport(kind, network.start));
            }
            if let Some(transport) =
                self.found.transport.filter(|_| wants(PORTS) && self.found.ports.is_none())
            {
                let headers = self.ever_wanted(&[Header::Icmp, Header::Tcp, Header::Udp, Header::Icmp6]);
                self.found.ports = Some(self.ports(transport, &headers));
            }
        }
        self.load(wanted);
    }

    /// The headers for which a field of the program asks.
    fn ever_wanted(&self, of: &[Header]) -> Vec<Header> {
        let is_wanted = |header: &&Header| self.items.iter().any(|item| headers_of(*item).contains(header));
        of.iter().filter(is_wanted).copied().collect()
    }

    fn load(&mut self, wanted: Wanted) {
        let missing = |headers: &Self, of: Layer| -> Vec<usize> {
            let is_missing = |number: &usize| {
                wanted & 1 << number != 0
                    && headers.found.fields[*number].is_none()
                    && layer(headers.items[*number]) == of
            };
            (0..headers.items.len()).filter(is_missing).collect()
        };
        let numbers = missing(self, Layer::Ethernet);
        self.ethernet(&numbers);
        if let (Some(network), Some(kind)) = (self.found.network, self.found.kind) {
            let numbers = missing(self, Layer::Network);
            self.by_kind(kind, &numbers, |headers, item, header| {
                headers.item(item, header, PacketOffset::from(network.start, 0), Some(network.start))
            });
        }
        if let Some(transport) = self.found.transport {
            for number in missing(self, Layer::Carried) {
                self.found.fields[number] = Some(self.carried(self.items[number], transport));
            }
        }
        if let (Some(transport), Some(ports)) = (self.found.transport, self.found.ports) {
            let numbers = missing(self, Layer::Transport);
            let end = self.end_if_wanted(&numbers);
            self.by_kind(ports, &numbers, |headers, item, header| {
                headers.transport_item(item, header, transport, end)
            });
        }
    }

    fn ethernet(&mut self, numbers: &[usize]) {
        if numbers.is_empty() {
            return;
        }
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        self.if_captured(None, Header::Ethernet.len_min(), yes, no);
        let items = self.of_numbers(numbers);
        for (block, header) in [(yes, self.link_type.is_ethernet.then_some(Header::Ethernet)), (no, None)] {
            self.arm(block, join, |headers| {
                items.iter().map(|item| headers.item(*item, header, PacketOffset::at(0), None)).collect()
            });
        }
        self.keep(numbers, join);
    }

    /// Loads fields of a layer whose header `kind` selects.
    fn by_kind(
        &mut self,
        kind: Value,
        numbers: &[usize],
        value: impl Fn(&mut Self, Item, Option<Header>) -> Value,
    ) {
        if numbers.is_empty() {
            return;
        }
        let items = self.of_numbers(numbers);
        let mut headers: Vec<Header> = items.iter().flat_map(|item| headers_of(*item)).copied().collect();
        headers.retain(|header| items.iter().any(|item| layer(*item) == layer(Item::Present(*header))));
        headers.sort_unstable();
        headers.dedup();
        let (none, join) = (self.builder.block(), self.builder.block());
        for (header, block) in self.by_header(kind, &headers, none) {
            self.arm(block, join, |this| items.iter().map(|item| value(this, *item, Some(header))).collect());
        }
        self.arm(none, join, |this| items.iter().map(|item| value(this, *item, None)).collect());
        self.keep(numbers, join);
    }

    fn of_numbers(&self, numbers: &[usize]) -> Vec<Item> {
        numbers.iter().map(|number| self.items[*number]).collect()
    }

    /// Goes on at a block where paths join, each with the values of these fields.
    fn keep(&mut self, numbers: &[usize], join: BlockId) {
        let types: Vec<Type> = numbers.iter().map(|number| item_type(self.items[*number])).collect();
        let values = self.arrive(join, &types);
        for (number, value) in numbers.iter().zip(values) {
            self.found.fields[*number] = Some(value);
        }
    }

    fn carried(&mut self, item: Item, transport: Transport) -> Value {
        match item {
            Item::Protocol => transport.protocol,
            Item::Fragment => transport.is_fragment,
            // Protocol 0 is none.
            _ => {
                let zero = self.zero();
                let is_named = self.builder.compare(Comparison::Greater, transport.protocol, zero);
                self.builder.binary(Binary::Mul, transport.start, is_named)
            }
        }
    }

    fn transport_item(
        &mut self,
        item: Item,
        header: Option<Header>,
        transport: Transport,
        end: Option<Value>,
    ) -> Value {
        match (item, header) {
            (Item::DataStart, Some(header)) => self.data_start(header, transport.start),
            (Item::DataLength, Some(header)) => {
                let start = self.data_start(header, transport.start);
                let end = end.unwrap_or(self.captured);
                self.data_len(start, end)
            }
            (Item::DataStart | Item::DataLength, None) => self.zero(),
            _ => self.item(item, header, PacketOffset::from(transport.start, 0), Some(transport.start)),
        }
    }

    /// The end of the IP packet, if one of the fields depends on it.
    fn end_if_wanted(&mut self, numbers: &[usize]) -> Option<Value> {
        let is_wanted = numbers.iter().any(|number| self.items[*number] == Item::DataLength);
        let (network, kind) = (self.found.network?, self.found.kind.filter(|_| is_wanted)?);
        let (none, join) = (self.builder.block(), self.builder.block());
        for (header, block) in self.by_header(kind, &[Header::Ip, Header::Ip6], none) {
            let (field_at, more) = if header == Header::Ip { (2, 0) } else { (4, Header::Ip6.len_min()) };
            self.arm(block, join, |headers| vec![headers.end_of(network.start, field_at, more)]);
        }
        self.arm(none, join, |headers| vec![headers.zero()]);
        Some(self.arrive(join, &[Type::U32])[0])
    }

    /// Sets the fields of a layer that this link type does not have to 0.
    pub(super) fn absent(&mut self, of: Layer) {
        for (number, item) in self.items.iter().enumerate() {
            if layer(*item) == of {
                self.found.fields[number] = Some(self.builder.push(Op::Const(0), item_type(*item)));
            }
        }
    }

    /// The values of a layer's fields where this header was found, or none.
    pub(super) fn fill(
        &mut self,
        of: Layer,
        header: Option<Header>,
        start: PacketOffset,
        base: Option<Value>,
    ) -> Vec<Value> {
        let items: Vec<Item> = self.items.iter().copied().filter(|item| layer(*item) == of).collect();
        items.into_iter().map(|item| self.item(item, header, start, base)).collect()
    }

    /// Goes on at a block where paths join: first the fields of a layer, then values of other types.
    pub(super) fn keep_layer(&mut self, of: Layer, join: BlockId, others: &[Type]) -> Vec<Value> {
        let numbers: Vec<usize> =
            (0..self.items.len()).filter(|number| layer(self.items[*number]) == of).collect();
        self.keep(&numbers, join);
        others.iter().map(|ty| self.builder.parameter(join, *ty)).collect()
    }

    /// The start of the data; 0 for a TCP header with a length below the least.
    fn data_start(&mut self, header: Header, start: Value) -> Value {
        if header != Header::Tcp {
            let eight = self.builder.const32(8);
            return self.builder.binary(Binary::Add, start, eight);
        }
        let offset = self.builder.load(PacketOffset::from(start, 12), Width::Byte);
        let header_len = self.nibble_times_4(offset, 4);
        let least = self.builder.const32(Header::Tcp.len_min());
        let is_whole = self.builder.compare(Comparison::GreaterEqual, header_len, least);
        let behind = self.builder.binary(Binary::Add, start, header_len);
        self.builder.binary(Binary::Mul, behind, is_whole)
    }

    /// Bytes from the data's start to the packet's end; 0 without a start or where the end comes first.
    fn data_len(&mut self, start: Value, end: Value) -> Value {
        let end = min(self.builder, end, self.length);
        let zero = self.zero();
        let has_start = self.builder.compare(Comparison::Greater, start, zero);
        let is_behind = self.builder.compare(Comparison::Greater, end, start);
        let len = self.builder.binary(Binary::Sub, end, start);
        let known = self.builder.binary(Binary::And, has_start, is_behind);
        self.builder.binary(Binary::Mul, len, known)
    }

    /// A field's value where this header was found.
    fn item(
        &mut self,
        item: Item,
        header: Option<Header>,
        start: PacketOffset,
        base: Option<Value>,
    ) -> Value {
        match item {
            Item::Present(wanted) => self.builder.const32((Some(wanted) == header).into()),
            Item::Start(wanted) if Some(wanted) == header => match base {
                Some(base) => base,
                None => self.zero(),
            },
            Item::Bits { header: wanted, offset, width, shift, bits, scale } if Some(wanted) == header => {
                let value = self.builder.load(PacketOffset { offset: start.offset + offset, ..start }, width);
                self.bits(value, width, shift, bits, scale)
            }
            Item::IpVersion => {
                let version = match header {
                    Some(Header::Ip) => 4,
                    Some(Header::Ip6) => 6,
                    _ => 0,
                };
                self.builder.const32(version)
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
}

fn item_type(item: Item) -> Type {
    match item {
        Item::Bits { width: Width::Double, .. } => Type::U64,
        _ => Type::U32,
    }
}
