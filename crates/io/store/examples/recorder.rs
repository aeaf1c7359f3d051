//! Records a capture file several times and reports the processor time: `cargo run --release -p tapline-store --example
//! recorder -- FILE STORE TURNS [no-index] [zstd:LEVEL]`.
//!
//! The time to read the file is measured first, and subtracted.

use std::error::Error;
use std::path::Path;

use tapline_file::FileSource;
use tapline_packet::{Batch, Interface, Selection, Timestamp};
use tapline_store::{IndexOptions, Losses, Recorder, RecorderSettings};
use tapline_sys::usage::CpuTime;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, store, turns, options @ ..] = arguments.as_slice() else {
        return Err("arguments: FILE STORE TURNS [no-index] [zstd:LEVEL]".into());
    };
    let (file, turns) = (Path::new(file), turns.parse()?);
    let now = Timestamp::from_nanos(1_700_000_000_000_000_000);

    let before = CpuTime::of_process();
    let packets = each_batch(file, turns, |_, _| Ok(()))?;
    let read = CpuTime::of_process().since(before);

    let interfaces = FileSource::open(file)?.interfaces().to_vec();
    let settings = RecorderSettings {
        index: (!options.iter().any(|option| option == "no-index")).then(IndexOptions::default),
        compress: options.iter().find_map(|option| option.strip_prefix("zstd:")?.parse().ok()),
        is_live: false,
        ..RecorderSettings::default()
    };
    let mut recorder = Recorder::open(Path::new(store), settings, &interfaces, now)?;
    let before = CpuTime::of_process();
    let mut selection = Selection::none();
    each_batch(file, turns, |batch, interfaces| {
        selection.select_all(batch.len());
        Ok(recorder.write(batch, &selection, interfaces, now)?)
    })?;
    let written = CpuTime::of_process().since(before);
    recorder.finish(&[], Losses::default(), now)?;
    let finished = CpuTime::of_process().since(before);
    let ns = |time: CpuTime| time.total().as_nanos() as f64 / packets as f64;
    println!(
        "{packets} packets: {:.0} ns a packet, of these {:.0} at the end; {:.0} to read them; {:?}",
        ns(finished) - ns(read),
        ns(finished) - ns(written),
        ns(read),
        recorder.totals(),
    );
    Ok(())
}

/// Calls `take` with each batch of the file, in each turn. Gives the number of packets.
fn each_batch(
    path: &Path,
    turns: u32,
    mut take: impl FnMut(&Batch<'_>, &[Interface]) -> Result<(), Box<dyn Error>>,
) -> Result<u64, Box<dyn Error>> {
    let mut packets = 0;
    for _ in 0..turns {
        let mut source = FileSource::open(path)?;
        while source.advance()? {
            let batch = source.batch();
            packets += batch.len() as u64;
            take(&batch, source.interfaces())?;
        }
    }
    Ok(packets)
}
