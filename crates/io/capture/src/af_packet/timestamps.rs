//! The clock that stamps the packets.
//!
//! ```text
//! host              the kernel's clock, when the packet was received (or sent)        always there
//! adapter           the NIC's clock, synchronized with the host's by another program (ptp4l and phc2sys)
//! adapter_unsynced  the NIC's clock, not synchronized
//! ```
//!
//! The kernel does not distinguish the last two (`SOF_TIMESTAMPING_RAW_HARDWARE`; the flag for it has no effect any
//! more), and we cannot know whether the clock is synchronized. Packets that the NIC did not stamp, such as those sent,
//! carry the host's time and are counted.

use tapline_sys::{LinkControl, PacketSocket, Timestamping};

use super::AfPacketError;

/// `SOF_TIMESTAMPING_RAW_HARDWARE` of linux/net_tstamp.h.
const RAW_HARDWARE: u32 = 1 << 6;
const EPERM: i32 = 1;

tapline_packet::named_enum! {
    /// The clock that stamps packets.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum TimestampSource {
        /// The kernel's.
        #[default]
        Host = "host",
        /// The adapter's, kept in step with the host's by another program.
        Adapter = "adapter",
        /// The adapter's, as it goes.
        AdapterUnsynced = "adapter_unsynced",
    }
}

impl TimestampSource {
    /// A few words for people (`-J`).
    pub fn description(self) -> &'static str {
        match self {
            TimestampSource::Host => "Host",
            TimestampSource::Adapter => "Adapter",
            TimestampSource::AdapterUnsynced => "Adapter, not synced with system time",
        }
    }

    /// The one of this name. Names that libpcap has for the host's clock at some precision mean the host's clock.
    pub fn from_name(name: &str) -> Option<TimestampSource> {
        match name {
            "host_lowprec" | "host_hiprec" => Some(TimestampSource::Host),
            _ => TimestampSource::ALL.into_iter().find(|source| source.name().eq_ignore_ascii_case(name)),
        }
    }

    /// The sources of timestamps that an interface has.
    pub(super) fn available(timestamping: Option<&Timestamping>) -> Vec<TimestampSource> {
        let has_adapter = timestamping.is_some_and(Timestamping::can_stamp_all);
        let is_there = |source: &TimestampSource| has_adapter || *source == TimestampSource::Host;
        TimestampSource::ALL.into_iter().filter(is_there).collect()
    }
}

/// Sets the adapter and the socket up for `source`.
pub(super) fn set_up(
    source: TimestampSource,
    name: &str,
    control: &mut LinkControl,
    socket: &PacketSocket,
) -> Result<(), AfPacketError> {
    if source == TimestampSource::Host {
        return Ok(());
    }
    control.stamp_all(name).map_err(|source| {
        let hint = if source.errno() == EPERM { "; switching it on needs CAP_NET_ADMIN" } else { "" };
        AfPacketError::NoHardwareTimestamps { interface: name.to_owned(), hint, source }
    })?;
    socket.set_timestamping(RAW_HARDWARE).map_err(|source| AfPacketError::of_call(name, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for source in TimestampSource::ALL {
            assert_eq!(TimestampSource::from_name(source.name()), Some(source));
        }
        assert_eq!(TimestampSource::from_name("host_hiprec"), Some(TimestampSource::Host));
        assert_eq!(TimestampSource::from_name("sundial"), None);
        assert_eq!(TimestampSource::available(None), [TimestampSource::Host]);
    }
}
