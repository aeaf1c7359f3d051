//! `tapline filter explain --stage`: a compiled filter in each form that it takes between its text and code.
//!
//! ```text
//! tree --> bpf --> passes --> ir --> native      what files, live captures and the daemon run
//!                         \-> ebpf               what the kernel runs for a socket where classic BPF does not suffice
//! ```
//!
//! All forms but the tree are printed from one [`CompiledFilter`], which the engines run.

use anyhow::{Result, bail};
use tapline_bpf::DumpFormat;
use tapline_ebpf::{Hook, emit};
use tapline_filter::{Options, compile, tree};
use tapline_ir::CompiledFilter;
use tapline_ir::optimise::{PASSES, optimise_with_observer};
use tapline_jit::Native;

use crate::mistakes::mistake;

tapline_packet::named_enum! {
    /// A form of a filter.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Stage {
        /// The text as it is read.
        Tree = "tree",
        /// Values before the first pass and after each.
        Passes = "passes",
        /// Values after all passes.
        Ir = "ir",
        /// Classic BPF, as `tcpdump -d` prints it.
        Bpf = "bpf",
        /// eBPF as a socket filter, in the form of the kernel's verifier.
        Ebpf = "ebpf",
        /// Machine code of this processor.
        Native = "native",
    }
}

/// The stages of these names, or of `all`; each under its name if there are several.
pub(super) fn render(names: &[String], text: &str, options: &Options) -> Result<String> {
    let wanted = wanted(names)?;
    let of_text = |error: tapline_syntax::Error| mistake(error.render(text));
    // A filter that rejects every packet does not compile, and has a tree.
    let filter = match wanted.iter().all(|stage| *stage == Stage::Tree) {
        true => None,
        false => Some(compile(text, options).map_err(of_text)?),
    };
    let show = |stage: &Stage| {
        let shown = match &filter {
            Some(filter) if *stage != Stage::Tree => form(*stage, filter)?,
            _ => tree(text).map_err(of_text)?,
        };
        Ok(if wanted.len() > 1 { format!("{}:\n{shown}\n", stage.name()) } else { shown })
    };
    wanted.iter().map(show).collect()
}

fn wanted(names: &[String]) -> Result<Vec<Stage>> {
    let mut wanted = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        match Stage::ALL.into_iter().find(|stage| stage.name() == name) {
            Some(stage) => wanted.push(stage),
            None if name == "all" => wanted.extend(Stage::ALL),
            None => {
                bail!("unknown stage '{name}'; expected {} or all", Stage::ALL.map(Stage::name).join(", "))
            }
        }
    }
    Ok(wanted)
}

fn form(stage: Stage, filter: &CompiledFilter) -> Result<String> {
    Ok(match stage {
        Stage::Tree | Stage::Bpf => filter.program().text(DumpFormat::Assembly),
        Stage::Passes => passes(filter),
        Stage::Ir => filter.values().to_string(),
        Stage::Ebpf => emit(&filter.values_for_sockets(), Hook::SocketFilter)?.text(),
        Stage::Native => Native::of(filter)?.assembly()?,
    })
}

fn passes(filter: &CompiledFilter) -> String {
    let mut ir = filter.unoptimised_values();
    let mut before = ir.to_string();
    let mut out = format!("before the first pass:\n{before}");
    let mut at = 0;
    optimise_with_observer(&mut ir, |pass, ir| {
        at += 1;
        let after = ir.to_string();
        let shown = if after == before { "    as before\n" } else { &after };
        out += &format!("\n{at}. {}: {}:\n{shown}", pass.name, pass.purpose);
        before = after;
    });
    if at == 0 {
        out += &format!("\nNone of the {} passes found anything to change.\n", PASSES.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pass_gives_the_values_that_run() {
        let filter = compile("tcp port 80 or udp port 53", &Options::default()).expect("a filter");
        let printed = passes(&filter);
        let ir = filter.values().to_string();
        let (_, after) = printed.rsplit_once(ir.trim_end()).expect("the values that run");
        // Passes behind the last one that found something to change.
        let changes = after.lines().filter(|line| line.starts_with("  ") && *line != "    as before");
        assert_eq!(changes.count(), 0, "{printed}\n{ir}");
    }
}
