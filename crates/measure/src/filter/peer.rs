//! libpcap's compiler in a process of its own, which can be ended: its optimiser takes minutes for a thousand ports.
//!
//! ```text
//! this process                         child: the same program and arguments, with PEER in its environment
//!   text ----------- stdin ----------->  libpcap compiles it, again and again
//!   program, times <- stdout, by line -  program, then the time of each run; or why the text is refused
//!   the limit is over: the child is killed, and what it has told counts
//! ```

use std::io::{Read, Write, stdin};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tapline_arena::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_bpf::Insn;

use crate::runs::median;

/// Set in the child's environment: how many times to compile.
const PEER: &str = "TAPLINE_BENCH_PEER";

/// Begins each line of the answer.
const MARK: &str = "peer";

/// libpcap's program for a text.
#[derive(Debug)]
pub(crate) enum Peer {
    /// libpcap is not installed, or refused the text.
    Absent,
    /// Its compiler was ended before it had a program.
    Ended {
        /// Its time limit.
        limit: Duration,
    },
    /// Its program, and the median of the times that compiling took.
    Compiled { program: LibpcapProgram, time: Duration },
}

impl Peer {
    /// Compiles `text` up to `runs` times, for `limit` at most.
    ///
    /// # Errors
    /// If no child can be started.
    pub(crate) fn compile(text: &str, runs: usize, limit: Duration) -> anyhow::Result<Peer> {
        if Libpcap::get().is_err() {
            return Ok(Peer::Absent);
        }
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program);
        child.args(std::env::args_os().skip(1)).env(PEER, runs.max(3).to_string());
        ask(child, text, limit)
    }
}

impl Peer {
    /// The program, if there is one.
    pub(crate) fn program(&self) -> Option<&LibpcapProgram> {
        match self {
            Peer::Compiled { program, .. } => Some(program),
            Peer::Absent | Peer::Ended { .. } => None,
        }
    }

    /// Compile time, if the compiler completed.
    pub(crate) fn time(&self) -> Option<Duration> {
        match self {
            Peer::Compiled { time, .. } => Some(*time),
            Peer::Absent | Peer::Ended { .. } => None,
        }
    }

    /// Time limit of a compiler that was ended.
    pub(crate) fn ended_after(&self) -> Option<Duration> {
        match self {
            Peer::Ended { limit } => Some(*limit),
            Peer::Absent | Peer::Compiled { .. } => None,
        }
    }
}

/// In the child: answers, and is true. Elsewhere nothing happens.
pub fn answered() -> anyhow::Result<bool> {
    let Some(runs) = std::env::var_os(PEER) else { return Ok(false) };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let mut text = String::new();
    stdin().read_to_string(&mut text).context("reading the filter to compile")?;
    let Ok(pcap) = Libpcap::get() else { return Ok(true) };
    let mut out = std::io::stdout();
    for run in 0..runs {
        let start = Instant::now();
        let Ok(program) = pcap.compile(&text, CompileSettings::new(1)) else { break };
        let ns = start.elapsed().as_nanos();
        if run == 0 {
            for Insn { code, jt, jf, k } in program.insns() {
                writeln!(out, "{MARK} insn {code} {jt} {jf} {k}")?;
            }
        }
        writeln!(out, "{MARK} ns {ns}")?;
        out.flush()?;
    }
    writeln!(out, "{MARK} end")?;
    Ok(true)
}

fn ask(mut child: Command, text: &str, limit: Duration) -> anyhow::Result<Peer> {
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", child.get_program().to_string_lossy()))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (told, all_told) = mpsc::channel();
    let text = text.to_owned();
    let reader = std::thread::spawn(move || {
        // A child that ends early closes its end; what it told counts all the same.
        let _ = input.map(|mut input| input.write_all(text.as_bytes()));
        let mut answer = Vec::new();
        let _ = output.map(|mut output| output.read_to_end(&mut answer));
        let _ = told.send(());
        answer
    });
    let ended = all_told.recv_timeout(limit).is_err();
    if ended {
        // It may have ended by itself just now.
        let _ = child.kill();
    }
    child.wait().context("waiting for libpcap's compiler")?;
    let answer = reader.join().map_err(|_| anyhow::anyhow!("reading what libpcap's compiler says"))?;
    Ok(parse(&String::from_utf8_lossy(&answer), ended, limit))
}

fn parse(answer: &str, ended: bool, limit: Duration) -> Peer {
    let (mut insns, mut times) = (Vec::new(), Vec::new());
    for line in answer.lines() {
        let mut words = line.split(' ');
        if words.next() != Some(MARK) {
            continue;
        }
        let kind = words.next();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (kind, numbers.as_slice()) {
            (Some("insn"), &[code, jt, jf, k]) => {
                insns.push(Insn { code: code as u16, jt: jt as u8, jf: jf as u8, k: k as u32 });
            }
            (Some("ns"), &[ns]) => times.push(ns as f64),
            _ => {}
        }
    }
    match (times.is_empty(), ended) {
        (true, true) => Peer::Ended { limit },
        (true, false) => Peer::Absent,
        (false, _) => Peer::Compiled {
            program: LibpcapProgram::new(insns),
            time: Duration::from_nanos(median(times.into_iter()) as u64),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any machine takes for what ends by itself.
    const LONG: Duration = Duration::from_secs(3600);

    /// A program that stands for libpcap's compiler.
    fn stub(program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    #[test]
    fn a_compiler_that_does_not_end_is_ended() {
        let peer = ask(stub("sleep", &["600"]), "ip", Duration::from_millis(1)).expect("a child");
        assert!(matches!(peer, Peer::Ended { limit } if limit == Duration::from_millis(1)), "{peer:?}");
    }

    #[test]
    fn reports_before_the_end_count() {
        let answer = "machine\npeer insn 6 0 0 262144\npeer ns 1000\n";
        let peer = parse(answer, true, Duration::from_millis(1));
        let Peer::Compiled { program, time } = peer else { panic!("{peer:?}") };
        assert_eq!((program.insns().len(), time), (1, Duration::from_nanos(1000)));
        let whole = ask(stub("printf", &[answer]), "", LONG);
        assert!(matches!(whole, Ok(Peer::Compiled { .. })), "{whole:?}");
    }

    #[test]
    fn a_compiler_that_refuses_has_no_program() {
        let peer = ask(stub("true", &[]), "no filter", LONG).expect("a child");
        assert!(matches!(peer, Peer::Absent), "{peer:?}");
    }
}
