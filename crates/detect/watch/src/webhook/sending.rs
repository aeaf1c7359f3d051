//! The thread that calls addresses and receivers, and the spool: it names receivers, and has none of their secrets.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tapline_sys::output_file;
use ureq::http::Response;

use super::body::{self, Request};
use crate::delivery::{Ending, Tally, Worker};
use crate::event::Event;
use crate::faults::Failure;
use crate::rules::Webhook;

/// The name of the spool.
pub(super) const SPOOL: &str = "webhook.spool";
/// The most bytes of a spool.
const SPOOL_MAX: u64 = 16 << 20;
/// Mark at the beginning of a line of the spool that was sent: no JSON begins so.
const SENT: &[u8] = b"-";
/// Calls that wait.
const QUEUE: usize = 256;
/// The longest time of a call.
const CALL_TIME: Duration = Duration::from_secs(10);
/// Pauses before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Interval at which spooled events are tried again, and after which a failed address is.
const AGAIN: Duration = Duration::from_secs(30);

/// The most characters that are shown of an address to which a redirection leads.
const TARGET_SHOWN: usize = 300;

pub(super) struct Job {
    url: String,
    rule: String,
    body: Value,
}

/// Receivers by their names; a change of the rules may bring others.
type Receivers = Arc<Mutex<HashMap<String, Webhook>>>;

pub(super) struct Sender(pub(super) Worker<Job>, Receivers);

impl Sender {
    pub(super) fn start(spool: PathBuf, receivers: &[Webhook]) -> io::Result<Sender> {
        let receivers = Receivers::new(Mutex::new(by_name(receivers)));
        let theirs = Arc::clone(&receivers);
        Worker::start("webhook", QUEUE, move |jobs, tally, ending| {
            // A redirection of a POST would become a GET without the event.
            let config = ureq::Agent::config_builder().max_redirects(0).http_status_as_error(false).build();
            let caller = Caller {
                agent: config.into(),
                receivers: theirs,
                spool,
                tally,
                ending,
                next_tries: HashMap::new(),
                spooled: HashMap::new(),
            };
            caller.work(&jobs);
        })
        .map(|worker| Sender(worker, receivers))
    }

    pub(super) fn set_receivers(&self, all: &[Webhook]) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = by_name(all);
    }

    pub(super) fn offer(&mut self, url: &str, event: &Event) {
        let job = Job { url: url.to_owned(), rule: event.name.clone(), body: event.to_json() };
        self.0.offer(&event.name, job);
    }
}

fn by_name(all: &[Webhook]) -> HashMap<String, Webhook> {
    all.iter().map(|one| (one.name.clone(), one.clone())).collect()
}

struct Caller {
    agent: ureq::Agent,
    receivers: Receivers,
    spool: PathBuf,
    tally: Arc<Tally>,
    ending: Arc<Ending>,
    /// Addresses that failed, until they answer: the time of their next try.
    next_tries: HashMap<String, Instant>,
    /// Lines of the spool by address. Later events of these wait behind them.
    spooled: HashMap<String, u64>,
}

/// The reason for which a call was not answered well.
enum Miss {
    /// The end has no time for it.
    Late,
    Failed(Failure),
}

impl Caller {
    fn work(mut self, jobs: &Receiver<Job>) {
        self.send_spooled();
        let mut next_look = Instant::now() + AGAIN;
        loop {
            match jobs.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(job) => {
                    self.take(&job);
                    self.tally.end_job();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_look && !self.ending.has_begun() {
                self.send_spooled();
                next_look = Instant::now() + AGAIN;
            }
        }
    }

    fn take(&mut self, job: &Job) {
        let is_behind = self.spooled.contains_key(&job.url) || self.is_skipped(&job.url);
        if !is_behind && self.call_often(job) {
            self.tally.count(&job.rule, |counts| counts.done += 1);
            return;
        }
        match append(&self.spool, &job.url, &job.body) {
            Ok(()) => {
                *self.spooled.entry(job.url.clone()).or_default() += 1;
                self.tally.count(&job.rule, |counts| counts.spooled += 1);
            }
            Err(error) => {
                self.tally.count(&job.rule, |counts| counts.failed += 1);
                let text = format!("an event is lost: cannot write {}: {error}", self.spool.display());
                self.tally.fault(&job.rule, Failure::new("spool", text));
            }
        }
    }

    /// Whether an address failed, and its next try is not due.
    fn is_skipped(&self, url: &str) -> bool {
        self.next_tries.get(url).is_some_and(|time| Instant::now() < *time)
    }

    fn call_often(&mut self, job: &Job) -> bool {
        let mut pauses = PAUSES.iter();
        loop {
            let miss = match self.call(&job.url, &job.body) {
                Ok(()) => return true,
                Err(miss) => miss,
            };
            match pauses.next() {
                Some(pause) if !self.ending.has_begun() => thread::sleep(*pause),
                _ => {
                    self.skip(&job.url, &job.rule, miss);
                    return false;
                }
            }
        }
    }

    /// Reports why an address failed. It is skipped until its next try.
    fn skip(&mut self, url: &str, rule: &str, miss: Miss) {
        if let Miss::Failed(failure) = miss {
            self.next_tries.insert(url.to_owned(), Instant::now() + AGAIN);
            self.tally.fault(rule, failure);
        }
    }

    /// Calls an address once. Only 2xx is an answer.
    fn call(&mut self, url: &str, body: &Value) -> Result<(), Miss> {
        let time = self.ending.left(CALL_TIME);
        if time.is_zero() {
            return Err(Miss::Late);
        }
        let Request { url: address, headers, body } = self.request(url, body).map_err(Miss::Failed)?;
        let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let request = self.agent.post(&address);
        let request = if has_type { request } else { request.header("content-type", "application/json") };
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.config().timeout_global(Some(time)).build();
        let is_secret = !url.contains(':');
        checked(&address, is_secret, request.send(body.to_string())).map_err(Miss::Failed)?;
        self.next_tries.remove(url);
        Ok(())
    }

    /// The request for an address, or for the receiver of a name.
    fn request(&self, url: &str, event: &Value) -> Result<Request, Failure> {
        if url.contains(':') {
            return Ok(Request { url: url.to_owned(), headers: Vec::new(), body: event.clone() });
        }
        let receivers = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match receivers.get(url) {
            Some(webhook) => body::request(webhook, event),
            None => Err("the rules have no [[webhook]] of this name".to_owned()),
        };
        made.map_err(|why| {
            Failure::new("webhook", format!("webhook {url}: {why}; its events wait in the spool"))
        })
    }

    /// Tries spooled events, in their order for each address, until the time of the end. An address that fails is
    /// skipped until its next try; the others go on.
    fn send_spooled(&mut self) {
        let mut lines = Vec::new();
        let spool = match open_spool(&self.spool, fs::OpenOptions::new().read(true).write(true)) {
            Ok(spool) => spool,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.tell_spool(&error),
        };
        if let Err(error) = (&spool).take(2 * SPOOL_MAX).read_to_end(&mut lines) {
            return self.tell_spool(&error);
        }
        if lines.is_empty() {
            return;
        }
        self.note_spooled(&lines);
        let (mut rest, mut at) = (Vec::new(), 0);
        // Of an address no event may overtake another, so the first that stays has all behind it stay.
        let mut held = HashSet::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            // A line that is not JSON was sent already, or cut when the program was killed. It is removed.
            if let Some(job) = job_of(line) {
                if held.contains(&job.url) || !self.call_spooled(&job) {
                    rest.extend_from_slice(line);
                    held.insert(job.url);
                } else {
                    // Should this fail, so will the spool below, which tells it.
                    let _ = spool.write_all_at(SENT, at as u64);
                    self.tally.count(&job.rule, |counts| counts.done += 1);
                }
            }
            at += line.len();
        }
        self.note_spooled(&rest);
        if let Err(error) = self.keep_spooled(&rest) {
            self.tell_spool(&error);
        }
    }

    fn call_spooled(&mut self, job: &Job) -> bool {
        if self.is_skipped(&job.url) {
            return false;
        }
        let missed = self.call(&job.url, &job.body).err();
        let is_answered = missed.is_none();
        missed.into_iter().for_each(|miss| self.skip(&job.url, &job.rule, miss));
        is_answered
    }

    /// Counts the lines of the spool, by address and by rule.
    fn note_spooled(&mut self, lines: &[u8]) {
        self.spooled.clear();
        let mut by_rule = HashMap::new();
        for job in lines.split_inclusive(|byte| *byte == b'\n').filter_map(job_of) {
            *self.spooled.entry(job.url).or_default() += 1;
            *by_rule.entry(job.rule).or_default() += 1;
        }
        self.tally.set_spooled(&by_rule);
    }

    /// Rewrites the spool with the lines that are left.
    fn keep_spooled(&self, rest: &[u8]) -> io::Result<()> {
        let next = self.spool.with_extension("spool.part");
        output_file::create(&next)?.write_all(rest)?;
        fs::rename(&next, &self.spool)
    }

    fn tell_spool(&self, error: &io::Error) {
        let text = format!("cannot read or write {}: {error}", self.spool.display());
        self.tally.fault("", Failure::new("spool", text));
    }
}

/// The event of a line of the spool.
fn job_of(line: &[u8]) -> Option<Job> {
    let mut line: Value = serde_json::from_slice(line).ok()?;
    let url = line["url"].as_str()?.to_owned();
    let rule = line["event"]["rule"].as_str().unwrap_or_default().to_owned();
    Some(Job { url, rule, body: line["event"].take() })
}

/// Fails for every answer other than 2xx. Of a secret address, and of that to which it has moved, the host alone is
/// shown.
fn checked(
    url: &str,
    is_secret: bool,
    answer: Result<Response<ureq::Body>, ureq::Error>,
) -> Result<(), Failure> {
    let cause = match &answer {
        Ok(answer) if answer.status().is_success() => return Ok(()),
        Ok(answer) => format!("answered {}", answer.status().as_u16()),
        Err(ureq::Error::Timeout(_)) => format!("no answer within {} s", CALL_TIME.as_secs()),
        Err(ureq::Error::HostNotFound) => "no such host".to_owned(),
        // The library's own text would have the address in it.
        Err(ureq::Error::BadUri(_)) => "its address cannot be called".to_owned(),
        Err(error) => error.to_string(),
    };
    let header = answer.as_ref().ok().and_then(|answer| answer.headers().get("location"));
    let target = header.and_then(|value| value.to_str().ok()).filter(|_| cause.starts_with("answered 3"));
    let mend = target.map_or_else(String::new, |target| {
        if is_secret {
            return format!(", it has moved to {}", host_of(target));
        }
        let target: String = target.chars().take(TARGET_SHOWN).collect();
        format!(", it has moved: write webhook = \"{target}\" if that is correct")
    });
    let text = format!("webhook {}: {cause}{mend}; what fails is spooled and sent again", host_of(url));
    Err(Failure { cause, text })
}

/// An address without its path and password, which may be secret.
fn host_of(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

/// Opens the spool. A pipe in its place would have the thread wait for ever.
fn open_spool(spool: &Path, options: &mut fs::OpenOptions) -> io::Result<fs::File> {
    match fs::metadata(spool) {
        Ok(about) if !about.is_file() => Err(io::Error::other("it is not a regular file: remove it")),
        _ => output_file::open(spool, options),
    }
}

fn append(spool: &Path, url: &str, body: &Value) -> io::Result<()> {
    let line = json!({ "url": url, "event": body }).to_string() + "\n";
    let mut file = open_spool(spool, fs::OpenOptions::new().create(true).append(true))?;
    if file.metadata()?.len() + line.len() as u64 > SPOOL_MAX {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests;
