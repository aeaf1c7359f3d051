//! The `tapline` program: parse the command line, call the libraries, print.
#![forbid(unsafe_code)]

mod args;
mod capture;
mod filter;
mod interfaces;
mod output;
mod report;
mod signals;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, FilterCommand};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Capture(args) => capture::run(&args),
        Command::Filter(FilterCommand::Explain(args)) => filter::explain(&args).map(|()| ExitCode::SUCCESS),
        Command::Interfaces(args) => interfaces::list(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        if !is_broken_pipe(&error) {
            let _ = writeln!(io::stderr(), "tapline: {error:#}");
        }
        ExitCode::FAILURE
    })
}

/// Whether the reader of our output has gone: nobody is left to tell.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}
