//! `pcap_live_dump` (WinPcap's): the library writes packets to a file by itself, in a thread, until a limit or the end of the handle.
//!
//! ```text
//! pcap_live_dump ──► thread: source, filter ──► file     pcap_live_dump_ended: ended yet? or wait for it; the handle reads packets again afterwards
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tapline_packet::Packet;
use tapline_sys::Wakeup;

use crate::dump::{FileHeader, record_header};
use crate::engine::Engine;
use crate::failure::{Failure, system_text};
use crate::handle::Precision;
use crate::raw::PacketHeader;
use crate::source::Source;

const RECORD_HEADER_LEN: u64 = 16;
/// How long packets may lie in the writer's buffer, in milliseconds.
const FLUSH_MS: i32 = 100;

/// When to end; 0 is no limit.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// What the thread works with and gives back.
pub(crate) struct Work {
    pub(crate) source: Box<dyn Source>,
    pub(crate) engine: Option<Engine>,
}

// SAFETY: a source holds descriptors and memory of its own and no state of a thread; the engine's native code is memory that nobody writes. One thread
// at a time has them: the handle gives them away and takes them back by joining the thread.
unsafe impl Send for Work {}

/// A file that is being written.
pub(crate) struct LiveDump {
    thread: JoinHandle<(Box<Work>, Result<(), Failure>)>,
    stop: Arc<AtomicBool>,
    wakeup: Arc<Wakeup>,
}

impl LiveDump {
    /// Begins to write.
    pub(crate) fn start(
        path: &str,
        header: &FileHeader,
        precision: Precision,
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
        let mut dumping = Dumping {
            file,
            path: path.to_owned(),
            precision,
            limits,
            bytes: header.bytes().len() as u64,
            packets: 0,
            stop: Arc::clone(&stop),
            wakeup: Arc::clone(&wakeup),
        };
        let thread = std::thread::spawn(move || {
            let mut work = work;
            let result = dumping.run(&mut work);
            (work, result)
        });
        Ok(LiveDump { thread, stop, wakeup })
    }

    /// Whether a limit was reached, or something failed.
    pub(crate) fn is_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end; with `stop` it comes at once.
    pub(crate) fn join(self, stop: bool) -> Option<(Box<Work>, Result<(), Failure>)> {
        if stop {
            self.stop.store(true, Ordering::Relaxed);
            self.wakeup.notify();
        }
        self.thread.join().ok()
    }
}

struct Dumping {
    file: BufWriter<File>,
    path: String,
    precision: Precision,
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
            if !source.advance(&mut keep)? {
                self.file.flush().map_err(|error| Failure::system(&self.path, &error))?;
                self.sleep(source.as_mut())?;
                continue;
            }
            for packet in source.batch().iter() {
                if !self.write(packet)? {
                    return self.file.flush().map_err(|error| Failure::system(&self.path, &error));
                }
            }
        }
        self.file.flush().map_err(|error| Failure::system(&self.path, &error))
    }

    /// Writes a packet, unless it would go over a limit. Whether to go on.
    fn write(&mut self, packet: Packet<'_>) -> Result<bool, Failure> {
        let len = RECORD_HEADER_LEN + packet.data.len() as u64;
        if self.limits.bytes > 0 && self.bytes + len > self.limits.bytes {
            return Ok(false);
        }
        let timestamp = packet.meta.timestamp;
        let header = PacketHeader {
            ts: libc::timeval {
                tv_sec: timestamp.seconds(),
                tv_usec: self.precision.of_nanos(timestamp.subsec_nanos()),
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

    fn sleep(&self, source: &mut dyn Source) -> Result<(), Failure> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(source.fd()), entry(self.wakeup.as_fd().as_raw_fd())];
        // SAFETY: two pollfd, which the kernel may write to. A signal ends the wait early, which is no harm.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, FLUSH_MS) };
        let has_error = fds[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        if has_error || source.is_dozing() { source.examine() } else { Ok(()) }
    }
}
