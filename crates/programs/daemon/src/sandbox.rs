//! The confinement of the daemon once all is open.

use std::path::{Path, PathBuf};

use tapline_sys::sandbox::{self, AllowedAccess, MissingConfinement, folder_of};

/// Paths that the daemon still needs while it serves.
#[derive(Clone, Debug)]
pub struct Confinement<'a> {
    /// The file of the rules, which is read again on SIGHUP.
    pub rules: Option<&'a Path>,
    /// The socket, which is removed at the end.
    pub socket: &'a Path,
    /// The address of the service manager (`NOTIFY_SOCKET`, sd_notify(3)).
    pub manager: Option<&'a str>,
    /// Directories of stores that captures are recorded to: the one place where files are made and written.
    pub stores: Vec<PathBuf>,
    /// The file of the meters, which is removed at the end.
    pub meters: Option<&'a Path>,
}

/// Drops, for this thread and its children, the rights that serving does not need. Returns the parts that the kernel
/// lacks.
pub fn confine(needed: &Confinement<'_>) -> MissingConfinement {
    let folder = |path: &Path| folder_of(path).map(Path::to_owned);
    let removed = [Some(needed.socket), needed.meters].into_iter().flatten();
    sandbox::confine(&AllowedAccess {
        reads: needed.rules.and_then(folder).into_iter().collect(),
        makes: needed.stores.clone(),
        removes: removed.filter_map(folder).collect(),
        abstract_sockets: needed.manager.is_some_and(|address| address.starts_with('@')),
        ..AllowedAccess::default()
    })
}
