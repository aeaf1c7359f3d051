//! The server: one thread that waits for connections, one that reads the meter once a second, one that reads the events
//! of rules, one that writes the history.
//!
//! ```text
//! thread `feed`     Feed::read --Snapshot--> watch channel --> every event stream: one answer for each question and second
//!                              --seconds---> Keeper: a bounded queue
//! thread `history`  Keeper --> History::add --> SQLite <-- a connection that reads alone, for /api/history
//! thread `events`   EventFile, if there is one --> the latest, and the same Keeper
//! this thread       accept --> connection --> answers.rs: a request; packets.rs: packets
//! ```
//!
//! A browser that does not read holds up no other: its data waits in a queue of two parts and a short one of the
//! kernel, and a stream whose queues stay full for two seconds is ended. Everything has a maximum: connections,
//! streams, bytes of a request.

mod answers;
mod packets;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tapline_geo::Places;
use tapline_pages::{EventFile, EventLine, Feed, PageRequest, Snapshot, Watched};
use tapline_view::{Process, Second};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use answers::{answer, json_bytes};

use crate::access::Access;
use crate::certificate::Certificate;
use crate::complaint::Complaint;
use crate::error::Error;
use crate::history::History;
use crate::keeper::Keeper;
use crate::packets::PacketSource;
use crate::visitors::{Connection, Visitors};

/// Connections at a time; a browser has six at most.
const CONNECTIONS_MAX: usize = 256;
/// Event streams at a time.
const STREAMS_MAX: usize = 32;
/// Maximum time that a stream may leave sent bytes unread, and that a client may take for the head of its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum pause of a download; then it gives up its place.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes that the kernel takes for a connection beyond those that are on their way: else it takes megabytes for a
/// browser that does not read.
const UNSENT_MAX: u32 = 32 << 10;
/// Maximum duration of the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_LEN_MAX: usize = 16 << 10;
/// Poll interval of the meter: it publishes once a second, at a moment that we do not know.
const POLL: Duration = Duration::from_millis(100);
/// Poll interval of the file of events.
const EVENTS_POLL: Duration = Duration::from_millis(250);

/// Settings of a server.
#[derive(Clone)]
pub struct ServerSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// A proxy in front speaks TLS, so that an address which others reach is allowed.
    pub is_behind_proxy: bool,
    /// Certificate of the server, if it uses TLS.
    pub certificate: Option<Certificate>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    certificate: Option<Certificate>,
    shared: Shared,
    feed: Feed,
    history: Option<History>,
    events: Option<EventFile>,
}

struct Shared {
    access: Access,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// Answers of the present second, by question.
    answers: Mutex<(u64, HashMap<String, Bytes>)>,
    /// Connections that are open, and not yet ended.
    connections: AtomicUsize,
    visitors: Visitors,
    streams: Visitors,
    fetches: AtomicUsize,
    packets: Option<Arc<dyn PacketSource>>,
    /// Files of places, for the pages of hosts.
    places: Option<Places>,
    /// Seconds on their way into the history.
    keeper: Option<Keeper>,
    /// The history, to be asked.
    past: Option<Arc<Mutex<History>>>,
    /// The latest events of rules, where a file of them is read.
    watched: Option<Mutex<Watched>>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// One of a bounded number of things at a time.
struct BoundedSlot {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl BoundedSlot {
    fn take(shared: &Arc<Shared>, of: fn(&Shared) -> &AtomicUsize, most: usize) -> Option<BoundedSlot> {
        let is_room = of(shared).fetch_add(1, Relaxed) < most;
        let place = BoundedSlot { shared: Arc::clone(shared), of };
        is_room.then_some(place)
    }
}

impl Drop for BoundedSlot {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Relaxed);
    }
}

impl Server {
    /// Listens. `log` gets a line for each event that an administrator should know of.
    ///
    /// # Errors
    /// [`Error::Open`] for an address that others reach, unless a proxy is in front; [`Error::Listen`].
    pub fn bind(
        settings: &ServerSettings,
        access: Access,
        feed: Feed,
        packets: Option<Arc<dyn PacketSource>>,
        log: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Server, Error> {
        let address = settings.listen;
        let is_private = settings.is_behind_proxy || settings.certificate.is_some();
        if !address.ip().is_loopback() && !is_private {
            return Err(Error::Open { address });
        }
        let listen = || -> std::io::Result<TcpListener> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            // Connections have the options of their listener (tcp(7)). Old kernels do without.
            let socket = SockRef::from(&listener);
            let _ = socket.set_tcp_notsent_lowat(UNSENT_MAX);
            let _ = socket.set_tcp_nodelay(true);
            let _ = socket.set_tcp_user_timeout(Some(STALL_MAX));
            Ok(listener)
        };
        let listener = listen().map_err(|source| Error::Listen { address, source })?;
        let (snapshot, _) = watch::channel(Arc::new(Snapshot::default()));
        let shared = Shared {
            access,
            snapshot,
            answers: Mutex::default(),
            connections: AtomicUsize::new(0),
            visitors: Visitors::new(CONNECTIONS_MAX),
            streams: Visitors::new(STREAMS_MAX),
            fetches: AtomicUsize::new(0),
            packets,
            places: None,
            keeper: None,
            past: None,
            watched: None,
            log,
        };
        let certificate = settings.certificate.clone();
        Ok(Server { listener, certificate, shared, feed, history: None, events: None })
    }

    /// Keeps a history. It is opened once the server listens: a start that fails changes none.
    ///
    /// # Errors
    /// [`Error::History`].
    pub fn keep(&mut self, history: History) -> Result<(), Error> {
        // Questions have a connection of their own: they wait for no write, and the feed for none of them.
        let past = History::open_to_read(history.path())?;
        self.feed.prefer(history.meter());
        self.shared.past = Some(Arc::new(Mutex::new(past)));
        self.shared.keeper = Some(Keeper::default());
        self.history = Some(history);
        Ok(())
    }

    /// Shows the events of rules, and keeps them in the history.
    pub fn watch(&mut self, events: EventFile) {
        self.shared.watched = Some(Mutex::default());
        self.events = Some(events);
    }

    /// Shows the places of hosts.
    pub fn enrich(&mut self, places: Places) {
        self.shared.places = Some(places);
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// If the system does not report it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// [`Error::Runtime`].
    pub fn run(self, stop: &Arc<AtomicBool>) -> Result<(), Error> {
        let Server { listener, certificate, shared, feed, history, events } = self;
        let shared = Arc::new(shared);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
        let runtime = runtime.map_err(Error::Runtime)?;
        let begin = |name: &str, work: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Error::Runtime)
        };
        let writer = history.map(|history| {
            let shared = Arc::clone(&shared);
            begin("history", Box::new(move || shared.keep(history)))
        });
        let writer = writer.transpose()?;
        let reader = {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(stop));
            begin("feed", Box::new(move || follow(feed, &shared, &stop)))?
        };
        let teller = events.map(|events| {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(stop));
            begin("events", Box::new(move || listen_to(events, &shared, &stop)))
        });
        let teller = teller.transpose()?;
        let served = runtime.block_on(serve(listener, certificate, &shared, stop));
        stop.store(true, Relaxed);
        drop(reader.join());
        drop(teller.map(thread::JoinHandle::join));
        shared.keeper.iter().for_each(Keeper::close);
        drop(writer.map(thread::JoinHandle::join));
        runtime.shutdown_background();
        served.map_err(Error::Runtime)
    }
}

/// Reads the meter again and again. Nothing here waits: a feed that is late misses seconds.
fn follow(mut feed: Feed, shared: &Shared, stop: &AtomicBool) {
    let (mut was_alive, mut told) = ((false, 0), None);
    let mut meter = MeterNews::default();
    while !stop.load(Relaxed) {
        let fresh = feed.read();
        let snapshot = feed.snapshot();
        let process = snapshot.process.clone();
        let state = (snapshot.is_alive, snapshot.others.len());
        if !fresh.is_empty() || state != was_alive {
            was_alive = state;
            shared.snapshot.send_replace(Arc::new(snapshot));
        }
        meter.tell(&shared.snapshot.borrow(), &*shared.log);
        if let (Some(keeper), Some(process)) = (&shared.keeper, process) {
            let had_packets = fresh.iter().any(|reading| reading.second.offered() > 0);
            if process.is_live {
                if let Some(first) = fresh.first().filter(|_| meter.kept.as_ref() != Some(&process.name())) {
                    let Second { end_ns, len_ns, .. } = first.second;
                    keeper.set_meter(process.name(), end_ns.saturating_sub(len_ns));
                    meter.kept = Some(process.name());
                }
                fresh.into_iter().for_each(|reading| keeper.push(reading));
            } else if had_packets && told != Some((process.pid, process.created_ns)) {
                // Its seconds are of another time, and would be added to what was live then, at each run again.
                let Process { title, pid, created_ns, .. } = process;
                (shared.log)(&format!("{title:?} ({pid}) reads no live interface: its seconds are not kept"));
                told = Some((pid, created_ns));
            }
        }
        thread::sleep(POLL);
    }
}

/// Reports about the meter to the administrator.
#[derive(Default)]
struct MeterNews {
    /// The meter that has ended and is waited for, and how many others ran.
    ended: Option<(String, usize)>,
    /// The meter whose seconds go into the history.
    kept: Option<String>,
}

impl MeterNews {
    /// Reports that the meter has ended while others run, and that it is back.
    fn tell(&mut self, snapshot: &Snapshot, log: &dyn Fn(&str)) {
        let Some(name) = snapshot.process.as_ref().map(Process::name) else { return };
        let others = &snapshot.others;
        if !snapshot.is_alive && !others.is_empty() {
            let ended = Some((name.clone(), others.len()));
            if self.ended != ended {
                let (count, first) = (others.len(), &others[0]);
                log(&format!(
                    "the meter {name:?} has ended, and page and history wait until it is back; {count} others run, such as \
                     {first:?}: --meter follows another"
                ));
            }
            self.ended = ended;
        } else if snapshot.is_alive && self.ended.take().is_some() {
            log(&format!("the meter {name:?} is back"));
        }
    }
}

/// Reads the file of events again and again.
fn listen_to(mut events: EventFile, shared: &Shared, stop: &AtomicBool) {
    let mut complaint = Complaint::default();
    let (begin, mut is_refusal_told) = (Instant::now(), false);
    while !stop.load(Relaxed) {
        match events.read() {
            Ok((told, has_more)) => {
                shared.tell(told);
                complaint.end();
                if events.refused() > 0 && !std::mem::replace(&mut is_refusal_told, true) {
                    let path = events.path().display();
                    (shared.log)(&format!("events {path}: lines that are not events of --json are left out"));
                }
                if has_more {
                    continue;
                }
            }
            Err(source) => {
                let error = Error::Events { path: events.path().to_owned(), source };
                if complaint.is_due(&error, begin.elapsed()) {
                    (shared.log)(&error.to_string());
                }
            }
        }
        thread::sleep(EVENTS_POLL);
    }
}

async fn serve(
    listener: TcpListener,
    certificate: Option<Certificate>,
    shared: &Arc<Shared>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    while !stop.load(Relaxed) {
        let Ok(accepted) = tokio::time::timeout(POLL, listener.accept()).await else { continue };
        let Ok((stream, _)) = accepted else {
            // No descriptor is free: a connection that ends gives one back.
            tokio::time::sleep(POLL).await;
            continue;
        };
        // Those that gave way may not have ended yet.
        let Some(place) = BoundedSlot::take(shared, |shared| &shared.connections, 2 * CONNECTIONS_MAX) else {
            continue;
        };
        let shared = Arc::clone(shared);
        let connection = Connection::default();
        let visit = Visit::begin(&shared, connection.clone(), place);
        let certificate = certificate.clone();
        let task = tokio::task::spawn(async move {
            match certificate {
                None => talk(stream, &visit).await,
                Some(certificate) => {
                    let accepted = tokio::time::timeout(HEAD_TIMEOUT, certificate.accept(stream)).await;
                    if let Ok(Ok(stream)) = accepted {
                        talk(stream, &visit).await;
                    }
                }
            }
        });
        connection.set_task(task.abort_handle());
    }
    Ok(())
}

/// Answers the requests of a connection until it ends.
async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, visit: &Visit) {
    let service = service_fn(move |request| {
        let (shared, connection) = (Arc::clone(&visit.shared), visit.connection.clone());
        async move { Ok::<_, Infallible>(answer(&shared, request, &connection).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_LEN_MAX);
    // A browser that goes away is not an event.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A connection as long as it is open: a stranger until a request has shown a token.
struct Visit {
    shared: Arc<Shared>,
    connection: Connection,
    _place: BoundedSlot,
}

impl Visit {
    fn begin(shared: &Arc<Shared>, connection: Connection, place: BoundedSlot) -> Visit {
        shared.visitors.add(&connection, None);
        Visit { shared: Arc::clone(shared), connection, _place: place }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.shared.visitors.remove(&self.connection);
        self.shared.streams.remove(&self.connection);
    }
}

impl Shared {
    /// Adds events to the latest, and hands them to the history.
    fn tell(&self, told: Vec<EventLine>) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !told.is_empty()) {
            keeper.push_told(told.iter().cloned());
        }
        if let Some(watched) = &self.watched {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            told.into_iter().for_each(|one| watched.add(one));
        }
    }

    fn keep(&self, mut history: History) {
        self.keeper.iter().for_each(|keeper| keeper.keep(&mut history, &self.log));
    }

    /// The answer of the present second, shared by equal requests.
    fn answer(&self, key: &str, asked: &PageRequest) -> Bytes {
        let snapshot = Arc::clone(&self.snapshot.borrow());
        let number =
            snapshot.seconds.back().map_or(0, |(number, _)| number + 1) << 1 | u64::from(snapshot.is_alive);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.0 != number || answers.1.len() > 4 * STREAMS_MAX {
            *answers = (number, HashMap::new());
        }
        if let Some(known) = answers.1.get(key) {
            return known.clone();
        }
        let bytes = Bytes::from(json_bytes(&asked.answer(&snapshot)));
        answers.1.insert(key.to_owned(), bytes.clone());
        bytes
    }
}
