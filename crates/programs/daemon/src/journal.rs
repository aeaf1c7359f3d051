//! Entries with fields for systemd's journal: `journalctl CAPTURE=office`, and their texts in contrib/systemd/tapline.catalog.
//!
//! ```text
//! stderr is the journal's (JOURNAL_STREAM) --> datagram: MESSAGE, PRIORITY, MESSAGE_ID, CAPTURE, INTERFACE, PLACE, PACKETS
//!            \-- else, or if the journal takes none --> the message as a line of the log
//! ```
//!
//! The datagram is that of <https://systemd.io/JOURNAL_NATIVE_PROTOCOL>: a field a line, and the length before values of
//! several lines.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The variable that names device and inode of a stream that goes to the journal.
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

/// Kind of an entry; each has a fixed number, by which the catalogue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The daemon serves.
    Serving,
    /// Packets were lost.
    Loss,
    /// A recording has ended by an error.
    RecordingEnded,
}

impl EntryKind {
    /// The `MESSAGE_ID`.
    pub fn id(self) -> &'static str {
        match self {
            EntryKind::Serving => "5566df13934d44cab811383dc1790f70",
            EntryKind::Loss => "e9a0456648da499b850d6e38ed247893",
            EntryKind::RecordingEnded => "071ccb2c12fa432eb5846f8677cab6fc",
        }
    }

    /// The priority, as in syslog(3).
    fn priority(self) -> u8 {
        match self {
            EntryKind::Serving => 6,
            EntryKind::Loss => 4,
            EntryKind::RecordingEnded => 3,
        }
    }
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// The line.
    pub message: String,
    /// Further fields: names in capitals, and values.
    pub fields: Vec<(&'static str, String)>,
}

impl JournalEntry {
    fn datagram(&self) -> Vec<u8> {
        let priority = self.kind.priority().to_string();
        let own = [
            ("MESSAGE", self.message.as_str()),
            ("PRIORITY", &priority),
            ("MESSAGE_ID", self.kind.id()),
            ("SYSLOG_IDENTIFIER", "tapline"),
        ];
        let further = self.fields.iter().map(|(name, value)| (*name, value.as_str()));
        let mut bytes = Vec::new();
        for (name, value) in own.into_iter().chain(further) {
            bytes.extend(name.bytes());
            if value.contains('\n') {
                bytes.push(b'\n');
                bytes.extend((value.len() as u64).to_le_bytes());
            } else {
                bytes.push(b'=');
            }
            bytes.extend(value.bytes());
            bytes.push(b'\n');
        }
        bytes
    }
}

#[derive(Debug)]
pub(crate) struct Journal(UnixDatagram);

impl Journal {
    /// The journal that standard error goes to; `None` if it goes elsewhere.
    pub(crate) fn of_standard_error() -> Option<Journal> {
        let about = fs::metadata("/proc/self/fd/2").ok()?;
        let is_ours =
            env::var(STREAM_VARIABLE).is_ok_and(|stream| is_stream(&stream, about.dev(), about.ino()));
        if is_ours { Journal::connect(Path::new(SOCKET)).ok() } else { None }
    }

    fn connect(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // A journal that is stopped keeps no thread waiting.
        socket.set_nonblocking(true)?;
        Ok(Journal(socket))
    }

    /// Whether the journal took the entry.
    pub(crate) fn takes(&self, entry: &JournalEntry) -> bool {
        self.0.send(&entry.datagram()).is_ok()
    }
}

/// Whether device and inode are those of the variable.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    let numbers = stream.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    numbers == Some((Ok(device), Ok(inode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> JournalEntry {
        JournalEntry {
            kind: EntryKind::Loss,
            message: "office: 5 packets lost".into(),
            fields: vec![("CAPTURE", "office".into()), ("NOTE", "a\nb".into())],
        }
    }

    #[test]
    fn an_entry_arrives_with_its_fields() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        assert!(Journal::connect(&path).expect("it is there").takes(&entry()));
        let mut bytes = [0; 1000];
        let len = socket.recv(&mut bytes).expect("a datagram");
        let expected = format!(
            "MESSAGE=office: 5 packets lost\nPRIORITY=4\nMESSAGE_ID={}\nSYSLOG_IDENTIFIER=tapline\nCAPTURE=office\nNOTE\n\u{3}\0\0\0\0\0\0\0a\nb\n",
            EntryKind::Loss.id()
        );
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), expected);
    }

    #[test]
    fn a_full_journal_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let _socket = UnixDatagram::bind(&path).expect("a socket");
        let journal = Journal::connect(&path).expect("it is there");
        assert!((0..100_000).any(|_| !journal.takes(&entry())), "a queue without end");
    }

    #[test]
    fn other_streams_are_none_of_the_journal() {
        assert!(is_stream("8:12345", 8, 12345));
        assert!(!is_stream("8:12345", 8, 1) && !is_stream("8", 8, 8) && !is_stream("", 0, 0));
    }

    #[test]
    fn the_catalogue_has_every_kind() {
        let catalogue = include_str!("../../../../contrib/systemd/tapline.catalog");
        for kind in [EntryKind::Serving, EntryKind::Loss, EntryKind::RecordingEnded] {
            assert!(catalogue.contains(&format!("-- {}\n", kind.id())), "{kind:?}");
        }
    }
}
