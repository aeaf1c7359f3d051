//! `extract`: bodies of HTTP/1 messages, as files named by their SHA-256.
//!
//! ```text
//! stream --tapline_stream::http--> Begin --> partial-7     Data --> written and hashed     End --> SHA-256, once
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, Property, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageStatus, Table, TickContext};
use tapline_source::Error;
use tapline_stream::http::{BodyEvent, Conversation, Head, Request, StreamBytes, Unparsed};
use tapline_stream::{EndCause, Event, Stream};

use super::super::folder::Folder;
use super::written::description;
use super::{IDLE, INDEX, MEMORY, PATIENCE, ROOM, STREAM_MEMORY, Streams};

pub(crate) const CLASS: StageClass = StageClass {
    name: "extract",
    summary: "extracts files from HTTP/1: the bodies of requests and responses",
    description: "Streams are put in order as by `reassemble`. A body is written to the directory under its SHA-256 in hexadecimal, once however often it comes; index.jsonl has a line for \
        each: addresses, target, status, types, length, SHA-256, and why it was not kept. Bodies are as they were sent: a content encoding is named, not undone. Bodies with missing bytes are not \
        kept. No name of a file comes from the wire. All packets are passed on. Heads of messages that are not whole, and requests that wait for \
        their responses, may take as much memory as `memory` \
        says for packets; a conversation beyond that is skipped until its next message, and counted as no_memory.",
    parameters: &[
        Parameter::required("to", ParameterType::Path).means("the directory, made if it does not exist"),
        Parameter::new("types", ParameterType::Text, "")
            .means("media types with commas, of which `image/*` names a kind: others are left out; all without it. It is the type that Content-Type says"),
        Parameter::new("size", ParameterType::Number(1, 1_000_000_000_000), "100M")
            .means("the longest body in bytes; longer ones are not kept"),
        Parameter::new("files", ParameterType::Number(1, 100_000_000), "10000").means("files at most"),
        Parameter::new("bytes", ParameterType::Number(1, 1_000_000_000_000_000), "1G")
            .means("bytes of all files at most"),
        INDEX,
        ROOM,
        MEMORY,
        STREAM_MEMORY,
        PATIENCE,
        IDLE,
    ],
    order: Order::Flow,
    example: "device(eth0) -> filter(\"tcp port 80\") -> extract(\"bodies\", types=\"application/*\")",
    properties: &[Property::External],
    access: |arguments, access| access.makes_folder(arguments.text("to")),
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// Bodies that are written at a time, each with an open file.
const OPEN_MAX: usize = 256;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    if site.common.workers > 1 {
        return Err("several workers cannot fill one directory: leave --workers out".to_owned());
    }
    let types = arguments.text("types").split(',').map(|name| name.trim().to_ascii_lowercase());
    let bodies = Bodies {
        folder: Folder::make(&site.common.path(arguments.text("to")), arguments.number("index"))?,
        types: types.filter(|name| !name.is_empty()).collect(),
        size_max: arguments.number("size"),
        files_left: arguments.number("files"),
        bytes_left: arguments.number("bytes"),
        made: 0,
        open: 0,
        counts: [0; Fate::ALL.len()],
        bytes: 0,
    };
    let talks = Talks { memory_max: arguments.number("memory") as usize, ..Talks::default() };
    Ok(Box::new(Extract { streams: Streams::new(arguments), talks, bodies, failure: None }))
}

tapline_packet::named_enum! {
    /// The fate of a body.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fate {
        Kept = "files",
        /// A file of the same bytes is there.
        Again = "again",
        /// Bytes are missing in it.
        Incomplete = "incomplete",
        OtherType = "other_type",
        TooLong = "too_long",
        NoRoom = "no_room",
    }
}

struct Extract {
    streams: Streams,
    talks: Talks,
    bodies: Bodies,
    failure: Option<Error>,
}

/// Conversations of all connections that have sent bytes.
#[derive(Default)]
struct Talks {
    known: HashMap<u64, Talk>,
    /// Bytes of memory of the heads of all, and the most of them.
    memory: usize,
    memory_max: usize,
    /// Conversations given up for lack of memory.
    given_up: u64,
    unparsed: Unparsed,
}

/// A conversation, with the body of each direction: the server's first.
#[derive(Default)]
struct Talk {
    http: Conversation,
    bodies: [Option<Body>; 2],
    memory: usize,
}

/// A body on its way.
struct Body {
    head: Head,
    hash: Sha256,
    len: u64,
    /// File of the body; none once it is clear that it is not kept.
    file: Option<(PathBuf, File)>,
    fate: Fate,
}

struct Bodies {
    folder: Folder,
    types: Vec<String>,
    size_max: u64,
    files_left: u64,
    bytes_left: u64,
    /// Files begun.
    made: u64,
    /// Files that are open.
    open: usize,
    counts: [u64; Fate::ALL.len()],
    /// Bytes of files.
    bytes: u64,
}

impl Bodies {
    fn begin(&mut self, head: Head) -> io::Result<Body> {
        let fate = match () {
            () if !self.wants(&head.content_type) => Fate::OtherType,
            () if self.files_left == 0 || self.open == OPEN_MAX => Fate::NoRoom,
            () => Fate::Kept,
        };
        let mut body = Body { head, hash: Sha256::new(), len: 0, file: None, fate };
        if fate == Fate::Kept {
            self.made += 1;
            let name = format!("partial-{}", self.made);
            body.file = Some((self.folder.path(&name), self.folder.create(&name)?));
            self.open += 1;
        }
        Ok(body)
    }

    /// Whether a media type is asked for: `image/png` by itself and by `image/*`.
    fn wants(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_it = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => kind.starts_with(prefix),
            None => kind == *wanted,
        };
        self.types.is_empty() || self.types.iter().any(is_it)
    }

    fn data(&mut self, body: &mut Body, bytes: &[u8]) -> io::Result<()> {
        body.len += bytes.len() as u64;
        body.hash.update(bytes);
        if body.fate == Fate::Kept && body.len > self.size_max {
            self.drop_file(body, Fate::TooLong)?;
        } else if body.fate == Fate::Kept && bytes.len() as u64 > self.bytes_left {
            self.drop_file(body, Fate::NoRoom)?;
        }
        let Some((_, file)) = &mut body.file else { return Ok(()) };
        if let Err(error) = file.write_all(bytes) {
            // A file without these bytes must not get the name of the whole body.
            let _ = self.drop_file(body, Fate::NoRoom);
            return Err(error);
        }
        self.bytes_left -= bytes.len() as u64;
        Ok(())
    }

    /// Removes the file of a body that is not kept.
    fn drop_file(&mut self, body: &mut Body, fate: Fate) -> io::Result<()> {
        body.fate = fate;
        let Some((path, file)) = body.file.take() else { return Ok(()) };
        self.open -= 1;
        self.bytes_left += file.metadata()?.len();
        fs::remove_file(path)
    }

    fn end(&mut self, stream: &Stream, mut body: Body, missing: u64, is_whole: bool) -> io::Result<()> {
        if body.fate == Fate::Kept && !is_whole {
            self.drop_file(&mut body, Fate::Incomplete)?;
        }
        let digest = hexadecimal(&std::mem::take(&mut body.hash).finalize());
        if body.fate == Fate::Kept && (self.files_left == 0 || self.folder.path(&digest).exists()) {
            let fate = if self.folder.path(&digest).exists() { Fate::Again } else { Fate::NoRoom };
            self.drop_file(&mut body, fate)?;
        }
        if let Some((path, _)) = body.file.take() {
            fs::rename(path, self.folder.path(&digest))?;
            (self.open, self.files_left, self.bytes) =
                (self.open - 1, self.files_left - 1, self.bytes + body.len);
        }
        self.counts[body.fate as usize] += 1;
        self.folder.log(&line(stream, &body, &digest, missing))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The line of a body in the index.
fn line(stream: &Stream, body: &Body, digest: &str, missing: u64) -> Value {
    let Head { status, request, content_type, content_encoding } = &body.head;
    let of_request = |text: fn(&Request) -> &String| request.as_ref().map(|request| text(request).as_str());
    let mut line = description(stream);
    line["end_ns"] = stream.time_ns.map(|time_ns| time_ns.to_string()).into();
    line["method"] = of_request(|request| &request.method).into();
    line["host"] = of_request(|request| &request.host).into();
    line["target"] = of_request(|request| &request.target).into();
    if body.head.is_cut() {
        line["is_cut"] = true.into();
    }
    line["status"] = (*status).into();
    line["content_type"] = content_type.as_str().into();
    line["content_encoding"] = content_encoding.as_str().into();
    line["length"] = body.len.into();
    line["missing"] = missing.into();
    line["sha256"] = digest.into();
    line["fate"] = body.fate.name().into();
    line
}

impl Talk {
    /// Takes an event; `None` gives up heads that are not whole.
    fn take(&mut self, bodies: &mut Bodies, stream: &Stream, event: Option<Event<'_>>) -> io::Result<()> {
        let Talk { http, bodies: [server, client], .. } = self;
        let is_client = stream.is_from_client;
        let body = if is_client { client } else { server };
        let mut result = Ok(());
        let mut sink = |event: BodyEvent<'_>| {
            let done = match (event, body.take()) {
                (BodyEvent::Begin(head), _) => bodies.begin(head).map(|begun| *body = Some(begun)),
                (BodyEvent::Data(bytes), Some(mut open)) => {
                    let written = bodies.data(&mut open, bytes);
                    *body = Some(open);
                    written
                }
                (BodyEvent::End { missing, is_whole }, Some(open)) => {
                    bodies.end(stream, open, missing, is_whole)
                }
                (BodyEvent::Message { .. } | BodyEvent::Other(_), open) => {
                    *body = open;
                    Ok(())
                }
                (_, None) => Ok(()),
            };
            if result.is_ok() {
                result = done;
            }
        };
        match event {
            None => http.give_up(is_client, &mut sink),
            Some(Event::Segment(piece)) => {
                let (offset, acknowledged) = (stream.offset, piece.acknowledged);
                http.data(is_client, StreamBytes { bytes: piece.bytes(), offset, acknowledged }, &mut sink);
            }
            Some(Event::Gap { len, .. }) => http.gap(is_client, len, &mut sink),
            Some(Event::End(cause)) => http.end(is_client, cause == EndCause::Finished, &mut sink),
            Some(Event::Forgotten) => {}
        }
        result
    }
}

impl Talks {
    /// Takes an event of a connection. Those without bytes begin no conversation.
    fn take(&mut self, bodies: &mut Bodies, stream: &Stream, event: Event<'_>) -> io::Result<()> {
        let talk = match event {
            Event::Segment(piece) if piece.len == 0 => return Ok(()),
            Event::Segment(_) => self.known.entry(stream.connection).or_default(),
            Event::Forgotten => {
                let talk = self.known.remove(&stream.connection);
                self.memory -= talk.map_or(0, |talk| talk.memory);
                return Ok(());
            }
            Event::Gap { .. } | Event::End(_) => match self.known.get_mut(&stream.connection) {
                Some(talk) => talk,
                None => return Ok(()),
            },
        };
        let mut result = talk.take(bodies, stream, Some(event));
        let Unparsed { messages, lines } = talk.http.take_unparsed();
        self.unparsed.messages += messages;
        self.unparsed.lines += lines;
        let others = self.memory - talk.memory;
        if others + talk.http.memory() > self.memory_max && talk.http.memory() > 0 {
            result = result.and(talk.take(bodies, stream, None));
            self.given_up += 1;
        }
        talk.memory = talk.http.memory();
        self.memory = others + talk.memory;
        result
    }
}

impl Extract {
    /// Takes the events of streams.
    fn sink<'a>(
        (talks, bodies, failure): (&'a mut Talks, &'a mut Bodies, &'a mut Option<Error>),
    ) -> impl FnMut(&Stream, Event<'_>) + 'a {
        move |stream, event| {
            if let Err(error) = talks.take(bodies, stream, event) {
                failure.get_or_insert(Error::output(&bodies.folder.name(), error));
            }
        }
    }

    fn complete(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Stage for Extract {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let Extract { streams, talks, bodies, failure } = self;
        streams.push(packets, Extract::sink((talks, bodies, failure)));
        self.complete().and(out.pass(packets))
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        let Extract { streams, talks, bodies, failure } = self;
        streams.tick(tick, Extract::sink((talks, bodies, failure)));
        self.complete().map(|()| StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let Extract { streams, talks, bodies, failure } = self;
        streams.reassembler.finish(&mut Extract::sink((talks, bodies, failure)));
        if let Err(error) = bodies.folder.end() {
            failure.get_or_insert(Error::output(&bodies.folder.name(), error));
        }
        self.complete()
    }

    fn result(&self) -> Option<Table> {
        let counts = Fate::NAMES.into_iter().zip(self.bodies.counts);
        let account = self.streams.account();
        let streams = [
            ("bytes", self.bodies.bytes),
            ("connections", account.connections),
            ("delivered", account.delivered),
            ("missing", account.missing()),
            ("no_memory", self.talks.given_up),
            ("not_indexed", self.bodies.folder.not_indexed()),
            ("unparsed", self.talks.unparsed.messages),
            ("unparsed_lines", self.talks.unparsed.lines),
        ];
        Some(Table::of_numbers(&counts.chain(streams).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests;
