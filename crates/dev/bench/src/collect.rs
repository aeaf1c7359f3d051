//! Messages to flows: `tapline collect-flows --export file:NAME` against nfcapd, which writes its own files.
//!
//! The messages are those of `tapline probe`, received once and sent again to each peer in turn. A burst goes out once
//! the peer has read the one before, by the queue of its socket in `/proc/net/udp`, so that none is lost and no peer
//! sleeps for long. Measured is the processor time of the peer alone, the kernel's receiving on its behalf included.
//!
//! Each run must have every record: tapline by its account, nfcapd by what `nfdump -I` finds in its files.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use tapline_testkit::netns::has_program;

use crate::Options;
use crate::flows::make_file;
use crate::report::{Goal, Report, Series};
use tapline_measure::runs::{Run, reap};

/// Datagrams sent before the peer is waited for: they must fit its socket without rights.
const BURST: usize = 40;
/// The longest wait for a peer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Args)]
pub(crate) struct CollectArgs {
    /// Protocols, with commas: 10 is IPFIX, 9 and 5 are NetFlow.
    #[arg(long, value_delimiter = ',', default_values_t = [9, 10])]
    pub(crate) versions: Vec<u8>,
    /// Records that are sent, about.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) records: u64,
}

impl Default for CollectArgs {
    fn default() -> CollectArgs {
        CollectArgs { versions: vec![9, 10], records: 1_000_000 }
    }
}

pub(crate) fn run(args: &CollectArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let tapline = options.tapline()?;
    let trace = folder.path().join("trace.pcap");
    // Two packets a conversation, one each way: each is a record.
    make_file(&tapline, &trace, "60", (args.records / 2, args.records), "400k")?;
    let mut peers = vec!["tapline"];
    if has_program("nfcapd") && has_program("nfdump") {
        peers.push("nfcapd");
    }
    for version in &args.versions {
        let messages = messages(&tapline, &trace, *version)?;
        let mut records = 0;
        let mut series = Series::new(format!("collect/v{version}"), &peers, Some(Goal::TimesFaster(3.0)));
        series.interleave(options.runs, |peer| {
            let peer = Peer::start(peers[peer], &tapline, folder.path())?;
            let run = peer.measure(&messages, folder.path())?;
            ensure!(records == 0 || run.packets == records, "{} records, and {records} before", run.packets);
            records = run.packets;
            Ok(run)
        })?;
        report.add(&series)?;
    }
    Ok(())
}

/// The messages of a probe that meters the trace.
fn messages(tapline: &Path, trace: &Path, version: u8) -> anyhow::Result<Vec<Vec<u8>>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let to = socket.local_addr()?.to_string();
    let mut command = Command::new(tapline);
    command.args([
        "probe",
        "--json",
        "--rate",
        "5000",
        "--version",
        &version.to_string(),
        "--export",
        &to,
        "-r",
    ]);
    let mut probe = command.arg(trace).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut memory = vec![0; 65_536];
    let mut all = Vec::new();
    loop {
        match socket.recv(&mut memory) {
            Ok(len) => all.push(memory[..len].to_vec()),
            Err(_) if probe.try_wait()?.is_some() => break,
            Err(_) => {}
        }
    }
    ensure!(probe.wait()?.success() && !all.is_empty(), "{command:?} sent nothing");
    Ok(all)
}

/// A collector that runs.
struct Peer {
    name: &'static str,
    command: Command,
    child: Child,
    port: u16,
    started: Instant,
}

impl Peer {
    fn start(name: &str, tapline: &Path, folder: &Path) -> anyhow::Result<Peer> {
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let into = folder.join("collected");
        let _ = fs::remove_dir_all(&into);
        fs::create_dir(&into)?;
        let (name, mut command) = match name {
            "tapline" => ("tapline", Command::new(tapline)),
            _ => ("nfcapd", Command::new("nfcapd")),
        };
        if name == "tapline" {
            command.args([
                "collect-flows",
                "--json",
                "--listen",
                &format!("udp://127.0.0.1:{port}"),
                "--export",
            ]);
            command.arg(format!("file:{}", into.join("flows.ipfix").display()));
        } else {
            command.arg("-l").arg(&into).args(["-b", "127.0.0.1", "-p", &port.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let peer = Peer { name, command, child, port, started: Instant::now() };
        peer.wait("it listens", |queue| queue.is_some())?;
        Ok(peer)
    }

    /// Waits until the octets in its socket's queue are as wanted; `None` without such a socket.
    fn wait(&self, what: &str, is_so: impl Fn(Option<u64>) -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        while !is_so(queue_of(self.port)) {
            if start.elapsed() > PATIENCE {
                bail!("{}: waited a minute until {what}", self.name);
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn measure(self, messages: &[Vec<u8>], folder: &Path) -> anyhow::Result<Run> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", self.port))?;
        for burst in messages.chunks(BURST) {
            for message in burst {
                socket.send(message)?;
            }
            self.wait("it has read", |queue| queue == Some(0))?;
        }
        let Peer { name, command, mut child, started, .. } = self;
        let mut out = child.stdout.take().context("standard output is a pipe")?;
        let signal = if name == "tapline" { "-INT" } else { "-TERM" };
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status()?;
        ensure!(killed.success(), "{name} has gone");
        let reader = thread::spawn(move || std::io::read_to_string(&mut out));
        let cpu = reap(child, &command)?;
        let told = reader.join().ok().context("the reader of its output")??;
        let records =
            if name == "tapline" { of_sources(&told)? } else { of_nfdump(&folder.join("collected"))? };
        Ok(Run { cpu, wall: started.elapsed(), packets: records, lost: 0 })
    }
}

/// Octets that wait in the socket of a port.
fn queue_of(port: u16) -> Option<u64> {
    queue_in(&fs::read_to_string("/proc/net/udp").ok()?, port)
}

/// The queue in the table of sockets: its second column is the address of the socket, the third that of its peer, and
/// the fifth has the octets that wait to be sent and to be read.
fn queue_in(sockets: &str, port: u16) -> Option<u64> {
    let own = format!("0100007F:{port:04X}");
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let socket = sockets.lines().map(columns).find(|columns| columns.get(1) == Some(&own))?;
    u64::from_str_radix(socket.get(4)?.split(':').nth(1)?, 16).ok()
}

fn of_sources(told: &str) -> anyhow::Result<u64> {
    let results: Value = serde_json::from_str(told.lines().next().context("no results")?)?;
    let rows = results["results"]["sources"].as_array().context("no sources")?;
    Ok(rows.iter().filter_map(|row| row["flows"].as_u64()).sum())
}

fn of_nfdump(folder: &Path) -> anyhow::Result<u64> {
    let told = Command::new("nfdump").args(["-I", "-R"]).arg(folder).output()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let flows = told.lines().find_map(|line| line.strip_prefix("Flows:"));
    flows.and_then(|number| number.trim().parse().ok()).context("nfdump tells no flows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_that_of_the_receiver() {
        // The sender's line comes first, and names the port as its peer's.
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
            1: 0100007F:9C40 0100007F:1283 01 00000000:00000000 00:00000000 00000000\n\
            2: 0100007F:1283 00000000:0000 07 00000000:00000A00 00:00000000 00000000\n";
        assert_eq!(queue_in(sockets, 0x1283), Some(0xa00));
        assert_eq!(queue_in(sockets, 0x1284), None);
    }
}
