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
use tapline_source::Error;
use tapline_stream::http::{BodyEvent, Conversation, Head, Request, StreamBytes, Unparsed};
use tapline_stream::{EndCause, Event, Stream};

use super::super::folder::Folder;
use super::written::description;
use super::{IDLE, INDEX, MEMORY, PATIENCE, ROOM, STREAM_MEMORY, Streams};
use crate::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, Property, StageClass,
};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Stage, StageStatus, TickContext};
use crate::table::Table;

pub(crate) const CLASS: StageClass = StageClass {
    name: "extract",
    summary: "extracts files from HTTP/1: the bodies of requests and responses",
    description: "Streams are put in order as by `reassemble`. A body is written to the directory under its SHA-256 in hexadecimal, once however often it comes; index.jsonl has a line for \
        each: addresses, target, status, types, length, SHA-256, and why it was not kept. Bodies are as they were sent: a content encoding is named, not undone. Bodies with missing bytes are not \
        kept. No name of a file comes from the wire. All packets are passed on. Heads of messages that are not whole, and requests that wait for \
        their responses, may take as much memory as `memory` \
        says for packets; a conversation beyond that is skipped until its next message, and counted as no_memory.",
    parameters: &[
        Parameter {
            name: "to",
            kind: ParameterType::Path,
            default: None,
            meaning: "the directory, made if it does not exist",
        },
        Parameter {
            name: "types",
            kind: ParameterType::Text,
            default: Some(""),
            meaning: "media types with commas, of which `image/*` names a kind: others are left out; all without it. It is the type that Content-Type says",
        },
        Parameter {
            name: "size",
            kind: ParameterType::Number(1, 1_000_000_000_000),
            default: Some("100M"),
            meaning: "the longest body in bytes; longer ones are not kept",
        },
        Parameter {
            name: "files",
            kind: ParameterType::Number(1, 100_000_000),
            default: Some("10000"),
            meaning: "files at most",
        },
        Parameter {
            name: "bytes",
            kind: ParameterType::Number(1, 1_000_000_000_000_000),
            default: Some("1G"),
            meaning: "bytes of all files at most",
        },
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

/// The fate of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// A file of the same bytes is there.
    Again,
    /// Bytes are missing in it.
    Incomplete,
    OtherType,
    TooLong,
    NoRoom,
}

impl Fate {
    const ALL: [(Fate, &str); 6] = [
        (Fate::Kept, "files"),
        (Fate::Again, "again"),
        (Fate::Incomplete, "incomplete"),
        (Fate::OtherType, "other_type"),
        (Fate::TooLong, "too_long"),
        (Fate::NoRoom, "no_room"),
    ];
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
    line["end_ns"] = stream.time_ns.to_string().into();
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
    line["fate"] = Fate::ALL[body.fate as usize].1.into();
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
        let counts = Fate::ALL.iter().zip(self.bodies.counts).map(|((_, name), count)| (*name, count));
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
mod tests {
    use super::super::written::lines_of;
    use super::*;
    use crate::trial::Trial;
    use tapline_packet::{ClockReading, Meta, Timestamp};
    use tapline_testkit::frames::*;

    fn frame(is_client: bool, sequence: u32, flags: u8, text: &str) -> Vec<u8> {
        let (a, b) = (Host::number(1), Host::number(2));
        let (from, to) = if is_client { (&a, &b) } else { (&b, &a) };
        let (src, dst) = if is_client { (1024, 80) } else { (80, 1024) };
        let tcp = Tcp { src, dst, seq: sequence, flags, ..Tcp::default() };
        Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), text.as_bytes()))
    }

    /// A conversation whose answers come in pieces of 16 bytes, in pairs that are swapped.
    fn conversation(answers: &str) -> Vec<Vec<u8>> {
        let mut frames = vec![
            frame(true, 0, 0x02, ""),
            frame(false, 0, 0x12, ""),
            frame(true, 1, 0x10, "GET /../../etc/passwd HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ];
        let pieces: Vec<&str> =
            (0..answers.len()).step_by(16).map(|at| &answers[at..(at + 16).min(answers.len())]).collect();
        let piece = |(at, text): (usize, &&str)| frame(false, 1 + 16 * at as u32, 0x10, text);
        frames.extend(pieces.iter().enumerate().map(piece));
        frames[3..].chunks_mut(2).for_each(<[_]>::reverse);
        frames.push(frame(false, 1 + answers.len() as u32, 0x11, ""));
        frames
    }

    fn extracted(arguments: &str, answers: &str) -> (tempfile::TempDir, PathBuf, Trial) {
        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("bodies");
        let mut trial = Trial::of(&format!("s :: extract({to:?}{arguments})"));
        trial.push_frames(&conversation(answers));
        trial.finish();
        trial.assert_balanced();
        (folder, to, trial)
    }

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const ANSWERS: &str = "HTTP/1.1 200 OK\r\nContent-Type: Text/Plain; x\r\nContent-Length: 3\r\n\r\nabc\
        HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n0123456789";

    fn files(to: &std::path::Path) -> Vec<String> {
        let name =
            |entry: io::Result<fs::DirEntry>| entry.expect("a file").file_name().into_string().expect("text");
        let mut names: Vec<String> = fs::read_dir(to).expect("a folder").map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn bodies_are_kept_once_by_their_hash() {
        let (_folder, to, trial) = extracted("", ANSWERS);
        assert_eq!(fs::read(to.join(ABC)).expect("a body"), b"abc");
        let names = files(&to);
        assert_eq!(names.len(), 3, "two bodies and the index: {names:?}");
        assert_eq!(trial.numbers("s", None)[..2], [2, 1]);
        let index = lines_of(&to);
        let of = |at: usize, key: &str| index[at][key].clone();
        assert_eq!((of(0, "sha256"), of(1, "sha256")), (ABC.into(), ABC.into()));
        assert_eq!(
            (of(0, "fate"), of(1, "fate"), of(2, "fate")),
            ("files".into(), "again".into(), "files".into())
        );
        assert_eq!((of(0, "target"), of(0, "host")), ("/../../etc/passwd".into(), "a.example".into()));
        assert_eq!((of(0, "status"), of(2, "length")), (200.into(), 10.into()));
    }

    #[test]
    fn the_index_is_bounded_and_says_so() {
        let (_folder, to, trial) = extracted(", index=600", ANSWERS);
        let index = lines_of(&to);
        let numbers = trial.numbers("s", None);
        let not_indexed = numbers[numbers.len() - 3];
        assert_eq!(
            (index.len() as u64 - 1 + not_indexed, index.last()),
            (
                3,
                Some(&serde_json::json!({
                    "not_indexed": not_indexed,
                }))
            )
        );
        assert_eq!(trial.numbers("s", None)[..2], [2, 1], "bodies are kept all the same");
    }

    #[test]
    fn limits_hold_and_what_they_refuse_is_counted() {
        // Kept, again, incomplete, other type, too long, no room.
        for (arguments, expected) in [
            (", types=\"text/*\"", [1, 0, 0, 2, 0, 0]),
            (", types=\"text/plain\"", [1, 0, 0, 2, 0, 0]),
            (", types=\"text\"", [0, 0, 0, 3, 0, 0]),
            (", size=5", [1, 1, 0, 0, 1, 0]),
            (", files=1", [1, 0, 0, 0, 0, 2]),
            (", bytes=12", [1, 1, 0, 0, 0, 1]),
        ] {
            let (_folder, to, trial) = extracted(arguments, ANSWERS);
            assert_eq!(trial.numbers("s", None)[..6], expected, "{arguments}");
            assert!(files(&to).iter().all(|name| !name.starts_with("partial")), "{arguments}");
        }
    }

    fn bodies(to: &std::path::Path) -> Bodies {
        Bodies {
            folder: Folder::make(to, 1_000_000).expect("a folder"),
            types: Vec::new(),
            size_max: 1000,
            files_left: 10,
            bytes_left: 1000,
            made: 0,
            open: 0,
            counts: [0; Fate::ALL.len()],
            bytes: 0,
        }
    }

    /// Memory after a run of frames, before the end and after it, with the conversations given up.
    fn left(memory_max: usize, frames: &[Vec<u8>]) -> ([(usize, usize); 2], u64) {
        let folder = tempfile::tempdir().expect("there is room");
        let (mut bodies, mut failure) = (bodies(folder.path()), None);
        let mut talks = Talks { memory_max, ..Talks::default() };
        let mut reassembler = tapline_stream::Reassembler::new(tapline_stream::Limits::default());
        for frame in frames {
            let meta = crate::trial::whole(frame);
            let packet = tapline_packet::Packet { data: frame, meta: &meta };
            let headers = tapline_packet::headers::Headers::parse(tapline_packet::LinkType::ETHERNET, packet);
            let mut sink = Extract::sink((&mut talks, &mut bodies, &mut failure));
            reassembler.push(&headers, packet, &mut sink);
        }
        let before = (talks.known.len(), talks.memory);
        let mut sink = Extract::sink((&mut talks, &mut bodies, &mut failure));
        reassembler.finish(&mut sink);
        drop(sink);
        assert!(failure.is_none());
        ([before, (talks.known.len(), talks.memory)], talks.given_up)
    }

    #[test]
    fn connections_that_are_over_leave_nothing() {
        // A connection that is refused never sends a byte.
        let refused = [frame(true, 0, 0x02, ""), frame(false, 0, 0x14, "")];
        assert_eq!(left(1000, &refused), ([(0, 0), (0, 0)], 0));
        let mut whole = conversation(ANSWERS);
        whole.push(frame(true, 51, 0x11, ""));
        whole.push(frame(false, 2 + ANSWERS.len() as u32, 0x10, ""));
        assert_eq!(left(1000, &whole).0[1], (0, 0));
    }

    #[test]
    fn memory_of_heads_is_bounded() {
        let half = format!("GET /{} HTTP/1.1\r\nA: ", "a".repeat(600));
        let of = |port: u16| {
            let (a, b) = (Host::number(1), Host::number(2));
            let tcp = Tcp { src: port, dst: 80, flags: 0x10, ..Tcp::default() };
            Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), half.as_bytes()))
        };
        let ([(known, memory), after], given_up) =
            left(2500, &[of(1024), of(1025), of(1026), of(1027), of(1028)]);
        assert!(known == 5 && memory <= 2500 && given_up >= 1, "{memory} {given_up}");
        assert_eq!(after, (0, 0));
    }

    #[test]
    fn a_body_that_cannot_be_written_gets_no_name() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut bodies = bodies(folder.path());
        let mut body = bodies.begin(Head::default()).expect("a file");
        let full = File::options().write(true).open("/dev/full").expect("a device");
        body.file.as_mut().expect("it is open").1 = full;
        assert!(bodies.data(&mut body, b"lost").is_err());
        assert!(body.file.is_none() && body.fate == Fate::NoRoom && bodies.open == 0);
        assert_eq!(files(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_body_with_missing_bytes_is_not_kept() {
        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("bodies");
        let mut trial = Trial::of(&format!("s :: extract({to:?})"));
        let mut frames = conversation(
            "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789",
        );
        frames.remove(5);
        trial.push_frames(&frames);
        trial.finish();
        assert_eq!(trial.numbers("s", None)[..3], [0, 0, 1]);
        assert_eq!(files(&to), ["index.jsonl"]);
        assert_eq!(lines_of(&to)[0]["missing"], 16);
    }

    #[test]
    fn a_body_ends_at_the_time_of_a_packet() {
        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("bodies");
        let mut trial = Trial::of(&format!("s :: extract({to:?})"));
        let answers = "HTTP/1.0 200 OK\r\n\r\nBODY";
        let frames = conversation(answers);
        let last = frames.len() as i64 - 1;
        let at = |at: usize| Timestamp::from_nanos(1_700_000_000_000_000_000 + at as i64);
        let packets: Vec<(Vec<u8>, Meta)> = frames
            .into_iter()
            .enumerate()
            .map(|(index, frame)| {
                let meta = Meta { timestamp: at(index), ..crate::trial::whole(&frame) };
                (frame, meta)
            })
            .collect();
        trial.now = ClockReading::unset(Timestamp::from_nanos(1_800_000_000_000_000_000));
        trial.push_all(&packets, 256);
        trial.finish();
        let line = &lines_of(&to)[0];
        assert_eq!(line["end_ns"], (1_700_000_000_000_000_000 + last).to_string());
        assert_eq!((&line["target"], &line["fate"]), (&"/../../etc/passwd".into(), &"files".into()));
    }

    #[test]
    fn unknown_requests_are_null_and_others_counted() {
        let answers = "HTTP/1.1 200 OK\r\nX-A : b\r\nnone\r\nContent-Length: 3, 3\r\n\r\nabc\
            HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc";
        let (_folder, to, trial) = extracted("", answers);
        let index = lines_of(&to);
        assert_eq!((&index[0]["target"], &index[1]["target"]), (&"/../../etc/passwd".into(), &Value::Null));
        let numbers = trial.numbers("s", None);
        assert_eq!((index.len(), &numbers[numbers.len() - 2..]), (2, &[1, 1][..]));
    }
}
