//! The socket, and all captures.
//!
//! ```text
//! poll: socket -> new client        clients -> requests, answered at once        wakeup -> stop, new rules
//! ```
//!
//! One thread. Nothing that a client does keeps it: sockets do not wait, requests are few at a time, and a client that
//! does not read its answers is gone.

mod attaching;
mod losses;
mod offers;
mod searches;
mod users;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::RandomState;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapline_packet::{LinkType, Timestamp};
use tapline_ring::{BufferSpec, Writer};
use tapline_sys::{Poller, Wakeup, clock};
use tapline_tap_client::Channel;
use tapline_tap_client::protocol::{
    CaptureStatus, ControlAction, ReaderCounts, ReaderStatus, Reply, Request, Status, VERSION,
};

use crate::budget::{Purses, TIME_OF_ALL_MS};
use crate::capture::{RawInsn, ReaderSum};
use crate::client::{Answer, Client, Over, Reading};
use crate::listener::Accepted;
use crate::log_budget::{Event, LogBudget, quoted};
use crate::memory::{Ledger, PastCharges};
use crate::view::Rights;
use crate::{
    AccessRule, Capture, CaptureTotals, ClientIdentity, Error, RecordRule, Recording, Rules, Socket,
};
use losses::LossNews;
use searches::ClientSearch;
use users::{
    INTERFACES_LEN_MAX, READERS_LEN_MAX, REQUEST_PURSE, STATUS_KEPT, bound_readers, shown, standing,
};

/// Connections at the same time.
const CLIENTS_MAX: usize = 1024;
/// Connections of these that only root and the owner of the daemon get, so that users together do not keep them out.
const CLIENTS_RESERVED: usize = 64;
/// Connections of one user who is not root.
const CLIENTS_OF_USER_MAX: usize = 128;
/// Users whose refusals are counted for each.
const REFUSED_USERS_MAX: usize = 1024;
/// The longest sleep of the control thread.
const WAIT: Duration = Duration::from_secs(1);

/// Orders to a running server, from any thread.
#[derive(Debug)]
pub struct Orders {
    wakeup: Wakeup,
    asked: Mutex<PendingOrders>,
}

#[derive(Debug, Default)]
struct PendingOrders {
    stop: bool,
    account: bool,
    rules: Option<Rules>,
}

impl Orders {
    /// Ends the server.
    pub fn stop(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.wakeup.notify();
    }

    /// Requests a report of the account so far.
    pub fn account(&self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).account = true;
        self.wakeup.notify();
    }

    /// Other rules for access, from now on. Readers that they no longer let read as they do are sent away. Captures
    /// stay as they are.
    pub fn reload(&self, rules: Rules) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).rules = Some(rules);
        self.wakeup.notify();
    }

    fn take(&self) -> PendingOrders {
        self.wakeup.take();
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A daemon: a socket and its captures.
pub struct Server {
    rules: Rules,
    socket: Socket,
    captures: Vec<Capture>,
    /// Recordings, each with the name of its capture.
    recordings: Vec<(String, Arc<Recording>)>,
    /// The tables of recordings, as they were when the daemon started.
    recorded: Vec<RecordRule>,
    searches: Vec<ClientSearch>,
    clients: Vec<Client>,
    orders: Arc<Orders>,
    readers: u64,
    /// Source of the random numbers of readers.
    numbers: RandomState,
    refused: u64,
    /// Refusals of each user.
    refused_of: BTreeMap<u32, u64>,
    told: LogBudget,
    losses: LossNews,
    begun: Instant,
    /// Counts rounds of requests: the client with the first turn in one has the last in the next.
    turn: usize,
    /// Processor time that users may take of this thread.
    purses: Purses,
    /// Memory that users have.
    memory: Arc<Ledger>,
    /// Memory of readers that left.
    left: PastCharges,
    /// The status of captures a moment ago, for users who ask often.
    known: RefCell<Vec<Known>>,
    /// The user who started the daemon.
    ours: u32,
}

/// The counts of a capture, for readers with the same rights.
struct Known {
    at: Instant,
    capture: usize,
    rights: Rights,
    status: CaptureStatus,
    readers: Vec<(u64, ReaderSum)>,
}

/// The events of one wait.
struct Round {
    /// Clients with a message, by their place.
    ready: Vec<usize>,
    /// A new client connects.
    comes: bool,
}

impl Server {
    /// Puts captures behind a socket. Before that it is tried out that readers cannot write to buffers.
    ///
    /// # Errors
    /// [`Error::Ring`] if they could; [`Error::System`].
    pub fn new(rules: Rules, socket: Socket, captures: Vec<Capture>) -> Result<Server, Error> {
        let spec =
            BufferSpec { block_len: 4096, blocks: 4, snap_len: 64, ..BufferSpec::new(LinkType::ETHERNET) };
        drop(Writer::create(&spec, Timestamp::from_nanos(clock::realtime_ns()))?);
        let wakeup = Wakeup::new().map_err(|error| error.source)?;
        let (ours, recorded) = (socket.owner(), rules.records.clone());
        Ok(Server {
            rules,
            socket,
            captures,
            recordings: Vec::new(),
            recorded,
            searches: Vec::new(),
            clients: Vec::new(),
            orders: Arc::new(Orders { wakeup, asked: Mutex::default() }),
            readers: 0,
            numbers: RandomState::new(),
            refused: 0,
            refused_of: BTreeMap::new(),
            told: LogBudget::default(),
            losses: LossNews::new(),
            begun: Instant::now(),
            turn: 0,
            purses: Purses::new(REQUEST_PURSE, TIME_OF_ALL_MS, clock::monotonic_ns()),
            memory: Arc::default(),
            left: PastCharges::default(),
            known: RefCell::default(),
            ours,
        })
    }

    /// Connects a recorder of a capture: a reader in this process, with all rights. Its requests are answered once the
    /// server runs. `recording` is the state that `tapline status` shows.
    ///
    /// # Errors
    /// [`Error::System`] without a descriptor.
    pub fn connect_recorder(
        &mut self,
        capture: &str,
        recording: Arc<Recording>,
    ) -> Result<UnixStream, Error> {
        let stream = self.connect_reader()?;
        self.recordings.push((capture.to_owned(), recording));
        Ok(stream)
    }

    /// Connects a reader in this process, with all rights. Its requests are answered once the server runs.
    ///
    /// # Errors
    /// [`Error::System`] without a descriptor.
    pub fn connect_reader(&mut self) -> Result<UnixStream, Error> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        self.clients.push(Client {
            channel: Channel::new(ours, false),
            who: ClientIdentity { pid: std::process::id(), uid: self.ours, gids: Vec::new() },
            program: None,
            reading: None,
        });
        Ok(theirs)
    }

    /// The orders by which other threads control the server.
    pub fn orders(&self) -> Arc<Orders> {
        Arc::clone(&self.orders)
    }

    /// Serves until it is stopped. `log` gets messages for people, each once; `account` gets the account of packets,
    /// when it is requested.
    ///
    /// # Errors
    /// The error of poll(2).
    pub fn run(
        mut self,
        log: &mut dyn FnMut(&str),
        account: &mut dyn FnMut(&[CaptureTotals]),
    ) -> Result<Vec<CaptureTotals>, Error> {
        let mut poller = Poller::new();
        loop {
            let asked = self.orders.take();
            if let Some(rules) = asked.rules {
                self.take_rules(rules, log);
            }
            if asked.account {
                account(&self.captures.iter().map(Capture::account).collect::<Vec<_>>());
            }
            if asked.stop {
                break;
            }
            let Round { ready, comes } = self.poll(&mut poller)?;
            self.serve_in_turn(ready, log);
            self.send_away(log);
            if comes {
                self.accept(log);
            }
            self.told.sum_up(Instant::now(), log);
            self.left.expire(Instant::now());
            self.end_searches(log);
            self.tell_news(log);
            self.tell_losses(log);
        }
        self.told.finish(log);
        self.socket.close();
        let captures = std::mem::take(&mut self.captures);
        let ended = captures.into_iter().map(|capture| capture.stop(log)).collect();
        Ok(ended)
    }

    /// Waits for an order, a message or a new client, for a while.
    fn poll(&mut self, poller: &mut Poller) -> Result<Round, Error> {
        poller.clear();
        poller.add(self.orders.wakeup.as_fd());
        self.purses.fill(clock::monotonic_ns());
        for client in &self.clients {
            match self.waits(client) {
                true => poller.add_none(),
                false => poller.add(client.channel.as_fd()),
            }
        }
        let is_waiting = |client: &Client| client.channel.has_message() && !self.waits(client);
        let waiting: Vec<bool> = self.clients.iter().map(is_waiting).collect();
        let listens = self.socket.listens();
        if listens {
            poller.add(self.socket.as_fd());
        }
        let wait = if waiting.contains(&true) { Duration::ZERO } else { WAIT.min(self.wait()) };
        let wait = wait.min(self.socket.rest().unwrap_or(WAIT));
        poller.wait(wait).map_err(|error| error.source)?;
        let is_ready = |at: usize| waiting[at] || poller.is_readable(at + 1) || poller.has_error(at + 1);
        Ok(Round {
            ready: (0..waiting.len()).filter(|at| is_ready(*at)).collect(),
            comes: listens && poller.is_readable(waiting.len() + 1),
        })
    }

    /// Logs the news of the captures.
    fn tell_news(&mut self, log: &mut dyn FnMut(&str)) {
        for capture in &self.captures {
            for line in capture.news() {
                let line = format!("{}: {line}", capture.rule().name);
                // Clients cause lines about readers, of which the worker does not know the user.
                match line.starts_with(&format!("{}: reader ", capture.rule().name)) {
                    true => self.told.tell_of_readers(Instant::now(), log, || line),
                    false => log(&line),
                }
            }
        }
    }

    fn accept(&mut self, log: &mut dyn FnMut(&str)) {
        // Others that wait have their turn after the next poll.
        let (stream, peer) = match self.socket.accept() {
            Accepted::Connected(stream, peer) => (stream, peer),
            Accepted::Refused(uid, why) => return self.refuse(uid, log, &why),
            Accepted::Nobody => return,
        };
        let is_privileged = peer.uid == 0 || peer.uid == self.ours;
        let most = if is_privileged { CLIENTS_MAX } else { CLIENTS_MAX - CLIENTS_RESERVED };
        if self.clients.len() >= most {
            return self.refuse(peer.uid, log, &format!("more than {most} connections"));
        }
        let theirs = self.clients.iter().filter(|client| client.who.uid == peer.uid).count();
        if peer.uid != 0 && theirs >= CLIENTS_OF_USER_MAX {
            return self.refuse(
                peer.uid,
                log,
                &format!("more than {CLIENTS_OF_USER_MAX} connections of user {}", peer.uid),
            );
        }
        if stream.set_nonblocking(true).is_ok() {
            let channel = Channel::new(stream, false);
            self.clients.push(Client {
                channel,
                who: ClientIdentity::of(peer),
                program: None,
                reading: None,
            });
        }
    }

    /// Counts a refusal of a user, and logs it within the user's budget, so that no user fills the log.
    fn refuse(&mut self, uid: u32, log: &mut dyn FnMut(&str), what: &str) {
        self.refused += 1;
        if self.refused_of.len() < REFUSED_USERS_MAX || self.refused_of.contains_key(&uid) {
            *self.refused_of.entry(uid).or_default() += 1;
        }
        self.told.tell(uid, Event::Refused, Instant::now(), log, || format!("refused: {what}"));
    }

    /// Answers the requests of a client.
    fn serve(&mut self, at: usize, log: &mut dyn FnMut(&str)) {
        let mut client = self.clients.remove(at);
        let served = client.serve(|client, request| self.answer(client, request, log));
        match served {
            Ok(()) => return self.clients.insert(at, client),
            Err(Over::Closed) => {}
            Err(Over::Faulty(what)) => {
                let who = name(&client);
                self.refuse(client.who.uid, log, &format!("{who}: {what}"));
            }
        }
        self.take_away(&mut client, log);
    }

    /// A client is gone: so is its reader.
    fn take_away(&mut self, client: &mut Client, log: &mut dyn FnMut(&str)) {
        let Some(Reading { number, capture, charge, .. }) = client.reading.take() else { return };
        let counts = self.captures[capture].detach(number);
        self.left.keep(Instant::now(), charge);
        self.tell_leaving(client, capture, &counts, log);
    }

    fn tell_leaving(
        &mut self,
        client: &Client,
        capture: usize,
        counts: &ReaderCounts,
        log: &mut dyn FnMut(&str),
    ) {
        let (who, of) = (name(client), &self.captures[capture].rule().name);
        self.told.tell(client.who.uid, Event::Left, Instant::now(), log, || {
            format!(
                "{who} left {of}: offered {}, delivered {}, lost {}, unread {}",
                counts.offered,
                counts.delivered,
                counts.lost(),
                counts.unread
            )
        });
    }

    fn answer(&mut self, client: &mut Client, request: Request, log: &mut dyn FnMut(&str)) -> Answer {
        let answer = match request {
            Request::Hello { .. } => {
                Ok(Reply::Hello { version: VERSION, captures: self.offers(&client.who) }.into())
            }
            Request::Control { capture, action } => {
                self.control(client, &capture, action, log).map(Answer::from)
            }
            Request::Status {} => Ok(Reply::Status(self.status(&client.who)).into()),
            Request::Interfaces { capture, from } => {
                self.interfaces(client, &capture, from, log).map(Answer::from)
            }
            Request::Attach(attach) => self.attach(client, attach, log),
            Request::Filter { text } => self.set_filter(client, text).map(Answer::from),
            Request::Program { insns } => self.set_program(client, &insns).map(Answer::from),
            Request::Find(find) => self.find(client, &find, log),
            Request::Detach {} => self.detach(client, log).map(Answer::from),
        };
        answer.unwrap_or_else(|text| Reply::Error(text).into())
    }

    /// Pauses a capture, or has it go on.
    ///
    /// # Errors
    /// The refusal: by the rules, or because the capture is in that state already or has ended.
    fn control(
        &mut self,
        client: &Client,
        capture: &str,
        action: ControlAction,
        log: &mut dyn FnMut(&str),
    ) -> Result<Reply, String> {
        let found = self.captures.iter().position(|known| known.rule().name == capture);
        let access = self.rules.access(&client.who, capture, self.ours).filter(|access| access.control);
        let (Some(at), Some(_)) = (found, access) else {
            let what = format!("{}: no control of {} for them", name(client), quoted(capture));
            self.refuse(client.who.uid, log, &what);
            return Err(format!("no capture {capture:?} that you may pause (control = true in a rule)"));
        };
        self.captures[at].control(action)?;
        self.known.borrow_mut().clear();
        let done = if action == ControlAction::Pause { "paused" } else { "resumed" };
        log(&format!("tap:{capture}: {done} by {}", name(client)));
        Ok(Reply::Controlled {})
    }

    fn set_filter(&mut self, client: &mut Client, text: String) -> Result<Reply, String> {
        let reading = client.reading.as_mut().ok_or("there is no reader whose filter it would be")?;
        let capture = &self.captures[reading.capture];
        let access = self.rules.access(&client.who, &capture.rule().name, self.ours);
        let access = access.ok_or("the rules no longer let you read this")?;
        let wish = capture.compile(&rights(capture, &access), &text)?;
        capture.set_filter(reading.number, &wish)?;
        reading.attach.filter = text;
        Ok(Reply::Filtered {})
    }

    fn set_program(&mut self, client: &mut Client, insns: &[RawInsn]) -> Result<Reply, String> {
        let reading = client.reading.as_mut().ok_or("there is no reader whose filter it would be")?;
        let capture = &self.captures[reading.capture];
        let access = self.rules.access(&client.who, &capture.rule().name, self.ours);
        let access = access.ok_or("the rules no longer let you read this")?;
        let wish = capture.compile_program(&rights(capture, &access), insns)?;
        capture.set_filter(reading.number, &wish)?;
        reading.attach.filter = match insns.len() {
            0 => String::new(),
            count => format!("a program of {count} instructions"),
        };
        Ok(Reply::Filtered {})
    }

    fn detach(&mut self, client: &mut Client, log: &mut dyn FnMut(&str)) -> Result<Reply, String> {
        let reading = client.reading.take().ok_or("there is no reader")?;
        let account = self.captures[reading.capture].detach(reading.number);
        self.known.borrow_mut().clear();
        self.tell_leaving(client, reading.capture, &account, log);
        self.left.keep(Instant::now(), reading.charge);
        Ok(Reply::Detached { account })
    }

    /// The status of all captures, as far as a client may see.
    fn status(&self, who: &ClientIdentity) -> Status {
        let mut captures = Vec::new();
        let sees_all = self.is_privileged(who);
        for (at, capture) in self.captures.iter().enumerate() {
            let Some(access) = self.rules.access(who, &capture.rule().name, self.ours) else { continue };
            let (mut status, sums) = self.status_of(at, &rights(capture, &access), sees_all);
            if sees_all {
                let own = self.recordings.iter().filter(|(name, _)| *name == capture.rule().name);
                status.recordings = own.map(|(_, recording)| recording.status()).collect();
            }
            for client in self.clients.iter().filter(|client| sees_all || client.who.uid == who.uid) {
                let Some(reading) = client.reading.as_ref().filter(|reading| reading.capture == at) else {
                    continue;
                };
                let Some((_, sum)) = sums.iter().find(|(number, _)| *number == reading.number) else {
                    continue;
                };
                status.readers.push(ReaderStatus {
                    number: reading.number,
                    pid: client.who.pid,
                    uid: client.who.uid,
                    program: client.program.clone().unwrap_or_default(),
                    filter: shown(&reading.attach.filter),
                    standing: standing(sum.standing).to_owned(),
                    counts: sum.counts,
                    wakes: sum.wakes,
                    past: sum.past,
                    group: reading.attach.group.clone(),
                });
            }
            captures.push(status);
        }
        let (seconds, users) = (self.begun.elapsed().as_secs(), self.users(who));
        bound_readers(&mut captures, who.uid, READERS_LEN_MAX);
        let of_user = || self.refused_of.get(&who.uid).copied().unwrap_or_default();
        let refused = if sees_all { self.refused } else { of_user() };
        Status { seconds, captures, refused, users }
    }

    /// The status of a capture; for users that of a moment ago, so that its thread is not asked more often.
    fn status_of(
        &self,
        at: usize,
        rights: &Rights,
        sees_all: bool,
    ) -> (CaptureStatus, Vec<(u64, ReaderSum)>) {
        let mut known = self.known.borrow_mut();
        known.retain(|known| known.at.elapsed() < STATUS_KEPT);
        let is_it = |known: &&Known| known.capture == at && known.rights == *rights && !sees_all;
        if let Some(Known { status, readers, .. }) = known.iter().find(is_it) {
            return (status.clone(), readers.clone());
        }
        let (mut status, readers) = self.captures[at].status(rights);
        let names = self.captures[at].interfaces().names(INTERFACES_LEN_MAX / self.captures.len());
        (status.interfaces, status.interfaces_left_out, status.interfaces_unnamed) = names;
        known.push(Known {
            at: Instant::now(),
            capture: at,
            rights: rights.clone(),
            status: status.clone(),
            readers: readers.clone(),
        });
        (status, readers)
    }

    /// Other rules. Readers that these do not allow are detached.
    fn take_rules(&mut self, rules: Rules, log: &mut dyn FnMut(&str)) {
        let old = std::mem::replace(&mut self.rules, rules);
        let mut stay = Vec::new();
        for mut client in std::mem::take(&mut self.clients) {
            let changed = client.reading.as_ref().is_some_and(|reading| {
                let capture = &self.captures[reading.capture];
                let of = |rules: &Rules| {
                    let access = rules.access(&client.who, &capture.rule().name, self.ours)?;
                    let has_policy = access.policies.iter().any(|name| name == reading.attach.policy.name());
                    has_policy.then(|| rights(capture, &access))
                };
                of(&self.rules).is_none() || of(&old) != of(&self.rules)
            });
            if changed {
                self.told.tell(client.who.uid, Event::Left, Instant::now(), log, || {
                    format!("{}: the rules no longer let it read as it did", name(&client))
                });
                // It finds that once it has read all; one that does not read its socket hears of no more than the end.
                let farewell = Reply::Error("the rules no longer let you read as you did".to_owned());
                let _ = client.channel.send(&farewell, &[]);
                self.take_away(&mut client, log);
            } else {
                stay.push(client);
            }
        }
        self.clients = stay;
        self.stop_searches();
        log("the rules were read again");
        if old.places != self.rules.places {
            log("changed [[publish]] tables take effect when the daemon restarts; places stay as they are");
        }
        if old.records != self.rules.records {
            log(
                "changed [[record]] tables take effect when the daemon restarts; recordings stay as they are",
            );
        }
    }
}

/// The forced filter of readers with this access.
fn rights(capture: &Capture, access: &AccessRule) -> Rights {
    Rights { filter: access.filter.clone(), snap_len: access.snap_len.min(capture.rule().snap_len) }
}

/// A client, for people.
fn name(client: &Client) -> String {
    let program = client.program.as_deref().unwrap_or("a client");
    format!("{program} (process {}, user {})", client.who.pid, client.who.uid)
}
