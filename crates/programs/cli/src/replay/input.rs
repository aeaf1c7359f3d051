//! The files, or the store, that a replay sends: opened, and opened again for further passes.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tapline_file::{FileInput, MergeOrder};
use tapline_graph::Control;
use tapline_source::{Error, Source};
use tapline_store::StoreName;
use tapline_transmit::replay::{Reopen, ReplaySource};

use super::ReplayArgs;
use crate::args::SNAP_LEN;
use crate::compiler::Compiler;
use crate::mistakes::{mistake, misuse};
use crate::stored::UnfitLinkTypes;
use crate::{files, stored, stream};

/// An opened input, with a line about each part.
pub(super) struct Input {
    pub(super) opened: ReplaySource,
    pub(super) announcements: Vec<String>,
    /// Link types of a store that cannot have the filter.
    pub(super) unfit: Arc<UnfitLinkTypes>,
}

/// Opens the files or the store of the command line.
pub(super) fn open(args: &ReplayArgs, control: &Arc<Control>) -> Result<Input> {
    let stores: Vec<_> = args.files.iter().map(|path| stored::store_name(path)).collect::<Result<_>>()?;
    match stores.as_slice() {
        [Some(name)] => return open_store(args, name),
        names if names.iter().any(Option::is_some) => {
            misuse!("a store is sent alone: leave the other files out")
        }
        _ if args.filter.is_some() => misuse!("--filter is for stores: name one as store:DIRECTORY"),
        _ => {}
    }
    open_files(args, control)
}

fn open_files(args: &ReplayArgs, control: &Arc<Control>) -> Result<Input> {
    let sources = args.files.iter().map(|path| files::open(path, control)).collect::<Result<Vec<_>>>()?;
    let announcements = sources.iter().map(files::announcement).collect();
    let excerpt = args.past.of_files()?;
    let (of_file, is_repeated) = (excerpt.clone(), args.passes != 1);
    let repeated: Vec<(String, File)> =
        args.files.iter().filter(|_| is_repeated).map(|path| repeatable(path)).collect::<Result<_>>()?;
    let reopen: Reopen = Box::new(move || {
        let sources = repeated.iter().map(|(name, file)| {
            let mut file = file.try_clone().map_err(|error| Error::source(name, error))?;
            let rewound = file.seek(SeekFrom::Start(0));
            rewound.map_err(|error| Error::source(&format!("cannot read {name} again"), error))?;
            FileInput::open_handle(file, name)
        });
        let input = FileInput::new(sources.collect::<Result<Vec<_>, Error>>()?, MergeOrder::Given);
        Ok(Box::new(input.with_excerpt(of_file.clone())))
    });
    let source = Box::new(FileInput::new(sources, MergeOrder::Given).with_excerpt(excerpt));
    Ok(Input { opened: ReplaySource { source, reopen }, announcements, unfit: Arc::default() })
}

/// A file that can be read once more.
fn repeatable(path: &Path) -> Result<(String, File)> {
    let name = path.display().to_string();
    if path.as_os_str() == "-" || stream::is_stream(path) {
        misuse!("{name} cannot be read again: save it to a file first, or leave --loop out");
    }
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    Ok((name, file))
}

fn open_store(args: &ReplayArgs, name: &StoreName) -> Result<Input> {
    let filter = args.filter.clone().unwrap_or_default();
    if let Err(error) = tapline_filter::parse(&filter) {
        return Err(mistake(error.render(&filter)));
    }
    let compiler = Arc::new(Compiler::new(SNAP_LEN, true, args.language, false, None));
    let announcements = vec![format!("reading from the store {}", name.directory.display())];
    let unfit = Arc::clone(compiler.unfit());
    let (name, past) = (name.clone(), args.past.clone());
    let search = move || -> Result<Box<dyn Source>> {
        Ok(Box::new(stored::open_filtered(&name, &past, &filter, &compiler)?))
    };
    let source = search()?;
    let reopen: Reopen =
        Box::new(move || search().map_err(|error| Error::source("the store", format!("{error:#}"))));
    Ok(Input { opened: ReplaySource { source, reopen }, announcements, unfit })
}
