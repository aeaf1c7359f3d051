//! Options of the text output: tcpdump's flags as values.

use jiff::tz::TimeZone;

/// Options of the printed text. [`Options::default`] is tcpdump without flags, except that hosts stay numeric.
#[derive(Clone, Debug)]
pub struct Options {
    /// Prints addresses as names if one is known; needs [`Printer::set_host_names`](crate::Printer::set_host_names).
    /// tcpdump's default, ours only on request: a look-up reveals to others what we watch. `-n` clears it.
    pub host_names: bool,
    /// Ports and protocols by their names. `-n` clears it.
    pub port_names: bool,
    /// The interface's name and the direction after the time, as tcpdump shows them with `-i any`.
    pub interface: bool,
    /// The link-layer header (`-e`).
    pub link_header: bool,
    /// Level of detail: the count of `-v`, 0 to 3.
    pub verbose: u8,
    /// Less detail (`-q`).
    pub quiet: bool,
    /// The time at the start of the line.
    pub time: TimeStyle,
    /// Digits of the fraction of a second.
    pub precision: Precision,
    /// Whether and how the bytes follow the text.
    pub hex: HexStyle,
    /// TCP sequence numbers as they are, instead of relative to the first seen (`-S`).
    pub absolute_seq: bool,
    /// The packet's number at the start of the line (`-#`).
    pub number: bool,
    /// Whether checksums are verified where the text shows them; `-K` clears it.
    pub verify_checksums: bool,
    /// The zone in which times of day are shown.
    pub zone: TimeZone,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host_names: false,
            port_names: true,
            interface: false,
            link_header: false,
            verbose: 0,
            quiet: false,
            time: TimeStyle::TimeOfDay,
            precision: Precision::Micro,
            hex: HexStyle::None,
            absolute_seq: false,
            number: false,
            verify_checksums: true,
            zone: TimeZone::UTC,
        }
    }
}

/// The time at the start of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStyle {
    /// `12:34:56.123456`: no flag.
    #[default]
    TimeOfDay,
    /// None: `-t`.
    None,
    /// Seconds since 1970, `1700000000.123456`: `-tt`.
    Epoch,
    /// Since the previous packet, ` 00:00:00.000012`: `-ttt`.
    SincePrevious,
    /// `2023-11-14 22:13:20.123456`: `-tttt`.
    DateTime,
    /// Since the first packet: `-ttttt`.
    SinceFirst,
}

/// Digits of the fraction of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Six digits.
    #[default]
    Micro,
    /// Nine digits.
    Nano,
}

/// Whether and how a packet's bytes follow its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HexStyle {
    /// Not at all.
    #[default]
    None,
    /// Hexadecimal, without the link-layer header: `-x`.
    Hex,
    /// Hexadecimal, all: `-xx`.
    HexLink,
    /// Hexadecimal and characters, without the link-layer header: `-X`.
    HexAscii,
    /// Hexadecimal and characters, all: `-XX`.
    HexAsciiLink,
    /// Characters, without the link-layer header: `-A`.
    Ascii,
    /// Characters, all: `-AA`.
    AsciiLink,
}

impl HexStyle {
    /// Whether the bytes follow as hexadecimal anyway, so that unknown protocols need not show theirs.
    pub(crate) const fn shows_hex(self) -> bool {
        matches!(self, HexStyle::Hex | HexStyle::HexLink | HexStyle::HexAscii | HexStyle::HexAsciiLink)
    }
}
