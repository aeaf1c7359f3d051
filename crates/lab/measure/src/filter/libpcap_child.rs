//! libpcap's compiler in a child process, so that it can be killed: its optimiser takes minutes for a thousand ports.
//!
//! ```text
//! parent: `LibpcapCompile::run`           child: the same executable and arguments, with RUNS_ENV in its environment
//!   filter text ------- stdin ----------->  `answered`: libpcap compiles the text RUNS_ENV times
//!   program, times <--- stdout, by line --  "peer insn CODE JT JF K" for each instruction, "peer ns NS" for each run,
//!                                           "peer end"; no instruction if libpcap refuses the text
//!   at the time limit the child is killed, and the lines it has written count
//! ```

use std::io::{Read, Write, stdin};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tapline_arena::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_bpf::Insn;

use crate::runs::median;

/// Environment variable of the child: how many times to compile. Its presence makes a process the child.
const RUNS_ENV: &str = "TAPLINE_BENCH_PEER";

/// First word of each line that the child writes; other lines of its output are ignored.
const MARK: &str = "peer";

/// The outcome of compiling a filter with libpcap.
#[derive(Debug)]
pub(crate) enum LibpcapCompile {
    /// libpcap is not installed, or refused the text.
    Absent,
    /// The child was killed at the time limit before it had compiled once.
    Killed {
        /// The time limit.
        limit: Duration,
    },
    /// libpcap's program, and the median of its compile times.
    Compiled { program: LibpcapProgram, time: Duration },
}

impl LibpcapCompile {
    /// Compiles `text` in a child, `runs` times (at least three) or until `limit` is over.
    ///
    /// # Errors
    /// If the child cannot be started or waited for.
    pub(crate) fn run(text: &str, runs: usize, limit: Duration) -> anyhow::Result<LibpcapCompile> {
        if Libpcap::get().is_err() {
            return Ok(LibpcapCompile::Absent);
        }
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program);
        child.args(std::env::args_os().skip(1)).env(RUNS_ENV, runs.max(3).to_string());
        run_child(child, text, limit)
    }
}

impl LibpcapCompile {
    /// libpcap's program, if it compiled one.
    pub(crate) fn program(&self) -> Option<&LibpcapProgram> {
        match self {
            LibpcapCompile::Compiled { program, .. } => Some(program),
            LibpcapCompile::Absent | LibpcapCompile::Killed { .. } => None,
        }
    }

    /// Median compile time, if it compiled at least once.
    pub(crate) fn time(&self) -> Option<Duration> {
        match self {
            LibpcapCompile::Compiled { time, .. } => Some(*time),
            LibpcapCompile::Absent | LibpcapCompile::Killed { .. } => None,
        }
    }

    /// The time limit, if the child was killed at it without a program.
    pub(crate) fn killed_after(&self) -> Option<Duration> {
        match self {
            LibpcapCompile::Killed { limit } => Some(*limit),
            LibpcapCompile::Absent | LibpcapCompile::Compiled { .. } => None,
        }
    }
}

/// In the child process that measures libpcap's compiler (the environment says so): compiles the filter on standard
/// input, writes program and times to standard output, and gives true: the caller ends then. In any other process it
/// gives false and does nothing. A program that calls [`run`](super::run) calls this before it prints anything.
///
/// # Errors
/// If standard input or output fails.
pub fn answered() -> anyhow::Result<bool> {
    let Some(runs) = std::env::var_os(RUNS_ENV) else { return Ok(false) };
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

/// Starts `child` with `text` as its input, kills it after `limit`, and parses its output up to then.
fn run_child(mut child: Command, text: &str, limit: Duration) -> anyhow::Result<LibpcapCompile> {
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", child.get_program().to_string_lossy()))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (eof_sender, eof) = mpsc::channel();
    let text = text.to_owned();
    let reader = std::thread::spawn(move || {
        // Writing fails if the child has exited; the lines it wrote before count all the same.
        let _ = input.map(|mut input| input.write_all(text.as_bytes()));
        let mut answer = Vec::new();
        let _ = output.map(|mut output| output.read_to_end(&mut answer));
        let _ = eof_sender.send(());
        answer
    });
    let timed_out = eof.recv_timeout(limit).is_err();
    if timed_out {
        // Fails if it has exited meanwhile.
        let _ = child.kill();
    }
    child.wait().context("waiting for libpcap's compiler")?;
    let answer = reader.join().map_err(|_| anyhow::anyhow!("reading what libpcap's compiler says"))?;
    Ok(parse(&String::from_utf8_lossy(&answer), timed_out, limit))
}

/// Reads the child's lines; one line with a time is enough for a program.
fn parse(answer: &str, timed_out: bool, limit: Duration) -> LibpcapCompile {
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
    match (times.is_empty(), timed_out) {
        (true, true) => LibpcapCompile::Killed { limit },
        (true, false) => LibpcapCompile::Absent,
        (false, _) => LibpcapCompile::Compiled {
            program: LibpcapProgram::new(insns),
            time: Duration::from_nanos(median(times.into_iter()) as u64),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time limit that is never reached.
    const LONG: Duration = Duration::from_secs(3600);

    /// A command that replaces the child.
    fn stub(program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    #[test]
    fn a_compiler_beyond_its_limit_is_killed() {
        let result = run_child(stub("sleep", &["600"]), "ip", Duration::from_millis(1)).expect("a child");
        assert!(
            matches!(result, LibpcapCompile::Killed { limit } if limit == Duration::from_millis(1)),
            "{result:?}"
        );
    }

    #[test]
    fn lines_before_the_kill_count() {
        let answer = "machine\npeer insn 6 0 0 262144\npeer ns 1000\n";
        let result = parse(answer, true, Duration::from_millis(1));
        let LibpcapCompile::Compiled { program, time } = result else { panic!("{result:?}") };
        assert_eq!((program.insns().len(), time), (1, Duration::from_nanos(1000)));
        let whole = run_child(stub("printf", &[answer]), "", LONG);
        assert!(matches!(whole, Ok(LibpcapCompile::Compiled { .. })), "{whole:?}");
    }

    #[test]
    fn a_compiler_that_refuses_has_no_program() {
        let result = run_child(stub("true", &[]), "no filter", LONG).expect("a child");
        assert!(matches!(result, LibpcapCompile::Absent), "{result:?}");
    }
}
