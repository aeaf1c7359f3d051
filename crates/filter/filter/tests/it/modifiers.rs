//! Our own words change no text that libpcap takes.
//!
//! A word of ours is one only before a parenthesis, where libpcap's grammar has no place for a name.

use tapline_filter::ast::{Expr, ExprKind, Primitive};
use tapline_filter::{Options, compile, parse};
use tapline_packet::LinkType;
use tapline_testkit::libpcap::{CompileSettings, Libpcap};
use tapline_testkit::random::Random;

const PFLOG: i32 = 117;

/// Names of interfaces and rule sets are looked up nowhere, so `ifname inner` is a filter.
const PIECES: [&str; 26] = [
    "ifname inner",
    "ruleset scoped",
    "ifname anyvlan",
    "on extensions",
    "on fragment",
    "on gre",
    "inner",
    "scoped",
    "fragment",
    "anyvlan",
    "extensions",
    "\\inner",
    "(",
    ")",
    "( ",
    ")",
    "and",
    "or",
    "and",
    "not",
    "ip",
    "tcp",
    "port 80",
    "ifname",
    "inner(ip",
    "not scoped (tcp",
];

fn has_form(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Modified(..) | ExprKind::Primitive(Primitive::Fragment(_)) => true,
        ExprKind::Chain(first, rest) => has_form(first) || rest.iter().any(|(_, part)| has_form(part)),
        ExprKind::Not(inner) | ExprKind::Group(inner) | ExprKind::Qualified(_, inner) => has_form(inner),
        _ => false,
    }
}

#[test]
fn texts_that_libpcap_takes_have_no_forms() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut random = Random::new(17);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..60_000 {
        let count = random.between(1..=8);
        let pieces: Vec<&str> = (0..count).map(|_| *random.pick(&PIECES)).collect();
        let mut text = pieces.join(*random.pick(&[" ", " ", "", "\t"]));
        if random.one_of(1, 2) {
            let open = text.matches('(').count().saturating_sub(text.matches(')').count());
            text.push_str(&")".repeat(open));
        }
        let ours = parse(&text);
        // A bare name may be asked of the network: only texts that we take to be free of such are shown to libpcap.
        let looks_up = text.contains("host") || text.contains("src") || text.contains("dst");
        let theirs = !looks_up
            && pcap
                .compile(&text, CompileSettings { optimise: false, ..CompileSettings::new(PFLOG) })
                .is_ok();
        let form = ours.as_ref().is_ok_and(|ast| ast.root.as_ref().is_some_and(has_form));
        assert!(!(theirs && form), "libpcap takes {text:?}");
        assert!(!theirs || ours.is_ok(), "libpcap takes {text:?}, and we do not");
        taken += u64::from(theirs);
        refused += u64::from(form);
    }
    assert!(taken > 300 && refused > 20, "{taken} texts taken, {refused} with forms");
}

#[test]
fn forms_are_refused_by_libpcap_for_their_syntax() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    for text in [
        "scoped(vlan and ip)",
        "ip or scoped (vlan)",
        "not inner(ip)",
        "inner(gre, ip)",
        "inner (vxlan 5, ip)",
        "anyvlan(ip)",
        "extensions(tcp port 80)",
        "fragment()",
        "fragment(later) and ip",
    ] {
        let refusal = pcap.compile(text, CompileSettings::new(1)).expect_err(text);
        assert!(refusal.contains("syntax error") || refusal.contains("illegal"), "{text}: {refusal}");
        assert!(compile(text, &Options::default()).is_ok(), "{text}");
    }
}

#[test]
fn the_words_stay_names_elsewhere() {
    let options = Options::new(LinkType::PFLOG);
    for text in ["ifname inner", "ifname scoped and (ip)", "ruleset fragment or ifname \\inner", "on gre"] {
        let ast = parse(text).expect(text);
        assert!(!has_form(ast.root.as_ref().expect("a tree")), "{text}");
        assert!(compile(text, &options).is_ok(), "{text}");
    }
    for text in [
        "inner",
        "scoped and ip",
        "host inner(ip)",
        "\\inner(ip)",
        "inner()",
        "fragment(third)",
        "inner(gre ip)",
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.message.starts_with("can't parse filter expression"), "{text}: {}", error.message);
    }
    let too_large = parse("inner(vxlan 16777216, ip)").expect_err("24 bits");
    assert_eq!(too_large.message, "vxlan number 16777216 greater than maximum 16777215");
}
