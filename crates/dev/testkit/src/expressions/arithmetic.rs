//! Relations: arithmetic on packet bytes, lengths and numbers, compared.
//!
//! ```text
//! relation := arith (= | == | != | < | > | <= | >=) arith
//! arith    := number | name | len | proto "[" arith [":" size] "]" | -arith | arith op arith | "(" arith ")"
//! op       := + - * / % & | ^ << >>
//! ```

use super::{Expressions, Family};

/// Protocols that may be indexed, with how often.
const INDEXED: [&str; 27] = [
    "ether", "ether", "link", "ip", "ip", "ip", "ip", "tcp", "tcp", "tcp", "udp", "udp", "icmp", "ip6",
    "ip6", "arp", "sctp", "igmp", "icmp6", "rarp", "pim", "vrrp", "carp", "igrp", "decnet", "fddi", "ppp",
];

const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "8",
    "12",
    "13",
    "16",
    "20",
    "40",
    "0xff",
    "0x0f",
    "0xf0",
    "017",
    "80",
    "443",
    "1500",
    "0x800",
    "65535",
    "0x01020304",
    "4294967295",
];

const CONSTANTS: [&str; 16] = [
    "tcp-syn",
    "tcp-ack",
    "tcp-fin",
    "tcp-rst",
    "tcp-push",
    "tcp-urg",
    "tcp-ece",
    "tcp-cwr",
    "icmp-echo",
    "icmp-echoreply",
    "icmp-unreach",
    "icmp6-echo",
    "icmp6-routeradvert",
    "icmp-timxceed",
    "tcpflags",
    "icmptype",
];

impl Expressions {
    pub(super) fn relation(&mut self) -> String {
        if self.random.one_of(1, 3) {
            return self.usual_relation();
        }
        let relop = *self.random.pick(&["=", "==", "!=", "<", ">", "<=", ">=", "=", "!="]);
        let (left, right) = (self.arith(0), self.arith(1));
        format!("{left} {relop} {right}")
    }

    /// A relation as it is common in practice.
    fn usual_relation(&mut self) -> String {
        let usual = [
            "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
            "tcp[13] = 2",
            "tcp[tcpflags] == tcp-syn|tcp-ack",
            "icmp[icmptype] != icmp-echo",
            "icmp[0] = icmp-echoreply or icmp[icmptype] = icmp-echo",
            "icmp6[icmp6type] = icmp6-echo",
            "ip[6:2] & 0x1fff = 0",
            "ip[0] & 0xf != 5",
            "ip[8] < 5",
            "ip[16] >= 224",
            "ip[2:2] > 576",
            "ip6[6] = 17",
            "ether[0] & 1 = 0",
            "udp[4:2] < 100",
            "udp[8:4] & 0xffff0000 = 0x01000000",
            "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
            "(ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2) != 0",
            "len > 100",
            "len <= 60",
            "tcp[2:2] = 80 or tcp[0:2] = 443",
            "ip[12:4] = ip[16:4]",
            "arp[6:2] = 1",
            "ip[9] = 6 and ip[ip[0] & 0xf] > 3",
        ];
        (*self.random.pick(&usual)).to_owned()
    }

    fn arith(&mut self, depth: u32) -> String {
        let simple = depth >= 3 || self.random.one_of(1 + u64::from(depth), 4);
        if simple {
            return self.atom(depth);
        }
        match self.random.below(12) {
            0 => format!("-{}", self.atom(depth + 1)),
            1..3 => format!("({})", self.arith(depth + 1)),
            3..6 => self.atom(depth),
            _ => self.binary(depth),
        }
    }

    fn binary(&mut self, depth: u32) -> String {
        let op = *self.random.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "&", "+", "-"]);
        let left = self.arith(depth + 1);
        let right = match op {
            // Mostly by numbers that are not a compile error.
            "/" | "%" if self.random.one_of(3, 4) => {
                self.random.pick(&["1", "2", "3", "7", "10"]).to_string()
            }
            "<<" | ">>" if self.random.one_of(3, 4) => {
                self.random.pick(&["0", "1", "2", "4", "8", "31"]).to_string()
            }
            _ => self.arith(depth + 1),
        };
        let space = *self.random.pick(&["", " "]);
        format!("{left}{space}{op}{space}{right}")
    }

    fn atom(&mut self, depth: u32) -> String {
        match self.random.below(10) {
            0..3 => (*self.random.pick(&NUMBERS)).to_owned(),
            3 => (*self.random.pick(&CONSTANTS)).to_owned(),
            4 => (*self.random.pick(&["len", "length"])).to_owned(),
            _ => self.indexed(depth),
        }
    }

    fn indexed(&mut self, depth: u32) -> String {
        let proto = match self.family {
            Family::Wireless if self.random.one_of(1, 4) => *self.random.pick(&["wlan", "radio"]),
            _ => *self.random.pick(&INDEXED),
        };
        let offset = if depth < 2 && self.random.one_of(1, 8) {
            self.arith(depth + 1)
        } else {
            self.random.below(24).to_string()
        };
        let size = *self.random.pick(&["", "", "", ":1", ":2", ":2", ":4"]);
        format!("{proto}[{offset}{size}]")
    }
}
