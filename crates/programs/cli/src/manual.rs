//! `tapline manual`: man pages and completions, made of the same description of the command line as `--help`, and of
//! the documents.

mod page;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::run::catalog;
use page::PAGES;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline manual --pages /usr/local/share/man
  tapline manual --completions bash > /usr/local/share/bash-completion/completions/tapline
  tapline manual --completions zsh > /usr/local/share/zsh/site-functions/_tapline
  tapline manual --completions fish > /usr/local/share/fish/vendor_completions.d/tapline.fish";

/// Exit statuses of all commands: in `tapline --help`, in man pages, and in docs/exit-status.md.
pub(crate) const EXIT_STATUS: [(&str, &str); 5] = [
    ("0", "done; packets may have been lost, and the account has them"),
    ("1", "an error, or a finding of a command that checks"),
    ("2", "the command line or the configuration is wrong"),
    (
        "3",
        "done, and the result lacks something: packets with --strict, parts of a store that could not be read",
    ),
    ("130", "a second Ctrl-C: ended at once, without an account"),
];

#[derive(Debug, Args)]
#[group(required = true)]
pub(crate) struct ManualArgs {
    /// Write the man pages into this folder, in folders for their sections: man1/tapline.1 and a page for each command
    /// such as man1/tapline-capture.1; man5/tapline.toml.5, man5/tapline-serve.toml.5; man7/tapline-filter.7,
    /// man7/tapline-metrics.7.
    #[arg(long, value_name = "DIR")]
    pages: Option<PathBuf>,
    /// Print the completions of this shell.
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(args: &ManualArgs, program: Command) -> Result<()> {
    if let Some(folder) = &args.pages {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write_pages(program.clone(), folder)
            .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    }
    if let Some(shell) = args.completions {
        io::stdout().write_all(completions(shell, program).as_bytes())?;
    }
    Ok(())
}

/// Placeholder for the names of interfaces in completions.
const INTERFACES: &str = "TAPLINE_INTERFACES";

/// The completions of a shell, with the names of stages, and of the interfaces when they are used.
fn completions(shell: Shell, program: Command) -> String {
    let classes = PossibleValuesParser::new(catalog().classes().iter().map(|class| class.name));
    let program = program.mut_subcommand("run", |run| run.mut_arg("stages", |arg| arg.value_parser(classes)));
    let mut program = with_interfaces(program);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "tapline", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Zsh => script.replace(&format!("({INTERFACES})"), "_net_interfaces"),
        Shell::Fish => script.replace(&format!("{INTERFACES}\\t''"), "(__fish_print_interfaces)"),
        _ => script.replace(INTERFACES, "any $(command ls /sys/class/net 2>/dev/null)"),
    }
}

fn with_interfaces(command: Command) -> Command {
    let named = |arg: Arg| match arg.get_id().as_str() {
        "interface" => arg.value_parser([INTERFACES]),
        _ => arg,
    };
    command.mut_args(named).mut_subcommands(with_interfaces)
}

/// The statuses as lines of --help.
pub(crate) fn exit_status_text() -> String {
    let line = |(code, meaning): &(&str, &str)| format!("\n  {code:<4} {meaning}");
    format!("Exit status (docs/exit-status.md):{}", EXIT_STATUS.iter().map(line).collect::<String>())
}

fn write_pages(mut program: Command, folder: &Path) -> io::Result<()> {
    let version = program.get_version().unwrap_or_default().to_owned();
    // Names as the pages of subcommands have them, and options of all commands on each page.
    program = program.disable_help_subcommand(true);
    program.build();
    write_command(&program, &version, folder)?;
    for page in &PAGES {
        write_page(folder, page.name, page.section, page.roff(&version).as_bytes())?;
    }
    Ok(())
}

/// Writes a page into the folder of its section.
fn write_page(folder: &Path, name: &str, section: &str, text: &[u8]) -> io::Result<()> {
    let folder = folder.join(format!("man{section}"));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{name}.{section}")), text)
}

/// The page of a command, and those of its subcommands.
fn write_command(command: &Command, version: &str, folder: &Path) -> io::Result<()> {
    if command.is_hide_set() {
        return Ok(());
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    // Without a date, so that two builds are equal.
    let man = Man::new(command.clone()).date("").manual("Tapline").source(format!("tapline {version}"));
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut statuses = Roff::new();
    statuses.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        statuses.control("TP", []);
        statuses.text([bold(code)]);
        statuses.text([roman(meaning)]);
    }
    text.extend(statuses.to_roff().bytes());
    write_page(folder, &name, "1", &text)?;
    command.get_subcommands().try_for_each(|below| write_command(below, version, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_in_the_document() {
        let document = include_str!("../../../../docs/exit-status.md");
        for (code, _) in EXIT_STATUS {
            let is_row = |line: &str| {
                line.starts_with(&format!("| {code} |")) || line.starts_with(&format!("| {code}, "))
            };
            assert!(document.lines().any(is_row), "{code}");
        }
    }
}
