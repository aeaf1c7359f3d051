//! Compares `tapline capture -n -r FILE` with `tcpdump -n -r FILE` at printing a file as text.

use crate::report::{Report, Series};
use crate::{Options, file};
use anyhow::{Context, ensure};
use clap::Args;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tapline_measure::runs;

#[derive(Clone, Debug, Args)]
pub(crate) struct PrintArgs {
    /// Size of the generated file: bytes, or with k, M or G (powers of 1000).
    #[arg(long, default_value = "200M", value_parser = file::parse_size)]
    size: u64,
}

impl Default for PrintArgs {
    fn default() -> PrintArgs {
        PrintArgs { size: 200_000_000 }
    }
}

/// Flag sets to compare, from the least to the most text.
const STYLES: &[(&str, &[&str])] =
    &[("short", &["-n", "-q"]), ("normal", &["-n"]), ("verbose", &["-n", "-v", "-e"])];

pub(crate) fn run(args: &PrintArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let path = folder.path().join("traffic.pcap");
    let packets = file::make_file(&path, args.size)?;
    let tapline = options.tapline()?;
    for (name, flags) in STYLES {
        let mut series = Series::new(format!("print/{name}"), &["tapline", "tcpdump"], None);
        let command = |peer: usize| print_command(peer, &tapline, &path, flags);
        // Both programs must print every packet, or the comparison of their speeds means nothing.
        for peer in 0..2 {
            let lines = count_first_lines(&mut command(peer))?;
            ensure!(lines == packets, "{:?}: {lines} packets printed of {packets}", command(peer));
        }
        series.interleave(options.runs, |peer| runs::run(&mut command(peer), packets))?;
        report.add(&series)?;
    }
    Ok(())
}

fn print_command(peer: usize, tapline: &Path, path: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(if peer == 0 { tapline } else { Path::new("tcpdump") });
    if peer == 0 {
        command.arg("capture");
    }
    command.args(flags).arg("-r").arg(path);
    command
}

/// Counts the lines that begin with a time of day: one for each packet, because -v adds indented lines.
fn count_first_lines(command: &mut Command) -> anyhow::Result<u64> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let mut line = Vec::new();
    let mut count = 0;
    while stdout.read_until(b'\n', &mut line)? > 0 {
        count += u64::from(begins_with_time(&line));
        line.clear();
    }
    ensure!(child.wait()?.success(), "{command:?} failed");
    Ok(count)
}

/// Whether a line begins with `hh:mm:ss.`.
fn begins_with_time(line: &[u8]) -> bool {
    const FORM: &[u8] = b"00:00:00.";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    line.len() > FORM.len() && line.iter().zip(FORM).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_told_from_others() {
        assert!(begins_with_time(b"22:13:20.000000 IP"));
        assert!(!begins_with_time(b"    10.0.0.1 > 10.0.0.2"));
        assert!(!begins_with_time(b"22:13"));
    }
}
