//! `streams`: the bytes of TCP streams, as files or lines.
//!
//! ```text
//! to=-          a line for each piece, gap and end
//! to=DIRECTORY  000007.client, 000007.server      bytes of the two directions of connection 7, gaps left out
//!               index.jsonl                       a line for each stream that ended: addresses, length, gaps, end
//! ```

use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};

use base64::Engine as _;
use serde_json::{Value, json};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Parameter, ParameterType, Property, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageStatus, Table, TickContext};
use tapline_source::Error;
use tapline_stream::{Event, Stream};

use super::super::folder::{Folder, appending};
use super::{IDLE, INDEX, MEMORY, PATIENCE, ROOM, STREAM_MEMORY, Streams, table};

pub(crate) const CLASS: StageClass = StageClass {
    name: "streams",
    summary: "the bytes of TCP streams, as files or lines",
    description: "A stream has the bytes that one end of a connection sent, put in order as by `reassemble`. In a directory each has a file, \
        named by the number of its connection (as \
        tshark's tcp.stream) and by client or server; index.jsonl has a line for each that ended, with its gaps, which the file leaves out. On standard output each piece, gap and end is a line: \
        text with its unprintable characters as dots, or JSON with the bytes in base64. All packets are passed on. The result has every byte, \
        and those that `bytes` left no room for.",
    parameters: &[
        Parameter::new("to", ParameterType::Text, "-")
            .means("the directory, made if it does not exist; - is standard output"),
        Parameter::new("form", ParameterType::Choice(&["text", "json"]), "text")
            .means("format of the lines on standard output"),
        Parameter::new("bytes", ParameterType::Number(1, 1_000_000_000_000_000), "1G")
            .means("bytes of streams that are written to the directory at most; further bytes are counted"),
        Parameter::new("files", ParameterType::Number(1, 100_000_000), "100000")
            .means("files of streams at most"),
        INDEX,
        ROOM,
        MEMORY,
        STREAM_MEMORY,
        PATIENCE,
        IDLE,
    ],
    order: Order::Flow,
    example: "device(eth0) -> filter(\"tcp port 25\") -> streams(\"mail\")",
    properties: &[Property::External],
    access: |arguments, access| match arguments.text("to") {
        "-" => {}
        to => access.makes_folder(to),
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// Files of streams that are open at a time.
const OPEN_MAX: usize = 256;
/// Gaps of a stream that its line names.
const GAPS_NAMED: usize = 100;

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let to = match (arguments.text("to"), arguments.text("form")) {
        ("-", "json") => To::Lines { is_json: true, lines: Vec::new() },
        ("-", _) => To::Lines { is_json: false, lines: Vec::new() },
        _ if site.common.workers > 1 => {
            return Err("several workers cannot number streams alike: leave --workers out".to_owned());
        }
        (folder, _) => To::Files(Files {
            folder: Folder::make(&site.common.path(folder), arguments.number("index"))?,
            room: (arguments.number("bytes"), arguments.number("files")),
            open: HashMap::new(),
            known: HashMap::new(),
        }),
    };
    Ok(Box::new(Written { streams: Streams::new(arguments), to, not_written: 0, failure: None }))
}

struct Written {
    streams: Streams,
    to: To,
    /// Bytes without room.
    not_written: u64,
    failure: Option<Error>,
}

enum To {
    Lines { is_json: bool, lines: Vec<u8> },
    Files(Files),
}

struct Files {
    folder: Folder,
    /// Bytes and files that may still be written.
    room: (u64, u64),
    open: HashMap<(u64, bool), File>,
    /// Streams that have not ended.
    known: HashMap<(u64, bool), Known>,
}

#[derive(Default)]
struct Known {
    written: u64,
    not_written: u64,
    missing: u64,
    gaps: Vec<(u64, u64)>,
    has_file: bool,
}

fn side(stream: &Stream) -> &'static str {
    if stream.is_from_client { "client" } else { "server" }
}

impl Files {
    /// Returns bytes for which the file was full.
    fn take(&mut self, stream: &Stream, event: Event<'_>) -> io::Result<u64> {
        let key = (stream.connection, stream.is_from_client);
        match event {
            Event::Segment(piece) if piece.len > 0 => self.write(stream, key, piece.bytes()),
            Event::Segment(_) | Event::Forgotten => Ok(0),
            Event::Gap { len, .. } => {
                let known = self.known.entry(key).or_default();
                known.missing += len;
                if known.gaps.len() < GAPS_NAMED {
                    known.gaps.push((stream.offset, len));
                }
                Ok(0)
            }
            Event::End(cause) => {
                self.open.remove(&key);
                let known = self.known.remove(&key).unwrap_or_default();
                let mut line = description(stream);
                line["bytes"] = known.written.into();
                line["not_written"] = known.not_written.into();
                line["missing"] = known.missing.into();
                let gap = |(offset, length): &(u64, u64)| json!({"offset": offset, "length": length});
                line["gaps"] = known.gaps.iter().map(gap).collect();
                line["end"] = cause.name().into();
                if known.has_file {
                    line["file"] = file_name(stream).into();
                }
                self.folder.log(&line).map(|()| 0)
            }
        }
    }

    fn write(&mut self, stream: &Stream, key: (u64, bool), bytes: &[u8]) -> io::Result<u64> {
        let known = self.known.entry(key).or_default();
        let len = bytes.len() as u64;
        let is_new = !known.has_file;
        if len > self.room.0 || (is_new && self.room.1 == 0) {
            known.not_written += len;
            return Ok(len);
        }
        if !self.open.contains_key(&key) {
            if self.open.len() == OPEN_MAX {
                self.open.clear();
            }
            let path = self.folder.path(&file_name(stream));
            self.open.insert(
                key,
                if is_new { self.folder.create(&file_name(stream))? } else { appending(&path)? },
            );
        }
        (known.has_file, self.room.1) = (true, self.room.1 - u64::from(is_new));
        if let Some(file) = self.open.get_mut(&key) {
            file.write_all(bytes)?;
        }
        known.written += len;
        self.room.0 -= len;
        Ok(0)
    }
}

/// A name of numbers and a word: no part of it comes from the wire.
fn file_name(stream: &Stream) -> String {
    format!("{:06}.{}", stream.connection, side(stream))
}

/// A stream's names in JSON.
pub(super) fn description(stream: &Stream) -> Value {
    let tuple = stream.tuple;
    json!({
        "connection": stream.connection,
        "from": side(stream),
        "src": tuple.src.to_string(),
        "src_port": tuple.src_port,
        "dst": tuple.dst.to_string(),
        "dst_port": tuple.dst_port,
        "has_beginning": stream.has_syn,
    })
}

/// Appends an event as a line.
fn line(is_json: bool, stream: &Stream, event: &Event<'_>, lines: &mut Vec<u8>) {
    let says_nothing = match event {
        Event::Segment(piece) => piece.len == 0,
        other => matches!(other, Event::Forgotten),
    };
    if says_nothing {
        return;
    }
    if is_json {
        let mut line = description(stream);
        line["offset"] = stream.offset.into();
        match event {
            Event::Segment(piece) => {
                line["data"] = base64::engine::general_purpose::STANDARD.encode(piece.bytes()).into();
            }
            Event::Gap { len, cause } => line["gap"] = json!({"length": len, "cause": cause.name()}),
            Event::End(cause) => line["end"] = cause.name().into(),
            Event::Forgotten => {}
        }
        let _ = serde_json::to_writer(&mut *lines, &line);
        lines.push(b'\n');
        return;
    }
    let Stream { connection, tuple, offset, .. } = stream;
    let ends = format!("{}.{} > {}.{}", tuple.src, tuple.src_port, tuple.dst, tuple.dst_port);
    let _ = write!(lines, "stream {connection} {ends} at {offset}: ");
    let _ = match event {
        Event::Segment(piece) => writeln!(lines, "{} bytes\n{}", piece.len, printable(piece.bytes())),
        Event::Gap { len, cause } => writeln!(lines, "{len} bytes missing, {}", cause.name()),
        Event::End(cause) => writeln!(lines, "end, {}", cause.name()),
        Event::Forgotten => Ok(()),
    };
}

/// Lines that begin with a tab, with dots for bytes that are not printable ASCII.
fn printable(bytes: &[u8]) -> String {
    let text = bytes.trim_ascii_end().split(|byte| *byte == b'\n');
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    let line = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        std::iter::once('\t').chain(line.iter().map(shown)).collect::<String>()
    };
    text.map(line).collect::<Vec<_>>().join("\n")
}

impl Written {
    fn take<'a>(
        (to, not_written, failure): (&'a mut To, &'a mut u64, &'a mut Option<Error>),
    ) -> impl FnMut(&Stream, Event<'_>) + 'a {
        move |stream, event| match to {
            To::Lines { is_json, lines } => line(*is_json, stream, &event, lines),
            To::Files(files) => match files.take(stream, event) {
                Ok(len) => *not_written += len,
                Err(error) => {
                    failure.get_or_insert(Error::output(&files.folder.name(), error));
                }
            },
        }
    }

    /// Writes the lines of a batch, and gives the first failure.
    fn complete(&mut self) -> Result<(), Error> {
        if let To::Lines { lines, .. } = &mut self.to {
            let written = io::stdout().lock().write_all(lines);
            lines.clear();
            if let Err(error) = written {
                self.failure.get_or_insert(Error::output("standard output", error));
            }
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Stage for Written {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let Written { streams, to, not_written, failure } = self;
        streams.push(packets, Written::take((to, not_written, failure)));
        self.complete().and(out.pass(packets))
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        let Written { streams, to, not_written, failure } = self;
        streams.tick(tick, Written::take((to, not_written, failure)));
        self.complete().map(|()| StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let Written { streams, to, not_written, failure } = self;
        streams.reassembler.finish(&mut Written::take((to, not_written, failure)));
        if let To::Files(files) = to
            && let Err(error) = files.folder.end()
        {
            failure.get_or_insert(Error::output(&files.folder.name(), error));
        }
        self.complete()
    }

    fn result(&self) -> Option<Table> {
        let mut table = table(&self.streams.account());
        let not_indexed = if let To::Files(files) = &self.to { files.folder.not_indexed() } else { 0 };
        table.add("not_indexed", not_indexed.into());
        table.add("not_written", self.not_written.into());
        Some(table)
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Written>() {
            self.streams.merge(&other.streams);
            self.not_written += other.not_written;
        }
    }
}

/// The lines of an index, for tests.
#[cfg(test)]
pub(super) fn lines_of(folder: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("index.jsonl")).expect("an index");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::trial::Trial;
    use tapline_testkit::frames::*;

    fn frame(sequence: u32, flags: u8, text: &str) -> Vec<u8> {
        let (a, b) = (Host::number(1), Host::number(2));
        let tcp = Tcp { src: 1024, dst: 80, seq: sequence, flags, ..Tcp::default() };
        Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), text.as_bytes()))
    }

    fn written(arguments: &str, frames: &[Vec<u8>]) -> (tempfile::TempDir, PathBuf, Trial) {
        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("streams");
        let mut trial = Trial::of(&format!("s :: streams({to:?}{arguments})"));
        trial.push_frames(frames);
        trial.finish();
        trial.assert_balanced();
        assert_eq!(trial.data().len(), frames.len(), "all packets go on");
        (folder, to, trial)
    }

    #[test]
    fn files_have_the_bytes_and_the_index_the_gaps() {
        let frames =
            [frame(6, 0x10, "ghi"), frame(12, 0x11, "mno"), frame(9, 0x10, "jkl"), frame(20, 0x10, "x")];
        let (_folder, to, _) = written("", &frames[..2]);
        assert_eq!(std::fs::read(to.join("000000.client")).expect("a file"), b"ghimno");
        let index = lines_of(&to);
        assert_eq!(index.len(), 1);
        assert_eq!(index[0]["gaps"], json!([{"offset": 3, "length": 3}]));
        assert_eq!((&index[0]["end"], &index[0]["file"]), (&json!("fin"), &json!("000000.client")));
        let (_folder, to, _) = written("", &frames);
        assert_eq!(std::fs::read(to.join("000000.client")).expect("a file"), b"ghijklmno");
    }

    #[test]
    fn bytes_beyond_the_room_are_counted() {
        let frames = [frame(0, 0x10, "abc"), frame(3, 0x10, "defg"), frame(7, 0x11, "hi")];
        let (_folder, to, trial) = written(", bytes=5", &frames);
        assert_eq!(std::fs::read(to.join("000000.client")).expect("a file"), b"abchi");
        assert_eq!(trial.numbers("s", None).last(), Some(&4));
        assert_eq!(lines_of(&to)[0]["not_written"], 4);
        let (_folder, to, trial) = written(", files=1", &[frame(0, 0x10, "abc")]);
        assert!(to.join("000000.client").exists());
        assert_eq!(trial.numbers("s", None).last(), Some(&0));
    }

    #[test]
    fn the_index_is_bounded_and_says_so() {
        let of = |port: u16| {
            let (a, b) = (Host::number(1), Host::number(2));
            let tcp = Tcp { src: port, dst: 80, flags: 0x02, ..Tcp::default() };
            Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), b""))
        };
        let frames: Vec<_> = (1000..1100).map(of).collect();
        let (_folder, to, trial) = written(", index=2000", &frames);
        let size = std::fs::metadata(to.join("index.jsonl")).expect("an index").len();
        let index = lines_of(&to);
        let numbers = trial.numbers("s", None);
        let not_indexed = numbers[numbers.len() - 2];
        assert!(size < 2100 && not_indexed > 80, "{size} {not_indexed}");
        assert_eq!(index.last(), Some(&json!({ "not_indexed": not_indexed })));
        assert_eq!(index.len() as u64 - 1 + not_indexed, 100);
    }

    #[test]
    fn unprintable_bytes_are_dots() {
        assert_eq!(printable(b"GET / HTTP/1.1\r\nA: \x1b[31m\r\n\r\n"), "\tGET / HTTP/1.1\n\tA: .[31m");
    }
}
