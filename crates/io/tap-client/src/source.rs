//! A reader of a daemon's buffers, as a source of packets.
//!
//! ```text
//! running --stop--> draining: the daemon offers nothing new --all was read--> end
//!    |                 |
//!    +--the daemon closes the capture--> end        what it had stored was read
//!    +--the daemon is gone-------------> error      likewise
//!    +--either, and we are to come back-> absent --it is there again--> running
//! ```

mod counts;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_packet::{Batch, Interface, InterfaceId, Record};
use tapline_ring::{
    Guarantee, MergedBatch, MergedReader, Reader, SourceCounter as Counted, VerdictUse, WaitEnd,
    WakeThreshold,
};
use tapline_source::{Advance, Error as CaptureError, InterfaceAccount, Source, UncapturedCounts};
use tapline_sys::{Wakeup, tsc};

use crate::client::{ANSWER_WAIT, Client, ask, unexpected};
use crate::interfaces::{InterfaceTable, QUESTION_WAIT, greatest_number};
use crate::protocol::{AttachRequest, AttachedReader, Reply, Request, StartPosition};
use crate::{Channel, Error};
use counts::{PLACES, Past};

/// The prefix of the name of a daemon's capture, where names of interfaces are expected.
pub const PREFIX: &str = "tap:";

/// The time in which the daemon hands over packets from before a stop, in addition to the requested delay: the
/// kernel's open block, and the daemon's own work.
const LAST_PACKETS_WAIT: Duration = Duration::from_millis(30);
/// The time that a daemon has to let a reader go.
const DETACH_WAIT: Duration = Duration::from_secs(3);
/// The time for its last messages, once it is gone.
const FAREWELL_WAIT: Duration = Duration::from_millis(50);
/// The pause between two attempts to find a daemon again.
const RETRY: Duration = Duration::from_millis(200);
/// The time that it may take to answer then.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// A reader of a capture of `tapline serve`. It needs no privilege: the daemon's rules decide on its rights.
pub struct Tap {
    name: String,
    channel: Channel,
    merged: MergedReader,
    wish: WakeThreshold,
    verdicts: VerdictUse,
    /// The time for which packets may wait at the daemon.
    delay: Duration,
    /// Ends a wait; `None` if the system had no descriptor left for it.
    wakeup: Option<Arc<Wakeup>>,
    interfaces: InterfaceTable,
    /// The batch's records with our numbers of interfaces; empty if they are the daemon's.
    renumbered: Vec<Record>,
    /// Counters of the daemon's source at the time of attaching, by [`PLACES`].
    before: [Option<u64>; PLACES.len()],
    /// Failures to capture an interface that were over at that time, for each buffer.
    ended_before: Vec<Option<u64>>,
    /// The request to attach again to a daemon that was restarted, if that is wanted.
    again: Option<Again>,
    /// The counts of daemons that are gone.
    past: Past,
    delivered: u64,
    waited: u64,
    phase: Phase,
    /// Whether the last look found packets too late to take them, so that the bells are not armed.
    is_unarmed: bool,
    /// Whether the user was notified that the guarantee is no longer the requested one.
    told_standing: bool,
    /// Whether the user was notified that interfaces have no name.
    told_unnamed: bool,
    /// The message of the daemon that came in place of an answer.
    last_word: Option<String>,
    /// The refusal of a daemon after a reconnection.
    refusal: Option<String>,
    /// Whether there was a time without a daemon.
    was_absent: bool,
    /// Whether the daemon ended without a message, or does not answer any more: its last losses are unknown.
    is_silent: bool,
    events: Vec<tapline_source::Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The reader is to end, and packets on their way from the wire still come.
    Leaving {
        until: Instant,
    },
    /// There is no daemon.
    Absent {
        since: Instant,
        tried: Instant,
    },
    /// Stored packets are read to the end: at most as many bytes as the buffers hold, whatever the daemon's index says.
    Draining {
        bytes_left: u64,
    },
    Ended,
}

/// The request that attaches again.
struct Again {
    path: PathBuf,
    program: String,
    attach: AttachRequest,
}

impl Client {
    /// Becomes a reader of a capture.
    ///
    /// # Errors
    /// [`Error::Refused`] with the daemon's reason; [`Error::Ring`] if its buffers are not as they should be.
    pub fn attach(self, attach: &AttachRequest) -> Result<Tap, Error> {
        Tap::attach(self, attach, None)
    }
}

impl Tap {
    fn attach(client: Client, attach: &AttachRequest, interrupt: Option<&Wakeup>) -> Result<Tap, Error> {
        let (channel, attached, merged) = client.request_reader(attach, interrupt)?;
        Ok(Tap::new(channel, attach, &attached, merged))
    }

    fn new(channel: Channel, attach: &AttachRequest, attached: &AttachedReader, merged: MergedReader) -> Tap {
        let offer = &attached.offer;
        let filter = match (offer.forced_filter.as_str(), attach.filter.as_str()) {
            ("", own) => own.to_owned(),
            (forced, "") => forced.to_owned(),
            (forced, own) => format!("({forced}) and ({own})"),
        };
        let interfaces = InterfaceTable::new(&attach.capture, attached, filter);
        let mut tap = Tap {
            name: match &attach.group {
                Some(group) => format!("{PREFIX}{}/{}", attach.capture, group.name),
                None => format!("{PREFIX}{}", attach.capture),
            },
            channel,
            merged,
            wish: WakeThreshold::IMMEDIATE,
            verdicts: if attach.labels.is_empty() { VerdictUse::Ignore } else { VerdictUse::Label },
            delay: attach.delay(),
            wakeup: Wakeup::new().ok().map(Arc::new),
            interfaces,
            renumbered: Vec::new(),
            before: [None; PLACES.len()],
            ended_before: Vec::new(),
            again: None,
            past: Past::default(),
            delivered: 0,
            waited: 0,
            phase: Phase::Running,
            is_unarmed: false,
            told_standing: false,
            told_unnamed: false,
            last_word: None,
            refusal: None,
            was_absent: false,
            is_silent: false,
            events: Vec::new(),
        };
        tap.before = tap.counts();
        let ended = |reader: &Reader| reader.source().get(Counted::UncapturedEnded);
        tap.ended_before = tap.merged.readers().map(ended).collect();
        tap.merged.use_verdicts(tap.verdicts);
        tap.merged.set_wakeup(tap.wakeup.clone());
        tap
    }

    /// Makes the reader wait for a daemon that ends or is gone, and go on with the same capture of the next one.
    /// Packets that were not captured meanwhile are in the account, as an unknown number.
    #[must_use]
    pub fn reconnecting(mut self, path: &Path, program: &str, attach: &AttachRequest) -> Tap {
        let (path, program, attach) = (path.to_owned(), program.to_owned(), attach.clone());
        self.again = Some(Again { path, program, attach });
        self
    }

    /// The name under which it was opened: `tap:NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the filter at the daemon, from its next batch on.
    ///
    /// # Errors
    /// [`Error::Refused`] if it does not compile.
    pub fn set_filter(&mut self, text: &str) -> Result<(), Error> {
        match self.ask(&Request::Filter { text: text.to_owned() })? {
            Reply::Filtered {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the filter at the daemon to a program of classic BPF (`struct sock_filter`: code, jt, jf, k), from its
    /// next batch on.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not valid.
    pub fn set_program(&mut self, insns: Vec<(u16, u8, u8, u32)>) -> Result<(), Error> {
        match self.ask(&Request::Program { insns })? {
            Reply::Filtered {} => {}
            other => return Err(unexpected(&other)),
        }
        if self.verdicts == VerdictUse::Ignore {
            self.verdicts = VerdictUse::Lend;
            self.merged.use_verdicts(self.verdicts);
        }
        Ok(())
    }

    /// The verdicts on the packets of the batch, in their order, once a program was set: the number that the program
    /// returned, bytes to keep. 0 for a packet that was offered before.
    pub fn verdicts(&self) -> &[u32] {
        self.merged.lent_verdicts()
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        ask(&mut self.channel, request, Instant::now() + ANSWER_WAIT, None)
    }

    /// The bytes, or their age, that end a wait for packets; at first each packet ends it. The time for which
    /// [`AttachRequest::delay_ms`] lets packets wait at the daemon comes on top. The wish holds for
    /// [`descriptors`](Self::descriptors) from the next [`advance`](Source::advance) on that finds nothing.
    pub fn set_wake(&mut self, wish: WakeThreshold) {
        self.wish = wish;
        self.merged.set_wake(wish);
    }

    /// The descriptors to wait on, one for each buffer: after [`advance`](Source::advance) found no packet, one of
    /// them becomes readable when packets come, or when the daemon is gone.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.merged.readers().map(|reader| reader.descriptor())
    }

    /// Whether packets are there for which no descriptor will become readable, as those that wait for another buffer:
    /// call [`advance`](Source::advance) again soon.
    pub fn needs_another_look(&self) -> bool {
        self.merged.is_holding_back() || self.is_unarmed
    }

    fn fail(&self, error: impl Into<Error>) -> CaptureError {
        CaptureError::source(&self.name, error.into())
    }

    /// Learns the interfaces of the batch, whose greatest number this is.
    fn name_interfaces(&mut self, greatest: u32) {
        if !self.interfaces.knows(greatest)
            && let Err(error) =
                self.interfaces.ask(&mut self.channel, greatest, QUESTION_WAIT, self.wakeup.as_deref())
        {
            // The daemon's last word, before it closed the connection.
            if let Error::Refused { text } = &error {
                self.last_word = Some(text.clone());
            }
            if !std::mem::replace(&mut self.told_unnamed, true) {
                self.tell(format!(
                    "the daemon does not name interfaces that appear later ({error}): their packets are under one interface without a name"
                ));
            }
        }
        let Self { merged, interfaces, renumbered, .. } = self;
        if let Some(run) = merged.lent() {
            interfaces.renumber(&run.batch, greatest, renumbered);
        }
    }

    /// Reports once that the daemon has weakened the guarantee of this reader.
    fn look_at_standing(&mut self) {
        if self.told_standing {
            return;
        }
        let lost_credit =
            self.merged.readers().map(|reader| reader.guarantee()).find(|standing| {
                !matches!(standing, Guarantee::Lossy | Guarantee::Leased | Guarantee::Lossless)
            });
        if let Some(standing) = lost_credit {
            self.told_standing = true;
            self.tell(format!("the daemon no longer keeps packets for us: {}", words(standing)));
        }
    }

    /// The result without packets: by whether some may still come.
    fn idle(&mut self, waited: WaitEnd) -> Result<Advance, CaptureError> {
        match (waited, self.phase) {
            (WaitEnd::Ready | WaitEnd::TimedOut, _) => Ok(Advance::Idle),
            (WaitEnd::WriterGone, Phase::Leaving { .. }) => {
                (self.phase, self.is_silent) = (Phase::Ended, true);
                Ok(Advance::End)
            }
            (WaitEnd::Closed | WaitEnd::WriterGone, Phase::Running) if self.again.is_some() => {
                let now = Instant::now();
                self.phase = Phase::Absent { since: now, tried: now };
                self.was_absent = true;
                match self.farewell() {
                    Some(text) => self.tell_refusal(text),
                    None => self.tell("the daemon is gone: nothing is captured until it restarts".to_owned()),
                }
                Ok(Advance::Idle)
            }
            (WaitEnd::Closed, Phase::Running) => {
                self.phase = Phase::Ended;
                let text = "the daemon has ended the capture; all that it had stored was read".to_owned();
                self.events.push(tapline_source::Event {
                    interface: self.name.clone(),
                    text,
                    is_warning: false,
                });
                Ok(Advance::End)
            }
            (WaitEnd::WriterGone, Phase::Running) => {
                self.phase = Phase::Ended;
                Err(match self.farewell() {
                    Some(text) => self.fail(Error::Refused { text }),
                    None => {
                        self.is_silent = true;
                        self.fail(Error::DaemonGone)
                    }
                })
            }
            _ => {
                self.phase = Phase::Ended;
                Ok(Advance::End)
            }
        }
    }

    /// Detaches: packets that are offered by now are still read. A daemon that is gone, or does not answer, offers no
    /// more either.
    fn detach(&mut self) {
        let bytes_left = self.merged.readers().map(Reader::buffer_len).sum();
        self.phase = Phase::Draining { bytes_left };
        let answer = ask(&mut self.channel, &Request::Detach {}, Instant::now() + DETACH_WAIT, None);
        // One that closed its buffers has said all.
        self.is_silent |= !matches!(answer, Ok(Reply::Detached { .. })) && !self.merged.is_closed();
        // Whatever it offers from now on was not agreed upon: else it could keep us for ever.
        self.merged.stop_at_present();
    }

    /// The daemon's reason, before it closed the connection.
    fn farewell(&mut self) -> Option<String> {
        if let Some(text) = self.last_word.take() {
            return Some(text);
        }
        let until = Instant::now() + FAREWELL_WAIT;
        loop {
            match self.channel.receive_until(until, None) {
                Ok(Reply::Error(text)) => return Some(text),
                // A late answer, for which nobody waits any more.
                Ok(Reply::Interfaces { .. }) => {}
                _ => return None,
            }
        }
    }

    /// Reports why a daemon refuses this reader, each reason once.
    fn tell_refusal(&mut self, text: String) {
        if self.refusal.as_ref() != Some(&text) {
            self.tell(format!("the daemon: {text}; it is asked again until it lets us read"));
            self.refusal = Some(text);
        }
    }

    fn tell(&mut self, text: String) {
        self.events.push(tapline_source::Event { interface: self.name.clone(), text, is_warning: true });
    }

    /// Tries to attach again to the daemon.
    fn come_back(&mut self, wait: Duration) -> Result<Advance, CaptureError> {
        let (Phase::Absent { since, tried }, Some(again)) = (self.phase, &self.again) else {
            return Ok(Advance::End);
        };
        let rest = RETRY.saturating_sub(tried.elapsed());
        std::thread::sleep(rest.min(wait));
        if rest > wait {
            return Ok(Advance::Idle);
        }
        self.phase = Phase::Absent { since, tried: Instant::now() };
        let absent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Packets that a new daemon has stored by now are younger than the end of the last.
        // A group shares packets that come.
        let start = match again.attach.group {
            Some(_) => StartPosition::Newest,
            None => StartPosition::SinceMs(absent_ms),
        };
        let attach = AttachRequest { start, ..again.attach.clone() };
        let interrupt = self.wakeup.as_deref();
        let next = Client::connect_within(&again.path, &again.program, RETRY_WAIT, interrupt)
            .and_then(|client| Tap::attach(client, &attach, interrupt));
        match next {
            Ok(next) => self.go_on_with(next),
            Err(Error::Refused { text }) => {
                self.tell_refusal(text);
                Ok(Advance::Idle)
            }
            Err(_) => Ok(Advance::Idle),
        }
    }

    /// Goes on with the new daemon's reader.
    fn go_on_with(&mut self, next: Tap) -> Result<Advance, CaptureError> {
        if let Err(error) = self.interfaces.go_on_with(next.interfaces) {
            self.phase = Phase::Ended;
            return Err(self.fail(error));
        }
        let (counts, losses) = self.sums();
        let has_uncaptured = self.has_uncaptured();
        let begun = self.uncaptured().begun;
        let uncaptured = UncapturedCounts { begun, ended: begun };
        self.past = Past { counts, losses, has_uncaptured, uncaptured };
        self.channel = next.channel;
        self.merged = next.merged;
        self.merged.set_wake(self.wish);
        self.merged.use_verdicts(self.verdicts);
        self.merged.set_wakeup(self.wakeup.clone());
        (self.before, self.ended_before) = (next.before, next.ended_before);
        (self.told_standing, self.told_unnamed, self.refusal, self.last_word) = (false, false, None, None);
        self.phase = Phase::Running;
        self.tell("the daemon is there again".to_owned());
        Ok(Advance::Idle)
    }
}

/// The guarantee of a reader, in words.
fn words(standing: Guarantee) -> &'static str {
    match standing {
        Guarantee::Lossy => "lossy",
        Guarantee::Leased => "leased",
        Guarantee::Lossless => "lossless",
        Guarantee::LossyByBytes => "it lagged by more bytes than were agreed, and is lossy now",
        Guarantee::LossyByTime => "it lagged for longer than was agreed, and is lossy now",
        Guarantee::Refused => "it broke the rules of the buffer",
    }
}

impl Source for Tap {
    fn interfaces(&self) -> &[Interface] {
        self.interfaces.list()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, CaptureError> {
        match self.phase {
            Phase::Ended => return Ok(Advance::End),
            Phase::Absent { .. } => return self.come_back(wait),
            Phase::Leaving { until } if until <= Instant::now() => self.detach(),
            Phase::Draining { bytes_left: 0 } => {
                self.phase = Phase::Ended;
                return Ok(Advance::End);
            }
            Phase::Running | Phase::Leaving { .. } | Phase::Draining { .. } => {}
        }
        self.is_unarmed = false;
        let mut has_looked_again = false;
        let start = Instant::now();
        let wait = match self.phase {
            Phase::Leaving { until } => wait.min(until.saturating_duration_since(start)),
            _ => wait,
        };
        loop {
            let is_draining = matches!(self.phase, Phase::Draining { .. });
            let bytes = |run: &MergedBatch<'_>| match is_draining {
                true => run.batch.records().iter().map(|record| u64::from(record.cap_len)).sum::<u64>(),
                false => 0,
            };
            let facts = |run: MergedBatch<'_>| (run.batch.len(), bytes(&run), greatest_number(&run.batch));
            let run = self.merged.next_batch().map(|run| run.map(facts));
            if let Some((len, bytes, greatest)) = run.map_err(|error| self.fail(error))? {
                self.name_interfaces(greatest);
                self.delivered += len as u64;
                if let Phase::Draining { bytes_left } = &mut self.phase {
                    *bytes_left = bytes_left.saturating_sub(bytes);
                }
                return Ok(Advance::Batch);
            }
            if is_draining && self.merged.account().lost.unread == 0 {
                self.phase = Phase::Ended;
                return Ok(Advance::End);
            }
            let before = tsc::now();
            let left = wait.saturating_sub(start.elapsed());
            let waited = self.merged.wait(left).map_err(|error| self.fail(error))?;
            self.waited += tsc::now().wrapping_sub(before);
            // Packets may all have been lost, or wait for another buffer: the wait is not longer than was agreed. But
            // those that came after the look are taken, if a bell of earlier ones was heard meanwhile: none rings again.
            let is_late = left.is_zero() && std::mem::replace(&mut has_looked_again, true);
            if waited != WaitEnd::Ready || is_late {
                self.is_unarmed = waited == WaitEnd::Ready;
                return self.idle(waited);
            }
        }
    }

    fn batch(&self) -> Batch<'_> {
        match self.merged.lent() {
            Some(run) if self.renumbered.is_empty() => run.batch,
            Some(run) => Batch::new(run.batch.base(), &self.renumbered),
            None => Batch::new(&[], &[]),
        }
    }

    fn stop(&mut self) -> Result<(), CaptureError> {
        if matches!(self.phase, Phase::Absent { .. }) {
            self.phase = Phase::Ended;
        }
        if self.phase == Phase::Running {
            self.phase = Phase::Leaving { until: Instant::now() + LAST_PACKETS_WAIT + self.delay };
        }
        Ok(())
    }

    fn is_filtered(&self, _interface: InterfaceId) -> bool {
        true
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![self.interface_account()]
    }

    fn uncaptured(&self) -> UncapturedCounts {
        self.uncaptured_counts()
    }

    fn preferred_wait(&self) -> Option<Duration> {
        Some(self.wish.max_delay).filter(|delay| *delay > Duration::ZERO && self.phase == Phase::Running)
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        self.wakeup.clone()
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }

    fn events(&mut self) -> Vec<tapline_source::Event> {
        self.look_at_standing();
        std::mem::take(&mut self.events)
    }
}
