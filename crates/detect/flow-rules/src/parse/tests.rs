use super::*;

const EXAMPLE: &str = "\
# site.rules
filter not port 22                                          # first, for all packets
flow tcp 192.0.2.1:1024 <-> 198.51.100.7:443 => drop
flow udp [2001:db8::1]:53 -> [2001:db8::2]:4000 => to ids
flow icmp 192.0.2.1 <-> 192.0.2.9 => sample 1/100
flow 50 192.0.2.9 -> 192.0.2.1 => count
rule scan: tcp dst portrange 1-1023 and net 10.0.0.0/8 => to ids, go on
rule web: tcp port 80 or tcp port 443 => to web, reflect
rule: vlan 7 and udp => count
sample 1/10
default drop
";

fn outputs() -> Vec<String> {
    ["web", "ids", "reflect"].map(str::to_owned).to_vec()
}

fn parsed(text: &str) -> Result<RuleFile, String> {
    parse(text, &outputs()).map_err(|error| error.render(text))
}

#[test]
fn a_file_is_read_as_it_is_written() {
    let file = parsed(EXAMPLE).expect("the example is right");
    assert_eq!(file.filter, "not port 22");
    assert_eq!((file.exact.len(), file.list.len()), (4, 3));
    assert_eq!(file.list[0].name, "scan");
    assert_eq!(file.list[0].actions, Actions { goes_on: true, ..Actions::to(Outputs::of(2)) });
    assert_eq!(file.list[1].actions.outputs, Outputs::of(1).and(Outputs::of(3)));
    assert_eq!(file.list[2].actions, Actions { goes_on: true, ..Actions::to(Outputs::default()) });
    assert_eq!(file.sample, Some(Share { chosen: 1, of: 10 }));
    assert_eq!(file.default, Actions::to(Outputs::default()));
    let shown = file.to_string();
    assert_eq!(parsed(&shown).expect(&shown).to_string(), shown);
}

#[test]
fn quotes_and_borders_of_lines() {
    assert_eq!(parsed("").expect("nothing is a file").default, Actions::PASS);
    let file = parsed("rule: tcp[13] & 3 != 0 => drop # why\r\n\trule a.b-c_1:ip=>pass").expect("right");
    assert_eq!(file.list[0].filter, "tcp[13] & 3 != 0");
    assert_eq!((file.list[1].name.as_str(), file.list[1].filter.as_str()), ("a.b-c_1", "ip"));
    let whole: Vec<char> = unquoted("a \"b # \\\" c\" d 'e' f").map(|(_, c)| c).collect();
    assert_eq!(whole.iter().collect::<String>(), "a  d  f");
}

#[test]
fn errors_name_line_column_and_mend() {
    let cases = [
        ("pass", "`pass` begins no statement", "filter, flow, rule"),
        (
            "\nflow icmp 192.0.2.300 <-> 192.0.2.9 => drop",
            "line 2, column 11: `192.0.2.300` is not an address",
            "192.0.2.1",
        ),
        (
            "flow tcp 192.0.2.1 -> 192.0.2.2:80 => drop",
            "`192.0.2.1` is not an address with a port",
            "192.0.2.1:443",
        ),
        ("flow tcp [::1]:1 -> 1.2.3.4:80 => drop", "different versions", "both IPv4"),
        ("flow gre 1.2.3.4 -> 1.2.3.5 => drop", "`gre` is not a protocol", "0 to 255"),
        ("flow tcp 1.2.3.4:1 - 1.2.3.5:2 => drop", "expected `->` or `<->`", "flow tcp"),
        ("flow tcp 1.2.3.4:1 -> 1.2.3.5:2 drop", "expected `=>`", "flow tcp"),
        (
            "\nrule a: ip => to nowhere",
            "line 2, column 18: there is no output `nowhere`",
            "web, ids, reflect",
        ),
        (
            "rule a: ip => pass\nrule a: ip6 => drop",
            "line 2, column 6: `rule a` is given twice",
            "line 1, column 6",
        ),
        ("rule 1a: ip => pass", "`1a` cannot be a name", "a letter first"),
        ("rule a ip => pass", "expected `:`", "rule NAME"),
        ("rule a: ip", "expected `=>`", "rule NAME"),
        ("rule a: => pass", "expected a filter", "tcp port 80"),
        ("\nrule a: tcp and => pass", "line 2, column 16", ""),
        ("rule a: ip => pass drop", "expected the end of the line", "commas"),
        ("rule a: ip => pass, drop", "goes nowhere", "drop alone"),
        ("rule a: ip => drop, go on", "goes nowhere", "drop alone"),
        ("rule a: ip => pass, go on, stop", "exclude each other", "go on"),
        ("rule a: ip => stop", "not where the packets go", "pass, stop"),
        ("rule a: ip => sample 1/10, go on", "go nowhere", "to NAME"),
        ("rule a: ip => sample 3/2", "`3/2` is not a share", "1/100"),
        ("rule a: ip => sample 1/0", "`1/0` is not a share", "1/100"),
        ("rule a: ip => go", "expected `on`", "go on"),
        ("rule a: ip =>", "expected an action", "pass, drop"),
        ("default count", "no rule may follow", "pass, drop"),
        ("default pass\ndefault drop", "line 2, column 1: `default` is given twice", "line 1, column 1"),
        ("filter ip\nfilter ip6", "given twice", "line 1"),
        ("sample 1/2\nsample 1/2", "given twice", "line 1"),
    ];
    for (text, message, mend) in cases {
        let error = parsed(text).err().unwrap_or_else(|| panic!("{text} is taken"));
        assert!(error.contains(message) && error.contains(mend), "{text}:\n{error}");
    }
}

#[test]
fn two_rules_for_the_same_packets_are_refused() {
    let one = "flow tcp 1.1.1.1:1 -> 2.2.2.2:2 => drop\n";
    let back = "flow tcp 2.2.2.2:2 -> 1.1.1.1:1 => pass\n";
    let both = "flow tcp 2.2.2.2:2 <-> 1.1.1.1:1 => pass\n";
    assert_eq!(parsed(&[one, back].concat()).expect("two directions").exact.len(), 2);
    for text in [[one, one], [one, both], [both, back], [both, both]] {
        let error = parsed(&text.concat()).expect_err("the same packets");
        assert!(
            error.starts_with("line 2, column 10: an earlier rule")
                && error.contains("the other is `flow tcp"),
            "{error}"
        );
    }
    let own = "flow tcp 1.1.1.1:1 -> 1.1.1.1:1 => drop\n";
    assert!(parsed(&[own, own].concat()).is_err(), "from an end to itself");
}

#[test]
fn long_lines_are_refused() {
    let text = format!("# {}", "x".repeat(LINE_MAX));
    assert!(parsed(&text).expect_err("too long").contains("at most 4096 bytes"));
}
