//! A recording in a process of its own, which may be killed, and whose disk may fail.
//!
//! ```text
//! test --environment--> this program again, `the_recording_process` alone --> store, progress
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tapline_store::{Losses, Overload, Recorder, RecorderSettings, Totals};

use super::packets::{at_ms, interfaces, record};

/// Orders to the other process, as `KEY=VALUE`, one a line.
const WHAT: &str = "TAPLINE_TEST_RECORDING";

/// Time for which packets wait for others, by the recording's clock.
pub(crate) const FLUSH_NS: i64 = 300_000_000;
/// Time between syncs: a power failure loses at most this much.
pub(crate) const SYNC_NS: i64 = 1_000_000_000;
/// The clock goes on by so much after each batch.
pub(crate) const STEP_MS: i64 = 100;
/// One of so many packets that the source received was lost before the recorder.
pub(crate) const LOST_OF: u64 = 10;

/// The most packets on their way to a disk that is well: those of two chunks.
const BUFFERED_MAX: u64 = 240;

/// Policies by their numbers here.
const POLICIES: [Overload; 4] = [Overload::Wait, Overload::Newest, Overload::Oldest, Overload::Flows];

fn policy_number(policy: Overload) -> usize {
    POLICIES.iter().position(|one| *one == policy).expect("all are there")
}

/// A recording.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) store: PathBuf,
    /// File to which the recording writes its progress.
    pub(crate) progress: PathBuf,
    /// Packets' numbers.
    pub(crate) numbers: std::ops::Range<u64>,
    /// Packets handed over at once.
    pub(crate) batch: u64,
    /// Segments of 4 MiB.
    pub(crate) segments: u64,
    /// There from the first quarter of the packets to the third.
    pub(crate) failing: Option<PathBuf>,
    /// The policy under overload, for 8 buffers.
    pub(crate) overload: Overload,
    /// Level by which chunks are compressed.
    pub(crate) compress: Option<i32>,
    /// Whether the recording ends as it should; else as after a kill, with all chunks written.
    pub(crate) is_finished: bool,
}

/// Last report of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordingReport {
    pub(crate) handed: u64,
    pub(crate) written: u64,
    pub(crate) lost: u64,
    pub(crate) recycled: u64,
    /// Given up under overload: packets that came, those that waited, those of new flows.
    pub(crate) overload: [u64; 3],
    /// Whether it ended by itself.
    pub(crate) is_over: bool,
}

impl Recording {
    /// The process, not started yet.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program is there"));
        command.args(["--exact", "recording::the_recording_process", "--nocapture"]);
        let path = |path: &Path| path.to_str().expect("the folder's name is plain").to_owned();
        let fields = [
            path(&self.store),
            path(&self.progress),
            self.numbers.start.to_string(),
            self.numbers.end.to_string(),
            self.batch.to_string(),
            self.segments.to_string(),
            self.failing.as_deref().map(path).unwrap_or_default(),
            u8::from(self.is_finished).to_string(),
            policy_number(self.overload).to_string(),
            self.compress.map_or(String::new(), |level| level.to_string()),
        ];
        command.env(WHAT, fields.join("\n")).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub(crate) fn start(&self) -> Child {
        self.command().spawn().expect("this program can be started")
    }

    fn from_environment() -> Option<Recording> {
        let text = std::env::var(WHAT).ok()?;
        let fields: Vec<&str> = text.split('\n').collect();
        let number = |at: usize| fields[at].parse().expect("a number");
        Some(Recording {
            store: fields[0].into(),
            progress: fields[1].into(),
            numbers: number(2)..number(3),
            batch: number(4),
            segments: number(5),
            failing: Some(PathBuf::from(fields[6])).filter(|path| path != Path::new("")),
            is_finished: number(7) == 1,
            overload: POLICIES[number(8) as usize],
            compress: fields[9].parse().ok(),
        })
    }

    /// The last report.
    pub(crate) fn told(&self) -> RecordingReport {
        let text = fs::read_to_string(&self.progress).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let Some(line) = whole.lines().last() else { return RecordingReport::default() };
        let numbers: Vec<u64> =
            line.split(' ').map(|number| number.parse().expect("lines are written at once")).collect();
        let &[handed, written, lost, recycled, newest, oldest, flows, over] = &numbers[..] else {
            panic!("{line}")
        };
        RecordingReport {
            handed,
            written,
            lost,
            recycled,
            overload: [newest, oldest, flows],
            is_over: over == 1,
        }
    }
}

/// Settings of all recordings here.
pub(crate) fn settings(segments: u64) -> RecorderSettings {
    RecorderSettings {
        size: segments * (4 << 20),
        segment_len: Some(4 << 20),
        flush_ns: FLUSH_NS,
        sync_ns: SYNC_NS,
        ..RecorderSettings::default()
    }
}

/// The other process: does nothing unless it is asked to by the environment.
#[test]
fn the_recording_process() {
    let Some(what) = Recording::from_environment() else { return };
    let mut progress = fs::OpenOptions::new().create(true).append(true).open(&what.progress).unwrap();
    let mut tell = |handed: u64, totals: Totals, is_over: bool| {
        let Totals { written, lost, recycled, overload: [newest, oldest, flows], .. } = totals;
        let over = u8::from(is_over);
        let line = format!("{handed} {written} {lost} {recycled} {newest} {oldest} {flows} {over}\n");
        progress.write_all(line.as_bytes()).unwrap();
    };
    // Each recording goes on where the clock of the one before may have been.
    let mut time = what.numbers.start as i64 * STEP_MS;
    let mut wanted =
        RecorderSettings { overload: what.overload, compress: what.compress, ..settings(what.segments) };
    if what.overload != Overload::Wait {
        wanted.buffers = 8;
    }
    let mut recorder = match Recorder::open(&what.store, wanted, &interfaces(), at_ms(time)) {
        Ok(recorder) => recorder,
        Err(error) => panic!("cannot be opened: {error}"),
    };
    let mut losses = Losses { received: Some(0), lost: Some(0) };
    let mut next = what.numbers.start;
    let quarter = (what.numbers.end - what.numbers.start) / 4;
    while next < what.numbers.end {
        if let Some(path) = &what.failing {
            let quarters = (next - what.numbers.start) / quarter.max(1);
            let is_failing = (1..3).contains(&quarters);
            if is_failing { fs::write(path, "") } else { fs::remove_file(path).or(Ok(())) }.unwrap();
            // A disk that is well keeps up with the packets.
            while !is_failing && what.overload != Overload::Wait && recorder.totals().buffered > BUFFERED_MAX
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        let end = (next + what.batch).min(what.numbers.end);
        record(&mut recorder, next..end, at_ms(time), at_ms(time));
        next = end;
        let handed = next - what.numbers.start;
        losses = Losses { received: Some(handed), lost: Some(handed / LOST_OF) };
        time += STEP_MS;
        let _ = recorder.tick(losses, &[], &interfaces(), at_ms(time));
        tell(handed, recorder.totals(), false);
    }
    if !what.is_finished {
        return;
    }
    let _ = recorder.finish(&[], losses, at_ms(time));
    tell(next - what.numbers.start, recorder.totals(), true);
    for line in recorder.news() {
        eprintln!("recorder: {line}");
    }
}
