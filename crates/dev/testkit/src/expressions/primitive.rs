//! Primitives: every kind that the language has, and the ids that they take.

use super::{Expressions, Family, Heir, Piece};

const HOSTS: [&str; 12] = [
    "10.0.0.1",
    "10.0.0.2",
    "192.168.1.1",
    "1.2.3.4",
    "127.0.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "10.1",
    "172.16.5",
    "141.142.228.5",
    "0.0.0.0",
    "198.51.100.7",
];
const HOSTS_V6: [&str; 7] = [
    "::1",
    "fe80::1",
    "2001:db8::7",
    "ff02::fb",
    "fd00::1",
    "::ffff:10.0.0.1",
    "2001:470:1f11:81f:c999:d94:aa7c:2e3e",
];
const NETS: [&str; 14] = [
    "10",
    "10.0.0",
    "192.168",
    "192.168.0.0/16",
    "10.0.0.0/8",
    "0.0.0.0/0",
    "1.2.3.4/32",
    "10.0.0.0 mask 255.0.0.0",
    "1.2.0.4 mask 255.255.0.255",
    "172.16.0.0/12",
    "127.0.0.0/8",
    "224.0.0.0/4",
    "10.1.2.0/23",
    "128.0.0.0/1",
];
const NETS_V6: [&str; 6] =
    ["2001:db8::/32", "fe80::/10", "::/0", "ff00::/8", "2001:db8::7/128", "2001:db8:1::/33"];
const PORTS: [&str; 14] =
    ["80", "443", "53", "22", "0", "65535", "4789", "6081", "67", "http", "domain", "ssh", "https", "123"];
const RANGES: [&str; 8] = ["1-1023", "80-90", "443-443", "6000-6010", "65535-0", "0-65535", "22", "53-80"];
const PROTOS: [&str; 16] = [
    "1", "6", "17", "41", "47", "50", "132", "255", "0", "\\tcp", "\\udp", "\\icmp", "\\sctp", "103", "58",
    "2",
];
const MACS: [&str; 7] = [
    "00:11:22:33:44:55",
    "ff:ff:ff:ff:ff:ff",
    "0011.2233.4455",
    "00-11-22-33-44-55",
    "001122334455",
    "01:00:5e:00:00:01",
    "0:1:2:3:4:5",
];
const ETHER_PROTOS: [&str; 24] = [
    "0x0800",
    "0x86dd",
    "0x0806",
    "0x8100",
    "0x88cc",
    "\\ip",
    "\\ip6",
    "\\arp",
    "\\rarp",
    "\\stp",
    "\\ipx",
    "\\atalk",
    "\\aarp",
    "\\decnet",
    "\\lat",
    "\\sca",
    "\\mopdl",
    "\\moprc",
    "\\iso",
    "\\netbeui",
    "0x42",
    "0xaa",
    "1500",
    "1501",
];
const ABBREVIATIONS: [&str; 40] = [
    "ip", "ip", "ip", "ip6", "ip6", "arp", "rarp", "tcp", "tcp", "tcp", "udp", "udp", "udp", "icmp", "icmp6",
    "sctp", "igmp", "igrp", "pim", "vrrp", "carp", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca",
    "moprc", "mopdl", "iso", "stp", "ipx", "netbeui", "clnp", "esis", "isis", "es-is", "is-is", "ip",
];
const LEVELS: [&str; 8] = ["l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "isis proto 15"];
const LLC: [&str; 16] = [
    "llc",
    "llc i",
    "llc s",
    "llc u",
    "llc rr",
    "llc rnr",
    "llc rej",
    "llc ui",
    "llc ua",
    "llc disc",
    "llc dm",
    "llc sabme",
    "llc test",
    "llc xid",
    "llc frmr",
    "llc UI",
];
const WIRELESS: [&str; 24] = [
    "type mgt",
    "type ctl",
    "type data",
    "wlan type data",
    "type mgt subtype beacon",
    "type mgt subtype probe-req",
    "type mgt subtype assoc-req",
    "subtype beacon",
    "subtype ack",
    "type ctl subtype rts",
    "type ctl subtype cts",
    "type data subtype qos-data",
    "wlan type data subtype null",
    "dir nods",
    "dir tods",
    "dir fromds",
    "dir dstods",
    "dir 1",
    "type 0",
    "type 8 subtype 0x80",
    "type 0x04",
    "subtype qos-data",
    "wlan type mgt subtype deauth",
    "type ctl subtype ps-poll",
];
const SUN_ATM: [&str; 20] = [
    "vpi 0",
    "vci 5",
    "vpi 3",
    "vci 100",
    "vpi > 3",
    "vci < 20",
    "vpi (0 or 1)",
    "lane",
    "oamf4s",
    "oamf4e",
    "oamf4",
    "oam",
    "metac",
    "bcc",
    "oamf4sc",
    "oamf4ec",
    "sc",
    "ilmic",
    "connectmsg",
    "metaconnect",
];
const PF_LOG: [&str; 14] = [
    "ifname em0",
    "on lo0",
    "rnr 3",
    "rulenum 0",
    "srnr 1",
    "subrulenum 7",
    "rset main",
    "ruleset a",
    "reason match",
    "reason short",
    "action pass",
    "action block",
    "reason memory",
    "action nat",
];
const SS7: [&str; 16] = [
    "fisu",
    "lssu",
    "msu",
    "lsu",
    "hfisu",
    "hlssu",
    "hmsu",
    "sio 3",
    "opc 100",
    "dpc 200",
    "sls 7",
    "hsio 1",
    "hopc 5",
    "hdpc 6",
    "hsls 2",
    "opc (1 or 2)",
];

const DIRECTIONS: [&str; 8] =
    ["", "", "src ", "dst ", "src or dst ", "dst or src ", "src and dst ", "dst and src "];

impl Expressions {
    pub(super) fn id(&mut self, heir: Heir) -> String {
        let stock: &[&str] = match heir {
            Heir::Nothing => &["80"],
            Heir::Host => &HOSTS,
            Heir::HostV6 => &HOSTS_V6,
            Heir::Net => &NETS,
            Heir::Port => &PORTS,
            Heir::PortRange => &RANGES,
            Heir::Proto => &PROTOS,
            Heir::Mac => &MACS,
        };
        (*self.random.pick(stock)).to_owned()
    }

    pub(super) fn primitive(&mut self) -> Piece {
        if self.random.one_of(1, 3)
            && let Some(piece) = self.of_family()
        {
            return piece;
        }
        // The link layers without addresses, LLC or VLANs get those at the end seldom: they are errors there.
        let kinds = if self.has_ethernet_layers() || self.random.one_of(1, 20) { 33 } else { 25 };
        match self.random.below(kinds) {
            0..8 => Piece::alone(*self.random.pick(&ABBREVIATIONS)),
            8..12 => self.host(),
            12 | 13 => self.net(),
            14..19 => self.port(),
            19 | 20 => self.port_range(),
            21 | 22 => self.proto(),
            23 => self.length(),
            24 if self.random.one_of(1, 3) => self.proto_chain(),
            24 => self.rare(),
            25 | 26 => self.cast(),
            27 | 28 => self.ether(),
            29 | 30 => Piece::alone(self.layer()),
            31 => Piece::alone(*self.random.pick(&LEVELS)),
            _ => Piece::alone(*self.random.pick(&LLC)),
        }
    }

    /// A primitive that only this kind of link layer has; seldom one of another.
    fn of_family(&mut self) -> Option<Piece> {
        let family = if self.random.one_of(1, 100) {
            *self.random.pick(&[Family::Wireless, Family::SunAtm, Family::PacketFilterLog, Family::Ss7])
        } else {
            self.family
        };
        match family {
            Family::Ethernet => Some(self.ether()),
            Family::Wireless => Some(self.wireless()),
            Family::SunAtm => Some(Piece::alone(*self.random.pick(&SUN_ATM))),
            Family::PacketFilterLog => Some(Piece::alone(*self.random.pick(&PF_LOG))),
            Family::Ss7 => Some(Piece::alone(*self.random.pick(&SS7))),
            Family::Bare => None,
        }
    }

    fn direction(&mut self) -> &'static str {
        DIRECTIONS[self.random.below(DIRECTIONS.len() as u64) as usize]
    }

    fn host(&mut self) -> Piece {
        let direction = self.direction();
        let word = if direction.is_empty() || self.random.one_of(1, 2) { "host " } else { "" };
        if self.random.one_of(1, 4) {
            let proto = *self.random.pick(&["", "ip6 "]);
            let id = self.id(Heir::HostV6);
            return Piece::with(format!("{proto}{direction}{word}{id}"), Heir::HostV6);
        }
        let proto = *self.random.pick(&["", "", "", "ip ", "arp ", "rarp "]);
        let id = self.id(Heir::Host);
        Piece::with(format!("{proto}{direction}{word}{id}"), Heir::Host)
    }

    fn net(&mut self) -> Piece {
        let direction = self.direction();
        if self.random.one_of(1, 4) {
            let id = *self.random.pick(&NETS_V6);
            return Piece::alone(format!("{direction}net {id}"));
        }
        let proto = *self.random.pick(&["", "", "ip ", "arp "]);
        Piece::with(format!("{proto}{direction}net {}", self.id(Heir::Net)), Heir::Net)
    }

    fn port(&mut self) -> Piece {
        let proto = *self.random.pick(&["", "", "tcp ", "tcp ", "udp ", "udp ", "sctp "]);
        let direction = self.direction();
        Piece::with(format!("{proto}{direction}port {}", self.id(Heir::Port)), Heir::Port)
    }

    fn port_range(&mut self) -> Piece {
        let proto = *self.random.pick(&["", "tcp ", "udp ", "sctp "]);
        let direction = self.direction();
        Piece::with(format!("{proto}{direction}portrange {}", self.id(Heir::PortRange)), Heir::PortRange)
    }

    fn proto(&mut self) -> Piece {
        if self.random.one_of(1, 4) {
            return Piece::alone(format!("ether proto {}", self.random.pick(&ETHER_PROTOS)));
        }
        let proto =
            *self.random.pick(&["ip proto", "ip6 proto", "proto", "ip proto", "ip6 proto", "iso proto"]);
        Piece::with(format!("{proto} {}", self.id(Heir::Proto)), Heir::Proto)
    }

    fn proto_chain(&mut self) -> Piece {
        let version = *self.random.pick(&["ip", "ip6", "ip6"]);
        let proto = *self.random.pick(&["6", "17", "58", "51", "59", "44", "0", "1", "50", "\\tcp", "132"]);
        Piece::alone(format!("{version} protochain {proto}"))
    }

    fn cast(&mut self) -> Piece {
        let texts = [
            "broadcast",
            "multicast",
            "ether broadcast",
            "ether multicast",
            "ip multicast",
            "ip6 multicast",
            "ip broadcast",
        ];
        Piece::alone(*self.random.pick(&texts))
    }

    fn ether(&mut self) -> Piece {
        let proto = *self.random.pick(&["ether", "ether", "link", "wlan", "fddi", "tr", "ppp", "slip"]);
        let direction = self.direction();
        Piece::with(format!("{proto} {direction}host {}", self.id(Heir::Mac)), Heir::Mac)
    }

    fn length(&mut self) -> Piece {
        let word = *self.random.pick(&["less", "greater"]);
        Piece::alone(format!("{word} {}", self.random.pick(&[0, 40, 54, 60, 64, 100, 1500, 65535])))
    }

    fn wireless(&mut self) -> Piece {
        if self.random.one_of(2, 3) {
            return Piece::alone(*self.random.pick(&WIRELESS));
        }
        let which =
            *self.random.pick(&["ra", "ta", "addr1", "addr2", "addr3", "addr4", "src", "dst", "src or dst"]);
        Piece::with(format!("wlan {which} {}", self.id(Heir::Mac)), Heir::Mac)
    }

    /// A primitive that is rare in practice.
    fn rare(&mut self) -> Piece {
        let texts = [
            "decnet host 1.2",
            "decnet src 10.5",
            "decnet dst host 63.1023",
            "byte 5 = 3",
            "byte 0 > 10",
            "ip proto 300",
            "inbound",
            "outbound",
            "ifindex 3",
            "net 10.0.0.1/8",
            "port 70000",
            "host 1.2.3.4.5",
            "host 300.1.1.1",
            "ip host ::1",
            "ip6 host 10.0.0.1",
            "ether host 1.2.3.4",
            "host 00:11:22:33:44:55",
            "src 10.0.0.0/8",
            "host 167772161",
            "net 10",
            "ip protochain 6",
            "ip6 protochain 17",
            "protochain 58",
            "ip6 protochain \\tcp",
            "gateway nowhere",
            "ip proto tcp",
            "tcp and 80",
            "port not 80",
            "host not 10.0.0.1",
            "vlan 5000",
            "mpls 2000000",
            "ether[0:3] = 1",
            "isis[0] = 1",
            "1 << 32 = 1",
            "ip[8] / 0 = 1",
            "5 = 5",
            "1 > 2",
            "(5) = 5",
            "10 % 4 + 1 = 0",
            "20 % 7 % 4 = 2",
            "2 * 3 ^ 1 = 4",
        ];
        Piece::alone(*self.random.pick(&texts))
    }
}
