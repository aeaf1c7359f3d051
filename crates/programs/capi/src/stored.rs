//! A store of recorded packets (`tapline record`) as a device or a file: `store:DIRECTORY`, with times in the name.
//!
//! ```text
//! name --catalog--> first chunks: link type    pcap_setfilter: program --its text--> question, asked of the index
//! pcap_loop --> search on all processors --time, filter--> packets, in place --> the end, or what is recorded from now on
//! ```
//!
//! The search begins with the first call for packets: the filter that was set before is run by its threads, and the
//! index passes over what that filter's text cannot match. A filter that is set later decides here.
//!
//! Where the user has no right to the files, the daemon that records the store is asked (searched.rs).

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tapline_bpf::PacketFilter;
use tapline_filter::Options;
use tapline_ir::CompiledFilter;
use tapline_jit::TieredFilter;
use tapline_packet::{Batch, Direction, Interface, LinkType, Packet, Record};
use tapline_source::{Advance, Source as _};
use tapline_store::moments::Clock;
use tapline_store::{
    Catalog, Question, Search, SearchFilter, SearchReport, StoreInput, StoreName, StoreReading, Window,
};
use tapline_sys::{Wakeup, without_signals};

use crate::failure::Failure;
use crate::raw::{ERROR_NO_SUCH_DEVICE, ERROR_RFMON_NOTSUP, Stat};
use crate::searched;
use crate::settings::Settings;
use crate::source::{Keep, OpenSource, Source};

/// The time for which a call for packets waits for the search before it looks whether the loop is to end.
pub(crate) const SEARCH_WAIT: Duration = Duration::from_millis(20);
/// Programs whose texts are kept.
const TEXTS_MAX: usize = 8;

/// The way to the packets of a store.
enum Access {
    /// The files of the store.
    Files(Arc<Catalog>),
    /// The daemon that records it to this directory, as its rules allow.
    Daemon(PathBuf),
}

/// Packets of a store.
pub(crate) struct Stored {
    access: Access,
    window: Window,
    follows: bool,
    /// The filter's text and the index queries of it, and the filter; until the search begins.
    asked: (String, Question),
    program: Option<CompiledFilter>,
    /// Texts of the programs that were compiled for this handle, and their questions.
    texts: Vec<(CompiledFilter, (String, Question))>,
    input: Option<Box<dyn tapline_source::Source>>,
    /// The counters of a search of files.
    report: Option<SearchReport>,
    /// Whether a filter was set after the search had begun.
    is_filtered_here: bool,
    dlts: Vec<c_int>,
    link_type: LinkType,
    /// 1: received, 2: sent.
    direction: c_int,
    records: Vec<Record>,
    /// The error that ends the packets, for the next call to return.
    failure: Option<Failure>,
    has_ended: bool,
    /// Number of packets that passed.
    lent: u64,
    /// Readable until the packets end.
    ready: Wakeup,
}

/// The store that a device's or file's name means, if it means one.
pub(crate) fn name_of(device: &str) -> Option<Result<StoreName, Failure>> {
    let name = StoreName::parse(Path::new(device))?;
    Some(name.map_err(|error| Failure::new(ERROR_NO_SUCH_DEVICE, error)))
}

impl Stored {
    /// Opens a store up to its first packets of the time.
    pub(crate) fn open(name: &StoreName, wished: &Settings) -> Result<OpenSource, Failure> {
        if wished.rfmon {
            return Err(Failure::code(ERROR_RFMON_NOTSUP));
        }
        let failure = |text: String| Failure::new(ERROR_NO_SUCH_DEVICE, text);
        let window = name.window(&Clock::local()).map_err(failure)?;
        let (access, link_type) = match Catalog::open(&name.directory) {
            Err(error) if error.is_denied() && !name.follow => {
                let link_type = searched::ask(&name.directory)?;
                (Access::Daemon(name.directory.clone()), link_type)
            }
            catalog => {
                let catalog = Arc::new(catalog.map_err(|error| failure(error.to_string()))?);
                // One thread: what it reads beyond the first packets is for nothing.
                let reading = StoreReading { threads: 1, ..StoreReading::default() };
                let first = search(&catalog, window, Question::Anything, name.follow, reading)?;
                let first = first.interfaces().first();
                let link_type = first.map_or(LinkType::ETHERNET, |interface| interface.link_type);
                (Access::Files(catalog), link_type)
            }
        };
        let dlt = c_int::from(link_type.dlt());
        let ready = Wakeup::new().map_err(|error| Failure::system("eventfd", &error.source))?;
        ready.notify();
        let stored = Stored {
            access,
            window,
            follows: name.follow,
            asked: (String::new(), Question::Anything),
            program: None,
            texts: Vec::new(),
            input: None,
            report: None,
            is_filtered_here: false,
            dlts: vec![dlt],
            link_type,
            direction: 0,
            records: Vec::new(),
            failure: None,
            has_ended: false,
            lent: 0,
            ready,
        };
        Ok(OpenSource { source: Box::new(stored), dlt, snap_len: wished.snap_len_or_max(), warning: None })
    }

    /// Begins the search, with the filter that was set.
    fn begin(&mut self) -> Result<&mut (dyn tapline_source::Source + 'static), Failure> {
        if self.input.is_none() {
            self.input = Some(self.search()?);
        }
        self.input.as_deref_mut().ok_or_else(|| Failure::error("the search has not begun"))
    }

    fn search(&mut self) -> Result<Box<dyn tapline_source::Source>, Failure> {
        let (text, question) = std::mem::replace(&mut self.asked, (String::new(), Question::Anything));
        match &self.access {
            Access::Files(catalog) => {
                let reading =
                    StoreReading { sieve: self.program.clone().map(sieve), ..StoreReading::default() };
                let input = search(catalog, self.window, question, self.follows, reading)?;
                self.report = Some(input.report());
                Ok(Box::new(input))
            }
            Access::Daemon(directory) => {
                // Its answer may have packets that the program refuses: of a program without a text all.
                self.is_filtered_here = self.program.is_some();
                Ok(Box::new(searched::search(directory, &text, self.window)?.0))
            }
        }
    }

    /// Takes the wanted packets of the batch that the search lends.
    fn take(&mut self, keep: Keep<'_>) {
        let Some(input) = &self.input else { return };
        let batch = input.batch();
        let (direction, is_filtered_here) = (self.direction, self.is_filtered_here);
        let of_interface = |record: &Record| input.interfaces().get(record.meta.interface.0 as usize);
        for (record, packet) in batch.records().iter().zip(batch.iter()) {
            let link_type = of_interface(record).map_or(self.link_type, |interface| interface.link_type);
            if link_type != self.link_type {
                self.failure = Some(Failure::error(format!(
                    "an interface has a type {} different from the type of the first interface",
                    link_type.dlt()
                )));
                break;
            }
            let is_sent = packet.meta.direction == Direction::Out;
            let is_elsewhere = if is_sent { direction == 1 } else { direction == 2 };
            if !is_elsewhere && (!is_filtered_here || keep(packet)) {
                self.records.push(*record);
            }
        }
        self.lent += self.records.len() as u64;
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.ready.take();
    }
}

/// A search as a source of packets.
fn search(
    catalog: &Arc<Catalog>,
    window: Window,
    question: Question,
    follows: bool,
    reading: StoreReading,
) -> Result<StoreInput, Failure> {
    let search = Search::new(Arc::clone(catalog), window, question);
    let mut search = search.map_err(|error| Failure::error(error.to_string()))?;
    if follows {
        search.follow();
    }
    // Its threads take no signals: those are for the program's own ones.
    Ok(without_signals(|| StoreInput::new(search, "store", reading)))
}

/// Uses one program for all interfaces: packets of another link type end the reading.
fn sieve(program: CompiledFilter) -> SearchFilter {
    let engine: Arc<dyn PacketFilter> = Arc::new(TieredFilter::new(program));
    Arc::new(move |_: &Interface| Ok(Some(Arc::clone(&engine))))
}

impl Source for Stored {
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure> {
        self.records.clear();
        if let Some(failure) = self.failure.take() {
            self.end();
            return Err(failure);
        }
        if self.has_ended {
            return Ok(false);
        }
        let is_new = self.input.is_none();
        let input = self.begin()?;
        let mut advance = || input.advance(SEARCH_WAIT);
        // The first call makes the threads.
        match if is_new { without_signals(advance) } else { advance() } {
            Ok(Advance::Batch) => self.take(keep),
            // There may be more: the caller looks whether the loop is to end, and asks again.
            Ok(Advance::Idle) => {}
            Ok(Advance::End) => {
                let warning = input.events().into_iter().find(|event| event.is_warning);
                self.end();
                return warning.map_or(Ok(false), |event| Err(Failure::error(event.text)));
            }
            Err(error) => {
                self.end();
                return Err(Failure::error(error.to_string()));
            }
        }
        Ok(true)
    }

    fn refilter(&mut self, from: usize, keep: Keep<'_>) {
        let Some(input) = &self.input else { return };
        let base = input.batch().base();
        let mut index = 0;
        self.records.retain(|record| {
            index += 1;
            let data = crate::vlan::data(base, record);
            index <= from || keep(Packet { data, meta: &record.meta })
        });
    }

    fn batch(&self) -> Batch<'_> {
        match &self.input {
            Some(input) if !self.records.is_empty() => Batch::new(input.batch().base(), &self.records),
            _ => Batch::empty(),
        }
    }

    fn release(&mut self) {
        self.records.clear();
    }

    fn fd(&self) -> RawFd {
        self.ready.as_fd().as_raw_fd()
    }

    fn compiled(&mut self, text: &str, options: &Options, filter: &CompiledFilter) {
        if self.texts.len() == TEXTS_MAX {
            self.texts.remove(0);
        }
        self.texts.push((filter.clone(), (text.to_owned(), Question::of(text, options))));
    }

    fn set_program(&mut self, program: &CompiledFilter) -> Result<(), Failure> {
        if self.input.is_some() {
            self.is_filtered_here = true;
            return Ok(());
        }
        // A program of the caller's own has no text: then every chunk of the time is read.
        let known = self.texts.iter().rev().find(|(filter, _)| filter == program);
        self.asked = known.map_or((String::new(), Question::Anything), |(_, asked)| asked.clone());
        self.program = Some(program.clone());
        Ok(())
    }

    fn wants_filter(&self) -> bool {
        self.is_filtered_here
    }

    fn set_direction(&mut self, direction: c_int) -> Result<(), Failure> {
        self.direction = direction;
        Ok(())
    }

    fn dlts(&self) -> &[c_int] {
        &self.dlts
    }

    fn statistics(&mut self) -> Result<Stat, Failure> {
        let lost = self.report.as_ref().map_or(0, |report| report.get().lost);
        // libpcap's are 32 bits wide and wrap.
        Ok(Stat { recv: self.lent as u32, drop: lost as u32, if_drop: 0 })
    }

    fn send(&mut self, _frame: &[u8], _waits: bool) -> Result<usize, Failure> {
        Err(Failure::error("Sending packets isn't supported on a store"))
    }

    fn resize(&mut self, _buffer_len: u64, _wake_len: Option<u32>) -> Result<(), Failure> {
        // There is no buffer that loses packets.
        Ok(())
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
