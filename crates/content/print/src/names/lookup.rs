//! Names of hosts from a resolver that may take its time: a thread asks, the printer waits for a bounded time.
//!
//! ```text
//! name() --address--> queue (QUEUE_MAX) --> thread: resolver --name--> answers --> cache (CACHE_MAX)
//! ```
//!
//! An address whose name is not known yet is shown as a number. Its name is there for a later packet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use super::HostNames;

/// Addresses that wait for the resolver at most. Further ones are asked for when they are seen again.
const QUEUE_MAX: usize = 256;
/// Capacity of the cache of answers, in addresses; a full cache is emptied.
const CACHE_MAX: usize = 65_536;
/// Longest name of a host (RFC 1035, 2.3.4).
const NAME_MAX: usize = 255;

/// A resolver: gives the name of an address, and may block.
type Resolve = Box<dyn FnMut(IpAddr) -> Option<String> + Send>;
/// The resolver's answer for an address.
type Answer = (IpAddr, Option<String>);

/// Looks names up by a resolver in a thread of its own.
///
/// The first packet of an address waits for its name for [`wait`](HostLookup::new) at most, and only if the resolver
/// has answered all earlier questions. So a resolver that is silent for ten seconds costs one wait in ten seconds.
pub struct HostLookup {
    resolver: Resolver,
    wait: Duration,
    cache: HashMap<IpAddr, Known>,
    /// Addresses that the resolver was asked for and has not answered yet.
    open_questions: usize,
}

/// The thread, which is made at the first question: in a program that has given up its rights by then.
enum Resolver {
    Idle(Resolve),
    Running {
        questions: SyncSender<IpAddr>,
        answers: Receiver<Answer>,
    },
    /// The system refused a thread: every address stays a number.
    Failed,
}

enum Known {
    Asked,
    Name(String),
    Nameless,
}

impl HostLookup {
    /// Calls `resolve` for each address once. `wait` is the longest time that a new address delays the caller; 0 for
    /// never.
    pub fn new(resolve: impl FnMut(IpAddr) -> Option<String> + Send + 'static, wait: Duration) -> HostLookup {
        let resolver = Resolver::Idle(Box::new(resolve));
        HostLookup { resolver, wait, cache: HashMap::new(), open_questions: 0 }
    }

    fn ask(&mut self, address: IpAddr) {
        self.start();
        let Resolver::Running { questions, .. } = &self.resolver else { return };
        if questions.try_send(address).is_err() {
            return;
        }
        if self.cache.len() >= CACHE_MAX {
            self.cache.clear();
        }
        self.cache.insert(address, Known::Asked);
        self.open_questions += 1;
        if self.open_questions == 1 && !self.wait.is_zero() {
            self.keep_answer(|answers, wait| answers.recv_timeout(wait).ok());
        }
    }

    /// Makes the thread unless it is there.
    fn start(&mut self) {
        if !matches!(self.resolver, Resolver::Idle(_)) {
            return;
        }
        let Resolver::Idle(mut resolve) = std::mem::replace(&mut self.resolver, Resolver::Failed) else {
            return;
        };
        let (questions, asked) = sync_channel(QUEUE_MAX);
        let (answer, answers) = channel();
        // Ends when this side is dropped, which does not wait for it.
        let work = move || {
            for address in asked {
                let name = resolve(address).filter(|name| is_host_name(name));
                if answer.send((address, name)).is_err() {
                    return;
                }
            }
        };
        if thread::Builder::new().name("host-names".to_owned()).spawn(work).is_ok() {
            self.resolver = Resolver::Running { questions, answers };
        }
    }

    /// Takes an answer over into the cache, if `next` gives one.
    fn keep_answer(&mut self, next: impl FnOnce(&Receiver<Answer>, Duration) -> Option<Answer>) -> bool {
        let Resolver::Running { answers, .. } = &self.resolver else { return false };
        let Some((address, name)) = next(answers, self.wait) else { return false };
        self.open_questions = self.open_questions.saturating_sub(1);
        self.cache.insert(address, name.map_or(Known::Nameless, Known::Name));
        true
    }
}

impl HostNames for HostLookup {
    fn name(&mut self, address: IpAddr) -> Option<&str> {
        while self.open_questions > 0 && self.keep_answer(|answers, _| answers.try_recv().ok()) {}
        if !self.cache.contains_key(&address) {
            self.ask(address);
        }
        match self.cache.get(&address)? {
            Known::Name(name) => Some(name),
            Known::Asked | Known::Nameless => None,
        }
    }
}

/// Whether a name has letters, digits, hyphens, dots and underscores only: the owner of an address chooses its name,
/// which must not forge a line of text or control a terminal.
fn is_host_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Longer than any test may take: a wait that should not happen hangs the test.
    const FOREVER: Duration = Duration::from_secs(86_400);

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn each_address_is_asked_for_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let resolve = move |address: IpAddr| {
            counted.fetch_add(1, Ordering::Relaxed);
            (address != self::address(2)).then(|| format!("host-{}", address.to_string().replace('.', "-")))
        };
        let mut names = HostLookup::new(resolve, FOREVER);
        for _ in 0..3 {
            assert_eq!(names.name(address(1)), Some("host-0-0-0-1"));
            assert_eq!(names.name(address(2)), None);
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_silent_resolver_costs_one_wait() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("no panic");
        let behind = Arc::clone(&gate);
        let resolve = move |_| {
            drop(behind.lock());
            Some("late".to_owned())
        };
        let mut names = HostLookup::new(resolve, Duration::from_millis(1));
        assert_eq!(names.name(address(0)), None);
        // From here on a wait would last for a day.
        names.wait = FOREVER;
        let many = QUEUE_MAX as u32 * 4;
        assert!((0..many).all(|number| names.name(address(number)).is_none()));
        assert!(names.open_questions <= QUEUE_MAX + 1, "{} questions", names.open_questions);
        assert!(names.cache.len() <= QUEUE_MAX + 1, "{} entries", names.cache.len());
        drop(closed);
        while names.name(address(0)).is_none() {
            thread::yield_now();
        }
        assert_eq!(names.name(address(0)), Some("late"));
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut names = HostLookup::new(|_| Some("x".to_owned()), FOREVER);
        for number in 0..CACHE_MAX as u32 + 10 {
            assert_eq!(names.name(address(number)), Some("x"));
        }
        assert!(names.cache.len() <= CACHE_MAX);
    }

    #[test]
    fn names_that_forge_output_are_refused() {
        for name in ["", "a b", "a\u{1b}[2J", "a\n1.1.1.1", "10.0.0.1 >", "é", &"x".repeat(256)] {
            let owned = name.to_owned();
            assert_eq!(
                HostLookup::new(move |_| Some(owned.clone()), FOREVER).name(address(1)),
                None,
                "{name:?}"
            );
        }
        assert!(is_host_name("a-b_c.example.org"));
    }

    #[test]
    fn dropping_does_not_wait_for_the_resolver() {
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("no panic");
        let behind = Arc::clone(&gate);
        let mut names = HostLookup::new(move |_| behind.lock().ok().map(|_| String::new()), Duration::ZERO);
        assert_eq!(names.name(address(1)), None);
        drop(names);
        drop(closed);
    }
}
