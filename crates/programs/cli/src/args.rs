//! Arguments and values that several commands share. Each command keeps its own next to its code.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tapline_file::{Format, WriteError};
use tapline_filter::Options;
use tapline_syntax::units;

use crate::container;

/// Default snap length, and the meaning of snap length 0: as libpcap.
pub(crate) const SNAP_LEN: u32 = 262_144;

/// The network in which a command opens interfaces and sockets.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NetworkArgs {
    /// Open interfaces in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    netns: Option<String>,
    /// Open interfaces in the network of this container: its name, its pod's, or the beginning of its identifier
    /// (containerd, Kubernetes, Docker, Podman, CRI-O, systemd-nspawn, LXC).
    #[arg(long, value_name = "NAME", value_parser = container::process, conflicts_with = "netns", help_heading = "Input")]
    container: Option<String>,
}

impl NetworkArgs {
    /// The namespace; `None` means that of this process.
    pub(crate) fn name(&self) -> Option<&String> {
        self.netns.as_ref().or(self.container.as_ref())
    }
}

/// Dialect of filter texts.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct LanguageArgs {
    /// Let vlan, mpls, pppoes, geneve and vxlan change the offsets of later words only up to the end of their
    /// parentheses or the next `or`. Treat a VLAN tag that the kernel removed as if it were in the packet. Same as
    /// scoped(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) scoped: bool,
    /// Find ports, tcp[...] and the like after IPv6 extension headers. Same as extensions(...) around the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) ipv6_extensions: bool,
    /// Let filters accept packets with no VLAN tag, one or two, as if the tags were not there. As anyvlan(...) around
    /// the filter.
    #[arg(long, help_heading = "Filter")]
    pub(crate) any_vlan: bool,
}

impl LanguageArgs {
    /// Returns the options of the compiler with these ones; the rest is that of `others`.
    pub(crate) fn options(self, others: Options) -> Options {
        let LanguageArgs { scoped, ipv6_extensions, any_vlan } = self;
        Options { scoped, ipv6_extensions, any_vlan, ..others }
    }

    /// The filter with the modifiers that mean these options, for those who know no options: the daemon, comments.
    pub(crate) fn in_words(self, text: &str) -> String {
        let words =
            [(self.any_vlan, "anyvlan"), (self.scoped, "scoped"), (self.ipv6_extensions, "extensions")];
        let words = words.into_iter().filter(|_| !text.trim().is_empty());
        words
            .filter_map(|(is_set, word)| is_set.then_some(word))
            .fold(text.to_owned(), |text, word| format!("{word}({text})"))
    }
}

/// A program in FPL (docs/filter/fpl.md).
#[derive(Clone, Debug, Args)]
pub(crate) struct FplArgs {
    /// Run a program in FPL (docs/filter/fpl.md). A capture runs it on each packet that the filter accepts, and drops
    /// the packet if it returns 0. Each worker keeps the memory of the program from packet to packet.
    /// `tapline filter explain` shows the program instead of a filter.
    #[arg(long, value_name = "FILE", help_heading = "Filter", conflicts_with = "dump")]
    pub(crate) fpl: Option<PathBuf>,
    /// Memory cells of the program: a power of two, up to 16777216.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = units::count_in::<u32>(1..), help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_cells: u32,
    /// Let the program call EXTERN(NAME, ...), which searches for the patterns of FILE (one a line; docs/search.md).
    /// May be repeated.
    #[arg(long, value_name = "NAME=FILE", help_heading = "Filter", requires = "fpl")]
    pub(crate) fpl_patterns: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    Pcap,
    Pcapng,
    Erf,
}

impl FormatArg {
    /// The format for a file of this name: the requested one, or that of its ending.
    ///
    /// # Errors
    /// If the ending names a format or compression that is not written.
    pub(crate) fn of(asked: Option<FormatArg>, path: &Path) -> Result<Format, WriteError> {
        Format::check_name(path, asked.is_some())?;
        Ok(match asked {
            Some(FormatArg::Pcap) => Format::Pcap,
            Some(FormatArg::Pcapng) => Format::Pcapng,
            Some(FormatArg::Erf) => Format::Erf,
            None => Format::from_name(path),
        })
    }
}

/// A time, for options.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    units::duration(text).map_err(|error| error.to_string())
}

/// A time between two readings: at least a hundredth of a second.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(10);
    parse_duration(text)
        .and_then(|time| if time < least { Err("less than 10ms".to_owned()) } else { Ok(time) })
}
