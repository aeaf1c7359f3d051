//! What flows are asked for besides packets, bytes and times.
//!
//! ```text
//! --template default,tcp,tls  -->  DetailFields  -->  DetailTable: a column a group, an entry a flow  --flow ends-->  Details
//!                                                        Notes: texts, in blocks of 64 bytes that all flows share
//!                                                        Buffers: first bytes of TCP streams that came in pieces
//! ```
//!
//! Who asks for nothing pays nothing: packets are looked at here only if a group is asked for. All memory is reserved when the meter is made; what finds
//! no room is counted, and the flow goes without.

mod application;
mod bytes;
mod dns;
mod dtls;
mod gaps;
mod hello;
mod http;
mod notes;
mod quic;
mod sizes;
mod stream;
mod talk;
mod tcp;

pub use application::Application;
pub use gaps::Gaps;
pub use sizes::{SIZES, SizeCounts};
pub use talk::{Dns, DnsAnswer, Http, Tls};
pub use tcp::{Tcp, TcpSide};

use crate::Error;
use crate::packet::{Inside, Seen};
use talk::Talks;
use tcp::Connection;

/// The most bytes of payload that are kept of each side.
pub const PAYLOAD_MAX: u16 = 512;

/// What flows are asked for besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DetailFields {
    /// Times of the handshake, retransmissions, packets out of order, zero windows, segment size and window scale.
    pub tcp: bool,
    /// Packets by size.
    pub sizes: bool,
    /// Times between packets.
    pub gaps: bool,
    /// First question and its answer.
    pub dns: bool,
    /// Server name, version, protocol and fingerprints of the hello.
    pub tls: bool,
    /// The first request and the status of its answer.
    pub http: bool,
    /// The application, by what it says and by its port.
    pub application: bool,
    /// The first bytes of each side.
    pub payload: bool,
}

/// Each group by its word.
const GROUPS: [(&str, Group); 8] = [
    ("tcp", |fields| &mut fields.tcp),
    ("sizes", |fields| &mut fields.sizes),
    ("gaps", |fields| &mut fields.gaps),
    ("dns", |fields| &mut fields.dns),
    ("tls", |fields| &mut fields.tls),
    ("http", |fields| &mut fields.http),
    ("application", |fields| &mut fields.application),
    ("payload", |fields| &mut fields.payload),
];

type Group = fn(&mut DetailFields) -> &mut bool;

impl DetailFields {
    /// Nothing besides.
    pub const NONE: DetailFields = DetailFields {
        tcp: false,
        sizes: false,
        gaps: false,
        dns: false,
        tls: false,
        http: false,
        application: false,
        payload: false,
    };

    /// The group of a word.
    pub fn of_word(word: &str) -> Option<DetailFields> {
        let (_, group) = GROUPS.iter().find(|(known, _)| *known == word)?;
        let mut fields = DetailFields::NONE;
        *group(&mut fields) = true;
        Some(fields)
    }

    /// Words with commas between them; `none` and an empty text are none, `all` is all of them.
    ///
    /// # Errors
    /// [`Error::Detail`] for a word that means no group.
    pub fn parse(text: &str) -> Result<DetailFields, Error> {
        let mut fields = DetailFields::NONE;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none") {
            let unknown =
                || Error::Detail { word: word.to_owned(), known: GROUPS.map(|(word, _)| word).join(", ") };
            match word {
                "all" => GROUPS.iter().for_each(|(_, group)| *group(&mut fields) = true),
                _ => fields = fields.with(DetailFields::of_word(word).ok_or_else(unknown)?),
            }
        }
        Ok(fields)
    }

    /// Both together.
    #[must_use]
    pub fn with(mut self, mut other: DetailFields) -> DetailFields {
        for (_, group) in GROUPS {
            *group(&mut self) |= *group(&mut other);
        }
        self
    }

    /// The words of the groups, with commas between them; `none` if there are none.
    pub fn words(mut self) -> String {
        let words: Vec<&str> =
            GROUPS.into_iter().filter_map(|(word, group)| (*group(&mut self)).then_some(word)).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(",") }
    }

    /// Of these the ones that are not among others.
    #[must_use]
    pub fn without(mut self, mut other: DetailFields) -> DetailFields {
        for (_, group) in GROUPS {
            *group(&mut self) &= !*group(&mut other);
        }
        self
    }

    /// Whether there is any.
    pub fn any(self) -> bool {
        self != DetailFields::NONE
    }

    /// Whether somebody has to look at what is said.
    fn listens(self) -> bool {
        self.dns || self.tls || self.http || self.application || self.payload
    }
}

/// What became known of a flow besides. Sides are in the order of the flow's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Of TCP flows, if asked for.
    pub tcp: Option<Tcp>,
    /// Packets of each side by size.
    pub sizes: Option<[SizeCounts; 2]>,
    /// Times between the packets of each side.
    pub gaps: Option<[Gaps; 2]>,
    /// The first question, and what was answered.
    pub dns: Option<Dns>,
    /// What was said in the hello of TLS.
    pub tls: Option<Tls>,
    /// The first request, and the status of the answer.
    pub http: Option<Http>,
    /// The application, if asked for and known.
    pub application: Option<Application>,
    /// The first bytes that each side sent.
    pub payload: [Box<[u8]>; 2],
}

/// What found no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Texts for which there was no block.
    pub texts: u64,
    /// First bytes of streams that were given up half read, as others needed the buffer.
    pub streams: u64,
}

impl Refused {
    pub(crate) fn merge(&mut self, other: Refused) {
        self.texts += other.texts;
        self.streams += other.streams;
    }
}

/// The entries of all flows, by their places in the table of flows.
pub(crate) struct DetailTable {
    tcp: Column<Connection>,
    sizes: Column<[SizeCounts; 2]>,
    gaps: Column<[gaps::Running; 2]>,
    talks: Option<Talks>,
}

/// One packet, as details see it.
#[derive(Clone, Copy)]
pub(crate) struct Look<'p> {
    pub(crate) seen: &'p Seen,
    pub(crate) data: &'p [u8],
    /// Where its transport's header is; `None` for later fragments.
    pub(crate) inside: Option<Inside>,
}

impl DetailTable {
    pub(crate) fn new(
        fields: DetailFields,
        payload: u16,
        flows_max: usize,
    ) -> Result<DetailTable, std::collections::TryReserveError> {
        let talks = match fields.listens() {
            true => Some(Talks::new(fields, payload, flows_max)?),
            false => None,
        };
        Ok(DetailTable {
            tcp: Column::new(fields.tcp, flows_max)?,
            sizes: Column::new(fields.sizes, flows_max)?,
            gaps: Column::new(fields.gaps, flows_max)?,
            talks,
        })
    }

    /// Bytes that a flow takes here, with its part of what all share.
    pub(crate) fn flow_len(fields: DetailFields, payload: u16) -> usize {
        let of = |is_wanted: bool, len: usize| if is_wanted { len } else { 0 };
        of(fields.tcp, size_of::<Connection>())
            + of(fields.sizes, size_of::<[SizeCounts; 2]>())
            + of(fields.gaps, size_of::<[gaps::Running; 2]>())
            + of(fields.listens(), Talks::flow_len(fields, payload))
    }

    pub(crate) fn refused(&self) -> Refused {
        self.talks.as_ref().map_or_else(Refused::default, Talks::refused)
    }

    /// A place comes into use, or is used for another flow.
    pub(crate) fn begin(&mut self, place: u32) {
        self.tcp.begin(place);
        self.sizes.begin(place);
        self.gaps.begin(place);
        if let Some(talks) = &mut self.talks {
            talks.begin(place);
        }
    }

    /// A packet of a flow, by the side of the key that sent it.
    pub(crate) fn packet(&mut self, place: u32, protocol: u8, ports: [u16; 2], look: Look<'_>) {
        let side = usize::from(look.seen.side & 1);
        if let Some(sizes) = self.sizes.get(place) {
            sizes::count(&mut sizes[side], look.seen.bytes);
        }
        if let Some(gaps) = self.gaps.get(place) {
            gaps[side].add(look.seen.time);
        }
        let segment = tcp::Segment::read(protocol, &look);
        if let (Some(connection), Some(segment)) = (self.tcp.get(place), &segment) {
            connection.add(side, segment, look.seen.time);
        }
        if let Some(talks) = &mut self.talks {
            talks.packet(place, protocol, ports, side, &look, segment.as_ref());
        }
    }

    /// What became known of a flow that ends. `first` is the side that sent first.
    pub(crate) fn take(&mut self, place: u32, protocol: u8, ports: [u16; 2], first: usize) -> Box<Details> {
        let mut details = Box::new(Details {
            tcp: self.tcp.get(place).and_then(|connection| connection.finish(protocol, first)),
            sizes: self.sizes.get(place).map(|sizes| [sizes[first], sizes[1 - first]]),
            gaps: self.gaps.get(place).map(|gaps| [first, 1 - first].map(|side| gaps[side].finish())),
            ..Details::default()
        });
        if let Some(talks) = &mut self.talks {
            talks.finish(place, (protocol, ports), first, &mut details);
        }
        details
    }

    pub(crate) fn clear(&mut self) {
        self.tcp.entries.clear();
        self.sizes.entries.clear();
        self.gaps.entries.clear();
        if let Some(talks) = &mut self.talks {
            talks.clear();
        }
    }
}

/// An entry a flow, if anybody asked for it. Memory is reserved at once, and taken from the system as places come into use.
struct Column<T> {
    entries: Vec<T>,
    is_wanted: bool,
}

impl<T: Copy + Default> Column<T> {
    fn new(is_wanted: bool, flows_max: usize) -> Result<Column<T>, std::collections::TryReserveError> {
        let mut entries = Vec::new();
        if is_wanted {
            entries.try_reserve_exact(flows_max)?;
        }
        Ok(Column { entries, is_wanted })
    }

    fn begin(&mut self, place: u32) {
        if !self.is_wanted {
            return;
        }
        match self.entries.get_mut(place as usize) {
            Some(entry) => *entry = T::default(),
            None => self.entries.push(T::default()),
        }
    }

    fn get(&mut self, place: u32) -> Option<&mut T> {
        self.entries.get_mut(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/flow-table.md says that a flow takes.
    #[test]
    fn flows_take_what_is_documented() {
        let len = |words: &str| DetailTable::flow_len(DetailFields::parse(words).unwrap(), 64);
        assert_eq!([len("tcp"), len("sizes"), len("gaps")], [232, 56, 96]);
        assert_eq!([len("application"), len("dns") - len("application")], [88, 256]);
        assert_eq!(len("payload") - len("application"), 256);
    }

    #[test]
    fn words_are_groups() {
        let both = DetailFields::parse("tcp, tls").unwrap();
        assert_eq!((both.tcp, both.tls, both.dns, both.words().as_str()), (true, true, false, "tcp,tls"));
        assert_eq!(DetailFields::parse("none").unwrap().words(), "none");
        let all = DetailFields::parse("all").unwrap();
        assert_eq!(all.words(), "tcp,sizes,gaps,dns,tls,http,application,payload");
        assert_eq!(both.without(DetailFields::of_word("tcp").unwrap()).words(), "tls");
        let error = DetailFields::parse("tcp,quick").unwrap_err().to_string();
        assert!(error.contains("`quick`") && error.contains("application"), "{error}");
    }
}
