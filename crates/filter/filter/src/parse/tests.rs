use super::*;
use crate::ast::ArithOp;

fn tree(text: &str) -> String {
    match parse(text) {
        Ok(ast) => ast.to_string(),
        Err(error) => panic!("{}", error.render(text)),
    }
}

fn rejects(text: &str) -> Error {
    parse(text).err().unwrap_or_else(|| panic!("{text:?} parses"))
}

#[test]
fn and_and_or_go_from_left_to_right() {
    assert_eq!(tree("ip or tcp and udp"), "chain\n  ip\n  or tcp\n  and udp\n");
    assert_eq!(tree("not ip and tcp"), "chain\n  not\n    ip\n  and tcp\n");
}

#[test]
fn elided_qualifiers_stay_elided() {
    assert_eq!(tree("tcp dst port 80 or 443"), "chain\n  tcp dst port\n    80\n  or 443\n");
    assert_eq!(tree("port (80 or not 22)"), "port\n  group\n    chain\n      80\n      or not\n        22\n");
    assert_eq!(tree("port not 80"), "port\n  not\n    80\n");
}

#[test]
fn parentheses_hold_filters_ids_or_numbers() {
    assert_eq!(tree("(ip[0]) & 1 = 1"), "(ip[0] & 1) = 1\n");
    assert_eq!(tree("((5)) = (5)"), "5 = 5\n");
    assert_eq!(tree("(ip)"), "group\n  ip\n");
    assert_eq!(tree("vlan ((5))"), "vlan 5\n");
}

#[test]
fn operators_bind_as_in_libpcap() {
    for (text, expected) in [
        ("1 + 2 * 3 = 7", "(1 + (2 * 3)) = 7\n"),
        ("ip[0] & 0xf = 5", "(ip[0] & 15) = 5\n"),
        ("1 | 2 & 3 << 4 + 5 * 6 = 0", "(1 | (2 & (3 << (4 + (5 * 6))))) = 0\n"),
        ("10 - 4 - 3 = 3", "((10 - 4) - 3) = 3\n"),
        ("10 % 4 + 1 = 0", "(10 % (4 + 1)) = 0\n"),
        ("20 % 7 % 4 = 2", "(20 % (7 % 4)) = 2\n"),
        ("2 * 3 ^ 1 = 4", "(2 * (3 ^ 1)) = 4\n"),
        ("- 3 * 2 = 0", "(-3 * 2) = 0\n"),
        ("- 3 % 2 = 0", "-(3 % 2) = 0\n"),
    ] {
        assert_eq!(tree(text), expected, "{text}");
    }
    assert_eq!(ArithOp::Xor.name(), "^");
}

#[test]
fn texts_outside_the_grammar_are_syntax_errors() {
    for text in [
        "1.2.3.4",
        "foo",
        "80",
        "10 and tcp",
        "tcp 80",
        "ip proto tcp",
        "(tcp)[0] = 1",
        "subtype 0x80",
        "less (5)",
        "net 10/8",
        "tcp and",
        "(tcp",
        "tcp)",
        "host",
        "host tcp",
        "host (tcp or udp)",
        "src or host a",
        "ip[0]",
        "ip[0] and tcp",
        "ip[0:] = 1",
        "ip[] = 1",
        "1 =< 2",
        "1 <> 2",
        "port (80 or tcp)",
        "src proto 6",
        "vlan vlan",
        "not",
        "()",
        "mask",
        "vpi (1 and 2)",
        "byte 1 ! 2",
        "ip[0] = ",
        "host 1.2.3.4/",
        "ifname 5",
        "(1.2.3.4)",
        "port 80 = 5",
        "host ((tcp))",
        "-",
        "len",
        "1 2",
    ] {
        assert_eq!(rejects(text).message, SYNTAX, "{text}");
        assert!(!rejects(text).hint.is_empty(), "{text}");
    }
}

#[test]
fn wlan_names_are_known_in_any_case() {
    assert_eq!(tree("wlan type MGT subtype Beacon"), "frame control & 0xfc = 0x80\n");
    assert_eq!(tree("subtype qos-data"), "frame control & 0xfc = 0x88\n");
    assert_eq!(rejects("type 3").message, "invalid 802.11 type value 0x03");
    assert_eq!(rejects("dir 4").message, "invalid 802.11 direction value 0x4");
}

#[test]
fn nesting_is_bounded_and_length_is_not() {
    for deep in ["(".repeat(100_000), "not ".repeat(100_000), format!("1 = {}", "-".repeat(100_000))] {
        assert!(rejects(&deep).message.starts_with("the filter nests deeper"));
    }
    let sum = format!("1{} = 1", " + 1".repeat(100_000));
    assert!(rejects(&sum).message.starts_with("the filter nests deeper"));
    let allowed = format!("{}ip{}", "(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX));
    assert!(parse(&allowed).is_ok());
    let long = format!("host 1.2.3.4{}", " or 1.2.3.4 and not 1.2.3.5".repeat(100_000));
    assert!(parse(&long).is_ok());
}

#[test]
fn a_name_by_itself_gets_a_hint_that_fits() {
    assert_eq!(rejects("TCP and port 80").hint, "the words of the language are in lower case");
    assert_eq!(
        rejects("example.org").hint,
        "'example.org' is not a word of the language; if it is a host, write host before it"
    );
    assert!(rejects("10.0.0.1").hint.starts_with("say what this is"));
    assert_eq!(rejects("tcp port").hint, "the name or number of a port was expected here");
}

#[test]
fn mistakes_in_forms_get_hints_that_fit() {
    let cases = [
        ("anyvlan tcp", "'anyvlan' needs parentheses: anyvlan(...)"),
        ("not fragment", "'fragment' needs parentheses: fragment(...)"),
        ("inner(foo, tcp)", "this is not a kind of tunnel: "),
        ("inner(mpls, tcp)", "this is not a kind of tunnel: "),
        ("inner(gre)", "behind the kind of tunnel come a comma and a filter: inner(gre, ...)"),
        ("inner(gtp 0x1001 udp port 53)", "behind the kind of tunnel come a comma"),
        ("inner(vxlan tcp)", "behind the kind of tunnel come a comma"),
        ("inner(vxlan 42 tcp)", "behind the kind of tunnel come a comma"),
        ("inner(vxlan", "')' was expected here"),
    ];
    for (text, hint) in cases {
        assert!(rejects(text).hint.starts_with(hint), "{text}: {}", rejects(text).hint);
    }
    for text in ["inner(vxlan)", "inner(vxlan 42 and tcp)", "inner(geneve or tcp)", "inner(host gre)"] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn the_tree_shows_primitives_as_they_are_written() {
    for text in [
        "vlan 5",
        "mpls",
        "ip broadcast",
        "less 60",
        "byte 3 & 1",
        "llc i",
        "ifname em0",
        "dir 2",
        "hfisu",
        "lane",
    ] {
        assert_eq!(tree(text), format!("{text}\n"));
    }
    assert_eq!(tree("vci (1 or 2)"), "vci = 1 or = 2\n");
    assert_eq!(tree("hopc > 5"), "hopc > 5\n");
}
