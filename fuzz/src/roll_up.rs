//! A store of more than 64 segments whose roll-up and indexes anybody may have altered.
//!
//! ```text
//! input := seal:u8 patch*      patch := file:u8 place:u24 len:u8 bytes, little-endian; bit 0 of seal: checksums fit all the same
//! ```

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Record, Selection, Timestamp};
use tapline_store::{Catalog, Losses, Recorder, RecorderSettings};

use super::store::find;

const PACKETS: u32 = 4_400;
/// Fifteen of them fill a slot, so that few fill 64 segments.
const LEN: usize = 64_000;
/// Packets of a host: its slots are in one segment or two.
const PACKETS_OF_HOST: u32 = 44;
const PATCHES_MAX: usize = 16;
const PAGE_LEN: usize = 4096;
const CONTENT_LEN: usize = PAGE_LEN - 4;

/// The store, and the files that are altered: of the roll-up 0, and of the segments 1 and 40. Each with its number and
/// its content.
struct Store {
    folder: tempfile::TempDir,
    id: Vec<u8>,
    files: Vec<(PathBuf, u64, Vec<u8>)>,
}

fn bytes(number: u32) -> Vec<u8> {
    let mut data = vec![0; LEN];
    data[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    data[14] = 0x45;
    data[16..18].copy_from_slice(&(LEN as u16 - 14).to_be_bytes());
    data[22..24].copy_from_slice(&[64, 17]);
    data[26..30].copy_from_slice(&[10, 0, 0, (number / PACKETS_OF_HOST) as u8]);
    data[30..34].copy_from_slice(&[192, 0, 2, 1]);
    data[34..38].copy_from_slice(&[0x20, 0, 0, 53]);
    data[38..40].copy_from_slice(&(LEN as u16 - 34).to_be_bytes());
    data[42..46].copy_from_slice(&number.to_be_bytes());
    data
}

impl Store {
    fn record() -> Store {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
        let settings =
            RecorderSettings { size: 400 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
        let at = |second: u32| Timestamp::from_nanos(i64::from(second) * 1_000_000_000);
        let mut recorder = Recorder::open(folder.path(), settings, &interfaces, at(0)).expect("a new store");
        for number in 0..PACKETS {
            let data = bytes(number);
            let meta = Meta { timestamp: at(number), wire_len: LEN as u32, ..Meta::default() };
            let records = [Record { offset: 0, cap_len: LEN as u32, options_len: 0, meta }];
            let mut all = Selection::none();
            all.select_all(1);
            recorder.write(&Batch::new(&data, &records), &all, &interfaces, at(number)).expect("it writes");
        }
        recorder.finish(&[], Losses::default(), at(PACKETS)).expect("it writes");
        let id = Catalog::open(folder.path()).expect("it was made").id();
        let byte = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).expect("hexadecimal digits");
        let id = (0..id.len()).step_by(2).map(byte).collect();
        let names = [("roll/00000000.tir", 0), ("seg/00000001.tix", 1), ("seg/00000040.tix", 40)];
        let file = |(name, number): (&str, u64)| {
            let path = folder.path().join(name);
            let content = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            (path, number, content)
        };
        let files = names.into_iter().map(file).collect();
        Store { folder, id, files }
    }

    /// Gives altered pages of a file checksums that fit.
    fn seal(&self, number: u64, pages: &mut [u8]) {
        for (at, page) in pages.chunks_exact_mut(PAGE_LEN).enumerate() {
            let owner = [&self.id[..], &number.to_le_bytes(), &(at as u64).to_le_bytes()].concat();
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&owner), &page[..CONTENT_LEN]);
            page[CONTENT_LEN..].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Altered bytes of a roll-up or an index hide no packet. Where their checksums fit all the same they may hide packets;
/// what is found is still what was recorded, and every segment and chunk is accounted for.
pub fn store_roll_up(data: &[u8]) {
    static STORE: OnceLock<Mutex<Store>> = OnceLock::new();
    let store = STORE.get_or_init(|| Mutex::new(Store::record()));
    let store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((&seal, patches)) = data.split_first() else { return };
    let is_sealed = seal & 1 == 1;
    let (contents, touched) = patched(&store, patches);
    for at in touched.iter().copied() {
        let (path, number, _) = &store.files[at];
        let mut content = contents[at].clone();
        if is_sealed {
            store.seal(*number, &mut content);
        }
        write(path, &content);
    }
    let checked = std::panic::catch_unwind(|| check(&store, is_sealed));
    for at in touched {
        write(&store.files[at].0, &store.files[at].2);
    }
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
}

/// The files as the input alters them, and which it touches.
fn patched(store: &Store, data: &[u8]) -> (Vec<Vec<u8>>, Vec<usize>) {
    let mut contents: Vec<Vec<u8>> = store.files.iter().map(|file| file.2.clone()).collect();
    let (mut rest, mut touched) = (data, Vec::new());
    for _ in 0..PATCHES_MAX {
        let Some((&[file, low, middle, high, len], behind)) = rest.split_first_chunk() else { break };
        let (bytes, behind) = behind.split_at(behind.len().min(len.into()));
        rest = behind;
        let at = usize::from(file) % contents.len();
        let place = u32::from_le_bytes([low, middle, high, 0]) as usize % contents[at].len();
        let bytes = &bytes[..bytes.len().min(contents[at].len() - place)];
        contents[at][place..place + bytes.len()].copy_from_slice(bytes);
        touched.push(at);
    }
    touched.sort_unstable();
    touched.dedup();
    (contents, touched)
}

fn write(path: &PathBuf, content: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("it was made");
    file.write_all(content).expect("there is room");
}

fn check(store: &Store, is_sealed: bool) {
    for host in [0, 1, 61, 99] {
        let wanted: Vec<u32> = (host * PACKETS_OF_HOST..(host + 1) * PACKETS_OF_HOST).collect();
        let found = find(store.folder.path(), &format!("host 10.0.0.{host}"), number);
        match is_sealed {
            true => assert!(found.iter().all(|number| wanted.contains(number)), "{found:?} of host {host}"),
            false => assert_eq!(found, wanted, "an altered file hides packets of host {host}"),
        }
    }
}

fn number(packet: Packet<'_>) -> u32 {
    let place = packet.data.get(42..).and_then(|rest| rest.first_chunk());
    let number = u32::from_be_bytes(*place.expect("packets are long enough"));
    assert!(packet.data == bytes(number), "packet {number} is not as it was recorded");
    number
}

pub(crate) fn store_roll_up_seeds() -> Vec<Vec<u8>> {
    let patch = |seal: u8, file: u8, place: u32, bytes: &[u8]| {
        let [low, middle, high, _] = place.to_le_bytes();
        [&[seal, file, low, middle, high, bytes.len() as u8], bytes].concat()
    };
    let mut seeds = Vec::new();
    for seal in 0..2 {
        // Covered segments, seed and sizes of the filter, times, fingerprints.
        seeds.push(patch(seal, 0, 32, &[0xff; 32]));
        seeds.push(patch(seal, 0, 72, &[0xff; 28]));
        seeds.push(patch(seal, 0, 88, &[0, 0, 0, 0]));
        seeds.push(patch(seal, 0, 128, &[0; 64]));
        seeds.push(patch(seal, 0, 1152, &[0; 200]));
        // Counts of an index; rows; buckets.
        seeds.push(patch(seal, 1, 128, &[0xff; 28]));
        seeds.push(patch(seal, 2, 256, &[0xff; 96]));
        seeds.push(patch(seal, 2, 460, &[0xff, 0, 0, 0xff]));
    }
    seeds
}
