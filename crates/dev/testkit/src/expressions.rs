//! Random texts of the pcap-filter language.
//!
//! ```text
//! text     := [layer and] expr
//! expr     := operand ((and | or | && | ||) (operand | id))*        id: elided qualifiers
//! operand  := [not | !] (primitive | relation | "(" expr ")")
//! layer    := vlan | mpls | pppoes | geneve ...                     shifts what stands to its right
//! relation := arith relop arith
//! ```
//!
//! A seed decides every text. Most are valid for the link type; a few are broken on purpose, so that errors are
//! compared as well. Addresses and ports come from a small stock, so that packets can be made to match.

mod arithmetic;
mod primitive;

use crate::random::Random;

/// A stream of filter texts for one link type.
#[derive(Clone, Debug)]
pub struct Expressions {
    random: Random,
    family: Family,
}

/// Families of link types, by the primitives that make sense on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Ethernet and link types with its addresses: FDDI, Token Ring, IP over Fibre Channel, NetAnalyzer.
    Ethernet,
    /// 802.11, with or without a radio header.
    Wireless,
    /// Link layers that have no addresses which filters know.
    Bare,
    /// ATM of SunOS.
    SunAtm,
    /// OpenBSD's packet filter log.
    PacketFilterLog,
    /// Signalling System 7: MTP2 and MTP2 with a header.
    Ss7,
}

impl Family {
    /// The family of a DLT.
    pub const fn of(dlt: i32) -> Family {
        match dlt {
            1 | 6 | 10 | 122 | 240 | 241 => Family::Ethernet,
            105 | 119 | 127 | 163 | 192 => Family::Wireless,
            117 => Family::PacketFilterLog,
            123 => Family::SunAtm,
            139..=141 => Family::Ss7,
            _ => Family::Bare,
        }
    }
}

/// The kind of a bare id after `and` or `or`, inherited from the primitive before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heir {
    Nothing,
    Host,
    HostV6,
    Net,
    Port,
    PortRange,
    Proto,
    Mac,
}

/// A piece of text, and the pieces that may follow it.
struct Piece {
    text: String,
    heir: Heir,
}

impl Piece {
    /// A piece that hands no qualifiers on.
    fn alone(text: impl Into<String>) -> Piece {
        Piece { text: text.into(), heir: Heir::Nothing }
    }

    fn with(text: impl Into<String>, heir: Heir) -> Piece {
        Piece { text: text.into(), heir }
    }
}

/// Words that are right somewhere, and seldom where they are put.
const STRAY: [&str; 10] = ["and", "or", "not", "(", ")", "=", "src", "tcp", "7", "host"];

/// Maximum nesting depth of parentheses.
const DEPTH_MAX: u32 = 3;

impl Expressions {
    /// The texts of `seed` for a DLT.
    pub const fn new(seed: u64, dlt: i32) -> Expressions {
        Expressions { random: Random::new(seed), family: Family::of(dlt) }
    }

    /// Texts for a DLT that a stream of choices makes.
    pub const fn from_random(random: Random, dlt: i32) -> Expressions {
        Expressions { random, family: Family::of(dlt) }
    }

    /// The next text.
    pub fn text(&mut self) -> String {
        let mut text = String::new();
        let layered = if self.has_ethernet_layers() { 6 } else { 60 };
        if self.random.one_of(1, layered) {
            text = self.layers();
        }
        text.push_str(&self.expr(0).text);
        if self.random.one_of(1, 40) { self.broken(&text) } else { text }
    }

    /// Whether `vlan`, `llc` and MAC addresses are mostly right.
    fn has_ethernet_layers(&self) -> bool {
        matches!(self.family, Family::Ethernet | Family::Wireless)
    }

    fn expr(&mut self, depth: u32) -> Piece {
        let mut piece = self.operand(depth);
        let more = *self.random.pick(&[0, 0, 1, 1, 1, 2, 2, 3, 5]);
        for _ in 0..more.min(6 - 2 * depth) {
            let join = *self.random.pick(&["and", "and", "or", "or", "&&", "||"]);
            let next = self.joined(piece.heir, depth);
            piece = Piece::with(format!("{} {join} {}", piece.text, next.text), next.heir);
        }
        piece
    }

    /// An operand, or just an id where the primitive before allows it.
    fn joined(&mut self, heir: Heir, depth: u32) -> Piece {
        if heir == Heir::Nothing || self.random.one_of(1, 2) {
            return self.operand(depth);
        }
        let id = self.id(heir);
        let not = *self.random.pick(&["", "", "", "", "not ", "!"]);
        Piece::with(format!("{not}{id}"), heir)
    }

    fn operand(&mut self, depth: u32) -> Piece {
        if self.random.one_of(1, 6) {
            let inner = self.operand(depth);
            let not = *self.random.pick(&["not ", "not ", "! ", "!"]);
            return Piece::with(format!("{not}{}", inner.text), inner.heir);
        }
        match self.random.below(10) {
            0..2 if depth < DEPTH_MAX => {
                let inner = self.expr(depth + 1);
                Piece::with(format!("({})", inner.text), inner.heir)
            }
            2 => self.list(),
            3..5 => Piece::alone(self.relation()),
            _ => self.primitive(),
        }
    }

    /// One qualifier for several ids: `host (a or b)`, `tcp port (80 or 443 and not 22)`.
    fn list(&mut self) -> Piece {
        let (qualifier, heir) = *self.random.pick(&[
            ("host", Heir::Host),
            ("src host", Heir::Host),
            ("ip dst host", Heir::Host),
            ("ip6 host", Heir::HostV6),
            ("src or dst net", Heir::Net),
            ("tcp port", Heir::Port),
            ("port", Heir::Port),
            ("udp src port", Heir::Port),
            ("portrange", Heir::PortRange),
            ("ip proto", Heir::Proto),
        ]);
        let mut text = format!("{qualifier} ({}", self.id(heir));
        for _ in 0..self.random.between(1..=4) {
            let join = *self.random.pick(&["or", "or", "or", "and", "and not", "or not"]);
            text = format!("{text} {join} {}", self.id(heir));
        }
        Piece::with(text + ")", heir)
    }

    /// Layers in front of everything, each joined by `and`.
    fn layers(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..*self.random.pick(&[1, 1, 1, 2, 2, 3]) {
            text = format!("{text}{} and ", self.layer());
        }
        text
    }

    fn layer(&mut self) -> String {
        let number = self.random.below(5);
        match self.random.below(16) {
            0..4 => "vlan".to_owned(),
            4 | 5 => format!("vlan {}", [0, 1, 100, 123, 4095][number as usize]),
            6 | 7 => "mpls".to_owned(),
            8 => format!("mpls {}", [0, 16, 29, 1000, 1_048_575][number as usize]),
            9 | 10 => "pppoes".to_owned(),
            11 => format!("pppoes {}", [0, 1, 0x17, 0xffff, 300][number as usize]),
            12 => "pppoed".to_owned(),
            13 | 14 => "geneve".to_owned(),
            _ => format!("geneve {}", [0, 11, 0x1234, 0x00ff_ffff, 10][number as usize]),
        }
    }

    /// A valid text with a fault: a word lost, doubled, swapped, or a character changed.
    fn broken(&mut self, text: &str) -> String {
        let mut words: Vec<&str> = text.split(' ').collect();
        let at = self.random.below(words.len() as u64) as usize;
        match self.random.below(5) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, words[at]),
            2 => words.insert(at, *self.random.pick(&STRAY)),
            3 => words.swap(at, 0),
            _ => return self.altered(text),
        }
        words.join(" ")
    }

    fn altered(&mut self, text: &str) -> String {
        let at = self.random.below(text.len() as u64) as usize;
        let put =
            *self.random.pick(&['0', '9', 'x', ':', '.', '/', '-', '[', ']', '(', '<', '&', '\\', '_', '#']);
        text.char_indices().map(|(i, c)| if i == at { put } else { c }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_text() {
        let texts = |seed| {
            let mut stream = Expressions::new(seed, 1);
            (0..100).map(|_| stream.text()).collect::<Vec<_>>()
        };
        assert_eq!(texts(7), texts(7));
        assert_ne!(texts(7), texts(8));
    }

    /// The differential tests would compare nothing if most random texts were invalid.
    #[test]
    fn libpcap_accepts_most_texts() {
        use crate::libpcap::{CompileSettings, Libpcap};
        let pcap = match Libpcap::get() {
            Ok(pcap) => pcap,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        for dlt in [1, 12, 105, 113, 123, 9, 0] {
            let mut stream = Expressions::new(1, dlt);
            let accepted =
                (0..400).filter(|_| pcap.compile(&stream.text(), CompileSettings::new(dlt)).is_ok()).count();
            assert!(accepted > 120, "only {accepted} of 400 texts are valid on DLT {dlt}");
        }
    }
}
