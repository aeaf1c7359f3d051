//! Live packets behind one trait, and the wait for them.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use tapline_capture::af_packet::KernelCount;
use tapline_filter::Options;
use tapline_ir::CompiledFilter;
use tapline_packet::Batch;
use tapline_sys::Wakeup;

use crate::failure::Failure;
use crate::raw::Stat;

/// The pause between two looks at an interface that is down.
const DOZE: Duration = Duration::from_secs(1);

/// The filter that runs here, on each packet before it is changed for C.
pub(crate) type Keep<'a> = &'a mut dyn FnMut(tapline_packet::Packet<'_>) -> bool;

/// Live packets. One thread at a time uses it.
pub(crate) trait Source: Send {
    /// Releases the last batch and gets the next, without waiting; returns whether there is one. Packets that `keep`
    /// refuses are not in it: it may be empty, and more may wait behind it. Callers in a loop check each time whether
    /// the loop was broken.
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure>;

    /// The batch that the last `advance` found, as C programs see its packets, but for the snap length: a tag that was
    /// put back may have made them longer.
    fn batch(&self) -> Batch<'_>;

    /// Leaves packets that `keep` refuses out of the batch, from the one at `from` on. `keep` sees packets as it would
    /// have in `advance`; the bytes of those before stay as they are.
    fn refilter(&mut self, from: usize, keep: Keep<'_>);

    /// Releases the memory of the batch, whose last packet was handed out.
    fn release(&mut self);

    /// The descriptor to wait on for packets.
    fn fd(&self) -> RawFd;

    /// Looks at the descriptor after a wait that ended with an error on it.
    ///
    /// An interface that is gone for good is an error, one that is down for now is not. A source without an interface
    /// of its own reports its end in `advance`, once all packets were read.
    fn examine(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether waits must be short, because their end does not show on the descriptor.
    fn is_dozing(&self) -> bool {
        false
    }

    /// A text was compiled to this program, which may be set as the filter.
    fn compiled(&mut self, _text: &str, _options: &Options, _filter: &CompiledFilter) {}

    /// Filters by this program from now on. [`wants_filter`](Self::wants_filter) then returns whether packets of the
    /// next batch need `keep`.
    fn set_program(&mut self, program: &CompiledFilter) -> Result<(), Failure>;

    /// Whether packets of the next batch have to pass the filter here.
    fn wants_filter(&self) -> bool;

    /// 0: both directions, 1: received, 2: sent.
    fn set_direction(&mut self, direction: c_int) -> Result<(), Failure>;

    /// The link types there are, of libpcap's numbers; the present one is among them.
    fn dlts(&self) -> &[c_int];

    /// Changes to another of the link types.
    fn set_dlt(&mut self, _dlt: c_int) {
        // There is only one.
    }

    /// The kernel's counters since the source was opened.
    fn statistics(&mut self) -> Result<Stat, Failure>;

    /// Counts the packets that pass the filter in the kernel, `beside` their reading or in place of it.
    ///
    /// # Errors
    /// Why that cannot be, for people.
    fn count_in_kernel(&mut self, _beside: bool) -> Result<KernelCount, String> {
        Err("only the packets of an interface of its own are counted in the kernel".to_owned())
    }

    /// Ends [`count_in_kernel`](Self::count_in_kernel): packets come as before it.
    fn stop_count(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Sends a frame. If there is no room for it, `waits` says whether to wait.
    fn send(&mut self, frame: &[u8], waits: bool) -> Result<usize, Failure>;

    /// Another buffer of this many bytes, of which `wake_len` are filled before the reader wakes. Packets in the
    /// present one are lost, and left out of the batch.
    fn resize(&mut self, buffer_len: u64, wake_len: Option<u32>) -> Result<(), Failure>;

    /// Whether its packets were recorded before: they carry no metadata of the kernel.
    fn is_stored(&self) -> bool {
        false
    }

    /// Whether no packet will come any more, as at the end of a file.
    fn has_ended(&self) -> bool {
        false
    }
}

pub(crate) struct OpenSource {
    pub(crate) source: Box<dyn Source>,
    pub(crate) dlt: c_int,
    pub(crate) snap_len: c_int,
    /// A warning's code and text.
    pub(crate) warning: Option<Failure>,
}

/// Sleeps until the source has something, `wakeup` is notified, a signal comes, or the time is over.
pub(crate) fn sleep(
    source: &mut dyn Source,
    wakeup: Option<&Wakeup>,
    left: Option<Duration>,
) -> Result<(), Failure> {
    sleep_until(Some(source), libc::POLLIN, wakeup, left)
}

/// Sleeps in the same way, but until the source has an error: packets do not end it.
pub(crate) fn rest(
    source: Option<&mut dyn Source>,
    wakeup: Option<&Wakeup>,
    left: Duration,
) -> Result<(), Failure> {
    sleep_until(source, 0, wakeup, Some(left))
}

fn sleep_until(
    source: Option<&mut dyn Source>,
    events: i16,
    wakeup: Option<&Wakeup>,
    left: Option<Duration>,
) -> Result<(), Failure> {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    // A negative descriptor is passed over.
    let fd = source.as_ref().map_or(-1, |source| source.fd());
    let wakeup_fd = wakeup.map_or(-1, |wakeup| wakeup.as_fd().as_raw_fd());
    let mut fds = [entry(fd, events), entry(wakeup_fd, libc::POLLIN)];
    let is_dozing = source.as_ref().is_some_and(|source| source.is_dozing());
    let left = if is_dozing { Some(left.unwrap_or(DOZE).min(DOZE)) } else { left };
    // Rounded up, so that a wait does not end in a busy loop just before its time.
    let timeout =
        left.map_or(-1, |left| c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
    // SAFETY: two pollfd, which the kernel may write to.
    let result = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout) };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EINTR) => Ok(()),
            _ => Err(Failure::system("can't poll on packet socket", &error)),
        };
    }
    if fds[1].revents != 0
        && let Some(wakeup) = wakeup
    {
        wakeup.take();
    }
    let has_error = fds[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
    match source {
        Some(source) if has_error || is_dozing => source.examine(),
        _ => Ok(()),
    }
}
