//! The testkit as a program, for the demonstration, scripts and experiments by hand.
//!
//! ```text
//! tapline-testkit netns up NAME                     a namespace with near0 === far0, quiet and up
//! tapline-testkit netns down NAME
//! tapline-testkit netns wait NAME SOCKETS PID       until a process obeys Ctrl-C and so many packet sockets listen
//! tapline-testkit send [--netns NAME] --interface NAME [--count N] [--rate N] [--seed N]
//! tapline-testkit traffic FILE [--count N] [--seed N]        mixed traffic as a pcap file
//! tapline-testkit sample FILE                                the sample of the repository
//! ```

use std::fs::{self, File};
use std::io::BufWriter;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use tapline_sys::NetNs;
use tapline_sys::proc_packet::{self, PacketSocketEntry};
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{self, FAR, NEAR, Namespace};
use tapline_testkit::own_process::catches_interrupts;
use tapline_testkit::sample;
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::traffic::Traffic;

const USAGE: &str = "\
usage: tapline-testkit netns up NAME
       tapline-testkit netns down NAME
       tapline-testkit netns wait NAME SOCKETS PID
       tapline-testkit send [--netns NAME] --interface NAME [--count N] [--rate N] [--seed N]
       tapline-testkit traffic FILE [--count N] [--seed N]
       tapline-testkit sample FILE";

/// Different frames that `send` goes through over and over.
const FRAME_POOL: u64 = 50_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["netns", "up", name] => netns_up(name),
        ["netns", "down", name] => netns::remove(name),
        ["netns", "wait", name, sockets, pid] => netns_wait(name, sockets, pid),
        ["send", options @ ..] => send(options),
        ["traffic", path, options @ ..] => traffic(path, options),
        ["sample", path] => write_sample(path),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn netns_up(name: &str) -> Result<(), String> {
    let namespace = Namespace::named(name)?;
    namespace.add_pair(NEAR, FAR)?;
    namespace.keep();
    Ok(())
}

/// Waits until the process catches SIGINT and `sockets` packet sockets are bound in the namespace.
fn netns_wait(name: &str, sockets: &str, pid: &str) -> Result<(), String> {
    let wanted: usize =
        sockets.parse().map_err(|_| format!("{sockets}: not a number of sockets\n{USAGE}"))?;
    let process: u32 = pid.parse().map_err(|_| format!("{pid}: not a process\n{USAGE}"))?;
    let namespace = NetNs::open(name).map_err(|error| format!("namespace {name}: {error}"))?;
    loop {
        let listens = |socket: &PacketSocketEntry| socket.is_running && socket.if_index != 0;
        let found = namespace.run(proc_packet::sockets).map_err(|error| error.to_string())?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        let status = status.map_err(|error| format!("process {pid}: {error}"))?;
        if status.lines().any(|line| line.starts_with("State:") && line.contains('Z')) {
            return Err(format!("process {pid} has ended"));
        }
        if found.iter().filter(|socket| listens(socket)).count() >= wanted && catches_interrupts(process) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn send(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let interface = options.interface.ok_or(USAGE)?;
    let mut sender = Sender::open(options.netns, interface)?;
    let pool = Traffic::new(options.seed).take(FRAME_POOL.min(options.count) as usize);
    let frames: Vec<Vec<u8>> = pool.map(|(_, frame)| frame).collect();
    let sent = sender.send(&frames, options.count, options.pace)?;
    let seconds = sent.duration.as_secs_f64();
    println!(
        "sent {} frames, {} bytes in {seconds:.3} s, {:.0} a second",
        sent.packets,
        sent.bytes,
        sent.rate()
    );
    Ok(())
}

fn traffic(path: &str, words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let frames = Traffic::new(options.seed).take(options.count as usize);
    let write = || write_pcap(&mut BufWriter::new(File::create(path)?), ETHERNET, Unit::Nanoseconds, frames);
    let packets = write().map_err(|e| format!("{path}: {e}"))?;
    println!("{path}: {packets} packets");
    Ok(())
}

fn write_sample(path: &str) -> Result<(), String> {
    let write = || sample::write(&mut BufWriter::new(File::create(path)?));
    let packets = write().map_err(|e: std::io::Error| format!("{path}: {e}"))?;
    println!("{path}: {packets} packets");
    Ok(())
}

/// The options behind the command: pairs of a name and a value.
struct Options<'a> {
    netns: Option<&'a str>,
    interface: Option<&'a str>,
    count: u64,
    pace: Pace,
    seed: u64,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Result<Options<'a>, String> {
        let mut options = Options { netns: None, interface: None, count: 10_000, pace: Pace::Full, seed: 1 };
        for pair in words.chunks(2) {
            let &[name, value] = pair else { return Err(format!("{} needs a value\n{USAGE}", pair[0])) };
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: not a number"));
            match name {
                "--netns" => options.netns = Some(value),
                "--interface" => options.interface = Some(value),
                "--count" => options.count = number()?,
                "--rate" => options.pace = Pace::PerSecond(number()?),
                "--seed" => options.seed = number()?,
                _ => return Err(format!("{name}: no such option\n{USAGE}")),
            }
        }
        Ok(options)
    }
}
