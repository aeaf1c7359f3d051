//! Holds in stores: the seconds around an event are neither recycled nor deleted.
//!
//! ```text
//! event --try_send--> queue of 64 --thread--> KeepHold: a file in the store, written and synced
//!            | full, or the rule has its number of holds: counted, not waited for
//! ```
//!
//! A hold that fails, or for which the store is full, does not count towards the rule's number.

use std::collections::HashMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use sha2::{Digest, Sha256};

use crate::delivery::{DeliveryQueue, Ending, Tally, Worker, counted};
use crate::event::Event;
use crate::faults::Failure;
use crate::rules::HoldSettings;

/// Holds that wait.
const HOLDS_MAX: usize = 64;
/// Letters of the rule's name in the name of a hold, which has 64 at most: 20 are for the time, 8 for the hash.
const NAME_LEN: usize = 32;
/// Letters of a reason: a store refuses a hold of more than 64 KiB, and the message of a script may be as long.
const REASON_LEN: usize = 4096;

/// A hold that an event asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRequest {
    /// The directory of the store.
    pub store: PathBuf,
    /// Name of the hold: the rule's, of ASCII letters, digits, `-` and `_`, the time of the event, and a hash of the
    /// rule's whole name and the times, so that equal rules and times alone have equal names.
    pub name: String,
    /// The first moment, in nanoseconds since 1970.
    pub from_ns: i64,
    /// The first moment behind it.
    pub to_ns: i64,
    /// The reason: the event as a line of text, cut after 4096 letters.
    pub why: String,
}

/// Makes a hold, unless one of this name is there that has all its time. A sentence describes the problem of a hold
/// that is in force all the same. The error is a sentence, too.
pub type KeepHold = Box<dyn Fn(&HoldRequest) -> Result<Option<String>, String> + Send>;

/// A hold that waits.
struct Job {
    rule: String,
    request: HoldRequest,
    place: HoldSlot,
}

/// One of the holds that a rule may make in a run. It is given back unless the hold is made.
struct HoldSlot {
    taken: Arc<AtomicU64>,
    is_made: bool,
}

impl HoldSlot {
    /// A place, unless all are taken. One thread takes them; others only give them back.
    fn take(taken: &Arc<AtomicU64>, most: u64) -> Option<HoldSlot> {
        if taken.load(Ordering::Relaxed) >= most {
            return None;
        }
        taken.fetch_add(1, Ordering::Relaxed);
        Some(HoldSlot { taken: Arc::clone(taken), is_made: false })
    }
}

impl Drop for HoldSlot {
    fn drop(&mut self) {
        if !self.is_made {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Holds of events.
pub struct Holds {
    worker: Worker<Job>,
    /// Holds of each rule in this run: those that are made, wait or are at work.
    taken: HashMap<String, Arc<AtomicU64>>,
}

impl Holds {
    /// The thread that makes holds.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(keep: KeepHold) -> io::Result<Holds> {
        let work = move |jobs: Receiver<Job>, tally: Arc<Tally>, ending: Arc<Ending>| {
            work(&jobs, &tally, &ending, &keep);
        };
        Ok(Holds { worker: Worker::start("hold", HOLDS_MAX, work)?, taken: HashMap::new() })
    }

    /// Queues a hold for the time around an event, unless too many holds wait or the rule has its number of them.
    pub fn offer(&mut self, settings: &HoldSettings, event: &Event) {
        let taken = self.taken.entry(event.name.clone()).or_default();
        let Some(place) = HoldSlot::take(taken, settings.holds) else {
            let text = format!(
                "it has its number of {} in this run, made or under way: packets of further events are not \
                 held",
                counted(settings.holds, "hold")
            );
            return self.worker.refuse(&event.name, Failure::new("holds", text));
        };
        let job = Job { rule: event.name.clone(), request: request(settings, event), place };
        self.worker.offer(&event.name, job);
    }
}

impl Deref for Holds {
    type Target = dyn DeliveryQueue;

    fn deref(&self) -> &Self::Target {
        &self.worker
    }
}

impl DerefMut for Holds {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.worker
    }
}

fn request(settings: &HoldSettings, event: &Event) -> HoldRequest {
    let time = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let from_ns = event.time_ns.saturating_sub(time(settings.before_ns));
    let to_ns = event.time_ns.saturating_add(time(settings.after_ns)).saturating_add(1);
    HoldRequest {
        store: settings.store.clone(),
        name: hold_name(event, from_ns, to_ns),
        from_ns,
        to_ns,
        why: event.to_text().chars().take(REASON_LEN).collect(),
    }
}

/// Rules whose names differ in `.` and `-`, or behind the letters that are shown, have equal names but for the hash.
fn hold_name(event: &Event, from_ns: i64, to_ns: i64) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let rule: String = event.name.chars().take(NAME_LEN).map(letter).collect();
    let hash = Sha256::digest(format!("{from_ns} {to_ns} {}", event.name));
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{rule}-{}-{hash}", event.time_ns)
}

fn work(jobs: &Receiver<Job>, tally: &Tally, ending: &Ending, keep: &KeepHold) {
    for Job { rule, request, mut place } in jobs {
        let kept = if ending.is_over() {
            Err("the run ended before it was done".to_owned())
        } else {
            keep(&request)
        };
        place.is_made = kept.is_ok();
        // First of all, so that the place is free once the failure is counted.
        drop(place);
        tally.count(&rule, |counts| match kept {
            Ok(_) => counts.done += 1,
            Err(_) => counts.failed += 1,
        });
        let store = request.store.display();
        match kept {
            Ok(None) => {}
            Ok(Some(why)) => tally.fault(&rule, Failure::new("in force", format!("{store}: {why}"))),
            Err(why) => tally.fault(&rule, Failure::new("hold", format!("no hold in {store}: {why}"))),
        }
        tally.end_job();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::delivery::DeliveryCounts;

    const RULE: &str = "a.b\u{e9} c";

    fn settings(holds: u64) -> HoldSettings {
        HoldSettings { store: "/srv/store".into(), before_ns: 10, after_ns: u64::MAX, holds }
    }

    fn event(time_ns: i64) -> Event {
        Event { time_ns, ..Event::of_rule(RULE) }
    }

    /// Waits until `number` holds are made or have failed.
    fn wait_for(holds: &Holds, number: u64) {
        let begin = Instant::now();
        let ended = || holds.counts_of(RULE).done + holds.counts_of(RULE).failed;
        while ended() < number {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} of {number}", ended());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(holds: &mut Holds) -> DeliveryCounts {
        holds.end_by(Instant::now() + Duration::from_secs(60));
        holds.finish();
        holds.counts_of(RULE)
    }

    #[test]
    fn failed_holds_are_reported_and_free_their_slot() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&asked);
        let keep = move |request: &HoldRequest| -> Result<Option<String>, String> {
            let mut asked = theirs.lock().expect("no panic");
            asked.push(request.clone());
            match asked.len() {
                2 => Err("the disk is full".to_owned()),
                3 => Ok(Some("the log is full".to_owned())),
                _ => Ok(None),
            }
        };
        let mut holds = Holds::start(Box::new(keep)).expect("a thread");
        for (time_ns, ended) in (100..).zip([1, 2, 3, 4, 4]) {
            holds.offer(&settings(3), &event(time_ns));
            wait_for(&holds, ended);
        }
        let counts = finish(&mut holds);
        assert_eq!((counts.done, counts.failed, counts.refused), (3, 1, 1));
        let faults = holds.take_faults().join("\n");
        assert!(faults.contains("no hold in /srv/store: the disk is full"), "{faults}");
        assert!(faults.contains("/srv/store: the log is full"), "{faults}");
        assert!(faults.contains("its number of 3 holds"), "{faults}");
        let asked = asked.lock().expect("no panic");
        assert!(asked[0].name.starts_with("a-b--c-100-"), "{}", asked[0].name);
        assert_eq!((asked[0].from_ns, asked[0].to_ns), (90, i64::MAX));
    }

    /// One hold is at work, 64 wait, three are refused: the rule may make one more.
    #[test]
    fn holds_that_find_no_room_take_no_place() {
        let (begun, at_work) = channel();
        let (gate, opened) = channel::<()>();
        let keep = move |_: &HoldRequest| -> Result<Option<String>, String> {
            let _ = begun.send(());
            let _ = opened.recv();
            Ok(None)
        };
        let mut holds = Holds::start(Box::new(keep)).expect("a thread");
        let settings = settings(HOLDS_MAX as u64 + 2);
        holds.offer(&settings, &event(0));
        at_work.recv().expect("a hold at work");
        (1..HOLDS_MAX as i64 + 4).for_each(|time_ns| holds.offer(&settings, &event(time_ns)));
        drop(gate);
        wait_for(&holds, HOLDS_MAX as u64 + 1);
        (100..102).for_each(|time_ns| holds.offer(&settings, &event(time_ns)));
        let counts = finish(&mut holds);
        assert_eq!((counts.done, counts.failed, counts.refused), (HOLDS_MAX as u64 + 2, 0, 3 + 1));
    }

    #[test]
    fn holds_of_equal_rules_and_times_have_one_name() {
        let long = "r".repeat(63);
        let rules = ["a.b".to_owned(), "a-b".to_owned(), format!("{long}1"), format!("{long}2")];
        let request = |rule: &str, before_ns: u64| {
            let event = Event { time_ns: -1_000_000_000_000_000_000, ..Event::of_rule(rule) };
            request(&HoldSettings { before_ns, ..settings(1) }, &event)
        };
        let of_rule = |rule: &String| [5, 6, 5].map(|before_ns| request(rule, before_ns).name);
        let names: HashSet<String> = rules.iter().flat_map(of_rule).collect();
        assert_eq!(names.len(), 8, "{names:?}");
        assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
    }

    #[test]
    fn a_long_message_is_cut_to_what_a_store_takes() {
        let event = Event { message: "\u{7f}".repeat(64 << 10), ..event(0) };
        assert_eq!(request(&settings(1), &event).why.chars().count(), REASON_LEN);
    }
}
