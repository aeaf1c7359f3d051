//! Browsers that look on: processor time of a live meter with `tapline view` and its clients, and without.
//!
//! ```text
//! generate --near0 === far0--> probe --view (processor 1) --PID.view--> tapline view --events, once a second--> clients
//! ```
//!
//! The traffic is of a million hosts. Each client must have had an event in nearly every second, and the greatest
//! memory of `tapline view` is reported.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use tapline_measure::runs::{self, Run};
use tapline_testkit::netns::{FAR, NEAR, Namespace};

use crate::Options;
use crate::live::interrupt;
use crate::report::{Goal, Report, Series};

/// Packets a second: the rate that one processor sends and the kernel passes on, in addition to all else.
const RATE: u64 = 100_000;
/// Hosts of the traffic.
const HOSTS: u64 = 1_000_000;
/// Time limit for a start.
const START_MAX: Duration = Duration::from_secs(10);
/// Seconds of a run that a client may miss: the first, the last, and one that was late.
const MISSED_MAX: u64 = 4;

pub(super) fn run(
    tapline: &Path,
    (browsers, seconds): (usize, u64),
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let namespace = match Namespace::with_pair("view") {
        Ok(namespace) => namespace,
        Err(why) => {
            println!("  skipped: browsers: {why}");
            return Ok(());
        }
    };
    let folder = options.folder()?;
    let job = Job { tapline, namespace: &namespace, folder: folder.path(), browsers, seconds };
    let peers = [format!("{browsers} browsers"), "no browser".to_owned()];
    let names = peers.each_ref().map(String::as_str);
    // Noise of a live run with a sender beside it.
    let mut series = Series::new(format!("view/{browsers} browsers"), &names, Some(Goal::ShareOfTime(1.03)));
    let mut held = 0;
    series.interleave(options.runs, |peer| {
        let (run, kib) = job.run(peer == 0)?;
        held = held.max(kib);
        Ok(run)
    })?;
    report.add(&series)?;
    println!("  tapline view held {:.1} MB at most, after {HOSTS} hosts (goal 64 MB)", held as f64 / 1000.0);
    Ok(())
}

struct Job<'j> {
    tapline: &'j Path,
    namespace: &'j Namespace,
    folder: &'j Path,
    browsers: usize,
    seconds: u64,
}

impl Job<'_> {
    /// A run of the meter, and what `tapline view` held at most, in KiB.
    fn run(&self, is_watched: bool) -> anyhow::Result<(Run, u64)> {
        let start = Instant::now();
        let mut command = self.namespace.command("taskset");
        command.args(["-c", "1"]).arg(self.tapline).args(["probe", "-i", FAR, "--view", "--top", "1"]);
        command.args(["--flows-max", "2M", "--json"]).env("TAPLINE_RUN_DIR", self.folder);
        let meter = runs::start_quietly(&mut command)?;
        self.wait_for_a_view()?;
        let viewer = if is_watched { Some(self.view()?) } else { None };
        let clients: Vec<_> = viewer.iter().flat_map(|(_, address)| self.clients(address)).collect();
        let sent = self.send();
        let viewer = viewer.map(|(child, _)| child);
        let held = viewer.as_ref().map_or(Ok(0), |child| held_kib(child.id()));
        interrupt(&meter)?;
        // No other child may be waited for before.
        let cpu = runs::reap(meter, &command)?;
        if let Some(mut viewer) = viewer {
            interrupt(&viewer)?;
            viewer.wait()?;
        }
        let packets = sent?;
        for client in clients {
            let events = client.join().map_err(|_| anyhow!("a client panicked"))??;
            ensure!(
                events + MISSED_MAX >= self.seconds,
                "a client had {events} events in {} s",
                self.seconds
            );
        }
        Ok((Run { cpu, wall: start.elapsed(), packets, lost: 0 }, held?))
    }

    fn wait_for_a_view(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            let mut entries = fs::read_dir(self.folder)?.flatten();
            if entries.any(|entry| entry.path().extension().is_some_and(|ending| ending == "view")) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the meter has made no view within {START_MAX:?}")
    }

    /// `tapline view`, and its address with the token.
    fn view(&self) -> anyhow::Result<(Child, String)> {
        let mut command = Command::new(self.tapline);
        command.args(["view", "--listen", "127.0.0.1:0"]).env("TAPLINE_RUN_DIR", self.folder);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("tapline view")?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut address)?;
        ensure!(
            address.contains("/#token="),
            "tapline view says {address:?}: is the feature `view` missing?"
        );
        Ok((child, address.trim().to_owned()))
    }

    fn clients(&self, address: &str) -> Vec<thread::JoinHandle<anyhow::Result<u64>>> {
        let client = |_| {
            let address = address.to_owned();
            thread::spawn(move || client(&address))
        };
        (0..self.browsers).map(client).collect()
    }

    /// Sends for the time of the run. Returns how many packets went.
    fn send(&self) -> anyhow::Result<u64> {
        let count = RATE * self.seconds;
        let mut command = self.namespace.command("taskset");
        command.args(["-c", "0"]).arg(self.tapline).args(["generate", "-i", NEAR, "--json", "udp", "ip"]);
        command.args(["src=10.0.0.0/12", "dst=10.64.0.0-10.64.255.255", "dport=80,443,53,9", "order=random"]);
        command.args([format!("flows={HOSTS}"), format!("count={count}"), format!("rate={RATE}")]);
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(count)
    }
}

/// Reads events until the server ends. Returns their number.
fn client(address: &str) -> anyhow::Result<u64> {
    let (host, token) = address.split_once("/#token=").context("an address with its token")?;
    let host = host.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let cookie = {
        write!(
            stream,
            "GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        )?;
        let mut cookie = None;
        loop {
            let mut line = String::new();
            ensure!(lines.read_line(&mut line)? > 0, "the session ended");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("set-cookie:") {
                let start = line.len() - value.len();
                cookie = line[start..].split(';').next().map(|cookie| cookie.trim().to_owned());
            }
            if line == "\r\n" {
                break;
            }
        }
        cookie.context("no cookie")?
    };
    // The body of the session: two letters.
    let mut body = [0; 2];
    std::io::Read::read_exact(&mut lines, &mut body)?;
    write!(stream, "GET /api/events?page=hosts HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n")?;
    let (mut events, mut line) = (0, Vec::new());
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ok(events),
            Ok(_) => events += u64::from(line.starts_with(b"data: ")),
        }
    }
}

/// The most that a process held in memory.
fn held_kib(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    line.trim().trim_end_matches(" kB").trim().parse().context("a number of KiB")
}
