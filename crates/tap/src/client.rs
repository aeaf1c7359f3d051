//! Asking a daemon.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tapline_ring::{MergedReader, Order, Reader, ReaderParts};
use tapline_sys::peer;

use crate::protocol::{Attach, Offer, Reply, Request, Status, VERSION};
use crate::source::Tap;
use crate::{Channel, Error};

/// Where a daemon listens unless it is told otherwise.
pub const SOCKET_DEFAULT: &str = "/run/tapline/serve.sock";
/// The environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "TAPLINE_SOCKET";

/// After how long at the latest a packet is in its buffer, besides the delay that we wish for: the kernel hands a block over 10 to 20 ms after its first packet,
/// and the daemon puts interfaces in order and has other things to do. So long packets wait for a buffer that has none, when several are merged by time.
const MERGE_PATIENCE: Duration = Duration::from_millis(50);
/// How long a daemon has to answer, and how long to make a buffer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const BUFFER_WAIT: Duration = Duration::from_secs(120);
/// The most buffers that a daemon may give to one reader.
const BUFFERS_MAX: u32 = 256;

/// The socket that is meant: the one that is named, that of the environment, or the usual one.
pub fn socket_path(named: Option<&Path>) -> PathBuf {
    match (named, std::env::var_os(SOCKET_VARIABLE)) {
        (Some(path), _) => path.to_owned(),
        (None, Some(path)) if !path.is_empty() => path.into(),
        _ => SOCKET_DEFAULT.into(),
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    captures: Vec<Offer>,
}

impl Client {
    /// Connects, and says who we are: `program` is for people who look at the daemon's status.
    ///
    /// # Errors
    /// [`Error::NoDaemon`], [`Error::NotAllowed`], [`Error::Silent`], [`Error::Refused`].
    pub fn connect(path: &Path, program: &str) -> Result<Client, Error> {
        Client::connect_within(path, program, ANSWER_WAIT)
    }

    /// Likewise, where each step waits for `patience` at most.
    pub(crate) fn connect_within(path: &Path, program: &str, patience: Duration) -> Result<Client, Error> {
        let stream = peer::connect(path, patience).map_err(|error| Error::unreachable(path, error.source))?;
        Client::over(stream, program)
    }

    fn over(stream: UnixStream, program: &str) -> Result<Client, Error> {
        let mut client = Client { channel: Channel::new(stream, true), captures: Vec::new() };
        let hello = Request::Hello { version: VERSION, program: program.to_owned() };
        match client.ask(&hello)? {
            Reply::Hello { version: VERSION, captures } => client.captures = captures,
            Reply::Hello { version, .. } => {
                return Err(Error::protocol(format!("version {version}; this is {VERSION}")));
            }
            other => return Err(unexpected(&other)),
        }
        Ok(client)
    }

    /// The captures that we may read, if the daemon says so in time: each step of asking waits for `patience` at most.
    ///
    /// # Errors
    /// As with [`connect`](Self::connect), within that time.
    pub fn list(path: &Path, program: &str, patience: Duration) -> Result<Vec<Offer>, Error> {
        Ok(Client::connect_within(path, program, patience)?.captures)
    }

    /// Captures that we may read.
    pub fn captures(&self) -> &[Offer] {
        &self.captures
    }

    /// What the daemon does.
    ///
    /// # Errors
    /// What the daemon says.
    pub fn status(&mut self) -> Result<Status, Error> {
        match self.ask(&Request::Status {})? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Becomes a reader of a capture.
    ///
    /// # Errors
    /// [`Error::Refused`] with the daemon's reason; [`Error::Ring`] if its buffers are not as they should be.
    pub fn attach(mut self, attach: &Attach) -> Result<Tap, Error> {
        // A large buffer takes its time to be made.
        self.channel.stream().set_read_timeout(Some(BUFFER_WAIT))?;
        let attached = match self.ask(&Request::Attach(attach.clone()))? {
            Reply::Attached(attached) if attached.buffers <= BUFFERS_MAX => attached,
            other => return Err(unexpected(&other)),
        };
        let mut readers = Vec::new();
        for number in 0..attached.buffers {
            match self.channel.receive().map_err(Error::of_waiting)? {
                Reply::Buffer(got) if got == number => {}
                Reply::Error(text) => return Err(Error::Refused { text }),
                other => return Err(unexpected(&other)),
            }
            let [buffer, index, bell] = [
                self.channel.take_descriptor()?,
                self.channel.take_descriptor()?,
                self.channel.take_descriptor()?,
            ];
            readers.push(Reader::open(ReaderParts { buffer, index, bell })?);
        }
        let merged = MergedReader::new(readers, Order::ByTime(MERGE_PATIENCE + attach.delay()));
        self.channel.stream().set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Tap::new(self.channel, attach, &attached, merged))
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Error> {
        ask(&mut self.channel, request)
    }
}

/// Asks, and waits for the answer.
pub(crate) fn ask(channel: &mut Channel, request: &Request) -> Result<Reply, Error> {
    channel.send(request, &[]).map_err(Error::of_waiting)?;
    match channel.receive().map_err(Error::of_waiting)? {
        Reply::Error(text) => Err(Error::Refused { text }),
        reply => Ok(reply),
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::protocol(format!("{reply:?}").chars().take(200).collect::<String>())
}
