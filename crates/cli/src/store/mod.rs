//! `tapline record`, `find` and `store`: packets kept for days.
//!
//! ```text
//! record   what was typed --> capture --write store:DIR      capture's sources, filters, signals, account
//! find     what was typed --> capture --read store:DIR       and what the search passed over
//! store    status, verify                                    of a directory; no daemon is asked
//! ```

mod find;
mod manage;
mod record;

pub(crate) use find::{FIND_EXAMPLES, FindArgs, find, search_json, search_text};
pub(crate) use manage::{STORE_EXAMPLES, StoreCommand, manage};
pub(crate) use record::{RECORD_EXAMPLES, RecordArgs, record};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use tapline_capture::{SearchReport, StoreInput};
use tapline_filter::Options;
use tapline_store::{Catalog, Question, Search, Window};

use crate::args::LanguageArgs;

/// What stands before a directory where a file's name is asked for.
const PREFIX: &str = "store:";

/// The directory of a store, if a name means one.
pub(crate) fn directory(name: &Path) -> Option<PathBuf> {
    name.to_str()?.strip_prefix(PREFIX).map(PathBuf::from)
}

/// A store's name as it is typed for `-r` and `-w`.
pub(crate) fn named(directory: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(PREFIX);
    name.push(directory);
    name.into()
}

/// Opens what a filter may find in a store.
pub(crate) fn open(
    directory: &Path,
    window: Window,
    filter: &str,
    language: LanguageArgs,
) -> Result<(StoreInput, SearchReport)> {
    let options =
        Options { scoped: language.scoped, ipv6_extensions: language.ipv6_extensions, ..Options::default() };
    let question = Question::of(filter, &options);
    let search = Search::new(Arc::new(Catalog::open(directory)?), window, question)?;
    let input = StoreInput::new(search, &directory.display().to_string());
    let report = input.report();
    Ok((input, report))
}
