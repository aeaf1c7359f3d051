//! Power failures: what was synced is there, whatever the disk did with the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use tapline_file::SectionReader;
use tapline_packet::Packet;
use tapline_store::{Catalog, Finding, Losses, Overload, Recorder, SLOT_LEN, Window, verify};
use tapline_testkit::random::Random;

use super::disk::{Disk, DiskCommand, Manner, Shim, read_log};
use super::faults;
use super::packets::{PACKETS_OF_HOST, all, assert_keys_find_all, at_ms, find, interfaces, record};
use super::recording::{FLUSH_NS, Recording, SYNC_NS, settings};

const SEGMENTS: u64 = 3;
/// The numbers of packets that are recorded over an image.
const LATER: Range<u64> = 1_000_000..1_000_100;
/// Chunks begin at multiples of it.
const PAGE_LEN: usize = 4096;
/// Chunks that a recorder has on their way to the disk at once, at most.
const WRITES_MAX: u64 = 4;

/// A chunk as docs/format/store.md has it, with the packets in it.
struct Chunk {
    number: u64,
    closed_ns: i64,
    packets: Vec<u64>,
}

/// A file as the recorder sees it.
#[derive(Default)]
struct SeenFile {
    bytes: Vec<u8>,
    /// The segment that it is.
    segment: Option<u64>,
    /// Intact chunks and their lengths, by offset: read once, not after each write.
    chunks: BTreeMap<usize, (Chunk, usize)>,
}

impl SeenFile {
    /// Drops the chunks that a change of `range` touched and reads new ones.
    fn change(&mut self, range: Range<usize>) {
        self.chunks.retain(|at, (_, len)| *at >= range.end || *at + *len <= range.start);
        let Some(segment) = self.segment else { return };
        let mut at = 0;
        while at + PAGE_LEN <= self.bytes.len() {
            if let Some((_, len)) = self.chunks.get(&at) {
                at += len;
            } else if let Some((chunk, len)) = chunk(&self.bytes[at..], segment) {
                self.chunks.retain(|other, _| !(at..at + len).contains(other));
                self.chunks.insert(at, (chunk, len));
                at += len;
            } else {
                at += PAGE_LEN;
            }
        }
    }

    fn resize(&mut self, len: usize) {
        let before = self.bytes.len();
        self.bytes.resize(len, 0);
        self.change(before.min(len)..before.max(len));
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.values().map(|(chunk, _)| chunk)
    }

    fn packets(&self) -> Packets {
        self.chunks().map(|chunk| (chunk.number, chunk.packets.clone())).collect()
    }
}

fn chunk(bytes: &[u8], segment: u64) -> Option<(Chunk, usize)> {
    let head = bytes.get(36..36 + 152)?;
    let u64_at = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("152 bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("152 bytes"));
    if &head[..8] != b"TAPLCHNK" || u64_at(32) != segment {
        return None;
    }
    let len = u32_at(48) as usize;
    let before = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("152 bytes"));
    let is_packed = before(0) == 0x184d_2a50;
    let stored = if is_packed { before(8) as usize } else { len };
    let mut whole = bytes.get(..stored)?.to_vec();
    whole[36 + 144..36 + 148].fill(0);
    if crc32c::crc32c(&whole) != u32_at(144) {
        return None;
    }
    if is_packed {
        whole = zstd::decode_all(&whole[248..248 + before(12) as usize]).expect("an intact chunk");
    }
    let mut reader = SectionReader::new();
    let filled: Result<(), ()> = reader.refill(|buffer| {
        buffer.extend_from_slice(&whole);
        Ok(())
    });
    filled.expect("it was filled");
    let mut packets = Vec::new();
    while reader.advance().expect("an intact chunk") {
        let number = |packet: Packet<'_>| u64::from_be_bytes(*packet.data[42..].first_chunk().expect("long"));
        packets.extend(reader.batch().iter().map(number));
    }
    Some((Chunk { number: u64_at(40), closed_ns: u64_at(80) as i64, packets }, len))
}

/// Packets of chunks, by number of the chunk.
type Packets = BTreeMap<u64, Vec<u64>>;

/// Files and chunks that the disk has to keep so far.
#[derive(Default)]
struct Promise {
    files: BTreeMap<u64, SeenFile>,
    /// Chunks of each segment file that a sync covered.
    synced: BTreeMap<u64, Packets>,
    /// Numbers of chunks that were ever written.
    begun: BTreeSet<u64>,
}

impl Promise {
    fn follow(&mut self, told: &DiskCommand) {
        self.begun.extend(ChunkWrite::of(told).map(|write| write.number));
        match told {
            DiskCommand::Write { file, offset, data } => {
                let seen = self.files.entry(*file).or_default();
                let (at, end) = (*offset as usize, *offset as usize + data.len());
                seen.bytes.resize(seen.bytes.len().max(end), 0);
                seen.bytes[at..end].copy_from_slice(data);
                seen.change(at..end);
            }
            DiskCommand::Length { file, len } => self.files.entry(*file).or_default().resize(*len as usize),
            DiskCommand::Rename { file, to, .. } => {
                self.synced.remove(file);
                let seen = self.files.entry(*file).or_default();
                seen.segment = segment(to);
                seen.change(0..usize::MAX);
            }
            DiskCommand::Remove { file, .. } => {
                self.synced.remove(file);
                self.files.remove(file);
            }
            DiskCommand::Sync { file } => {
                let packets = self.files.get(file).map(SeenFile::packets).unwrap_or_default();
                self.synced.insert(*file, packets);
            }
            DiskCommand::Create { .. } | DiskCommand::Folder { .. } | DiskCommand::SyncFolder => {}
        }
    }

    /// Chunks that must be there.
    fn promised(&self) -> Packets {
        self.synced.values().flatten().map(|(number, packets)| (*number, packets.clone())).collect()
    }

    /// Chunks that were written, whether the disk has them or not.
    fn written(&self) -> Packets {
        self.files.values().flat_map(SeenFile::packets).collect()
    }
}

fn segment(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    path.starts_with("store/seg").then_some(())?;
    name.strip_suffix(".zst").unwrap_or(name).strip_suffix(".pcapng")?.parse().ok()
}

/// Records thrice: to the end, until a death, to the end; more than the store has room for.
fn log_of_recordings(shim: &Shim, folder: &Path, compress: Option<i32>) -> Vec<DiskCommand> {
    let (root, log) = (folder.join("root"), folder.join("log"));
    fs::create_dir(&root).unwrap();
    for (numbers, is_finished) in [(0..4000, true), (4000..12_000, false), (12_000..22_000, true)] {
        let recording = Recording {
            store: root.join("store"),
            progress: folder.join("progress"),
            numbers,
            batch: 40,
            segments: SEGMENTS,
            failing: None,
            overload: Overload::Wait,
            compress,
            is_finished,
        };
        let mut command = recording.command();
        shim.log(&mut command, &root, &log);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    read_log(&log, &root)
}

#[test]
fn power_failures_cost_what_was_not_synced() {
    fail_power("power_failures_cost_what_was_not_synced", None);
}

#[test]
fn power_failures_cost_no_compressed_chunk() {
    fail_power("power_failures_cost_no_compressed_chunk", Some(1));
}

fn fail_power(test: &str, compress: Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = Shim::build(folder.path(), test) else { return };
    let mut log = log_of_recordings(&shim, folder.path(), compress);
    let count = faults(16);
    let seed = std::env::var("TAPLINE_STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    let exchanged = exchange_writes(&mut log, &mut random);
    let mut moment = |number: u64| match number % 4 {
        0 if !exchanged.is_empty() => *random.pick(&exchanged),
        _ => random.below(log.len() as u64) as usize,
    };
    let mut moments: Vec<usize> = (0..count).map(&mut moment).collect();
    moments.sort_unstable();
    let (mut disk, mut promise, mut next) = (Disk::default(), Promise::default(), 0);
    let mut sums = Sums::default();
    for (number, moment) in moments.into_iter().enumerate() {
        while next <= moment {
            disk.follow(&log, next);
            promise.follow(&log[next]);
            next += 1;
        }
        let manner = *random.pick(&[Manner::Cut, Manner::Torn, Manner::Reordered, Manner::Reordered]);
        let image = folder.path().join("image");
        fs::create_dir(&image).unwrap();
        disk.image(&log, moment, manner, &mut random, &image);
        let told = format!("seed {seed}, image {number}: {manner:?} behind {moment}");
        check(&image.join("store"), &promise, &told, &mut random, &mut sums);
        fs::remove_dir_all(&image).unwrap();
    }
    eprintln!("{count} images of {} calls, {} exchanged: {sums:?}", log.len(), exchanged.len());
}

/// A command that writes a chunk.
#[derive(Clone, Copy)]
struct ChunkWrite {
    file: u64,
    slot: u64,
    number: u64,
}

impl ChunkWrite {
    fn of(command: &DiskCommand) -> Option<ChunkWrite> {
        let DiskCommand::Write { file, offset, data } = command else { return None };
        let number = data.get(76..84).filter(|_| &data[36..44] == b"TAPLCHNK")?.try_into().ok()?;
        let (slot, number) = (offset / SLOT_LEN as u64, u64::from_le_bytes(number));
        Some(ChunkWrite { file: *file, slot, number })
    }

    /// Whether both may have been on their way at once: the first chunk of a slot is written before the others.
    fn may_meet(self, other: ChunkWrite) -> bool {
        let is_elsewhere = (self.file, self.slot) != (other.file, other.slot);
        is_elsewhere && self.number.abs_diff(other.number) < WRITES_MAX
    }
}

/// Writes of chunks in different slots are on their way to a disk at once, and end in any order. Most that follow each
/// other change places here; a processor that is busy at the right moment does it for one recording of thousands.
/// Returns the moments between two of them.
fn exchange_writes(log: &mut [DiskCommand], random: &mut Random) -> Vec<usize> {
    // A chunk and the filler behind it, which is written first, stay together.
    let begin = |log: &[DiskCommand], chunk: usize, of: u64| match chunk.checked_sub(1).map(|at| &log[at]) {
        Some(write @ DiskCommand::Write { file, .. }) if *file == of && ChunkWrite::of(write).is_none() => {
            chunk - 1
        }
        _ => chunk,
    };
    let (mut before, mut exchanged) = (None, Vec::new());
    for at in 0..log.len() {
        let Some(write) = ChunkWrite::of(&log[at]) else { continue };
        let first = begin(log, at, write.file);
        match before.take() {
            Some((other_first, other, end))
                if end == first && write.may_meet(other) && random.one_of(3, 4) =>
            {
                log[other_first..=at].rotate_left(first - other_first);
                exchanged.push(other_first + at - first);
            }
            _ => before = Some((first, write, at + 1)),
        }
    }
    exchanged
}

/// Sums over all images.
#[derive(Debug, Default)]
struct Sums {
    promised: usize,
    found: usize,
    written: usize,
    with_findings: usize,
}

fn check(store: &Path, promise: &Promise, told: &str, random: &mut Random, sums: &mut Sums) {
    let (promised, written) = (promise.promised(), promise.written());
    let is_bounded = |findings: &[Finding]| {
        for finding in findings.iter().filter(|finding| matches!(finding, Finding::Missing { .. })) {
            let chunks = lost_chunks(finding).into_iter().flatten();
            let unwritten = chunks.filter(|number| !promise.begun.contains(number)).count() as u64;
            assert!(unwritten < WRITES_MAX, "{told}: {finding:?}: {unwritten} chunks were never written");
        }
    };
    if let Err(error) = Catalog::open(store) {
        assert!(promised.is_empty(), "{told}: the store is gone: {error}");
        return;
    }
    let (before, findings) = look(store, &promised, &written, told, sums);
    is_bounded(&findings);
    // The next recorder puts it in order.
    let time = at_ms(10_000_000);
    let mut recorder = Recorder::open(store, settings(SEGMENTS), &interfaces(), time)
        .unwrap_or_else(|error| panic!("{told}: {error}"));
    record(&mut recorder, LATER, time, time);
    recorder.finish(&[], Losses::default(), time).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.written, totals.lost), (100, 0), "{told}: {:?}", recorder.news());
    let after = all(store);
    let kept = after.len() - 100;
    assert_eq!(after[kept..], LATER.collect::<Vec<_>>(), "{told}");
    assert_eq!(after[..kept], before[before.len() - kept..], "{told}");
    assert!(totals.recycled > 0 || kept == before.len(), "{told}: the next recorder lost packets");
    let hosts: Vec<u64> = (0..3).map(|_| random.below(22_000)).chain([LATER.start, 500_000]).collect();
    assert_keys_find_all(store, &after, hosts);
    assert!(after.iter().is_sorted_by(|one, next| one < next), "{told}");
    if kept == before.len() {
        let findings = findings_are_true(store, &promised, told);
        is_bounded(&findings);
        // In order again: what is not lost is not said to be.
        let is_missing = |packet: &u64| after.binary_search(packet).is_err();
        let is_something_lost = written.values().flatten().any(is_missing);
        for finding in &findings {
            let is_true = match lost_chunks(finding) {
                // A chunk was not written yet, though one behind it was; or made room; or is lost; or held no packets.
                Some(chunks) => chunks.into_iter().all(|number| {
                    written
                        .get(&number)
                        .is_none_or(|packets| packets.is_empty() || packets.iter().any(is_missing))
                }),
                None => is_something_lost || matches!(finding, Finding::Foreign { .. }),
            };
            assert!(is_true, "{told}: {finding:?}, but nothing of it is lost: {findings:?}");
        }
    }
}

/// Numbers of the chunks that a finding calls lost, if it gives them.
fn lost_chunks(finding: &Finding) -> Option<Range<u64>> {
    match finding {
        Finding::Damaged { number, .. } | Finding::Unfinished { number, .. } => Some(*number..*number + 1),
        Finding::Missing { expected, found, .. } => Some(*expected..*found),
        _ => None,
    }
}

/// Searches and checks a store before anything repairs it.
fn look(
    store: &Path,
    promised: &Packets,
    written: &Packets,
    told: &str,
    sums: &mut Sums,
) -> (Vec<u64>, Vec<Finding>) {
    let found = find(store, Window::ALL, "");
    let numbers: BTreeSet<u64> = found.numbers.iter().copied().collect();
    assert!(found.numbers.iter().is_sorted_by(|one, next| one < next), "{told}");
    let lost = promised.values().flatten().find(|packet| !numbers.contains(packet));
    assert_eq!(lost, None, "{told}: a packet that was synced is lost: {:?}", found.account);
    let hosts = promised.values().flatten().step_by(997).copied().chain([PACKETS_OF_HOST * 70_000]);
    assert_keys_find_all(store, &found.numbers, hosts);
    sums.promised += promised.values().map(Vec::len).sum::<usize>();
    sums.found += found.numbers.len();
    sums.written += written.values().map(Vec::len).sum::<usize>();
    let findings = findings_are_true(store, promised, told);
    sums.with_findings += usize::from(!findings.is_empty());
    (found.numbers, findings)
}

/// Checks that the findings are true: no chunk that was synced is lost or damaged.
fn findings_are_true(store: &Path, promised: &Packets, told: &str) -> Vec<Finding> {
    let findings = verify(&Catalog::open(store).unwrap(), &mut |_, _| true).unwrap().findings;
    for finding in &findings {
        let is_promised = lost_chunks(finding).is_some_and(|chunks| promised.range(chunks).next().is_some());
        assert!(!is_promised, "{told}: {finding:?} says that a chunk is lost which is there");
        assert!(
            !matches!(finding, Finding::Broken { .. } | Finding::Unreadable { .. }),
            "{told}: {finding:?}"
        );
    }
    findings
}

/// A power failure costs the packets since the last flush that ended: a chunk is synced before one is written that was
/// closed later by more than two intervals. The clock of this test runs much faster than the disk; where a flush takes
/// no time it is one interval.
#[test]
fn chunks_are_synced_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = Shim::build(folder.path(), "chunks_are_synced_in_time") else { return };
    let log = log_of_recordings(&shim, folder.path(), None);
    let mut promise = Promise::default();
    let mut compared = 0;
    for told in &log {
        promise.follow(told);
        let DiskCommand::Write { file, .. } = told else { continue };
        let seen = &promise.files[file];
        let Some(newest) = seen.chunks().map(|chunk| chunk.closed_ns).max() else { continue };
        let synced = promise.synced.get(file);
        for chunk in seen.chunks().filter(|chunk| !chunk.packets.is_empty()) {
            let is_synced = synced.is_some_and(|synced| synced.contains_key(&chunk.number));
            let age_ns = newest - chunk.closed_ns;
            assert!(
                is_synced || age_ns <= 2 * SYNC_NS + FLUSH_NS,
                "chunk {} waits for {age_ns} ns",
                chunk.number
            );
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}
