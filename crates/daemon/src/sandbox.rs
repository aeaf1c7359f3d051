//! The confinement of the daemon once all is open.

use std::path::Path;

use tapline_sys::sandbox::{self, AllowedAccess, MissingConfinement, folder_of};

/// Gives up, for this thread and those that it makes, what the daemon does not need to serve: `rules` are read again
/// later, and `socket` removed. `manager` is the address of the service manager (`NOTIFY_SOCKET`, sd_notify(3)).
pub fn confine(rules: Option<&Path>, socket: &Path, manager: Option<&str>) -> MissingConfinement {
    let folder = |path: &Path| folder_of(path).map(Path::to_owned);
    sandbox::confine(&AllowedAccess {
        reads: rules.and_then(folder).into_iter().collect(),
        removes: folder(socket).into_iter().collect(),
        abstract_sockets: manager.is_some_and(|address| address.starts_with('@')),
        ..AllowedAccess::default()
    })
}
