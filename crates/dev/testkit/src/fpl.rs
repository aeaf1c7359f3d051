//! Random FPL programs and packets for them, to compare engines.
//!
//! ```text
//! program := { CONST } { MACRO } { statement } [ RETURN expr ; ]      -- every production of the language, nested a few levels
//! ```
//!
//! Most programs compile for Ethernet with 64 memory cells; a few do not (a constant divisor that comes out as 0),
//! which callers skip. Loops are short, and the functions `count` and `sample` are the only ones that are called.

use crate::gallery;
use crate::random::Random;

/// Number of memory cells for which the programs are made.
pub const CELLS: u32 = 64;

/// Registers that statements write; those from here on count loops.
const REGISTERS: u64 = 8;
/// Maximum nesting depth of loops.
const LOOPS_MAX: u64 = 2;

const FIELDS: &[&str] = &[
    "LEN",
    "WIRE_LEN",
    "ETH_DST",
    "ETH_SRC",
    "ETH_TYPE",
    "VLAN_ID",
    "VLAN_PCP",
    "IS_VLAN",
    "IS_ARP",
    "ARP_OP",
    "ARP_SENDER_MAC",
    "ARP_SENDER_IP",
    "ARP_TARGET_IP",
    "IS_IP",
    "IS_IP6",
    "IS_FRAGMENT",
    "IP_VERSION",
    "IP_HLEN",
    "IP_TOS",
    "IP_DSCP",
    "IP_ECN",
    "IP_LEN",
    "IP_ID",
    "IP_DF",
    "IP_MF",
    "IP_FRAG",
    "IP_TTL",
    "IP_PROTO",
    "IP_CSUM",
    "IP_SRC",
    "IP_DST",
    "IP_DEST",
    "IP_START",
    "IP6_CLASS",
    "IP6_FLOW",
    "IP6_LEN",
    "IP6_NEXT",
    "IP6_HOPS",
    "IP6_SRC_HIGH",
    "IP6_SRC_LOW",
    "IP6_DST_HIGH",
    "IP6_DST_LOW",
    "IP6_START",
    "L4_PROTO",
    "L4_START",
    "IS_TCP",
    "TCP_SPORT",
    "TCP_DPORT",
    "TCP_SEQ",
    "TCP_ACK",
    "TCP_HLEN",
    "TCP_FLAGS",
    "TCP_WINDOW",
    "TCP_URGENT",
    "IS_UDP",
    "UDP_SPORT",
    "UDP_DPORT",
    "UDP_LEN",
    "UDP_CSUM",
    "IS_ICMP",
    "ICMP_TYPE",
    "ICMP_CODE",
    "ICMP_ID",
    "ICMP_SEQ",
    "IS_ICMP6",
    "ICMP6_TYPE",
    "ICMP6_CODE",
    "DATA_START",
    "DATA_LEN",
];

/// A program's text.
pub fn program(random: &mut Random) -> String {
    let mut writer = Writer { random, text: String::new(), loops: 0, constants: 0, macros: 0, indent: 0 };
    writer.program();
    writer.text
}

/// A packet: a frame of the gallery, whole or cut, some bytes changed; or random bytes.
pub fn packet(random: &mut Random) -> Vec<u8> {
    let mut packet = match random.below(8) {
        0 => {
            let len = random.below(80) as usize;
            random.bytes(len)
        }
        _ => gallery::exhibit(random).to_vec(),
    };
    if random.one_of(1, 3) {
        let len = random.below(packet.len() as u64 + 1) as usize;
        packet.truncate(len);
    }
    for _ in 0..random.below(3) * u64::from(!packet.is_empty()) {
        let at = random.below(packet.len().min(80) as u64) as usize;
        packet[at] = random.bits() as u8;
    }
    packet
}

struct Writer<'a> {
    random: &'a mut Random,
    text: String,
    loops: u64,
    constants: u64,
    macros: u64,
    indent: usize,
}

impl Writer<'_> {
    fn program(&mut self) {
        for number in 0..self.random.below(3) {
            let value = self.number();
            self.line(&format!("CONST C{number} = {value};"));
            self.constants = number + 1;
        }
        for number in 0..self.random.below(3) {
            // The parameter stands in for any number.
            let body = self.expr(2);
            let operator = *self.random.pick(&["+", "-", "*", "&", "^", "|", "=="]);
            self.line(&format!("MACRO F{number}(x, y) = (x {operator} ({body})) + y;"));
            self.macros = number + 1;
        }
        self.block(3);
        if self.random.one_of(4, 5) {
            let value = self.expr(4);
            self.line(&format!("RETURN {value};"));
        }
    }

    fn line(&mut self, text: &str) {
        self.text.extend(std::iter::repeat_n(' ', self.indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn block(&mut self, depth: u64) {
        self.indent += 2;
        for _ in 0..self.random.between(1..=4) {
            self.statement(depth);
        }
        self.indent -= 2;
    }

    fn statement(&mut self, depth: u64) {
        match self.random.below(if depth == 0 { 7 } else { 12 }) {
            0..=2 => self.assign("R"),
            3..=4 => self.assign("M"),
            5 => self.increment(),
            6 => {
                let call = self.call();
                self.line(&format!("{call};"));
            }
            7..=9 => self.condition(depth - 1),
            _ if self.loops < LOOPS_MAX => self.repetition(depth - 1),
            _ => self.assign("R"),
        }
    }

    fn place(&mut self, kind: &str) -> String {
        if kind == "R" {
            return format!("R[{}]", self.random.below(REGISTERS));
        }
        let index = self.index();
        format!("{}[{index}]", self.random.pick(&["M", "MEM"]))
    }

    fn index(&mut self) -> String {
        match self.random.below(3) {
            0 => self.random.below(CELLS.into()).to_string(),
            1 => format!("R[{}]", self.random.below(REGISTERS + LOOPS_MAX)),
            _ => format!("({}) & 127", self.expr(2)),
        }
    }

    fn assign(&mut self, kind: &str) {
        let place = self.place(kind);
        let operator =
            *self.random.pick(&["=", "=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="]);
        let value = self.expr(3);
        self.line(&format!("{place} {operator} U64({value});"));
    }

    fn increment(&mut self) {
        let kind = *self.random.pick(&["R", "M"]);
        let place = self.place(kind);
        let operator = *self.random.pick(&["++", "--"]);
        match self.random.one_of(1, 2) {
            true => self.line(&format!("{place}{operator};")),
            false => self.line(&format!("{operator}{place};")),
        }
    }

    fn condition(&mut self, depth: u64) {
        let test = self.expr(4);
        self.line(&format!("IF ({test}) THEN"));
        self.block(depth);
        match self.random.below(6) {
            0 if self.loops > 0 => self.line("  BREAK;"),
            1 => {
                let value = self.expr(2);
                self.line(&format!("  RETURN {value};"));
            }
            2..=4 => {
                self.line("ELSE");
                self.block(depth);
            }
            _ => {}
        }
        let end = *self.random.pick(&["FI", "FI;"]);
        self.line(end);
    }

    fn repetition(&mut self, depth: u64) {
        let counter = format!("R[{}]", REGISTERS + self.loops);
        let (low, high) = (self.bound(), self.bound());
        let step = ["1", "2", "(R[0] & 3) + 1"][self.random.below(3) as usize];
        let head = match self.random.below(6) {
            0 => format!("{counter} = {low}; {counter} < {high}; {counter} += {step}"),
            1 => format!("{counter} = {low}; {counter} <= {high}; {counter} += {step}"),
            2 => format!("{counter} = {high}; {counter} > {low}; {counter}--"),
            3 => format!("{counter} = {high}; {counter} >= {low} + 4; {counter} -= {step}"),
            4 => format!("{counter} = 2; {counter} != 5; {counter}++"),
            _ => format!("{counter} = 0; {counter} < {high}; ++{counter}"),
        };
        self.line(&format!("FOR ({head})"));
        self.loops += 1;
        self.block(depth);
        self.loops -= 1;
        self.line("ROF");
    }

    /// A number of at most a few dozen.
    fn bound(&mut self) -> String {
        match self.random.below(5) {
            0 => "(PKT.LEN & 7)".into(),
            1 => "(R[1] % 9)".into(),
            2 => "PKT.B[0].U4[1]".into(),
            3 => "(M[3] & 6)".into(),
            _ => self.random.below(8).to_string(),
        }
    }

    fn call(&mut self) -> String {
        let name = *self.random.pick(&["count", "sample"]);
        let input = self.random.below(u64::from(CELLS) - 2);
        let output = ["R[1] & 31", "7", "40"][self.random.below(3) as usize];
        format!("EXTERN({name}, {input}, {output})")
    }

    fn number(&mut self) -> String {
        match self.random.below(8) {
            0 => format!("{:#x}", self.random.bits()),
            1 => format!("{:#b}", self.random.below(256)),
            2 => "10.0.0.1".into(),
            3 => "'GET '".into(),
            4 => (*self.random.pick(&["TRUE", "PROTO_TCP", "TCP_SYN", "TYPE_IP"])).into(),
            5 => self.random.bits().to_string(),
            _ => self.random.below(100).to_string(),
        }
    }

    fn expr(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.leaf();
        }
        let depth = depth - 1;
        match self.random.below(14) {
            0..=2 => self.leaf(),
            3 => format!("{}{}", *self.random.pick(&["-", "~", "!", "+"]), self.operand(depth)),
            4..=6 => self.arithmetic(depth),
            7..=8 => self.comparison(depth),
            9 => format!(
                "{} {} {}",
                self.operand(depth),
                *self.random.pick(&["&&", "||"]),
                self.operand(depth)
            ),
            10 => {
                let cast = *self
                    .random
                    .pick(&["U1", "U4", "U8", "U16", "U32", "U64", "S1", "S4", "S8", "S16", "S32", "S64"]);
                format!("{cast}({})", self.expr(depth))
            }
            11 => self.packet(depth),
            12 => self.hash(depth),
            _ if self.macros > 0 => {
                let number = self.random.below(self.macros);
                format!("F{number}({}, {})", self.expr(depth), self.expr(depth))
            }
            _ => self.packet(depth),
        }
    }

    /// An expression that binds tighter than every operator.
    fn operand(&mut self, depth: u64) -> String {
        format!("({})", self.expr(depth))
    }

    fn arithmetic(&mut self, depth: u64) -> String {
        let operator = *self.random.pick(&["+", "-", "*", "&", "^", "|", "<<", ">>", "/", "%"]);
        let left = self.expr(depth);
        let right = self.expr(depth);
        match operator {
            "/" | "%" => {
                let cast = *self.random.pick(&["U64", "S64", "S8"]);
                let odd = *self.random.pick(&["", " | 1"]);
                format!("{cast}({left}) {operator} {cast}(({right}){odd})")
            }
            "<<" | ">>" if self.random.one_of(2, 3) => format!("({left}) {operator} (({right}) & 63)"),
            _ => format!("({left}) {operator} ({right})"),
        }
    }

    fn comparison(&mut self, depth: u64) -> String {
        let operator = *self.random.pick(&["==", "!=", "<", ">", "<=", ">="]);
        let left = self.expr(depth);
        let right = self.expr(depth);
        match operator {
            "==" | "!=" => format!("({left}) {operator} ({right})"),
            _ => {
                let cast = *self.random.pick(&["U64", "U64", "U16", "S64", "S8"]);
                format!("{cast}({left}) {operator} {cast}({right})")
            }
        }
    }

    fn packet(&mut self, depth: u64) -> String {
        let offset = match self.random.below(5) {
            0 => format!("({}) & 63", self.expr(depth)),
            1 => format!("PKT.L4_START + {}", self.random.below(24)),
            2 => format!("R[{}]", self.random.below(REGISTERS + LOOPS_MAX)),
            3 => self.random.below(100).to_string(),
            _ => self.random.below(40).to_string(),
        };
        let (unit, pieces): (&str, &[&str]) = *self.random.pick::<(&str, &[&str])>(&[
            ("B", &["", "", "U1", "U4", "S1", "S4"]),
            ("W", &["", "", "U1", "U4", "U8", "S4", "S8"]),
            ("DW", &["", "", "U1", "U4", "U8", "U16", "S8", "S16"]),
            ("QW", &["", "", "U1", "U4", "U8", "U16", "U32", "S16", "S32"]),
            ("SB", &[""]),
            ("SW", &[""]),
            ("SDW", &[""]),
            ("SQW", &[""]),
        ]);
        let piece = *self.random.pick(pieces);
        if piece.is_empty() {
            return format!("PKT.{unit}[{offset}]");
        }
        let index = match self.random.one_of(1, 3) {
            true => self.expr(depth.min(1)),
            false => self.random.below(2).to_string(),
        };
        format!("PKT.{unit}[{offset}].{piece}[U64({index}) & 1]")
    }

    fn hash(&mut self, depth: u64) -> String {
        let start = match self.random.below(3) {
            0 => format!("({}) & 31", self.expr(depth)),
            _ => self.random.below(30).to_string(),
        };
        let len = match self.random.below(4) {
            0 => format!("U64({}) & 31", self.expr(depth)),
            1 => "PKT.LEN - 30".into(),
            _ => self.random.below(70).to_string(),
        };
        let mask = *self.random.pick(&["63", "1023", "~0", "R[2]"]);
        format!("HASH({start}, {len}, {mask})")
    }

    fn leaf(&mut self) -> String {
        match self.random.below(9) {
            0..=1 => self.number(),
            2..=3 => format!("R[{}]", self.random.below(REGISTERS + LOOPS_MAX)),
            4 => format!("M[{}]", self.random.below(CELLS.into())),
            5 if self.constants > 0 => format!("C{}", self.random.below(self.constants)),
            6 if self.random.one_of(1, 4) => self.call(),
            7 => format!("PKT.B[{}]", self.random.below(64)),
            _ => format!("PKT.{}", *self.random.pick(FIELDS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_program_again() {
        let [one, two] = [0, 1].map(|_| program(&mut Random::new(3)));
        assert_eq!(one, two);
        assert_ne!(one, program(&mut Random::new(4)));
    }
}
