//! `pcap_t`: what C programs hold, and what one needs to look into it.
//!
//! ```text
//! pcap_create ──► Created ──pcap_activate──► Live      a source of packets (source.rs)
//! pcap_open_offline ───────────────────────► File      a capture file (offline.rs)
//! pcap_open_dead ──────────────────────────► Dead      a link type to compile for
//!
//! Handle = flag and wake-up (any thread, signal handlers) | text of the last error | State (one thread at a time)
//! ```
//!
//! A callback may call functions on the handle that called it. So no reference to the state lives while a callback
//! runs.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use tapline_packet::LinkType;
use tapline_sys::Wakeup;

use crate::engine::Engine;
use crate::failure::{Failure, PANIC_TEXT, put};
use crate::precision::Precision;
use crate::raw::{ERRBUF_SIZE, ERROR_NOT_ACTIVATED, PacketHeader, Sampling};
use crate::savefile::Savefile;
use crate::settings::Settings;
use crate::source::Source;
use crate::tally::Tally;

/// The object behind `pcap_t *`.
pub struct Handle {
    /// Whether `pcap_breakloop` was called.
    pub(crate) is_broken: AtomicBool,
    /// Ends a wait for packets.
    pub(crate) wakeup: OnceLock<Wakeup>,
    error: UnsafeCell<[c_char; ERRBUF_SIZE]>,
    state: UnsafeCell<HandleState>,
}

/// The state that the thread with the handle uses alone.
pub(crate) struct HandleState {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    /// libpcap's number of the link type.
    pub(crate) dlt: c_int,
    /// The upper bits of a file's link type field.
    pub(crate) dlt_extra: c_int,
    pub(crate) snap_len: c_int,
    pub(crate) precision: Precision,
    pub(crate) is_nonblocking: bool,
    /// The filter. A file's packets pass it when they are handed out; live packets that the kernel has not filtered,
    /// when they come and again when another filter is set.
    pub(crate) engine: Option<Engine>,
    /// The next packet of the batch.
    pub(crate) at: usize,
    /// The header that `pcap_next_ex` lends.
    pub(crate) header: PacketHeader,
    pub(crate) extras: Extras,
}

/// State of WinPcap's additions.
#[derive(Default)]
pub(crate) struct Extras {
    /// Boxed, as `pcap_setsampling` gives a pointer to it.
    pub(crate) sampling: Box<Sampling>,
    pub(crate) sampled: u64,
    pub(crate) sample_next_ns: Option<i64>,
    /// The counts of statistics mode, if that was chosen.
    pub(crate) tally: Option<Tally>,
    pub(crate) stat: Box<crate::raw::Stat>,
    pub(crate) live_dump: Option<crate::live_dump::LiveDump>,
}

/// The kind of the handle.
pub(crate) enum Kind {
    Created { device: String },
    Live(Box<dyn Source>),
    File(Box<Savefile>),
    Dead,
}

impl HandleState {
    pub(crate) fn new(kind: Kind) -> HandleState {
        HandleState {
            kind,
            settings: Settings::default(),
            dlt: 0,
            dlt_extra: 0,
            snap_len: 0,
            precision: Precision::Micro,
            is_nonblocking: false,
            engine: None,
            // A file's first batch is there when it was opened, but is asked for like the others.
            at: usize::MAX,
            header: PacketHeader::ZERO,
            extras: Extras::default(),
        }
    }

    /// Refuses an operation that needs `pcap_activate` before.
    pub(crate) fn require_active(&self) -> Result<(), Failure> {
        match self.kind {
            Kind::Created { .. } => {
                Err(Failure::new(ERROR_NOT_ACTIVATED, "This handle hasn't been activated yet"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.kind, Kind::Created { .. })
    }

    /// The link type by the number that files and filters use; `None` for one that no file can hold.
    pub(crate) fn link_type(&self) -> Option<LinkType> {
        u16::try_from(self.dlt).ok().map(LinkType::from_dlt)
    }
}

impl Handle {
    /// Moves a state to the heap, for a pointer in C.
    pub(crate) fn boxed(state: HandleState) -> *mut Handle {
        Box::into_raw(Box::new(Handle {
            is_broken: AtomicBool::new(false),
            wakeup: OnceLock::new(),
            error: UnsafeCell::new([0; ERRBUF_SIZE]),
            state: UnsafeCell::new(state),
        }))
    }

    /// # Safety
    /// No other reference to the state is alive: no other thread is in a function on this handle, and no caller up the
    /// stack holds one.
    #[expect(clippy::mut_from_ref, reason = "the state of a C handle; see the conditions")]
    pub(crate) unsafe fn state(&self) -> &mut HandleState {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.state.get() }
    }

    pub(crate) fn error_text(&self) -> *mut c_char {
        self.error.get().cast()
    }

    pub(crate) fn set_error(&self, text: &str) {
        // SAFETY: the buffer has ERRBUF_SIZE bytes, and only the thread that uses the handle writes it.
        unsafe { put(self.error_text(), text) };
    }
}

/// Runs the body of a function on a handle. An error, or a panic, leaves its text with the handle and gives its code.
///
/// # Safety
/// `p` is null or came from one of our functions that open, was not closed, and no other thread uses it meanwhile.
pub(crate) unsafe fn on(
    p: *mut Handle,
    body: impl FnOnce(&mut HandleState) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: as the caller promises; the state is borrowed for `body` only, which calls no callback.
    unsafe { on_handle(p, |handle| body(handle.state())) }
}

/// As [`on`], for functions that need the handle itself.
///
/// # Safety
/// As for [`on`].
pub(crate) unsafe fn on_handle(
    p: *mut Handle,
    body: impl FnOnce(&Handle) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { p.as_ref() }) else { return crate::raw::ERROR };
    let failure = match catch_unwind(AssertUnwindSafe(|| body(handle))) {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::error(PANIC_TEXT),
    };
    handle.set_error(&failure.text);
    failure.code
}

/// A value of an active handle; `PCAP_ERROR_NOT_ACTIVATED` before its activation.
///
/// # Safety
/// As for [`on`].
pub(crate) unsafe fn ask(p: *mut Handle, value: impl FnOnce(&HandleState) -> c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        on(p, |state| match state.is_active() {
            true => Ok(value(state)),
            false => Err(Failure::code(ERROR_NOT_ACTIVATED)),
        })
    }
}
