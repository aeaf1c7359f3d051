//! Live capture through the system's libpcap, with the least program on top of it: count packets.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{ERROR_BYTES, Handle, Libpcap, NETMASK_UNKNOWN, RawHeader, RawProgram, symbol, text_at};

/// `pcap_handler`.
type Handler = unsafe extern "C" fn(*mut c_uchar, *const RawHeader, *const u8);
/// A function that sets one number of a handle that is not active yet.
type Setter = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The functions that a live capture needs. See their manual pages.
pub(super) struct Calls {
    create: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void,
    set_snaplen: Setter,
    set_promisc: Setter,
    set_buffer_size: Setter,
    set_timeout: Setter,
    activate: unsafe extern "C" fn(*mut c_void) -> c_int,
    setfilter: unsafe extern "C" fn(*mut c_void, *mut RawProgram) -> c_int,
    setnonblock: unsafe extern "C" fn(*mut c_void, c_int, *mut c_char) -> c_int,
    breakloop: unsafe extern "C" fn(*mut c_void),
    dispatch: unsafe extern "C" fn(*mut c_void, c_int, Handler, *mut c_uchar) -> c_int,
    stats: unsafe extern "C" fn(*mut c_void, *mut RawStatistics) -> c_int,
}

/// `struct pcap_stat`.
#[repr(C)]
#[derive(Default)]
struct RawStatistics {
    received: c_uint,
    dropped: c_uint,
    dropped_by_interface: c_uint,
}

/// `PCAP_ERROR_BREAK` of `pcap/pcap.h`.
const INTERRUPTED: c_int = -2;
/// The pause between two looks at the end.
const GLANCE: Duration = Duration::from_millis(20);
/// Time beyond the timeout to wait for packets that the kernel has counted. On loopback the wait always happens: the
/// kernel counts each packet twice, and libpcap leaves one of the two out.
const LAST_PACKETS: Duration = Duration::from_secs(1);

/// A handle that another thread may interrupt.
struct Shared(NonNull<c_void>);

// SAFETY: it is used for pcap_breakloop only, which any thread may call while the handle is open.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> *mut c_void {
        self.0.as_ptr()
    }
}

/// Settings of a capture.
#[derive(Clone, Debug)]
pub struct LiveSettings<'a> {
    /// The interface.
    pub interface: &'a str,
    /// Bytes kept of a packet.
    pub snap_len: u32,
    /// Bytes of the kernel's ring.
    pub buffer: u32,
    /// The longest that packets wait in the kernel, in milliseconds.
    pub timeout_ms: u32,
    /// In the pcap-filter language; empty for all packets.
    pub filter: &'a str,
}

/// The counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCount {
    /// Packets that the callback got.
    pub captured: u64,
    /// Captured bytes of the packets.
    pub bytes: u64,
    /// Packets that came through the filter, by `pcap_stats`, those dropped included.
    pub received: u64,
    /// Packets dropped because the ring was full, by `pcap_stats`.
    pub dropped: u64,
}

impl Calls {
    /// # Safety
    /// `library` is a loaded libpcap.
    pub(super) unsafe fn load(library: NonNull<c_void>) -> Result<Calls, String> {
        // SAFETY: each name has in `pcap/pcap.h` the type of the field that it is assigned to.
        unsafe {
            Ok(Calls {
                create: symbol(library, c"pcap_create")?,
                set_snaplen: symbol(library, c"pcap_set_snaplen")?,
                set_promisc: symbol(library, c"pcap_set_promisc")?,
                set_buffer_size: symbol(library, c"pcap_set_buffer_size")?,
                set_timeout: symbol(library, c"pcap_set_timeout")?,
                activate: symbol(library, c"pcap_activate")?,
                setfilter: symbol(library, c"pcap_setfilter")?,
                setnonblock: symbol(library, c"pcap_setnonblock")?,
                breakloop: symbol(library, c"pcap_breakloop")?,
                dispatch: symbol(library, c"pcap_dispatch")?,
                stats: symbol(library, c"pcap_stats")?,
            })
        }
    }
}

impl Libpcap {
    /// Counts packets of an interface until `is_over`, then those that are still in the ring. `begun` is called once
    /// the capture runs. Without packets libpcap waits for ever, so `is_over` is asked by a thread that interrupts it.
    ///
    /// # Errors
    /// libpcap's own text.
    pub fn count_live(
        &self,
        settings: &LiveSettings<'_>,
        begun: impl FnOnce(),
        is_over: impl Fn() -> bool + Sync,
    ) -> Result<LiveCount, String> {
        let handle = self.open_live(settings)?;
        let mut count = LiveCount::default();
        let raw = Shared(handle.0);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    thread::sleep(GLANCE);
                    if is_over() {
                        // SAFETY: the handle is open until this thread has ended, and pcap_breakloop may be called from
                        // any thread.
                        unsafe { (self.live.breakloop)(raw.get()) };
                    }
                }
            });
            begun();
            let result = handle.dispatch_until(&is_over, &mut count);
            is_done.store(true, Ordering::Relaxed);
            result
        })?;
        let mut error = [0 as c_char; ERROR_BYTES];
        // SAFETY: the handle is active and the buffer has the size that libpcap asks for.
        unsafe { (self.live.setnonblock)(handle.0.as_ptr(), 1, error.as_mut_ptr()) };
        // Packets that the kernel counted may lie in a block that it gives out only when the timeout has run.
        let deadline = Instant::now() + LAST_PACKETS + Duration::from_millis(settings.timeout_ms.into());
        loop {
            while handle.dispatch(&mut count)?.is_none_or(|packets| packets > 0) {}
            (count.received, count.dropped) = handle.statistics()?;
            if count.captured >= count.received.saturating_sub(count.dropped) || Instant::now() >= deadline {
                break;
            }
            thread::sleep(GLANCE);
        }
        Ok(count)
    }

    fn open_live(&self, settings: &LiveSettings<'_>) -> Result<Handle<'_>, String> {
        let name = CString::new(settings.interface).map_err(|_| "the name holds a zero byte".to_owned())?;
        let mut error = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends in a zero byte and the buffer has the size that libpcap asks for.
        let raw = unsafe { (self.live.create)(name.as_ptr(), error.as_mut_ptr()) };
        // SAFETY: libpcap wrote a text with its zero byte there, or left the zeros.
        let handle = Handle::new(self, raw).ok_or_else(|| unsafe { text_at(error.as_ptr()) })?;
        let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let raw = handle.0.as_ptr();
        // SAFETY: the handle is open and not active yet.
        unsafe {
            (self.live.set_snaplen)(raw, number(settings.snap_len));
            (self.live.set_promisc)(raw, 1);
            (self.live.set_buffer_size)(raw, number(settings.buffer));
            (self.live.set_timeout)(raw, number(settings.timeout_ms));
            if (self.live.activate)(raw) < 0 {
                return Err(handle.error());
            }
        }
        if !settings.filter.is_empty() {
            handle.set_filter(settings.filter)?;
        }
        Ok(handle)
    }
}

impl Handle<'_> {
    fn set_filter(&self, text: &str) -> Result<(), String> {
        let text = CString::new(text).map_err(|_| "the text holds a zero byte".to_owned())?;
        let mut program = RawProgram { len: 0, insns: ptr::null_mut() };
        let pcap = self.1;
        let text: &CStr = &text;
        // SAFETY: the handle is active, `program` and `text` outlive the calls; the program is freed once, after it was
        // copied.
        let status = unsafe {
            if (pcap.compile)(self.0.as_ptr(), &raw mut program, text.as_ptr(), 1, NETMASK_UNKNOWN) != 0 {
                return Err(self.error());
            }
            let status = (pcap.live.setfilter)(self.0.as_ptr(), &raw mut program);
            (pcap.freecode)(&raw mut program);
            status
        };
        if status == 0 { Ok(()) } else { Err(self.error()) }
    }

    /// Packets that passed the filter, and how many of them were dropped.
    fn statistics(&self) -> Result<(u64, u64), String> {
        let mut raw = RawStatistics::default();
        // SAFETY: the handle is active and `raw` is what libpcap writes.
        let status = unsafe { (self.1.live.stats)(self.0.as_ptr(), &raw mut raw) };
        if status < 0 {
            return Err(self.error());
        }
        Ok((raw.received.into(), raw.dropped.into()))
    }

    fn dispatch_until(&self, is_over: &impl Fn() -> bool, count: &mut LiveCount) -> Result<(), String> {
        while !is_over() {
            self.dispatch(count)?;
        }
        Ok(())
    }

    /// Takes the packets of one buffer. Returns their number; `None` if it was interrupted.
    fn dispatch(&self, count: &mut LiveCount) -> Result<Option<u64>, String> {
        let before = count.captured;
        let user: *mut LiveCount = count;
        // SAFETY: the handle is active; the callback gets `user`, to which no other reference is alive.
        let status = unsafe { (self.1.live.dispatch)(self.0.as_ptr(), -1, add, user.cast()) };
        match status {
            INTERRUPTED => Ok(None),
            ..0 => Err(self.error()),
            _ => Ok(Some(count.captured - before)),
        }
    }
}

/// # Safety
/// `user` points to a [`LiveCount`] to which no other reference is alive, `header` to a header of libpcap's.
unsafe extern "C" fn add(user: *mut c_uchar, header: *const RawHeader, _bytes: *const u8) {
    // SAFETY: as the caller promises.
    let (count, header) = unsafe { (&mut *user.cast::<LiveCount>(), &*header) };
    count.captured += 1;
    count.bytes += u64::from(header.cap_len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_counted() {
        let pcap = match Libpcap::get() {
            Ok(pcap) => pcap,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = receiver.local_addr().expect("it has one");
        let settings = LiveSettings {
            interface: "lo",
            snap_len: 68,
            buffer: 1 << 20,
            timeout_ms: 10,
            filter: &format!("udp dst port {}", to.port()),
        };
        let is_sent = AtomicBool::new(false);
        let send = || {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
            for _ in 0..10 {
                sender.send_to(b"tapline", to).expect("loopback");
            }
            is_sent.store(true, Ordering::Relaxed);
        };
        match pcap.count_live(&settings, send, || is_sent.load(Ordering::Relaxed)) {
            Ok(count) => {
                assert_eq!((count.captured, count.dropped), (10, 0));
                assert_eq!(count.bytes, 10 * (14 + 20 + 8 + 7));
            }
            Err(error) => eprintln!("skipped: no live capture: {error}"),
        }
        drop(receiver);
    }
}
