//! Capture files as input: opened by name, whatever holds them, and announced.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tapline_file::{FileInput, FileSource};
use tapline_graph::Control;

use tapline_sys::waiting;

use crate::escape::plain;
use crate::live::link_type_text;
use crate::stream::{self, Stream};

/// Opens a regular file, a pipe, a device, or standard input (`-`).
pub(crate) fn open(path: &Path, control: &Arc<Control>) -> Result<FileSource> {
    let is_standard_input = path.as_os_str() == "-";
    if !is_standard_input && !stream::is_stream(path) {
        return Ok(FileInput::open_file(path)?);
    }
    // A pipe waits for its writer, and for the head of the file.
    waiting::run(|| {
        let (name, file) = match is_standard_input {
            true => ("standard input".to_owned(), stream::standard_input()),
            false => (path.display().to_string(), File::open(path)),
        };
        let file = file.with_context(|| format!("cannot open {name}"))?;
        if file.metadata().is_ok_and(|about| about.is_file()) {
            return Ok(FileInput::open_handle(file, &name)?);
        }
        Ok(FileInput::open_stream(Box::new(Stream::new(file, Arc::clone(control))), &name)?)
    })
}

/// One line about an opened file: name, format, compression, link type.
pub(crate) fn announcement(file: &FileSource) -> String {
    let packed = file.compression().map_or(String::new(), |compression| format!(", {}", compression.name()));
    let link_types = match file.interfaces() {
        [] => String::new(),
        [only] => format!(", {}", link_type_text(only.link_type)),
        several => format!(", {} interfaces", several.len()),
    };
    format!("reading from {} ({}{packed}){link_types}", plain(file.name()), file.format_name())
}
