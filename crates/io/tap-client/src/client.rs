//! Asking a daemon.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapline_packet::SNAP_LEN_MAX;
use tapline_ring::{MergeOrder, MergedReader, Reader, ReaderLimits, ReaderParts};
use tapline_sys::{Wakeup, peer};

use crate::protocol::{
    AttachRequest, AttachedReader, ControlAction, FindRequest, OfferedCapture, Policy, Reply, Request,
    Status, VERSION,
};
use crate::{Channel, Error};

/// The path of a daemon's socket by default.
pub const SOCKET_DEFAULT: &str = "/run/tapline/serve.sock";
/// The environment variable that names another socket.
pub const SOCKET_VARIABLE: &str = "TAPLINE_SOCKET";

/// Latest time after which a packet is in its buffer, in addition to the requested delay: the kernel hands a block
/// over 10 to 20 ms after its first packet, and the daemon puts interfaces in order and has other things to do.
/// Packets wait so long for an empty buffer, when several are merged by time.
const MERGE_WAIT: Duration = Duration::from_millis(50);
/// The time that a daemon has to answer, and the time that it has to make a buffer.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(10);
const BUFFER_WAIT: Duration = Duration::from_secs(120);
/// The most buffers that a daemon may give to one reader.
const BUFFERS_MAX: u32 = 256;
/// The most bytes of the filter's text in all interfaces of a capture, each of which keeps a copy.
pub(crate) const FILTERS_LEN_MAX: usize = 16 << 20;

/// The socket that is meant: the one that is named, that of the environment, or the usual one.
pub fn socket_path(named: Option<&Path>) -> PathBuf {
    match (named, std::env::var_os(SOCKET_VARIABLE)) {
        (Some(path), _) => path.to_owned(),
        (None, Some(path)) if !path.is_empty() => path.into(),
        _ => SOCKET_DEFAULT.into(),
    }
}

/// The socket of a published place of a graph by default, where readers of `tap:NAME` look for it.
pub fn place_socket(name: &str) -> PathBuf {
    Path::new(SOCKET_DEFAULT).with_file_name(format!("tap-{name}.sock"))
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    captures: Vec<OfferedCapture>,
}

impl Client {
    /// Connects under the name `program`, which the daemon's status shows.
    ///
    /// # Errors
    /// [`Error::NoDaemon`], [`Error::NotAllowed`], [`Error::Silent`], [`Error::Refused`].
    pub fn connect(path: &Path, program: &str) -> Result<Client, Error> {
        Client::connect_within(path, program, ANSWER_WAIT, None)
    }

    /// Connects to the process that serves the capture `name`: the daemon at the socket that is named or that of the environment;
    /// without one a published place of that name ([`place_socket`]), and else the usual daemon. Gives the socket too.
    ///
    /// # Errors
    /// As with [`connect`](Self::connect).
    pub fn connect_for(named: Option<&Path>, name: &str, program: &str) -> Result<(Client, PathBuf), Error> {
        let path = socket_path(named);
        let place = place_socket(name);
        let is_usual = named.is_none() && path == Path::new(SOCKET_DEFAULT);
        // A socket that a graph left behind has no listener.
        if is_usual
            && place.exists()
            && let Ok(client) = Client::connect(&place, program)
        {
            return Ok((client, place));
        }
        Ok((Client::connect(&path, program)?, path))
    }

    /// Connects, and waits at most `timeout` for the connection, and for the whole answer. `interrupt` ends the wait
    /// for the answer.
    pub(crate) fn connect_within(
        path: &Path,
        program: &str,
        timeout: Duration,
        interrupt: Option<&Wakeup>,
    ) -> Result<Client, Error> {
        let stream = peer::connect(path, timeout).map_err(|error| Error::unreachable(path, error.source))?;
        Client::over(stream, program, timeout, interrupt)
    }

    /// Makes a client of an open connection, under the name `program`. The answer may take as long as a buffer.
    ///
    /// # Errors
    /// As with [`connect`](Self::connect).
    pub fn connected(stream: UnixStream, program: &str) -> Result<Client, Error> {
        Client::over(stream, program, BUFFER_WAIT, None)
    }

    fn over(
        stream: UnixStream,
        program: &str,
        timeout: Duration,
        interrupt: Option<&Wakeup>,
    ) -> Result<Client, Error> {
        let mut client = Client { channel: Channel::new(stream, true), captures: Vec::new() };
        let hello = Request::Hello { version: VERSION, program: program.to_owned() };
        match ask(&mut client.channel, &hello, Instant::now() + timeout, interrupt)? {
            Reply::Hello { version: VERSION, captures } => client.captures = captures,
            Reply::Hello { version, .. } => {
                return Err(Error::protocol(format!("version {version}; this is {VERSION}")));
            }
            other => return Err(unexpected(&other)),
        }
        Ok(client)
    }

    /// The captures that we may read, if the daemon says so in time: each step of asking waits for `timeout` at most.
    ///
    /// # Errors
    /// As with [`connect`](Self::connect), within that time.
    pub fn list(path: &Path, program: &str, timeout: Duration) -> Result<Vec<OfferedCapture>, Error> {
        Ok(Client::connect_within(path, program, timeout, None)?.captures)
    }

    /// The state of a daemon, if it says so in time: each step of asking waits for `timeout` at most.
    ///
    /// # Errors
    /// As with [`connect`](Self::connect), within that time.
    pub fn status_within(path: &Path, program: &str, timeout: Duration) -> Result<Status, Error> {
        Client::connect_within(path, program, timeout, None)?.ask_status(timeout)
    }

    /// Captures that we may read.
    pub fn captures(&self) -> &[OfferedCapture] {
        &self.captures
    }

    /// The state of the daemon.
    ///
    /// # Errors
    /// The daemon's text.
    pub fn status(&mut self) -> Result<Status, Error> {
        self.ask_status(ANSWER_WAIT)
    }

    fn ask_status(&mut self, timeout: Duration) -> Result<Status, Error> {
        match ask(&mut self.channel, &Request::Status {}, Instant::now() + timeout, None)? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Pauses a capture, or has it go on.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is in that state already or has ended, or the rules forbid it.
    pub fn control(&mut self, capture: &str, action: ControlAction) -> Result<(), Error> {
        let request = Request::Control { capture: capture.to_owned(), action };
        match ask(&mut self.channel, &request, Instant::now() + ANSWER_WAIT, None)? {
            Reply::Controlled {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Searches the recording of a capture. Gives the capture as we may see it, and a pipe with the packets as a pcapng
    /// file, which ends within a block if it is not whole.
    ///
    /// # Errors
    /// [`Error::Refused`] with the daemon's reason.
    pub fn find(mut self, find: &FindRequest) -> Result<(OfferedCapture, OwnedFd), Error> {
        match ask(&mut self.channel, &Request::Find(find.clone()), Instant::now() + ANSWER_WAIT, None)? {
            Reply::Found(offer) => Ok((offer, self.channel.take_descriptor()?)),
            other => Err(unexpected(&other)),
        }
    }

    /// Requests a reader of a capture, and maps its buffers. `interrupt` ends the wait for the daemon.
    pub(crate) fn request_reader(
        mut self,
        attach: &AttachRequest,
        interrupt: Option<&Wakeup>,
    ) -> Result<(Channel, AttachedReader, MergedReader), Error> {
        // A large buffer takes its time to be made.
        let until = Instant::now() + BUFFER_WAIT;
        let request = Request::Attach(attach.clone());
        let attached = match ask(&mut self.channel, &request, until, interrupt)? {
            Reply::Attached(attached) if attached.buffers <= BUFFERS_MAX => attached,
            other => return Err(unexpected(&other)),
        };
        ensure_small(attach, &attached)?;
        // A daemon that knows no groups would give every packet to each reader.
        if attach.group.as_ref().is_some_and(|group| group.name != attached.group) {
            return Err(Error::NoGroups);
        }
        // No more than was asked for, and nothing in place unless a lease was: its reader trusts the daemon with
        // packets that are looked at.
        let terms = ReaderLimits {
            entries_max: attach.entries,
            snap_len_max: SNAP_LEN_MAX,
            in_place: matches!(attach.policy, Policy::Leased { .. }),
        };
        let mut readers = Vec::new();
        for number in 0..attached.buffers {
            match self.channel.receive_until(until, interrupt)? {
                Reply::Buffer(got) if got == number => {}
                Reply::Error(text) => return Err(Error::Refused { text }),
                other => return Err(unexpected(&other)),
            }
            let [buffer, index, bell] = [
                self.channel.take_descriptor()?,
                self.channel.take_descriptor()?,
                self.channel.take_descriptor()?,
            ];
            readers.push(Reader::open_within(ReaderParts { buffer, index, bell }, &terms)?);
        }
        let merged = MergedReader::new(readers, MergeOrder::ByTime(MERGE_WAIT + attach.delay()));
        self.channel.refuse_descriptors()?;
        Ok((self.channel, attached, merged))
    }
}

/// Each interface keeps a copy of the filter: the product of two texts that fit into a message may fill the memory.
fn ensure_small(attach: &AttachRequest, attached: &AttachedReader) -> Result<(), Error> {
    let filter_len = attach.filter.len() + attached.offer.forced_filter.len();
    match attached.offer.interfaces.len().saturating_mul(filter_len) {
        0..=FILTERS_LEN_MAX => Ok(()),
        _ => Err(Error::protocol(format!(
            "{} interfaces with a filter of {filter_len} bytes each",
            attached.offer.interfaces.len()
        ))),
    }
}

/// Sends a request, and waits for the answer until then. `interrupt` ends the wait.
pub(crate) fn ask(
    channel: &mut Channel,
    request: &Request,
    until: Instant,
    interrupt: Option<&Wakeup>,
) -> Result<Reply, Error> {
    channel.send(request, &[]).map_err(Error::of_waiting)?;
    loop {
        match channel.receive_until(until, interrupt)? {
            Reply::Error(text) => return Err(Error::Refused { text }),
            // A late answer, for which nobody waits any more.
            Reply::Interfaces { .. } if !matches!(request, Request::Interfaces { .. }) => {}
            reply => return Ok(reply),
        }
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::protocol(format!("{reply:?}").chars().take(200).collect::<String>())
}
