//! Where live packets come from, behind one trait, and which device name means what.
//!
//! ```text
//! TAPLINE_DEVICE_MAP=eth0=tap:edge,eth1=veth7      eth0 is read from the daemon's capture "edge", eth1 from veth7
//! name --map--> "any" | an interface  ──► Interface (af_packet.rs)
//!               store:DIRECTORY       ──► Stored (stored.rs): packets that were recorded
//!               tap:NAME              ──► Shared (shared.rs): a capture of tapline serve
//! ```

use std::ffi::c_int;
use std::os::fd::RawFd;

use tapline_filter::Options;
use tapline_ir::CompiledFilter;
use tapline_packet::Batch;

use crate::af_packet::Interface;
use crate::failure::Failure;
use crate::raw::{ERROR_PERM_DENIED, Stat};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stored::{self, Stored};

/// The environment variable that sends devices elsewhere.
pub(crate) const DEVICE_MAP: &str = "TAPLINE_DEVICE_MAP";
/// The prefix of captures that a daemon shares.
pub(crate) const SHARED: &str = "tap:";

/// What a source is asked of each packet before it is changed for C: whether the filter that runs here accepts it.
pub(crate) type Keep<'a> = &'a mut dyn FnMut(tapline_packet::Packet<'_>) -> bool;

/// Live packets. One thread at a time uses it.
pub(crate) trait Source: Send {
    /// Gives the last batch back and gets the next, without waiting; whether there is one. Packets that `keep` refuses are not in it: it may be empty, and
    /// more may wait behind it. Whoever calls this in a loop looks each time whether somebody wants it to end.
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure>;

    /// The batch that the last `advance` found, as C programs see its packets, but for the snap length: a tag that was put back may have made them longer.
    fn batch(&self) -> Batch<'_>;

    /// Leaves out of the batch, from the packet at `from` on, what `keep` refuses, which sees packets as it would have in `advance`. The bytes of those
    /// before stay as they are.
    fn refilter(&mut self, from: usize, keep: Keep<'_>);

    /// Gives back what the batch stood in, whose last packet was handed out.
    fn release(&mut self);

    /// What can be waited on for packets.
    fn fd(&self) -> RawFd;

    /// Looks at the descriptor after a wait that ended with an error on it.
    ///
    /// An interface that is gone for good is an error, one that is down for now is not.
    fn examine(&mut self) -> Result<(), Failure>;

    /// Whether waits must be short, because what ends them does not show on the descriptor.
    fn is_dozing(&self) -> bool;

    /// A text was compiled to this program, which may be set as the filter.
    fn compiled(&mut self, _text: &str, _options: &Options, _filter: &CompiledFilter) {}

    /// Filters by this program from now on. Whether `keep` is needed for packets yet to come.
    fn set_program(&mut self, program: &CompiledFilter) -> Result<(), Failure>;

    /// Whether packets of the next batch have to pass the filter here.
    fn wants_filter(&self) -> bool;

    /// 0: both directions, 1: received, 2: sent.
    fn set_direction(&mut self, direction: c_int) -> Result<(), Failure>;

    /// The link types there are, of libpcap's numbers; the present one is among them.
    fn dlts(&self) -> &[c_int];

    /// Another of the link types.
    fn set_dlt(&mut self, dlt: c_int);

    /// The kernel's counters since the source was opened.
    fn statistics(&mut self) -> Result<Stat, Failure>;

    /// Sends a frame. If there is no room for it, `waits` says whether to wait.
    fn send(&mut self, frame: &[u8], waits: bool) -> Result<usize, Failure>;

    /// Another buffer, in bytes, and how much of it to fill before the reader wakes; what is in the present one is lost, and left out of the batch.
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

/// What a source was opened as.
pub(crate) struct Opened {
    pub(crate) source: Box<dyn Source>,
    pub(crate) dlt: c_int,
    pub(crate) snap_len: c_int,
    /// A warning's code and text.
    pub(crate) warning: Option<Failure>,
}

/// Opens the source that a device name means.
pub(crate) fn open(device: &str, settings: &Settings) -> Result<Opened, Failure> {
    let map = device_map();
    let device = mapped(&map, device)?;
    match (stored::name_of(device), device.strip_prefix(SHARED)) {
        // The directory is the user's word, and would be read with the program's rights.
        (Some(_), _) if is_secure() => Err(Failure::new(
            ERROR_PERM_DENIED,
            format!("{device}: programs with more rights than their user read no store"),
        )),
        (Some(name), _) => Stored::open(&name?, settings),
        (None, Some(name)) => Shared::open(device, name, settings),
        (None, None) => Interface::open(device, settings),
    }
}

/// Whether the program has more rights than its user, as from a setuid bit. Such programs believe no environment.
pub(crate) fn is_secure() -> bool {
    // SAFETY: getauxval(3) takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn device_map() -> String {
    if is_secure() { String::new() } else { std::env::var(DEVICE_MAP).unwrap_or_default() }
}

/// What a device name means by the map. Names that it does not hold mean themselves.
pub(crate) fn mapped<'a>(map: &'a str, device: &'a str) -> Result<&'a str, Failure> {
    for entry in map.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match entry.split_once('=') {
            Some((from, to)) if !from.trim().is_empty() && !to.trim().is_empty() => {
                if from.trim() == device {
                    return Ok(to.trim());
                }
            }
            _ => {
                return Err(Failure::error(format!(
                    "{DEVICE_MAP}: \"{entry}\" is not of the form DEVICE=DEVICE or DEVICE=tap:NAME"
                )));
            }
        }
    }
    Ok(device)
}

#[cfg(test)]
pub(crate) mod fake {
    //! A source that a test fills.

    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use tapline_packet::{Meta, Record};

    use super::*;
    use crate::handle::{Handle, Kind, State};
    use crate::read::pcap_breakloop;

    /// Lends batches of packets of one byte each. None of its functions loses any.
    #[derive(Default)]
    pub(crate) struct Fake {
        pub(crate) batches: VecDeque<Vec<u8>>,
        /// The batch that comes when there are no others, again and again.
        pub(crate) endless: Option<Vec<u8>>,
        /// A handle whose loop is broken whenever somebody looks at the batch.
        pub(crate) breaks: Arc<AtomicPtr<Handle>>,
        pub(crate) memory: Vec<u8>,
        pub(crate) records: Vec<Record>,
    }

    impl Fake {
        pub(crate) fn of(batches: &[&[u8]]) -> Fake {
            Fake { batches: batches.iter().map(|batch| batch.to_vec()).collect(), ..Fake::default() }
        }

        /// An active handle on this source.
        pub(crate) fn into_handle(self) -> *mut Handle {
            let mut state = State::new(Kind::Live(Box::new(self)));
            state.snap_len = 100;
            state.dlt = 1;
            Handle::boxed(state)
        }
    }

    impl Source for Fake {
        fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure> {
            self.records.clear();
            let Some(batch) = self.batches.pop_front().or_else(|| self.endless.clone()) else {
                return Ok(false);
            };
            self.memory = batch;
            let meta = Meta { wire_len: 1, ..Meta::default() };
            let record = |offset| Record { offset, cap_len: 1, options_len: 0, meta };
            self.records = (0..self.memory.len()).map(record).collect();
            self.refilter(0, keep);
            Ok(true)
        }

        fn batch(&self) -> Batch<'_> {
            // SAFETY: null, or the handle of the test.
            unsafe { pcap_breakloop(self.breaks.load(Ordering::Relaxed)) };
            Batch::new(&self.memory, &self.records)
        }

        fn refilter(&mut self, from: usize, keep: Keep<'_>) {
            let mut index = 0;
            self.records.retain(|record| {
                index += 1;
                let data = crate::vlan::data(&self.memory, record);
                index <= from || keep(tapline_packet::Packet { data, meta: &record.meta })
            });
        }

        fn release(&mut self) {
            self.records.clear();
        }

        fn fd(&self) -> RawFd {
            // poll(2) passes it over.
            -1
        }

        fn examine(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn is_dozing(&self) -> bool {
            false
        }

        fn set_program(&mut self, _: &CompiledFilter) -> Result<(), Failure> {
            Ok(())
        }

        fn wants_filter(&self) -> bool {
            true
        }

        fn set_direction(&mut self, _: c_int) -> Result<(), Failure> {
            Ok(())
        }

        fn dlts(&self) -> &[c_int] {
            &[1]
        }

        fn set_dlt(&mut self, _: c_int) {}

        fn statistics(&mut self) -> Result<Stat, Failure> {
            Ok(Stat::default())
        }

        fn send(&mut self, frame: &[u8], _: bool) -> Result<usize, Failure> {
            Ok(frame.len())
        }

        fn resize(&mut self, _: u64, _: Option<u32>) -> Result<(), Failure> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_mapped_once() {
        let map = "eth0=tap:edge, eth1 = veth7 ,,veth7=lo";
        let to = |device| mapped(map, device).expect("a map");
        assert_eq!((to("eth0"), to("eth1"), to("veth7"), to("eth2")), ("tap:edge", "veth7", "lo", "eth2"));
        assert_eq!(mapped("", "eth0").expect("a map"), "eth0");
    }

    #[test]
    fn a_map_that_is_none_is_told() {
        for map in ["eth0", "=eth1", "eth0=", "a=b,c"] {
            let failure = mapped(map, "eth9").expect_err("no map");
            assert!(failure.text.starts_with(DEVICE_MAP), "{}", failure.text);
        }
    }

    #[test]
    fn without_a_daemon_there_is_no_shared_capture() {
        let name = "tap:a capture that nobody has";
        let Err(failure) = open(name, &Settings::default()) else { panic!("opened") };
        assert_eq!(failure.code, crate::raw::ERROR_NO_SUCH_DEVICE);
        assert!(
            failure.text.contains("daemon") || failure.text.contains("is there for you"),
            "{}",
            failure.text
        );
    }
}
