//! Settings of a driver: rings, queues, hashing, interrupts, pause frames, offloads.
//!
//! ```text
//! ETHTOOL_GRINGPARAM   command rx_max mini_max jumbo_max tx_max rx mini jumbo tx
//! ETHTOOL_GCHANNELS    command max_rx max_tx max_other max_combined rx tx other combined
//! ETHTOOL_GCOALESCE    command rx_usecs rx_frames ... (word 10) adaptive_rx
//! ETHTOOL_GPAUSEPARAM  command autoneg rx tx
//! ETHTOOL_GRSSH        command context table_len key_len {function:u8 transform:u8 0:u16} 0 table:u32* key:u8*
//! ETHTOOL_GRXFH        command flow fields:u64
//! ETHTOOL_SFEATURES    command blocks { valid wanted }*
//! ```
//!
//! Words of 32 bits, host byte order (linux/ethtool.h). A driver without the feature answers `EOPNOTSUPP`.

use super::{LinkControl, SET_FEATURES};
use crate::SyscallError;

const GET_COALESCING: u32 = 0x0e;
const GET_RINGS: u32 = 0x10;
const SET_RINGS: u32 = 0x11;
const GET_PAUSE: u32 = 0x12;
const SET_PAUSE: u32 = 0x13;
const GET_HASH_FIELDS: u32 = 0x29;
const SET_FEATURES_COMMAND: u32 = 0x3b;
const GET_CHANNELS: u32 = 0x3c;
const GET_HASH: u32 = 0x46;
const GET_LINK_SETTINGS: u32 = super::GET_LINK_SETTINGS;

/// Entries of an indirection table and bytes of a key that we accept; drivers have at most a few thousand and 256.
const TABLE_LEN_MAX: u32 = 16_384;
const KEY_LEN_MAX: u32 = 1024;

/// An offload of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Name in the kernel: `rx-gro`.
    pub name: String,
    /// Whether the offload is in effect. A requested one can be off, while another one that it needs is off.
    pub is_on: bool,
    /// Whether it can be switched.
    pub is_changeable: bool,
}

/// Descriptors of each receive ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Descriptors to receive into.
    pub rx: u32,
    /// The most of them; 0 if the driver has no such ring.
    pub rx_max: u32,
}

/// Queues of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: u32,
    /// The most of them.
    pub rx_max: u32,
    /// Queues that receive and send.
    pub combined: u32,
    /// The most of them.
    pub combined_max: u32,
}

impl Channels {
    /// Queues that receive packets: those that only do, and those that send too.
    pub fn receive_queues(&self) -> u32 {
        self.rx.saturating_add(self.combined)
    }
}

/// The conditions on which the adapter raises an interrupt for received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds after the first packet.
    pub rx_usecs: u32,
    /// Whether the driver changes it by the load.
    pub is_adaptive: bool,
}

/// Pause frames of IEEE 802.3, annex 31B.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseFrames {
    /// Whether both ends negotiate.
    pub is_negotiated: bool,
    /// Whether we stop sending on request.
    pub rx: bool,
    /// Whether we ask others to stop when our ring is full.
    pub tx: bool,
}

/// The distribution of packets over the adapter's queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveHash {
    /// The queue of each hash, modulo the length.
    pub table: Vec<u32>,
    /// The key of the hash.
    pub key: Vec<u8>,
    /// `ETH_RSS_HASH_*`: 1 Toeplitz, 2 xor, 4 CRC32; 0 is unknown.
    pub function: u8,
    /// `RXH_XFRM_*`: 0 the input is hashed as it is; others make it symmetric first. Minimum kernel: 6.8.
    pub transform: u8,
}

/// Flows whose hash fields can be queried: the numbers of linux/ethtool.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashFields {
    /// TCP over IPv4.
    Tcp4 = 1,
    /// UDP over IPv4.
    Udp4 = 2,
    /// TCP over IPv6.
    Tcp6 = 5,
    /// UDP over IPv6.
    Udp6 = 6,
}

/// Duplex of a link: the directions in which it carries frames at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// One.
    Half,
    /// Both.
    Full,
    /// The driver does not say.
    Unknown,
}

/// The speed and duplex that a link agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMode {
    /// Bits per second; `None` while unknown.
    pub speed: Option<u64>,
    /// Both ways at once or not.
    pub duplex: Duplex,
    /// Whether speed and duplex are negotiated.
    pub is_negotiated: bool,
}

impl LinkControl {
    /// Ring sizes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the driver has none to report; `ENODEV` if there is no such interface. So for all below.
    pub fn rings(&mut self, name: &str) -> Result<RingSizes, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GRINGPARAM)", &[GET_RINGS])?;
        Ok(RingSizes { rx_max: answer.word(1), rx: answer.word(5) })
    }

    /// Sets the descriptors of the receive rings. Most drivers stop the link for this, for a moment or seconds.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` beyond the maximum.
    pub fn set_receive_ring(&mut self, name: &str, rx: u32) -> Result<(), SyscallError> {
        // The other sizes go back as they came.
        let answer = self.ask(name, "ioctl(ETHTOOL_GRINGPARAM)", &[GET_RINGS])?;
        let mut question: [u32; 9] = std::array::from_fn(|number| answer.word(number));
        (question[0], question[5]) = (SET_RINGS, rx);
        self.ask(name, "ioctl(ETHTOOL_SRINGPARAM)", &question).map(|_| ())
    }

    /// Numbers of queues.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn channels(&mut self, name: &str) -> Result<Channels, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GCHANNELS)", &[GET_CHANNELS])?;
        Ok(Channels {
            rx_max: answer.word(1),
            combined_max: answer.word(4),
            rx: answer.word(5),
            combined: answer.word(8),
        })
    }

    /// Interrupt moderation.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn coalescing(&mut self, name: &str) -> Result<Coalescing, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GCOALESCE)", &[GET_COALESCING])?;
        Ok(Coalescing { rx_usecs: answer.word(1), is_adaptive: answer.word(10) != 0 })
    }

    /// Pause frames.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn pause(&mut self, name: &str) -> Result<PauseFrames, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GPAUSEPARAM)", &[GET_PAUSE])?;
        Ok(PauseFrames {
            is_negotiated: answer.word(1) != 0,
            rx: answer.word(2) != 0,
            tx: answer.word(3) != 0,
        })
    }

    /// Sets pause frames. Some drivers stop the link for this.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` or `EOPNOTSUPP` if the driver cannot.
    pub fn set_pause(&mut self, name: &str, pause: PauseFrames) -> Result<(), SyscallError> {
        let PauseFrames { is_negotiated, rx, tx } = pause;
        let question = [SET_PAUSE, is_negotiated.into(), rx.into(), tx.into()];
        self.ask(name, "ioctl(ETHTOOL_SPAUSEPARAM)", &question).map(|_| ())
    }

    /// Key, function and table by which packets are distributed over queues.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn receive_hash(&mut self, name: &str) -> Result<ReceiveHash, SyscallError> {
        const CALL: &str = "ioctl(ETHTOOL_GRSSH)";
        const HEAD_LEN: usize = 24;
        // With lengths of 0 the answer only says how long table and key are.
        let answer = self.ask(name, CALL, &[GET_HASH])?;
        let (table_len, key_len) = (answer.word(2).min(TABLE_LEN_MAX), answer.word(3).min(KEY_LEN_MAX));
        let len = HEAD_LEN + table_len as usize * 4 + key_len as usize;
        let answer = self.ask_for(name, CALL, &[GET_HASH, 0, table_len, key_len], len)?;
        let table: Vec<u32> =
            (0..table_len as usize).map(|index| answer.word(HEAD_LEN / 4 + index)).collect();
        let key_at = HEAD_LEN + table.len() * 4;
        let key = (0..key_len as usize).map(|index| answer.byte(key_at + index)).collect();
        Ok(ReceiveHash { table, key, function: answer.byte(16), transform: answer.byte(17) })
    }

    /// The hashed fields of such packets: `RXH_*` of linux/ethtool.h, among them 0x10 source and 0x20 destination
    /// address, 0x40 and 0x80 the ports.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn hash_fields(&mut self, name: &str, flow: HashFields) -> Result<u64, SyscallError> {
        let answer = self.ask(name, "ioctl(ETHTOOL_GRXFH)", &[GET_HASH_FIELDS, flow as u32])?;
        Ok(answer.double(8))
    }

    /// Speed, duplex, and whether they are negotiated. Minimum kernel: 4.6.
    ///
    /// # Errors
    /// As for [`rings`](Self::rings).
    pub fn mode(&mut self, name: &str) -> Result<LinkMode, SyscallError> {
        let speed = self.speed(name)?;
        // The speed was read first, so the answer of struct ethtool_link_settings is still here: speed, then bytes.
        debug_assert_eq!(self.answer.word(0), GET_LINK_SETTINGS);
        let duplex = match self.answer.byte(8) {
            0 => Duplex::Half,
            1 => Duplex::Full,
            _ => Duplex::Unknown,
        };
        Ok(LinkMode { speed, duplex, is_negotiated: self.answer.byte(11) == 1 })
    }

    /// Switches offloads on or off, in one call. Check the result afterwards: the kernel may have refused silently,
    /// and may have switched others that depend on these.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` for one that cannot be switched; `ENODEV` for an unknown name or
    /// interface.
    pub fn set_features(&mut self, name: &str, wanted: &[(&str, bool)]) -> Result<(), SyscallError> {
        const CALL: &str = "ioctl(ETHTOOL_SFEATURES)";
        let names = self.strings(name, SET_FEATURES)?;
        let blocks = names.len().div_ceil(32);
        let mut question = vec![0; 2 + 2 * blocks];
        (question[0], question[1]) = (SET_FEATURES_COMMAND, blocks as u32);
        for (feature, is_on) in wanted {
            let bit = names.iter().position(|known| known == feature);
            let bit = bit.ok_or(SyscallError::from_errno(CALL, libc::ENODEV))?;
            let (block, mask) = (2 + bit / 32 * 2, 1 << (bit % 32));
            question[block] |= mask;
            question[block + 1] |= if *is_on { mask } else { 0 };
        }
        self.ask(name, CALL, &question).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_loopback_lacks_are_errors() {
        let mut control = LinkControl::open().unwrap();
        let errors = [
            control.rings("lo").unwrap_err(),
            control.channels("lo").unwrap_err(),
            control.coalescing("lo").unwrap_err(),
            control.pause("lo").unwrap_err(),
            control.receive_hash("lo").unwrap_err(),
            control.hash_fields("lo", HashFields::Tcp4).unwrap_err(),
            control.mode("lo").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.errno(), libc::EOPNOTSUPP, "{error}");
        }
        assert_eq!(control.rings("no-such-if").unwrap_err().errno(), libc::ENODEV);
    }

    #[test]
    fn features_say_whether_they_can_be_switched() {
        let mut control = LinkControl::open().unwrap();
        let features = control.features("lo").unwrap();
        let of = |name: &str| features.iter().find(|feature| feature.name == name).unwrap();
        assert!(of("loopback").is_on && !of("loopback").is_changeable);
        assert!(of("rx-gro").is_changeable);
        let error = control.set_features("lo", &[("no-such-feature", true)]).unwrap_err();
        assert_eq!(error.errno(), libc::ENODEV);
    }
}
