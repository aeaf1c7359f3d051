//! Rights of a graph once all is open: where its stages read, write and send.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapline_graph::plan::{Plan, PlanNode};
use tapline_graph::stages::{CommandStarter, watch_needs, watch_writes};
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::{AllowedAccess, folder_of};

use super::publishing::socket_of;
use crate::{privileges, stored};

/// The needs of a graph. `may_change`: it may become another one. `has_opener`: files of captures are made by another
/// process.
pub(crate) fn needs(plan: &Plan, may_change: bool, has_opener: bool) -> AllowedAccess {
    // A changed graph may write any file.
    let mut needs = AllowedAccess { all_files: may_change, ip: may_change, ..AllowedAccess::default() };
    plan.nodes.iter().for_each(|node| add(&mut needs, node, has_opener));
    let filters = plan.nodes.iter().filter(|node| node.class.name == "filter");
    // Rules that come later may have names of hosts.
    needs.ip |= plan.nodes.iter().any(|node| node.class.name == "rules");
    needs.ip |= filters.map(|node| node.arguments.text("text")).any(privileges::may_ask_for_names);
    needs
}

/// The process that starts the commands of rules, which a confined one cannot: it has the rights that are left to
/// `identity`. `None` where rules start none.
///
/// To be called before anything is open and threads are made: the process is a fork.
pub(crate) fn command_starter(
    plan: &Plan,
    identity: Option<&Identity>,
) -> io::Result<Option<Arc<CommandStarter>>> {
    let watches = plan.nodes.iter().filter(|node| node.class.name == "watch");
    let files: Vec<PathBuf> = watches.map(|node| node.arguments.text("rules").into()).collect();
    let commands = || files.iter().flat_map(|path| watch_needs(path).commands).collect::<Vec<_>>();
    if commands().is_empty() {
        return Ok(None);
    }
    let give_up = || privileges::give_up(identity).map_err(|error| format!("{error:#}"));
    CommandStarter::start(give_up, commands).map(|starter| Some(Arc::new(starter)))
}

fn add(needs: &mut AllowedAccess, node: &PlanNode, has_opener: bool) {
    let text = |name: &str| node.arguments.text(name);
    let folder = |path: &str| folder_of(Path::new(path)).map(Path::to_owned);
    if node.class.parameters.iter().any(|parameter| parameter.name == "enrich") {
        needs.reads.extend(places(node));
    }
    match node.class.name {
        "file" => needs.reads.extend(stored::directory(Path::new(text("name")))),
        "record" if text("name") == "-" => {}
        "record" if has_opener => needs.writes.extend(folder(text("name"))),
        "record" => needs.makes.extend(folder(text("name"))),
        "publish" => needs.removes.extend(folder_of(&socket_of(node)).map(Path::to_owned)),
        "store" => needs.makes.push(text("name").into()),
        "flowlog" | "streams" if text("to") == "-" => {}
        "flowlog" if text("format") == "parquet" => needs.makes.push(existing(Path::new(text("to")))),
        "streams" | "extract" => needs.makes.push(existing(Path::new(text("to")))),
        "flowlog" => needs.makes.extend(folder(text("to"))),
        "collect" if !text("templates").is_empty() => {
            needs.reads.extend(folder(text("templates")));
            needs.makes.extend(folder(text("templates")));
        }
        "ipfix" => {
            for to in text("to").split(',').map(str::trim) {
                match to.strip_prefix("file:") {
                    Some(path) => needs.makes.extend(folder(path)),
                    None => needs.ip = true,
                }
            }
        }
        "batches" => {
            if text("spool") != "none" {
                needs.makes.push(existing(Path::new(text("spool"))));
            }
            if text("secret") != "none" {
                needs.reads.push(text("secret").into());
            }
            let to = tapline_export::Destination::parse(text("to")).ok();
            needs.reads.extend(to.iter().flat_map(tapline_export::Destination::files_read));
            needs.ip |= to.as_ref().is_some_and(tapline_export::Destination::is_remote);
            let file = to
                .as_ref()
                .and_then(tapline_export::Destination::file)
                .filter(|path| *path != Path::new("-"));
            needs.makes.extend(file.and_then(folder_of).map(Path::to_owned));
        }
        "watch" => {
            let of_rules = watch_needs(Path::new(text("rules")));
            needs.reads.extend(of_rules.reads);
            needs.ip |= of_rules.network;
            needs.makes.extend(of_rules.stores);
            needs.makes.extend(watch_writes(&node.arguments));
        }
        // Its file is read again, and may be another one of this name then.
        "rules" => needs.reads.extend(folder(text("file"))),
        "signatures" => {
            needs.reads.extend(folder(text("file")));
            if !matches!(text("alerts"), "" | "-") {
                needs.makes.extend(folder(text("alerts")));
            }
        }
        "mask" if text("key").is_empty() => needs.reads.push("/dev/urandom".into()),
        "mask" => needs.reads.extend(folder(text("key"))),
        // Programs and lists of patterns, which name further files.
        "fpl" | "match" => {
            needs.reads.push("/".into());
            if node.class.name == "fpl" && !text("memory").is_empty() {
                needs.makes.extend(folder(text("memory")));
            }
        }
        _ => {}
    }
}

/// Folders of the files of places, which are read again when they change.
fn places(node: &PlanNode) -> Vec<PathBuf> {
    let files = tapline_geo::file_list(node.arguments.text("enrich")).unwrap_or_default();
    let given = files.iter().filter(|file| *file != Path::new("none"));
    given.filter_map(|file| folder_of(file).map(Path::to_owned)).collect()
}

/// The folder, or the first above it that is there.
pub(crate) fn existing(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find(|folder| folder.is_dir());
    found.map_or_else(|| ".".into(), Path::to_owned)
}
