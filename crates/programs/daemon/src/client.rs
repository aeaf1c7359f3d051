//! The states of a connection.
//!
//! ```text
//! new --hello--> known --attach--> reading --detach--> known
//!                  |  \- status       \- filter, status
//!                  +--anything else: refused in words; what is not a request: the connection ends
//! ```

use std::os::fd::{AsFd, OwnedFd};

use tapline_ring::ReaderParts;
use tapline_tap_client::protocol::{AttachRequest, Reply, Request, VERSION};
use tapline_tap_client::{Channel, Error};

use crate::ClientIdentity;
use crate::memory::Charge;

/// Requests that are answered of one connection before others have their turn.
const REQUESTS_AT_ONCE: usize = 16;

/// A connection.
pub(crate) struct Client {
    pub(crate) channel: Channel,
    pub(crate) who: ClientIdentity,
    /// Name that the client gave of its program; `None` before it gave one.
    pub(crate) program: Option<String>,
    pub(crate) reading: Option<Reading>,
}

impl Client {
    /// Whether it is a thread of this process: a recording, or a view's meter.
    pub(crate) fn is_in_daemon(&self) -> bool {
        self.who.pid == std::process::id()
    }
}

/// The capture that a connection reads.
pub(crate) struct Reading {
    pub(crate) number: u64,
    /// Index of the capture.
    pub(crate) capture: usize,
    pub(crate) attach: AttachRequest,
    /// Memory of its indices, in the account of its user.
    pub(crate) charge: Option<Charge>,
}

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// Buffers that come behind it.
    pub(crate) buffers: Vec<ReaderParts>,
    /// A pipe that comes along with it.
    pub(crate) pipe: Option<OwnedFd>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, buffers: Vec::new(), pipe: None }
    }
}

/// Reason for the end of a connection.
pub(crate) enum Over {
    /// The client closed it.
    Closed,
    /// The client violates the protocol, or does not read our answers.
    Faulty(String),
}

impl Client {
    /// Answers what has come. `answer` decides.
    pub(crate) fn serve(
        &mut self,
        mut answer: impl FnMut(&mut Client, Request) -> Answer,
    ) -> Result<(), Over> {
        let mut turns = REQUESTS_AT_ONCE;
        while turns > 0 {
            let request: Request = match self.channel.receive() {
                Ok(request) => request,
                Err(Error::Socket(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Ok(());
                }
                Err(Error::Closed | Error::Socket(_)) => return Err(Over::Closed),
                Err(error) => {
                    let _ = self.channel.send(&Reply::Error(error.to_string()), &[]);
                    return Err(Over::Faulty(error.to_string()));
                }
            };
            // Compiling takes a while: the others have their turn after it.
            let compiles = matches!(
                request,
                Request::Attach(_) | Request::Filter { .. } | Request::Program { .. } | Request::Find(_)
            );
            turns = if compiles { 0 } else { turns - 1 };
            let given = match self.greet(&request) {
                Some(refusal) => refusal.into(),
                None => answer(self, request),
            };
            self.send(&given).map_err(|error| match error {
                Error::Socket(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    Over::Faulty("it does not read the answers".to_owned())
                }
                _ => Over::Closed,
            })?;
        }
        Ok(())
    }

    /// Whether the request may come now; why not.
    fn greet(&mut self, request: &Request) -> Option<Reply> {
        match request {
            Request::Hello { version: VERSION, program } => {
                // For people's eyes, in one line.
                let program = program.chars().filter(|c| !c.is_control()).take(80).collect();
                self.program = Some(program);
                None
            }
            Request::Hello { version, .. } => Some(Reply::Error(format!(
                "version {version} of the protocol; this daemon has {VERSION}: use programs of the same release"
            ))),
            _ if self.program.is_none() => Some(Reply::Error("hello comes first".to_owned())),
            _ => None,
        }
    }

    fn send(&mut self, answer: &Answer) -> Result<(), Error> {
        let pipe: Vec<_> = answer.pipe.iter().map(AsFd::as_fd).collect();
        self.channel.send(&answer.reply, &pipe)?;
        for (number, parts) in answer.buffers.iter().enumerate() {
            let descriptors = [parts.buffer.as_fd(), parts.index.as_fd(), parts.bell.as_fd()];
            self.channel.send(&Reply::Buffer(number as u32), &descriptors)?;
        }
        Ok(())
    }
}
