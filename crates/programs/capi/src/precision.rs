//! The unit of a handle's time stamps: `PCAP_TSTAMP_PRECISION_*`.

use std::ffi::c_int;

/// The unit of `tv_usec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Precision {
    #[default]
    Micro,
    Nano,
}

impl Precision {
    /// `PCAP_TSTAMP_PRECISION_*`.
    pub(crate) fn from_number(number: c_int) -> Option<Precision> {
        match number {
            0 => Some(Precision::Micro),
            1 => Some(Precision::Nano),
            _ => None,
        }
    }

    /// Nanoseconds as a fraction of a second in this unit.
    #[inline]
    pub(crate) fn of_nanos(self, nanos: u32) -> i64 {
        match self {
            Precision::Micro => i64::from(nanos / 1000),
            Precision::Nano => i64::from(nanos),
        }
    }

    /// A fraction in this unit as nanoseconds.
    pub(crate) fn to_nanos(self, fraction: i64) -> i64 {
        match self {
            Precision::Micro => fraction.saturating_mul(1000),
            Precision::Nano => fraction,
        }
    }
}
