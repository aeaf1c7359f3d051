//! Capture files as input: opened by name, whatever holds them, and announced.

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
    // A pipe waits for its writer, and for the head of the file.
    if path.as_os_str() == "-" {
        let input = Stream::standard_input(Arc::clone(control))?;
        return Ok(waiting::run(|| FileInput::open_stream(Box::new(input), "standard input"))?);
    }
    if stream::is_stream(path) {
        return waiting::run(|| {
            let name = path.display().to_string();
            let input = Stream::open(path, Arc::clone(control));
            let input = input.with_context(|| format!("cannot open {name}"))?;
            Ok(FileInput::open_stream(Box::new(input), &name)?)
        });
    }
    Ok(FileInput::open_file(path)?)
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
