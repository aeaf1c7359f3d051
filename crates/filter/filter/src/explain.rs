//! The meaning of a filter, in text: the tree as it is read, the program with the meaning of each test, and notes on
//! traps.
//!
//! ```text
//! Filter for EN10MB (Ethernet): tcp dst port 80 or 443
//!
//! It is read as:
//!   or
//!     tcp dst port 80          TCP segments, over IPv4 (first fragments) or IPv6 (without extension headers)
//!     tcp dst port 443         ...                                    <- qualifiers that the text leaves out
//!
//! Its program:
//!   (000) ldh  [12]                            EtherType
//!   (001) jeq  #0x86dd     jt 2 jf 6           is it IPv6?
//!
//! 19 instructions, at most 12 for a packet; a packet is accepted only if 38 bytes of it or more were captured.
//!
//! Note: ...
//! ```

mod listing;
pub(crate) mod meaning;
mod tree;

use crate::ast::{Arith, Ast, Expr, ExprKind, IdKind, Primitive, Protocol};
use crate::compile::compile;
use crate::contradiction::is_never_true;
use crate::options::{HandleKind, Options};
use crate::parse::parse;
use crate::resolve::lower;
use tapline_bpf::Program;
use tapline_syntax::Error;

/// Columns of a note's line.
const NOTE_WIDTH: usize = 96;

/// Explains the filter `text` to people. Lines end in line feeds.
///
/// A filter that can never be true is explained as well, with the parts that contradict each other.
///
/// # Errors
/// As [`compile`](crate::compile), but for that one.
///
/// ```
/// use tapline_filter::{Options, explain};
/// let text = explain("tcp dst port 80 or 443", &Options::default())?;
/// assert!(text.contains("tcp dst port 443"));
/// assert!(text.contains("is it IPv6?"));
/// # Ok::<(), tapline_filter::Error>(())
/// ```
pub fn explain(text: &str, options: &Options) -> Result<String, Error> {
    let ast = parse(text)?;
    let predicates = lower(&ast, options)?;
    let mut out = title(text, options);
    out += "It is read as:\n";
    out += &tree::render(&ast, text);
    match compile(text, options) {
        Ok(filter) => {
            let program = filter.program();
            out += "\nIts program:\n";
            out += &listing::render(program, &predicates);
            out += &measures(program);
        }
        Err(error) if is_never_true(&error) => out += &never(&error, text),
        Err(error) => return Err(error),
    }
    for note in notes(&ast, options) {
        out.push('\n');
        out += &wrapped(&format!("Note: {note}"));
    }
    Ok(out)
}

/// The filter `text` as it is read, with the qualifiers that it leaves out. Lines end in line feeds.
///
/// # Errors
/// If the text is not a filter.
pub fn tree(text: &str) -> Result<String, Error> {
    Ok(tree::render(&parse(text)?, text))
}

/// Lines of [`NOTE_WIDTH`] at most, those after the first indented.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > NOTE_WIDTH {
            out += "\n  ";
            width = 2;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += len;
    }
    out.push('\n');
    out
}

fn title(text: &str, options: &Options) -> String {
    let link_type = options.link_type;
    let name = link_type.name().map_or_else(|| format!("link type {}", link_type.0), str::to_owned);
    let description = link_type.description().map_or(String::new(), |text| format!(" ({text})"));
    let filter = if text.trim().is_empty() { "(empty)" } else { text.trim() };
    format!("Filter for {name}{description}: {filter}\n\n")
}

fn measures(program: &Program) -> String {
    let listing::Measures { longest, captured, loads } = listing::measure(program);
    let count = program.insns().len();
    let noun = if count == 1 { "instruction" } else { "instructions" };
    let short = match captured {
        None => "it rejects every packet".to_owned(),
        Some(0) if loads => "it may accept a packet of which nothing was captured".to_owned(),
        Some(0) => "how much of a packet was captured does not matter to it".to_owned(),
        Some(bytes) => format!("a packet is accepted only if {bytes} bytes of it or more were captured"),
    };
    format!("\n{count} {noun}, at most {longest} for a packet; {short}.\n")
}

/// The parts that make a filter never true.
fn never(error: &Error, text: &str) -> String {
    let rendered = error.render(text);
    let (_, reason) = rendered.split_once('\n').unwrap_or(("", ""));
    format!("\nNo packet can match, so there is no program:\n{reason}\n")
}

/// Traps of the language that this filter meets.
fn notes(ast: &Ast, options: &Options) -> Vec<&'static str> {
    let mut found = FilterFeatures::default();
    if let Some(root) = &ast.root {
        found.look(root, false);
    }
    let live = options.handle == HandleKind::Live;
    [
        (found.mixed, "`and` and `or` bind alike, from left to right: put parentheses where you mean another order."),
        (
            options.any_vlan,
            "the whole filter is read behind no VLAN tag, one or two, as in anyvlan(...).",
        ),
        (
            found.shifts_before_more && !options.scoped && !options.any_vlan,
            "vlan, mpls, pppoes, geneve, vxlan and lane move all text to their right to the headers behind them, past `or` \
             and parentheses too. What should be looked for in front of them, or in packets without them, belongs to their left.",
        ),
        (
            found.port && !options.ipv6_extensions,
            "ports are found in first fragments over IPv4, and over IPv6 only where no extension header comes before; without \
             tcp, udp or sctp all three are looked at.",
        ),
        (
            found.transport_index && !options.ipv6_extensions,
            "tcp[...], udp[...], icmp[...] and the like look at IPv4 alone, and at first fragments alone.",
        ),
        (
            found.negated_index,
            "an index tests for its protocol as well: under `not`, packets of other protocols match.",
        ),
        (
            found.vlan && !live,
            "a VLAN tag is looked for in the packet's bytes. Cards and kernels take tags out of packets that are captured live; \
             explain for a live capture (--live) to see that program.",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, note)| holds.then_some(note))
    .collect()
}

/// The parts that a filter has.
#[derive(Default)]
struct FilterFeatures {
    mixed: bool,
    shift: bool,
    shifts_before_more: bool,
    port: bool,
    transport_index: bool,
    negated_index: bool,
    vlan: bool,
}

impl FilterFeatures {
    fn look(&mut self, expr: &Expr, negated: bool) {
        self.shifts_before_more |=
            self.shift && matches!(expr.kind, ExprKind::Qualified(..) | ExprKind::Protocol(_));
        match &expr.kind {
            ExprKind::Chain(first, rest) => {
                self.look(first, negated);
                self.mixed |= rest.iter().any(|(joint, _)| *joint != rest[0].0);
                rest.iter().for_each(|(_, part)| self.look(part, negated));
            }
            ExprKind::Not(inner) => self.look(inner, !negated),
            ExprKind::Group(inner) => self.look(inner, negated),
            ExprKind::Modified(_, inner) => {
                // Notes on libpcap's language do not hold within a modifier, and nothing moves the headers behind it.
                let mut within = FilterFeatures::default();
                within.look(inner, negated);
                self.mixed |= within.mixed;
                self.negated_index |= within.negated_index;
            }
            ExprKind::Qualified(qualifiers, inner) => {
                self.port |= matches!(qualifiers.kind, Some(IdKind::Port | IdKind::Portrange));
                self.look(inner, negated);
            }
            ExprKind::Relation(left, _, right) => {
                self.index(left, negated);
                self.index(right, negated);
            }
            ExprKind::Primitive(primitive) => {
                self.vlan |= matches!(primitive, Primitive::Vlan(_));
                self.shift |= matches!(
                    primitive,
                    Primitive::Vlan(_)
                        | Primitive::Mpls(_)
                        | Primitive::Pppoes(_)
                        | Primitive::Geneve(_)
                        | Primitive::Vxlan(_)
                );
            }
            ExprKind::Id(_) | ExprKind::Protocol(_) => {}
        }
    }

    fn index(&mut self, arith: &Arith, negated: bool) {
        match arith {
            Arith::Number(_) | Arith::Len => {}
            Arith::Load { protocol, index, .. } => {
                let inner = matches!(
                    protocol,
                    Protocol::Tcp | Protocol::Udp | Protocol::Icmp | Protocol::Sctp | Protocol::Igmp
                );
                self.transport_index |= inner;
                self.negated_index |= negated && !matches!(protocol, Protocol::Link | Protocol::Radio);
                self.index(index, negated);
            }
            Arith::Negate(inner) => self.index(inner, negated),
            Arith::Binary { left, right, .. } => {
                self.index(left, negated);
                self.index(right, negated);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        explain(text, &Options::default()).expect("compiles")
    }

    #[test]
    fn implied_qualifiers_are_written_out() {
        let explained = of("tcp dst port 80 or 443 and not host 10.0.0.1 or 10.0.0.2");
        for part in ["tcp dst port 443", "host 10.0.0.2"] {
            assert!(explained.contains(part), "{explained}");
        }
    }

    #[test]
    fn equal_binding_of_and_and_or_is_shown_and_noted() {
        let explained = of("ip or arp and udp");
        assert!(explained.contains("  and\n    or\n      ip"), "{explained}");
        assert!(explained.contains("bind alike"), "{explained}");
    }

    #[test]
    fn tests_have_their_meaning_beside_them() {
        let explained = of("tcp src port 443 and net 10.0.0.0/8 and len > 100");
        for part in [
            "EtherType",
            "is it IPv4?",
            "is it TCP?",
            "source port",
            "is it 443?",
            "is it 10.0.0.0?",
            "length on the wire",
        ] {
            assert!(explained.contains(part), "{part} is missing in\n{explained}");
        }
    }

    #[test]
    fn a_filter_that_is_never_true_says_why() {
        let explained = of("tcp and port 80 and arp and len > 5");
        assert!(explained.contains("so there is no program:") && explained.contains("`arp`"), "{explained}");
    }

    #[test]
    fn measures_give_the_snap_length_needed() {
        assert!(of("ip").contains("14 bytes of it or more"));
        assert!(of("ip src 10.0.0.1").contains("30 bytes of it or more"));
        assert!(of("len > 5").contains("does not matter"));
        assert!(of("").contains("does not matter") && of("").contains("1 instruction,"));
        assert!(of("len > 5 or ip").contains("may accept a packet of which nothing was captured"));
    }

    #[test]
    fn notes_fit_a_terminal() {
        let explained = of("vlan and (tcp port 80 or udp and not tcp[0] = 1)");
        let notes = explained.lines().skip_while(|line| !line.starts_with("Note: ")).collect::<Vec<_>>();
        assert!(notes.len() > 6, "{explained}");
        assert!(notes.iter().all(|line| line.chars().count() <= NOTE_WIDTH), "{explained}");
        assert!(notes.iter().any(|line| line.starts_with("  ")));
    }

    #[test]
    fn errors_stay_errors() {
        assert!(explain("port 80 and", &Options::default()).is_err());
        assert!(explain("tcp[0:3] = 1", &Options::default()).is_err());
    }

    #[test]
    fn every_filter_that_compiles_can_be_explained() {
        use tapline_packet::LinkType;
        use tapline_testkit::expressions::Expressions;
        for dlt in [1, 105, 127, 123, 9, 117, 140] {
            let mut stream = Expressions::new(21, dlt);
            let options = Options { netmask: Some(0), ..Options::new(LinkType::from_dlt(dlt as u16)) };
            for _ in 0..300 {
                let text = stream.text();
                let compiled = compile(&text, &options);
                let is_never = compiled.as_ref().is_err_and(is_never_true);
                assert_eq!(explain(&text, &options).is_ok(), compiled.is_ok() || is_never, "{text}");
            }
        }
    }
}
