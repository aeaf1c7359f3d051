//! Many readers of one interface: N sockets against one daemon.
//!
//! ```text
//! processor 0: sender --near0 === far0--> +- no reader                                   (base: the cost of sending)
//!                                         +- N tcpdumps, a socket and a filter each      (a)
//! processor 1: the readers ---------------+- tapline serve, N tapline capture -i tap:    (b)
//! ```
//!
//! On a veth pair the kernel receives on the sender's processor: each socket's filter and copy cost the sender, not the
//! reading program. So a packet's cost is the processor time of all readers, from their start until they have read
//! everything, plus the sender's time above the base. The first reader takes all packets, so that the daemon captures
//! the same number with any number of readers. A run counts only if every reader got the packets that tcpdump with the
//! same filter got, and none lost a packet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;
use tapline_meters::Clock;
use tapline_sys::usage::CpuTime;
use tapline_sys::{NetNs, proc_packet};
use tapline_testkit::netns::{FAR, Namespace};

use crate::{Options, live};
use tapline_measure::runs::{RATIOS, judge, median};
use tapline_measure::scheduled;

/// Time limit for programs to start, and to read to the end.
const PATIENCE: Duration = Duration::from_secs(20);
/// libpcap's programs hand a block over after a second at the latest.
const SETTLE: Duration = Duration::from_millis(1500);
/// The whole with 8 readers, by 8 sockets.
const GOAL_SHARE: f64 = 1.0 / 3.0;
/// The writer with 16 readers, by that with 1.
const GOAL_WRITER: f64 = 1.3;

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadersArgs {
    /// Numbers of readers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16])]
    readers: Vec<usize>,
    /// Packets a second.
    #[arg(long, default_value_t = 40_000)]
    rate: u64,
    /// Length of each run, in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Filters of readers but the first: a few of a hundred packets, all but these, or all.
    #[arg(long, value_enum, default_value_t)]
    want: Want,
    /// The daemon captures by AF_XDP. No VLANs are sent then: AF_PACKET takes their tags out of packets, so the same
    /// filters would select others.
    #[arg(long)]
    xdp: bool,
}

/// Filters of the readers. The first reads all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Want {
    #[default]
    Few,
    Most,
    All,
}

impl Default for ReadersArgs {
    fn default() -> ReadersArgs {
        ReadersArgs { readers: vec![1, 2, 4, 8, 16], rate: 40_000, seconds: 3, want: Want::Few, xdp: false }
    }
}

/// Results of the readers.
#[derive(Clone, Debug, Default)]
struct Heard {
    cpu: Duration,
    /// Packets of each of them.
    packets: Vec<u64>,
    /// Nanoseconds of the daemon's capture thread a packet.
    writer_ns: Option<f64>,
}

/// A number of readers: the runs.
#[derive(Clone, Debug, Default)]
struct Row {
    /// Nanoseconds a packet.
    sockets: Vec<f64>,
    /// Kernel time of `sockets` on the receiving side, which is the sender's time.
    sockets_kernel: Vec<f64>,
    daemon: Vec<f64>,
    /// Kernel time of `daemon`.
    daemon_kernel: Vec<f64>,
    /// Time of the capture thread of `daemon`.
    writer: Vec<f64>,
}

/// Measures all in turns and prints the medians.
pub(crate) fn run(args: &ReadersArgs, options: &Options) -> anyhow::Result<()> {
    let bench = Bench {
        args,
        tapline: options.tapline()?,
        namespace: Namespace::with_pair("readers").map_err(|e| anyhow!(e))?,
        folder: options.folder()?,
    };
    let mut rows = vec![Row::default(); args.readers.len()];
    for round in 0..options.runs {
        for (row, &count) in rows.iter_mut().zip(&args.readers) {
            bench.measure(row, count).with_context(|| format!("{count} readers, run {round}"))?;
        }
    }
    tell(args, &rows);
    Ok(())
}

/// Filters of readers, each another unless all want all.
pub(crate) fn filter(reader: usize, want: Want) -> String {
    match want {
        _ if reader == 0 => return String::new(),
        Want::Few => {}
        Want::Most => return format!("not ({})", filter(reader, Want::Few)),
        Want::All => return String::new(),
    }
    match reader % 4 {
        0 => format!("tcp and ip[15] & 15 = {reader}"),
        1 => format!("udp and portrange {}-{}", 1000 + 3000 * reader, 3000 + 3000 * reader),
        2 => format!("ip and greater {} and ip[19] & 15 = {reader}", 60 + 20 * reader),
        _ => format!("icmp or arp or (ip6 and ip6[23] & 15 = {reader})"),
    }
}

struct Bench<'a> {
    args: &'a ReadersArgs,
    tapline: PathBuf,
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Bench<'_> {
    fn measure(&self, row: &mut Row, count: usize) -> anyhow::Result<()> {
        let sent = self.args.rate * self.args.seconds;
        let base = self.send()?;
        let (by_sockets, sockets) = self.by_sockets(count)?;
        let (by_daemon, daemon) = self.by_daemon(count)?;
        ensure!(
            sockets.packets == daemon.packets,
            "tcpdump got {:?}, readers {:?}",
            sockets.packets,
            daemon.packets
        );
        let kernel = |sender: Duration| (sender.as_nanos() as f64 - base.as_nanos() as f64) / sent as f64;
        let cost =
            |sender: Duration, heard: &Heard| kernel(sender) + heard.cpu.as_nanos() as f64 / sent as f64;
        row.sockets.push(cost(by_sockets, &sockets));
        row.sockets_kernel.push(kernel(by_sockets));
        row.daemon.push(cost(by_daemon, &daemon));
        row.daemon_kernel.push(kernel(by_daemon));
        row.writer.extend(daemon.writer_ns);
        Ok(())
    }

    /// Sends, and says what processor time that took, with that of the kernel's threads that may receive in the
    /// sender's place.
    fn send(&self) -> anyhow::Result<Duration> {
        let packets = self.args.rate * self.args.seconds;
        let (before, kernel_before) = (CpuTime::of_children(), receiving_threads()?);
        let sent = live::send_from(&self.namespace, self.args.rate, packets, self.args.xdp)?;
        ensure!(sent == packets, "{sent} packets were sent of {packets}");
        let kernel = receiving_threads()?.saturating_sub(kernel_before);
        Ok(CpuTime::of_children().since(before).total() + kernel)
    }

    fn pinned(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.namespace.command("taskset");
        command.args(["-c", "1"]).arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn by_sockets(&self, count: usize) -> anyhow::Result<(Duration, Heard)> {
        let mut children = Vec::new();
        for reader in 0..count {
            let mut command = self.pinned("tcpdump");
            command.args(["-i", FAR, "-Z", "root", "-B", "32768", "-w", "/dev/null"]);
            command.arg(filter(reader, self.args.want));
            children.push(command.spawn().context("starting tcpdump")?);
        }
        let place = NetNs::open(self.namespace.name())?;
        wait_for("tcpdump", || {
            let sockets = place.run(proc_packet::sockets)?;
            let listening = sockets.iter().filter(|socket| socket.if_index != 0 && socket.is_running);
            Ok(listening.count() == count)
        })?;
        let before = cpu_of(&children)?;
        let sender = self.send()?;
        sleep(SETTLE);
        let mut heard = Heard { cpu: cpu_of(&children)? - before, ..Heard::default() };
        for child in children {
            let output = ended(child)?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(number_before(&text, "packets dropped by kernel") == Some(0), "tcpdump lost: {text}");
            heard.packets.push(number_before(&text, "packets captured").context("tcpdump's count")?);
        }
        Ok((sender, heard))
    }

    /// One socket, and a daemon that serves all.
    fn by_daemon(&self, count: usize) -> anyhow::Result<(Duration, Heard)> {
        let socket = self.folder.path().join("socket");
        let mut command = self.pinned(&self.tapline);
        let interface = if self.args.xdp { format!("xdp:{FAR}") } else { FAR.to_owned() };
        command.args(["serve", "-i", &interface, "--name", "bench", "--socket"]).arg(&socket);
        let daemon = command.spawn().context("starting tapline serve")?;
        wait_for("the daemon", || Ok(self.status(&socket).is_ok()))?;
        let mut children = Vec::new();
        for reader in 0..count {
            let mut command = self.pinned(&self.tapline);
            command.args(["capture", "-i", "tap:bench", "--json", "-w", "/dev/null", "--socket"]);
            children.push(
                command
                    .arg(&socket)
                    .arg(filter(reader, self.args.want))
                    .spawn()
                    .context("starting tapline capture")?,
            );
        }
        let status = std::cell::RefCell::new(Value::Null);
        let readers = |is_done: &dyn Fn(&Value) -> bool| {
            let mut status = status.borrow_mut();
            *status = self.status(&socket)?;
            let readers = status["captures"][0]["readers"].as_array().context("readers")?;
            Ok(readers.len() == count && readers.iter().all(is_done))
        };
        wait_for("readers", || readers(&|_| true))?;
        let before = (cpu_of(&children)? + cpu_of([&daemon])?, writer_ns(&status.borrow()));
        let sender = self.send()?;
        sleep(SETTLE);
        wait_for("readers to have read all", || readers(&|reader| reader["counts"]["unread"] == 0))?;
        let after = (cpu_of(&children)? + cpu_of([&daemon])?, writer_ns(&status.borrow()));
        let mut heard = Heard {
            cpu: after.0 - before.0,
            writer_ns: Some((after.1 - before.1) / (self.args.rate * self.args.seconds) as f64),
            ..Heard::default()
        };
        let status = status.into_inner();
        let capture = &status["captures"][0];
        ensure!(capture["lost_before"] == 0, "the daemon lost: {capture}");
        for child in children {
            let output = ended(child)?;
            let value: Value = serde_json::from_slice(&output.stdout).context("a reader's account")?;
            let account = &value["account"];
            let tap = &account["interfaces"][0]["tap"];
            let is_whole =
                ["index_full", "overwritten", "damaged", "unread"].iter().all(|cause| tap[cause] == 0);
            ensure!(account["balanced"] == true && is_whole, "a reader lost: {account}");
            heard.packets.push(tap["offered"].as_u64().context("offered")?);
        }
        ended(daemon)?;
        let _ = fs::remove_file(&socket);
        Ok((sender, heard))
    }

    fn status(&self, socket: &Path) -> anyhow::Result<Value> {
        let output =
            Command::new(&self.tapline).args(["status", "--json", "--socket"]).arg(socket).output()?;
        ensure!(
            output.status.success(),
            "tapline status: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Ends a program.
fn ended(child: Child) -> anyhow::Result<Output> {
    live::interrupt(&child)?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}

/// Processor time of programs so far, with all their threads.
fn cpu_of<'c>(children: impl IntoIterator<Item = &'c Child>) -> anyhow::Result<Duration> {
    let all: Option<u64> = children.into_iter().flat_map(|child| scheduled::tasks(child.id())).sum();
    all.map(Duration::from_nanos).context("a program or a thread of it ended while its time was read")
}

/// Processor time of the kernel's threads for work that interrupts left.
fn receiving_threads() -> anyhow::Result<Duration> {
    let all: Option<u64> = scheduled::kernel_threads("ksoftirqd/").into_iter().map(scheduled::thread).sum();
    all.map(Duration::from_nanos).context("the kernel does not report what its threads take")
}

/// Nanoseconds of the daemon's capture thread so far.
fn writer_ns(status: &Value) -> f64 {
    status["captures"][0]["cpu_ns"].as_f64().unwrap_or(0.0)
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let start = Instant::now();
    while !is_there()? {
        ensure!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The number before these words.
fn number_before(text: &str, words: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(words))?;
    line.split_whitespace().next()?.parse().ok()
}

fn tell(args: &ReadersArgs, rows: &[Row]) {
    println!(
        "{} packets a second, {} s, the daemon by {}, readers that select {} packets: nanoseconds of processor time a packet, above what sending takes",
        args.rate,
        args.seconds,
        if args.xdp { "AF_XDP" } else { "AF_PACKET" },
        match args.want {
            Want::Few => "few",
            Want::Most => "most",
            Want::All => "all",
        }
    );
    println!(
        "{:>8}{:>12}{:>8}{:>13}{:>8}{:>12}{:>9}{:>8}{:>8}{:>13}",
        "readers",
        "N tcpdumps",
        "kernel",
        "on a daemon",
        "kernel",
        "its writer",
        "readers",
        "share",
        "cycles",
        "of 1 reader"
    );
    let of = |values: &[f64]| median(values.iter().copied());
    let clock = Clock::get();
    let first = rows.first().map_or(0.0, |row| of(&row.writer));
    for (row, &count) in rows.iter().zip(&args.readers) {
        let (sockets, daemon, writer) = (of(&row.sockets), of(&row.daemon), of(&row.writer));
        let (sockets_kernel, daemon_kernel) = (of(&row.sockets_kernel), of(&row.daemon_kernel));
        let readers = (daemon - daemon_kernel - writer).max(0.0);
        let (share, growth) = (daemon / sockets, writer / first);
        let verdict = match count {
            8 => format!(
                "  goal {} (share {GOAL_SHARE:.2})",
                judge(share, RATIOS, |share| share <= GOAL_SHARE)
            ),
            16 => format!(
                "  goal {} (writer {GOAL_WRITER})",
                judge(growth, RATIOS, |growth| growth <= GOAL_WRITER)
            ),
            _ => String::new(),
        };
        println!(
            "{count:>8}{sockets:>12.0}{sockets_kernel:>8.0}{daemon:>13.0}{daemon_kernel:>8.0}{writer:>12.0}{readers:>9.0}{share:>8.2}{:>8.0}{growth:>13.2}{verdict}",
            writer * clock.frequency_hz() / 1e9
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_tcpdump() {
        let text = "tcpdump: listening on far0\n12 packets captured\n15 packets received by filter\n0 packets dropped by kernel\n";
        assert_eq!(number_before(text, "packets captured"), Some(12));
        assert_eq!(number_before(text, "packets dropped by kernel"), Some(0));
        assert_eq!(number_before(text, "packets lost"), None);
    }

    #[test]
    fn filters_compile_and_differ() {
        let all = (0..16).flat_map(|reader| [filter(reader, Want::Few), filter(reader, Want::Most)]);
        let filters: std::collections::BTreeSet<String> = all.collect();
        assert_eq!(filters.len(), 31, "the first wants all in both");
        for text in filters {
            tapline_filter::compile(&text, &tapline_filter::Options::default()).unwrap();
        }
    }
}
