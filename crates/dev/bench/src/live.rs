//! Live capture to a file at the same offered load: tapline, tcpdump, dumpcap.
//!
//! ```text
//! processor 0: sender --near0 === far0--> ring --> processor 1: the peer --> file
//! ```
//!
//! On a veth pair the receiving half of the kernel runs on the sender's processor, so the peer's processor time is
//! the cost of taking packets from the ring and writing them. Packets that were sent and are not in the file are
//! lost.

use crate::Options;
use crate::report::{Goal, Report, Series};
use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tapline_measure::answer;
use tapline_measure::runs::{self, Run};
use tapline_sys::{NetNs, proc_packet};
use tapline_testkit::netns::{FAR, NEAR, Namespace};
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::traffic::Traffic;

/// Different frames that the sender goes through over and over.
const FRAME_POOL: usize = 20_000;
/// Time limit for a peer's start.
const START_MAX: Duration = Duration::from_secs(10);
/// libpcap's programs hand a block over after a second at the latest; what is not handed over at the end is lost.
const SETTLE: Duration = Duration::from_millis(1500);

#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgs {
    /// Offered loads, in packets a second.
    #[arg(long, value_delimiter = ',', default_values_t = [50_000, 150_000])]
    rate: Vec<u64>,
    /// Length of each run, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Ring of each peer, in MiB.
    #[arg(long, default_value_t = 32)]
    buffer_mib: u64,
}

impl Default for LiveArgs {
    fn default() -> LiveArgs {
        LiveArgs { rate: vec![50_000, 150_000], seconds: 4, buffer_mib: 32 }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SendArgs {
    #[arg(long)]
    netns: String,
    #[arg(long)]
    rate: u64,
    #[arg(long)]
    packets: u64,
    /// Without VLAN tags.
    #[arg(long)]
    untagged: bool,
}

#[derive(Clone, Copy, Debug)]
enum Peer {
    Tapline,
    TaplineNg,
    Tcpdump,
    Dumpcap,
}

const PEERS: [(&str, Peer); 4] = [
    ("tapline", Peer::Tapline),
    ("tapline-ng", Peer::TaplineNg),
    ("tcpdump", Peer::Tcpdump),
    ("dumpcap", Peer::Dumpcap),
];

pub(crate) fn run(args: &LiveArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let folder = options.folder()?;
    let tapline = options.tapline()?;
    let namespace = Namespace::with_pair("bench").map_err(|e| anyhow!(e))?;
    for &rate in &args.rate {
        let goal = Some(Goal::ShareOfTime(0.7));
        let names = PEERS.map(|(name, _)| name);
        let mut series = Series::new(format!("live/{rate} packets a second"), &names, goal);
        let setting = Setting { namespace: &namespace, tapline: &tapline, folder: folder.path(), args, rate };
        series.interleave(options.runs, |peer| setting.run(PEERS[peer].1))?;
        report.add(&series)?;
    }
    Ok(())
}

/// The sender's process: prints how many frames the kernel took.
pub(crate) fn send(args: &SendArgs) -> anyhow::Result<()> {
    let is_tagged = |frame: &Vec<u8>| matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
    let frames = Traffic::new(1).map(|(_, frame)| frame);
    let frames: Vec<Vec<u8>> =
        frames.filter(|frame| !(args.untagged && is_tagged(frame))).take(FRAME_POOL).collect();
    let mut sender = Sender::open(Some(&args.netns), NEAR).map_err(|e| anyhow!(e))?;
    let sent = sender.send(&frames, args.packets, Pace::PerSecond(args.rate)).map_err(|e| anyhow!(e))?;
    println!("{}", sent.packets);
    Ok(())
}

struct Setting<'a> {
    namespace: &'a Namespace,
    tapline: &'a Path,
    folder: &'a Path,
    args: &'a LiveArgs,
    rate: u64,
}

impl Setting<'_> {
    fn run(&self, peer: Peer) -> anyhow::Result<Run> {
        let path = self.folder.join(if matches!(peer, Peer::TaplineNg | Peer::Dumpcap) {
            "out.pcapng"
        } else {
            "out.pcap"
        });
        let mut command = self.capture(peer, &path);
        let start = Instant::now();
        let mut child = runs::start_quietly(&mut command)?;
        let sent = self
            .wait_until_listening(&mut child)
            .and_then(|()| send_from(self.namespace, self.rate, self.rate * self.args.seconds, false));
        std::thread::sleep(SETTLE);
        interrupt(&child)?;
        let cpu = runs::reap(child, &command)?;
        let sent = sent?;
        let stored = answer::read(&mut BufReader::with_capacity(1 << 20, File::open(&path)?))?.packets;
        std::fs::remove_file(&path)?;
        ensure!(stored <= sent, "{peer:?} stored {stored} packets of {sent}");
        Ok(Run { cpu, wall: start.elapsed(), packets: stored, lost: sent - stored })
    }

    fn capture(&self, peer: Peer, path: &Path) -> Command {
        let mut command = self.namespace.command("taskset");
        command.args(["-c", "1"]);
        let mib = self.args.buffer_mib;
        match peer {
            Peer::Tapline | Peer::TaplineNg => {
                command.arg(self.tapline).args(["capture", "-i", FAR, "-B", &(mib * 1024).to_string()])
            }
            Peer::Tcpdump => {
                command.args(["tcpdump", "-i", FAR, "-Z", "root", "-B", &(mib * 1024).to_string()])
            }
            Peer::Dumpcap => command.args(["dumpcap", "-q", "-i", FAR, "-B", &mib.to_string()]),
        };
        command.arg("-w").arg(path);
        command
    }

    /// Waits until the peer's socket is bound.
    fn wait_until_listening(&self, child: &mut Child) -> anyhow::Result<()> {
        let place = NetNs::open(self.namespace.name())?;
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            let sockets = place.run(proc_packet::sockets)?;
            if sockets.iter().any(|socket| socket.if_index != 0 && socket.is_running) {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                bail!("the capture ended before it began: {status}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the capture did not begin within {START_MAX:?}")
    }
}

/// Sends from a process of its own on the first processor. Returns how many packets went.
pub(crate) fn send_from(
    namespace: &Namespace,
    rate: u64,
    packets: u64,
    untagged: bool,
) -> anyhow::Result<u64> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(std::env::current_exe()?).args(["send", "--netns", namespace.name()]);
    command.args(["--rate", &rate.to_string(), "--packets", &packets.to_string()]);
    command.args(untagged.then_some("--untagged"));
    let output = command.output()?;
    ensure!(output.status.success(), "sender: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8_lossy(&output.stdout).trim().parse().context("the sender's count")
}

pub(crate) fn interrupt(child: &Child) -> anyhow::Result<()> {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    ensure!(status.success(), "kill -INT {}: {status}", child.id());
    Ok(())
}
