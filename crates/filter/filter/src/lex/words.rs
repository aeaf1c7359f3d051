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
    match word {
        "ether" | "ppp" | "slip" | "fddi" | "tr" | "wlan" => Some(P::Link),
        "es-is" => Some(P::Esis),
        "is-is" => Some(P::Isis),
        word => P::of_name(word),
    }
}

fn keyword(word: &str) -> Option<K> {
    match word {
        "direction" => Some(K::Dir),
        "address1" => Some(K::Addr1),
        "address2" => Some(K::Addr2),
        "address3" => Some(K::Addr3),
        "address4" => Some(K::Addr4),
        "length" => Some(K::Len),
        "on" => Some(K::Ifname),
        "rset" => Some(K::Ruleset),
        "rnr" => Some(K::Rulenum),
        "srnr" => Some(K::Subrulenum),
        "lsu" => Some(K::Lssu),
        word => K::of_name(word),
    }
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
