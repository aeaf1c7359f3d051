//! `tapline manual`: man pages and completions, made of the same description of the command line as `--help`, and of
//! the documents.

mod page;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use page::PAGES;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline manual --pages /usr/local/share/man/man1
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
    /// Write the man pages into this folder: tapline.1, a page for each command such as tapline-capture.1,
    /// tapline-filter.7 and tapline-metrics.7, tapline.toml.5 and tapline-serve.toml.5.
    #[arg(long, value_name = "DIR")]
    pages: Option<PathBuf>,
    /// Print the completions of this shell.
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(args: &ManualArgs, mut program: Command) -> Result<()> {
    if let Some(folder) = &args.pages {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        write_pages(program.clone(), folder)
            .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    }
    if let Some(shell) = args.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program, "tapline", &mut script);
        io::stdout().write_all(&script)?;
    }
    Ok(())
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
        fs::write(folder.join(page.file_name()), page.roff(&version))?;
    }
    Ok(())
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
    fs::write(folder.join(format!("{name}.1")), text)?;
    command.get_subcommands().try_for_each(|below| write_command(below, version, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_in_the_document() {
        let document = include_str!("../../../docs/exit-status.md");
        for (code, _) in EXIT_STATUS {
            let is_row = |line: &str| {
                line.starts_with(&format!("| {code} |")) || line.starts_with(&format!("| {code}, "))
            };
            assert!(document.lines().any(is_row), "{code}");
        }
    }
}
