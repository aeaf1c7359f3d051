//! A search of a recorded capture for a user: the rights of live readers, asked of stored packets.
//!
//! ```text
//! StoreInput: times, index --> forced filter, of the whole packet --> cut to the snap length --> the user's filter
//!     --> pcapng --> pipe --> client
//! ```
//!
//! A live capture has the outer VLAN tag of a packet in its metadata, a store in its bytes, so that `not port 22`
//! accepts a tagged packet of port 22 there. The forced filter is therefore asked twice, of the packet as it is stored
//! and as a live reader would have it, and must accept both.
//!
//! The index knows all packets of the store. Where the rules force a filter, it alone decides which chunks are read:
//! else the time of an answer would say whether packets that the rules withhold have the addresses that a user asks
//! for.
//!
//! The last section of the answer has the notes of the search as comments. An answer that was stopped ends within a
//! block: readers of pcapng then say that the file is cut short.

use std::collections::HashMap;
use std::io::{PipeWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tapline_bpf::PacketFilter;
use tapline_file::{FileInput, Section, blocks};
use tapline_filter::{HandleKind, Options};
use tapline_jit::TieredFilter;
use tapline_packet::{Batch, Interface, InterfaceId, LinkType, Meta, Packet, Record, VlanTag};
use tapline_source::{Advance, Event, Source};
use tapline_store::{
    Catalog, Question, Search, SearchAccount, SearchFilter, StoreInput, StoreReading, Window,
};
use tapline_sys::{disk, usage};

use crate::view::{Rights, cut};

/// The most bytes of a store that a search reads, in a second.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// The time for which a search works before it looks whether it may go on.
const WORK: Duration = Duration::from_millis(10);
/// The start of a block that has no end.
const CUT_SHORT: [u8; 6] = [6, 0, 0, 0, 0xff, 0];

#[derive(Clone, Debug)]
pub(crate) struct SearchSubject {
    pub(crate) store: PathBuf,
    pub(crate) rights: Rights,
    /// Whether the rights withhold something of the capture.
    pub(crate) is_restricted: bool,
    /// The user's filter.
    pub(crate) filter: String,
    pub(crate) window: Window,
    /// Options of the filters' compiler, except link type and handle.
    pub(crate) options: Options,
    /// Processor time that the search may take, in milliseconds a second; none for root and the owner of the daemon.
    pub(crate) time_ms: Option<u32>,
}

/// A search that runs.
pub(crate) struct Searching {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Searching {
    /// Searches in a thread; the answer goes to `pipe`.
    ///
    /// # Errors
    /// Without a thread.
    pub(crate) fn start(subject: SearchSubject, pipe: PipeWriter) -> std::io::Result<Searching> {
        let stop = Arc::<AtomicBool>::default();
        let of_thread = Arc::clone(&stop);
        let work = move || {
            let answered = Arc::new(subject).answer(&pipe, &of_thread);
            if answered.is_err() {
                // A client that has gone does not read it.
                let _ = (&pipe).write_all(&CUT_SHORT);
            }
            answered
        };
        let thread = std::thread::Builder::new().name("search".to_owned()).spawn(work)?;
        Ok(Searching { stop, thread })
    }

    /// Has it end before its next packets.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// The reason for which the answer is not whole. Waits for the end.
    pub(crate) fn join(self) -> Result<(), String> {
        self.thread.join().unwrap_or_else(|_| Err("its thread has panicked".to_owned()))
    }
}

impl SearchSubject {
    fn answer(self: Arc<Self>, pipe: &PipeWriter, stop: &AtomicBool) -> Result<(), String> {
        // Recorders come first, as far as the disk's scheduler knows classes.
        let _ = disk::set_idle_io_priority();
        let told = |error: tapline_store::Error| error.to_string();
        let section = Section { application: "tapline serve".to_owned(), ..Section::default() };
        let mut answer = Answer::begin(pipe, self.rights.snap_len, &section)?;
        let catalog = Arc::new(Catalog::open(&self.store).map_err(told)?);
        let asked = if self.rights.filter.trim().is_empty() { &self.filter } else { &self.rights.filter };
        let question = Question::of(asked, &of_stored(&self.options, LinkType::ETHERNET));
        let search = Search::new(Arc::clone(&catalog), self.window, question).map_err(told)?;
        let subject = Arc::clone(&self);
        let sieve: SearchFilter = Arc::new(move |interface: &Interface| {
            Ok(Some(Arc::new(RightsFilter::new(&subject, interface.link_type))))
        });
        let reading = StoreReading { threads: 1, sieve: Some(sieve), ..StoreReading::default() };
        let mut input = StoreInput::new(search, &self.store.display().to_string(), reading);
        let (report, pace) = (input.report(), SearchPace::new(self.time_ms));
        loop {
            match input.advance(WORK).map_err(|error| error.to_string())? {
                Advance::Batch => answer.add(&input.batch(), input.interfaces())?,
                Advance::Idle => {}
                Advance::End => break,
            }
            if stop.load(Ordering::Relaxed) {
                return Err("the rules no longer allow it".to_owned());
            }
            pace.keep(report.get().bytes_read);
        }
        let comments = self.notes(&catalog, &input.events(), &report.get(), answer.packets);
        if comments.is_empty() { Ok(()) } else { answer.section(&Section { comments, ..Section::default() }) }
    }

    /// The notes of a search of the store's files. Where the rules withhold something they have no counts, as those of
    /// live captures.
    fn notes(&self, catalog: &Catalog, events: &[Event], account: &SearchAccount, found: u64) -> Vec<String> {
        let warning = |text: &str| format!("{}{text}", FileInput::ANSWER_WARNING);
        if !self.is_restricted {
            let notes = catalog.search_notes(self.window, account, false, found);
            return events.iter().map(|event| warning(&event.text)).chain(notes).collect();
        }
        let damage = "parts of the store are damaged and were not searched: packets may be missing";
        let losses = "not known: how many packets were lost while these times were recorded";
        let is_lossy = account.lost > 0 || account.losses_unknown > 0;
        let notes = [(!events.is_empty()).then(|| warning(damage)), is_lossy.then(|| losses.to_owned())];
        notes.into_iter().flatten().collect()
    }
}

/// The answer of a search: pcapng in a pipe.
struct Answer<'a> {
    pipe: &'a PipeWriter,
    /// Bytes that are to be written.
    bytes: Vec<u8>,
    snap_len: u32,
    /// Interfaces that the answer describes and their numbers in it, by their numbers in the store.
    interfaces: HashMap<InterfaceId, (InterfaceId, Interface)>,
    packets: u64,
}

impl Answer<'_> {
    fn begin<'a>(pipe: &'a PipeWriter, snap_len: u32, section: &Section) -> Result<Answer<'a>, String> {
        let mut answer = Answer { pipe, bytes: Vec::new(), snap_len, interfaces: HashMap::new(), packets: 0 };
        answer.section(section).map(|()| answer)
    }

    fn section(&mut self, section: &Section) -> Result<(), String> {
        blocks::section_header(&mut self.bytes, section);
        self.write()
    }

    /// Adds the packets of a batch as the user may see them.
    fn add(&mut self, batch: &Batch<'_>, interfaces: &[Interface]) -> Result<(), String> {
        for (record, whole) in batch.records().iter().zip(batch.iter()) {
            let Record { cap_len, mut meta, .. } = cut(record, self.snap_len);
            let Some(interface) = interfaces.get(meta.interface.0 as usize) else { continue };
            let number = InterfaceId(self.interfaces.len() as u32);
            // Interfaces without a packet in the answer are not the user's business.
            let (number, shown) = self.interfaces.entry(meta.interface).or_insert_with(|| {
                let shown = shown(interface);
                blocks::interface(&mut self.bytes, &shown, self.snap_len);
                (number, shown)
            });
            meta.interface = *number;
            let packet = Packet { data: &whole.data[..cap_len as usize], meta: &meta };
            blocks::packet(&mut self.bytes, &packet, shown, self.snap_len, &[]);
            self.packets += 1;
        }
        // Packets that were found are in the pipe at once.
        self.write()
    }

    fn write(&mut self) -> Result<(), String> {
        let written = self.pipe.write_all(&self.bytes);
        self.bytes.clear();
        written.map_err(|error| format!("its client takes nothing more: {error}"))
    }
}

/// An interface as a user may know it.
fn shown(interface: &Interface) -> Interface {
    Interface {
        description: interface.description.clone(),
        speed: interface.speed,
        fcs_len: interface.fcs_len,
        ..Interface::new(&interface.name, interface.link_type)
    }
}

/// The filters of a search for a link type. `None` accepts no packet: the text does not compile for this type.
struct RightsFilter {
    link_type: LinkType,
    snap_len: u32,
    forced: Option<TieredFilter>,
    /// The forced filter for packets whose outer VLAN tag is in their metadata.
    forced_live: Option<TieredFilter>,
    own: Option<TieredFilter>,
}

impl RightsFilter {
    fn new(subject: &SearchSubject, link_type: LinkType) -> RightsFilter {
        let SearchSubject { rights, filter, options, .. } = subject;
        let stored = of_stored(options, link_type);
        let live = Options { handle: HandleKind::Live, ..stored.clone() };
        let compile =
            |text: &str, options| tapline_filter::compile(text, options).ok().map(TieredFilter::new);
        RightsFilter {
            link_type,
            snap_len: rights.snap_len,
            forced: compile(&rights.filter, &stored),
            forced_live: compile(&rights.filter, &live),
            own: compile(filter, &stored),
        }
    }
}

impl PacketFilter for RightsFilter {
    /// Whether the rules allow the whole packet, and the user's filter accepts its visible part.
    fn accepts(&self, whole: Packet<'_>) -> bool {
        let is_allowed_live = || match untagged(self.link_type, whole) {
            Some((data, meta)) => accepts(&self.forced_live, Packet { data: &data, meta: &meta }),
            None => accepts(&self.forced_live, whole),
        };
        let is_wanted = || {
            let record = Record { cap_len: whole.data.len() as u32, meta: *whole.meta, ..Record::default() };
            let Record { cap_len, meta, .. } = cut(&record, self.snap_len);
            accepts(&self.own, Packet { data: &whole.data[..cap_len as usize], meta: &meta })
        };
        // The user's filter is asked last: its time would tell of packets that the rules withhold.
        accepts(&self.forced, whole) && is_allowed_live() && is_wanted()
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

fn accepts(filter: &Option<TieredFilter>, packet: Packet<'_>) -> bool {
    filter.as_ref().is_some_and(|filter| filter.accepts(packet))
}

/// Options of the compiler for stored packets, which have VLAN tags in their bytes.
fn of_stored(options: &Options, link_type: LinkType) -> Options {
    Options { link_type, handle: HandleKind::Savefile, ..options.clone() }
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
            tapline_filter::compile(text, &Options { handle, ..Options::default() })
                .ok()
                .map(TieredFilter::new)
        };
        let filters = |forced: &str, own: &str| RightsFilter {
            link_type: LinkType::ETHERNET,
            snap_len: 30,
            forced: compile(forced, HandleKind::Savefile),
            forced_live: compile(forced, HandleKind::Live),
            own: compile(own, HandleKind::Savefile),
        };
        assert!(compile("not port 22", HandleKind::Savefile).unwrap().accepts(packet));
        assert!(!filters("not port 22", "").accepts(packet));
        assert!(filters("not port 23", "").accepts(packet));
        assert!(filters("", "").accepts(packet));
        // The user's filter sees no byte behind the cut.
        assert!(filters("", "ether[29] = 0").accepts(packet));
        assert!(!filters("", "ether[41] = 22").accepts(packet));
        // One that does not compile allows nothing.
        assert!(!RightsFilter { forced: None, ..filters("", "") }.accepts(packet));
    }

    #[test]
    fn a_search_keeps_its_pace() {
        let pace = SearchPace::new(Some(200));
        assert_eq!(pace.due(128 << 20, Duration::ZERO), Duration::from_secs(2));
        assert_eq!(pace.due(0, Duration::from_millis(300)), Duration::from_millis(1500));
        assert_eq!(SearchPace::new(None).due(u64::MAX, Duration::from_secs(9)), Duration::ZERO);
    }
}
