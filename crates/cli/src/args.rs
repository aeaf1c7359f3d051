//! Arguments and values that several commands take. Each command keeps its own beside its code.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// The most that is taken of a packet unless it is told, and what snap length 0 stands for: as libpcap.
pub(crate) const SNAP_LEN: u32 = 262_144;

/// How the text of a filter is read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LanguageArgs {
    /// The shift of vlan, mpls, pppoes, geneve and vxlan ends with its parenthesis and at `or`; a VLAN tag that the kernel took
    /// out counts as on the wire. As scoped(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) scoped: bool,
    /// Look behind the extension headers of IPv6, with ports, tcp[...] and the like. As extensions(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) ipv6_extensions: bool,
}

/// A program in FPL (docs/filter/fpl.md).
#[derive(Clone, Debug, Args)]
pub(crate) struct FplArgs {
    /// A program in FPL. Capture: it decides over the packets that the filter accepts, drops those for which it returns 0, and keeps its
    /// memory from packet to packet; with --workers, each worker has a memory of its own. Explain: this program instead of a filter.
    #[arg(long, value_name = "FILE", help_heading = "Filter", conflicts_with = "dump")]
    pub(crate) fpl: Option<PathBuf>,
    /// How many memory cells the program has: a power of two, up to 16777216.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_cells: u32,
    /// The program may call EXTERN(NAME, ...), which finds the patterns of FILE (docs/search.md: one a line). Repeat it for more.
    #[arg(long, value_name = "NAME=FILE", help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_patterns: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    Pcap,
    Pcapng,
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        unit => return Err(format!("unknown unit '{unit}': use ms, s, m, h or d")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("'{digits}' is not a number"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

/// A time between two readings: at least a hundredth of a second.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(10);
    parse_duration(text)
        .and_then(|time| if time < least { Err("less than 10ms".to_owned()) } else { Ok(time) })
}

/// A number of bytes: units of 1,000 (k, M, G, T, with or without B) or 1,024 (Ki, Mi, Gi, Ti, with or without B).
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    let factor: u64 = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90").unwrap().as_secs(), 90);
        assert_eq!(parse_duration("1.5m").unwrap().as_secs(), 90);
        assert!(parse_duration("5x").is_err());
        assert!(parse_duration("-1").is_err());
    }

    #[test]
    fn sizes_have_units_of_both_kinds() {
        for (text, size) in [
            ("500GB", Some(500_000_000_000)),
            ("2T", Some(2_000_000_000_000)),
            ("10GiB", Some(10 << 30)),
            ("64Mi", Some(64 << 20)),
            ("4096", Some(4096)),
            ("1k", Some(1000)),
            ("", None),
            ("GB", None),
            ("1.5G", None),
            ("-1", None),
            ("99999999T", None),
        ] {
            assert_eq!(parse_bytes(text), size, "{text}");
        }
    }
}
