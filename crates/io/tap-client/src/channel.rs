//! Lines of JSON and descriptors over a Unix socket.
//!
//! ```text
//! message := json "\n"          at most MESSAGE_MAX bytes; descriptors come with its first byte
//! ```
//!
//! The other end may be hostile: a message that is too long, no JSON, or with unexpected descriptors, is an error and
//! nothing else.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tapline_sys::{Poller, Wakeup, passing};

use crate::Error;

/// The longest message in bytes, with its end of line.
pub const MESSAGE_MAX: usize = 256 << 10;
/// Descriptors that may wait to be taken.
const DESCRIPTORS_MAX: usize = 64;
const READ_LEN: usize = 16 << 10;

/// One end of a connection.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
    /// Bytes at the start of `received` in which no message ends.
    searched: usize,
    descriptors: VecDeque<OwnedFd>,
    /// Whether descriptors may come.
    takes_descriptors: bool,
}

impl Channel {
    /// Over a connected socket. Without `takes_descriptors`, descriptors are an error.
    pub fn new(stream: UnixStream, takes_descriptors: bool) -> Channel {
        Channel { stream, received: Vec::new(), searched: 0, descriptors: VecDeque::new(), takes_descriptors }
    }

    /// Sends a message, with descriptors.
    ///
    /// # Errors
    /// The error of sendmsg(2). `WouldBlock` on a socket that does not wait: the other end does not read, and the
    /// connection is of no use any more.
    pub fn send(&mut self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let mut line = serde_json::to_vec(message).map_err(|error| Error::protocol(error.to_string()))?;
        line.push(b'\n');
        let mut sent = passing::send(self.stream.as_fd(), &line, descriptors)?;
        while sent < line.len() {
            sent += passing::send(self.stream.as_fd(), &line[sent..], &[])?;
        }
        Ok(())
    }

    /// Whether a message has come that [`receive`](Self::receive) gives without asking the socket.
    pub fn has_message(&self) -> bool {
        self.received[self.searched..].contains(&b'\n')
    }

    /// The next message; waits for it, unless the socket does not wait.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end, [`Error::Protocol`] for other bytes; `WouldBlock` in [`Error::Socket`] where there
    /// is none yet.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.receive_after(|_| Ok(()))
    }

    /// The next message, if all of it comes before `until`, however many parts it has. `interrupt` ends the wait.
    ///
    /// # Errors
    /// Like [`receive`](Self::receive); [`Error::Silent`] when the time is over, [`Error::Interrupted`].
    pub fn receive_until<T: DeserializeOwned>(
        &mut self,
        until: Instant,
        interrupt: Option<&Wakeup>,
    ) -> Result<T, Error> {
        self.receive_after(|stream| {
            let mut poller = Poller::new();
            poller.add(stream.as_fd());
            if let Some(interrupt) = interrupt {
                poller.add(interrupt.as_fd());
            }
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let ready = poller.wait(left)?;
                if interrupt.is_some_and(Wakeup::take) {
                    return Err(Error::Interrupted);
                }
                if left.is_zero() {
                    return Err(Error::Silent);
                }
                if ready > 0 {
                    return Ok(());
                }
            }
        })
    }

    /// The next message; before each read `wait` says whether there is to be one.
    fn receive_after<T: DeserializeOwned>(
        &mut self,
        wait: impl Fn(&UnixStream) -> Result<(), Error>,
    ) -> Result<T, Error> {
        loop {
            let rest = &self.received[self.searched..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=self.searched + end).collect();
                self.searched = 0;
                // A long message leaves no memory behind.
                if self.received.is_empty() {
                    self.received = Vec::new();
                }
                return serde_json::from_slice(&line).map_err(|error| Error::protocol(error.to_string()));
            }
            self.searched = self.received.len();
            if self.received.len() >= MESSAGE_MAX {
                return Err(Error::protocol(format!("a message of more than {MESSAGE_MAX} bytes")));
            }
            wait(&self.stream)?;
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), Error> {
        let mut bytes = [0; READ_LEN];
        let most = READ_LEN.min(MESSAGE_MAX - self.received.len());
        let (len, descriptors) = loop {
            match passing::receive(self.stream.as_fd(), &mut bytes[..most]) {
                Err(error) if error.source.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if !descriptors.is_empty() && !self.takes_descriptors {
            return Err(Error::protocol("unexpected descriptors"));
        }
        if self.descriptors.len() + descriptors.len() > DESCRIPTORS_MAX {
            return Err(Error::protocol("too many descriptors"));
        }
        self.descriptors.extend(descriptors);
        if len == 0 {
            return Err(Error::Closed);
        }
        self.received.extend_from_slice(&bytes[..len]);
        Ok(())
    }

    /// The next descriptor that came.
    ///
    /// # Errors
    /// None came.
    pub fn take_descriptor(&mut self) -> Result<OwnedFd, Error> {
        self.descriptors.pop_front().ok_or_else(|| Error::protocol("a descriptor is missing"))
    }

    /// Takes no descriptors from now on.
    ///
    /// # Errors
    /// Some came that were not taken.
    pub fn refuse_descriptors(&mut self) -> Result<(), Error> {
        self.takes_descriptors = false;
        if std::mem::take(&mut self.descriptors).is_empty() {
            Ok(())
        } else {
            Err(Error::protocol("more descriptors than were announced"))
        }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::protocol::{Reply, Request};

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one, true), Channel::new(other, false))
    }

    #[test]
    fn messages_come_as_they_went() {
        let (mut client, mut daemon) = pair();
        let (bell, _other) = UnixStream::pair().unwrap();
        client.send(&Request::Status {}, &[]).unwrap();
        client.send(&Request::Filter { text: "udp\nport \"53\"".into() }, &[]).unwrap();
        assert_eq!(daemon.receive::<Request>().unwrap(), Request::Status {});
        assert_eq!(daemon.receive::<Request>().unwrap(), Request::Filter { text: "udp\nport \"53\"".into() });
        daemon.send(&Reply::Buffer(7), &[bell.as_fd()]).unwrap();
        assert_eq!(client.receive::<Reply>().unwrap(), Reply::Buffer(7));
        assert!(client.take_descriptor().is_ok() && client.take_descriptor().is_err());
        client.stream().write_all(b"{\"status\":{}}\n{\"status\":{}}\n").unwrap();
        assert!(!daemon.has_message());
        daemon.receive::<Request>().unwrap();
        assert!(daemon.has_message());
        daemon.receive::<Request>().unwrap();
        assert!(!daemon.has_message());
        drop(client);
        assert!(matches!(daemon.receive::<Request>(), Err(Error::Closed)));
    }

    #[test]
    fn garbage_is_an_error_and_nothing_else() {
        for bytes in
            [&b"\n"[..], b"{\n", b"{}\n", b"[1]\n", b"{\"attach\":7}\n", b"\xff\xfe\n", b"{\"hello\":{}}\n"]
        {
            let (client, mut daemon) = pair();
            client.stream().write_all(bytes).unwrap();
            assert!(matches!(daemon.receive::<Request>(), Err(Error::Protocol { .. })), "{bytes:?}");
        }
        let (client, mut daemon) = pair();
        let writer = std::thread::spawn(move || client.stream().write_all(&vec![b' '; 2 * MESSAGE_MAX]));
        let error = daemon.receive::<Request>().unwrap_err().to_string();
        assert!(error.contains("more than 262144 bytes"), "{error}");
        drop(daemon);
        let _ = writer.join();
    }

    #[test]
    fn descriptors_come_to_receivers_that_ask() {
        let (mut client, mut daemon) = pair();
        let (bell, _other) = UnixStream::pair().unwrap();
        client.send(&Request::Status {}, &[bell.as_fd()]).unwrap();
        assert!(matches!(daemon.receive::<Request>(), Err(Error::Protocol { .. })));
    }
}
