//! The passes in order.
//!
//! ```text
//! text --parse--> Ast --lower--> Predicates --gather--> Predicates
//! Predicates --generate--> Cfg --simplify--> Cfg --initialise--> Cfg --assemble--> Program
//! Program --CompiledFilter--> the form that every engine is given
//! ```

use tapline_packet::LinkType;

use crate::ast::Ast;
use crate::contradiction::{contradicts_itself, never_true};
use crate::gather::gather;
use crate::generate::{generate, generate_as_written};
use crate::options::Options;
use crate::parse::parse;
use crate::predicate::{Base, FieldOffset, Predicates, TestedField};
use crate::resolve::state::Probe;
use crate::resolve::{lower, lower_observed};
use crate::witness::accepts_some;
use tapline_bpf::Program;
use tapline_bpf::assemble;
use tapline_bpf::cfg::{Cfg, Width};
use tapline_bpf::initialise;
use tapline_bpf::simplify::{is_proven_to_reject_all, simplify};
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
