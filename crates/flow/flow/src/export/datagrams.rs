//! Messages as datagrams, several in one call where the kernel can.
//!
//! ```text
//! outbox   message | message | message | shorter | message ...      at most 64 KB
//!          \--------------- a run ---------------/                  one call: the kernel cuts it (UDP_SEGMENT)
//! ```
//!
//! Each message stays a datagram of its own, as it was; the collector sees no difference. A file takes all messages in one
//! call, as long as it has room for them. Messages in the outbox
//! leave at the end of each call of the exporter, so no message is older for it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use tapline_sys::udp;

use super::collector::{is_reached, no_address};

/// Number of attempts to send a datagram for which the kernel's buffer is full.
const ATTEMPTS: u32 = 100;
/// ENOBUFS and EAGAIN.
const NO_BUFFERS: i32 = 105;
const TRY_AGAIN: i32 = 11;

/// Octets that are written to a file in one call, at most.
const FILE_LEN_MAX: usize = 256 << 10;

/// Messages that wait to be sent together.
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Length and packets of each.
    messages: Vec<(usize, u64)>,
    /// Messages and octets at most.
    room: (usize, usize),
}

impl Outbox {
    /// An outbox for files alone, or for the kernel too, which takes less.
    pub(super) fn new(is_of_files: bool) -> Outbox {
        let room = match is_of_files {
            true => (usize::MAX, FILE_LEN_MAX),
            false => (udp::SEGMENTS_MAX, udp::SEGMENTS_LEN_MAX),
        };
        Outbox { bytes: Vec::new(), messages: Vec::new(), room }
    }

    pub(super) fn has_room(&self, len: usize) -> bool {
        let (messages_max, len_max) = self.room;
        self.messages.len() < messages_max && self.bytes.len() + len <= len_max
    }

    /// All messages in one run, for files.
    pub(super) fn whole(&self) -> Run<'_> {
        Run { bytes: &self.bytes, messages: &self.messages }
    }

    pub(super) fn add(&mut self, message: &[u8], packets: u64) {
        self.bytes.extend_from_slice(message);
        self.messages.push((message.len(), packets));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }

    /// Length and packets of each message.
    pub(super) fn messages(&self) -> &[(usize, u64)] {
        &self.messages
    }

    /// The runs of messages that one call can send: all of one length, but for a shorter last one.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let (mut bytes, mut messages) = (self.bytes.as_slice(), self.messages.as_slice());
        std::iter::from_fn(move || {
            let (first, _) = *messages.first()?;
            let same = messages.iter().take_while(|(len, _)| *len == first).count();
            let count = same + usize::from(messages.get(same).is_some_and(|(len, _)| *len < first));
            let len = messages[..count].iter().map(|(len, _)| len).sum();
            let run = Run { bytes: &bytes[..len], messages: &messages[..count] };
            (bytes, messages) = (&bytes[len..], &messages[count..]);
            Some(run)
        })
    }
}

/// Messages of one length, the last of which may be shorter.
#[derive(Clone, Copy)]
pub(super) struct Run<'o> {
    pub(super) bytes: &'o [u8],
    pub(super) messages: &'o [(usize, u64)],
}

/// A socket to a collector.
pub(super) struct Datagrams {
    socket: UdpSocket,
    pub(super) is_v6: bool,
    /// Bytes of each datagram into which the kernel cuts the bytes of a call; 0 cuts nothing.
    segment_len: u16,
    /// The kernel, the device and the path take several messages in a call, as far as is known.
    takes_runs: bool,
}

/// The outcome of sending.
pub(super) struct Sent {
    pub(super) took: bool,
    /// An ICMP port unreachable arrived for an earlier datagram.
    pub(super) refused: bool,
}

impl Datagrams {
    pub(super) fn open(address: &str, from: Option<IpAddr>) -> io::Result<Datagrams> {
        let mut failure = no_address(from);
        for target in address.to_socket_addrs()?.filter(|target| is_reached(target, from)) {
            let is_v6 = target.is_ipv6();
            let any = || if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let local = SocketAddr::new(from.unwrap_or_else(any), 0);
            match UdpSocket::bind(local).and_then(|socket| socket.connect(target).map(|()| socket)) {
                Ok(socket) => return Ok(Datagrams { socket, is_v6, segment_len: 0, takes_runs: true }),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    pub(super) fn send(&mut self, message: &[u8]) -> Sent {
        if message.len() > self.segment_len.into() {
            self.set_segment_len(0);
        }
        let (sent, refused) = self.attempt(message);
        Sent { took: sent.is_ok(), refused }
    }

    /// Sends a run in one call. `None` if that cannot be done here: nothing was sent then.
    pub(super) fn send_run(&mut self, run: Run<'_>) -> Option<Sent> {
        let (first, _) = *run.messages.first()?;
        if run.messages.len() < 2 || !self.takes_runs {
            return None;
        }
        self.takes_runs = self.set_segment_len(u16::try_from(first).ok()?);
        if !self.takes_runs {
            return None;
        }
        match self.attempt(run.bytes) {
            (Ok(()), refused) => Some(Sent { took: true, refused }),
            // No room for all of it at once, or no way to cut it: each by itself may pass.
            (Err(error), _) => {
                self.takes_runs = is_full(&error);
                None
            }
        }
    }

    /// Whether the kernel knows how.
    fn set_segment_len(&mut self, len: u16) -> bool {
        let is_set = self.segment_len == len || udp::set_segment_len(self.socket.as_fd(), len).is_ok();
        if is_set {
            self.segment_len = len;
        }
        is_set
    }

    /// The error of a socket may be that of an earlier datagram; this one is then sent all the same.
    fn attempt(&self, bytes: &[u8]) -> (io::Result<()>, bool) {
        let (mut refused, mut last) = (false, io::Error::from_raw_os_error(NO_BUFFERS));
        for attempt in 0..ATTEMPTS {
            match self.socket.send(bytes) {
                Ok(_) => return (Ok(()), refused),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => refused = true,
                Err(error) if is_full(&error) => {
                    last = error;
                    thread::sleep(Duration::from_micros(10 * u64::from(attempt + 1)));
                }
                Err(error) => return (Err(error), refused),
            }
        }
        (Err(last), refused)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(NO_BUFFERS | TRY_AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(lengths: &[usize]) -> Outbox {
        let mut outbox = Outbox::new(false);
        for (at, len) in lengths.iter().enumerate() {
            outbox.add(&vec![at as u8; *len], 1);
        }
        outbox
    }

    #[test]
    fn a_run_ends_with_a_shorter_message() {
        for (lengths, runs) in [
            (&[9, 9, 9, 4, 9][..], &[4, 1][..]),
            (&[4, 9, 9], &[1, 2]),
            (&[9], &[1]),
            (&[9, 4, 4], &[2, 1]),
            (&[], &[]),
        ] {
            let outbox = outbox(lengths);
            let counts: Vec<usize> = outbox.runs().map(|run| run.messages.len()).collect();
            assert_eq!(counts, runs, "{lengths:?}");
            assert_eq!(outbox.runs().flat_map(|run| run.bytes).count(), lengths.iter().sum::<usize>());
        }
    }

    /// Runs and single messages, long after short ones: each is a datagram as it was.
    #[test]
    fn datagrams_are_the_messages() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        receiver.set_read_timeout(Some(Duration::from_secs(60))).expect("it is not zero");
        let address = receiver.local_addr().expect("it has one").to_string();
        let mut datagrams = Datagrams::open(&address, None).expect("it is there");
        let lengths = [100, 100, 100, 70, 1400, 1400, 30, 5];
        let outbox = outbox(&lengths);
        for run in outbox.runs() {
            if datagrams.send_run(run).is_some_and(|sent| sent.took) {
                continue;
            }
            let mut rest = run.bytes;
            for (len, _) in run.messages {
                assert!(datagrams.send(&rest[..*len]).took);
                rest = &rest[*len..];
            }
        }
        assert!(datagrams.send(&[8; 1000]).took);
        let mut buffer = [0; 2000];
        for (at, len) in lengths.iter().chain(&[1000]).enumerate() {
            assert_eq!(receiver.recv(&mut buffer).expect("it was sent"), *len);
            assert!(buffer[..*len].iter().all(|byte| usize::from(*byte) == at));
        }
    }
}
