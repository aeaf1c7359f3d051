//! Recordings that a kill or a power failure ended.

use super::*;

/// Removes the index of the first segment, and the line of its sealing from the log: as a recorder leaves it that is
/// killed.
fn unseal(root: &Path) {
    std::fs::remove_file(root.join("seg/00000001.tix")).unwrap();
    let log = std::fs::read_to_string(root.join("log")).unwrap();
    let lines = log.split_inclusive('\n').filter(|line| !line.contains("\"sealed\""));
    std::fs::write(root.join("log"), lines.collect::<String>()).unwrap();
}

#[test]
fn a_torn_last_chunk_leaves_the_chain_whole() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..100, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let chunks = chunks_of(&catalog);
    let torn = chunks.iter().rfind(|chunk| chunk.head.packets > 0).unwrap();
    let path = catalog.segment_path(1);
    let mut bytes = std::fs::read(&path).unwrap();
    // The chunk's last page, and what was written behind it, were not on the disk yet.
    let end = torn.offset as usize + torn.head.len as usize;
    bytes[end - 4096..end].fill(0);
    let page = crate::layout::filler(4096);
    bytes[end..SLOT_LEN].as_chunks_mut::<4096>().0.iter_mut().for_each(|at| at.copy_from_slice(&page));
    std::fs::write(&path, bytes).unwrap();
    unseal(folder.path());
    record_range(folder.path(), &SETTINGS, 100..200, 10);
    // The chunk behind it has the hash of the one before: it was never whole.
    let verified = verify(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((verified.unfinished, verified.findings), (1, Vec::new()));
    assert_eq!(found(&mut search(folder.path(), Window::ALL)).len() as u32, 200 - torn.head.packets);
}

#[test]
fn old_chunks_behind_the_end_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..5000, 5000);
    let path = folder.path().join("seg/00000001.pcapng");
    let mut bytes = std::fs::read(&path).unwrap();
    // After a power failure: slot 1 is as it was cleared, slot 2 is on the disk.
    let unused = crate::layout::filler(SLOT_LEN);
    bytes[SLOT_LEN..2 * SLOT_LEN].copy_from_slice(&unused);
    std::fs::write(&path, bytes).unwrap();
    unseal(folder.path());
    record_range(folder.path(), &SETTINGS, 5000..5001, 10);
    std::fs::remove_file(folder.path().join("seg/00000001.tix")).unwrap();
    let numbers = found(&mut search(folder.path(), Window::ALL));
    assert!(numbers.is_sorted() && numbers.last() == Some(&5000), "{:?}", numbers.last());
    assert_eq!(findings(folder.path()), Vec::new());
}
