//! Local time, which names of files, times of packets and moments of a store share.

use std::{env, fs};

use jiff::tz::TimeZone;

/// The link or file that has the zone of the machine.
const LOCAL: &str = "/etc/localtime";
/// The folder of all zones, in the target of the link; the name of a zone follows.
const ZONES: &str = "zoneinfo/";

/// The time zone that the variable `TZ` names, else that of the machine, else UTC.
pub fn system_zone() -> TimeZone {
    // By the link, because `TimeZone::system` lists the folders of all zones to find the name of one.
    let linked = || {
        let target = fs::read_link(LOCAL).ok()?;
        let (_, name) = target.to_str()?.rsplit_once(ZONES)?;
        TimeZone::tzif(name, &fs::read(LOCAL).ok()?).ok()
    };
    env::var_os("TZ").is_none().then(linked).flatten().unwrap_or_else(TimeZone::system)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_zone_is_that_of_the_library() {
        let (ours, library) = (system_zone(), TimeZone::system());
        assert_eq!(ours.iana_name(), library.iana_name());
        for seconds in [0, 1_700_000_000, 1_720_000_000, 4_000_000_000] {
            let at = Timestamp::from_second(seconds).unwrap();
            assert_eq!(ours.to_offset_info(at).offset(), library.to_offset_info(at).offset(), "{at}");
        }
    }
}
