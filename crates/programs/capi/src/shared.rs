//! A capture of `tapline serve`, which captures once for many programs.
//!
//! ```text
//! shared buffer --Tap--> records --filter, once more--> copied to memory of ours, a VLAN tag before its EtherType
//! ```
//!
//! ```text
//! descriptor := epoll { bell of each buffer, an eventfd of ours }     readable: packets have come while we slept, or some are left that were not handed out
//! ```
//!
//! Packets are there for the program once they are as many bytes as an interface's block has, or `pcap_setmintocopy`
//! says; or once the first of them has waited for the program's timeout:
//!
//! ```text
//! timeout := in the kernel's block of the daemon's socket + at the daemon + in the buffer until the bell rings
//! ```
//!
//! The program's filter runs at the daemon, which offers only packets that it accepts, each with the number that the
//! filter returned, which is the number of bytes to be kept, as for an interface. The filter runs here too: a packet may
//! have been offered before it was set.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Packet, Record};
use tapline_source::{Advance, Source as _};
use tapline_sys::Wakeup;
use tapline_tap_client::protocol::{AttachRequest, OfferedCapture, Policy};
use tapline_tap_client::{Client, Error, SOCKET_DEFAULT, Tap, WakeThreshold, parse_name, socket_path};

use crate::af_packet::{LATENCY_MS, block_len};
use crate::environment;
use crate::failure::Failure;
use crate::raw::{ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED, ERROR_RFMON_NOTSUP, Stat};
use crate::settings::Settings;
use crate::source::{Keep, OpenSource, Source};
use crate::vlan::{TAG_LEN, Tags};

/// The prefix of device names that are captures of a daemon.
pub(crate) const SHARED: &str = "tap:";

/// Milliseconds for which the kernel keeps a packet for the daemon, as its socket is an interactive one.
const KERNEL_MS: u32 = 10;
/// The longest that packets wait at the daemon.
const DAEMON_MS_MAX: u32 = 50;

/// The settings of a program in terms of a tap: for how many milliseconds packets may wait at the daemon, and the
/// bytes or age that end a wait.
fn wish(wished: &Settings) -> (u32, WakeThreshold) {
    let min_bytes = wished.wake_len.unwrap_or(block_len(wished)).into();
    let left_ms = wished.latency_ms().unwrap_or(LATENCY_MS).saturating_sub(KERNEL_MS);
    let daemon_ms = (left_ms / 2).min(DAEMON_MS_MAX);
    let max_delay = Duration::from_millis((left_ms - daemon_ms).into());
    (daemon_ms, WakeThreshold { min_bytes, min_packets: 0, max_delay })
}

/// The program that decides on packets, and how many of their bytes are kept.
enum Program {
    None,
    /// The only one so far: the daemon's verdicts are its.
    First,
    /// A packet that waits may have a verdict of the program before: this one is asked again.
    Changed(CompiledFilter),
}

/// A reader of a capture.
pub(crate) struct Shared {
    tap: Tap,
    wish: WakeThreshold,
    gate: Gate,
    /// Whether the tap has a batch that was not looked at.
    is_pending: bool,
    /// The error that ended the capture, for the next call for packets.
    failure: Option<Failure>,
    dlts: Vec<c_int>,
    program: Program,
    /// 1: received, 2: sent.
    direction: c_int,
    /// Copies of the batch's packets.
    memory: Vec<u8>,
    records: Vec<Record>,
    tags: Tags,
}

impl Shared {
    /// Becomes a reader. Needs no privilege: the daemon's rules decide what the user may read.
    pub(crate) fn open(device: &str, name: &str, wished: &Settings) -> Result<OpenSource, Failure> {
        if wished.rfmon {
            return Err(Failure::code(ERROR_RFMON_NOTSUP));
        }
        let (delay_ms, wish) = wish(wished);
        let (capture, group) =
            parse_name(name).map_err(|why| Failure::new(ERROR_NO_SUCH_DEVICE, format!("{device}: {why}")))?;
        let client = Client::connect_for(trusted_socket(), capture, &program());
        let attach = AttachRequest {
            capture: capture.to_owned(),
            group,
            policy: Policy::Lossy,
            delay_ms,
            ..AttachRequest::default()
        };
        let mut tap = client
            .and_then(|(client, _)| client.attach(&attach))
            .map_err(|error| open_failure(device, &error))?;
        tap.set_wake(wish);
        let gate = Gate::new(tap.descriptors()).map_err(|error| Failure::system("epoll", &error))?;
        let dlt = tap.interfaces().first().map_or(1, |interface| c_int::from(interface.link_type.dlt()));
        let mut shared = Shared {
            tap,
            wish,
            gate,
            is_pending: false,
            failure: None,
            dlts: vec![dlt],
            program: Program::None,
            direction: 0,
            memory: Vec::new(),
            records: Vec::new(),
            tags: Tags::default(),
        };
        // A program may wait before it asks for packets.
        shared.is_pending = shared.look()?;
        shared.gate.set(shared.is_pending);
        let snap_len = wished.snap_len_or_max();
        Ok(OpenSource { source: Box::new(shared), dlt, snap_len, warning: None })
    }

    /// Looks whether the tap has a batch; if not, its bells will ring for one.
    fn look(&mut self) -> Result<bool, Failure> {
        match self.tap.advance(Duration::ZERO) {
            Ok(Advance::Batch) => Ok(true),
            Ok(Advance::Idle) => Ok(false),
            Ok(Advance::End) => Err(Failure::error("the daemon has ended this capture")),
            Err(error) => Err(Failure::error(error.to_string())),
        }
    }

    /// Copies the wanted packets of the batch, in the form that C sees.
    fn take(&mut self, keep: Keep<'_>) {
        self.memory.clear();
        self.records.clear();
        self.tags.begin(self.dlts[0]);
        let batch = self.tap.batch();
        let verdicts = self.tap.verdicts();
        for (index, packet) in batch.iter().enumerate() {
            let Packet { data, meta } = packet;
            let is_sent = meta.direction == tapline_packet::Direction::Out;
            let is_elsewhere = if is_sent { self.direction == 1 } else { self.direction == 2 };
            if is_elsewhere || !keep(packet) {
                continue;
            }
            let keep_len = match (&self.program, verdicts.get(index)) {
                (Program::Changed(program), _) => program.run(packet),
                (_, None | Some(0)) => u32::MAX,
                (_, Some(verdict)) => *verdict,
            };
            let data = &data[..data.len().min(keep_len as usize)];
            // Room for a tag.
            self.memory.resize(self.memory.len() + TAG_LEN, 0);
            let mut record =
                Record { offset: self.memory.len(), cap_len: data.len() as u32, options_len: 0, meta: *meta };
            self.memory.extend_from_slice(data);
            self.tags.put(&mut self.memory, &mut record);
            self.records.push(record);
        }
    }
}

/// The name of this program.
pub(crate) fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(Path::file_name);
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Captures that this user may read; none without a daemon, or if it does not answer in time.
pub(crate) fn captures(timeout: Duration) -> Vec<OfferedCapture> {
    Client::list(&socket_path(trusted_socket()), &program(), timeout).unwrap_or_default()
}

/// The only socket for programs with more rights than their user; `None` for other programs.
pub(crate) fn trusted_socket() -> Option<&'static Path> {
    environment::is_secure().then_some(Path::new(SOCKET_DEFAULT))
}

/// The pause before a reader that waits for another buffer looks again.
const REMINDER: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const NEVER: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// One descriptor for several bells, and for packets that were not handed out yet.
struct Gate {
    epoll: OwnedFd,
    own: Wakeup,
    is_set: bool,
    /// Makes the gate readable without a bell.
    timer: OwnedFd,
    is_reminded: bool,
}

impl Gate {
    fn new<'a>(bells: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Gate> {
        let own = Wakeup::new().map_err(|error| error.source)?;
        // SAFETY: epoll_create1(2) takes a number.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: timerfd_create(2) takes numbers.
        let raw =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as for epoll.
        let timer = unsafe { OwnedFd::from_raw_fd(raw) };
        let bells = bells.map(|bell| bell.as_raw_fd());
        for fd in bells.chain([own.as_fd().as_raw_fd(), timer.as_raw_fd()]) {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: both descriptors are open, and `event` lives through the call, which only reads it.
            let result = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Gate { epoll, own, is_set: false, timer, is_reminded: false })
    }

    /// Makes the gate readable after a pause, for packets without a bell; or takes that back.
    fn remind(&mut self, is_wanted: bool) {
        if !is_wanted && !self.is_reminded {
            return;
        }
        let it_value = if is_wanted { REMINDER } else { NEVER };
        let setting = libc::itimerspec { it_interval: NEVER, it_value };
        // SAFETY: the descriptor is ours, `setting` lives through the call, and the old one is not asked for. The
        // call also takes back that the timer ran out.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
        self.is_reminded = is_wanted;
    }

    /// Makes the gate readable, or leaves that to the bells.
    fn set(&mut self, is_set: bool) {
        if is_set && !self.is_set {
            self.own.notify();
        } else if !is_set && self.is_set {
            self.own.take();
        }
        self.is_set = is_set;
    }
}

/// The error for a capture that cannot be read.
fn open_failure(device: &str, error: &Error) -> Failure {
    let code = match error {
        Error::NoDaemon { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            ERROR_PERM_DENIED
        }
        _ => ERROR_NO_SUCH_DEVICE,
    };
    Failure::new(code, format!("{device}: {error}"))
}

impl Source for Shared {
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure> {
        self.records.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let has_come = std::mem::take(&mut self.is_pending) || self.look()?;
        if has_come {
            self.take(keep);
        }
        // Until all of it was handed out.
        self.gate.set(has_come);
        self.gate.remind(self.tap.needs_another_look());
        Ok(has_come)
    }

    fn refilter(&mut self, from: usize, keep: Keep<'_>) {
        self.tags.refilter(&mut self.memory, &mut self.records, from, keep);
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.memory, &self.records)
    }

    fn release(&mut self) {
        self.records.clear();
        if self.is_pending || self.failure.is_some() {
            return;
        }
        // Only a look tells whether there is more; and after one that found nothing the bells ring for what comes.
        match self.look() {
            Ok(has_come) => self.is_pending = has_come,
            Err(failure) => self.failure = Some(failure),
        }
        self.gate.set(self.is_pending || self.failure.is_some());
        self.gate.remind(self.tap.needs_another_look());
    }

    fn fd(&self) -> RawFd {
        self.gate.epoll.as_raw_fd()
    }

    fn set_program(&mut self, program: &CompiledFilter) -> Result<(), Failure> {
        let insns = program.insns().iter().map(|insn| (insn.code, insn.jt, insn.jf, insn.k)).collect();
        self.program = match self.program {
            Program::None => Program::First,
            _ => Program::Changed(program.clone()),
        };
        self.tap.set_program(insns).map_err(|error| Failure::error(error.to_string()))
    }

    fn wants_filter(&self) -> bool {
        !matches!(self.program, Program::None)
    }

    fn set_direction(&mut self, direction: c_int) -> Result<(), Failure> {
        self.direction = direction;
        Ok(())
    }

    fn dlts(&self) -> &[c_int] {
        &self.dlts
    }

    fn statistics(&mut self) -> Result<Stat, Failure> {
        let account = self.tap.account();
        let taps = account.iter().filter_map(|interface| interface.tap);
        let (recv, drop) = taps.fold((0_u64, 0_u64), |(recv, drop), tap| {
            (tap.offered.wrapping_add(recv), tap.lost().wrapping_add(drop))
        });
        let before = account.iter().flat_map(|interface| &interface.losses);
        let if_drop = before.filter_map(|loss| loss.count.known()).fold(0, u64::wrapping_add);
        // libpcap's are 32 bits wide and wrap.
        Ok(Stat { recv: recv as u32, drop: drop as u32, if_drop: if_drop as u32 })
    }

    fn send(&mut self, _frame: &[u8], _waits: bool) -> Result<usize, Failure> {
        Err(Failure::error("Sending packets isn't supported on a capture that is shared"))
    }

    fn resize(&mut self, _buffer_len: u64, wake_len: Option<u32>) -> Result<(), Failure> {
        // The buffer is shared with other readers; nothing in it is lost. The threshold of waking is ours.
        if let Some(bytes) = wake_len {
            self.wish.min_bytes = bytes.into();
            self.tap.set_wake(self.wish);
            if !self.is_pending && self.records.is_empty() {
                // The daemon hears of it where it hears that we sleep.
                self.release();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(gate: &Gate, wait_ms: i32) -> bool {
        let mut asked = libc::pollfd { fd: gate.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        unsafe { libc::poll(&mut asked, 1, wait_ms) == 1 }
    }

    /// Immediate mode, a timeout and a minimum of bytes as programs know them from interfaces.
    #[test]
    fn settings_say_when_to_wake() {
        let of = |timeout_ms, is_immediate, wake_len| {
            let (daemon_ms, wish) = wish(&Settings {
                timeout_ms,
                is_immediate,
                wake_len,
                snap_len: 262_144,
                ..Settings::default()
            });
            (daemon_ms, wish.max_delay.as_millis(), wish.min_bytes)
        };
        assert_eq!(of(1000, false, None), (50, 940, 128 << 10));
        assert_eq!(of(100, false, Some(1 << 20)), (45, 45, 1 << 20));
        assert_eq!(of(1000, true, None), (0, 0, 128 << 10));
        assert_eq!(of(5, false, None), (0, 0, 128 << 10));
        // Without a timeout as for an interface.
        assert_eq!((of(0, false, None), of(-1, false, None)), ((0, 0, 128 << 10), (0, 0, 128 << 10)));
        assert_eq!(of(1000, false, Some(1)).2, 1);
    }

    #[test]
    fn a_reminder_comes_without_a_bell() {
        let mut gate = Gate::new(std::iter::empty()).unwrap();
        assert!(!is_readable(&gate, 0));
        gate.remind(true);
        assert!(is_readable(&gate, 10_000), "no reminder came");
        gate.remind(false);
        assert!(!is_readable(&gate, 0));
        gate.set(true);
        assert!(is_readable(&gate, 0));
        gate.set(false);
        assert!(!is_readable(&gate, 0));
    }
}
