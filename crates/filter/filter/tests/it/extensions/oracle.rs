//! Whether a tree holds for an Ethernet frame: a walk along the packet that reads only the needed bytes.
//!
//! A read outside of the frame is an error that ends the walk: the frame is rejected, as the language has it.

use tapline_testkit::forms::{Kind, Tree, Which};

/// The modes in which the whole text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) scoped: bool,
    pub(crate) extensions: bool,
}

/// The frame ended too early.
struct Cut;

type Walk<T> = Result<T, Cut>;

/// Offsets of a packet's parts.
#[derive(Clone, Copy)]
struct View {
    /// The Ethernet header, if there is one.
    ethernet: Option<usize>,
    ether_type: EtherType,
    payload: usize,
}

#[derive(Clone, Copy)]
enum EtherType {
    /// In the two bytes before the payload.
    Written,
    /// Known: from a tunnel's header, or read when the tunnel was.
    Known(u16),
}

/// The payload of an IP packet.
struct Transport {
    protocol: u8,
    start: usize,
    /// Offset in the packet, and whether more fragments follow.
    fragment: (u16, bool),
}

pub(crate) fn holds(tree: &Tree, frame: &[u8], modes: Modes) -> bool {
    let view = View { ethernet: Some(0), ether_type: EtherType::Written, payload: 14 };
    let walker = Walker { frame, modes };
    walker.tree(tree, view).is_ok_and(|(holds, _)| holds)
}

#[derive(Clone, Copy)]
struct Walker<'a> {
    frame: &'a [u8],
    modes: Modes,
}

impl Walker<'_> {
    fn u8(&self, at: usize) -> Walk<u8> {
        self.frame.get(at).copied().ok_or(Cut)
    }

    fn u16(&self, at: usize) -> Walk<u16> {
        match self.frame.get(at..at + 2) {
            Some(&[a, b]) => Ok(u16::from_be_bytes([a, b])),
            _ => Err(Cut),
        }
    }

    fn u32(&self, at: usize) -> Walk<u32> {
        Ok(u32::from(self.u16(at)?) << 16 | u32::from(self.u16(at + 2)?))
    }

    /// Whether it holds, and what the part after an `and` looks at.
    fn tree(&self, tree: &Tree, view: View) -> Walk<(bool, View)> {
        Ok(match tree {
            Tree::And(parts) => return self.all(parts, view),
            Tree::Or(parts) => {
                for part in parts {
                    if self.tree(part, view)?.0 {
                        return Ok((true, view));
                    }
                }
                (false, view)
            }
            Tree::Mixed(first, rest) => {
                let (mut holds, mut next) = self.tree(first, view)?;
                let mut only_and = true;
                for (or, part) in rest {
                    only_and &= !or;
                    if !only_and {
                        next = view;
                    }
                    if holds != *or {
                        (holds, next) = self.tree(part, next)?;
                    }
                }
                (holds, if only_and { next } else { view })
            }
            Tree::Not(inner) => (!self.tree(inner, view)?.0, view),
            Tree::Group(inner) => (self.tree(inner, view)?.0, view),
            Tree::Vlan(id) => {
                let tag = is_tag(self.ether_type(view)?);
                let found = tag && self.is_in_vlan(*id, view)?;
                (found, View { ether_type: EtherType::Written, payload: view.payload + 4, ..view })
            }
            Tree::Scoped(inner) => {
                let modes = Modes { scoped: true, ..self.modes };
                (Walker { modes, ..*self }.tree(inner, view)?.0, view)
            }
            Tree::Extensions(inner) => {
                let modes = Modes { extensions: true, ..self.modes };
                (Walker { modes, ..*self }.tree(inner, view)?.0, view)
            }
            Tree::AnyVlan(inner) => {
                let inside = self.over_tags(view)?;
                (self.tree(inner, inside)?.0, view)
            }
            Tree::Inner(kind, id, inner) => {
                let holds = match self.tunnel(*kind, *id, view)? {
                    Some(inside) => self.tree(inner, inside)?.0,
                    None => false,
                };
                (holds, view)
            }
            leaf => (self.leaf(leaf, view)?, view),
        })
    }

    fn all(&self, parts: &[Tree], view: View) -> Walk<(bool, View)> {
        let mut now = view;
        for part in parts {
            let (holds, next) = self.tree(part, now)?;
            if !holds {
                return Ok((false, view));
            }
            now = next;
        }
        Ok((true, now))
    }

    fn leaf(&self, tree: &Tree, view: View) -> Walk<bool> {
        let ether_type = |wanted| Ok::<bool, Cut>(self.ether_type(view)? == wanted);
        Ok(match *tree {
            Tree::Ip => ether_type(0x0800)?,
            Tree::Ip6 => ether_type(0x86dd)?,
            Tree::Arp => ether_type(0x0806)?,
            Tree::EtherHost(last) => match view.ethernet {
                None => false,
                Some(at) => self.is_mac(at + 6, last)? || self.is_mac(at, last)?,
            },
            Tree::IpHost(address) => {
                let at = view.payload;
                ether_type(0x0800)? && (self.u32(at + 12)? == address || self.u32(at + 16)? == address)
            }
            Tree::Protocol(protocol) => self.carries(protocol, view)?,
            Tree::Port(protocol, port) => match self.header(view)? {
                Some((found, at)) if protocol.map_or(matches!(found, 6 | 17 | 132), |p| p == found) => {
                    self.u16(at)? == port || self.u16(at + 2)? == port
                }
                _ => false,
            },
            Tree::Byte(protocol, offset, mask) => match self.header_of(protocol, view)? {
                Some(at) => self.u8(at + offset)? & mask != 0,
                None => false,
            },
            Tree::Fragment(which) => {
                let fragment = self.transport(view)?.map_or((0, false), |found| found.fragment);
                match which {
                    Which::Any => fragment != (0, false),
                    Which::First => fragment == (0, true),
                    Which::Later => fragment.0 != 0,
                }
            }
            _ => unreachable!("handled above"),
        })
    }

    fn is_in_vlan(&self, id: Option<u16>, view: View) -> Walk<bool> {
        id.map_or(Ok(true), |id| Ok(self.u16(view.payload)? & 0xfff == id))
    }

    fn is_mac(&self, at: usize, last: u8) -> Walk<bool> {
        // From the end, in words, as the language reads them.
        Ok(self.u32(at + 2)? == u32::from(last) && self.u16(at)? == 0x0200)
    }

    fn ether_type(&self, view: View) -> Walk<u16> {
        match view.ether_type {
            EtherType::Written => self.u16(view.payload - 2),
            EtherType::Known(known) => Ok(known),
        }
    }

    fn over_tags(&self, view: View) -> Walk<View> {
        let mut view = view;
        for _ in 0..2 {
            if !is_tag(self.ether_type(view)?) {
                break;
            }
            view.payload += 4;
            if let EtherType::Known(_) = view.ether_type {
                view.ether_type = EtherType::Known(self.u16(view.payload - 2)?);
            }
        }
        Ok(view)
    }

    /// `tcp` and its like.
    fn carries(&self, protocol: u8, view: View) -> Walk<bool> {
        if self.modes.extensions {
            let of_ip = protocol != 58 || self.ether_type(view)? == 0x86dd;
            // The chain is followed before anything is asked.
            return Ok(self.transport(view)?.is_some_and(|found| found.protocol == protocol) && of_ip);
        }
        let at = view.payload;
        Ok(match self.ether_type(view)? {
            0x0800 if protocol != 58 => self.u8(at + 9)? == protocol,
            0x86dd => {
                let next = self.u8(at + 6)?;
                next == protocol || next == 44 && self.u8(at + 40)? == protocol
            }
            _ => false,
        })
    }

    /// Protocol and place of a transport header, for ports.
    fn header(&self, view: View) -> Walk<Option<(u8, usize)>> {
        if self.modes.extensions {
            let whole = self.transport(view)?.filter(|found| found.fragment.0 == 0);
            return Ok(whole.map(|found| (found.protocol, found.start)));
        }
        let at = view.payload;
        Ok(match self.ether_type(view)? {
            0x86dd => Some((self.u8(at + 6)?, at + 40)),
            0x0800 => {
                let protocol = self.u8(at + 9)?;
                match matches!(protocol, 6 | 17 | 132) && self.u16(at + 6)? & 0x1fff == 0 {
                    true => Some((protocol, at + self.ipv4_len(at)?)),
                    false => None,
                }
            }
            _ => None,
        })
    }

    /// The place of one protocol's header, for `tcp[...]`.
    fn header_of(&self, protocol: u8, view: View) -> Walk<Option<usize>> {
        if self.modes.extensions {
            let found = self.transport(view)?;
            let of_ip = protocol != 58 || self.ether_type(view)? == 0x86dd;
            let whole = found.filter(|found| of_ip && found.protocol == protocol && found.fragment.0 == 0);
            return Ok(whole.map(|found| found.start));
        }
        let at = view.payload;
        Ok(match self.ether_type(view)? {
            0x86dd if protocol == 58 => (self.u8(at + 6)? == 58).then_some(at + 40),
            0x0800 if protocol != 58 && self.u8(at + 9)? == protocol => {
                match self.u16(at + 6)? & 0x1fff == 0 {
                    true => Some(at + self.ipv4_len(at)?),
                    false => None,
                }
            }
            _ => None,
        })
    }

    fn ipv4_len(&self, at: usize) -> Walk<usize> {
        Ok(usize::from(self.u8(at)? & 0xf) * 4)
    }

    /// The payload behind all headers of IP; `None` if the packet is not IP.
    fn transport(&self, view: View) -> Walk<Option<Transport>> {
        let at = view.payload;
        match self.ether_type(view)? {
            0x0800 => {
                let (protocol, flags) = (self.u8(at + 9)?, self.u16(at + 6)?);
                let start = at + self.ipv4_len(at)?;
                let fragment = (flags & 0x1fff, flags & 0x2000 != 0);
                Ok(Some(Transport { protocol, start, fragment }))
            }
            0x86dd => self.behind_extensions(at).map(Some),
            _ => Ok(None),
        }
    }

    fn behind_extensions(&self, at: usize) -> Walk<Transport> {
        let mut found = Transport { protocol: self.u8(at + 6)?, start: at + 40, fragment: (0, false) };
        for _ in 0..8 {
            let at = found.start;
            found.start += match found.protocol {
                0 | 43 | 60 => (usize::from(self.u8(at + 1)?) + 1) * 8,
                51 => (usize::from(self.u8(at + 1)?) + 2) * 4,
                44 => {
                    let word = self.u16(at + 2)?;
                    found.fragment = (word >> 3, word & 1 != 0);
                    8
                }
                _ => break,
            };
            found.protocol = self.u8(at)?;
            if found.fragment.0 != 0 {
                break;
            }
        }
        Ok(found)
    }

    fn tunnel(&self, kind: Option<Kind>, id: Option<u32>, view: View) -> Walk<Option<View>> {
        let Some(outer) = self.transport(view)? else { return Ok(None) };
        if outer.fragment.0 != 0 {
            return Ok(None);
        }
        let wanted = |this| kind.is_none_or(|kind| kind == this);
        let at = outer.start;
        match outer.protocol {
            4 if wanted(Kind::Ipip) => Ok(Some(packet(0x0800, at))),
            41 if wanted(Kind::Ipip) => Ok(Some(packet(0x86dd, at))),
            47 if wanted(Kind::Gre) || wanted(Kind::Erspan) => self.gre(at, wanted, id),
            17 if kind.is_none_or(|kind| matches!(kind, Kind::Vxlan | Kind::Geneve | Kind::Gtp)) => {
                match self.u16(at + 2)? {
                    4789 if wanted(Kind::Vxlan) => self.vxlan(at + 8, id),
                    6081 if wanted(Kind::Geneve) => self.geneve(at + 8, id),
                    2152 if wanted(Kind::Gtp) => self.gtp(at + 8, id),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    fn frame_at(&self, at: usize) -> Walk<Option<View>> {
        let ether_type = EtherType::Known(self.u16(at + 12)?);
        Ok(Some(View { ethernet: Some(at), ether_type, payload: at + 14 }))
    }

    fn gre(&self, at: usize, wanted: impl Fn(Kind) -> bool, id: Option<u32>) -> Walk<Option<View>> {
        let word = self.u32(at)?;
        let (flags, kind) = (word >> 16, word as u16);
        if flags & 0x4007 != 0 {
            return Ok(None);
        }
        let field = |flag: u32| if flags & flag != 0 { 4 } else { 0 };
        let end = at + 4 + field(0x8000) + field(0x2000) + field(0x1000);
        if matches!(kind, 0x88be | 0x22eb) {
            return if wanted(Kind::Erspan) {
                self.erspan(kind, flags & 0x1000 != 0, end, id)
            } else {
                Ok(None)
            };
        }
        if !wanted(Kind::Gre) {
            return Ok(None);
        }
        if let Some(id) = id
            && (flags & 0x2000 == 0 || self.u32(at + 4 + field(0x8000))? != id)
        {
            return Ok(None);
        }
        if kind == 0x6558 { self.frame_at(end) } else { Ok(Some(packet(kind, end))) }
    }

    fn erspan(&self, kind: u16, has_sequence: bool, at: usize, id: Option<u32>) -> Walk<Option<View>> {
        if kind == 0x88be && !has_sequence {
            return if id.is_none() { self.frame_at(at) } else { Ok(None) };
        }
        let version = if kind == 0x88be { 1 } else { 2 };
        if self.u8(at)? >> 4 != version {
            return Ok(None);
        }
        if let Some(id) = id
            && u32::from(self.u16(at + 2)? & 0x3ff) != id
        {
            return Ok(None);
        }
        if version == 1 {
            return self.frame_at(at + 8);
        }
        let frame_type = (self.u16(at + 10)? >> 10) & 0x1f;
        let end = at + if self.u8(at + 11)? & 1 != 0 { 20 } else { 12 };
        match frame_type {
            0 => self.frame_at(end),
            2 => self.packet_by_version(end),
            _ => Ok(None),
        }
    }

    fn packet_by_version(&self, at: usize) -> Walk<Option<View>> {
        Ok(match self.u8(at)? >> 4 {
            4 => Some(packet(0x0800, at)),
            6 => Some(packet(0x86dd, at)),
            _ => None,
        })
    }

    fn is_network(&self, at: usize, id: Option<u32>) -> Walk<bool> {
        id.map_or(Ok(true), |id| Ok(self.u32(at)? >> 8 == id))
    }

    fn vxlan(&self, at: usize, id: Option<u32>) -> Walk<Option<View>> {
        match self.u8(at)? & 8 != 0 && self.is_network(at + 4, id)? {
            true => self.frame_at(at + 8),
            false => Ok(None),
        }
    }

    fn geneve(&self, at: usize, id: Option<u32>) -> Walk<Option<View>> {
        let first = self.u8(at)?;
        if first >> 6 != 0 || !self.is_network(at + 4, id)? {
            return Ok(None);
        }
        let end = at + 8 + usize::from(first & 0x3f) * 4;
        match self.u16(at + 2)? {
            0x6558 => self.frame_at(end),
            kind => Ok(Some(packet(kind, end))),
        }
    }

    fn gtp(&self, at: usize, id: Option<u32>) -> Walk<Option<View>> {
        let flags = self.u8(at)?;
        if flags >> 4 != 3 || self.u8(at + 1)? != 255 {
            return Ok(None);
        }
        if let Some(id) = id
            && self.u32(at + 4)? != id
        {
            return Ok(None);
        }
        if flags & 7 == 0 {
            return self.packet_by_version(at + 8);
        }
        let mut end = at + 12;
        if flags & 4 != 0 {
            let mut next = self.u8(at + 11)?;
            for _ in 0..4 {
                if next == 0 {
                    break;
                }
                let len = usize::from(self.u8(end)?) * 4;
                if len == 0 {
                    break;
                }
                next = self.u8(end + len - 1)?;
                end += len;
            }
            if next != 0 {
                return Ok(None);
            }
        }
        self.packet_by_version(end)
    }
}

/// A packet in a tunnel, without an Ethernet header.
fn packet(kind: u16, at: usize) -> View {
    View { ethernet: None, ether_type: EtherType::Known(kind), payload: at }
}

fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}
