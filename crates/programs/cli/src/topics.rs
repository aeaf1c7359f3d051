//! Topics of packets as the input of a command: `kafka://HOST/TOPIC` where an interface or a file is named.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tapline_export::TopicAddress;
use tapline_stages::TopicSource;
use tapline_sys::privilege;

use crate::mistakes::misuse;
use crate::privileges;

/// The topic that a name means, if it means one.
pub(crate) fn named(name: &Path) -> Result<Option<TopicAddress>> {
    match name.to_str().filter(|text| TopicAddress::is_meant(text)) {
        Some(text) => Ok(Some(TopicAddress::parse(text)?)),
        None => Ok(None),
    }
}

/// The topic among the files and interfaces of a command, if it is the only input.
pub(crate) fn of_sources(files: &[PathBuf], interfaces: &[String]) -> Result<Option<TopicAddress>> {
    let names: Vec<&Path> =
        files.iter().map(PathBuf::as_path).chain(interfaces.iter().map(Path::new)).collect();
    let topics: Vec<TopicAddress> =
        names.iter().map(|name| named(name)).filter_map(Result::transpose).collect::<Result<_>>()?;
    match topics.as_slice() {
        [] => Ok(None),
        [topic] if names.len() == 1 => Ok(Some(topic.clone())),
        [topic, ..] => misuse!("{topic}: a topic is read alone: leave the other inputs out"),
    }
}

/// Begins to read. Threads of the client keep the rights that there were when they were made, and are not confined: where
/// nothing else wants rights, a user's capabilities are given up before, as reading a topic needs none.
pub(crate) fn open(topic: &TopicAddress, stands_alone: bool) -> Result<TopicSource> {
    if stands_alone && !privilege::is_root() {
        privileges::give_up(None)?;
    }
    Ok(TopicSource::new(topic.open()?)?)
}
