//! The passes in order.
//!
//! ```text
//! text --parse--> Ast --lower--> Predicates --gather--> Predicates
//! Predicates --generate--> Cfg --simplify--> Cfg --initialise--> Cfg --assemble--> Program
//! Program --CompiledFilter--> the form that every engine is given
//! ```

use tapline_packet::LinkType;

use crate::ast::Ast;
use crate::contradiction::{contradicts_itself, is_never_true, never_true};
use crate::gather::gather;
use crate::generate::{generate, generate_as_written};
use crate::options::Options;
use crate::parse::parse;
use crate::predicate::{Base, FieldOffset, Predicates, TestedField};
use crate::resolve::state::Probe;
use crate::resolve::{lower, lower_observed};
use crate::witness::accepts_some;
use tapline_bpf::cfg::{Cfg, Width};
use tapline_bpf::initialise;
use tapline_bpf::simplify::{is_proven_to_reject_all, simplify};
use tapline_bpf::{Insn, Program, assemble, code};
use tapline_ir::CompiledFilter;
use tapline_syntax::Error;

/// Compiles the text of a filter, once for all engines. Its program loads in kernels: jumps go forward only, scratch
/// memory is written before it is read.
///
/// Takes time in proportion to the length of the text, except that names may have to be asked for over the network.
/// An empty text accepts every packet.
///
/// # Errors
/// If the text is not a filter, tests something that the link type does not have, or, when optimising, rejects every
/// packet.
///
/// ```
/// use tapline_filter::{compile, Options};
/// let filter = compile("tcp port 80", &Options::default())?;
/// assert!(filter.insns().len() < 32);
/// # Ok::<(), tapline_filter::Error>(())
/// ```
pub fn compile(text: &str, options: &Options) -> Result<CompiledFilter, Error> {
    let program = Program::new(assemble(&initialise(graph(text, options)?)));
    program
        .map(CompiledFilter::from)
        .map_err(|invalid| Error::whole(format!("the program is not valid: {invalid}")))
}

/// As [`compile`], but a filter that is never true becomes the program that accepts no packet.
///
/// # Errors
/// As for [`compile`].
pub fn compile_or_reject(text: &str, options: &Options) -> Result<CompiledFilter, Error> {
    match compile(text, options) {
        Err(error) if is_never_true(&error) => reject_all(),
        compiled => compiled,
    }
}

/// The program that accepts no packet.
///
/// # Errors
/// None: the program is valid.
pub fn reject_all() -> Result<CompiledFilter, Error> {
    let program = Program::new(vec![Insn::new(code::RET | code::K, 0)]);
    program
        .map(CompiledFilter::from)
        .map_err(|invalid| Error::whole(format!("the program is not valid: {invalid}")))
}

/// The block graph of a text.
fn graph(text: &str, options: &Options) -> Result<Cfg, Error> {
    let ast = parse(text)?;
    let mut predicates = lower(&ast, options)?;
    if !options.optimise {
        return Ok(generate(&predicates, options.snap_len));
    }
    let ours = contradicts_itself(&ast, &predicates, options);
    gather(&mut predicates);
    let cfg = generate(&predicates, options.snap_len);
    let witness = || accepts_some(&cfg);
    if ours || predicates.provable && is_proven_never_true(&ast, text, options, witness) {
        return Err(never_true(&ast, text, options));
    }
    Ok(simplify(&cfg))
}

/// Whether the optimiser for the accumulator machine proves that the text is never true. A witness, a packet that is
/// accepted, settles that it is not. Without one the optimiser looks at the text as it was written and at the text
/// gathered: each shows contradictions that the other hides.
fn is_proven_never_true(ast: &Ast, text: &str, options: &Options, witness: impl Fn() -> bool) -> bool {
    if witness() {
        return false;
    }
    let rejects = |predicates: &Predicates| is_proven_to_reject_all(&generate_as_written(predicates));
    // Arithmetic that is worked out takes no scratch cells; as it is written it may take more than there are.
    let Ok(written) = lower_observed(ast, options, &mut Probe::keeping_arithmetic(text)) else {
        return false;
    };
    let mut gathered = written.clone();
    gather(&mut gathered);
    rejects(&written) || rejects(&gathered) || never_by_family(&written, options, rejects)
}

/// The proof with each address family in turn as the one that the packet has. In loopback files IP has up to eight
/// families, and the facts that a test of one proves are lost where the paths of all join.
fn never_by_family(written: &Predicates, options: &Options, rejects: impl Fn(&Predicates) -> bool) -> bool {
    let has_families = matches!(options.link_type, LinkType::NULL | LinkType::LOOP | LinkType::ENC);
    let family = TestedField::Packet(FieldOffset { base: Base::Packet, offset: 0 }, Width::Word);
    let mut asked = Vec::new();
    written.root.asked_of(family, &mut asked);
    asked.sort_unstable();
    asked.dedup();
    let cases = || asked.iter().map(|&value| Some(value)).chain([None]);
    has_families
        && asked.len() <= FAMILIES_MAX
        && cases().all(|case| rejects(&Predicates { root: written.root.assuming(family, case), ..*written }))
}

/// The families of IPv4 and of IPv6 in both byte orders are eight.
const FAMILIES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use tapline_ir::{Machine, Memory, raise};
    use tapline_packet::{Meta, Packet};
    use tapline_testkit::random::Random;

    use super::*;
    use crate::generate::make;

    fn joined(part: &str, range: std::ops::Range<u32>) -> String {
        range.map(|n| format!("{part} 10.0.{}.{}", n >> 8, n & 255)).collect::<Vec<_>>().join(" or ")
    }

    /// The graph of a text, with a lookup for each list of at least so many numbers.
    fn graph_of(text: &str, list_min: usize) -> Cfg {
        let options = Options { netmask: Some(0), ..Options::default() };
        let mut predicates = lower(&parse(text).expect("a filter"), &options).expect("a filter");
        gather(&mut predicates);
        make(&predicates, 262_144, false, list_min)
    }

    fn program_of(graph: &Cfg) -> Program {
        Program::new(assemble(&initialise(simplify(graph)))).expect("a program")
    }

    #[test]
    fn lookups_become_the_program_of_comparisons() {
        let (hosts, sources) = (joined("host", 0..600), joined("src host", 0..300));
        for text in [
            hosts.clone(),
            format!("tcp and ({hosts})"),
            format!("not ({hosts})"),
            format!("vlan 7 and ({hosts}) or udp"),
            format!("{sources} or {}", joined("dst host", 100..400)),
            (1..400).map(|n| format!("tcp port {}", 3 * n)).collect::<Vec<_>>().join(" or "),
        ] {
            let (lookups, comparisons) = (graph_of(&text, 64), graph_of(&text, usize::MAX));
            assert!(!lookups.lists.is_empty() && comparisons.lists.is_empty(), "{text}");
            assert!(lookups.blocks.len() < comparisons.blocks.len() / 2, "{text}");
            assert!(program_of(&lookups).insns() == program_of(&comparisons).insns(), "{text}");
        }
    }

    /// Where lists meet, a path knows less of a number that was looked up: programs may differ, verdicts do not.
    #[test]
    fn lookups_decide_as_comparisons_do() {
        let mut random = Random::new(1);
        let list = |part: &str, from| joined(part, from..from + 150);
        for text in [
            format!("({}) and not ({})", list("src host", 0), list("src host", 100)),
            format!("src host 10.0.0.7 and ({}) or {}", list("src host", 5), list("dst host", 9)),
            format!("({}) and ({}) and dst host 10.0.0.9", list("host", 0), list("host", 70)),
            format!("not ({}) and ({})", list("dst host", 40), list("host", 0)),
            (0..200)
                .map(|n| format!("net 10.0.0.{n}/31 or net 10.0.1.{n}"))
                .step_by(2)
                .collect::<Vec<_>>()
                .join(" or "),
            format!(
                "ether[12:2] = 0x800 and ip[12:4] & 0xffff00ff = 0x0a000003 and ({})",
                list("src host", 0)
            ),
        ] {
            let (lookups, comparisons) = (graph_of(&text, 64), graph_of(&text, usize::MAX));
            let engines = [program_of(&lookups), program_of(&comparisons)];
            let lens = engines.each_ref().map(|program| program.insns().len());
            assert!(lens[0] <= lens[1] + lens[1] / 4, "{lens:?}: {text}");
            let mut machine = Machine::new(raise(&lookups));
            let mut accepted = 0;
            for _ in 0..3000 {
                let data = frame(&mut random);
                let meta = Meta { wire_len: 60, ..Meta::default() };
                let packet = Packet { data: &data, meta: &meta };
                let verdicts = engines.each_ref().map(|program| program.run(packet));
                assert_eq!(verdicts[0], verdicts[1], "{text}: {data:?}");
                assert_eq!(machine.run(packet, &Memory::new(0)), verdicts[0].into(), "{text}: {data:?}");
                accepted += u32::from(verdicts[0] != 0);
            }
            assert!(accepted > 0, "{text}");
        }
    }

    /// A frame of IPv4, ARP or RARP between hosts of and outside of the lists, sometimes cut.
    fn frame(random: &mut Random) -> Vec<u8> {
        let mut frame = vec![0; 60];
        let kind: [u8; 2] = *random.pick(&[[8, 0], [8, 0], [8, 6], [0x80, 0x35]]);
        frame[12..14].copy_from_slice(&kind);
        let places = if kind == [8, 0] { [26, 30] } else { [28, 38] };
        for at in places {
            let host = [10, 0, random.below(2) as u8, random.below(256) as u8];
            frame[at..at + 4].copy_from_slice(&host);
        }
        if random.one_of(1, 4) {
            frame.truncate(random.below(60) as usize);
        }
        frame
    }
}
