//! A store whose files anybody may have altered.
//!
//! ```text
//! input := patch*      patch := file:u8 place:u24 len:u8 bytes, little-endian: bytes of a file are other ones
//! ```

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tapline_bpf::PacketFilter;
use tapline_filter::{Options, compile};
use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Record, Selection, Timestamp};
use tapline_source::{Advance, Source as _};
use tapline_store::{
    Catalog, Losses, Question, Recorder, RecorderSettings, Search, SearchFilter, StoreInput, StoreReading,
    Window, verify,
};

const PACKETS: u32 = 300;
const PATCHES_MAX: usize = 32;
/// Beyond the chunks that there are a segment has fillers only.
const REACH: u32 = 256 << 10;

/// A store of a few chunks, as it was recorded.
struct Store {
    folder: tempfile::TempDir,
    /// The files that are patched: segment, index.
    files: [(PathBuf, Vec<u8>); 2],
}

fn bytes(number: u32) -> Vec<u8> {
    let mut data = vec![number as u8; 60 + number as usize % 200];
    let len = data.len() as u16;
    data[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    data[14..42].fill(0);
    data[14] = 0x45;
    data[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    data[22..24].copy_from_slice(&[64, 17]);
    data[26..30].copy_from_slice(&[10, 0, 0, host(number)]);
    data[30..34].copy_from_slice(&[192, 0, 2, 1]);
    data[34..38].copy_from_slice(&[0x20, 0, 0, 53]);
    data[38..40].copy_from_slice(&(len - 34).to_be_bytes());
    data[42..46].copy_from_slice(&number.to_be_bytes());
    data
}

/// The last byte of the address of a packet's source.
fn host(number: u32) -> u8 {
    (number / 100) as u8
}

impl Store {
    fn record() -> Store {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
        let settings = RecorderSettings {
            size: 8 << 20,
            segment_len: Some(4 << 20),
            flush_ns: 1,
            ..RecorderSettings::default()
        };
        let at = |second: u32| Timestamp::from_nanos(i64::from(second) * 1_000_000_000);
        let mut recorder = Recorder::open(folder.path(), settings, &interfaces, at(0)).expect("a new store");
        for number in 0..PACKETS {
            let data = bytes(number);
            let len = data.len() as u32;
            let meta = Meta { timestamp: at(number), wire_len: len, ..Meta::default() };
            let records = [Record { offset: 0, cap_len: len, options_len: 0, meta }];
            let mut all = Selection::none();
            all.select_all(1);
            recorder.write(&Batch::new(&data, &records), &all, &interfaces, at(number)).expect("it writes");
            if number % 20 == 0 {
                recorder.tick(Losses::default(), &[], &interfaces, at(number + 1)).expect("it writes");
            }
        }
        recorder.finish(&[], Losses::default(), at(PACKETS)).expect("it writes");
        let files = ["seg/00000001.pcapng", "seg/00000001.tix"].map(|name| {
            let path = folder.path().join(name);
            let content = std::fs::read(&path).expect("it was written");
            (path, content)
        });
        Store { folder, files }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// What is found is what was recorded, in order, whatever the files hold; while the segment is whole, all of it, by
/// keys as by a scan; and what is missing is named.
pub fn store_files(data: &[u8]) {
    static STORE: OnceLock<Mutex<Store>> = OnceLock::new();
    let store = STORE.get_or_init(|| Mutex::new(Store::record()));
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let open = |at: usize| OpenOptions::new().write(true).open(&store.files[at].0).expect("it was made");
    let files = [open(0), open(1)];
    let touched = patch(&store, &files, data);
    let is_segment_whole = touched.iter().all(|(file, _)| *file != 0);
    let checked = std::panic::catch_unwind(|| check(store.root(), is_segment_whole));
    for (file, place) in touched {
        let good = &store.files[file].1;
        files[file].write_all_at(&good[place.clone()], place.start as u64).expect("there is room");
    }
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
}

/// Alters files. Gives which and where.
fn patch(store: &Store, files: &[File; 2], data: &[u8]) -> Vec<(usize, std::ops::Range<usize>)> {
    let (mut rest, mut touched) = (data, Vec::new());
    while let Some((&[file, low, middle, high, len], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(behind.len().min(len.into()));
        rest = behind;
        let file = usize::from(file) % 2;
        let good = store.files[file].1.len();
        let place = (u32::from_le_bytes([low, middle, high, 0]) % REACH) as usize % good;
        let bytes = &bytes[..bytes.len().min(good - place)];
        files[file].write_all_at(bytes, place as u64).expect("there is room");
        touched.push((file, place..place + bytes.len()));
        if touched.len() == PATCHES_MAX {
            break;
        }
    }
    touched
}

fn check(root: &Path, is_segment_whole: bool) {
    let scanned = find(root, "", number);
    assert!(scanned.is_sorted_by(|one, next| one < next), "packets are found twice, or not in order");
    for last in 0..4 {
        let wanted: Vec<u32> = scanned.iter().copied().filter(|number| host(*number) == last).collect();
        let found = find(root, &format!("host 10.0.0.{last}"), number);
        assert_eq!(found, wanted, "a search by keys of host {last} finds other packets than a scan");
    }
    let verified = verify(&Catalog::open(root).expect("nobody alters its description"), &mut |_, _| true);
    let findings = verified.expect("the directory can be read").findings;
    if is_segment_whole {
        assert_eq!(scanned.len(), PACKETS as usize, "an altered index hides packets");
        assert!(findings.is_empty(), "{findings:?}");
    }
    assert!(
        scanned.len() == PACKETS as usize || !findings.is_empty(),
        "packets are missing, and nothing is named"
    );
}

/// Numbers of the packets that a search finds; `number` checks that a packet is as it was recorded.
pub(crate) fn find(root: &Path, filter: &str, number: fn(Packet<'_>) -> u32) -> Vec<u32> {
    let options = Options::default();
    let program: Arc<dyn PacketFilter> = Arc::new(compile(filter, &options).expect("a filter"));
    let sieve: SearchFilter = Arc::new(move |_| Ok(Some(Arc::clone(&program))));
    let catalog = Arc::new(Catalog::open(root).expect("nobody alters its description"));
    let search = Search::new(catalog, Window::ALL, Question::of(filter, &options)).expect("a directory");
    let reading = StoreReading { threads: 1, sieve: Some(sieve), ..StoreReading::default() };
    let mut input = StoreInput::new(search, "store", reading);
    let mut numbers = Vec::new();
    loop {
        match input.advance(Duration::from_secs(60)).expect("a filter for all interfaces") {
            Advance::Batch => numbers.extend(input.batch().iter().map(number)),
            Advance::Idle => {}
            Advance::End => break,
        }
    }
    let account = input.report().get();
    assert!(account.is_balanced(), "{account:?}");
    // A chunk with a checksum that fits is one that was written.
    let faults: Vec<String> = input.events().into_iter().map(|event| event.text).collect();
    assert_eq!(faults, account.warnings("store"), "chunks that are believed are whole");
    numbers
}

fn number(packet: Packet<'_>) -> u32 {
    let place = packet.data.get(42..).and_then(|rest| rest.first_chunk());
    let number = u32::from_be_bytes(*place.expect("packets are long enough"));
    assert_eq!(packet.data, bytes(number), "packet {number} is not as it was recorded");
    number
}

pub(crate) fn store_files_seeds() -> Vec<Vec<u8>> {
    let patch = |file: u8, place: u32, bytes: &[u8]| {
        let [low, middle, high, _] = place.to_le_bytes();
        [&[file, low, middle, high, bytes.len() as u8], bytes].concat()
    };
    vec![
        patch(0, 40, &[0xff; 8]),
        // Number, length and times of the second chunk; its first packet.
        patch(0, 4096 + 76, &[9, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]),
        patch(0, 4096 + 92, &[0xff; 16]),
        patch(0, 4096 + 400, b"other bytes"),
        // Counts of the index, then places within.
        patch(1, 80, &[0xff; 24]),
        patch(1, 132, &[0, 0, 1, 0, 0xff]),
        patch(1, 300, &[0; 64]),
        [patch(1, 200, &[1]), patch(0, 8192, &[0; 128])].concat(),
    ]
}
