//! Flows to batches: `tapline probe -r FILE --export batch+file:NAME?format=...` in each format, compared with the
//! lines that `json:NAME` writes and pmacctd's lines of JSON.
//!
//! The packets and the meter are the same for all of ours, so the differences between rows are what encoding and
//! writing cost. pmacctd keys its rows by addresses, ports, protocol, type of service and TCP flags; it waits for most
//! of a minute at its end, so it runs only if it is named.
//!
//! Before anything is measured each runs once: ours must acknowledge every flow, and all formats must have as many
//! rows; pmacctd's rows must count every packet. The octets of a row are reported as they are and as zstd packs them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use tapline_testkit::netns::has_program;

use crate::Options;
use crate::flows::make_file;
use crate::report::{Goal, Report, Series};
use tapline_measure::runs::{Run, run as measure};

/// Ours: lines, then batches in each format.
const FORMATS: [&str; 4] = ["tapline lines", "tapline json", "tapline goflow", "tapline native"];

#[derive(Clone, Debug, Args)]
pub(crate) struct ExportArgs {
    /// Conversations of the file.
    #[arg(long, default_value_t = 500_000)]
    pub(crate) conversations: u64,
    /// Packets of the file.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) packets: u64,
    /// Peers, with commas: pmacctd.
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
}

impl Default for ExportArgs {
    fn default() -> ExportArgs {
        ExportArgs { conversations: 500_000, packets: 1_000_000, peers: Vec::new() }
    }
}

pub(crate) fn run(args: &ExportArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let tapline = options.tapline()?;
    let trace = folder.path().join("trace.pcap");
    make_file(&tapline, &trace, "60", (args.conversations, args.packets), "400k")?;
    let job = Job { tapline: &tapline, trace: &trace, folder: folder.path() };
    let mut peers = FORMATS.to_vec();
    for peer in &args.peers {
        match peer.as_str() {
            "pmacctd" if has_program("pmacctd") => peers.push("pmacctd"),
            "pmacctd" => println!("  pmacctd is not installed"),
            other => bail!("{other} is not a peer; there is pmacctd"),
        }
    }
    let mut rows = 0;
    for peer in &peers {
        let found = job.check(peer, args.packets)?;
        ensure!(peer == &"pmacctd" || rows == 0 || rows == found, "{peer}: {found} rows, and {rows} before");
        rows = if *peer == "pmacctd" { rows } else { found };
    }
    let mut series = Series::new("export/rows".to_owned(), &peers, Some(Goal::TimesFaster(5.0)));
    series.interleave(options.runs, |peer| {
        let run = measure(&mut job.command(peers[peer])?, rows)?;
        Ok(Run { packets: rows, ..run })
    })?;
    report.add(&series)?;
    println!("  a packet stands for a row; {rows} rows");
    Ok(())
}

/// One file, and where rows go.
struct Job<'j> {
    tapline: &'j Path,
    trace: &'j Path,
    folder: &'j Path,
}

impl Job<'_> {
    fn output(&self) -> PathBuf {
        self.folder.join("rows")
    }

    fn command(&self, peer: &str) -> anyhow::Result<Command> {
        let output = self.output().display().to_string();
        let to = match peer {
            "tapline lines" => format!("json:{output}"),
            "pmacctd" => {
                let settings = self.folder.join("pmacctd");
                fs::write(&settings, self.settings_of_pmacctd())?;
                let mut command = Command::new("pmacctd");
                command.arg("-f").arg(settings);
                return Ok(command);
            }
            other => {
                let format = other.strip_prefix("tapline ").context("a format")?;
                format!("batch+file:{output}?format={format}")
            }
        };
        let mut command = Command::new(self.tapline);
        command.args(["probe", "--json", "--active-timeout", "3600", "--idle-timeout", "3600"]);
        command.args(["--export", &to, "-r"]).arg(self.trace);
        Ok(command)
    }

    fn settings_of_pmacctd(&self) -> String {
        format!(
            "daemonize: false\nplugins: print\npcap_savefile: {}\nprint_output: json\nprint_output_file: {}\n\
             print_refresh_time: 3600\nprint_cache_entries: 2000003\nplugin_buffer_size: 10240\n\
             plugin_pipe_size: 536870912\naggregate: src_host,dst_host,src_port,dst_port,proto,tos,tcpflags\n",
            self.trace.display(),
            self.output().display()
        )
    }

    /// Runs it once: its rows must cover every packet. Returns the octets of a row.
    fn check(&self, peer: &str, packets: u64) -> anyhow::Result<u64> {
        let output = self.command(peer)?.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{peer}: {}", String::from_utf8_lossy(&output.stderr));
        let rows = match peer {
            "pmacctd" => {
                let (rows, counted) = of_lines(&self.output(), "packets")?;
                ensure!(counted == packets, "pmacctd: {counted} of {packets} packets are in rows");
                rows
            }
            "tapline lines" => {
                let (rows, counted) = of_lines(&self.output(), "packetDeltaCount")?;
                ensure!(counted == packets, "{peer}: {counted} of {packets} packets are in rows");
                rows
            }
            _ => of_batches(&output.stdout)?,
        };
        let octets = fs::metadata(self.output())?.len();
        let packed = zstd_len(&self.output())?;
        let of_row = |octets: u64| octets as f64 / rows as f64;
        let packed = packed.map_or(String::new(), |packed| format!(", {:.1} behind zstd", of_row(packed)));
        println!("  {peer:<16} {:.1} octets a row{packed}", of_row(octets));
        Ok(rows)
    }
}

/// Lines of JSON: how many there are, and the sum of a field.
fn of_lines(path: &Path, field: &str) -> anyhow::Result<(u64, u64)> {
    let (mut rows, mut sum) = (0, 0);
    for line in BufReader::new(File::open(path)?).lines() {
        let row: Value = serde_json::from_str(&line?)?;
        rows += 1;
        sum += row[field].as_u64().with_context(|| format!("a row without {field}"))?;
    }
    Ok((rows, sum))
}

/// Rows of batches, all of whose flows were acknowledged.
fn of_batches(stdout: &[u8]) -> anyhow::Result<u64> {
    let text = String::from_utf8_lossy(stdout);
    let told: Value = serde_json::from_str(text.lines().next().context("tapline says nothing")?)?;
    let results = told["results"].as_object().context("no results")?;
    let of_batches = results.iter().find(|(name, _)| name.starts_with("batches"));
    let row = &of_batches.context("no batches in the results")?.1[0];
    ensure!(row["flows"] == row["acknowledged"], "not every flow was acknowledged: {row}");
    row["records"].as_u64().context("no rows in the results")
}

/// Length of a file packed by zstd, if it is installed.
fn zstd_len(path: &Path) -> anyhow::Result<Option<u64>> {
    if !has_program("zstd") {
        return Ok(None);
    }
    let packed = path.with_extension("zst");
    let status = Command::new("zstd").args(["-q", "-f", "-3", "-o"]).arg(&packed).arg(path).status()?;
    ensure!(status.success(), "zstd failed");
    let len = fs::metadata(&packed)?.len();
    fs::remove_file(packed)?;
    Ok(Some(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_lost_flows_are_refused() {
        let told = |acknowledged: u64| {
            format!(
                "{{\"results\":{{\"batches0\":[{{\"flows\":5,\"acknowledged\":{acknowledged},\"records\":9}}]}}}}\n"
            )
        };
        assert_eq!(of_batches(told(5).as_bytes()).unwrap(), 9);
        assert!(of_batches(told(4).as_bytes()).unwrap_err().to_string().contains("not every flow"));
    }

    #[test]
    fn packets_in_lines_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        fs::write(&path, "{\"packets\": 2}\n{\"packets\": 5}\n").unwrap();
        assert_eq!(of_lines(&path, "packets").unwrap(), (2, 7));
        assert!(of_lines(&path, "octets").is_err());
    }
}
