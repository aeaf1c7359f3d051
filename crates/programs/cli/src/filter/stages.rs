//! `tapline filter explain --stage`: a compiled filter in each form that it takes between its text and code.
//!
//! ```text
//! tree --> bpf --> passes --> ir --> native      what files, live captures and the daemon run
//!                         \-> ebpf               what the kernel runs for a socket where classic BPF does not suffice
//!                         \-> front              what the kernel runs in front of AF_XDP, and what runs behind that
//! ```
//!
//! All forms but the tree are printed from one [`CompiledFilter`], which the engines run.

use anyhow::Result;
use tapline_bpf::DumpFormat;
use tapline_ebpf::{Hook, emit};
use tapline_filter::{HandleKind, Options, compile, is_never_true, reject_all, tree};
use tapline_ir::CompiledFilter;
use tapline_ir::optimise::{PASSES, optimise_with_observer};
use tapline_jit::Native;

use crate::front_parts::FrontParts;
use crate::mistakes::{mistake, misuse};

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
        /// The program in front of AF_XDP sockets, and the weaker parts in its place.
        Front = "front",
        /// Machine code of this processor.
        Native = "native",
    }
}

/// The stages of these names, or of `all`; each under its name if there are several.
pub(super) fn render(names: &[String], text: &str, options: &Options) -> Result<String> {
    let wanted = wanted(names)?;
    let of_text = |error: tapline_syntax::Error| mistake(error.render(text));
    // A filter that rejects every packet does not compile, and has a tree.
    let filter = match wanted.iter().all(|stage| matches!(stage, Stage::Tree | Stage::Front)) {
        true => None,
        false => Some(compile(text, options).map_err(of_text)?),
    };
    let show = |stage: &Stage| {
        let shown = match (stage, &filter) {
            (Stage::Front, _) => in_front(text, options).map_err(of_text)?,
            (Stage::Tree, _) | (_, None) => tree(text).map_err(of_text)?,
            (stage, Some(filter)) => form(*stage, filter)?,
        };
        Ok(if wanted.len() > 1 { format!("{}:\n{shown}\n", stage.name()) } else { shown })
    };
    wanted.iter().map(show).collect()
}

fn wanted(names: &[String]) -> Result<Vec<Stage>> {
    let mut wanted = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        match Stage::of_name(name) {
            Some(stage) => wanted.push(stage),
            None if name == "all" => wanted.extend(Stage::ALL),
            None => {
                misuse!("unknown stage '{name}'; expected {} or all", Stage::NAMES.join(", "))
            }
        }
    }
    Ok(wanted)
}

fn form(stage: Stage, filter: &CompiledFilter) -> Result<String> {
    Ok(match stage {
        // The first two are shown without a compiled filter.
        Stage::Tree | Stage::Front | Stage::Bpf => filter.program().text(DumpFormat::Assembly),
        Stage::Passes => passes(filter),
        Stage::Ir => filter.values().to_string(),
        Stage::Ebpf => emit(&filter.values_for_sockets(), Hook::SocketFilter)?.text(),
        Stage::Native => Native::of(filter)?.assembly()?,
    })
}

/// The part of a filter that runs in front of AF_XDP, with the weaker parts for a kernel that refuses it.
fn in_front(text: &str, options: &Options) -> Result<String, tapline_syntax::Error> {
    let options = Options { handle: HandleKind::Front, ..options.clone() };
    let mut out = String::new();
    let filter = match compile(text, &options) {
        // For example `outbound`: sent packets never come there.
        Err(error) if is_never_true(&error) => {
            out += "no packet that comes there is accepted: the host keeps all of them\n";
            reject_all()?
        }
        compiled => compiled?,
    };
    let parts = FrontParts::of(&filter);
    out += &format!("{}\n", parts.whole_text());
    if let Ok(program) = &parts.whole {
        out += &program.text();
    }
    for (number, (values, program)) in (1..).zip(&parts.weaker) {
        out += &format!(
            "\nif the kernel refuses that: weaker part {}, of {} instructions; the whole filter behind it, in user space\n{values}",
            number,
            program.insns().len(),
        );
    }
    Ok(out)
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

    /// Ports lie behind an IPv4 header of any length; their test is left to the whole filter by the weakest parts.
    #[test]
    fn parts_in_front_are_shown_with_the_whole() {
        let shown = in_front("inbound and udp port 53", &Options::default()).expect("a filter");
        let (whole, weaker) = shown.split_once("\nif the kernel refuses that: weaker part 1").expect(&shown);
        assert!(
            whole.starts_with("the whole filter runs in front, in ") && whole.contains("exit"),
            "{whole}"
        );
        assert!(weaker.contains("behind it, in user space"), "{weaker}");
        let weakest = weaker.rsplit("in user space").next().expect("the last part");
        let has = |number: &str| weakest.split(|c: char| !c.is_alphanumeric()).any(|word| word == number);
        assert!(has("17") && !has("53"), "UDP without its port: {weakest}");
        let shown = in_front("outbound", &Options::default()).expect("nothing that is sent comes there");
        assert!(
            shown.starts_with("no packet that comes there is accepted") && shown.contains("exit"),
            "{shown}"
        );
        assert!(in_front("udp port", &Options::default()).is_err());
    }

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
