//! A filter as each stage of the compiler sees it.
//!
//! ```text
//! tree     what was written                       ir       values, after all passes
//!                                               passes   values before the first pass and after each
//! bpf      classic BPF                             ebpf     eBPF, as a socket filter
//! ```

use super::tree;
use crate::compile::{compile, compile_ir, values};
use crate::options::Options;
use crate::parse::parse;
use tapline_bpf::Form;
use tapline_ebpf::{Hook, emit};
use tapline_ir::optimise::{PASSES, optimise_for_sockets, optimise_watched};
use tapline_syntax::Error;

/// A form that a filter takes on its way from text to code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The text as it is read.
    Tree,
    /// Values ([`tapline_ir`]), after all passes.
    Ir,
    /// Values before the first pass and after each.
    Passes,
    /// Classic BPF, as `tcpdump -d` prints it.
    Bpf,
    /// eBPF for the kernel, as a socket filter, in the verifier's form.
    Ebpf,
}

impl Stage {
    /// All of them, in the order of the compiler.
    pub const ALL: [Stage; 5] = [Stage::Tree, Stage::Passes, Stage::Ir, Stage::Bpf, Stage::Ebpf];

    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Tree => "tree",
            Stage::Ir => "ir",
            Stage::Passes => "passes",
            Stage::Bpf => "bpf",
            Stage::Ebpf => "ebpf",
        }
    }

    /// The filter `text` at this stage. Lines end in line feeds.
    ///
    /// # Errors
    /// As [`compile`](crate::compile).
    pub fn show(self, text: &str, options: &Options) -> Result<String, Error> {
        Ok(match self {
            Stage::Tree => tree::render(&parse(text)?, text),
            Stage::Ir => compile_ir(text, options)?.to_string(),
            Stage::Passes => passes(text, options)?,
            Stage::Bpf => compile(text, options)?.text(Form::Assembly),
            Stage::Ebpf => {
                let mut ir = values(text, options)?;
                if options.optimise {
                    optimise_for_sockets(&mut ir);
                }
                emit(&ir, Hook::SocketFilter).map_err(|error| Error::whole(error.to_string()))?.text()
            }
        })
    }
}

fn passes(text: &str, options: &Options) -> Result<String, Error> {
    let mut ir = values(text, options)?;
    let mut before = ir.to_string();
    let mut out = format!("before the first pass:\n{before}");
    let mut at = 0;
    optimise_watched(&mut ir, |pass, ir| {
        at += 1;
        let after = ir.to_string();
        let shown = if after == before { "    as before\n" } else { &after };
        out += &format!("\n{at}. {}: {}:\n{shown}", pass.name, pass.purpose);
        before = after;
    });
    if at == 0 {
        out += &format!("\nNone of the {} passes found anything to change.\n", PASSES.len());
    }
    Ok(out)
}
