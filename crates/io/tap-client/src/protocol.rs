//! The messages on the socket of `tapline serve`. docs/format/tap.md describes them for other languages.
//!
//! ```text
//! client   {"hello": {...}}     {"attach": {...}}                   {"filter": {...}} or {"program": {...}}   {"status": {}}   {"detach": {}}
//! daemon   {"hello": {...}}     {"attached": {...}} {"buffer": n}*  {"filtered": {}}                          {"status": ...}  {"detached": {...}}
//!          {"error": "text"}    to any of them
//! ```
//!
//! Each request has one reply, in order. `attached` is followed by one `buffer` message for each of its buffers, with
//! three descriptors each. Unknown fields are ignored, so that both ends may be of different ages; another [`VERSION`]
//! is refused.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use tapline_packet::{Interface, LinkType};
use tapline_ring::Account;

use crate::group::GroupRequest;

/// A text of a daemon, safe for a terminal: a control character, or one that changes the direction of writing, becomes
/// a question mark, and white space a space.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from)
        .map(|text| printable(&text, |letter| if letter.is_whitespace() { ' ' } else { '?' }))
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    Ok(texts
        .iter()
        .map(|text| printable(text, |letter| if letter.is_whitespace() { ' ' } else { '?' }))
        .collect())
}

/// Cleans a text of several lines: an error may point at a place in a filter.
fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| printable_lines(&text))
}

/// A text of another process, safe for a terminal, in which lines remain lines.
pub(crate) fn printable_lines(text: &str) -> String {
    printable(text, |letter| if letter == '\n' { '\n' } else { '?' })
}

fn printable(text: &str, replacement: impl Fn(char) -> char) -> String {
    let commands = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|letter| if commands(letter) { replacement(letter) } else { letter }).collect()
}

/// The protocol's version, which both ends must have in common.
pub const VERSION: u32 = 1;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The program's name and version; the first request.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Name of the program for users.
        program: String,
    },
    /// Requests a reader of a capture. One reader for each connection.
    Attach(AttachRequest),
    /// Changes the reader's filter, from the next batch on.
    Filter {
        /// The filter, in the pcap-filter language; empty for all packets.
        text: String,
    },
    /// Changes the reader's filter to a program of classic BPF, from the next batch on.
    Program {
        /// Instructions: `struct sock_filter` of linux/filter.h as code, jt, jf, k. At most 4096, and none for all
        /// packets.
        insns: Vec<(u16, u8, u8, u32)>,
    },
    /// Ends the reading. Packets offered before can still be read.
    Detach {},
    /// Pauses a capture, or has it go on, for all of its readers.
    Control {
        /// The capture's name.
        capture: String,
        /// The change of its state.
        action: ControlAction,
    },
    /// Requests the state of the daemon.
    Status {},
    /// Requests interfaces of a capture, some of which appeared after the reader attached.
    Interfaces {
        /// The capture's name.
        capture: String,
        /// The number of the first.
        from: u32,
    },
    /// To search the recording of a capture.
    Find(FindRequest),
}

/// A change of a capture's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// From running to paused: no packet is captured.
    Pause,
    /// From paused to running.
    Resume,
}

/// A search of a recorded capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FindRequest {
    /// The capture's name; empty where `store` says which recording is meant.
    pub capture: String,
    /// The directory of the recording, as the daemon's rules have it, if `capture` is empty.
    pub store: String,
    /// In the pcap-filter language; empty for all packets that the rules let the client see.
    pub filter: String,
    /// The first moment, nanoseconds since 1970; none for no bound.
    pub from_ns: Option<i64>,
    /// The first moment after the last; none for no bound.
    pub to_ns: Option<i64>,
}

/// The properties of a new reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachRequest {
    /// The capture's name.
    pub capture: String,
    /// The filter, in the pcap-filter language; empty for all packets that the reader may see.
    pub filter: String,
    /// The policy for a reader that is too slow.
    pub policy: Policy,
    /// The first packet.
    pub start: StartPosition,
    /// Packets that can wait for it: a power of two, 16 to 2^24.
    pub entries: u32,
    /// Milliseconds, 0 to 100 ([`DELAY_MAX`]), for which the daemon may collect packets before they can be read: with
    /// more of them at a time it wakes up less often.
    pub delay_ms: u32,
    /// The group whose share of the packets it reads; none for all packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupRequest>,
    /// Filters that label packets: a packet's label is the number, from 1, of the first of them that accepts it, and
    /// 0 if none does. At most [`LABELS_MAX`], and 8,192 bytes together. They label packets that `filter` accepts,
    /// and let no more through.
    pub labels: Vec<String>,
}

/// The most labels of a reader.
pub const LABELS_MAX: usize = 255;

/// The longest delay at the daemon, whatever delay was asked for.
pub const DELAY_MAX: Duration = Duration::from_millis(100);

impl AttachRequest {
    /// The delay at the daemon, bounded by [`DELAY_MAX`].
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.into()).min(DELAY_MAX)
    }
}

impl Default for AttachRequest {
    fn default() -> AttachRequest {
        AttachRequest {
            capture: String::new(),
            filter: String::new(),
            policy: Policy::default(),
            start: StartPosition::default(),
            entries: 1 << 16,
            delay_ms: 0,
            group: None,
            labels: Vec::new(),
        }
    }
}

/// The policy for a reader that is too slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The reader loses packets.
    #[default]
    Lossy,
    /// Unread packets are kept within a credit.
    Leased {
        /// Bytes of the buffer that it may lag behind.
        bytes: u64,
        /// Milliseconds for which a packet may be unread.
        ms: u64,
    },
    /// All wait for it.
    Lossless,
}

impl Policy {
    /// A word for it, as rules have it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Lossy => "lossy",
            Policy::Leased { .. } => "leased",
            Policy::Lossless => "lossless",
        }
    }
}

/// A reader's first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPosition {
    /// The next one.
    #[default]
    Newest,
    /// The oldest that the buffer holds.
    Oldest,
    /// The oldest that the buffer holds of the last milliseconds given.
    SinceMs(u64),
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The captures that there are.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Captures that this client may read.
        captures: Vec<OfferedCapture>,
    },
    /// The answer to [`Request::Attach`].
    Attached(AttachedReader),
    /// One of its buffers, with three descriptors: packets, index, bell.
    Buffer(u32),
    /// The filter is another one.
    Filtered {},
    /// The answer to [`Request::Detach`].
    Detached {
        /// The fate of its packets, as far as the daemon knows.
        account: ReaderCounts,
    },
    /// The answer to [`Request::Control`].
    Controlled {},
    /// The state of the daemon.
    Status(Status),
    /// The answer to [`Request::Interfaces`].
    Interfaces {
        /// The number of the first.
        from: u32,
        /// As many as a message holds; none if there are no more.
        list: Vec<OfferedInterface>,
    },
    /// The search runs, with the capture as the client may see it. A descriptor comes along: a pipe with the answer, a
    /// pcapng file, which ends within a block if it is not whole.
    Found(OfferedCapture),
    /// A request was refused: the reason, and the remedy.
    Error(#[serde(deserialize_with = "lines")] String),
}

/// A capture that can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferedCapture {
    /// Name of the capture: `-i tap:NAME`.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Interfaces of the capture, by the numbers in packets.
    pub interfaces: Vec<OfferedInterface>,
    /// The filter that is forced upon this client; empty for none.
    #[serde(deserialize_with = "text")]
    pub forced_filter: String,
    /// Bytes that it sees of each packet.
    pub snap_len: u32,
}

/// An interface of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferedInterface {
    /// Name of the interface on the host.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// A description for people.
    #[serde(deserialize_with = "text")]
    pub description: String,
    /// LINKTYPE registry.
    pub link_type: u16,
    /// The kernel's number of it.
    pub if_index: u32,
    /// Bits a second, if known.
    pub speed: Option<u64>,
    /// Bytes of frame check sequence at the end of each packet, if known.
    pub fcs_len: Option<u8>,
}

impl From<&Interface> for OfferedInterface {
    fn from(interface: &Interface) -> OfferedInterface {
        OfferedInterface {
            name: interface.name.clone(),
            description: interface.description.clone(),
            link_type: interface.link_type.0,
            if_index: interface.if_index,
            speed: interface.speed,
            fcs_len: interface.fcs_len,
        }
    }
}

impl OfferedInterface {
    /// As a source has it.
    pub fn interface(&self, snap_len: u32, filter: &str) -> Interface {
        Interface {
            description: self.description.clone(),
            snap_len,
            if_index: self.if_index,
            speed: self.speed,
            fcs_len: self.fcs_len,
            filter: filter.to_owned(),
            ..Interface::new(&self.name, LinkType(self.link_type))
        }
    }
}

/// A reader that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachedReader {
    /// Number of the reader at the daemon.
    pub reader: u64,
    /// Number of buffers that it reads, one for each worker.
    pub buffers: u32,
    /// The capture that it reads.
    pub offer: OfferedCapture,
    /// The group that it has joined; empty without one.
    #[serde(deserialize_with = "text")]
    pub group: String,
    /// The most interfaces of a capture; 0 from a daemon that does not answer [`Request::Interfaces`].
    pub interfaces_max: u32,
}

/// The most interfaces of a capture: the last number is for packets of all interfaces that have no other.
pub const INTERFACES_MAX: usize = 1 << 16;

/// The fate of a reader's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaderCounts {
    /// Meant for it.
    pub offered: u64,
    /// Packets that the reader is done with, by its own count.
    pub delivered: u64,
    /// The index was full.
    pub index_full: u64,
    /// The packets were gone before the reader came to them.
    pub overwritten: u64,
    /// The packets made no sense.
    pub damaged: u64,
    /// Packets that the reader has not come to.
    pub unread: u64,
}

impl From<Account> for ReaderCounts {
    fn from(account: Account) -> ReaderCounts {
        let Account { offered, delivered, lost, .. } = account;
        ReaderCounts {
            offered,
            delivered,
            index_full: lost.index_full,
            overwritten: lost.overwritten,
            damaged: lost.damaged,
            unread: lost.unread,
        }
    }
}

impl ReaderCounts {
    /// Packets that it will never get.
    pub fn lost(&self) -> u64 {
        self.index_full.saturating_add(self.overwritten).saturating_add(self.damaged)
    }

    /// Adds the counts of another buffer. A dishonest daemon may report any number.
    pub fn merge(&mut self, other: &ReaderCounts) {
        for (sum, count) in [
            (&mut self.offered, other.offered),
            (&mut self.delivered, other.delivered),
            (&mut self.index_full, other.index_full),
            (&mut self.overwritten, other.overwritten),
            (&mut self.damaged, other.damaged),
            (&mut self.unread, other.unread),
        ] {
            *sum = sum.saturating_add(count);
        }
    }
}

/// The state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Seconds since it started.
    pub seconds: u64,
    /// Captures, as far as the client may see them.
    pub captures: Vec<CaptureStatus>,
    /// Connections that were ended because they did not keep to the protocol, and requests that the rules refused.
    pub refused: u64,
    /// Users whose readers have memory of the daemon, as far as the client may know of them; root and the owner of the
    /// daemon are not among them.
    pub users: Vec<UserStatus>,
}

/// The memory of a user's readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserStatus {
    /// The user's number.
    pub uid: u32,
    /// Memory of the daemon in bytes: indices of readers, and buffers that were made for them.
    pub memory: u64,
    /// The most that the rules allow, in bytes.
    pub memory_max: u64,
}

/// The status of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureStatus {
    /// Name of the capture.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Names of its interfaces.
    #[serde(deserialize_with = "texts")]
    pub interfaces: Vec<String>,
    /// Interfaces that do not fit into that list.
    pub interfaces_left_out: u64,
    /// Interfaces that share the last number, as all others are taken.
    pub interfaces_unnamed: u64,
    /// Packets lent by its sources.
    pub packets: u64,
    /// Captured bytes of the packets.
    pub bytes: u64,
    /// Packets that no reader selected.
    pub unwanted: u64,
    /// Whether the capture is paused.
    pub is_paused: bool,
    /// The unwanted packets during pauses.
    pub paused: u64,
    /// Fragments that groups gave out by their addresses, as their first fragment was not known.
    pub fragments_apart: u64,
    /// Packets lost before they came to the daemon, as far as is known.
    pub lost_before: u64,
    /// The `rx_dropped` of interfaces: frames for which the host had no use (they were captured all the same), or for
    /// which an adapter's ring was full.
    pub rx_dropped: u64,
    /// Interfaces of the capture's rule that could not be captured for a second or longer. Their packets are not counted.
    pub uncaptured: u64,
    /// Such failures that are over: the interface is captured by now, or was removed. One interface may have several.
    pub uncaptured_before: u64,
    /// Packets stored, in all buffers: packets for readers of different rights are stored for each.
    pub stored: u64,
    /// Packets that found no block.
    pub not_stored: u64,
    /// Processor time of its threads in nanoseconds.
    pub cpu_ns: u64,
    /// Instructions of the program in the kernel that lets only packets through that a reader or the history needs;
    /// none if all come.
    pub kernel_insns: Option<u32>,
    /// The lossless reader for which the capture waits now. Its loss counters are those of the start of the wait.
    pub waits_for: Option<u64>,
    /// For how long it has, in milliseconds.
    pub waits_ms: u64,
    /// The rules withhold something from the client: packets, bytes and stored sums are of readers with the same
    /// rights, and other values that depend on other readers are left out.
    pub is_restricted: bool,
    /// Stores that it is recorded to; shown to root and the owner of the daemon.
    pub recordings: Vec<RecordingStatus>,
    /// Readers of the capture, as far as the client may see them.
    pub readers: Vec<ReaderStatus>,
    /// Readers that do not fit into the list: it has at most 96 KiB, with a share for each user.
    pub readers_left_out: u64,
}

/// The state of a recording of the daemon, a second old at most. Packets lost before they came to the recorder are in
/// the counts of its reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingStatus {
    /// The directory of the store.
    #[serde(deserialize_with = "text")]
    pub store: String,
    /// Packets in the store.
    pub written: u64,
    /// Packets that could not be written.
    pub lost: u64,
    /// Packets beyond the cut-off of their flow.
    pub cut: u64,
    /// Packets that wait to be written.
    pub buffered: u64,
    /// The error that ended the recording; empty while it goes on.
    #[serde(deserialize_with = "text")]
    pub error: String,
}

/// The status of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaderStatus {
    /// Number of the reader.
    pub number: u64,
    /// Process identifier of the reader.
    pub pid: u32,
    /// User of the reader.
    pub uid: u32,
    /// The program's name, by its own word.
    #[serde(deserialize_with = "text")]
    pub program: String,
    /// The filter that it chose.
    #[serde(deserialize_with = "text")]
    pub filter: String,
    /// Policy of the reader, and changes of it: `leased`, `lossy: used its credit up`.
    #[serde(deserialize_with = "text")]
    pub standing: String,
    /// The fate of its packets.
    pub counts: ReaderCounts,
    /// Number of times that it was woken.
    pub wakes: u64,
    /// Stored packets that are still to be looked at for it, as it began in the past.
    pub past: u64,
    /// The group whose packets it shares.
    pub group: Option<GroupRequest>,
}
