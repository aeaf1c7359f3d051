//! The load of users on the daemon, as its control thread sees it: requests that wait, readers that are sent away,
//! memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tapline_ring::{Guarantee, ReaderSpec};
use tapline_sys::usage;
use tapline_tap_client::protocol::{CaptureStatus, Reply, UserStatus};

use super::{Server, name};
use crate::budget::{Payer, spent};
use crate::client::Client;
use crate::memory::Allowance;
use crate::{Capture, ClientIdentity};

/// Processor time that requests of each user may take of the control thread, in milliseconds a second; and the period
/// whose budget they may take at once.
const REQUEST_TIME_MS: u32 = 200;
pub(super) const REQUEST_PURSE: Duration = Duration::from_secs(5);
/// Processor time of a round of requests.
const ROUND: Duration = Duration::from_millis(5);
/// Elapsed time of a round: orders wait for the threads that capture, which takes no processor time.
const ROUND_BY_CLOCK: Duration = Duration::from_millis(20);
/// Time for which users get the same status of a capture, before the capturing threads are asked for a new one.
pub(super) const STATUS_KEPT: Duration = Duration::from_millis(50);

/// The longest list of readers in a status, in bytes: it is sent without waiting for the client, and fits the longest
/// message for any filters and names of users.
pub(super) const READERS_LEN_MAX: usize = 96 << 10;
/// The longest list of names of interfaces of all captures in a status, in bytes.
pub(super) const INTERFACES_LEN_MAX: usize = 32 << 10;
/// The longest part of a filter that a status has, in characters.
const FILTER_SHOWN_MAX: usize = 400;

impl Server {
    /// Whether a user may do everything.
    pub(super) fn is_privileged(&self, who: &ClientIdentity) -> bool {
        who.uid == 0 || who.uid == self.ours
    }

    /// The user that pays for a client's requests; none for root and the owner of the daemon.
    pub(super) fn payer(&self, who: &ClientIdentity) -> Option<Payer> {
        (!self.is_privileged(who)).then_some(Payer { uid: who.uid, time_ms: self.rules.user_time })
    }

    /// The user that pays for a reader, and the memory that it may take.
    pub(super) fn account_of(&self, who: &ClientIdentity) -> Option<(Payer, Allowance)> {
        let allowance = self.memory.allowance(who.uid, self.rules.memory_of_user());
        Some((self.payer(who)?, allowance))
    }

    /// Whether requests of a client wait, as its user has spent the processor time for them.
    pub(super) fn waits(&self, client: &Client) -> bool {
        !self.is_privileged(&client.who) && self.purses.is_empty(client.who.uid)
    }

    /// Until when, at most, for all clients that wait.
    pub(super) fn wait(&self) -> Duration {
        let waiting = self.clients.iter().filter(|client| self.waits(client));
        waiting.map(|client| self.purses.wait(client.who.uid)).min().unwrap_or(Duration::MAX)
    }

    /// Answers clients that asked something: root and the owner of the daemon first, then the users that took least.
    /// After [`ROUND`] the order is computed again, so that no client waits for later requests of others.
    pub(super) fn serve_in_turn(&mut self, mut ready: Vec<usize>, log: &mut dyn FnMut(&str)) {
        let (count, begun, began) = (self.clients.len(), usage::thread_time(), Instant::now());
        self.turn = self.turn.wrapping_add(1);
        ready.sort_by_cached_key(|at| {
            let payer = self.payer(&self.clients[*at].who);
            let place = (at + self.turn) % count;
            (payer.map(|payer| self.purses.spent_ns(payer.uid)), place)
        });
        for at in ready {
            let payer = self.payer(&self.clients[at].who);
            self.at_cost_of(payer, |server| server.serve(at, log));
            // One that is gone has the others move.
            let is_over =
                usage::thread_time().saturating_sub(begun) >= ROUND || began.elapsed() >= ROUND_BY_CLOCK;
            if is_over || self.clients.len() != count {
                break;
            }
        }
    }

    /// Does something for a client, at the cost of its user.
    pub(super) fn at_cost_of<T>(&mut self, payer: Option<Payer>, work: impl FnOnce(&mut Server) -> T) -> T {
        let Some(payer) = payer else { return work(self) };
        let (result, cost) = spent(|| work(self));
        self.purses.spend(Payer { time_ms: REQUEST_TIME_MS, ..payer }, cost);
        result
    }

    /// Sends readers away whose user spent all that it may.
    pub(super) fn send_away(&mut self, log: &mut dyn FnMut(&str)) {
        let over =
            |(at, capture): (usize, &Capture)| capture.evictions().map(|over| (at, over)).collect::<Vec<_>>();
        let over: Vec<_> = self.captures.iter().enumerate().flat_map(over).collect();
        for (capture, over) in over {
            let is_over = |client: &Client| {
                let reading = client.reading.as_ref().filter(|reading| reading.capture == capture);
                reading.is_some_and(|reading| over.readers.contains(&reading.number))
            };
            let (away, stay): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.clients).into_iter().partition(is_over);
            self.clients = stay;
            if let Some(first) = away.first() {
                let (of, count) = (&self.captures[capture].rule().name, away.len());
                let what = format!("{}: {count} readers of {of} are sent away: {}", name(first), over.reason);
                self.refuse(first.who.uid, log, &what);
            }
            for mut client in away {
                // It finds that once it has read all; one that does not read its socket hears of no more than the end.
                let _ = client.channel.send(&Reply::Error(over.reason.clone()), &[]);
                self.take_away(&mut client, log);
            }
        }
    }

    /// The resources of users, as far as a client may see.
    pub(super) fn users(&self, who: &ClientIdentity) -> Vec<UserStatus> {
        let sees_all = self.is_privileged(who);
        let memory_max = self.rules.memory_of_user();
        let users = self.memory.users().into_iter().filter(|(uid, _)| sees_all || *uid == who.uid);
        users.map(|(uid, memory)| UserStatus { uid, memory, memory_max }).collect()
    }
}

/// A reader's filter as a status has it.
pub(super) fn shown(filter: &str) -> String {
    match filter.char_indices().nth(FILTER_SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &filter[..end]),
        None => filter.to_owned(),
    }
}

/// Leaves out readers beyond `most` bytes, and counts them: first those of users that have many, last those of the user
/// who asks.
pub(super) fn bound_readers(captures: &mut [CaptureStatus], asks: u32, most: usize) {
    let (mut order, mut counts) = (Vec::new(), HashMap::<u32, usize>::new());
    for (capture, status) in captures.iter().enumerate() {
        for (at, reader) in status.readers.iter().enumerate() {
            let before = counts.entry(reader.uid).or_default();
            order.push((reader.uid != asks, *before, capture, at));
            *before += 1;
        }
    }
    order.sort_unstable();
    let mut kept: Vec<Vec<bool>> = captures.iter().map(|status| vec![false; status.readers.len()]).collect();
    let mut len = 0;
    for (_, _, capture, at) in order {
        let reader = &captures[capture].readers[at];
        len += serde_json::to_vec(reader).map_or(most, |json| json.len() + 1);
        kept[capture][at] = len <= most;
    }
    for (status, kept) in captures.iter_mut().zip(kept) {
        let count = status.readers.len();
        let mut kept = kept.into_iter();
        status.readers.retain(|_| kept.next().unwrap_or(false));
        status.readers_left_out = (count - status.readers.len()) as u64;
    }
}

/// Bytes of the indices of a reader, one for each thread that captures.
pub(super) fn index_memory(spec: &ReaderSpec, capture: &Capture) -> u64 {
    spec.memory() * capture.workers() as u64
}

/// The fate of a reader's policy.
pub(super) fn standing(standing: Guarantee) -> &'static str {
    match standing {
        Guarantee::Lossy => "lossy",
        Guarantee::Leased => "leased",
        Guarantee::Lossless => "lossless",
        Guarantee::LossyByBytes => "lossy: lagged by too many bytes",
        Guarantee::LossyByTime => "lossy: lagged for too long",
        Guarantee::Refused => "refused: it broke the rules of the buffer",
    }
}

#[cfg(test)]
mod tests {
    use tapline_tap_client::protocol::ReaderStatus;

    use super::*;

    /// A user with long filters and names takes the place of its own readers, not of others.
    #[test]
    fn a_status_has_readers_of_each_user() {
        let reader = |uid, number| {
            let filter = shown(&"\n".repeat(8000));
            ReaderStatus { uid, number, filter, program: "\"".repeat(80), ..ReaderStatus::default() }
        };
        let readers = (0..1000).map(|number| reader(7, number)).chain([reader(0, 1000), reader(8, 1001)]);
        let mut captures = [CaptureStatus { readers: readers.collect(), ..CaptureStatus::default() }];
        bound_readers(&mut captures, 0, READERS_LEN_MAX);
        let [status] = captures;
        assert!(serde_json::to_vec(&status).unwrap().len() < READERS_LEN_MAX + 4096);
        assert!(status.readers.iter().any(|reader| reader.uid == 0));
        assert!(status.readers.iter().any(|reader| reader.uid == 8));
        assert!(status.readers.iter().filter(|reader| reader.uid == 7).count() > 20);
        assert_eq!(status.readers.len() as u64 + status.readers_left_out, 1002);
        assert!(status.readers.is_sorted_by_key(|reader| reader.number));
    }
}
