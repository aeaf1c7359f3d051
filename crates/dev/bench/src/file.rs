//! Reading and filtering a file of 1 GB: `tapline capture -r FILE -w /dev/null FILTER` against tcpdump.

use crate::Options;
use crate::report::{Goal, Report, Series};
use anyhow::{Context, ensure};
use clap::Args;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::{Command, Stdio};
use tapline_measure::answer::{self, Answer};
use tapline_measure::filters::{FILTERS, Filter};
use tapline_measure::runs;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::traffic::Traffic;

/// Each packet's record header in a pcap file.
const RECORD_HEADER_LEN: u64 = 16;

#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    /// Size of the file: bytes, or with k, M or G.
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    pub(crate) size: u64,
    /// Only the filters of these names.
    #[arg(long, value_delimiter = ',')]
    pub(crate) filter: Vec<String>,
}

impl Default for FileArgs {
    fn default() -> FileArgs {
        FileArgs { size: 1 << 30, filter: Vec::new() }
    }
}

pub(crate) fn run(args: &FileArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let path = folder.path().join("traffic.pcap");
    let packets = make_file(&path, args.size)?;
    println!("file: {packets} packets, {} MB, in the page cache\n", args.size / 1_000_000);
    let tapline = options.tapline()?;
    let wanted =
        |filter: &&Filter| args.filter.is_empty() || args.filter.iter().any(|name| name == filter.name);
    for filter in FILTERS.iter().filter(wanted) {
        let goal = Some(Goal::TimesFaster(3.0));
        let mut series = Series::new(format!("file/{}", filter.name), &["tapline", "tcpdump"], goal);
        let command = |peer: usize, out: &str| read_command(peer, &tapline, &path, out, filter.text);
        ensure_equal(filter, |peer| command(peer, "-"))?;
        series.interleave(options.runs, |peer| runs::run(&mut command(peer, "/dev/null"), packets))?;
        report.add(&series)?;
    }
    Ok(())
}

/// Writes mixed traffic until the file has `size` bytes. Gives the number of packets.
pub(crate) fn make_file(path: &Path, size: u64) -> anyhow::Result<u64> {
    let mut written = 0;
    let frames = Traffic::new(1).take_while(|(_, frame)| {
        written += frame.len() as u64 + RECORD_HEADER_LEN;
        written <= size
    });
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write_pcap(&mut out, ETHERNET, Unit::Microseconds, frames)
        .with_context(|| format!("writing {}", path.display()))
}

fn read_command(peer: usize, tapline: &Path, path: &Path, out: &str, filter: &str) -> Command {
    let mut command = match peer {
        0 => {
            let mut command = Command::new(tapline);
            command.arg("capture");
            command
        }
        _ => Command::new("tcpdump"),
    };
    command.arg("-r").arg(path).args(["-w", out]);
    if !filter.is_empty() {
        command.arg(filter);
    }
    command
}

/// Runs each peer once with its packets on standard output, and compares them.
fn ensure_equal(filter: &Filter, command: impl Fn(usize) -> Command) -> anyhow::Result<()> {
    let [ours, theirs] = [answer_of(&mut command(0))?, answer_of(&mut command(1))?];
    ensure!(ours == theirs, "filter {}: tapline gives {ours:?}, tcpdump {theirs:?}", filter.name);
    Ok(())
}

fn answer_of(command: &mut Command) -> anyhow::Result<Answer> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().context("a pipe was asked for")?;
    let answer = answer::read(&mut BufReader::with_capacity(1 << 20, stdout));
    let status = child.wait()?;
    ensure!(status.success(), "{command:?}: {status}");
    answer.with_context(|| format!("{command:?}"))
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    tapline_syntax::units::size(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_size_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.pcap");
        let packets = make_file(&path, 1 << 20).unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        assert!(
            packets > 100 && (1 << 20) - 2000 < len && len <= (1 << 20) + 24,
            "{packets} packets, {len} bytes"
        );
    }
}
