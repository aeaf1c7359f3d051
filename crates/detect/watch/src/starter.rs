//! The process that starts commands for a watcher that is confined.
//!
//! ```text
//! watcher (confined: parses packets)          starter (not confined: reads the rules, never a packet)
//!   {"words": …, "line": …}      ──────►        one of the commands of the rules? start it, wait for its end
//!   (empty line)                 ──────►        kill it
//!                                ◄──────        null, or {"cause": …, "text": …}
//!   (closed)                     ──────►        exits
//! ```
//!
//! A watcher that fell to a hostile packet can have the commands of its rules started, which it may do in any case, with
//! an event of its choice, and no other one. Rules that were read again may have others: for a command that it does not
//! know the starter reads the rules itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use tapline_sys::helper;

use crate::delivery::{CommandJob, LOOK, start_and_wait};
use crate::faults::Failure;

/// The longest request and answer in bytes; the event of a request is the most of it.
const LINE_MAX: u64 = 64 << 20;

/// The end of a watcher of its connection to the process that starts its commands.
#[derive(Debug)]
pub struct CommandStarter(Mutex<BufReader<UnixStream>>);

impl CommandStarter {
    /// Starts the process, which first has `give_up` give up rights. `read` reads the commands of all rules.
    ///
    /// Call it before the process has more than one thread, as it forks.
    ///
    /// # Errors
    /// If a process or socket cannot be created.
    pub fn start(
        give_up: impl FnOnce() -> Result<(), String>,
        read: impl FnMut() -> Vec<Vec<String>>,
    ) -> io::Result<CommandStarter> {
        let socket = helper::start(|socket| match give_up() {
            Ok(()) => serve(socket, read),
            Err(why) => drop(writeln!(io::stderr(), "tapline: no command can be started: {why}")),
        })?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(CommandStarter(Mutex::new(BufReader::new(socket))))
    }

    /// Has a command started, and waits for its end, or until `is_over`.
    pub(crate) fn run(&self, job: &CommandJob, is_over: &dyn Fn() -> bool) -> Result<(), Failure> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answer(&mut socket, job, is_over).unwrap_or_else(|error| {
            let program = job.program();
            let text =
                format!("cannot start {program}: the process that starts commands has ended ({error})");
            Err(Failure::new("starter", text))
        })
    }
}

fn answer(
    socket: &mut BufReader<UnixStream>,
    job: &CommandJob,
    is_over: &dyn Fn() -> bool,
) -> io::Result<Result<(), Failure>> {
    let request = serde_json::to_string(job)? + "\n";
    socket.get_mut().write_all(request.as_bytes())?;
    let (mut answer, mut is_killed) = (Vec::new(), false);
    loop {
        match line(socket, &mut answer) {
            Ok(()) => {
                let failure: Option<Failure> = serde_json::from_slice(&answer)?;
                return Ok(failure.map_or(Ok(()), Err));
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if !is_killed && is_over() {
            socket.get_mut().write_all(b"\n")?;
            is_killed = true;
        }
    }
}

/// Reads on to the end of a line, which is then `text`.
fn line(socket: &mut BufReader<UnixStream>, text: &mut Vec<u8>) -> io::Result<()> {
    let left = LINE_MAX - text.len() as u64;
    socket.by_ref().take(left).read_until(b'\n', text)?;
    match text.last() {
        Some(b'\n') => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// The life of the starter. It ends with the watcher; a command that runs then goes on.
fn serve(socket: UnixStream, mut read: impl FnMut() -> Vec<Vec<String>>) {
    let mut known = read();
    let mut socket = BufReader::new(socket);
    loop {
        let mut request = Vec::new();
        if socket.get_ref().set_read_timeout(None).is_err() || line(&mut socket, &mut request).is_err() {
            return;
        }
        // An order to kill a command that had ended by then.
        if request == b"\n" {
            continue;
        }
        let Ok(job) = serde_json::from_slice::<CommandJob>(&request) else { return };
        if !known.contains(&job.words) {
            known.extend(read());
        }
        let done = match known.contains(&job.words) {
            true => start(&mut socket, &job),
            false => Err(Failure::new("unknown", format!("no rule has the command {}", job.program()))),
        };
        let Ok(answer) = serde_json::to_string(&done.err()) else { return };
        if socket.get_mut().write_all((answer + "\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn start(socket: &mut BufReader<UnixStream>, job: &CommandJob) -> Result<(), Failure> {
    let no_time = |error| Failure::new("starter", format!("cannot wait for {}: {error}", job.program()));
    socket.get_ref().set_read_timeout(Some(LOOK)).map_err(no_time)?;
    start_and_wait(job, &mut || match socket.read(&mut [0]) {
        Ok(0) => helper::exit(0),
        Ok(_) => true,
        Err(error) => !is_timeout(&error),
    })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::delivery::{Commands, DeliveryCounts};
    use crate::event::Event;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn starter(known: &'static [&'static [&'static str]]) -> std::sync::Arc<CommandStarter> {
        let read = || known.iter().map(|one| words(one)).collect();
        CommandStarter::start(|| Ok(()), read).unwrap().into()
    }

    /// Has a starter start a command. Returns the counters, and the reported failures.
    fn ended(
        starter: &std::sync::Arc<CommandStarter>,
        command: &[&str],
        time: Duration,
    ) -> (DeliveryCounts, String) {
        let mut commands = Commands::start(Some(std::sync::Arc::clone(starter))).unwrap();
        commands.offer(&words(command), &Event::of_rule("r"));
        // A command for which the end has no time is not started.
        while !commands.waits_for().is_some_and(|jobs| jobs.contains("of rule r")) {
            thread::sleep(LOOK);
        }
        commands.end_by(Instant::now() + time);
        commands.finish();
        (commands.counts(), commands.take_faults().concat())
    }

    #[test]
    fn commands_of_the_rules_and_no_others_are_started() {
        let starter = starter(&[&["grep", "-q", "r"], &["sh", "-c", "exit 3"]]);
        let time = Duration::from_secs(60);
        let done = DeliveryCounts { done: 1, ..DeliveryCounts::default() };
        let failed = DeliveryCounts { failed: 1, ..DeliveryCounts::default() };
        assert_eq!(ended(&starter, &["grep", "-q", "r"], time), (done, String::new()));
        let (counts, told) = ended(&starter, &["sh", "-c", "exit 3"], time);
        assert!(counts == failed && told.contains("sh ended with status 3"), "{counts:?} {told}");
        let (counts, told) = ended(&starter, &["sh", "-c", "exit 0"], time);
        assert!(counts == failed && told.contains("no rule has the command sh"), "{counts:?} {told}");
    }

    #[test]
    fn the_end_has_a_command_killed() {
        let starter = starter(&[&["sleep", "777"], &["true"]]);
        let (counts, told) = ended(&starter, &["sleep", "777"], Duration::from_millis(100));
        assert!(counts.failed == 1 && told.contains("the run ended before it was done"), "{counts:?} {told}");
        // An order to kill that came late is none for the next command.
        starter.0.lock().unwrap().get_mut().write_all(b"\n").unwrap();
        assert_eq!(ended(&starter, &["true"], Duration::from_secs(60)).0.done, 1);
    }
}
