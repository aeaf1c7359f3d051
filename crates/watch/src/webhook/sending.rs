//! The thread that calls addresses, and the spool.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::delivery::{DeliveryCounts, Ending, Tally, Worker};
use crate::event::Event;

/// The name of the spool.
pub(super) const SPOOL: &str = "webhook.spool";
/// The most bytes of a spool.
const SPOOL_MAX: u64 = 16 << 20;
/// What a line of the spool begins with once it was sent: no JSON does.
const SENT: &[u8] = b"-";
/// Calls that wait.
const QUEUE: usize = 256;
/// The longest time of a call.
const CALL_TIME: Duration = Duration::from_secs(10);
/// Pauses before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Interval at which what is spooled is tried again.
const AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Job {
    url: String,
    body: Value,
}

pub(super) struct Sender(Worker<Job>);

impl Sender {
    pub(super) fn start(spool: PathBuf) -> std::io::Result<Sender> {
        Worker::start("webhooks", QUEUE, move |jobs, tally, ending| {
            let agent = ureq::Agent::new_with_defaults();
            Caller { agent, spool, tally, ending, has_failed: false }.work(&jobs);
        })
        .map(Sender)
    }

    pub(super) fn offer(&mut self, url: &str, event: &Event) {
        self.0.offer(Job { url: url.to_owned(), body: event.to_json() });
    }

    pub(super) fn end_by(&mut self, end: Instant) {
        self.0.end_by(end);
    }

    pub(super) fn finish(&mut self) {
        self.0.finish();
    }

    pub(super) fn counts(&self) -> DeliveryCounts {
        self.0.counts()
    }
}

struct Caller {
    agent: ureq::Agent,
    spool: PathBuf,
    tally: Arc<Tally>,
    ending: Arc<Ending>,
    /// A call has failed since the end began: the rest is spooled at once.
    has_failed: bool,
}

impl Caller {
    fn work(mut self, jobs: &Receiver<Job>) {
        self.send_spooled();
        loop {
            match jobs.recv_timeout(AGAIN) {
                Ok(job) => self.take(&job),
                Err(RecvTimeoutError::Timeout) => self.send_spooled(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn take(&mut self, job: &Job) {
        if self.call_often(&job.url, &job.body) {
            self.tally.done.fetch_add(1, Ordering::Relaxed);
        } else if append(&self.spool, &job.url, &job.body).is_err() {
            self.tally.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn call_often(&mut self, url: &str, body: &Value) -> bool {
        let mut pauses = PAUSES.iter();
        loop {
            if self.call(url, body) {
                return true;
            }
            match pauses.next() {
                Some(pause) if !self.ending.has_begun() => thread::sleep(*pause),
                _ => return false,
            }
        }
    }

    /// Whether the address answered with 2xx or, after redirections, with what is no error.
    fn call(&mut self, url: &str, body: &Value) -> bool {
        let time = self.ending.left(CALL_TIME);
        if self.has_failed || time.is_zero() {
            return false;
        }
        let request = self.agent.post(url).header("content-type", "application/json");
        let request = request.config().timeout_global(Some(time)).build();
        let is_answered = request.send(body.to_string()).is_ok();
        self.has_failed = !is_answered && self.ending.has_begun();
        is_answered
    }

    /// Tries what is spooled, in its order, up to the first that fails or the time of the end; the rest stays.
    fn send_spooled(&mut self) {
        let mut lines = Vec::new();
        let Ok(spool) = fs::OpenOptions::new().read(true).write(true).open(&self.spool) else { return };
        if (&spool).take(2 * SPOOL_MAX).read_to_end(&mut lines).is_err() || lines.is_empty() {
            return;
        }
        let mut at = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let job: Value = serde_json::from_slice(line).unwrap_or_default();
            // What is no JSON was sent before the program was killed, or not written to its end then: it goes.
            if let Some(url) = job["url"].as_str() {
                if !self.call(url, &job["event"]) {
                    break;
                }
                // Should this fail, so will the spool below, which tells it.
                let _ = spool.write_all_at(SENT, at as u64);
                self.tally.done.fetch_add(1, Ordering::Relaxed);
            }
            at += line.len();
        }
        self.keep_spooled(&lines[at..]);
    }

    /// Writes the spool anew, with the lines that are left.
    fn keep_spooled(&self, rest: &[u8]) {
        let next = self.spool.with_extension("spool.part");
        let written = fs::write(&next, rest).and_then(|()| fs::rename(&next, &self.spool));
        if let Err(error) = written {
            let _ = writeln!(std::io::stderr(), "tapline: {}: {error}", self.spool.display());
        }
    }
}

fn append(spool: &Path, url: &str, body: &Value) -> std::io::Result<()> {
    let line = json!({ "url": url, "event": body }).to_string() + "\n";
    let mut file = fs::OpenOptions::new().create(true).append(true).open(spool)?;
    if file.metadata()?.len() + line.len() as u64 > SPOOL_MAX {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// Answers calls, each after a time; the bodies that came.
    fn answer(listener: &TcpListener, calls: usize, after: Duration) -> Vec<Value> {
        (0..calls)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                thread::sleep(after);
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut len = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let line = line.trim().to_ascii_lowercase();
                    if let Some(value) = line.strip_prefix("content-length:") {
                        len = value.trim().parse().unwrap();
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; len];
                reader.read_exact(&mut body).unwrap();
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .unwrap();
                serde_json::from_slice(&body).unwrap()
            })
            .collect()
    }

    /// A sender that is told to end soon.
    fn end(mut sender: Sender, time: Duration) -> DeliveryCounts {
        sender.end_by(Instant::now() + time);
        sender.finish();
        sender.counts()
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn what_finds_no_answer_is_sent_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join(SPOOL);
        let event = Event::of_rule("r");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // No socket listens on a port that was just given back, so the call is refused.
        drop(listener);
        let mut sender = Sender::start(spool.clone()).unwrap();
        sender.offer(&url, &event);
        end(sender, LONG);
        assert_eq!(fs::read_to_string(&spool).unwrap().lines().count(), 1);
        let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
        let answering = thread::spawn(move || answer(&listener, 2, Duration::ZERO));
        let mut sender = Sender::start(spool.clone()).unwrap();
        sender.offer(&url, &event);
        assert_eq!(end(sender, LONG), DeliveryCounts { done: 2, failed: 0, refused: 0 });
        assert_eq!(answering.join().unwrap(), [event.to_json(), event.to_json()]);
        assert_eq!(fs::read_to_string(&spool).unwrap(), "");
    }

    /// A long spool, and a receiver that takes its time.
    #[test]
    fn the_end_keeps_what_it_has_no_time_for() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join(SPOOL);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let event = Event::of_rule("r");
        (0..1000).for_each(|_| append(&spool, &url, &event.to_json()).unwrap());
        thread::spawn(move || answer(&listener, 1000, Duration::from_millis(100)));
        let mut sender = Sender::start(spool.clone()).unwrap();
        while sender.counts().done < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        // So far nothing was written anew: who was killed here would know what was sent.
        let text = fs::read_to_string(&spool).unwrap();
        assert!(text.lines().filter(|line| line.starts_with('-')).count() >= 3);
        let begin = Instant::now();
        sender.offer(&url, &event);
        let done = end(sender, Duration::from_millis(500)).done;
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        let text = fs::read_to_string(&spool).unwrap();
        assert_eq!(text.lines().count() as u64 + done, 1001);
        assert!(text.lines().all(|line| line.starts_with('{')), "what was sent is gone");
    }
}
