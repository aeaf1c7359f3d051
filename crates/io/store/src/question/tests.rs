//! Questions of filters to the index.

use std::net::{IpAddr, Ipv4Addr};

use tapline_filter::Options;

use super::*;
use crate::keys::{flow_value, mac_value, pair_value, port_value};

fn of(text: &str) -> Question {
    Question::of(text, &Options::default())
}

fn names(text: &str, fact: Fact) -> bool {
    of(text).facts().contains(&fact)
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn ipv4(last: u8) -> u128 {
    u32::from(Ipv4Addr::new(10, 0, 0, last)).into()
}

fn pair(one: u8, other: u8) -> Fact {
    Fact::of(Class::Pair, pair_value(address(one), address(other)))
}

#[test]
fn two_hosts_ask_for_their_pair() {
    for text in [
        "host 10.0.0.1 and host 10.0.0.2",
        "src host 10.0.0.2 and dst host 10.0.0.1",
        "host 10.0.0.1 and (host 10.0.0.2 or host 10.0.0.3) and not port 22",
        "ip host 10.0.0.1 and tcp port 80 and host 10.0.0.2",
    ] {
        assert!(names(text, pair(1, 2)), "{text}");
    }
    for text in ["host 10.0.0.1 and host 10.0.0.1", "host 10.0.0.1 or host 10.0.0.2", "host 10.0.0.1"] {
        assert!(!of(text).facts().iter().any(|fact| fact.class == Class::Pair as u8), "{text}");
    }
    // One of the two may stand for both.
    let text = "(host 10.0.0.1 or host 10.0.0.2) and host 10.0.0.2";
    assert!(!names(text, pair(1, 2)), "{text}");
}

#[test]
fn five_tuples_ask_for_their_flow() {
    let flow = Fact::of(Class::Flow, flow_value((address(1), 40_000), (address(2), 80), 6));
    for text in [
        "ip src host 10.0.0.1 and ip dst host 10.0.0.2 and tcp src port 40000 and tcp dst port 80",
        "tcp port 80 and port 40000 and host 10.0.0.2 and host 10.0.0.1",
    ] {
        assert!(names(text, flow), "{text}");
    }
    assert!(!names("host 10.0.0.1 and host 10.0.0.2 and tcp port 80", flow));
}

#[test]
fn words_behind_a_tunnel_ask_for_the_packet_in_it() {
    let (own, inner) = (Fact::of(Class::Ipv4, ipv4(1)), Fact::inner(Class::Ipv4, ipv4(1)));
    for text in [
        "vxlan and host 10.0.0.1",
        "geneve 7 and vlan 5 and host 10.0.0.1",
        "inner(host 10.0.0.1)",
        "inner(gre, host 10.0.0.1 and tcp)",
        "anyvlan(inner(vxlan 42, host 10.0.0.1))",
        "tcp or (vlan and inner(host 10.0.0.1))",
    ] {
        let facts = of(text).facts();
        assert_eq!((facts.contains(&own), facts.contains(&inner)), (false, true), "{text}");
    }
    for text in ["mpls and host 10.0.0.1", "pppoes 3 and host 10.0.0.1", "inner(arp) and host 10.0.0.1"] {
        let facts = of(text).facts();
        assert_eq!((facts.contains(&own), facts.contains(&inner)), (true, false), "{text}");
    }
    for text in [
        "geneve or host 10.0.0.1",
        "not vxlan and host 10.0.0.1",
        "inner(inner(host 10.0.0.1))",
        "vxlan and vxlan and host 10.0.0.1",
        "mpls and inner(host 10.0.0.1)",
    ] {
        let facts = of(text).facts();
        assert!(!facts.contains(&own) && !facts.contains(&inner), "{text}");
    }
    let port = Fact::of(Class::Port, port_value(17, 4789));
    assert!(names("vxlan and host 10.0.0.1", port) && names("inner(vxlan, arp)", port));
    // Where its parentheses end the shift, the packet around is asked.
    let scoped = Options { scoped: true, ..Options::default() };
    let facts = Question::of("(vxlan and tcp) and host 10.0.0.1", &scoped).facts();
    assert!(facts.contains(&own) && !facts.contains(&inner));
    assert!(names("(vxlan and tcp) and host 10.0.0.1", inner));
    assert!(names("scoped(vxlan and tcp) and host 10.0.0.1", own));
}

#[test]
fn networks_ask_for_the_24_bits_that_the_index_has() {
    let nets = |text: &str| of(text).facts().iter().filter(|fact| fact.class == Class::Ipv4Net as u8).count();
    for (text, count) in [
        ("net 10.0.0.0/24", 1),
        ("net 10.0.0", 1),
        ("net 10.0.0.128/26", 1),
        ("net 10.0.0.0 mask 255.255.255.0", 1),
        ("net 10.0.0.0/22", 4),
        ("net 10.0.64.0/18", 64),
        ("net 10.0.0.0/17", 0),
        ("net 10", 0),
        ("host 10.0.0.1", 1),
    ] {
        assert_eq!(nets(text), count, "{text}");
    }
    let facts = of("net 2001:db8::/62").facts();
    let last = Fact::of(Class::Ipv6Net, 0x2001_0db8_0000_0003);
    assert!(facts.len() == 4 && facts.contains(&last), "{facts:?}");
    assert_eq!(of("net 2001:db8::/32"), Question::Anything);
}

#[test]
fn questions_have_link_addresses_and_port_ranges() {
    let mac = Fact::of(Class::Mac, mac_value(&[2, 0, 0, 0, 0, 1]));
    assert!(names("ether src 02:00:00:00:00:01", mac) && names("vlan and ether host 02:00:00:00:00:01", mac));
    assert_eq!(of("inner(ether host 02:00:00:00:00:01)").facts().len(), 6);
    assert_eq!(of("tcp portrange 8000-8003").facts().len(), 4);
    assert_eq!(of("tcp portrange 1-2000"), Question::Anything);
}
