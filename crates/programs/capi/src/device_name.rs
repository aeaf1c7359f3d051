//! Device names and their sources.
//!
//! ```text
//! TAPLINE_DEVICE_MAP=eth0=tap:edge,eth1=veth7      eth0 is read from the daemon's capture "edge", eth1 from veth7
//! name --map--> "any" | an interface  ──► Interface (af_packet.rs)
//!               store:DIRECTORY       ──► Stored (stored.rs): packets that were recorded
//!               tap:NAME              ──► Shared (shared.rs): a capture of tapline serve
//! ```

use crate::af_packet::Interface;
use crate::environment::{DEVICE_MAP, device_map, is_secure};
use crate::failure::Failure;
use crate::raw::ERROR_PERM_DENIED;
use crate::settings::Settings;
use crate::shared::{SHARED, Shared};
use crate::source::OpenSource;
use crate::stored::{self, Stored};

/// Opens the source that a device name means.
pub(crate) fn open(device: &str, settings: &Settings) -> Result<OpenSource, Failure> {
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

/// The device that the map has for a name. Names that are not in the map mean themselves.
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
        let name = "tap:a capture that does not exist";
        let Err(failure) = open(name, &Settings::default()) else { panic!("opened") };
        assert_eq!(failure.code, crate::raw::ERROR_NO_SUCH_DEVICE);
        assert!(
            failure.text.contains("daemon") || failure.text.contains("that you may read"),
            "{}",
            failure.text
        );
    }
}
