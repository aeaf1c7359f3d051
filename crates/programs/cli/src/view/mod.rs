//! `tapline view`: the traffic of a running meter in a browser.
//!
//! Arguments of the command; a build without the feature `view` says that it has no page.

#[cfg(feature = "view")]
mod packets;
#[cfg(feature = "view")]
mod serving;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
#[cfg(not(feature = "view"))]
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tapline_pages::EventFile;
use tapline_store::StoreName;
use tapline_syntax::units::size_in;
use tapline_sys::privilege::{self, Identity};

use crate::live::TAP;
use crate::starting::StartArgs;

#[cfg(feature = "view")]
pub(crate) use serving::run;

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo tapline view -i eth0                  meter, last packets, history, alerts, and the page: prints its address
  sudo tapline view                          of a meter that runs, such as tapline probe -i eth0 --view
  ssh -L 7070:127.0.0.1:7070 probe           from elsewhere: then open the same address
  tapline view --packets tap:office          packets of the daemon's past, behind every chart
  tapline view --packets store:/srv/store    packets of a store
  tapline view --events /var/log/watch.json  events of the rules of tapline watch, as marks and in a list
  tapline view --rights look                 an address for counts alone: no names from payloads, no packets
  tapline view --history-size 200M           bound the history
  tapline view --listen 192.0.2.1:7070 --certificate page.pem --key page.key \\
      --host probe.example.org

The page reads a file that the meter writes once a second: browsers cost the capture nothing. The token in the address stays the same over
starts; --new-token makes another. With -i, the meter is tapline serve, and alerts are those of tapline watch with --rules or
/etc/tapline/watch.toml; both end with the page. Other hosts are served through ssh, with TLS (--listen, --certificate, --key, --host), or by a proxy with TLS in front
(--behind-proxy). docs/view.md has the pages.";

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Where browsers reach the page, as ADDRESS:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070", help_heading = "Server")]
    listen: SocketAddr,
    /// A proxy with TLS is in front: other addresses than loopback's are allowed, and the cookie is for HTTPS alone.
    #[arg(long, help_heading = "Server")]
    behind_proxy: bool,
    /// Speak TLS, with this chain of certificates, in PEM: other addresses than loopback's are allowed then, and the cookie
    /// is for HTTPS alone.
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Server")]
    certificate: Option<PathBuf>,
    /// The private key of --certificate, in PEM, which not every user may read.
    #[arg(long, value_name = "FILE", requires = "certificate", help_heading = "Server")]
    key: Option<PathBuf>,
    /// Write the address with its token into this file, for this user alone, and print the address without it: then the
    /// token is in no journal. The file is replaced at each start.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    address_file: Option<PathBuf>,
    /// A host name under which browsers reach the page, in addition to localhost and loopback addresses. May be
    /// repeated.
    #[arg(long, value_name = "NAME", value_parser = host_name, help_heading = "Server")]
    host: Vec<String>,
    /// Make a new token for the address. Default: that of the last start with the same rights, which is kept with the
    /// history.
    #[arg(long, help_heading = "Server")]
    new_token: bool,
    /// The rights of the printed address. look: counts and addresses; names: also names that clients asked for; packets:
    /// also packets. Each includes those before it.
    #[arg(long, value_name = "RIGHTS", default_value = "packets", value_parser = ["look", "names", "packets"], help_heading = "Server")]
    rights: String,
    /// A file of users, which no one else may read: lines of a name, its rights (look, names, packets) and its token of at
    /// least 32 letters and digits. Downloads are logged with the name.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    users: Option<PathBuf>,
    #[command(flatten)]
    start: StartArgs,
    /// Show this process. Default: the meter of the history, or the one that began last.
    #[arg(long, value_name = "PID", help_heading = "Source")]
    pid: Option<u32>,
    /// Show the meter of this name, whenever it runs: its command and its sources, such as 'probe eth0'.
    #[arg(long, value_name = "NAME", help_heading = "Source", conflicts_with_all = ["pid", "interface"])]
    meter: Option<String>,
    /// Where packets of the past come from: tap:NAME, a capture of tapline serve with a history, or store:DIRECTORY. May
    /// be repeated. Default: the captures of the daemon that this user may read.
    #[arg(long, value_name = "NAME", value_parser = packet_source, help_heading = "Source")]
    packets: Vec<String>,
    /// The socket of tapline serve.
    #[arg(long, value_name = "PATH", help_heading = "Source")]
    socket: Option<PathBuf>,
    /// Events of rules, from the file that `tapline watch --events FILE --json` writes: shown on a page of their own and as
    /// marks of charts, and kept in the history.
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    events: Option<PathBuf>,
    /// Files of places and of vendors of MAC addresses (docs/enrich.md), with commas between: the page of a host has its
    /// country, its network and its vendor. They are read once.
    #[arg(long, value_name = "FILES", help_heading = "Source")]
    enrich: Option<String>,
    /// The file of the history. Default: tapline/history.sqlite in /var/lib, or in the user's state directory.
    #[arg(long, value_name = "FILE", help_heading = "History")]
    history: Option<PathBuf>,
    /// Keep no history.
    #[arg(long, help_heading = "History", conflicts_with = "history")]
    no_history: bool,
    /// The most bytes of the history; then the oldest minutes go first.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size_in::<u64>(1_000_000..), help_heading = "History")]
    history_size: u64,
    /// Run as this user. Default for root: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER")]
    relinquish_privileges: Option<String>,
}

/// A host name as browsers send it, or an address.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    match is_name(text) || text.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => {
            Err("a host is a name or an address, without protocol and port: probe.example.org".to_owned())
        }
    }
}

/// The name of a source of packets.
fn packet_source(text: &str) -> Result<String, String> {
    let is_capture = text.strip_prefix(TAP).is_some_and(|name| !name.is_empty());
    let store = StoreName::parse(Path::new(text)).transpose()?;
    match is_capture || store.is_some_and(|store| !store.directory.as_os_str().is_empty()) {
        true => Ok(text.to_owned()),
        false => Err("a source of packets is tap:NAME or store:DIRECTORY".to_owned()),
    }
}

/// Says that this build has no page.
#[cfg(not(feature = "view"))]
pub(crate) fn run(_: ViewArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no page: build it with `cargo build --release --features view`")
}

/// Where the history of a user is, by the rules of the XDG base directories. `identity` is the user to become, whose
/// variables are not ours.
pub(crate) fn usual_history(identity: Option<&Identity>) -> Option<PathBuf> {
    let folder = if let Some(home) = identity.and_then(|identity| identity.home.as_ref()) {
        home.join(".local/state")
    } else if privilege::is_root() {
        PathBuf::from("/var/lib")
    } else {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?
    };
    Some(folder.join("tapline/history.sqlite"))
}

/// The history that this process may look at: under sudo its caller's.
pub(crate) fn own_history() -> Option<PathBuf> {
    usual_history(if privilege::is_root() { Identity::of_caller() } else { None }.as_ref())
}

/// The events of rules, as `tapline watch` writes them.
pub(crate) fn open_events(path: &Path) -> anyhow::Result<EventFile> {
    EventFile::open(path).with_context(|| {
        format!("cannot read {} (--events): tapline watch --events FILE --json writes it", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_sources_of_packets_are_looked_at() {
        for host in ["probe.example.org", "probe", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(host_name(host).as_deref(), Ok(host));
        }
        for wrong in ["", "probe:7070", "https://probe", "[::1]", "a b"] {
            assert!(host_name(wrong).is_err(), "{wrong}");
        }
        for source in ["tap:office", "store:/srv/store", "store:/srv/store?from=-1h"] {
            assert_eq!(packet_source(source).as_deref(), Ok(source));
        }
        for wrong in ["", "foo", "tap:", "store:", "store:/srv/store?from=-1h&more=1"] {
            assert!(packet_source(wrong).is_err(), "{wrong}");
        }
    }
}
