//! A search of a recorded capture for a user: the rights of live readers, asked of stored packets.
//!
//! ```text
//! store --Search: times, index--> chunks --in the window?--> forced filter, of the whole packet
//!       --cut to the snap length--> the user's filter --> pcapng --> pipe --> client
//! ```
//!
//! A live capture has the outer VLAN tag of a packet beside its bytes, a store among them, so that `not port 22`
//! accepts a tagged packet of port 22 there. The forced filter is therefore asked twice, of the packet as it is stored
//! and as a live reader would have it, and must accept both.
//!
//! The answer ends within a block if it is not whole: readers of pcapng then say that the file is cut short.

use std::collections::HashMap;
use std::io::{PipeWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tapline_bpf::PacketFilter;
use tapline_file::{Section, SectionReader, blocks};
use tapline_filter::{HandleKind, Options};
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, InterfaceId, LinkType, Meta, Packet, Record, VlanTag};
use tapline_store::{Catalog, Question, Search, Window};
use tapline_sys::{disk, usage};

use crate::view::{Rights, cut};

/// The most bytes of a store that a search reads, in a second.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// Bytes of the answer that are written at once.
const ANSWER_LEN: usize = 256 << 10;
/// The start of a block that has no end.
const CUT_SHORT: [u8; 6] = [6, 0, 0, 0, 0xff, 0];

/// The subject of a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchSubject {
    pub(crate) store: PathBuf,
    pub(crate) rights: Rights,
    /// The user's filter.
    pub(crate) filter: String,
    pub(crate) window: Window,
    /// How filters are compiled, but for link type and handle.
    pub(crate) options: Options,
    /// Processor time that the search may take, in milliseconds a second; none for root and the owner of the daemon.
    pub(crate) time_ms: Option<u32>,
}

/// A search that runs.
pub(crate) struct Searching {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Searching {
    /// Searches in a thread; the answer goes to `pipe`.
    ///
    /// # Errors
    /// Without a thread.
    pub(crate) fn start(subject: SearchSubject, pipe: PipeWriter) -> std::io::Result<Searching> {
        let stop = Arc::<AtomicBool>::default();
        let of_thread = Arc::clone(&stop);
        let lookup = StoreLookup {
            subject,
            pipe,
            stop: of_thread,
            bytes: Vec::new(),
            filters: HashMap::new(),
            interfaces: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("search".to_owned()).spawn(move || lookup.run())?;
        Ok(Searching { stop, thread })
    }

    /// Has it end before its next packets.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// The packets that were found, or the reason for which the answer is not whole. Waits for the end.
    pub(crate) fn join(self) -> Result<u64, String> {
        self.thread.join().unwrap_or_else(|_| Err("its thread has panicked".to_owned()))
    }
}

/// A search on its way.
struct StoreLookup {
    subject: SearchSubject,
    pipe: PipeWriter,
    stop: Arc<AtomicBool>,
    /// Bytes that are to be written.
    bytes: Vec<u8>,
    filters: HashMap<LinkType, FilterPair>,
    /// Interfaces that the answer describes, by their numbers in the store: their numbers in the answer.
    interfaces: HashMap<InterfaceId, (u32, Interface)>,
}

/// The filters for a link type. `None` accepts no packet: the text does not compile for this type.
struct FilterPair {
    forced: Option<CompiledFilter>,
    /// The forced filter for packets whose outer VLAN tag stands beside their bytes.
    forced_live: Option<CompiledFilter>,
    own: Option<CompiledFilter>,
}

impl StoreLookup {
    fn run(mut self) -> Result<u64, String> {
        // Recorders come first, as far as the disk's scheduler knows classes.
        let _ = disk::set_idle_io_priority();
        let found = self.search();
        if found.is_err() {
            // A client that is gone is told nothing.
            let _ = self.pipe.write_all(&CUT_SHORT);
        }
        found
    }

    fn search(&mut self) -> Result<u64, String> {
        let told = |error: tapline_store::Error| error.to_string();
        let catalog = Arc::new(Catalog::open(&self.subject.store).map_err(told)?);
        let question =
            Question::of(&self.subject.filter, &of_stored(&self.subject.options, LinkType::ETHERNET));
        let mut search = Search::new(catalog, self.subject.window, question).map_err(told)?;
        let mut reader = SectionReader::new();
        let pace = SearchPace::new(self.subject.time_ms);
        let mut found = 0;
        blocks::section_header(
            &mut self.bytes,
            &Section { application: "tapline serve".to_owned(), ..Section::default() },
        );
        while fill(&mut reader, &mut search) {
            while reader.advance()? {
                found += self.take(&reader);
                if self.bytes.len() >= ANSWER_LEN {
                    self.write()?;
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Err("the rules no longer allow it".to_owned());
                }
            }
            // What was found is there at once.
            self.write()?;
            pace.keep(search.account().bytes_read);
        }
        self.write()?;
        let account = search.account();
        match account.unread() {
            0 => Ok(found),
            damaged => {
                Err(format!("{damaged} chunks, places or segments of the store are damaged or missing"))
            }
        }
    }

    /// Adds the packets of a batch that the user may have and asked for. Gives their number.
    fn take(&mut self, reader: &SectionReader) -> u64 {
        let (batch, snap_len) = (reader.batch(), self.subject.rights.snap_len);
        let mut found = 0;
        for (index, record) in batch.records().iter().enumerate() {
            let whole = batch.packet(index);
            let Some(interface) = reader.interfaces().get(whole.meta.interface.0 as usize) else { continue };
            let Record { cap_len, mut meta, .. } = cut(record, snap_len);
            let data = &whole.data[..cap_len as usize];
            let is_wanted = self.subject.window.has(whole.meta.timestamp)
                && self.filters(interface.link_type).accept(
                    interface.link_type,
                    whole,
                    Packet { data, meta: &meta },
                );
            if is_wanted {
                let (number, shown) = self.described(whole.meta.interface, interface);
                meta.interface = InterfaceId(number);
                blocks::packet(&mut self.bytes, &Packet { data, meta: &meta }, &shown, snap_len, &[]);
                found += 1;
            }
        }
        found
    }

    /// An interface of the answer. It is described when its first packet comes: name, description, link type, speed.
    fn described(&mut self, id: InterfaceId, interface: &Interface) -> (u32, Interface) {
        let (number, bytes) = (self.interfaces.len() as u32, &mut self.bytes);
        let snap_len = self.subject.rights.snap_len;
        let describe = || {
            let shown = Interface {
                description: interface.description.clone(),
                speed: interface.speed,
                fcs_len: interface.fcs_len,
                ..Interface::new(&interface.name, interface.link_type)
            };
            blocks::interface(bytes, &shown, snap_len);
            (number, shown)
        };
        self.interfaces.entry(id).or_insert_with(describe).clone()
    }

    fn filters(&mut self, link_type: LinkType) -> &FilterPair {
        let SearchSubject { rights, filter, options, .. } = &self.subject;
        self.filters.entry(link_type).or_insert_with(|| {
            let stored = of_stored(options, link_type);
            let live = Options { link_type, handle: HandleKind::Live, ..options.clone() };
            let compile = |text: &str, options: &Options| tapline_filter::compile(text, options).ok();
            FilterPair {
                forced: compile(&rights.filter, &stored),
                forced_live: compile(&rights.filter, &live),
                own: compile(filter, &stored),
            }
        })
    }

    fn write(&mut self) -> Result<(), String> {
        let written = self.pipe.write_all(&self.bytes);
        self.bytes.clear();
        written.map_err(|error| format!("its client takes nothing more: {error}"))
    }
}

impl FilterPair {
    /// Whether the rules allow the whole packet, and the user asked for its part that they show.
    fn accept(&self, link_type: LinkType, whole: Packet<'_>, shown: Packet<'_>) -> bool {
        let is_allowed_live = || match untagged(link_type, whole) {
            Some((data, meta)) => accepts(&self.forced_live, Packet { data: &data, meta: &meta }),
            None => accepts(&self.forced_live, whole),
        };
        accepts(&self.own, shown) && accepts(&self.forced, whole) && is_allowed_live()
    }
}

/// A packet as a live capture lends it: the kernel takes the outer VLAN tag out of its bytes (`skb_vlan_untag`). `None`
/// for one without a tag.
fn untagged(link_type: LinkType, packet: Packet<'_>) -> Option<(Vec<u8>, Meta)> {
    let tag: &[u8; 4] = packet.data.get(12..)?.first_chunk()?;
    let [tpid, tci] = [[tag[0], tag[1]], [tag[2], tag[3]]].map(u16::from_be_bytes);
    if link_type != LinkType::ETHERNET || !matches!(tpid, 0x8100 | 0x88a8 | 0x9100) {
        return None;
    }
    let data = [&packet.data[..12], &packet.data[16..]].concat();
    let wire_len = packet.meta.wire_len.saturating_sub(4);
    Some((data, Meta { wire_len, vlan: Some(VlanTag { tpid, tci }), ..*packet.meta }))
}

fn accepts(filter: &Option<CompiledFilter>, packet: Packet<'_>) -> bool {
    filter.as_ref().is_some_and(|filter| filter.accepts(packet))
}

/// How filters of stored packets are compiled, whose VLAN tags are among their bytes.
fn of_stored(options: &Options, link_type: LinkType) -> Options {
    Options { link_type, handle: HandleKind::Savefile, ..options.clone() }
}

/// Reads the next chunks. `false` at the end.
fn fill(reader: &mut SectionReader, search: &mut Search) -> bool {
    let mut is_there = false;
    let filled = reader.refill(|buffer| {
        is_there = search.next(buffer);
        Ok::<_, std::convert::Infallible>(())
    });
    filled.unwrap_or_else(|never| match never {});
    is_there
}

/// The speed of a search: bytes read, and processor time.
struct SearchPace {
    begun: Instant,
    time_ms: Option<u32>,
}

impl SearchPace {
    fn new(time_ms: Option<u32>) -> SearchPace {
        SearchPace { begun: Instant::now(), time_ms }
    }

    /// Sleeps for as long as the search is ahead of its pace.
    fn keep(&self, bytes_read: u64) {
        let elapsed = self.begun.elapsed();
        let wanted = self.due(bytes_read, usage::thread_time());
        std::thread::sleep(wanted.saturating_sub(elapsed));
    }

    /// The time that the search has to have taken.
    fn due(&self, bytes_read: u64, used: Duration) -> Duration {
        let Some(time_ms) = self.time_ms else { return Duration::ZERO };
        let of_bytes = Duration::from_secs_f64(bytes_read as f64 / BYTES_PER_SECOND as f64);
        of_bytes.max(used * 1000 / time_ms.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tagged packet to port 22, which `not port 22` accepts as it is stored.
    #[test]
    fn a_tag_carries_no_packet_past_the_rule() {
        let mut data = vec![0; 64];
        data[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
        data[18] = 0x45;
        data[27] = 6;
        data[40..42].copy_from_slice(&[0, 22]);
        let meta = Meta { wire_len: 64, ..Meta::default() };
        let packet = Packet { data: &data, meta: &meta };
        let compile = |text: &str, handle| {
            tapline_filter::compile(text, &Options { handle, ..Options::default() }).ok()
        };
        let pair = |forced: &str| FilterPair {
            forced: compile(forced, HandleKind::Savefile),
            forced_live: compile(forced, HandleKind::Live),
            own: compile("", HandleKind::Savefile),
        };
        assert!(compile("not port 22", HandleKind::Savefile).unwrap().accepts(packet));
        assert!(!pair("not port 22").accept(LinkType::ETHERNET, packet, packet));
        assert!(pair("not port 23").accept(LinkType::ETHERNET, packet, packet));
        assert!(pair("").accept(LinkType::ETHERNET, packet, packet));
        // One that does not compile allows nothing.
        let none = FilterPair { forced: None, ..pair("") };
        assert!(!none.accept(LinkType::ETHERNET, packet, packet));
    }

    #[test]
    fn a_search_keeps_its_pace() {
        let pace = SearchPace::new(Some(200));
        assert_eq!(pace.due(128 << 20, Duration::ZERO), Duration::from_secs(2));
        assert_eq!(pace.due(0, Duration::from_millis(300)), Duration::from_millis(1500));
        assert_eq!(SearchPace::new(None).due(u64::MAX, Duration::from_secs(9)), Duration::ZERO);
    }
}
