//! `tapline view`: the traffic of a running meter in a browser.
//!
//! ```text
//! listen, open history, find sources of packets --> rights given up, confined --> Server::run until Ctrl-C
//! ```

mod packets;

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tapline_profile::run_folders;
use tapline_syntax::units::size_in;
use tapline_sys::sandbox::{self, AllowedAccess};
use tapline_sys::{capability, privilege};
use tapline_web::{Access, Feed, History, HistoryLimits, PacketSource, Rights, Server, ServerSettings};

use crate::privileges;
use packets::Sources;

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo tapline probe -i eth0 --view          meter an interface, for the page
  sudo tapline view                          print the address of the page, with its token
  ssh -L 7070:127.0.0.1:7070 probe           from elsewhere: then open the same address
  tapline view --packets tap:office          packets of the daemon's past, behind every chart
  tapline view --packets store:/srv/store    packets of a store
  tapline view --rights look                 an address for counts alone: no names from payloads, no packets
  tapline view --history-size 200M           bound the history

The page reads a file that the meter writes once a second: browsers cost the capture nothing. The token in the address is made anew at each
start. Other hosts are served through ssh, or by a proxy with TLS in front (--listen, --behind-proxy, --host). docs/view.md has the pages.";

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// Address and port of the page; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070", help_heading = "Server")]
    listen: SocketAddr,
    /// A proxy with TLS stands in front: other addresses than loopback's are allowed, and the cookie is for HTTPS alone.
    #[arg(long, help_heading = "Server")]
    behind_proxy: bool,
    /// A host name under which browsers reach the page, besides localhost and loopback addresses. May be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    host: Vec<String>,
    /// The rights of the printed address. look: counts and addresses; names: also names that clients asked for; packets:
    /// also packets. Each includes those before it.
    #[arg(long, value_name = "RIGHTS", default_value = "packets", value_parser = ["look", "names", "packets"], help_heading = "Server")]
    rights: String,
    /// Show this process. Default: the one that began last.
    #[arg(long, value_name = "PID", help_heading = "Source")]
    pid: Option<u32>,
    /// Where packets of the past come from: tap:NAME, a capture of tapline serve with a history, or store:DIRECTORY. May
    /// be repeated. Default: the captures of the daemon that this user may read.
    #[arg(long, value_name = "SOURCE", help_heading = "Source")]
    packets: Vec<String>,
    /// The socket of tapline serve.
    #[arg(long, value_name = "PATH", help_heading = "Source")]
    socket: Option<PathBuf>,
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

/// Runs the command.
pub(crate) fn run(args: &ViewArgs) -> Result<ExitCode> {
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let rights = Rights::of_name(&args.rights).context("--rights is look, names or packets")?;
    let access = Access::new(rights, &args.host, args.behind_proxy).context("cannot make a token")?;
    let token = access.token().to_owned();
    let sources = Sources::find(&args.packets, args.socket.as_deref())?;
    // From here on this process is the user's, without a capability: the history is made by that user.
    privilege::drop_to(identity.as_ref()).context("cannot drop privileges")?;
    let history = open_history(args)?;
    let folder = history.as_ref().and_then(|history| sandbox::folder_of(history.path()).map(Path::to_owned));
    let stores = sources.directories();
    let settings = ServerSettings { listen: args.listen, is_behind_proxy: args.behind_proxy };
    let packets = (!sources.is_empty()).then(|| Arc::new(sources) as Arc<dyn PacketSource>);
    let server = Server::bind(&settings, access, Feed::new(args.pid), packets, history, Box::new(tell))?;
    let address = server.address()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    confine(folder, stores);
    writeln!(io::stdout(), "http://{address}/#token={token}")?;
    server.run(&stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Leaves this process the files of meters, the folder of the history, and the connections of browsers.
fn confine(history: Option<PathBuf>, stores: Vec<PathBuf>) {
    debug_assert!(capability::effective().is_ok_and(|rights| rights == 0));
    let folders = run_folders();
    // A folder that is made later could not be read.
    if !folders.iter().any(|folder| folder.path().is_dir()) {
        let _ = folders.iter().find(|folder| folder.prepare().is_ok());
    }
    let reads = folders.iter().map(|folder| folder.path().to_owned()).chain(stores).collect();
    let needs = AllowedAccess {
        reads,
        makes: history.into_iter().collect(),
        is_server: true,
        ..AllowedAccess::default()
    };
    for lack in sandbox::confine(&needs) {
        tell(&lack);
    }
}

fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "tapline: {line}");
}

/// The history, unless none is wanted.
fn open_history(args: &ViewArgs) -> Result<Option<History>> {
    if args.no_history {
        return Ok(None);
    }
    let path = match &args.history {
        Some(path) => std::path::absolute(path)?,
        None => match usual_history() {
            Some(path) => path,
            None => {
                bail!("there is no state directory for the history: name a file (--history), or --no-history")
            }
        },
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        // Addresses and names: for the user alone.
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
            format!("cannot make {} for the history (--history, --no-history)", folder.display())
        })?;
    }
    let limits = HistoryLimits { bytes: args.history_size, ..HistoryLimits::default() };
    Ok(Some(History::open(&path, limits)?))
}

/// Where the history of this user is, by the rules of the XDG base directories.
fn usual_history() -> Option<PathBuf> {
    let folder = if privilege::is_root() {
        PathBuf::from("/var/lib")
    } else {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")))?
    };
    Some(folder.join("tapline/history.sqlite"))
}
