//! Where live packets come from, behind one trait, and which device name means what.
//!
//! ```text
//! TAPLINE_DEVICE_MAP=eth0=tap:edge,eth1=veth7      eth0 is read from the daemon's capture "edge", eth1 from veth7
//! name --map--> "any" | an interface  ──► Interface (af_packet.rs)
//!               tap:NAME              ──► Shared (shared.rs): a capture of tapline serve
//! ```

use std::ffi::c_int;
use std::os::fd::RawFd;

use tapline_filter::bpf::Program;
use tapline_packet::Batch;

use crate::af_packet::Interface;
use crate::failure::Failure;
use crate::raw::Stat;
use crate::settings::Settings;
use crate::shared::Shared;

/// The environment variable that sends devices elsewhere.
pub(crate) const DEVICE_MAP: &str = "TAPLINE_DEVICE_MAP";
/// The prefix of captures that a daemon shares.
const SHARED: &str = "tap:";

/// What a source is asked of each packet before it is changed for C: whether the filter that runs here accepts it.
pub(crate) type Keep<'a> = &'a mut dyn FnMut(tapline_packet::Packet<'_>) -> bool;

/// Live packets. One thread at a time uses it.
pub(crate) trait Source {
    /// Gives the last batch back and gets the next, without waiting; whether there is one. Packets that `keep` refuses are not in it.
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure>;

    /// The batch that the last `advance` found, as C programs see its packets.
    fn batch(&self) -> Batch<'_>;

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

    /// Filters by this program from now on. Whether `keep` is needed for packets yet to come.
    fn set_program(&mut self, program: &Program) -> Result<(), Failure>;

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

    /// Sends a frame.
    fn send(&mut self, frame: &[u8]) -> Result<usize, Failure>;

    /// Another buffer, in bytes, and how much of it to fill before the reader wakes; what is in the present one is lost.
    fn resize(&mut self, buffer_len: u64, wake_len: Option<u32>) -> Result<(), Failure>;

    /// Keeps no more than this of each packet from the next `set_program` on.
    fn set_kept(&mut self, snap_len: u32);
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
    match device.strip_prefix(SHARED) {
        Some(name) => Shared::open(device, name, settings),
        None => Interface::open(device, settings),
    }
}

/// The map, but for programs that have more rights than their user, as these believe no environment.
fn device_map() -> String {
    // SAFETY: getauxval(3) takes a number.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_secure { String::new() } else { std::env::var(DEVICE_MAP).unwrap_or_default() }
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
