//! The `tapline` program: parse the command line, call the libraries, print.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod capture;
mod doctor;
mod filter;
mod flows;
mod fpl;
mod generate;
mod interfaces;
mod live;
mod output;
mod privileges;
mod probe;
mod profile;
mod replay;
mod report;
mod run;
mod sending;
mod serve;
mod signals;
mod store;
mod stream;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, FilterCommand};
use tapline_sys::capability::Capability;
use tapline_sys::{privilege, standard_output};

fn main() -> ExitCode {
    // A set-uid program must not read or write files in its caller's stead. Capturing needs one right only.
    if let Err(error) = privilege::leave_set_uid(&[Capability::NetRaw]) {
        let _ = writeln!(io::stderr(), "tapline: cannot give up the rights of a set-uid program: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = standard_output::refuse_if_closed() {
        let _ = writeln!(io::stderr(), "tapline: standard output is closed: {error}");
        return ExitCode::FAILURE;
    }
    let result = match Cli::parse().command {
        Command::Capture(args) => capture::run(&args),
        Command::Filter(FilterCommand::Explain(args)) => filter::explain(&args).map(|()| ExitCode::SUCCESS),
        Command::Filter(FilterCommand::Bench(args)) => {
            tapline_bench::filter::run(&args.what, args.runs).map(|()| ExitCode::SUCCESS)
        }
        Command::Bench(args) => bench::run(&args),
        Command::Record(args) => store::record(&args),
        Command::Find(args) => store::find(&args),
        Command::Store(command) => store::manage(&command),
        Command::Run(args) => run::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Interfaces(args) => interfaces::list(&args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => serve::status(&args),
    };
    result.unwrap_or_else(|error| {
        if !is_broken_pipe(&error) {
            let closed = match standard_output::check() {
                Err(_) if is_kind(&error, io::ErrorKind::StorageFull) => {
                    "standard output was closed when the program began: "
                }
                _ => "",
            };
            let _ = writeln!(io::stderr(), "tapline: {closed}{}", chain(&error));
        }
        ExitCode::FAILURE
    })
}

/// The error with its causes, without those that the text before them tells already.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |mut text, cause| {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        text
    })
}

/// Whether the reader of our output has gone: nobody is left to tell.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    is_kind(error, io::ErrorKind::BrokenPipe)
}

fn is_kind(error: &anyhow::Error, kind: io::ErrorKind) -> bool {
    error.downcast_ref::<io::Error>().map(io::Error::kind) == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let cause = io::Error::other("no disk");
        let error = anyhow::Error::new(cause).context("cannot write x: no disk").context("cannot go on");
        assert_eq!(chain(&error), "cannot go on: cannot write x: no disk");
    }
}
