//! Packets to flows to IPFIX: `tapline probe -r FILE --export udp://...` against softflowd, nfpcapd, argus and pmacctd.
//!
//! The table fills to the full number of conversations: no timeout is shorter than the file. What is sent goes to a
//! socket here that throws it away, and what that costs is not counted. nfpcapd has no export by UDP that ends with its
//! file, so it writes its own files, as it is used; so does argus. pmacctd sends NetFlow v5, whose packets are counted
//! here; it waits for most of a minute at its end, so it runs only if it is named.
//!
//! Before anything is measured each runs once, and must have every packet: tapline by its account, softflowd by its
//! statistics, which must report no message that could not be sent, nfpcapd by the packets that `nfdump -I` finds in
//! its files, argus by those that `racount` finds, pmacctd by its output. In one run of several, its records have a
//! few tens of packets more or fewer than there were; so much is accepted.

use std::fs::File;
use std::io::BufWriter;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::has_program;
use tapline_testkit::traffic::Traffic;

use crate::Options;
use crate::report::{Goal, Report, Series};
use tapline_measure::runs::{Run, median, run as measure};

/// In place of sizes: sessions of all kinds, that is both IP versions, tags, questions and answers, connections that open,
/// transfer and close.
const MIXED: &str = "mixed";
/// Longer than any file here, in seconds.
const NEVER: &str = "3600";

#[derive(Clone, Debug, Args)]
pub(crate) struct FlowsArgs {
    /// Conversations, with commas: numbers up to 1,000,000.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000, 1_000_000])]
    pub(crate) conversations: Vec<u64>,
    /// Packets of each file.
    #[arg(long, default_value_t = 4_000_000)]
    pub(crate) packets: u64,
    /// Sizes of frames, as recipes have them, with commas: 60 is 64 bytes with the check sequence. `mixed` is the
    /// traffic of a small network, with as many conversations as it has.
    #[arg(long, value_delimiter = ',', default_values_t = ["60", "imix", MIXED].map(str::to_owned))]
    pub(crate) sizes: Vec<String>,
    /// Peers, with commas: softflowd, nfpcapd, argus, pmacctd; those that are not installed are left out.
    #[arg(long, value_delimiter = ',', default_values_t = PEERS.map(str::to_owned))]
    pub(crate) peers: Vec<String>,
}

impl Default for FlowsArgs {
    fn default() -> FlowsArgs {
        let sizes = ["60", "imix", MIXED].map(str::to_owned).to_vec();
        let peers = PEERS.map(str::to_owned).to_vec();
        FlowsArgs { conversations: vec![1_000, 100_000, 1_000_000], packets: 4_000_000, sizes, peers }
    }
}

/// Peers by default.
const PEERS: [&str; 3] = ["softflowd", "nfpcapd", "argus"];

pub(crate) fn run(args: &FlowsArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let tapline = options.tapline()?;
    let sink = Sink::start()?;
    let mut peers = vec!["tapline"];
    for peer in &args.peers {
        let needs: &[&str] = match peer.as_str() {
            "softflowd" => &["softflowd"],
            "nfpcapd" => &["nfpcapd", "nfdump"],
            "argus" => &["argus", "racount"],
            "pmacctd" => &["pmacctd"],
            other => bail!("{other} is not a peer; there are softflowd, nfpcapd, argus and pmacctd"),
        };
        if needs.iter().all(|program| has_program(program)) {
            peers.push(peer);
        }
    }
    for size in &args.sizes {
        let mut resident = Vec::new();
        let conversations = if size == MIXED { &[0][..] } else { &args.conversations };
        for &conversations in conversations {
            let path = folder.path().join("flows.pcap");
            match conversations {
                0 => make_mixed(&path, args.packets)?,
                _ => make_file(&tapline, &path, size, (conversations, args.packets), "400k")?,
            }
            let job = Job { tapline: &tapline, path: &path, folder: folder.path(), port: sink.port };
            for peer in &peers {
                // Not all frames of mixed traffic have a flow, and not all peers read each of its frames.
                let slack = if conversations == 0 { args.packets / 10 } else { 0 };
                check(&job, peer, args.packets, slack, &sink)?;
            }
            let name = match conversations {
                0 => format!("flows/{size}"),
                _ => format!("flows/{size}/{conversations}"),
            };
            let mut series = Series::new(name, &peers, Some(Goal::TimesFaster(10.0)));
            series.interleave(options.runs, |peer| {
                let mut command = job.command(peers[peer])?;
                let run = measure(&mut command, args.packets);
                job.tidy_up();
                run
            })?;
            report.add(&series)?;
            tell_rates(&series);
            resident.extend(job.resident_kib()?.map(|kib| (conversations, kib)));
        }
        tell_memory(&resident);
    }
    Ok(())
}

/// One file, and where flows go.
struct Job<'j> {
    tapline: &'j Path,
    path: &'j Path,
    folder: &'j Path,
    port: u16,
}

impl Job<'_> {
    fn command(&self, peer: &str) -> anyhow::Result<Command> {
        let to = format!("127.0.0.1:{}", self.port);
        let mut command =
            Command::new(if peer == "tapline" { self.tapline.as_os_str() } else { peer.as_ref() });
        match peer {
            "tapline" => {
                command.args([
                    "probe",
                    "--json",
                    "--active-timeout",
                    NEVER,
                    "--idle-timeout",
                    NEVER,
                    "--export",
                    &to,
                ]);
            }
            "softflowd" => {
                command.args(["-d", "-v", "10", "-m", "3000000", "-n", &to]);
                for name in ["tcp", "tcp.rst", "tcp.fin", "udp", "icmp", "general", "maxlife"] {
                    command.args(["-t", &format!("{name}={NEVER}")]);
                }
                for (option, name) in [("-p", "softflowd.pid"), ("-c", "softflowd.ctl")] {
                    command.arg(option).arg(self.folder.join(name));
                }
            }
            "argus" => {
                // Its reports of active flows are not needed.
                command.args(["-S", NEVER, "-w"]).arg(self.folder.join("argus"));
            }
            "pmacctd" => {
                std::fs::write(self.folder.join("pmacctd"), self.settings_of_pmacctd())?;
                command.arg("-f").arg(self.folder.join("pmacctd"));
                return Ok(command);
            }
            _ => {
                let into = self.folder.join("nfpcapd");
                std::fs::create_dir_all(&into)?;
                command.args(["-e", &format!("{NEVER},{NEVER}"), "-B", "2000000", "-w"]).arg(into);
            }
        }
        command.arg("-r").arg(self.path);
        Ok(command)
    }

    fn settings_of_pmacctd(&self) -> String {
        let names = ["tcp", "tcp.rst", "tcp.fin", "udp", "icmp", "general", "maxlife"];
        format!(
            "daemonize: false\nplugins: nfprobe\npcap_savefile: {}\nnfprobe_receiver: 127.0.0.1:{}\nnfprobe_version: 5\n\
             nfprobe_timeouts: {}\nplugin_buffer_size: 10240\nplugin_pipe_size: 536870912\n\
             aggregate: src_host,dst_host,src_port,dst_port,proto,tos\n",
            self.path.display(),
            self.port,
            names.map(|name| format!("{name}={NEVER}")).join(":")
        )
    }

    /// Takes away what nfpcapd and argus wrote.
    fn tidy_up(&self) {
        let _ = std::fs::remove_file(self.folder.join("argus"));
        let _ = std::fs::remove_dir_all(self.folder.join("nfpcapd"));
    }

    /// The most memory that we had, in KiB, if GNU time is there to say.
    fn resident_kib(&self) -> anyhow::Result<Option<f64>> {
        if !Path::new("/usr/bin/time").exists() {
            return Ok(None);
        }
        let command = self.command("tapline")?;
        let mut timed = Command::new("/usr/bin/time");
        timed.args(["-f", "%M"]).arg(command.get_program()).args(command.get_args());
        let output = timed.stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(text.lines().last().and_then(|line| line.trim().parse().ok()))
    }
}

/// Conversations of TCP and UDP over IPv4, in any order. A TCP flow is one connection, as far as packets reach.
pub(crate) fn make_file(
    tapline: &Path,
    path: &Path,
    size: &str,
    (conversations, packets): (u64, u64),
    rate: &str,
) -> anyhow::Result<()> {
    let segments = (packets / conversations.max(1)).clamp(3, 10_000);
    let mut command = Command::new(tapline);
    command.args(["generate", "-w"]).arg(path).args(["udp", "tcp", "ip", "order=random", "walk=random"]);
    command.args(["src=10.0.0.0/12", "dst=10.64.0.0-10.64.255.255", "dport=80,443,53,9"]);
    for (key, value) in
        [("size", size.to_owned()), ("flows", conversations.to_string()), ("count", packets.to_string())]
    {
        command.arg(format!("{key}={value}"));
    }
    command.arg(format!("segments={segments}")).arg(format!("rate={rate}"));
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The first packets of the traffic of a small network.
fn make_mixed(path: &Path, packets: u64) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write_pcap(&mut out, ETHERNET, Unit::Microseconds, Traffic::new(1).take(packets as usize))
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

/// Every packet is in a record, by what the peer itself says.
fn check(job: &Job<'_>, peer: &str, packets: u64, slack: u64, sink: &Sink) -> anyhow::Result<()> {
    let before = sink.packets.load(Ordering::Relaxed);
    let output = job.command(peer)?.stdin(Stdio::null()).output()?;
    let told = match peer {
        "tapline" => of_account(&output.stdout)?,
        "softflowd" => of_statistics(&output)?,
        "argus" => of_racount(&job.folder.join("argus"))?,
        "pmacctd" => sink.packets.load(Ordering::Relaxed) - before,
        _ => of_files(&job.folder.join("nfpcapd"))?,
    };
    job.tidy_up();
    let slack = slack.max(if peer == "pmacctd" { packets / 10_000 } else { 0 });
    ensure!(told.abs_diff(packets) <= slack, "{peer}: {told} of {packets} packets are in records");
    if told != packets {
        println!("  {peer}: {told} of {packets} packets are in records");
    }
    Ok(())
}

/// Packets in records that were sent, by our account, which must balance.
fn of_account(stdout: &[u8]) -> anyhow::Result<u64> {
    let text = String::from_utf8_lossy(stdout);
    let account: Value = serde_json::from_str(text.lines().last().context("tapline says nothing")?)?;
    let account = &account["account"];
    ensure!(account["balanced"] == true, "the account does not balance: {account}");
    let stages = account["stages"].as_array().context("no stages in the account")?;
    let export = stages.iter().find(|stage| stage["class"] == "ipfix").context("no export in the account")?;
    export["output"]["written"].as_u64().context("no packets in the account")
}

/// Packets that softflowd processed, all of whose messages were sent.
fn of_statistics(output: &Output) -> anyhow::Result<u64> {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name));
    let exported = line("Flows exported:").context("softflowd tells no statistics")?;
    ensure!(exported.ends_with("(0 failures)"), "softflowd: {exported}");
    let forced = line("Flows expired:").context("softflowd tells no statistics")?;
    ensure!(forced.ends_with("(0 forced)"), "softflowd: {forced}");
    number_behind(&text, "Packets processed:")
}

/// Packets in the files of a folder, as nfdump reads them.
fn of_files(folder: &Path) -> anyhow::Result<u64> {
    let output = Command::new("nfdump").arg("-R").arg(folder).arg("-I").stdin(Stdio::null()).output()?;
    number_behind(&String::from_utf8_lossy(&output.stdout), "Packets:")
}

/// Packets in a file of argus: the second column of the sum.
fn of_racount(path: &Path) -> anyhow::Result<u64> {
    let output = Command::new("racount").arg("-r").arg(path).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum =
        text.lines().find(|line| line.trim_start().starts_with("sum")).context("racount tells no sum")?;
    let packets = sum.split_whitespace().nth(2).context("racount tells no packets")?;
    packets.parse().with_context(|| format!("racount: {sum}"))
}

fn number_behind(text: &str, name: &str) -> anyhow::Result<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    rest.trim().parse().with_context(|| format!("{name} {rest}"))
}

fn tell_rates(series: &Series) {
    let rate = |runs: &[Run]| 1e3 / median(runs.iter().map(Run::cpu_ns_per_packet));
    let rates = series.peers.iter().map(|(name, runs)| format!("{name} {:.2}", rate(runs)));
    println!("  million packets a processor second: {}\n", rates.collect::<Vec<_>>().join(", "));
}

/// Memory of a further conversation, from the fewest to the most.
fn tell_memory(resident: &[(u64, f64)]) {
    if let (Some((few, little)), Some((many, much))) = (resident.first(), resident.last())
        && many > few
    {
        let bytes = (much - little) * 1024.0 / (many - few) as f64;
        println!(
            "  tapline, memory: {bytes:.0} bytes a conversation ({little:.0} KiB with {few}, {much:.0} KiB with {many})\n"
        );
    }
}

/// Takes datagrams and throws them away. Of NetFlow v5 the packets in its records are counted.
struct Sink {
    port: u16,
    packets: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Sink {
    fn start() -> anyhow::Result<Sink> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let port = socket.local_addr()?.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let packets = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&packets);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(len) = socket.recv(&mut buffer) {
                    counted.fetch_add(of_version_5(&buffer[..len]), Ordering::Relaxed);
                }
            }
        });
        Ok(Sink { port, packets, is_over })
    }
}

/// Packets in the records of a message of NetFlow v5: a header of 24 octets, records of 48.
fn of_version_5(message: &[u8]) -> u64 {
    let Some((&[0, 5, ..], records)) = message.split_first_chunk::<24>() else { return 0 };
    let packets =
        |record: &[u8]| record.get(16..20).and_then(|octets| octets.try_into().ok()).map(u32::from_be_bytes);
    records.chunks_exact(48).filter_map(packets).map(u64::from).sum()
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_behind_their_names() {
        let text = "Ident: none\nPackets: 5000\nPackets_tcp: 2500\n";
        assert_eq!(number_behind(text, "Packets:").unwrap(), 5000);
        let mut message = vec![0; 24 + 2 * 48 + 3];
        (message[1], message[24 + 19], message[24 + 48 + 18]) = (5, 7, 1);
        assert_eq!(
            (of_version_5(&message), of_version_5(&message[..30]), of_version_5(&[0, 10])),
            (7 + 256, 0, 0)
        );
        assert!(number_behind(text, "Bytes:").is_err() && number_behind(text, "Ident:").is_err());
    }
}
