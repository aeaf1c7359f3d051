//! A store whose files this user may not read: `tapline serve`, which records it, searches it by its rules.
//!
//! ```text
//! directory, filter's text, times --find--> tapline serve --pcapng by a pipe--> thread --batches--> advance
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_file::FileSource;
use tapline_packet::{Batch, Interface, LinkType, Record, Timestamp};
use tapline_source::{Advance, Error, InterfaceAccount, Source};
use tapline_store::Window;
use tapline_sys::Poller;
use tapline_tap::protocol::FindRequest;
use tapline_tap::{Client, socket_path};

use crate::failure::Failure;
use crate::raw::ERROR_PERM_DENIED;
use crate::shared::{program, trusted_socket};

/// Batches that wait for the program at most.
const BATCHES_MAX: usize = 4;
/// The pause after which the thread looks whether its packets are still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// A search by the daemon.
pub(crate) struct DaemonSearch {
    batches: Receiver<Result<Found, Error>>,
    is_wanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    interfaces: Vec<Interface>,
    current: Found,
    lent: u64,
}

/// Packets of a batch, and interfaces that were not known before it.
#[derive(Default)]
struct Found {
    interfaces: Vec<Interface>,
    bytes: Vec<u8>,
    records: Vec<Record>,
}

/// No time at all.
const NEVER: Window =
    Window { from: Window::ALL.from, to: Timestamp::from_nanos(Window::ALL.from.as_nanos() + 1) };

impl DaemonSearch {
    /// Asks the daemon whether it would search a store for this user; gives the first interface's link type.
    pub(crate) fn ask(directory: &Path) -> Result<LinkType, Failure> {
        let (search, link_type) = DaemonSearch::begin(directory, "", NEVER)?;
        // An answer that is read to its end is no complaint in the daemon's log.
        while search.batches.recv().is_ok() {}
        Ok(link_type)
    }

    /// Asks the daemon for the packets of a store; gives the search and the first interface's link type.
    pub(crate) fn begin(
        directory: &Path,
        filter: &str,
        window: Window,
    ) -> Result<(DaemonSearch, LinkType), Failure> {
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
        Ok((DaemonSearch::of_pipe(pipe, name)?, link_type))
    }

    /// The thread's signals are those of the calling one.
    fn of_pipe(pipe: OwnedFd, name: String) -> Result<DaemonSearch, Failure> {
        let (send, batches) = sync_channel(BATCHES_MAX);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let pipe = Pipe { file: File::from(pipe), poller: Poller::new(), is_wanted: Arc::clone(&is_wanted) };
        let spawned =
            thread::Builder::new().name("search".to_owned()).spawn(move || read(pipe, &name, &send));
        let thread = spawned.map_err(|error| Failure::system("can't start a thread", &error))?;
        let (interfaces, current) = (Vec::new(), Found::default());
        Ok(DaemonSearch { batches, is_wanted, thread: Some(thread), interfaces, current, lent: 0 })
    }

    fn take(&mut self, mut found: Found) {
        self.interfaces.append(&mut found.interfaces);
        self.lent += found.records.len() as u64;
        self.current = found;
    }
}

impl Drop for DaemonSearch {
    fn drop(&mut self) {
        // Relaxed: the thread learns nothing else by it.
        self.is_wanted.store(false, Ordering::Relaxed);
        // A thread that waits for room in the channel goes on.
        while self.batches.recv().is_ok() {}
        self.thread.take().map(JoinHandle::join);
    }
}

impl Source for DaemonSearch {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.current.records.clear();
        match self.batches.recv_timeout(wait) {
            Ok(Ok(found)) => {
                self.take(found);
                Ok(Advance::Batch)
            }
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => Ok(Advance::Idle),
            Err(RecvTimeoutError::Disconnected) => Ok(Advance::End),
        }
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.current.bytes, &self.current.records)
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_wanted.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_file("tapline serve", self.lent)]
    }
}

/// The thread's work: packets of the pipe, batch by batch.
fn read(pipe: Pipe, name: &str, send: &SyncSender<Result<Found, Error>>) {
    let mut source = match FileSource::from_reader(Box::new(pipe), name) {
        Ok(source) => source,
        Err(error) => return drop(send.send(Err(error.into()))),
    };
    let mut known = 0;
    loop {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return drop(send.send(Err(error.into()))),
        }
        let interfaces = source.interfaces().get(known..).unwrap_or_default().to_vec();
        known += interfaces.len();
        if send.send(Ok(copy(source.batch(), interfaces))).is_err() {
            return;
        }
    }
}

fn copy(batch: Batch<'_>, interfaces: Vec<Interface>) -> Found {
    let mut found = Found { interfaces, ..Found::default() };
    for packet in batch.iter() {
        let (offset, cap_len) = (found.bytes.len(), packet.data.len() as u32);
        found.bytes.extend_from_slice(packet.data);
        found.records.push(Record { offset, cap_len, options_len: 0, meta: *packet.meta });
    }
    found
}

/// The daemon's answer, which ends early once it is no longer wanted.
struct Pipe {
    file: File,
    poller: Poller,
    is_wanted: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_wanted.load(Ordering::Relaxed) {
            self.poller.clear();
            self.poller.add(self.file.as_fd());
            if self.poller.wait(LOOK).map_err(|error| error.source)? > 0 {
                return self.file.read(buffer);
            }
        }
        Ok(0)
    }
}
