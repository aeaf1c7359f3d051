//! The thread that calls addresses, and the spool.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::delivery::{DeliveryCounts, Tally, Worker};
use crate::event::Event;

/// The name of the spool.
pub(super) const SPOOL: &str = "webhook.spool";
/// The most bytes of a spool.
const SPOOL_MAX: u64 = 16 << 20;
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

pub(super) struct Sender {
    worker: Worker<Job>,
    is_ending: Arc<AtomicBool>,
}

impl Sender {
    pub(super) fn start(spool: PathBuf) -> std::io::Result<Sender> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_ending);
        let worker = Worker::start("webhooks", QUEUE, move |jobs, tally| {
            let config = ureq::Agent::config_builder().timeout_global(Some(CALL_TIME)).build();
            Caller { agent: config.into(), spool, is_ending: theirs, tally, has_failed: false }.work(&jobs);
        })?;
        Ok(Sender { worker, is_ending })
    }

    pub(super) fn offer(&mut self, url: &str, event: &Event) {
        self.worker.offer(Job { url: url.to_owned(), body: event.to_json() });
    }

    pub(super) fn finish(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.worker.finish();
    }

    pub(super) fn counts(&self) -> DeliveryCounts {
        self.worker.counts()
    }
}

struct Caller {
    agent: ureq::Agent,
    spool: PathBuf,
    is_ending: Arc<AtomicBool>,
    tally: Arc<Tally>,
    /// A call has failed since the end was asked for: the rest is spooled at once.
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
        if self.has_failed {
            return false;
        }
        let mut pauses = PAUSES.iter();
        loop {
            if self.call(url, body) {
                return true;
            }
            if self.is_ending.load(Ordering::Relaxed) {
                self.has_failed = true;
                return false;
            }
            match pauses.next() {
                Some(pause) => thread::sleep(*pause),
                None => return false,
            }
        }
    }

    /// Whether the address answered with 2xx or, after redirections, with what is no error.
    fn call(&self, url: &str, body: &Value) -> bool {
        let request = self.agent.post(url).header("content-type", "application/json");
        request.send(body.to_string()).is_ok()
    }

    /// Tries what is spooled, in its order, up to the first that fails; the rest stays.
    fn send_spooled(&mut self) {
        let mut text = String::new();
        let read =
            fs::File::open(&self.spool).and_then(|file| file.take(2 * SPOOL_MAX).read_to_string(&mut text));
        if read.is_err() || text.is_empty() {
            return;
        }
        let lines: Vec<&str> = text.lines().collect();
        let sent = lines.iter().take_while(|line| {
            let job: Value = serde_json::from_str(line).unwrap_or_default();
            // A line that is cut is of a writer that was killed: it goes.
            let Some(url) = job["url"].as_str() else { return true };
            self.call(url, &job["event"])
        });
        let sent = sent.count();
        self.tally.done.fetch_add(sent as u64, Ordering::Relaxed);
        let rest: String = lines[sent..].iter().flat_map(|line| [line, "\n"]).collect();
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
    use crate::event::EventKind;

    fn event() -> Event {
        Event {
            time_ns: 0,
            rule: 0,
            name: "r".to_owned(),
            kind: EventKind::Seen,
            key: Vec::new(),
            value: None,
            above: None,
            message: String::new(),
            about: serde_json::Map::new(),
            swallowed: 0,
            recording: None,
        }
    }

    /// Answers calls; the bodies that came.
    fn answer(listener: &TcpListener, calls: usize) -> Vec<Value> {
        (0..calls)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
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

    #[test]
    fn what_finds_no_answer_is_sent_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join(SPOOL);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // No socket listens on a port that was just given back, so the call is refused.
        drop(listener);
        let mut sender = Sender::start(spool.clone()).unwrap();
        sender.offer(&url, &event());
        sender.finish();
        assert_eq!(fs::read_to_string(&spool).unwrap().lines().count(), 1);
        let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
        let answering = thread::spawn(move || answer(&listener, 2));
        let mut sender = Sender::start(spool.clone()).unwrap();
        sender.offer(&url, &event());
        sender.finish();
        assert_eq!(answering.join().unwrap(), [event().to_json(), event().to_json()]);
        assert_eq!(sender.counts(), DeliveryCounts { done: 2, failed: 0, refused: 0 });
        assert_eq!(fs::read_to_string(&spool).unwrap(), "");
    }
}
