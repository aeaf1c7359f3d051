//! The passes in order.
//!
//! ```text
//! text --parse--> Ast --lower--> Predicates --generate--> Cfg --simplify--> Cfg --initialise--> Cfg --assemble--> Program
//!                                                                         \--raise--> Ir --optimise--> Ir
//! ```

use crate::assemble::assemble;
use crate::bpf::Program;
use crate::cfg::Cfg;
use crate::contradiction::{is_never_true, never_true};
use crate::error::Error;
use crate::generate::generate;
use crate::initialise::initialise;
use crate::ir::{Ir, raise};
use crate::optimise::optimise;
use crate::options::Options;
use crate::parse::parse;
use crate::resolve::lower;
use crate::simplify::{rejects_all, simplify};

/// Compiles the text of a filter to a program that loads in kernels: jumps go forward only, scratch memory is written
/// before it is read.
///
/// Takes time in proportion to the length of the text, except that names may have to be asked for over the network.
/// An empty text accepts every packet.
///
/// # Errors
/// If the text is no filter, asks what the link type cannot answer, or, when optimising, rejects every packet.
///
/// ```
/// use tapline_filter::{compile, Options};
/// let program = compile("tcp port 80", &Options::default())?;
/// assert!(program.insns().len() < 32);
/// # Ok::<(), tapline_filter::Error>(())
/// ```
pub fn compile(text: &str, options: &Options) -> Result<Program, Error> {
    Program::new(assemble(&initialise(graph(text, options)?)))
        .map_err(|invalid| Error::whole(format!("the program is not valid: {invalid}")))
}

/// Compiles the text of a filter to values, after all passes: what native code and eBPF are made from.
///
/// # Errors
/// As [`compile`].
pub fn compile_ir(text: &str, options: &Options) -> Result<Ir, Error> {
    let mut ir = raise(&graph(text, options)?);
    if options.optimise {
        optimise(&mut ir);
    }
    Ok(ir)
}

/// The block graph of a text.
pub(crate) fn graph(text: &str, options: &Options) -> Result<Cfg, Error> {
    let ast = parse(text)?;
    let predicates = lower(&ast, options)?;
    let mut cfg = generate(&predicates, options.snap_len);
    if options.optimise {
        cfg = simplify(&cfg);
        if predicates.provable && rejects_all(&cfg) || is_never_true(&ast, &predicates, options) {
            return Err(never_true(&ast, text, options));
        }
    }
    Ok(cfg)
}
