use crate::{FplOptions, Registry, compile};
use std::sync::Arc;
use tapline_packet::LinkType;

fn error(text: &str) -> (Option<usize>, String, String) {
    error_with(text, &FplOptions::default())
}

fn error_with(text: &str, options: &FplOptions) -> (Option<usize>, String, String) {
    let error = compile(text, options).expect_err(text);
    (error.span.map(|span| span.start), error.message, error.hint)
}

#[test]
fn names_without_a_meaning_say_so() {
    for (text, at, message, hint) in [
        (
            "RETURN a;",
            7,
            "'a' has no meaning here",
            "CONST name = number; or MACRO name = expression; before its first use gives it one",
        ),
        ("RETURN ip_src;", 7, "'ip_src' has no meaning here", "packet fields begin with PKT: PKT.IP_SRC"),
        ("RETURN proto_tcp;", 7, "'proto_tcp' has no meaning here", "there is PROTO_TCP"),
        ("RETURN PKT.IP_SOURCE;", 7, "there is no field PKT.IP_SOURCE", ""),
        ("RETURN PKT.ip_src;", 7, "there is no field PKT.ip_src", "fields are in upper case: PKT.IP_SRC"),
        ("CONST a = 1; CONST a = 2;", 19, "'a' has a meaning already", "choose another name"),
        ("CONST PROTO_TCP = 1;", 6, "'PROTO_TCP' has a meaning already", "choose another name"),
        ("CONST a = R[0];", 10, "this is not a constant", "MACRO defines a name for an expression"),
        ("MACRO a = b; CONST b = 1; RETURN a;", 10, "'b' has no meaning here", ""),
        ("MACRO a = a; RETURN a;", 10, "'a' has no meaning here", ""),
        ("MACRO a(x) = x; RETURN a;", 23, "'a' takes 1 arguments, here are 0", "it was defined as a(x)"),
        (
            "CONST a = 1; RETURN a(2);",
            20,
            "'a' is a constant and takes no arguments",
            "leave the parentheses out",
        ),
        ("MACRO a(x) = y; MACRO y = 1; RETURN a(1);", 13, "'y' has no meaning here", ""),
    ] {
        let (start, found, its_hint) = error(text);
        assert_eq!((start, found.as_str()), (Some(at), message), "{text}");
        assert!(hint.is_empty() || its_hint == hint, "{text}: {its_hint}");
    }
}

#[test]
fn places_are_registers_and_cells() {
    for (text, at, message) in [
        ("CONST a = 1; a = 2;", 13, "this cannot be written to"),
        ("MACRO a = 1 + 2; a = 2;", 10, "this cannot be written to"),
        ("R[32] = 1;", 2, "there is no register 32"),
        ("R[R[0]] = 1;", 2, "a register's number is a constant"),
        ("R[PKT.LEN] = 1;", 2, "a register's number is a constant"),
        ("BREAK;", 0, "BREAK outside of a loop"),
        ("RETURN 1; RETURN 2;", 10, "this is never reached"),
        ("IF (R[0]) THEN RETURN 1; ELSE RETURN 2; FI RETURN 3;", 43, "this is never reached"),
        ("FOR (R[0] = 0; R[0] < 2; R[0]++) BREAK; R[1] = 1; ROF", 40, "this is never reached"),
        ("FOR (R[0] = 0; R[0] < 2; R[0]++) R[0] = 1; ROF", 33, "R[0] counts the rounds of a loop around"),
        (
            "FOR (R[0] = 0; R[0] < 2; R[0]++) FOR (R[0] = 0; R[0] < 2; R[0]++) ROF ROF",
            38,
            "R[0] counts the rounds of a loop around",
        ),
        ("FOR (R[0] = 0; R[1] < 2; R[0]++) ROF", 15, "the loop's register is R[0]"),
        ("FOR (R[0] = 0; R[0] < 2; R[1]++) ROF", 25, "the loop's register is R[0]"),
        ("FOR (M[0] = 0; M[0] < 2; M[0]++) ROF", 5, "this is not a register"),
        ("FOR (R[0] = 0; 2 > R[0]; R[0]++) ROF", 15, "this is not a register"),
    ] {
        let (start, found, _) = error(text);
        assert_eq!((start, found.as_str()), (Some(at), message), "{text}");
    }
    let none = FplOptions { memory_cells: 0, ..FplOptions::default() };
    assert_eq!(error_with("RETURN M[0];", &none).1, "this program has no memory");
    assert!(compile("RETURN EXTERN(count, 0, 0);", &none).is_err());
    for (cells, fits) in [(0, true), (1, true), (3, false), (1 << 24, true), (1 << 25, false)] {
        let options = FplOptions { memory_cells: cells, ..FplOptions::default() };
        assert_eq!(compile("RETURN 1;", &options).is_ok(), fits, "{cells} cells");
    }
}

#[test]
fn signs_must_agree_where_they_matter() {
    for (text, message) in [
        ("RETURN R[0] < -1;", "'<' of a number with a sign and one without"),
        ("RETURN PKT.SB[0] >= R[0];", "'>=' of a number with a sign and one without"),
        ("RETURN R[0] / S8(3);", "'/' of a number with a sign and one without"),
        ("R[0] %= -3;", "'%' of a number with a sign and one without"),
        ("M[0] /= S8(R[0]);", "'/' of a number with a sign and one without"),
        ("RETURN R[0] < 0;", "a number without a sign is never less than 0"),
        ("RETURN PKT.LEN >= 0;", "a number without a sign is never less than 0"),
        ("RETURN R[0] / 0;", "this divides by 0"),
        ("M[0] %= 1 - 1;", "this divides by 0"),
        ("RETURN PKT.B[0].U4[2];", "there is no piece 2"),
    ] {
        assert_eq!(error(text).1, message, "{text}");
    }
    for text in [
        "RETURN S64(R[0]) < -1;",
        "RETURN S64(R[0]) < 0;",
        "RETURN R[0] == -1;",
        "RETURN R[0] + -1 > 5;",
        "RETURN PKT.SB[0] / 3 > -4;",
        "RETURN PKT.SB[0] >> R[0];",
        "RETURN -R[0] < 5;",
    ] {
        assert!(compile(text, &FplOptions::default()).is_ok(), "{text}");
    }
}

#[test]
fn only_registered_functions_are_called() {
    let text = "EXTERN(sampel, 0, 1);";
    let (at, message, hint) = error(text);
    assert_eq!((at, message.as_str()), (Some(7), "'sampel' is not a function that this program may call"));
    assert_eq!(hint, "registered: count, rtsp_ports, sample");
    let mut registry = Registry::standard();
    let text = "EXTERN(sample, 0, 1);";
    let options =
        |registry: &Registry| FplOptions { registry: Arc::new(registry.clone()), ..FplOptions::default() };
    assert!(compile(text, &options(&registry)).is_ok());
    assert!(registry.remove("sample").is_some());
    assert_eq!(error_with(text, &options(&registry)).2, "registered: count, rtsp_ports");
    assert_eq!(error_with(text, &options(&Registry::new())).2, "registered: none");
}

#[test]
fn fields_are_known_where_frames_are() {
    let on = |link_type| FplOptions { link_type, ..FplOptions::default() };
    for link_type in
        [LinkType::ETHERNET, LinkType::RAW, LinkType::IPV4, LinkType::LINUX_SLL, LinkType::LINUX_SLL2]
    {
        assert!(compile("RETURN PKT.TCP_DPORT == 80;", &on(link_type)).is_ok(), "{link_type}");
    }
    assert!(compile("RETURN PKT.B[0];", &on(LinkType::IEEE802_5)).is_ok());
    for (text, link_type) in
        [("RETURN PKT.IP_SRC;", LinkType::IEEE802_5), ("RETURN PKT.ETH_SRC;", LinkType::RAW)]
    {
        assert!(error_with(text, &on(link_type)).1.contains("is not known for link type"), "{text}");
    }
}

#[test]
fn macros_cannot_make_a_program_explode() {
    let mut text = String::from("MACRO m0 = PKT.B[0] + PKT.B[1];\n");
    for number in 1..40 {
        text += &format!("MACRO m{number} = m{} + m{};\n", number - 1, number - 1);
    }
    text += "RETURN m39;";
    assert!(error(&text).1.contains("with its macros replaced"));
    let mut text = String::from("MACRO m0 = R[0];\n");
    for number in 1..2000 {
        text += &format!("MACRO m{number} = 1+m{};\n", number - 1);
    }
    text += "RETURN m1999;";
    assert!(error(&text).1.contains("levels are nested"));
}
