//! Cells under a program and several others that read and change them.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("counts");
    (folder, path)
}

/// A program counts each packet in two cells, while others take the first one's count away: no count is lost, and cells
/// of one moment belong together.
#[test]
fn counts_survive_resets_while_the_program_runs() {
    /// Rounds of all others.
    const ROUNDS: u64 = 60;
    let (_folder, path) = place();
    let owner = SharedCells::open(&path, 16).expect("a file");
    let memory = owner.memory();
    let (is_over, rounds, mut batches) = (AtomicBool::new(false), AtomicU64::new(0), 0);
    let taken: u64 = std::thread::scope(|scope| {
        let peers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let peer = Peer::open_to_change(&path).expect("the file");
                    let mut taken = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        taken += peer.change(Order::Set { cell: 0, value: 0 }).expect("it is done");
                        peer.change(Order::Add { cell: 5, value: 1 }).expect("it is done");
                        let Snapshot { cells, is_consistent } = peer.snapshot().expect("cells");
                        assert!(!is_consistent || cells[2] == 3 * cells[3], "{cells:?}");
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                    taken
                })
            })
            .collect();
        while rounds.load(Ordering::Relaxed) < ROUNDS {
            batches += 1;
            owner.begin();
            for _ in 0..50 {
                memory.set(0, memory.get(0) + 1);
                memory.set(3, memory.get(3) + 1);
                memory.set(2, memory.get(2) + 3);
            }
            owner.end();
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        // Orders of peers that have not looked yet are still carried out.
        while peers.iter().any(|peer| !peer.is_finished()) {
            owner.obey();
            std::thread::yield_now();
        }
        peers.into_iter().map(|peer| peer.join().expect("no panic")).sum()
    });
    assert_eq!((taken + memory.get(0), memory.get(3)), (50 * batches, 50 * batches));
    assert_eq!(memory.get(5), rounds.into_inner());
}

#[test]
fn cells_outlive_the_program() {
    let (_folder, path) = place();
    let owner = SharedCells::open(&path, 8).expect("a file");
    owner.memory().set(7, 70);
    assert!(matches!(SharedCells::open(&path, 8), Err(Error::InUse { .. })));
    drop(owner);
    let peer = Peer::open_to_change(&path).expect("the file");
    assert_eq!(peer.change(Order::Add { cell: 7, value: 5 }).expect("done"), 70);
    assert_eq!(peer.snapshot().expect("cells").cells, [0, 0, 0, 0, 0, 0, 0, 75]);
    assert_eq!(peer.change(Order::SetAll { value: 1 }).expect("done"), 75);
    assert!(matches!(peer.change(Order::Set { cell: 8, value: 0 }), Err(Error::NoCell { .. })));
    assert!(matches!(SharedCells::open(&path, 16), Err(Error::WrongFile { .. })));
    assert_eq!(SharedCells::open(&path, 8).expect("again").memory().get(0), 1);
}

/// An order of a process that was killed before it had its answer changes no other order.
#[test]
fn an_order_without_its_sender_is_done_first() {
    let (_folder, path) = place();
    let owner = SharedCells::open(&path, 4).expect("a file");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
    for (word, value) in [(layout::word::WHAT, 2), (layout::word::CELL, 1), (layout::word::VALUE, 9)] {
        layout::write_word(&file, word, value).expect("written");
    }
    layout::write_word(&file, layout::word::POSTED, 1).expect("written");
    std::thread::scope(|scope| {
        let peer =
            scope.spawn(|| Peer::open_to_change(&path).expect("it").change(Order::Add { cell: 1, value: 1 }));
        while !peer.is_finished() {
            owner.obey();
            std::thread::yield_now();
        }
        assert_eq!(peer.join().expect("no panic").expect("done"), 9);
    });
    assert_eq!(owner.memory().get(1), 10);
}

#[test]
fn other_files_are_refused() {
    let (_folder, path) = place();
    drop(SharedCells::open(&path, 4).expect("a file"));
    let good = std::fs::read(&path).expect("bytes");
    for (at, byte) in [(0, b'X'), (8, 9), (16, 2), (24, 8), (24, 3), (31, 1)] {
        let mut bad = good.clone();
        bad[at] = byte;
        std::fs::write(&path, &bad).expect("written");
        assert!(matches!(Peer::open(&path), Err(Error::WrongFile { .. })), "byte {at}");
        assert!(matches!(SharedCells::open(&path, 4), Err(Error::WrongFile { .. })), "byte {at}");
    }
    for len in [1, 4095, good.len() - 1, good.len() - 8] {
        std::fs::write(&path, &good[..len]).expect("written");
        assert!(matches!(Peer::open(&path), Err(Error::WrongFile { .. })), "{len} bytes");
    }
}

/// A user with the right to write the file could shrink it, and kill the program that counts in it.
#[test]
fn files_that_others_may_write_are_refused() {
    let (folder, path) = place();
    drop(SharedCells::open(&path, 4).expect("a file"));
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
    for writable in [0o620, 0o602] {
        mode(writable);
        let error = SharedCells::open(&path, 4).expect_err("others may write it").to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
    mode(0o600);
    if !tapline_sys::privilege::is_root() {
        eprintln!("files_that_others_may_write_are_refused: skipped a part: needs root");
        return;
    }
    std::os::unix::fs::chown(&path, Some(65_534), None).expect("root may");
    let error = SharedCells::open(&path, 4).expect_err("it is another user's").to_string();
    assert!(error.contains("belongs to the user"), "{error}");
    // A link of another user would have root make a file anywhere, or fill an empty one.
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    assert!(SharedCells::open(&link, 4).is_err() && !target.exists());
    std::os::unix::fs::symlink(&target, folder.path().join("more.lock")).expect("a link");
    assert!(SharedCells::open(&folder.path().join("more"), 4).is_err() && !target.exists());
}

#[test]
fn a_pipe_for_a_file_makes_no_peer_wait() {
    let (_folder, path) = place();
    tapline_sys::disk::make_pipe(&path).expect("there is room");
    for opened in [Peer::open(&path), Peer::open_to_change(&path)] {
        let error = opened.expect_err("it is a pipe");
        assert!(matches!(error, Error::WrongFile { .. }), "{error}");
    }
}
