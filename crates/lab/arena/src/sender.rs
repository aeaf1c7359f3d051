//! Sends frames on an interface and counts exactly those that the kernel took.
//!
//! ```text
//! frames, over and over --sendmmsg in bursts--> AF_PACKET --> interface
//! ```

use crate::netns;
use std::time::{Duration, Instant};
use tapline_sys::{FRAMES_PER_CALL, FrameSocket, NetNs, RouteSocket};

/// The longest delay that a paced sender makes up for: after a longer one the rest of its frames go later. The burst of
/// a sender that had no processor for a second would be faster than any receiver bears.
const CATCH_UP_MAX: Duration = Duration::from_millis(20);
/// The sleep of a paced sender when nothing is due.
const TICK: Duration = Duration::from_micros(500);
/// The pause before a frame is tried again when the interface's queue was full.
const QUEUE_FULL_PAUSE: Duration = Duration::from_micros(100);
/// The longest single wait for room in the socket.
const WAIT: Duration = Duration::from_secs(1);

const EAGAIN: i32 = 11;
const ENOBUFS: i32 = 105;

/// The rate of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the kernel takes frames.
    Full,
    /// This number of frames a second, in bursts about every half millisecond.
    PerSecond(u64),
}

/// The bytes and descriptors that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel took.
    pub packets: u64,
    /// Bytes of the packets, without frame check sequences.
    pub bytes: u64,
    /// From the first to the last.
    pub duration: Duration,
}

impl Sent {
    /// Frames a second.
    pub fn rate(&self) -> f64 {
        self.packets as f64 / self.duration.as_secs_f64().max(1e-9)
    }
}

/// A socket on one interface.
#[derive(Debug)]
pub struct Sender {
    socket: FrameSocket,
}

impl Sender {
    /// On an interface, in the namespace of this name or, without one, in ours.
    ///
    /// # Errors
    /// The namespace or interface does not exist, or `CAP_NET_RAW` is missing.
    pub fn open(namespace: Option<&str>, interface: &str) -> Result<Sender, String> {
        let socket = match namespace {
            None => open_here(interface)?,
            Some(name) => {
                let place = NetNs::open(name).map_err(|e| format!("network namespace {name}: {e}"))?;
                place.run(|| open_here(interface)).map_err(|e| e.to_string())??
            }
        };
        Ok(Sender { socket })
    }

    /// On [`netns::NEAR`] of a namespace with a pair.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn near(namespace: &netns::Namespace) -> Result<Sender, String> {
        Sender::open(Some(namespace.name()), netns::NEAR)
    }

    /// Sends `count` frames: all of `frames` in order, over and over.
    ///
    /// # Errors
    /// Why a frame was refused, and how many had been taken by then.
    pub fn send(&mut self, frames: &[Vec<u8>], count: u64, pace: Pace) -> Result<Sent, String> {
        let start = Instant::now();
        // The start of the schedule: later than that of the sending by all delays that are not made up for.
        let mut planned = start;
        let mut sent = Sent::default();
        let mut burst: Vec<&[u8]> = Vec::with_capacity(FRAMES_PER_CALL);
        let mut upcoming = frames.iter().cycle();
        while sent.packets < count {
            planned += delay(pace, planned.elapsed(), sent.packets).saturating_sub(CATCH_UP_MAX);
            let due = due_packets(pace, planned.elapsed()).min(count).saturating_sub(sent.packets);
            if due == 0 {
                std::thread::sleep(TICK);
                continue;
            }
            burst.clear();
            burst.extend(upcoming.by_ref().take(due.min(FRAMES_PER_CALL as u64) as usize).map(Vec::as_slice));
            if burst.is_empty() {
                break;
            }
            self.send_burst(&burst, &mut sent)?;
        }
        sent.duration = start.elapsed();
        Ok(sent)
    }

    fn send_burst(&mut self, mut burst: &[&[u8]], sent: &mut Sent) -> Result<(), String> {
        while !burst.is_empty() {
            let taken = match self.socket.send(burst.iter().map(|frame| [*frame, &[], &[]])) {
                Ok(taken) => taken,
                Err(error) if error.errno() == EAGAIN => {
                    self.socket.wait_for_room(WAIT).map_err(|error| error.to_string())?;
                    continue;
                }
                Err(error) if error.errno() == ENOBUFS => {
                    std::thread::sleep(QUEUE_FULL_PAUSE);
                    continue;
                }
                Err(error) => return Err(format!("after {} frames: {error}", sent.packets)),
            };
            let (done, rest) = burst.split_at(taken);
            sent.packets += taken as u64;
            sent.bytes += done.iter().map(|frame| frame.len() as u64).sum::<u64>();
            burst = rest;
        }
        Ok(())
    }
}

/// Frames that may be out after this time, in all.
fn due_packets(pace: Pace, elapsed: Duration) -> u64 {
    match pace {
        Pace::Full => u64::MAX,
        Pace::PerSecond(rate) => (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64,
    }
}

/// By how much a sender is behind its schedule, when so much of it has passed.
fn delay(pace: Pace, elapsed: Duration, sent: u64) -> Duration {
    match pace {
        Pace::Full => Duration::ZERO,
        Pace::PerSecond(rate) => {
            let on_time = u128::from(sent) * 1_000_000_000 / u128::from(rate.max(1));
            elapsed.saturating_sub(Duration::from_nanos(u64::try_from(on_time).unwrap_or(u64::MAX)))
        }
    }
}

fn open_here(interface: &str) -> Result<FrameSocket, String> {
    let links = RouteSocket::open().and_then(|mut route| route.links()).map_err(|e| e.to_string())?;
    let link = links
        .iter()
        .find(|link| link.name == interface)
        .ok_or_else(|| format!("no interface {interface}"))?;
    FrameSocket::open(link.index).map_err(|e| format!("{interface}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{FAR, Namespace, namespaces_or_skip};
    use crate::traffic::Traffic;

    #[test]
    fn the_other_end_receives_the_frames() {
        if !namespaces_or_skip("the_other_end_receives_the_frames") {
            return;
        }
        let namespace = Namespace::with_pair("sender").expect("we may");
        let frames: Vec<Vec<u8>> = Traffic::new(1).take(1000).map(|(_, frame)| frame).collect();
        let mut sender = Sender::near(&namespace).expect("the pair is up");
        let sent = sender.send(&frames, 2500, Pace::PerSecond(50_000)).expect("the link is up");
        assert_eq!(sent.packets, 2500);
        assert!(sent.duration >= Duration::from_millis(49), "{:?}", sent.duration);
        // Not rx_dropped: that counts frames which arrived and which no protocol here wanted.
        assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(2500));
    }

    #[test]
    fn long_delays_are_not_made_up_for() {
        let ms = Duration::from_millis;
        let behind = |elapsed, sent| delay(Pace::PerSecond(20_000), elapsed, sent);
        assert_eq!((behind(ms(50), 1000), behind(ms(49), 1000)), (Duration::ZERO, Duration::ZERO));
        assert_eq!((behind(ms(550), 1000), behind(ms(550), 0)), (ms(500), ms(550)));
        assert_eq!(delay(Pace::Full, ms(1000), 0), Duration::ZERO);
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = Sender::open(None, "nowhere0").expect_err("there is none");
        assert!(error.contains("nowhere0"), "{error}");
    }
}
