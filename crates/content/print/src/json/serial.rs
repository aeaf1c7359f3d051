//! Link layers other than Ethernet, PPP and 802.11: serial lines, rings, radios, switches' tags, virtual machines.

use tapline_packet::LinkType;

use super::walk::Walk;
use super::{link, network, wireless};
use crate::bytes::{Cut, Printed, Span};

/// Network layer protocols of IP (ISO/IEC TR 9577).
const NETWORK_IPV4: u8 = 0xcc;
const NETWORK_IPV6: u8 = 0x8e;

/// A packet from its first byte on; payload, where its type is not known.
pub(super) fn packet(walk: &mut Walk, span: Span<'_>, link_type: LinkType) -> Printed {
    match link_type {
        LinkType::DSA_TAG_DSA => dsa(walk, span, 0),
        LinkType::DSA_TAG_EDSA => dsa(walk, span, 4),
        LinkType::DSA_TAG_BRCM => broadcom(walk, span),
        LinkType::DSA_TAG_BRCM_PREPEND => {
            broadcom_tag(walk, span)?;
            link::ethernet(walk, span.skip(4), None)
        }
        LinkType::C_HDLC | LinkType::HDLC => cisco_hdlc(walk, span),
        LinkType::FRELAY => frame_relay(walk, span),
        LinkType::MFR => multilink(walk, span),
        LinkType::PPI => per_packet(walk, span),
        LinkType::IEEE802_11_PRISM | LinkType::IEEE802_11_AVS => radio_header(walk, span, link_type),
        LinkType::IEEE802_15_4_WITHFCS | LinkType::IEEE802_15_4_NOFCS => wpan(walk, span),
        LinkType::IEEE802_15_4_TAP => {
            let length = usize::from(span.u16_le(2)?);
            wpan(walk, span.skip(length))
        }
        LinkType::FDDI => fddi(walk, span),
        LinkType::SLIP | LinkType::SLIP_BSDOS => {
            walk.layer("slip", |json| {
                let outgoing = span.u8(0)? != 0;
                json.boolean_field("outgoing", outgoing);
                span.need(16)
            })?;
            network::raw(walk, span.skip(16))
        }
        LinkType::IPOIB => {
            let kind = walk.layer("ipoib", |json| {
                let kind = span.u16(40)?;
                json.hex_field("type", kind, 4);
                Ok(kind)
            })?;
            network::by_ethertype(walk, kind, span.skip(44))
        }
        LinkType::IPNET => ipnet(walk, span),
        LinkType::ARCNET_BSD => arcnet(walk, span, 2),
        LinkType::ARCNET_LINUX => arcnet(walk, span, 4),
        LinkType::VSOCK => vsock(walk, span),
        LinkType::ATM_RFC1483 => by_llc(walk, span),
        LinkType::ATM_CLIP => match span.u24(0)? {
            0xaa_aa03 => link::llc(walk, span),
            _ => network::ipv4(walk, span),
        },
        LinkType::SUNATM => {
            walk.layer("atm", |json| {
                json.boolean_field("outgoing", span.u8(0)? & 0x80 != 0);
                json.number_field("path", span.u8(1)?);
                json.number_field("channel", span.u16(2)?);
                Ok(())
            })?;
            match span.u8(0)? & 0x0f {
                1 => link::ethernet(walk, span.skip(6), None),
                _ => by_llc(walk, span.skip(4)),
            }
        }
        _ => juniper(walk, span, link_type),
    }
}

/// An LLC frame where one begins there.
fn by_llc(walk: &mut Walk, span: Span<'_>) -> Printed {
    match span.u24(0)? {
        0xaa_aa03 | 0xfe_fe03 | 0x06_0603 => link::llc(walk, span),
        _ => payload(walk, span),
    }
}

fn payload(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.payload(span);
    Ok(())
}

/// Ethernet with Marvell's tag, which may have an EtherType and two bytes before it.
fn dsa(walk: &mut Walk, span: Span<'_>, before: usize) -> Printed {
    let tag = span.skip(12 + before);
    let kind = walk.layer("eth", |json| {
        json.mac_field("dst", span.bytes(0, 6)?);
        json.mac_field("src", span.bytes(6, 6)?);
        let kind = tag.u16(4)?;
        json.hex_field("type", kind, 4);
        Ok(kind)
    })?;
    walk.layer("dsa", |json| {
        let [first, second, third, fourth] = tag.array(0)?;
        let modes = ["to_cpu", "from_cpu", "to_sniffer", "forward"];
        json.text_field("mode", modes[usize::from(first >> 6)].as_bytes());
        json.number_field("device", first & 0x1f);
        json.number_field("port", second >> 3);
        json.boolean_field("tagged", first & 0x20 != 0);
        json.number_field("vlan", u16::from_be_bytes([third & 0x0f, fourth]));
        json.number_field("priority", third >> 5);
        Ok::<(), Cut>(())
    })?;
    link::behind_addresses(walk, kind, tag.skip(6))
}

fn broadcom(walk: &mut Walk, span: Span<'_>) -> Printed {
    let kind = walk.layer("eth", |json| {
        json.mac_field("dst", span.bytes(0, 6)?);
        json.mac_field("src", span.bytes(6, 6)?);
        let kind = span.u16(16)?;
        json.hex_field("type", kind, 4);
        Ok(kind)
    })?;
    broadcom_tag(walk, span.skip(12))?;
    link::behind_addresses(walk, kind, span.skip(18))
}

fn broadcom_tag(walk: &mut Walk, tag: Span<'_>) -> Printed {
    walk.layer("broadcom_tag", |json| {
        let [first, second, third, fourth] = tag.array(0)?;
        let ingress = first & 0x20 != 0;
        json.text_field("direction", if ingress { b"ingress" } else { b"egress" });
        if ingress {
            json.number_field("traffic_class", second >> 2 & 7);
            json.hex_field("ports", u16::from_be_bytes([third, fourth]) & 0x1ff, 4);
        } else {
            json.number_field("traffic_class", fourth >> 5);
            json.number_field("port", fourth & 0x1f);
            json.hex_field("reason", third, 2);
        }
        Ok(())
    })
}

fn cisco_hdlc(walk: &mut Walk, span: Span<'_>) -> Printed {
    let kind = walk.layer("chdlc", |json| {
        json.hex_field("address", span.u8(0)?, 2);
        let kind = span.u16(2)?;
        json.hex_field("protocol", kind, 4);
        Ok(kind)
    })?;
    let rest = span.skip(4);
    if kind != 0x8035 {
        return network::by_ethertype(walk, kind, rest);
    }
    walk.layer("slarp", |json| {
        let code = rest.u32(0)?;
        json.number_field("code", code);
        match code {
            1 => {
                json.address_field("address", rest.bytes(4, 4)?);
                json.address_field("mask", rest.bytes(8, 4)?);
            }
            2 => {
                json.number_field("sequence", rest.u32(4)?);
                json.number_field("peer_sequence", rest.u32(8)?);
            }
            _ => {}
        }
        Ok(())
    })
}

/// Q.922, with the payload of RFC 2427 or of Cisco's framing.
fn frame_relay(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (kind, network_protocol, at) = walk.layer("frame_relay", |json| {
        let (first, second) = (span.u8(0)?, span.u8(1)?);
        let mut dlci = u32::from(first & 0xfc) << 2 | u32::from(second >> 4);
        let mut len = 2;
        // Addresses of three and four bytes go on with seven bits, the last with six.
        while len < 4 && span.u8(len - 1)? & 1 == 0 {
            let next = span.u8(len)?;
            dlci = if next & 1 == 0 {
                dlci << 7 | u32::from(next >> 1)
            } else {
                dlci << 6 | u32::from(next >> 2)
            };
            len += 1;
        }
        json.number_field("dlci", dlci);
        json.boolean_field("fecn", second & 8 != 0);
        json.boolean_field("becn", second & 4 != 0);
        json.boolean_field("discard_eligible", second & 2 != 0);
        if span.u8(len)? == 3 {
            let padding = usize::from(span.u8(len + 1)? == 0);
            let protocol = span.u8(len + 1 + padding)?;
            json.hex_field("network_protocol", protocol, 2);
            return Ok((0, protocol, len + 2 + padding));
        }
        let kind = span.u16(len)?;
        json.hex_field("type", kind, 4);
        Ok((kind, 0, len + 2))
    })?;
    let rest = span.skip(at);
    match network_protocol {
        0 => network::by_ethertype(walk, kind, rest),
        NETWORK_IPV4 => network::ipv4(walk, rest),
        NETWORK_IPV6 => network::ipv6(walk, rest),
        0xcf => link::ppp(walk, rest),
        0x80 => link::snap(walk, rest),
        _ => payload(walk, rest),
    }
}

fn multilink(walk: &mut Walk, span: Span<'_>) -> Printed {
    let begins = walk.layer("mfr", |json| {
        let (first, second) = (span.u8(0)?, span.u8(1)?);
        let control = first & 0xe0 == 0xe0;
        json.boolean_field("begin", first & 0x80 != 0);
        json.boolean_field("end", first & 0x40 != 0);
        json.boolean_field("control", control);
        if control {
            json.number_field("message", span.u8(2)?);
        } else {
            json.number_field("sequence", u16::from(first & 0x1e) << 7 | u16::from(second));
        }
        Ok(!control && first & 0x80 != 0)
    })?;
    let rest = span.skip(2);
    if begins { frame_relay(walk, rest) } else { payload(walk, rest) }
}

/// PPI's header; the packet with the link type that it names. One within another is payload.
fn per_packet(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (length, dlt) = walk.layer("ppi", |json| {
        let (length, dlt) = (span.u16_le(2)?, span.u32_le(4)?);
        json.number_field("length", length);
        json.number_field("dlt", dlt);
        Ok((usize::from(length), dlt))
    })?;
    if length < 8 {
        walk.malformed("ppi");
        return Ok(());
    }
    let rest = span.skip(length);
    match u16::try_from(dlt).map(LinkType::from_dlt) {
        Ok(LinkType::PPI) | Err(_) => payload(walk, rest),
        Ok(link_type) => {
            link::packet(walk, rest, link_type, None);
            Ok(())
        }
    }
}

/// A Prism header of 144 bytes, or that of AVS, which names its own length.
fn radio_header(walk: &mut Walk, span: Span<'_>, link_type: LinkType) -> Printed {
    let is_avs = link_type == LinkType::IEEE802_11_AVS || matches!(span.u32(0)?, 0x8021_1001 | 0x8021_1002);
    let name = if is_avs { "avs" } else { "prism" };
    let length = walk.layer(name, |json| {
        let length = if is_avs { span.u32(4)? } else { 144 };
        json.number_field("length", length);
        Ok(length as usize)
    })?;
    if length < 8 {
        walk.malformed(name);
        return Ok(());
    }
    wireless::frame(walk, span.skip(length))
}

/// IEEE 802.15.4: the frame's kind, and addresses of versions 0 and 1.
fn wpan(walk: &mut Walk, span: Span<'_>) -> Printed {
    let length = walk.layer("wpan", |json| {
        let control = span.u16_le(0)?;
        let (kind, version) = (control & 7, control >> 12 & 3);
        let names = ["beacon", "data", "ack", "command", "reserved", "multipurpose", "fragment", "extended"];
        json.text_field("type", names[usize::from(kind)].as_bytes());
        if kind > 3 {
            return Ok(2);
        }
        json.number_field("version", version);
        json.boolean_field("secured", control & 8 != 0);
        let mut at = 2;
        if control & 0x100 == 0 {
            json.number_field("sequence", span.u8(2)?);
            at = 3;
        }
        if version > 1 {
            return Ok(at);
        }
        let compressed = control & 0x40 != 0;
        for (pan, address, mode, has_pan) in
            [("dst_pan", "dst", control >> 10 & 3, true), ("src_pan", "src", control >> 14, !compressed)]
        {
            if mode < 2 {
                continue;
            }
            if has_pan {
                json.hex_field(pan, span.u16_le(at)?, 4);
                at += 2;
            }
            if mode == 2 {
                json.hex_field(address, span.u16_le(at)?, 4);
                at += 2;
            } else {
                let mut bytes: [u8; 8] = span.array(at)?;
                bytes.reverse();
                json.mac_field(address, &bytes);
                at += 8;
            }
        }
        Ok(at)
    })?;
    payload(walk, span.skip(length))
}

fn fddi(walk: &mut Walk, span: Span<'_>) -> Printed {
    let control = walk.layer("fddi", |json| {
        let control = span.u8(0)?;
        json.hex_field("frame_control", control, 2);
        json.mac_field("dst", span.bytes(1, 6)?);
        json.mac_field("src", span.bytes(7, 6)?);
        Ok(control)
    })?;
    let rest = span.skip(13);
    if control & 0xf0 == 0x50 { link::llc(walk, rest) } else { payload(walk, rest) }
}

fn ipnet(walk: &mut Walk, span: Span<'_>) -> Printed {
    let family = walk.layer("ipnet", |json| {
        let family = span.u8(1)?;
        json.number_field("family", family);
        json.number_field("interface_index", span.u32(8)?);
        json.number_field("source_zone", span.u32(16)?);
        json.number_field("destination_zone", span.u32(20)?);
        Ok(family)
    })?;
    let rest = span.skip(24);
    match family {
        2 => network::ipv4(walk, rest),
        26 => network::ipv6(walk, rest),
        _ => payload(walk, rest),
    }
}

/// `type_at` is the offset of the type: behind an offset, as Linux captures it, or at once.
fn arcnet(walk: &mut Walk, span: Span<'_>, type_at: usize) -> Printed {
    let (kind, is_later, len) = walk.layer("arcnet", |json| {
        let (source, destination, kind) = (span.u8(0)?, span.u8(1)?, span.u8(type_at)?);
        json.number_field("src", source);
        json.number_field("dst", destination);
        json.number_field("type", kind);
        if matches!(kind, 0x80 | 240 | 241) {
            return Ok((kind, false, type_at + 1));
        }
        let exception = type_at == 2 && span.u8(type_at + 1)? == 0xff;
        let at = type_at + 1 + if exception { 4 } else { 0 };
        let flag = span.u8(at)?;
        json.number_field("flag", flag);
        json.number_field("sequence", span.u16(at + 1)?);
        Ok((kind, type_at == 2 && flag != 0 && flag & 1 == 0, at + 3))
    })?;
    let rest = span.skip(len);
    match kind {
        _ if is_later => payload(walk, rest),
        212 | 240 => network::ipv4(walk, rest),
        0xc4 => network::ipv6(walk, rest),
        213 | 214 | 241 => link::arp(walk, rest),
        _ => payload(walk, rest),
    }
}

fn vsock(walk: &mut Walk, span: Span<'_>) -> Printed {
    let length = walk.layer("vsock", |json| {
        for (name, at) in [("src_cid", 0), ("dst_cid", 8)] {
            let cid = u64::from_le_bytes(span.array(at)?);
            json.string_field(name, |part| part.decimal(cid, 1));
        }
        json.number_field("src_port", span.u32_le(16)?);
        json.number_field("dst_port", span.u32_le(20)?);
        json.number_field("operation", span.u16_le(24)?);
        json.number_field("transport", span.u16_le(26)?);
        Ok(32 + usize::from(span.u16_le(28)?))
    })?;
    payload(walk, span.skip(length))
}

/// Juniper's header, and the frame behind it if there is no cookie between them.
fn juniper(walk: &mut Walk, span: Span<'_>, link_type: LinkType) -> Printed {
    let known = matches!(
        link_type,
        LinkType::JUNIPER_GGSN
            | LinkType::JUNIPER_ES
            | LinkType::JUNIPER_MONITOR
            | LinkType::JUNIPER_SERVICES
            | LinkType::JUNIPER_PPPOE
            | LinkType::JUNIPER_ETHER
            | LinkType::JUNIPER_PPP
            | LinkType::JUNIPER_FRELAY
            | LinkType::JUNIPER_CHDLC
            | LinkType::JUNIPER_PPPOE_ATM
            | LinkType::JUNIPER_MLPPP
            | LinkType::JUNIPER_MFR
            | LinkType::JUNIPER_MLFR
            | LinkType::JUNIPER_ATM1
            | LinkType::JUNIPER_ATM2
    );
    if !known {
        return payload(walk, span);
    }
    let (flags, length) = walk.layer("juniper", |json| {
        let (magic, flags) = (span.u24(0)?, span.u8(3)?);
        json.hex_field("magic", magic, 6);
        json.hex_field("flags", flags, 2);
        json.boolean_field("outgoing", flags & 1 == 0);
        let extensions = if flags & 0x80 != 0 { 2 + usize::from(span.u16(4)?) } else { 0 };
        Ok((flags, 4 + extensions))
    })?;
    if flags & 2 != 0 {
        return network::raw(walk, span.skip(length + 4));
    }
    let rest = span.skip(length);
    match link_type {
        LinkType::JUNIPER_ETHER | LinkType::JUNIPER_PPPOE => link::ethernet(walk, rest, None),
        LinkType::JUNIPER_PPP => link::ppp(walk, rest),
        LinkType::JUNIPER_FRELAY => frame_relay(walk, rest),
        LinkType::JUNIPER_CHDLC => cisco_hdlc(walk, rest),
        _ => payload(walk, rest),
    }
}
