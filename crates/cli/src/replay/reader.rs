//! Frames read from files ahead of their time, in a thread of its own, so that no disk delays a frame.
//!
//! ```text
//! pass 1   files --copy, rewrite--> frames (at most 256, at most 256 KiB and one more) --times--> channel
//! pass 2.. the same frames where they fit into memory, else the files again             --times--> channel
//! ```

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tapline_capture::transmit::rewrite::Rewrite;
use tapline_capture::{Advance, FileInput, Source};
use tapline_file::{FileSource, Order};
use tapline_graph::Control;
use tapline_packet::{BATCH_MAX, Batch, Direction, Interface, Packet, Record};
use tapline_store::StoreName;

use super::timeline::Timeline;
use super::{ReplayArgs, timing};
use crate::args::{LanguageArgs, SNAP_LEN};
use crate::compiler::Compiler;
use crate::stored::PastArgs;
use crate::{files, stored, stream};

/// How long a store may look for packets before somebody sees whether all is to end.
const WAIT: Duration = Duration::from_millis(100);
/// Bytes after which a batch is complete.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of frames that are kept for further passes.
const KEPT_BYTES: usize = 64 << 20;

/// Frames as they are to be sent, with what their interface numbers mean.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    records: Vec<Record>,
    pub(super) interfaces: Arc<Vec<Interface>>,
}

impl Frames {
    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }
}

/// Frames with their times.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) frames: Arc<Frames>,
    pub(super) times: Vec<u64>,
}

impl Prepared {
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// Packets, over all passes.
    pub(super) packets: u64,
    /// Passes that were read to their end.
    pub(super) passes: u64,
    /// Packets whose times were before those of the packets before.
    pub(super) backwards: u64,
}

/// What is read again for a further pass.
enum Again {
    /// Files, by name; none where that is not asked for.
    Files(Vec<(String, File)>),
    Store(Box<OfStore>),
}

/// What is sent of a store.
struct OfStore {
    name: StoreName,
    past: PastArgs,
    filter: String,
    compiler: Arc<Compiler>,
}

impl OfStore {
    fn open(&self) -> Result<Box<dyn Source>> {
        Ok(Box::new(stored::open_filtered(&self.name, &self.past, &self.filter, &self.compiler)?))
    }
}

/// What is sent, opened, with a line about each part.
struct Opened {
    input: Box<dyn Source>,
    again: Again,
    announcements: Vec<String>,
}

fn open(args: &ReplayArgs, control: &Arc<Control>) -> Result<Opened> {
    let stores: Vec<_> = args.files.iter().map(|path| stored::store_name(path)).collect::<Result<_>>()?;
    match stores.as_slice() {
        [Some(name)] => return open_store(args, name),
        names if names.iter().any(Option::is_some) => {
            bail!("a store is sent alone: leave the other files out")
        }
        _ if args.filter.is_some() => bail!("--filter is for stores: name one as store:DIRECTORY"),
        _ => args.past.check_unused()?,
    }
    let sources = args.files.iter().map(|path| files::open(path, control)).collect::<Result<Vec<_>>>()?;
    let announcements = sources.iter().map(files::announcement).collect();
    let is_repeated = args.passes != 1;
    let files = args.files.iter().filter(|_| is_repeated).map(|path| again(path)).collect::<Result<_>>()?;
    let input = Box::new(FileInput::new(sources, Order::Given));
    Ok(Opened { input, again: Again::Files(files), announcements })
}

fn open_store(args: &ReplayArgs, name: &StoreName) -> Result<Opened> {
    let filter = args.filter.clone().unwrap_or_default();
    if let Err(error) = tapline_filter::parse(&filter) {
        bail!("{}", error.render(&filter));
    }
    let language = LanguageArgs { scoped: false, ipv6_extensions: false };
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, language, false, None));
    let store = OfStore { name: name.clone(), past: args.past.clone(), filter, compiler };
    let announcements = vec![format!("reading from the store {}", name.directory.display())];
    Ok(Opened { input: store.open()?, again: Again::Store(Box::new(store)), announcements })
}

/// Reads files, or a store.
pub(super) struct Reader {
    input: Box<dyn Source>,
    again: Again,
    pub(super) announcements: Vec<String>,
    rewrite: Rewrite,
    timeline: Timeline,
    control: Arc<Control>,
    passes: u64,
    left: u64,
    /// Frames of the first pass, as long as they fit.
    kept: Option<Vec<Arc<Frames>>>,
    kept_bytes: usize,
    read: Read,
}

impl Reader {
    pub(super) fn open(args: &ReplayArgs, rewrite: Rewrite, control: &Arc<Control>) -> Result<Reader> {
        let Opened { input, again, announcements } = open(args, control)?;
        Ok(Reader {
            input,
            again,
            announcements,
            rewrite,
            timeline: Timeline::new(timing(args)),
            control: Arc::clone(control),
            passes: if args.passes == 0 { u64::MAX } else { args.passes },
            left: args.count.unwrap_or(u64::MAX),
            kept: (args.passes != 1).then(Vec::new),
            kept_bytes: 0,
            read: Read::default(),
        })
    }

    /// Reads until everything is read or nobody takes more. `bin` has batches that were sent, to be freed here.
    pub(super) fn run(
        mut self,
        ready: &SyncSender<Prepared>,
        bin: &Receiver<Prepared>,
    ) -> (Read, Option<anyhow::Error>) {
        let failure = self.read_all(&mut |prepared| {
            bin.try_iter().for_each(drop);
            ready.send(prepared).is_ok()
        });
        self.read.backwards = self.timeline.backwards;
        (self.read, failure.err())
    }

    fn read_all(&mut self, hand: &mut dyn FnMut(Prepared) -> bool) -> Result<()> {
        let mut goes_on = self.first_pass(hand)?;
        while goes_on && self.read.passes < self.passes {
            if self.read.packets == 0 {
                bail!("the files hold no packets: there is nothing to send again");
            }
            self.timeline.next_pass();
            goes_on = match self.kept.take() {
                Some(kept) => {
                    let all = kept.iter().all(|frames| self.hand_over(frames, hand));
                    self.kept = Some(kept);
                    all
                }
                None => self.read_again(hand)?,
            };
            self.read.passes += u64::from(goes_on);
        }
        Ok(())
    }

    fn first_pass(&mut self, hand: &mut dyn FnMut(Prepared) -> bool) -> Result<bool> {
        let goes_on = self.read_input(hand)?;
        self.read.passes += u64::from(goes_on);
        Ok(goes_on)
    }

    fn read_again(&mut self, hand: &mut dyn FnMut(Prepared) -> bool) -> Result<bool> {
        let source = |(name, file): &(String, File)| -> Result<FileSource> {
            let mut file = file.try_clone()?;
            file.seek(SeekFrom::Start(0)).with_context(|| format!("cannot read {name} again"))?;
            Ok(FileInput::open_stream(Box::new(file), name)?)
        };
        self.input = match &self.again {
            Again::Store(store) => store.open()?,
            Again::Files(files) => {
                let sources = files.iter().map(source).collect::<Result<Vec<_>>>()?;
                Box::new(FileInput::new(sources, Order::Given))
            }
        };
        self.read_input(hand)
    }

    /// Reads the input to its end. Returns whether more is wanted.
    fn read_input(&mut self, hand: &mut dyn FnMut(Prepared) -> bool) -> Result<bool> {
        let mut interfaces = Arc::new(Vec::new());
        loop {
            match self.input.advance(WAIT)? {
                Advance::Idle if self.control.stopped() => return Ok(false),
                Advance::Idle => continue,
                Advance::End => return Ok(!self.control.stopped()),
                Advance::Batch => {}
            }
            if interfaces.len() != self.input.interfaces().len() {
                interfaces = Arc::new(self.input.interfaces().to_vec());
            }
            let mut at = 0;
            while at < self.input.batch().len() {
                let frames = Arc::new(self.copy(&mut at, &interfaces));
                self.keep(&frames);
                if !self.hand_over(&frames, hand) {
                    return Ok(false);
                }
            }
        }
    }

    /// Copies packets of the lent batch from `at` on.
    fn copy(&self, at: &mut usize, interfaces: &Arc<Vec<Interface>>) -> Frames {
        let batch = self.input.batch();
        let room = (0..batch.len()).skip(*at).map(|index| batch.packet(index).data.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(room.min(BATCH_BYTES));
        let mut records = Vec::with_capacity(BATCH_MAX.min(batch.len() - *at));
        while *at < batch.len() && bytes.len() < BATCH_BYTES {
            let Packet { data, meta } = batch.packet(*at);
            let offset = bytes.len();
            bytes.extend_from_slice(data);
            let link_type = interfaces.get(meta.interface.0 as usize).map(|interface| interface.link_type);
            if let Some(link_type) = link_type {
                self.rewrite.apply(link_type, &mut bytes[offset..]);
            }
            // Who sent it when it was captured is of no concern here.
            let mut meta = *meta;
            meta.direction = Direction::Unknown;
            records.push(Record { offset, cap_len: data.len() as u32, options_len: 0, meta });
            *at += 1;
        }
        Frames { bytes, records, interfaces: Arc::clone(interfaces) }
    }

    fn keep(&mut self, frames: &Arc<Frames>) {
        self.kept_bytes += frames.bytes.len() + size_of_val(frames.records.as_slice());
        if self.kept_bytes > KEPT_BYTES {
            self.kept = None;
        }
        self.kept.iter_mut().for_each(|kept| kept.push(Arc::clone(frames)));
    }

    /// Gives frames their times and hands them over. Returns whether more is wanted.
    fn hand_over(&mut self, frames: &Arc<Frames>, hand: &mut dyn FnMut(Prepared) -> bool) -> bool {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(frames.records.len());
        if wanted == 0 || self.control.stopped() {
            return false;
        }
        let timeline = &mut self.timeline;
        let records = frames.records.iter().take(wanted);
        let times = records.map(|record| {
            timeline.time(record.meta.timestamp.as_nanos(), frame_len(record, &frames.interfaces))
        });
        let prepared = Prepared { frames: Arc::clone(frames), times: times.collect() };
        self.left -= wanted as u64;
        let is_taken = hand(prepared);
        self.read.packets += if is_taken { wanted as u64 } else { 0 };
        is_taken && self.left > 0
    }
}

/// Bytes of the frame that a packet becomes.
fn frame_len(record: &Record, interfaces: &[Interface]) -> u64 {
    let interface = interfaces.get(record.meta.interface.0 as usize);
    let check_len = interface.and_then(|interface| interface.fcs_len).unwrap_or(0);
    let tag_len = if record.meta.vlan.is_some() { 4 } else { 0 };
    (u64::from(record.meta.wire_len) + tag_len).saturating_sub(check_len.into())
}

/// A file to be read once more.
fn again(path: &Path) -> Result<(String, File)> {
    let name = path.display().to_string();
    if path.as_os_str() == "-" || stream::is_stream(path) {
        bail!("{name} cannot be read again: save it to a file first, or leave --loop out");
    }
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    Ok((name, file))
}
