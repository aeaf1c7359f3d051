//! The server: one thread that waits for connections, one that reads the meter once a second, one that writes the
//! history.
//!
//! ```text
//! thread `feed`     Feed::read --Snapshot--> watch channel --> every event stream: one answer for each question and second
//!                              --seconds---> Keeper: a bounded queue
//! thread `history`  Keeper --> History::add --> SQLite <-- a connection that reads alone, for /api/history
//! this thread       accept --> connection --> request: host, token, method --> asset, page, events, packets
//! ```
//!
//! A browser that does not read holds up no other: what is sent to it waits in a queue of two parts and a short one of
//! the kernel, and a stream whose queues stay full for two seconds is ended. Everything has a most: connections,
//! streams, bytes of a request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::json;
use socket2::SockRef;
use tapline_pages::{Feed, FilterLine, PageRequest, Rights, SECONDS_MAX, Series, Snapshot};
use tapline_view::Process;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::access::{Access, Refusal};
use crate::assets;
use crate::body::Answer;
use crate::certificate::Certificate;
use crate::error::Error;
use crate::history::{History, HistoryQuestion};
use crate::keeper::Keeper;
use crate::packets::{PacketAnswer, PacketRequest, PacketSource};
use crate::query::Query;
use crate::strangers::{Connection, Strangers};

/// Connections at a time; a browser has six at most.
const CONNECTIONS_MAX: usize = 256;
/// Event streams at a time.
const STREAMS_MAX: usize = 32;
/// Requests for packets at a time.
const FETCHES_MAX: usize = 4;
/// How long a stream may leave what was sent to it unread, and a client take for the head of its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a download may stand still; then it gives up its place.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes that the kernel takes for a connection beyond those that are on their way: else it takes megabytes for a
/// browser that does not read.
const UNSENT_MAX: u32 = 32 << 10;
/// How long the head of a request may take, and a connection stand idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_LEN_MAX: usize = 16 << 10;
/// How often the meter is looked at: it publishes once a second, at a moment that we do not know.
const POLL: Duration = Duration::from_millis(100);
/// The most packets of a list, and of a file.
const LIST_MAX: u64 = 500;
const FILE_PACKETS_MAX: u64 = 1_000_000;
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The policy of the page: everything from here, nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Settings of a server.
#[derive(Clone)]
pub struct ServerSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// A proxy in front speaks TLS, so that an address which others reach is allowed.
    pub is_behind_proxy: bool,
    /// What the server proves itself with, where it speaks TLS.
    pub certificate: Option<Certificate>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    certificate: Option<Certificate>,
    shared: Shared,
    feed: Feed,
    history: Option<History>,
}

struct Shared {
    access: Access,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// Answers of the present second, by question.
    answers: Mutex<(u64, HashMap<String, Bytes>)>,
    connections: AtomicUsize,
    strangers: Strangers,
    streams: AtomicUsize,
    fetches: AtomicUsize,
    packets: Option<Arc<dyn PacketSource>>,
    /// Seconds on their way into the history.
    keeper: Option<Keeper>,
    /// The history, to be asked.
    past: Option<Arc<Mutex<History>>>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// One of a bounded number of things at a time.
struct Place {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl Place {
    fn take(shared: &Arc<Shared>, of: fn(&Shared) -> &AtomicUsize, most: usize) -> Option<Place> {
        let is_room = of(shared).fetch_add(1, Relaxed) < most;
        let place = Place { shared: Arc::clone(shared), of };
        is_room.then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Relaxed);
    }
}

impl Server {
    /// Listens. `log` gets a line for each event that an administrator should know of.
    ///
    /// # Errors
    /// [`Error::Open`] for an address that others reach, unless a proxy stands in front; [`Error::Listen`].
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
            strangers: Strangers::default(),
            streams: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
            packets,
            keeper: None,
            past: None,
            log,
        };
        let certificate = settings.certificate.clone();
        Ok(Server { listener, certificate, shared, feed, history: None })
    }

    /// Keeps a history. It is opened once the server listens: a start that fails changes none.
    ///
    /// # Errors
    /// [`Error::History`].
    pub fn keep(&mut self, history: History) -> Result<(), Error> {
        // Questions have a connection of their own: they wait for no write, and the feed for none of them.
        let past = History::open_to_read(history.path())?;
        self.shared.past = Some(Arc::new(Mutex::new(past)));
        self.shared.keeper = Some(Keeper::default());
        self.history = Some(history);
        Ok(())
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The system does not tell it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// [`Error::Runtime`].
    pub fn run(self, stop: &Arc<AtomicBool>) -> Result<(), Error> {
        let Server { listener, certificate, shared, feed, history } = self;
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
        let served = runtime.block_on(serve(listener, certificate, &shared, stop));
        stop.store(true, Relaxed);
        drop(reader.join());
        shared.keeper.iter().for_each(Keeper::close);
        drop(writer.map(thread::JoinHandle::join));
        runtime.shutdown_background();
        served.map_err(Error::Runtime)
    }
}

/// Reads the meter again and again. Nothing here waits: a feed that is late misses seconds.
fn follow(mut feed: Feed, shared: &Shared, stop: &AtomicBool) {
    let (mut was_alive, mut told) = (false, None);
    while !stop.load(Relaxed) {
        let fresh = feed.read();
        let snapshot = feed.snapshot();
        let process = snapshot.process.clone();
        if !fresh.is_empty() || snapshot.is_alive != was_alive {
            was_alive = snapshot.is_alive;
            shared.snapshot.send_replace(Arc::new(snapshot));
        }
        if let (Some(keeper), Some(process)) = (&shared.keeper, process) {
            let had_packets = fresh.iter().any(|reading| reading.second.offered() > 0);
            if process.is_live {
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
        let Some(place) = Place::take(shared, |shared| &shared.connections, CONNECTIONS_MAX) else {
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
    // A browser that goes away is no event.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A connection as long as it is open: a stranger until a request has shown a token.
struct Visit {
    shared: Arc<Shared>,
    connection: Connection,
    _place: Place,
}

impl Visit {
    fn begin(shared: &Arc<Shared>, connection: Connection, place: Place) -> Visit {
        shared.strangers.add(connection.clone());
        Visit { shared: Arc::clone(shared), connection, _place: place }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.shared.strangers.remove(&self.connection);
    }
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    connection: &Connection,
) -> Response<Answer> {
    let answered = route(shared, &request, connection).await;
    let mut response = answered.unwrap_or_else(|(status, reason)| {
        plain(status, "application/json", json!({"error": reason}).to_string().into_bytes())
    });
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let is_page = assets::find(request.uri().path()).is_some();
        let allowed = HeaderValue::from_static(if is_page { "GET, HEAD" } else { "GET" });
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

type Routed = Result<Response<Answer>, (u16, String)>;

fn refused((status, reason): Refusal) -> (u16, String) {
    (status, reason.to_owned())
}

async fn route(shared: &Arc<Shared>, request: &Request<Incoming>, connection: &Connection) -> Routed {
    shared.access.check_origin(request.uri(), request.headers()).map_err(refused)?;
    let (path, method) = (request.uri().path(), request.method());
    // Of an answer to HEAD, hyper sends the head alone.
    if let Some((_, kind, content)) =
        assets::find(path).filter(|_| matches!(*method, Method::GET | Method::HEAD))
    {
        return Ok(plain(200, kind, content.to_vec()));
    }
    if method != Method::GET {
        return Err((405, "only GET is answered, and HEAD for files of the page".to_owned()));
    }
    if path == "/api/session" {
        let cookie = shared.access.session(request.headers()).map_err(refused)?;
        shared.strangers.remove(connection);
        let mut response = plain(200, "application/json", b"{}".to_vec());
        let value = HeaderValue::from_str(&cookie).map_err(|_| (500, "no cookie".to_owned()))?;
        response.headers_mut().insert("set-cookie", value);
        return Ok(response);
    }
    let (rights, user) = shared.access.rights(request.headers()).map_err(refused)?;
    shared.strangers.remove(connection);
    let text = request.uri().query().unwrap_or_default();
    let query = Query::parse(text).ok_or((400, "the address cannot be read".to_owned()))?;
    match path {
        "/api/page" => {
            let asked = query.page(rights).map_err(|why| (400, why))?;
            let key = format!("{}?{text}", rights.name());
            Ok(plain(200, "application/json", shared.answer(&key, &asked).to_vec()))
        }
        "/api/events" => events(shared, (&query, text), rights, connection.clone()),
        "/api/seconds" => {
            let snapshot = Arc::clone(&shared.snapshot.borrow());
            let most = query.number("last", 60, 1, SECONDS_MAX as u64) as usize;
            Ok(json_answer(&Series::of(&snapshot, most)))
        }
        "/api/history" => history(shared, &query, rights).await,
        "/api/packets" | "/api/packets.pcapng" => {
            packets(shared, (path, &query), (rights, user), request, connection.clone()).await
        }
        _ => Err((404, "there is no such page".to_owned())),
    }
}

impl Shared {
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

/// An event a second: what the page shows.
fn events(
    shared: &Arc<Shared>,
    (query, text): (&Query, &str),
    rights: Rights,
    connection: Connection,
) -> Routed {
    let asked = query.page(rights).map_err(|why| (400, why))?;
    let Some(place) = Place::take(shared, |shared| &shared.streams, STREAMS_MAX) else {
        return Err((503, format!("{STREAMS_MAX} pages are open already")));
    };
    let (to, parts) = mpsc::channel::<Bytes>(2);
    let (shared, key) = (Arc::clone(shared), format!("{}?{text}", rights.name()));
    tokio::task::spawn(async move {
        let _place = place;
        let mut snapshot = shared.snapshot.subscribe();
        snapshot.mark_changed();
        loop {
            // A line now and then finds out whether anybody is there still.
            let part = match tokio::time::timeout(Duration::from_secs(10), snapshot.changed()).await {
                Ok(Ok(())) => {
                    snapshot.borrow_and_update();
                    let answer = shared.answer(&key, &asked);
                    let mut event = Vec::with_capacity(answer.len() + 8);
                    event.extend_from_slice(b"data: ");
                    event.extend_from_slice(&answer);
                    event.extend_from_slice(b"\n\n");
                    Bytes::from(event)
                }
                Ok(Err(_)) => return,
                Err(_) => Bytes::from_static(b": still here\n\n"),
            };
            let sent = tokio::time::timeout(PATIENCE, to.send(part)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return connection.give_up();
            }
        }
    });
    let mut response = headed(200, "text/event-stream", Answer::Parts(parts));
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn history(shared: &Arc<Shared>, query: &Query, rights: Rights) -> Routed {
    let Some(past) = shared.past.clone() else {
        return Err((404, "no history is kept: see --history".to_owned()));
    };
    let asked = HistoryQuestion::parse(query, rights).map_err(|why| (400, why))?;
    let answered = tokio::task::spawn_blocking(move || {
        let past = past.lock().unwrap_or_else(PoisonError::into_inner);
        past.answer(&asked).map(|answer| answer.window)
    });
    match answered.await {
        Ok(Ok(answer)) => Ok(json_answer(&answer)),
        Ok(Err(error)) => Err((500, error.to_string())),
        Err(_) => Err((500, "the history could not be asked".to_owned())),
    }
}

async fn packets(
    shared: &Arc<Shared>,
    (path, query): (&str, &Query),
    (rights, user): (Rights, &str),
    request: &Request<Incoming>,
    connection: Connection,
) -> Routed {
    if rights < Rights::Packets {
        return Err((403, "this token is for counts, not for packets".to_owned()));
    }
    let Some(source) = shared.packets.clone() else {
        return Err((
            404,
            "no packets can be had: give --packets tap:NAME or --packets store:DIRECTORY".to_owned(),
        ));
    };
    let Some(place) = Place::take(shared, |shared| &shared.fetches, FETCHES_MAX) else {
        return Err((503, format!("{FETCHES_MAX} others ask for packets just now: try again")));
    };
    let is_file = path.ends_with(".pcapng");
    // Which sources there are may have to be asked of others.
    let (query, of) = (query.clone(), Arc::clone(&source));
    let asked = tokio::task::spawn_blocking(move || packet_request(&query, of.as_ref(), is_file)).await;
    let asked = asked.unwrap_or_else(|_| Err("the sources of packets could not be asked".to_owned()));
    let asked = asked.map_err(|why| (400, why))?;
    if !is_file {
        let answered = tokio::task::spawn_blocking(move || {
            let _place = place;
            source.list(&asked)
        });
        let answer = answered.await.unwrap_or_else(|_| Err("the packets could not be read".to_owned()));
        let answer = answer.map_err(|why| (502, why))?;
        return Ok(json_answer(&json!({
            "packets": answer.packets,
            "span_ns": answer.span_ns,
            "is_cut": answer.is_cut,
            "notes": answer.notes,
            "lines": answer.lines.iter().map(|(time, len, line)| json!([time, len, line])).collect::<Vec<_>>(),
        })));
    }
    let agent = request.headers().get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or("-");
    let by = if user.is_empty() { String::new() } else { format!("{user}, ") };
    (shared.log)(&format!(
        "download from {} of {} to {} ns, filter {:?}, by {by}{agent:?}",
        asked.source, asked.from_ns, asked.to_ns, asked.filter
    ));
    let (to, parts) = mpsc::channel::<Bytes>(4);
    let (log, is_whole) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
    let body = Answer::File(parts, Arc::clone(&is_whole));
    let mut parts_to = Parts { to, runtime: Handle::current(), stall_max: STALL_MAX };
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let told = match source.write(&asked, &mut parts_to) {
            Ok(answer) => {
                is_whole.store(true, Release);
                told(&answer)
            }
            Err(error) => {
                // What is still to be sent waits for a browser that does not read.
                connection.give_up();
                error
            }
        };
        (log.log)(&format!("download from {}: {told}", asked.source));
    });
    let mut response = headed(200, "application/x-pcapng", body);
    let name = HeaderValue::from_static("attachment; filename=\"packets.pcapng\"");
    response.headers_mut().insert("content-disposition", name);
    Ok(response)
}

fn packet_request(query: &Query, source: &dyn PacketSource, is_file: bool) -> Result<PacketRequest, String> {
    let sources = source.sources();
    if sources.is_empty() {
        return Err(
            "no capture of tapline serve is there that may be read: see --packets and --socket".to_owned()
        );
    }
    let asked = query.text("source");
    let name = sources.iter().find(|known| *known == asked || asked.is_empty());
    let name = name.ok_or_else(|| format!("packets are there from: {}", sources.join(", ")))?;
    let time = |name: &str| {
        query.text(name).parse::<i64>().map_err(|_| format!("{name} is no time in nanoseconds since 1970"))
    };
    let (from_ns, to_ns) = (time("from")?, time("to")?);
    if from_ns >= to_ns {
        return Err("the window ends before it begins".to_owned());
    }
    Ok(PacketRequest {
        source: name.clone(),
        filter: FilterLine::packets_text(query.text("filter"))?,
        from_ns,
        to_ns,
        packets_max: if is_file { FILE_PACKETS_MAX } else { query.number("most", LIST_MAX, 1, LIST_MAX) },
        bytes_max: FILE_BYTES_MAX,
    })
}

/// How a download ended, in words.
fn told(answer: &PacketAnswer) -> String {
    let cut = if answer.is_cut { "cut: more may be there" } else { "all there are" };
    let notes: String = answer.notes.iter().map(|note| format!("; {note}")).collect();
    format!("{} packets, {cut}{notes}", answer.packets)
}

/// A writer into the body of an answer, for a thread apart: waits while the browser is slow, ends when it has gone or
/// took nothing for `stall_max`.
struct Parts {
    to: mpsc::Sender<Bytes>,
    runtime: Handle,
    stall_max: Duration,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sending = async {
            let sent = self.to.send(Bytes::copy_from_slice(bytes));
            tokio::time::timeout(self.stall_max, sent).await
        };
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn json_answer(value: &impl Serialize) -> Response<Answer> {
    plain(200, "application/json", json_bytes(value))
}

/// What the pages say has no map whose keys are no texts, and no writer that may fail.
fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn plain(status: u16, kind: &'static str, content: Vec<u8>) -> Response<Answer> {
    headed(status, kind, content.into())
}

/// An answer with the headers that all have.
fn headed(status: u16, kind: &'static str, content: Answer) -> Response<Answer> {
    let mut response = Response::new(content);
    *response.status_mut() = status.try_into().unwrap_or_default();
    for (name, value) in [
        ("content-type", kind),
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A browser that takes nothing of its download, and then one that has gone.
    #[test]
    fn a_download_that_stands_still_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (to, mut parts) = mpsc::channel(1);
        let stall_max = Duration::from_millis(20);
        let ended = runtime.block_on(async {
            let runtime = Handle::current();
            let writer = move || {
                let mut writer = Parts { to, runtime, stall_max };
                (writer.write(b"first").ok(), writer.write(b"second").map_err(|error| error.kind()))
            };
            tokio::task::spawn_blocking(writer).await.expect("no panic")
        });
        assert_eq!(ended, (Some(5), Err(std::io::ErrorKind::TimedOut)));
        assert_eq!(parts.try_recv().expect("the first part"), "first");
        let (to, parts) = mpsc::channel(1);
        drop(parts);
        let runtime_handle = runtime.handle().clone();
        let mut writer = Parts { to, runtime: runtime_handle, stall_max };
        assert_eq!(writer.write(b"more").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
