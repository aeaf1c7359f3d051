//! Rights of a graph once all is open: where its stages read, write and send.

use std::io;
use std::sync::Arc;

use tapline_graph::catalog::StageAccess;
use tapline_graph::plan::Plan;
use tapline_stages::CommandStarter;
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::AllowedAccess;

use crate::privileges;

/// The needs of a graph. `may_change`: it may become another one. `has_opener`: files of captures are made by another
/// process.
pub(crate) fn needs(plan: &Plan, may_change: bool, has_opener: bool) -> AllowedAccess {
    let StageAccess { mut allowed, captures, .. } = plan.access();
    if has_opener { &mut allowed.writes } else { &mut allowed.makes }.extend(captures);
    // A changed graph may write any file.
    allowed.all_files |= may_change;
    allowed.ip |= may_change;
    allowed
}

/// The process that starts the commands of rules, which a confined one cannot: it has the rights that are left to
/// `identity`. `None` where rules start none.
///
/// To be called before anything is open and threads are made: the process is a fork.
pub(crate) fn command_starter(
    plan: &Plan,
    identity: Option<&Identity>,
) -> io::Result<Option<Arc<CommandStarter>>> {
    if plan.access().commands.is_empty() {
        return Ok(None);
    }
    let give_up = || privileges::give_up(identity).map_err(|error| format!("{error:#}"));
    CommandStarter::start(give_up, || plan.access().commands).map(|starter| Some(Arc::new(starter)))
}
