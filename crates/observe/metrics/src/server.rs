//! The HTTP server: a listener on this host, and a thread for each of a few connections.
//!
//! ```text
//! accept --> thread: request, collect (or samples of less than FRESH ago), answer, end
//!        \-- beyond CONNECTIONS_MAX the oldest is ended that has not sent its request; where all have, accept waits
//! ```
//!
//! A client that is slow holds one thread for [`TIME_MAX`](crate::request::TIME_MAX), and no capture knows of it. A scrape
//! sends its request at once, so connections that wait for theirs do not keep it out, however many they are.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{self, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tapline_sys::{Folder, Poller, SyscallError};

use crate::collector::Collector;
use crate::error::Error;
use crate::exposition::{Exposition, Format};
use crate::request::{Connection, TIME_MAX, answer};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 128;
/// Pause of `accept` while all connections are being answered.
const FULL_PAUSE: Duration = Duration::from_millis(2);
/// Samples younger than this are reused: clients that ask without pause cost one collection per interval.
const FRESH: Duration = Duration::from_millis(100);
/// Interval at which the end is looked for.
const GLANCE: Duration = Duration::from_millis(200);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of this host alone.
    Loopback(net::SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads an address: 127.0.0.1:9477, [::1]:9477, or a path, which has a slash.
    ///
    /// # Errors
    /// [`Error::Address`], and [`Error::Public`] for an address of a network.
    pub fn parse(text: &str) -> Result<Address, Error> {
        if let Ok(address) = text.parse::<net::SocketAddr>() {
            return match address.ip().is_loopback() {
                true => Ok(Address::Loopback(address)),
                false => Err(Error::Public { address }),
            };
        }
        let path = text.strip_prefix("unix:").unwrap_or(text);
        match path.contains('/') {
            true => Ok(Address::Unix(path.into())),
            false => Err(Error::Address { text: text.to_owned() }),
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A server that listens.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
}

struct Shared {
    collector: Collector,
    latest: Mutex<Option<(Instant, Exposition)>>,
    connections: AtomicUsize,
    /// Connections that have not sent their requests, by their numbers: the oldest first. Each is a function that ends it.
    waiting: Mutex<BTreeMap<u64, End>>,
    /// The number of the next connection.
    next: AtomicU64,
}

/// Ends a connection, whose thread then finds the end of its request.
type End = Box<dyn FnOnce() + Send>;

/// A connection that another thread can end.
trait Endable {
    fn end(&self) -> io::Result<End>;
}

impl Server {
    /// Listens. A socket that nothing listens at any more is replaced.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Taken`].
    pub fn bind(address: &Address, collector: Collector) -> Result<Server, Error> {
        let listener = match address {
            Address::Loopback(address) => TcpListener::bind(address)
                .map(Listener::Tcp)
                .map_err(|source| Error::Listen { address: address.to_string(), source })?,
            Address::Unix(path) => bind_unix(path)?,
        };
        let not_waiting = match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(listener, _) => listener.set_nonblocking(true),
        };
        not_waiting.map_err(Error::Wait)?;
        let shared = Shared {
            collector,
            latest: Mutex::default(),
            connections: AtomicUsize::new(0),
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
        };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// The address, with the port that was given out for port 0.
    pub fn address(&self) -> String {
        match &self.listener {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
            }
            Listener::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Answers until `is_over`.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub fn run(&self, is_over: &AtomicBool) -> Result<(), Error> {
        let mut poller = Poller::new();
        while !is_over.load(Ordering::Relaxed) {
            poller.clear();
            poller.add(self.listener.as_fd());
            let ready = poller.wait(GLANCE).map_err(|error| Error::Wait(error.source))?;
            if ready > 0 && !self.shared.make_room() {
                thread::sleep(FULL_PAUSE);
                continue;
            }
            if ready > 0 && !self.accept() {
                // Out of descriptors, or the like: not a loop that takes a processor.
                thread::sleep(GLANCE);
            }
        }
        Ok(())
    }

    /// Takes a connection; `false` if none can be taken.
    fn accept(&self) -> bool {
        match &self.listener {
            Listener::Tcp(listener) => self.begin(listener.accept().map(|(stream, _)| stream)),
            Listener::Unix(listener, _) => self.begin(listener.accept().map(|(stream, _)| stream)),
        }
    }

    fn begin<C: Connection + Endable + Send + 'static>(&self, accepted: io::Result<C>) -> bool {
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => return is_of_one_client(&error),
        };
        let Ok(end) = connection.end() else { return false };
        let place = ConnectionSlot::take(&self.shared, end);
        let answering = move || {
            // A client that left, was too slow, or gave way, has itself to tell.
            let _ = answer(connection, |format| {
                place.shared.waiting().remove(&place.number);
                place.shared.text(format)
            });
        };
        thread::Builder::new().name("scrape".to_owned()).spawn(answering).is_ok()
    }
}

/// Whether the failure is of one client, which has left.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, End>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for a connection, after one gave way if need be.
    fn make_room(&self) -> bool {
        if self.connections.load(Ordering::Relaxed) < CONNECTIONS_MAX {
            return true;
        }
        let oldest = self.waiting().pop_first();
        let has_one = oldest.is_some();
        oldest.into_iter().for_each(|(_, end)| end());
        // Threads of those that gave way may not have ended yet.
        has_one && self.connections.load(Ordering::Relaxed) < 2 * CONNECTIONS_MAX
    }

    /// The text of samples that are fresh. A request in between waits for the same ones.
    fn text(&self, format: Format) -> String {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = latest.take().filter(|(when, _)| when.elapsed() < FRESH);
        let (when, exposition) = known.unwrap_or_else(|| {
            let exposition = self.collector.collect();
            (Instant::now(), exposition)
        });
        let (_, exposition) = latest.insert((when, exposition));
        exposition.text(format)
    }
}

/// One of the places for connections.
struct ConnectionSlot {
    shared: Arc<Shared>,
    number: u64,
}

impl ConnectionSlot {
    fn take(shared: &Arc<Shared>, end: End) -> ConnectionSlot {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        shared.waiting().insert(number, end);
        ConnectionSlot { shared: Arc::clone(shared), number }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.number);
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path) -> Result<Listener, Error> {
    let failed = |source| Error::Listen { address: path.display().to_string(), source };
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(failed)?;
            }
            _ => return Err(Error::Taken { path: path.to_owned() }),
        }
    }
    // Clients come by this name, whose length has a limit.
    SocketAddr::from_pathname(path).map_err(failed)?;
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
    let system = |error: SyscallError| failed(error.source);
    // Made in a folder of ours alone: in /run/tapline another user may put a link in its place, for root to follow.
    let folder = Folder::open(path.parent().unwrap_or(Path::new(""))).map_err(system)?;
    let private = folder.make_private().map_err(system)?;
    let listener = UnixListener::bind(private.path_of(name)).map_err(failed)?;
    // The group may connect: a proxy, or a Prometheus that reads Unix sockets.
    let published = private.own(name, 0o660, None, None).and_then(|()| match private.publish(name, false) {
        // File systems that cannot refuse to replace.
        Err(error)
            if error.source.kind() == io::ErrorKind::InvalidInput && fs::symlink_metadata(path).is_err() =>
        {
            private.publish(name, true)
        }
        other => other,
    });
    if let Err(error) = published {
        let _ = private.remove(name);
        return Err(match error.source.kind() {
            io::ErrorKind::AlreadyExists => Error::Taken { path: path.to_owned() },
            _ => system(error),
        });
    }
    Ok(Listener::Unix(listener, path.to_owned()))
}

macro_rules! connection {
    ($stream:ty, $is_open_to_browsers:literal) => {
        impl Endable for $stream {
            fn end(&self) -> io::Result<End> {
                let other = self.try_clone()?;
                Ok(Box::new(move || drop(other.shutdown(net::Shutdown::Both))))
            }
        }

        impl Connection for $stream {
            const IS_OPEN_TO_BROWSERS: bool = $is_open_to_browsers;

            fn limit(&self, time: Duration) -> io::Result<()> {
                let time = time.clamp(Duration::from_millis(1), TIME_MAX);
                self.set_nonblocking(false)?;
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }
        }
    };
}

connection!(TcpStream, true);
connection!(UnixStream, false);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn with_server(test: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.sock");
        let collector = Collector::new(&folder.path().join("none"), "0.0");
        let server = Server::bind(&Address::Unix(path.clone()), collector).expect("a socket");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&is_over).expect("it runs"));
            test(&path);
            is_over.store(true, Ordering::Relaxed);
        });
        drop(server);
        assert!(!path.exists());
    }

    fn scrape(path: &Path) -> String {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(REQUEST).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    #[test]
    fn a_slow_client_keeps_no_other_waiting() {
        with_server(|path| {
            let slow: Vec<_> = (0..CONNECTIONS_MAX - 1).map(|_| UnixStream::connect(path).unwrap()).collect();
            slow.iter().for_each(|mut stream| stream.write_all(b"GET /metr").unwrap());
            let text = scrape(path);
            assert!(text.contains("\ntapline_build_info{version=\"0.0\"} 1\n"), "{text}");
            drop(slow);
        });
    }

    /// One process holds more connections than allowed, and reopens each that is closed.
    #[test]
    fn idle_connections_keep_no_scrape_out() {
        with_server(|path| {
            let mut held: Vec<_> =
                (0..2 * CONNECTIONS_MAX).map(|_| UnixStream::connect(path).unwrap()).collect();
            held.iter().for_each(|mut stream| drop(stream.write_all(b"GET /metr")));
            for _ in 0..20 {
                assert!(scrape(path).starts_with("HTTP/1.1 200 OK"));
                held.extend((0..10).map(|_| UnixStream::connect(path).unwrap()));
            }
            let mut first = &held[0];
            first.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "the oldest gave way");
        });
    }

    #[test]
    fn a_socket_in_use_is_not_taken_over() {
        with_server(|path| {
            let collector = Collector::new(Path::new("/none"), "0.0");
            let again = Server::bind(&Address::Unix(path.to_owned()), collector.clone());
            assert!(matches!(again, Err(Error::Taken { .. })));
            let left = path.with_file_name("left.sock");
            drop(UnixListener::bind(&left).unwrap());
            Server::bind(&Address::Unix(left), collector).expect("nothing listens there any more");
        });
    }

    /// A user who may write to the folder puts links in the socket's place as fast as that goes.
    #[test]
    fn a_link_in_the_sockets_place_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, victim] = ["metrics.sock", "victim"].map(|name| folder.path().join(name));
        fs::write(&victim, "secret").expect("a file");
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).expect("ours");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if fs::symlink_metadata(&path).is_ok_and(|about| about.file_type().is_socket()) {
                        let _ = fs::remove_file(&path);
                        let _ = symlink(&victim, &path);
                    }
                }
            });
            for _ in 0..1000 {
                drop(bind_unix(&path));
                let _ = fs::remove_file(&path);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::metadata(&victim).expect("it is there").permissions().mode() & 0o777, 0o600);
        let left =
            fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").file_name());
        assert!(left.into_iter().all(|name| name == "victim" || name == "metrics.sock"));
    }

    #[test]
    fn only_this_host_is_served() {
        assert!(matches!(Address::parse("0.0.0.0:9477"), Err(Error::Public { .. })));
        assert!(matches!(Address::parse("[2001:db8::1]:9477"), Err(Error::Public { .. })));
        assert!(matches!(Address::parse("localhost"), Err(Error::Address { .. })));
        assert!(matches!(Address::parse("[::1]:9477"), Ok(Address::Loopback(_))));
        assert_eq!(Address::parse("unix:/run/a").unwrap(), Address::Unix("/run/a".into()));
    }
}
