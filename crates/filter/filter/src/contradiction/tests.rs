use crate::{Options, compile};

/// The text below the message.
fn why(text: &str, options: &Options) -> String {
    let error = compile(text, options).expect_err("never true");
    let rendered = error.render(text);
    rendered.strip_prefix("expression rejects all packets\n").expect("libpcap's words first").to_owned()
}

fn old(text: &str) -> String {
    why(text, &Options::default())
}

#[test]
fn two_parts_and_their_field_are_named() {
    assert_eq!(
        old("ip and arp"),
        "  ip and arp\n  ~~     ^^^\n  `ip` requires EtherType 0x0800 (IPv4) at byte 12, `arp` requires 0x0806 (ARP) there"
    );
    let cases = [
        (
            "ip6 and tcp[13] = 2",
            ["`ip6` requires EtherType 0x86dd (IPv6)", "`tcp[13] = 2` requires 0x0800 (IPv4)"],
        ),
        ("icmp and vlan", ["`icmp` requires EtherType 0x0800 (IPv4)", "`vlan and icmp` looks behind it"]),
        ("tcp and udp", ["`tcp` and `udp` contradict each other", "^^^"]),
        (
            "host 10.0.0.1 and tcp dst port 80 and dst port 443",
            ["`tcp dst port 80` requires destination port 80", "`dst port 443` requires 443"],
        ),
        (
            "len > 5 and (ip or len = 3) and ip6 and arp",
            ["`ip6` requires EtherType 0x86dd (IPv6) at byte 12", "`arp`"],
        ),
        ("tcp and not ip and not ip6", ["these cannot all hold: `tcp`, `not ip`, `not ip6`", "~~~"]),
        (
            "not ip and icmp",
            ["`icmp` requires EtherType 0x0800 (IPv4) at byte 12, `not ip` excludes that", "^^^^"],
        ),
        ("vlan 5 and ip and arp", ["`ip` requires EtherType 0x0800 (IPv4) at byte 16", "behind `vlan 5`"]),
        (
            "tcp[13] = 2 and tcp[13] = 3",
            ["requires these bytes as 2, `tcp[13] = 3` requires 3", "^^^^^^^^^^^"],
        ),
    ];
    for (text, wanted) in cases {
        let said = old(text);
        assert!(wanted.iter().all(|part| said.contains(part)), "{text}:\n{said}");
    }
}

#[test]
fn forms_are_explained_too() {
    let scoped = Options { scoped: true, ..Options::default() };
    let said = why("(vlan 5) and ip", &scoped);
    assert!(said.contains("the shift of `vlan 5` ended before"), "{said}");
    let said = old("inner(vxlan, ip and arp)");
    assert!(
        said.contains("`ip` requires EtherType 0x0800 (IPv4), `arp` requires 0x0806 (ARP) there"),
        "{said}"
    );
    let said = old("arp and inner(tcp)");
    assert!(said.contains("`arp`") && said.contains("inner(...)"), "{said}");
    let said = old("extensions(tcp port 80 and udp port 53)");
    assert!(
        said.contains("`tcp port 80` requires IP protocol 6 (TCP), `udp port 53` requires 17 (UDP)"),
        "{said}"
    );
}

#[test]
fn tests_never_true_on_a_link_type_are_errors() {
    let options = Options::new(tapline_packet::LinkType::IPV4);
    assert!(why("ip6", &options).contains("`ip6` never holds on this link type"));
}

/// Whatever is proven never true has a reason, and the parts that are named are never true by themselves.
#[test]
fn every_proof_has_a_reason() {
    use tapline_testkit::expressions::Expressions;
    let mut stream = Expressions::new(5, 1);
    let mut proven = 0;
    for _ in 0..3000 {
        let text = stream.text();
        let Err(error) = compile(&text, &Options { netmask: Some(0), ..Options::default() }) else {
            continue;
        };
        if crate::is_never_true(&error) {
            proven += 1;
            assert!(error.span.is_some() && !error.hint.starts_with("its parts"), "{}", error.render(&text));
        }
    }
    assert!(proven > 50, "only {proven} texts are never true");
}

#[test]
fn large_filters_take_a_bounded_number_of_tries() {
    let hosts: Vec<String> = (1..=300).map(|n| format!("host 10.0.{}.{}", n / 256, n % 256)).collect();
    let text = format!("({}) and ip6 and arp", hosts.join(" or "));
    assert!(old(&text).contains("`ip6` requires EtherType 0x86dd"));
}
