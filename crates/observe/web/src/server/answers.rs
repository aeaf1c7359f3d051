//! Answers to requests: host, token and method are checked first, in this order.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tapline_pages::{RecorderTable, Rights, SECONDS_MAX, Series, WatchEvent};
use tokio::sync::mpsc;

use super::packets::packets;
use super::{PATIENCE, STREAMS_MAX, Shared};
use crate::access::Refusal;
use crate::assets;
use crate::body::Answer;
use crate::error::Error;
use crate::history::{HistoryQuestion, HostQuestion};
use crate::neighbours;
use crate::query::Query;
use crate::visitors::Connection;

/// The most events and tables of an answer.
const EVENTS_MAX: u64 = 500;
const TABLES_MAX: u64 = 100;
/// The version of docs/format/api.md.
const API_VERSION: u32 = 1;
/// The policy of the page: everything from here, nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    connection: &Connection,
) -> Response<Answer> {
    let mut response = route(shared, &request, connection).await.unwrap_or_else(failed);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let is_page = assets::find(request.uri().path()).is_some();
        let allowed = HeaderValue::from_static(if is_page { "GET, HEAD" } else { "GET" });
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

pub(super) type Routed = Result<Response<Answer>, (u16, String)>;

fn failed((status, reason): (u16, String)) -> Response<Answer> {
    plain(status, "application/json", json!({"error": reason}).to_string().into_bytes())
}

fn refused((status, reason): Refusal) -> (u16, String) {
    (status, reason.to_owned())
}

async fn route(shared: &Arc<Shared>, request: &Request<Incoming>, connection: &Connection) -> Routed {
    shared.access.check_origin(request.uri(), request.headers()).map_err(refused)?;
    let (path, method) = (request.uri().path(), request.method());
    // Of an answer to HEAD, hyper sends the head alone.
    if let Some((kind, content)) =
        assets::find(path).filter(|_| matches!(*method, Method::GET | Method::HEAD))
    {
        return Ok(plain(200, kind, content));
    }
    if method != Method::GET {
        return Err((405, "only GET is answered, and HEAD for files of the page".to_owned()));
    }
    let (rights, user) = shared.access.rights(request.headers()).map_err(refused)?;
    shared.visitors.name(connection, user);
    let answered = told(shared, request, (rights, user), connection).await;
    let mut response = answered.unwrap_or_else(failed);
    if let Some(cookie) = shared.access.session(request.headers()) {
        let value = HeaderValue::from_str(&cookie).map_err(|_| (500, "no cookie".to_owned()))?;
        response.headers_mut().insert(SET_COOKIE, value);
    }
    Ok(response)
}

/// The answer to who has a token.
async fn told(
    shared: &Arc<Shared>,
    request: &Request<Incoming>,
    (rights, user): (Rights, &str),
    connection: &Connection,
) -> Routed {
    let (path, text) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let query = Query::parse(text).ok_or((400, "the address cannot be read".to_owned()))?;
    match path {
        "/api/session" => Ok(json_answer(&json!({ "version": API_VERSION }))),
        "/api/page" => {
            let asked = query.page(rights).map_err(|why| (400, why))?;
            let key = format!("{}?{text}", rights.name());
            Ok(plain(200, "application/json", shared.answer(&key, &asked)))
        }
        "/api/events" => events(shared, (&query, text), (rights, user), connection.clone()),
        "/api/seconds" => {
            let snapshot = Arc::clone(&shared.snapshot.borrow());
            let most = query.number("last", 60, 1, SECONDS_MAX as u64) as usize;
            let filter = query.filter(rights).map_err(|why| (400, why))?;
            Ok(json_answer(&match filter.is_empty() {
                true => Series::of(&snapshot, most),
                false => Series::fitting(&snapshot, most, &filter),
            }))
        }
        "/api/host" => about_host(shared, &query, rights).await,
        "/api/sources" => sources(shared, rights).await,
        "/api/history" => history(shared, &query, rights).await,
        "/api/watched" => watched(shared, &query, rights).await,
        "/api/packets" | "/api/packets.pcapng" => {
            packets(shared, (path, &query), (rights, user), request, connection.clone()).await
        }
        _ => Err((404, "there is no such page".to_owned())),
    }
}

/// An event stream as long as it is open.
struct Stream {
    shared: Arc<Shared>,
    connection: Connection,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.streams.remove(&self.connection);
    }
}

/// An event a second: the contents of the page.
fn events(
    shared: &Arc<Shared>,
    (query, text): (&Query, &str),
    (rights, user): (Rights, &str),
    connection: Connection,
) -> Routed {
    let asked = query.page(rights).map_err(|why| (400, why))?;
    if !shared.streams.add(&connection, Some(user.to_owned())) {
        return Err((503, format!("{STREAMS_MAX} pages are open already")));
    }
    let stream = Stream { shared: Arc::clone(shared), connection: connection.clone() };
    let (to, parts) = mpsc::channel::<Bytes>(2);
    let (shared, key) = (Arc::clone(shared), format!("{}?{text}", rights.name()));
    tokio::task::spawn(async move {
        let _stream = stream;
        let mut snapshot = shared.snapshot.subscribe();
        snapshot.mark_changed();
        loop {
            // A line after ten seconds of silence finds out whether the browser is still there.
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
    let snapshot = Arc::clone(&shared.snapshot.borrow());
    let answered = tokio::task::spawn_blocking(move || {
        let past = past.lock().unwrap_or_else(PoisonError::into_inner);
        past.answer(&asked).map(|answer| {
            let mut window = answer.window;
            if rights >= Rights::Names {
                window.name_hosts(&snapshot);
            }
            window
        })
    });
    match answered.await {
        Ok(Ok(answer)) => Ok(json_answer(&answer)),
        Ok(Err(error)) => Err((500, error.to_string())),
        Err(_) => Err((500, "the history could not be asked".to_owned())),
    }
}

/// A host in the past, and what else is known of it.
async fn about_host(shared: &Arc<Shared>, query: &Query, rights: Rights) -> Routed {
    let asked = HostQuestion::parse(query).map_err(|why| (400, why))?;
    let shared = Arc::clone(shared);
    let answered = tokio::task::spawn_blocking(move || {
        let past = shared.past.as_ref().map(|past| {
            let past = past.lock().unwrap_or_else(PoisonError::into_inner);
            past.host(&asked)
        });
        let host = asked.host();
        let place = host.and_then(|host| shared.places.as_ref().map(|places| places.of(host).to_string()));
        // Who may not know names does not learn of devices either.
        let station = host.filter(|_| rights >= Rights::Names).and_then(neighbours::station);
        let vendor = station.as_ref().and_then(|[station, _]| {
            shared.places.as_ref()?.vendor(neighbours::octets(station)?).map(str::to_owned)
        });
        let past = past.transpose()?;
        Ok::<_, Error>(json!({"past": past, "place": place, "station": station, "vendor": vendor}))
    });
    match answered.await {
        Ok(Ok(answer)) => Ok(json_answer(&answer)),
        Ok(Err(error)) => Err((500, error.to_string())),
        Err(_) => Err((500, "the history could not be asked".to_owned())),
    }
}

/// Sources of packets that can be asked now, for those who may have packets.
async fn sources(shared: &Arc<Shared>, rights: Rights) -> Routed {
    let source = shared.packets.clone().filter(|_| rights >= Rights::Packets);
    let asked =
        tokio::task::spawn_blocking(move || source.map(|source| source.sources()).unwrap_or_default());
    Ok(json_answer(&json!({"sources": asked.await.unwrap_or_default()})))
}

/// Events of rules and tables of recorders: the latest, or those of a time in seconds since 1970.
async fn watched(shared: &Arc<Shared>, query: &Query, rights: Rights) -> Routed {
    if shared.watched.is_none() {
        return Err((404, "no events are read: see --events".to_owned()));
    }
    let (shared, asked) = (Arc::clone(shared), WatchedQuestion::parse(query, rights));
    // A write to the history or to the latest may hold it up, and tables are long.
    let answered = tokio::task::spawn_blocking(move || asked.answer(&shared).map(|told| json_bytes(&told)));
    match answered.await {
        Ok(Ok(answer)) => Ok(plain(200, "application/json", answer)),
        Ok(Err(error)) => Err((500, error.to_string())),
        Err(_) => Err((500, "the events could not be asked".to_owned())),
    }
}

/// A question about events and tables.
#[derive(Clone, Copy)]
struct WatchedQuestion {
    /// The time in nanoseconds since 1970: with its begin, without its end.
    span_ns: (i64, i64),
    /// Both ends are given: the history answers, if there is one.
    is_past: bool,
    events: usize,
    tables: usize,
    rights: Rights,
}

/// Events, the latest first, and tables.
#[derive(Serialize)]
struct WatchedAnswer {
    events: Vec<WatchEvent>,
    /// The time has more events.
    is_cut: bool,
    tables: Vec<RecorderTable>,
}

impl WatchedQuestion {
    fn parse(query: &Query, rights: Rights) -> WatchedQuestion {
        const SECOND_NS: i64 = 1_000_000_000;
        let ns = |name: &str, default: u64| (query.number(name, default, 0, 1 << 33) as i64) * SECOND_NS;
        WatchedQuestion {
            span_ns: (ns("from", 0), ns("to", 1 << 33)),
            is_past: !query.text("from").is_empty() && !query.text("to").is_empty(),
            events: query.number("most", 100, 1, EVENTS_MAX) as usize,
            tables: query.number("tables", 20, 0, TABLES_MAX) as usize,
            rights,
        }
    }

    /// Waits for the history, and for a write to the latest.
    fn answer(self, shared: &Shared) -> Result<WatchedAnswer, Error> {
        let (mut events, tables) = self.told(shared)?;
        let is_cut = events.len() > self.events;
        events.truncate(self.events);
        if self.rights < Rights::Names {
            events.iter_mut().for_each(without_details);
        }
        Ok(WatchedAnswer { events, is_cut, tables })
    }

    /// An event more than is asked for, if there is one. Tables have names that clients asked for.
    fn told(self, shared: &Shared) -> Result<(Vec<WatchEvent>, Vec<RecorderTable>), Error> {
        let (from, to) = self.span_ns;
        let tables = if self.rights < Rights::Names { 0 } else { self.tables };
        let most = (self.events + 1, tables);
        if let Some(past) = shared.past.as_ref().filter(|_| self.is_past) {
            return past.lock().unwrap_or_else(PoisonError::into_inner).told_between(from, to, most);
        }
        let latest =
            shared.watched.as_ref().map(|latest| latest.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(latest.map(|latest| latest.between(from, to, most)).unwrap_or_default())
    }
}

/// Texts of rules may have names that clients asked for. Time, rule and kind remain.
fn without_details(event: &mut WatchEvent) {
    (event.text, event.recording, event.swallowed) = (String::new(), None, 0);
}

pub(super) fn json_answer(value: &impl Serialize) -> Response<Answer> {
    plain(200, "application/json", json_bytes(value))
}

/// Serialises an answer of the pages: it has no map whose keys are not texts, and the writer cannot fail.
pub(super) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn plain(status: u16, kind: &'static str, content: impl Into<Bytes>) -> Response<Answer> {
    headed(status, kind, Answer::Whole(Some(content.into())))
}

pub(super) fn headed(status: u16, kind: &'static str, content: Answer) -> Response<Answer> {
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
