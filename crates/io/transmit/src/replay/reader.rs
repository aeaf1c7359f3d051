//! Frames read from a source ahead of their time, in a thread of its own, so that no disk delays a frame.
//!
//! ```text
//! pass 1   source --copy, rewrite--> frames (at most 256, at most 256 KiB and one more) --times--> channel
//! pass 2.. the same frames where they fit into memory, else the source opened again     --times--> channel
//! ```

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, Direction, Interface, Packet, Record};
use tapline_source::{Advance, Error};

use super::timeline::Timeline;
use super::{ReplayRead, ReplaySettings, ReplaySource, Stopped};
use crate::rewrite::Rewrite;

/// The longest wait for the source between two looks at the order to stop.
const WAIT: Duration = Duration::from_millis(100);
/// Bytes after which a batch is complete.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of frames that are kept for further passes.
const KEPT_BYTES: usize = 64 << 20;

/// Frames as they are to be sent, with the interfaces that their records number.
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

/// Takes prepared frames; `false` once no more are wanted.
type HandOver<'a> = dyn FnMut(Prepared) -> bool + 'a;

/// Reads the source, pass after pass.
pub(super) struct Reader {
    opened: ReplaySource,
    rewrite: Rewrite,
    timeline: Timeline,
    is_stopped: Stopped,
    passes: u64,
    left: u64,
    /// Frames of the first pass, as long as they fit.
    kept: Option<Vec<Arc<Frames>>>,
    kept_bytes: usize,
    read: ReplayRead,
}

impl Reader {
    pub(super) fn new(opened: ReplaySource, settings: ReplaySettings, is_stopped: Stopped) -> Reader {
        Reader {
            opened,
            rewrite: settings.rewrite,
            timeline: Timeline::new(settings.timing),
            is_stopped,
            passes: settings.passes,
            left: settings.packets_max,
            kept: (settings.passes > 1).then(Vec::new),
            kept_bytes: 0,
            read: ReplayRead::default(),
        }
    }

    /// Reads to the last pass's end, or until the receiver of `ready` has gone. `bin` has batches that were sent, to
    /// be freed here.
    pub(super) fn run(
        mut self,
        ready: &SyncSender<Prepared>,
        bin: &Receiver<Prepared>,
    ) -> (ReplayRead, Option<Error>) {
        let failure = self.read_all(&mut |prepared| {
            bin.try_iter().for_each(drop);
            ready.send(prepared).is_ok()
        });
        self.read.backwards = self.timeline.backwards;
        (self.read, failure.err())
    }

    fn read_all(&mut self, hand: &mut HandOver<'_>) -> Result<(), Error> {
        let mut goes_on = self.read_source(hand)?;
        self.read.passes += u64::from(goes_on);
        while goes_on && self.read.passes < self.passes {
            if self.read.packets == 0 {
                return Err(Error::source("replay", "no packets were read: there is nothing to send again"));
            }
            self.timeline.next_pass();
            goes_on = self.pass_again(hand)?;
            self.read.passes += u64::from(goes_on);
        }
        Ok(())
    }

    /// A further pass. Returns whether more is wanted.
    fn pass_again(&mut self, hand: &mut HandOver<'_>) -> Result<bool, Error> {
        if let Some(kept) = self.kept.take() {
            let is_whole = kept.iter().all(|frames| self.hand_over(frames, hand));
            self.kept = Some(kept);
            return Ok(is_whole);
        }
        self.opened.source = (self.opened.reopen)()?;
        self.read_source(hand)
    }

    /// Reads the source to its end. Returns whether more is wanted.
    fn read_source(&mut self, hand: &mut HandOver<'_>) -> Result<bool, Error> {
        let mut interfaces = Arc::new(Vec::new());
        loop {
            match self.opened.source.advance(WAIT)? {
                Advance::Idle if (self.is_stopped)() => return Ok(false),
                Advance::Idle => continue,
                Advance::End => return Ok(!(self.is_stopped)()),
                Advance::Batch => {}
            }
            if interfaces.len() != self.opened.source.interfaces().len() {
                interfaces = Arc::new(self.opened.source.interfaces().to_vec());
            }
            let mut at = 0;
            while at < self.opened.source.batch().len() {
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
        let batch = self.opened.source.batch();
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
            // The direction of the capture does not bind the replay: packets received then are sent now.
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
    fn hand_over(&mut self, frames: &Arc<Frames>, hand: &mut HandOver<'_>) -> bool {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(frames.records.len());
        if wanted == 0 || (self.is_stopped)() {
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
