//! The passes in order.
//!
//! ```text
//! text --parse--> Ast --lower--> Predicates --generate--> Cfg --simplify--> Cfg --initialise--> Cfg --assemble--> Program
//! ```

use crate::assemble::assemble;
use crate::bpf::Program;
use crate::error::Error;
use crate::generate::generate;
use crate::initialise::initialise;
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
    let predicates = lower(&parse(text)?, options)?;
    let mut cfg = generate(&predicates, options.snap_len);
    if options.optimise {
        cfg = simplify(&cfg);
        if predicates.provable && rejects_all(&cfg) {
            return Err(Error::whole("expression rejects all packets")
                .hint("its parts contradict each other; an offset that vlan, mpls or a tunnel moved may be the reason"));
        }
    }
    Program::new(assemble(&initialise(cfg)))
        .map_err(|invalid| Error::whole(format!("the program is not valid: {invalid}")))
}
