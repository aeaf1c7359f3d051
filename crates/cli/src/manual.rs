//! `tapline manual`: man pages and completions, made of the same description of the command line as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline manual --pages /usr/local/share/man/man1
  tapline manual --completions bash > /usr/local/share/bash-completion/completions/tapline
  tapline manual --completions zsh > /usr/local/share/zsh/site-functions/_tapline
  tapline manual --completions fish > /usr/local/share/fish/vendor_completions.d/tapline.fish";

#[derive(Debug, Args)]
#[group(required = true)]
pub(crate) struct ManualArgs {
    /// Write a man page for each command into this folder: tapline.1, tapline-capture.1 and so on.
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
        clap_mangen::generate_to(program.clone(), folder)
            .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    }
    if let Some(shell) = args.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program, "tapline", &mut script);
        io::stdout().write_all(&script)?;
    }
    Ok(())
}
