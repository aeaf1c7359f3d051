//! The page itself.
//!
//! ```text
//! name sources of packets --> as the user: listen, open history --> confined --> Server::run until Ctrl-C
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use sd_notify::NotifyState;
use tapline_capture::af_xdp::address_of_ssh_session;
use tapline_geo::Places;
use tapline_pages::{Feed, Rights};
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::{self, AllowedAccess};
use tapline_sys::{capability, disk, output_file, privilege};
use tapline_web::{Access, Certificate, History, HistoryLimits, PacketSource, Server, ServerSettings};

use super::ViewArgs;
use super::packets::Sources;
use crate::output::{self, say};
use crate::starting::{self, Shown, Start};
use crate::{privileges, signals};

pub(crate) fn run(mut args: ViewArgs) -> Result<ExitCode> {
    if let Some(interface) = wanted(&args) {
        let shown = Shown {
            user: args.relinquish_privileges.as_deref(),
            socket: args.socket.as_deref(),
            history: args.history.as_deref(),
            has_events: args.events.is_some(),
            is_screen: false,
        };
        match starting::run(&args.start, &interface, &shown)? {
            Start::Ended(code) => return Ok(code),
            Start::Runs(process, socket) => (args.meter, args.socket) = (Some(process.name()), Some(socket)),
        }
    }
    args.pid = args.pid.or(args.start.started);
    serve(&args)
}

/// The interface whose meter is to be started: the one that was named; without a meter that of the default route, unless
/// a service manager started the page or the source of its numbers was named.
fn wanted(args: &ViewArgs) -> Option<String> {
    if args.start.started.is_some() {
        return None;
    }
    let is_named = args.pid.is_some() || args.meter.is_some() || !args.packets.is_empty();
    let is_service = std::env::var_os("NOTIFY_SOCKET").is_some();
    args.start.interface.clone().or_else(|| {
        let interface = if is_named || is_service { None } else { starting::default_interface() }?;
        say(format!(
            "no meter runs: starting one of {interface}, where the default route leads (-i names another)"
        ));
        Some(interface)
    })
}

fn serve(args: &ViewArgs) -> Result<ExitCode> {
    // What started this process has given its rights up.
    let identity = match args.start.started {
        Some(_) => None,
        None => privileges::identity(args.relinquish_privileges.as_deref())?,
    };
    let ssh = address_of_ssh_session();
    let rights = Rights::of_name(&args.rights).context("--rights is look, names or packets")?;
    let certificate = certificate(args)?;
    let is_secure = args.behind_proxy || certificate.is_some();
    let mut access = Access::new(rights, &args.host, is_secure).context("cannot make a token")?;
    if let Some(path) = &args.users {
        add_users(&mut access, path)?;
    }
    let places = places(args)?;
    let sources = Sources::of(&args.packets, args.socket.as_deref());
    // From here on this process is the user's, without a capability: the history is made by that user.
    privilege::drop_to(identity.as_ref()).context("cannot drop privileges")?;
    for path in Feed::refused() {
        let path = path.display();
        say(format!("no right to read {path}: its meter is another user's; -Z names the user to run as"));
    }
    sources.check()?.iter().for_each(say);
    if let Some(pid) = args.pid.filter(|_| !has_meter(args.pid)) {
        say(format!("--pid {pid}: this process meters nothing for the page yet (--view)"));
    }
    let history = history_path(args, identity.as_ref())?;
    if let Some(history) = &history {
        keep_token(&mut access, history, args)?;
    }
    let token = access.token().to_owned();
    let stores = sources.directories();
    let protocol = if certificate.is_some() { "https" } else { "http" };
    let settings = ServerSettings { listen: args.listen, is_behind_proxy: args.behind_proxy, certificate };
    let packets: Arc<dyn PacketSource> = Arc::new(sources);
    let mut server = Server::bind(
        &settings,
        access,
        Feed::new(args.pid).named(args.meter.as_deref()),
        Some(packets),
        Box::new(|line: &str| say(line)),
    )?;
    // A start whose address is taken leaves the history as it is.
    let limits = HistoryLimits { bytes: args.history_size, ..HistoryLimits::default() };
    let history = history.map(|path| History::open(&path, limits)).transpose()?;
    let folder = history.as_ref().and_then(|history| sandbox::folder_of(history.path()).map(Path::to_owned));
    history.map(|history| server.keep(history)).transpose()?;
    if let Some(path) = &args.events {
        server.watch(super::open_events(path)?);
    }
    places.into_iter().for_each(|places| server.enrich(places));
    let address = format!("{protocol}://{}/", server.address()?);
    let with_token = format!("{address}#token={token}");
    if let Some(path) = &args.address_file {
        write_private(path, &with_token)
            .with_context(|| format!("cannot write {} (--address-file)", path.display()))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let hang_ups = signals::end_service(&stop)?;
    args.start.accept_signals();
    // Before the process gives up the right to open the socket of systemd.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    confine(folder, stores);
    hang_ups.obey()?;
    match &args.address_file {
        Some(path) => output::tell(&format!("{address}, with its token in {}\n", path.display()))?,
        None => output::tell(&format!("{with_token}\n"))?,
    }
    let listens = server.address()?;
    if let Some(host) = ssh.filter(|_| listens.ip().is_loopback()) {
        let port = listens.port();
        say(format!(
            "from your machine: ssh -L {port}:127.0.0.1:{port} {host}, then open this address there"
        ));
    }
    server.run(&stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a process has a meter with a view that this user may read.
fn has_meter(pid: Option<u32>) -> bool {
    let mut feed = Feed::new(pid);
    feed.read();
    feed.snapshot().process.is_some()
}

/// The certificate, which is read before rights are given up: keys are often root's.
fn certificate(args: &ViewArgs) -> Result<Option<Certificate>> {
    let (Some(chain), Some(key)) = (&args.certificate, &args.key) else { return Ok(None) };
    Ok(Some(Certificate::read(chain, key)?))
}

/// Writes a line for this user alone, into a draft that takes the place of the file when it is whole.
fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let write = || -> io::Result<()> {
        // A draft is left where a start was killed here. The new one is made, never a link followed.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{line}")?;
        output_file::rename(draft.as_ref(), path)
    };
    let written = write();
    if written.is_err() {
        // The line has a token.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Adds the users of a file that no one else may read: it has tokens.
fn add_users(access: &mut Access, path: &Path) -> Result<()> {
    /// The most bytes of such a file.
    const LEN_MAX: u64 = 1 << 20;
    let shown = path.display();
    let file = disk::open_at_once(path, OpenOptions::new().read(true));
    let file = file.with_context(|| format!("cannot open {shown} (--users)"))?;
    let about = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        bail!("{shown} has tokens, and others may read it, or it is not a regular file: chmod 600 {shown}");
    }
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    access.add_users(&text).map_err(|reason| anyhow!("{shown}, {reason}"))
}

/// The files of places.
fn places(args: &ViewArgs) -> Result<Option<Places>> {
    let Some(files) = &args.enrich else { return Ok(None) };
    let opened = tapline_geo::file_list(files).and_then(|files| Places::open(&files));
    Ok(Some(opened.context("--enrich")?))
}

/// Leaves this process the files of meters, the folder of the history, and the connections of browsers.
fn confine(history: Option<PathBuf>, stores: Vec<PathBuf>) {
    debug_assert!(capability::effective().is_ok_and(|rights| rights == 0));
    let reads = privileges::folders_of_meters().chain(stores).collect();
    let needs = AllowedAccess {
        reads,
        makes: history.into_iter().collect(),
        is_server: true,
        ..AllowedAccess::default()
    };
    for lack in sandbox::confine(&needs) {
        say(lack);
    }
}

/// The file of the history, unless none is wanted, in a folder that is there.
fn history_path(args: &ViewArgs, identity: Option<&Identity>) -> Result<Option<PathBuf>> {
    if args.no_history {
        return Ok(None);
    }
    let path = match &args.history {
        Some(path) => std::path::absolute(path)?,
        None => match super::usual_history(identity) {
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
    Ok(Some(path))
}

/// Takes the token of the last start with the same rights, from a file next to the history that is this user's alone, so
/// that pages that are open go on. Otherwise the new one is kept there.
fn keep_token(access: &mut Access, history: &Path, args: &ViewArgs) -> Result<()> {
    /// The most bytes of the file.
    const LEN_MAX: u64 = 1 << 10;
    let path = history.with_extension(format!("{}.token", args.rights));
    let read = || -> io::Result<String> {
        let file = disk::open_at_once(&path, OpenOptions::new().read(true))?;
        let about = file.metadata()?;
        if !about.is_file() || about.mode() & 0o077 != 0 || about.uid() != privilege::user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut text = String::new();
        file.take(LEN_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let kept = if args.new_token { None } else { read().ok() };
    if kept.is_some_and(|text| access.set_token(text.trim()).is_ok()) {
        return Ok(());
    }
    write_private(&path, access.token())
        .with_context(|| format!("cannot keep the token in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_address_leaves_no_token_behind() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in place of the file: nothing can be renamed to it.
        let path = folder.path().join("address");
        fs::create_dir(&path).unwrap();
        write_private(&path, "http://[::1]:1/#token=secret").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::remove_dir(&path).unwrap();
        write_private(&path, "http://[::1]:1/#token=secret").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
