//! `pcap_live_dump` (WinPcap's): the library writes packets to a file by itself, in a thread, until a limit or the end
//! of the handle.
//!
//! ```text
//! pcap_live_dump ──► thread: source, filter ──► file     pcap_live_dump_ended: ended yet? or wait for it; the handle reads packets again afterwards
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_packet::Packet;
use tapline_sys::Wakeup;

use crate::engine::Engine;
use crate::failure::{Failure, system_text};
use crate::file_header::{FileHeader, record_header};
use crate::precision::Precision;
use crate::raw::PacketHeader;
use crate::source::{Source, sleep};

const RECORD_HEADER_LEN: u64 = 16;
/// The longest that packets lie in the writer's buffer.
const FLUSH: Duration = Duration::from_millis(100);

/// The limits at which to end; 0 is none.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// Settings of the written packets.
#[derive(Clone, Copy)]
pub(crate) struct DumpSettings {
    pub(crate) precision: Precision,
    pub(crate) snap_len: u32,
}

/// The source and the filter that the thread borrows.
pub(crate) struct Work {
    pub(crate) source: Box<dyn Source>,
    pub(crate) engine: Option<Engine>,
}

/// The result of a thread: its work, and an error.
type Ended = (Box<Work>, Result<(), Failure>);

/// A file that is being written.
pub(crate) struct LiveDump {
    thread: JoinHandle<Option<Ended>>,
    stop: Arc<AtomicBool>,
    wakeup: Arc<Wakeup>,
    /// Bytes in the file.
    position: Arc<AtomicU64>,
}

impl LiveDump {
    /// Begins to write.
    pub(crate) fn start(
        path: &str,
        header: &FileHeader,
        form: DumpSettings,
        limits: Limits,
        work: Box<Work>,
    ) -> Result<LiveDump, (Box<Work>, Failure)> {
        let begin = || {
            let file =
                File::create(path).map_err(|e| Failure::error(format!("{path}: {}", system_text(&e))))?;
            let mut file = BufWriter::new(file);
            file.write_all(&header.bytes()).map_err(|error| Failure::system(path, &error))?;
            let wakeup = Wakeup::new().map_err(|e| Failure::system("Could not open eventfd", &e.source))?;
            Ok((file, Arc::new(wakeup)))
        };
        let (file, wakeup) = match begin() {
            Ok(begun) => begun,
            Err(failure) => return Err((work, failure)),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let position = Arc::new(AtomicU64::new(0));
        let mut dumping = Dumping {
            position: Arc::clone(&position),
            file,
            path: path.to_owned(),
            form,
            limits,
            bytes: header.bytes().len() as u64,
            packets: 0,
            stop: Arc::clone(&stop),
            wakeup: Arc::clone(&wakeup),
        };
        // The thread gets its work once there is one: what a thread takes along that cannot be made is lost.
        let (give, take) = mpsc::sync_channel::<Box<Work>>(1);
        let body = move || {
            let mut work = take.recv().ok()?;
            let result = dumping.run(&mut work);
            Some((work, result))
        };
        let thread = match thread::Builder::new().name("pcap_live_dump".to_owned()).spawn(body) {
            Ok(thread) => thread,
            Err(error) => return Err((work, Failure::system("Could not start a thread", &error))),
        };
        match give.send(work) {
            Ok(()) => Ok(LiveDump { thread, stop, wakeup, position }),
            Err(mpsc::SendError(work)) => Err((work, Failure::error("the dump's thread has ended"))),
        }
    }

    /// Bytes that are in the file: without those that the writer still has.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Whether a limit was reached, or an error occurred.
    pub(crate) fn is_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end; with `stop` the dump ends at once.
    pub(crate) fn join(self, stop: bool) -> Option<Ended> {
        if stop {
            self.stop.store(true, Ordering::Relaxed);
            self.wakeup.notify();
        }
        self.thread.join().ok()?
    }
}

struct Dumping {
    position: Arc<AtomicU64>,
    file: BufWriter<File>,
    path: String,
    form: DumpSettings,
    limits: Limits,
    bytes: u64,
    packets: u64,
    stop: Arc<AtomicBool>,
    wakeup: Arc<Wakeup>,
}

impl Dumping {
    fn run(&mut self, work: &mut Work) -> Result<(), Failure> {
        while !self.stop.load(Ordering::Relaxed) {
            let Work { source, engine } = work;
            let is_needed = source.wants_filter();
            let mut keep =
                |packet: Packet<'_>| !is_needed || engine.as_mut().is_none_or(|e| e.accepts(packet));
            let has_come = source.advance(&mut keep)?;
            if !has_come || source.batch().is_empty() {
                self.flush()?;
            }
            if !has_come {
                sleep(source.as_mut(), Some(&self.wakeup), Some(FLUSH))?;
                continue;
            }
            for packet in source.batch().cut(self.form.snap_len).iter() {
                if !self.write(packet)? {
                    return self.flush();
                }
            }
            self.note_position();
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.file.flush().map_err(|error| Failure::system(&self.path, &error))?;
        self.note_position();
        Ok(())
    }

    fn note_position(&self) {
        self.position.store(self.bytes - self.file.buffer().len() as u64, Ordering::Relaxed);
    }

    /// Writes a packet, unless it would exceed a limit. Returns whether to go on.
    fn write(&mut self, packet: Packet<'_>) -> Result<bool, Failure> {
        let len = RECORD_HEADER_LEN + packet.data.len() as u64;
        if self.limits.bytes > 0 && self.bytes + len > self.limits.bytes {
            return Ok(false);
        }
        let timestamp = packet.meta.timestamp;
        let header = PacketHeader {
            ts: libc::timeval {
                tv_sec: timestamp.seconds(),
                tv_usec: self.form.precision.of_nanos(timestamp.subsec_nanos()),
            },
            cap_len: packet.data.len() as u32,
            len: packet.meta.wire_len,
        };
        let write =
            self.file.write_all(&record_header(&header)).and_then(|()| self.file.write_all(packet.data));
        write.map_err(|error| Failure::system(&self.path, &error))?;
        self.bytes += len;
        self.packets += 1;
        Ok(self.limits.packets == 0 || self.packets < self.limits.packets)
    }
}
