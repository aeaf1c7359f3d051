//! Options on headers, sizes and flows.

use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6, TCP};

use crate::conversation::{Conversation, Direction, FlowBit, FlowBitChange, FlowBitNames};
use crate::number::{Comparison, number};
use crate::options::parts;

/// The packet, and the flow that it belongs to, as conditions see them.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'p> {
    pub(crate) data: &'p [u8],
    pub(crate) headers: &'p Headers,
    pub(crate) payload_len: usize,
    /// The flow, and the part of the packet's sender in it.
    pub(crate) flow: Option<(&'p Conversation, Direction)>,
    /// The payload is a piece of a stream.
    pub(crate) is_stream: bool,
}

/// A condition on a packet.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    PayloadLen(Comparison),
    Field(Field, Comparison),
    TcpFlags { set: u8, ignored: u8, mode: FlagMode },
    FragmentBits { set: u8, mode: FlagMode },
    SameAddresses,
    Direction(Direction),
    IsEstablished(bool),
    IsStream(bool),
    FlowBit { bit: FlowBit, is_set: bool },
}

/// A number in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    IcmpType,
    IcmpCode,
    IcmpId,
    IcmpSequence,
    Ttl,
    TypeOfService,
    Identification,
    FragmentOffset,
    Protocol,
    TcpSequence,
    TcpAcknowledgement,
    TcpWindow,
}

/// The way of comparing bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagMode {
    /// Exactly the given bits.
    Exact,
    /// At least the given bits.
    All,
    /// At least one of these.
    Any,
    /// None of these.
    None,
}

impl FlagMode {
    fn holds(self, bits: u8, set: u8) -> bool {
        match self {
            FlagMode::Exact => bits == set,
            FlagMode::All => bits & set == set,
            FlagMode::Any => bits & set != 0,
            FlagMode::None => bits & set == 0,
        }
    }
}

/// The fields that options compare, by name, with their greatest number.
const FIELDS: [(&str, Field, u64); 12] = [
    ("itype", Field::IcmpType, 255),
    ("icode", Field::IcmpCode, 255),
    ("icmp_id", Field::IcmpId, 65_535),
    ("icmp_seq", Field::IcmpSequence, 65_535),
    ("ttl", Field::Ttl, 255),
    ("tos", Field::TypeOfService, 255),
    ("id", Field::Identification, 65_535),
    ("fragoffset", Field::FragmentOffset, 8191),
    ("ip_proto", Field::Protocol, 255),
    ("seq", Field::TcpSequence, u32::MAX as u64),
    ("ack", Field::TcpAcknowledgement, u32::MAX as u64),
    ("window", Field::TcpWindow, 65_535),
];

const TCP_FLAGS: [(char, u8); 12] = [
    ('F', 0x01),
    ('S', 0x02),
    ('R', 0x04),
    ('P', 0x08),
    ('A', 0x10),
    ('U', 0x20),
    ('E', 0x40),
    ('2', 0x40),
    ('C', 0x80),
    ('1', 0x80),
    ('0', 0),
    // Snort's manual writes a dot for none in masks.
    ('.', 0),
];

/// The three bits before the offset of a fragment.
const FRAGMENT_BITS: [(char, u8); 3] = [('M', 1), ('D', 2), ('R', 4)];

/// Reads an option; `None` if it is not a condition. `flow` may be several.
pub(crate) fn parse(name: &str, value: &str) -> Result<Option<Vec<Condition>>, String> {
    if let Some((_, field, max)) = FIELDS.iter().find(|(known, ..)| *known == name) {
        return field_condition(*field, value, *max).map(|condition| Some(vec![condition]));
    }
    let one = match name {
        "dsize" => Condition::PayloadLen(Comparison::parse(value, 65_535)?),
        "flags" => tcp_flags(value)?,
        "fragbits" => {
            let (set, mode) = bits(value, &FRAGMENT_BITS)?;
            Condition::FragmentBits { set, mode }
        }
        "sameip" => Condition::SameAddresses,
        "flow" => return flow(value).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(vec![one]))
}

fn field_condition(field: Field, value: &str, max: u64) -> Result<Condition, String> {
    let by_name = match value.to_ascii_lowercase().as_str() {
        "icmp" => Some(1),
        "igmp" => Some(2),
        "tcp" => Some(6),
        "udp" => Some(17),
        _ => None,
    };
    if let Some(number) = by_name.filter(|_| field == Field::Protocol) {
        return Ok(Condition::Field(field, Comparison::Within(number, number)));
    }
    Ok(Condition::Field(field, Comparison::parse(value, max)?))
}

fn tcp_flags(value: &str) -> Result<Condition, String> {
    let (wanted, ignored) = value.split_once(',').unwrap_or((value, ""));
    let (set, mode) = bits(wanted, &TCP_FLAGS)?;
    let ignored = if ignored.trim().is_empty() { 0 } else { bits(ignored, &TCP_FLAGS)?.0 };
    Ok(Condition::TcpFlags { set, ignored, mode })
}

/// Letters with one of `+`, `*`, `!` before or behind them.
fn bits(text: &str, letters: &[(char, u8)]) -> Result<(u8, FlagMode), String> {
    let (mut set, mut mode) = (0, FlagMode::Exact);
    for letter in text.trim().chars() {
        match letter {
            '+' => mode = FlagMode::All,
            '*' => mode = FlagMode::Any,
            '!' => mode = FlagMode::None,
            letter => {
                let known = letters.iter().find(|(known, _)| known.eq_ignore_ascii_case(&letter));
                set |= known.ok_or_else(|| format!("`{letter}` in `{text}` is not a flag"))?.1;
            }
        }
    }
    if text.trim().is_empty() { Err("no flag is given".to_owned()) } else { Ok((set, mode)) }
}

fn flow(value: &str) -> Result<Vec<Condition>, String> {
    let mut all = Vec::new();
    for word in parts(value) {
        all.push(match word {
            "to_server" | "from_client" => Condition::Direction(Direction::ToServer),
            "to_client" | "from_server" => Condition::Direction(Direction::ToClient),
            "established" => Condition::IsEstablished(true),
            "not_established" => Condition::IsEstablished(false),
            "no_stream" => Condition::IsStream(false),
            "only_stream" => Condition::IsStream(true),
            "stateless" => continue,
            other => return Err(format!("flow has no word `{other}`")),
        });
    }
    Ok(all)
}

/// The meaning of `flowbits`: a condition, a change, or that nothing is reported.
pub(crate) enum FlowBits {
    Ask(Condition),
    Change(FlowBit, FlowBitChange),
    NoAlert,
}

/// Reads `flowbits: set, name`.
pub(crate) fn flow_bits(value: &str, names: &mut FlowBitNames) -> Result<FlowBits, String> {
    let all = parts(value);
    let name = || match all.as_slice() {
        [_, name] if !name.is_empty() && !name.contains(['&', '|']) => Ok(*name),
        _ => Err(format!("flowbits `{value}` is supported with one name")),
    };
    Ok(match all[0] {
        "noalert" => FlowBits::NoAlert,
        "set" => FlowBits::Change(names.of(name()?)?, FlowBitChange::Set),
        "unset" => FlowBits::Change(names.of(name()?)?, FlowBitChange::Unset),
        "toggle" => FlowBits::Change(names.of(name()?)?, FlowBitChange::Toggle),
        "isset" => FlowBits::Ask(Condition::FlowBit { bit: names.of(name()?)?, is_set: true }),
        "isnotset" => FlowBits::Ask(Condition::FlowBit { bit: names.of(name()?)?, is_set: false }),
        other => return Err(format!("flowbits has no word `{other}`")),
    })
}

/// `N`, `!N`, with `relative` behind a comma: see `isdataat`.
pub(crate) fn is_data_at(value: &str) -> Result<(i64, bool, bool), String> {
    let all = parts(value);
    let (is_negated, digits) = match all[0].strip_prefix('!') {
        Some(digits) => (true, digits),
        None => (false, all[0]),
    };
    let count = number(digits, 65_535)? as i64;
    let mut is_relative = false;
    for setting in &all[1..] {
        match *setting {
            "relative" => is_relative = true,
            "rawbytes" => {}
            other => return Err(format!("isdataat has no setting `{other}`")),
        }
    }
    Ok((count, is_relative, is_negated))
}

impl Condition {
    /// The condition looks at the state of the flow.
    pub(crate) fn needs_flow(&self) -> bool {
        matches!(self, Condition::Direction(_) | Condition::IsEstablished(_) | Condition::FlowBit { .. })
    }

    /// Whether it holds. A field that a packet does not have fits nothing.
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        match self {
            Condition::PayloadLen(comparison) => {
                !facts.is_stream && comparison.holds(facts.payload_len as u64)
            }
            Condition::Field(field, comparison) => {
                facts.field(*field).is_some_and(|number| comparison.holds(number))
            }
            Condition::TcpFlags { set, ignored, mode } => {
                facts.tcp(13).is_some_and(|[flags]: [u8; 1]| mode.holds(flags & !ignored, *set))
            }
            Condition::FragmentBits { set, mode } => {
                facts.fragment_bits().is_some_and(|bits| mode.holds(bits, *set))
            }
            Condition::SameAddresses => {
                facts.headers.addresses(facts.data).is_some_and(|(source, destination)| source == destination)
            }
            Condition::Direction(wanted) => facts.flow.is_some_and(|(_, direction)| direction == *wanted),
            Condition::IsEstablished(wanted) => {
                facts.flow.is_some_and(|(flow, _)| flow.is_established() == *wanted)
            }
            Condition::IsStream(wanted) => facts.is_stream == *wanted,
            Condition::FlowBit { bit, is_set } => {
                facts.flow.is_some_and(|(flow, _)| flow.has(*bit) == *is_set)
            }
        }
    }
}

impl Facts<'_> {
    fn field(&self, field: Field) -> Option<u64> {
        Some(match field {
            Field::IcmpType => self.icmp::<1>(0)?[0].into(),
            Field::IcmpCode => self.icmp::<1>(1)?[0].into(),
            Field::IcmpId => u16::from_be_bytes(self.icmp(4)?).into(),
            Field::IcmpSequence => u16::from_be_bytes(self.icmp(6)?).into(),
            Field::Ttl => match self.headers.ip()? {
                IpVersion::V4 => self.ip::<1>(8)?[0].into(),
                IpVersion::V6 => self.ip::<1>(7)?[0].into(),
            },
            Field::TypeOfService => match self.headers.ip()? {
                IpVersion::V4 => self.ip::<1>(1)?[0].into(),
                IpVersion::V6 => u64::from(u16::from_be_bytes(self.ip(0)?) >> 4 & 0xff),
            },
            Field::Identification => u16::from_be_bytes(self.ip_v4(4)?).into(),
            Field::FragmentOffset => (u16::from_be_bytes(self.ip_v4(6)?) & 0x1fff).into(),
            Field::Protocol => self.headers.protocol()?.into(),
            Field::TcpSequence => u32::from_be_bytes(self.tcp(4)?).into(),
            Field::TcpAcknowledgement => u32::from_be_bytes(self.tcp(8)?).into(),
            Field::TcpWindow => u16::from_be_bytes(self.tcp(14)?).into(),
        })
    }

    fn fragment_bits(&self) -> Option<u8> {
        self.ip_v4::<1>(6).map(|[byte]| byte >> 5)
    }

    fn ip_v4<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if self.headers.ip()? == IpVersion::V4 { self.ip(offset) } else { None }
    }

    fn ip<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        read(self.data, self.headers.l3()?, offset)
    }

    fn tcp<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if self.headers.protocol()? == TCP { read(self.data, self.headers.l4()?, offset) } else { None }
    }

    fn icmp<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let is_icmp = matches!(self.headers.protocol()?, ICMP | ICMPV6);
        if is_icmp { read(self.data, self.headers.l4()?, offset) } else { None }
    }
}

fn read<const N: usize>(data: &[u8], base: usize, offset: usize) -> Option<[u8; N]> {
    let start = base.checked_add(offset)?;
    data.get(start..start.checked_add(N)?)?.try_into().ok()
}
