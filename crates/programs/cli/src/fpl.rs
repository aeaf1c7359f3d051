//! `tapline filter explain --fpl`: how a program is understood, and the work that it is proven to take at most.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tapline_ebpf::{Hook, emit};
use tapline_fpl::{self as fpl, Compiled, External, FplOptions};
use tapline_ir::optimise::{optimise, optimise_with_observer};
use tapline_jit::Native;
use tapline_packet::LinkType;
use tapline_stages::{functions, input_file, search_function};

use crate::args::FplArgs;
use crate::mistakes::{mistake, misuse};

/// Stages that can be shown, by name, in the order of the compiler.
const STAGES: [&str; 5] = ["tree", "passes", "ir", "ebpf", "native"];

/// The program in a file, at the requested stages; without any, its outline and limits.
pub(crate) fn explain(path: &Path, link_type: LinkType, args: &FplArgs, stages: &[String]) -> Result<String> {
    let text = input_file::read_text(path, input_file::TEXT_MAX);
    let text = text.map_err(|why| anyhow!("the program: {why}"))?;
    let registry = functions(&searches(args)?);
    let options = FplOptions { link_type, memory_cells: args.fpl_cells, registry, ..FplOptions::default() };
    let compiled = fpl::compile(&text, &options)
        .map_err(|error| mistake(format_args!("{}: {}", path.display(), fpl::report(&error, &text))))?;
    if stages.is_empty() {
        return Ok(format!("{}\n{}", fpl::outline(&text)?, limits(&compiled)));
    }
    let mut wanted = Vec::new();
    for name in stages {
        match STAGES.into_iter().find(|stage| stage == name) {
            Some(stage) => wanted.push(stage),
            None if name == "all" => wanted.extend(STAGES),
            None => misuse!("there is no stage {name} of an FPL program: say {} or all", STAGES.join(", ")),
        }
    }
    // With `all`, a stage that this program does not have is shown as `none`, and is not an error.
    let is_all = stages.iter().any(|name| name == "all");
    let mut out = String::new();
    for stage in &wanted {
        let shown = match show(stage, &text, &compiled) {
            Err(error) if is_all => format!("none: {error}\n"),
            shown => shown?,
        };
        out += &if wanted.len() > 1 { format!("{stage}:\n{shown}\n") } else { shown };
    }
    Ok(out)
}

fn limits(compiled: &Compiled) -> String {
    let Compiled { ir, work } = compiled;
    let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let kind = if ir.has_state() { "a program with state" } else { "a filter: it keeps nothing" };
    let (loops, functions) = (plural(ir.loops.len(), "loop"), plural(ir.functions.len(), "function"));
    format!(
        "{kind}\n{}, {loops}, {functions}\nat most {work} steps for one packet\n",
        plural(ir.cells as usize, "memory cell")
    )
}

fn show(stage: &str, text: &str, compiled: &Compiled) -> Result<String> {
    let mut ir = compiled.ir.clone();
    match stage {
        "tree" => return Ok(fpl::outline(text)?),
        "passes" => {
            let mut out = format!("before the first pass:\n{ir}");
            optimise_with_observer(&mut ir, |pass, ir| {
                out += &format!("\n{}: {}:\n{ir}", pass.name, pass.purpose)
            });
            return Ok(out);
        }
        _ => optimise(&mut ir),
    }
    match stage {
        "ebpf" => Ok(emit(&ir, Hook::SocketFilter)?.text()),
        "native" => Ok(Native::compile(&ir)?.assembly()?),
        _ => Ok(ir.to_string()),
    }
}

/// The functions of `--fpl-patterns`.
pub(crate) fn searches(args: &FplArgs) -> Result<Vec<Arc<External>>> {
    let function = |text: &String| {
        search_function(text, Path::new("")).map_err(|error| anyhow!("--fpl-patterns: {error}"))
    };
    args.fpl_patterns.iter().map(function).collect()
}
