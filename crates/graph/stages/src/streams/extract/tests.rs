//! Files out of made conversations.

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
    let mut frames =
        conversation("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n0123456789012345678901234567890123456789");
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
