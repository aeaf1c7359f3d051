//! Requests to attach a reader: refused by the rules, the budgets or the capture, or answered with descriptors.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use tapline_packet::{BATCH_MAX, Timestamp};
use tapline_ring::{Policy as RingPolicy, ReaderParts, ReaderSpec, StartPosition as RingStart};
use tapline_sys::clock;
use tapline_tap_client::protocol::{
    AttachRequest, AttachedReader, INTERFACES_MAX, Policy, Reply, StartPosition,
};

use super::offers::{OFFERED_LEN_MAX, offer};
use super::users::index_memory;
use super::{Server, name, rights};
use crate::capture::NewReader;
use crate::client::{Answer, Client, Reading};
use crate::log_budget::{Event, quoted};
use crate::memory::Charge;
use crate::rules::MatchRule;
use crate::view::Rights;
use crate::worker::Wish;
use crate::{AccessRule, Capture, ClientIdentity};

/// The longest index that a reader may have: 16 MiB.
const ENTRIES_MAX: u32 = 1 << 20;
/// Upper bound of readers' numbers. They are random: consecutive numbers would reveal how often other readers come.
const NUMBERS: u64 = 1_000_000;

impl Server {
    /// Attaches a reader for a client, which has none yet.
    ///
    /// # Errors
    /// The refusal, for the client to read.
    pub(super) fn attach(
        &mut self,
        client: &mut Client,
        attach: AttachRequest,
        log: &mut dyn FnMut(&str),
    ) -> Result<Answer, String> {
        if client.reading.is_some() {
            return Err("a connection has one reader: detach it first, or connect again".to_owned());
        }
        let found = self.captures.iter().position(|capture| capture.rule().name == attach.capture);
        let allowed =
            found.and_then(|at| Some((at, self.rules.access(&client.who, &attach.capture, self.ours)?)));
        // Whether there is a capture that a user may not read is none of the user's business.
        let Some((at, access)) = allowed else {
            let what = format!("{}: {} is not there for them", name(client), quoted(&attach.capture));
            self.refuse(client.who.uid, log, &what);
            return Err(self.no_such_capture(&client.who, &attach.capture));
        };
        if let Some(refusal) = self.refusal(client, &attach, at, &access) {
            self.refuse(client.who.uid, log, &format!("{}: {refusal}", name(client)));
            return Err(refusal);
        }
        let rights = rights(&self.captures[at], &access);
        let wish = self.captures[at].compile(&rights, &attach.filter)?;
        let wish = Wish { verdicts: self.captures[at].compile_labels(&attach.labels)?, ..wish };
        let joined = self.join(client, &attach, at, (rights, wish, access.priority));
        let (number, charge, buffers) = joined.inspect_err(|refusal| {
            self.refuse(client.who.uid, log, &format!("{}: {refusal}", name(client)));
        })?;
        self.tell_coming(client, &attach, log);
        let capture = &self.captures[at];
        let reply = AttachedReader {
            reader: number,
            buffers: capture.workers() as u32,
            offer: offer(capture, &access, OFFERED_LEN_MAX),
            interfaces_max: INTERFACES_MAX as u32,
            group: attach.group.as_ref().map_or_else(String::new, |group| group.name.clone()),
        };
        client.reading = Some(Reading { number, capture: at, attach, charge });
        Ok(Answer { buffers, ..Reply::Attached(reply).into() })
    }

    /// The reason for which the rules refuse a reader, if they do.
    fn refusal(
        &self,
        client: &Client,
        attach: &AttachRequest,
        capture: usize,
        access: &AccessRule,
    ) -> Option<String> {
        let (entries, policy) = (attach.entries, attach.policy);
        let used = self.readers_of(client.who.uid, capture);
        if let Some(group) = &attach.group {
            if let Err(refusal) = group.check() {
                return Some(refusal);
            }
            if attach.start != StartPosition::Newest {
                return Some(
                    "a group shares packets that come; the past belongs to readers without one".to_owned(),
                );
            }
        }
        let goes_to_first = self.captures[capture].rule().matching == MatchRule::First;
        if goes_to_first && attach.start != StartPosition::Newest && !client.is_in_daemon() {
            return Some("packets of this capture go to one reader: none begins in the past".to_owned());
        }
        if entries > ENTRIES_MAX {
            return Some(format!("an index of {entries} entries; {ENTRIES_MAX} are the most"));
        }
        if policy == Policy::Lossless && (entries as usize) < BATCH_MAX {
            return Some(format!(
                "an index of {entries} entries; a lossless reader needs {BATCH_MAX}, for a batch"
            ));
        }
        if !access.policies.iter().any(|allowed| allowed == policy.name()) {
            let allowed = access.policies.join(", ");
            return Some(format!("the policy {} is not allowed; there is {allowed}", policy.name()));
        }
        if used >= access.readers as usize {
            return Some(format!("{used} readers of yours are there, and no more are allowed"));
        }
        self.socket.check_room(self.captures[capture].workers()).err()
    }

    /// Adds a reader to a capture. Gives its number, the charge for its indices, and its descriptors.
    fn join(
        &mut self,
        client: &Client,
        attach: &AttachRequest,
        capture: usize,
        (rights, wish, priority): (Rights, Wish, u32),
    ) -> Result<(u64, Option<Charge>, Vec<ReaderParts>), String> {
        let payer = self.account_of(&client.who);
        let of = &self.captures[capture];
        let spec = ReaderSpec { policy: ring_policy(attach.policy, of), entries: attach.entries };
        let index = index_memory(&spec, of);
        let charge = payer.as_ref().map(|(_, allowance)| allowance.charge(index, "an index")).transpose()?;
        self.known.borrow_mut().clear();
        let number = self.draw_number();
        let start = match attach.start {
            StartPosition::Newest => RingStart::Newest,
            StartPosition::Oldest => RingStart::Oldest,
            StartPosition::SinceMs(ms) => RingStart::Since(milliseconds_ago(ms)),
        };
        let max_latency = attach.delay();
        let group = attach.group.clone();
        let by_reader = group.as_ref().map_or(0, |group| group.priority);
        let precedence = (!client.is_in_daemon()).then(|| u64::from(priority) << 32 | u64::from(by_reader));
        let reader = NewReader { number, rights, wish, spec, start, max_latency, payer, group, precedence };
        let parts = self.captures[capture].attach(&reader)?;
        Ok((number, charge, parts))
    }

    fn tell_coming(&mut self, client: &Client, attach: &AttachRequest, log: &mut dyn FnMut(&str)) {
        self.told.tell(client.who.uid, Event::Came, Instant::now(), log, || {
            let filter = match attach.filter.as_str() {
                "" => String::new(),
                filter => format!(", {}", quoted(filter)),
            };
            let group = attach.group.as_ref().map_or_else(String::new, |group| format!("/{}", group.name));
            format!("{} reads {}{group}, {}{filter}", name(client), attach.capture, attach.policy.name())
        });
    }

    /// A number that no reader has.
    fn draw_number(&mut self) -> u64 {
        loop {
            self.readers += 1;
            let number = 1 + self.numbers.hash_one(self.readers) % NUMBERS;
            let is_it = |client: &Client| client.reading.as_ref().is_some_and(|one| one.number == number);
            if !self.clients.iter().any(is_it) {
                return number;
            }
        }
    }

    pub(super) fn no_such_capture(&self, who: &ClientIdentity, asked: &str) -> String {
        let names: Vec<String> = self.offers(who).into_iter().map(|offer| offer.name).collect();
        match names.as_slice() {
            [] => format!(
                "no capture {asked:?} that you may read, and no other: ask the administrator of the daemon for access"
            ),
            names => format!("no capture {asked:?} that you may read; there is {}", names.join(", ")),
        }
    }

    fn readers_of(&self, uid: u32, capture: usize) -> usize {
        let reads = |client: &&Client| {
            client.who.uid == uid && client.reading.as_ref().is_some_and(|reading| reading.capture == capture)
        };
        self.clients.iter().filter(reads).count()
    }
}

/// Limits a credit to half of the buffer.
fn ring_policy(policy: Policy, capture: &Capture) -> RingPolicy {
    let half = u64::from(capture.rule().buffer) << 19;
    match policy {
        Policy::Lossy => RingPolicy::Lossy,
        Policy::Leased { bytes, ms } => {
            RingPolicy::Leased { bytes: bytes.min(half), time: Duration::from_millis(ms) }
        }
        Policy::Lossless => RingPolicy::Lossless,
    }
}

/// The time `ms` milliseconds ago, by the wall clock.
fn milliseconds_ago(ms: u64) -> Timestamp {
    let ns = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Timestamp::from_nanos(clock::realtime_ns().saturating_sub(ns))
}
