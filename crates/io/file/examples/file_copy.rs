//! Copies a capture file: `file_copy IN... OUT`. Several inputs are merged by time.
//!
//! Also the benchmark of reading and writing: compare its `perf stat` with that of `tcpdump -r IN -w OUT`. With
//! `/dev/null` in place of OUT it only reads.

use std::error::Error;
use std::path::{Path, PathBuf};

use tapline_file::{DirectCreator, FileSource, FileWriter, MergeOrder, MergedSource, Section, WriteOptions};
use tapline_packet::{Batch, ClockReading, Interface, Selection};

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let output = paths.pop().ok_or("file_copy IN... OUT")?;
    let mut files = paths.iter().map(|path| FileSource::open(path)).collect::<Result<Vec<_>, _>>()?;
    if let [file] = &mut files[..] {
        let mut sink = sink(&output, file.interfaces())?;
        let result = loop {
            match file.advance() {
                Ok(true) => take(&mut sink, &file.batch(), file.interfaces())?,
                other => break other,
            }
        };
        finish(sink)?;
        result?;
    } else {
        let mut merged = MergedSource::new(files, MergeOrder::Time);
        let mut sink = sink(&output, merged.interfaces())?;
        while merged.advance()? {
            take(&mut sink, &merged.batch(), merged.interfaces())?;
        }
        finish(sink)?;
    }
    Ok(())
}

fn sink(path: &Path, interfaces: &[Interface]) -> Result<Option<FileWriter>, Box<dyn Error>> {
    if path.as_os_str() == "/dev/null" {
        return Ok(None);
    }
    let mut options = WriteOptions::new(path, interfaces);
    options.section = Section::of_this_machine("tapline file_copy");
    Ok(Some(FileWriter::create(options, interfaces, ClockReading::default(), Box::new(DirectCreator))?))
}

fn take(
    sink: &mut Option<FileWriter>,
    batch: &Batch<'_>,
    interfaces: &[Interface],
) -> Result<(), Box<dyn Error>> {
    let Some(writer) = sink else { return Ok(()) };
    let mut selection = Selection::none();
    selection.select_all(batch.len());
    Ok(writer.write(batch, &selection, interfaces)?)
}

fn finish(sink: Option<FileWriter>) -> Result<(), Box<dyn Error>> {
    let Some(mut writer) = sink else { return Ok(()) };
    writer.finish(&[])?;
    eprintln!("{} packets written", writer.written());
    Ok(())
}
