//! The words of the language: protocols, keywords, named constants.

use super::{ModifierWord, Symbol, Token};
use crate::ast::{Keyword as K, Protocol as P};

/// The token for a word, `None` if it is only a name.
pub(super) fn find(word: &str) -> Option<Token<'static>> {
    protocol(word)
        .map(Token::Protocol)
        .or_else(|| keyword(word).map(Token::Keyword))
        .or_else(|| operator(word).map(Token::Symbol))
        .or_else(|| constant(word).map(Token::Number))
}

/// Our own words, which are names unless a parenthesis follows.
pub(super) fn modifier(word: &str) -> Option<ModifierWord> {
    Some(match word {
        "scoped" => ModifierWord::Scoped,
        "extensions" => ModifierWord::Extensions,
        "anyvlan" => ModifierWord::AnyVlan,
        "inner" => ModifierWord::Inner,
        "fragment" => ModifierWord::Fragment,
        _ => return None,
    })
}

fn operator(word: &str) -> Option<Symbol> {
    Some(match word {
        "and" => Symbol::And,
        "or" => Symbol::Or,
        "not" => Symbol::Not,
        _ => return None,
    })
}

fn protocol(word: &str) -> Option<P> {
    Some(match word {
        "link" | "ether" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => P::Link,
        "ip" => P::Ip,
        "arp" => P::Arp,
        "rarp" => P::Rarp,
        "sctp" => P::Sctp,
        "tcp" => P::Tcp,
        "udp" => P::Udp,
        "icmp" => P::Icmp,
        "igmp" => P::Igmp,
        "igrp" => P::Igrp,
        "pim" => P::Pim,
        "vrrp" => P::Vrrp,
        "carp" => P::Carp,
        "radio" => P::Radio,
        "ip6" => P::Ip6,
        "icmp6" => P::Icmp6,
        "ah" => P::Ah,
        "esp" => P::Esp,
        "atalk" => P::Atalk,
        "aarp" => P::Aarp,
        "decnet" => P::Decnet,
        "lat" => P::Lat,
        "sca" => P::Sca,
        "moprc" => P::Moprc,
        "mopdl" => P::Mopdl,
        "iso" => P::Iso,
        "esis" | "es-is" => P::Esis,
        "isis" | "is-is" => P::Isis,
        "l1" => P::IsisL1,
        "l2" => P::IsisL2,
        "iih" => P::IsisIih,
        "lsp" => P::IsisLsp,
        "snp" => P::IsisSnp,
        "csnp" => P::IsisCsnp,
        "psnp" => P::IsisPsnp,
        "clnp" => P::Clnp,
        "stp" => P::Stp,
        "ipx" => P::Ipx,
        "netbeui" => P::Netbeui,
        _ => return None,
    })
}

fn keyword(word: &str) -> Option<K> {
    Some(match word {
        "src" => K::Src,
        "dst" => K::Dst,
        "host" => K::Host,
        "net" => K::Net,
        "mask" => K::Mask,
        "port" => K::Port,
        "portrange" => K::Portrange,
        "proto" => K::Proto,
        "protochain" => K::Protochain,
        "gateway" => K::Gateway,
        "type" => K::Type,
        "subtype" => K::Subtype,
        "direction" | "dir" => K::Dir,
        "address1" | "addr1" => K::Addr1,
        "address2" | "addr2" => K::Addr2,
        "address3" | "addr3" => K::Addr3,
        "address4" | "addr4" => K::Addr4,
        "ra" => K::Ra,
        "ta" => K::Ta,
        "less" => K::Less,
        "greater" => K::Greater,
        "byte" => K::Byte,
        "broadcast" => K::Broadcast,
        "multicast" => K::Multicast,
        "len" | "length" => K::Len,
        "inbound" => K::Inbound,
        "outbound" => K::Outbound,
        "ifindex" => K::Ifindex,
        "vlan" => K::Vlan,
        "mpls" => K::Mpls,
        "pppoed" => K::Pppoed,
        "pppoes" => K::Pppoes,
        "geneve" => K::Geneve,
        "vxlan" => K::Vxlan,
        "llc" => K::Llc,
        "on" | "ifname" => K::Ifname,
        "rset" | "ruleset" => K::Ruleset,
        "rnr" | "rulenum" => K::Rulenum,
        "srnr" | "subrulenum" => K::Subrulenum,
        "reason" => K::Reason,
        "action" => K::Action,
        _ => return telephony(word),
    })
}

/// The words of SunATM and of SS7.
fn telephony(word: &str) -> Option<K> {
    Some(match word {
        "lane" => K::Lane,
        "metac" => K::Metac,
        "bcc" => K::Bcc,
        "oam" => K::Oam,
        "oamf4" => K::Oamf4,
        "oamf4ec" => K::Oamf4ec,
        "oamf4sc" => K::Oamf4sc,
        "sc" => K::Sc,
        "ilmic" => K::Ilmic,
        "vpi" => K::Vpi,
        "vci" => K::Vci,
        "connectmsg" => K::Connectmsg,
        "metaconnect" => K::Metaconnect,
        "fisu" => K::Fisu,
        "lssu" | "lsu" => K::Lssu,
        "msu" => K::Msu,
        "hfisu" => K::Hfisu,
        "hlssu" => K::Hlssu,
        "hmsu" => K::Hmsu,
        "sio" => K::Sio,
        "opc" => K::Opc,
        "dpc" => K::Dpc,
        "sls" => K::Sls,
        "hsio" => K::Hsio,
        "hopc" => K::Hopc,
        "hdpc" => K::Hdpc,
        "hsls" => K::Hsls,
        _ => return None,
    })
}

/// Offsets, types and flags of ICMP (RFC 792), ICMPv6 (IANA's registry) and TCP (RFC 9293).
fn constant(word: &str) -> Option<u32> {
    let index = CONSTANTS.iter().position(|(name, _)| *name == word)?;
    Some(CONSTANTS[index].1)
}

const CONSTANTS: [(&str, u32); 57] = [
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];
