//! A store whose files this user may not read: `tapline serve`, which records it, searches it by its rules.
//!
//! ```text
//! directory, filter's text, times --find--> tapline serve --pcapng by a pipe--> batches
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use tapline_file::{FileInput, FileSource};
use tapline_packet::{LinkType, Timestamp};
use tapline_source::{Advance, Source as _};
use tapline_store::Window;
use tapline_sys::Poller;
use tapline_tap_client::protocol::FindRequest;
use tapline_tap_client::{Client, socket_path};

use crate::failure::Failure;
use crate::raw::ERROR_PERM_DENIED;
use crate::shared::{program, trusted_socket};
use crate::stored::SEARCH_WAIT;

/// Time that the daemon has to begin an answer.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// No time at all.
const NEVER: Window =
    Window { from: Window::ALL.from, to: Timestamp::from_nanos(Window::ALL.from.as_nanos() + 1) };

/// Asks the daemon whether it would search a store for this user; gives the first interface's link type.
pub(crate) fn ask(directory: &Path) -> Result<LinkType, Failure> {
    let (mut answer, link_type) = search(directory, "", NEVER)?;
    // An answer that is read to its end is not a complaint in the daemon's log.
    while matches!(answer.advance(SEARCH_WAIT), Ok(Advance::Batch | Advance::Idle)) {}
    Ok(link_type)
}

/// Asks the daemon for the packets of a store; gives its answer and the first interface's link type. The answer waits
/// for [`SEARCH_WAIT`] for packets.
pub(crate) fn search(
    directory: &Path,
    filter: &str,
    window: Window,
) -> Result<(FileInput, LinkType), Failure> {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let bound = |at: Timestamp, none| Some(at.as_nanos()).filter(|_| at != none);
    let find = FindRequest {
        store: absolute.display().to_string(),
        filter: filter.to_owned(),
        from_ns: bound(window.from, Window::ALL.from),
        to_ns: bound(window.to, Window::ALL.to),
        ..FindRequest::default()
    };
    let client = Client::connect(&socket_path(trusted_socket()), &program());
    let found = client.and_then(|client| client.find(&find));
    let (offer, pipe) = found.map_err(|error| {
        let store = directory.display();
        Failure::new(
            ERROR_PERM_DENIED,
            format!("{store}: no right to its files, and tapline serve was asked in vain: {error}"),
        )
    })?;
    let link_type = offer.interfaces.first().map_or(LinkType::ETHERNET, |one| LinkType(one.link_type));
    let name = format!("store:{}", directory.display());
    let mut pipe = Pipe { file: File::from(pipe), poller: Poller::new() };
    pipe.wait(FIRST_WAIT).map_err(|error| Failure::system("can't wait for tapline serve", &error))?;
    let answer = FileSource::from_polled_reader(Box::new(pipe), &name);
    Ok((FileInput::of_answer(answer.map_err(|error| Failure::error(error.to_string()))?), link_type))
}

/// The daemon's answer as far as it has come.
struct Pipe {
    file: File,
    poller: Poller,
}

impl Pipe {
    /// Whether bytes came, or the end, within this time.
    fn wait(&mut self, time: Duration) -> io::Result<bool> {
        self.poller.clear();
        self.poller.add(self.file.as_fd());
        Ok(self.poller.wait(time).map_err(|error| error.source)? > 0)
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.wait(SEARCH_WAIT)? {
            true => self.file.read(buffer),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
