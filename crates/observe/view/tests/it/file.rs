//! The file: written data is read whole or not at all, while others write.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use tapline_meters::RunFolder;
use tapline_view::{Amount, Dimension, Error, Key, Ranking, Reader, Second, Table, ViewFile};

fn second(n: u64) -> Second {
    Second {
        end_ns: (n + 1) * 1_000_000_000,
        len_ns: 1_000_000_000,
        metered: n * 10,
        metered_bytes: n * 1000,
        flow_bytes: n * 800,
        not_ip: n % 3,
        lost_ring: n % 7,
        active: n,
        ..Second::default()
    }
}

/// Tables whose every number follows from `n`.
fn tables(n: u64) -> [Table; 8] {
    let mut ranking = Ranking::new(n);
    for host in 1..=10 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + host as u32);
        ranking.add(Key::host(address.into()), Amount { packets: n, bytes: 80 * n });
    }
    let mut table = ranking.take();
    table.cut(256);
    std::array::from_fn(|_| table.clone())
}

fn view() -> (tempfile::TempDir, ViewFile, Reader) {
    let folder = tempfile::tempdir().expect("a folder");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "tapline probe").expect("a view");
    let reader = Reader::open(view.path().expect("a file")).expect("a reader");
    (folder, view, reader)
}

#[test]
fn seconds_and_tables_come_back() {
    let (folder, view, reader) = view();
    assert_eq!(reader.last().expect("readable"), None);
    let worker = view.join();
    for n in 0..3700 {
        view.contribute(worker, &second(n), &tables(n));
    }
    let last = reader.last().expect("readable").expect("a second");
    assert_eq!((last.number, last.second.metered, last.second.offered()), (3699, 36_990, 36_990 + 3));
    assert_eq!(last.table(Dimension::Pair), &tables(3699)[0]);
    let seconds = reader.seconds(0, usize::MAX).expect("readable");
    assert_eq!((seconds.len(), seconds[0].0), (3600, 100), "the ring has an hour");
    assert!(seconds.iter().all(|(n, one)| one.metered == n * 10 && one.active == *n));
    assert_eq!(Reader::list_in(&RunFolder::of(folder.path())), [reader.process().clone()]);
    assert_eq!(reader.process().title, "tapline probe");
    let mode = fs::metadata(view.path().expect("a file")).expect("its mode").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "addresses are not for everybody");
    view.make_private().expect("our file");
    let mode = fs::metadata(view.path().expect("a file")).expect("its mode").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its user alone");
    assert!(reader.is_alive());
    drop(view);
    assert!(Reader::list_in(&RunFolder::of(folder.path())).is_empty());
}

#[test]
fn workers_are_added_and_none_holds_up_the_others() {
    let (_folder, view, reader) = view();
    let workers = [view.join(), view.join()];
    view.contribute(workers[0], &second(5), &tables(5));
    assert_eq!(reader.published().expect("readable"), 0, "one is still to come");
    view.contribute(workers[1], &second(6), &tables(6));
    let last = reader.last().expect("readable").expect("a second");
    assert_eq!(last.second.metered, 110);
    assert_eq!(last.table(Dimension::HostIn).sum().packets, 110);
    view.contribute(workers[0], &second(7), &tables(7));
    view.contribute(workers[0], &second(8), &tables(8));
    assert_eq!(reader.last().expect("readable").expect("a second").second.metered, 70);
    view.leave(workers[1]);
    assert_eq!(reader.last().expect("readable").expect("a second").second.metered, 80);
}

#[test]
fn readers_see_whole_seconds_during_writes() {
    let (_folder, view, reader) = view();
    let (view, stop) = (Arc::new(view), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (view, stop) = (Arc::clone(&view), Arc::clone(&stop));
        let worker = view.join();
        thread::spawn(move || {
            let mut n = 1;
            while !stop.load(Relaxed) {
                view.contribute(worker, &second(n), &tables(n));
                n += 1;
            }
            n
        })
    };
    let mut seen = 0;
    for _ in 0..300 {
        // A writer that is never idle may win eight times; what is read is whole.
        let Some(last) = reader.last().expect("readable") else { continue };
        let n = last.second.active;
        assert_eq!(last.second, second(n));
        assert!(last.tables.iter().all(|table| table == &tables(n)[0]), "second {n} is torn");
        seen += 1;
        let seconds = reader.seconds(last.number.saturating_sub(20), 20).expect("readable");
        assert!(seconds.iter().all(|(number, one)| *one == second(number + 1)));
    }
    stop.store(true, Relaxed);
    let written = writer.join().expect("no panic");
    eprintln!("{seen} of 300 readings while {written} seconds were written");
}

#[test]
fn damaged_files_are_refused_or_bounded() {
    let (_folder, view, reader) = view();
    let worker = view.join();
    view.contribute(worker, &second(1), &tables(1));
    let path = view.path().expect("a file").to_owned();
    let file = fs::OpenOptions::new().write(true).open(&path).expect("our file");
    // Numbers of rows beyond the most, in every table.
    for table in 0..8u64 {
        let at = 512 * 8 + 3600 * 512 + (128 + table * (16 + 256 * 32)) * 8;
        file.write_all_at(&u64::MAX.to_ne_bytes(), at).expect("written");
    }
    let last = reader.last().expect("readable").expect("a second");
    assert!(last.tables.iter().all(|table| table.rows.len() == 256));
    // A sum that does not add up.
    file.write_all_at(&u64::MAX.to_ne_bytes(), 512 * 8 + 5 * 8).expect("written");
    assert!(reader.seconds(0, 10).expect("readable").is_empty());
    for (at, text) in [(0, "TAPLVIEW"), (8, "byte order"), (16, "version"), (40, "number of tables")] {
        let whole = fs::read(&path).expect("our file");
        file.write_all_at(&7u64.to_ne_bytes(), at).expect("written");
        let error = Reader::open(&path).expect_err("damaged");
        assert!(matches!(&error, Error::Foreign { .. }) && error.to_string().contains(text), "{error}");
        file.write_all_at(&whole[at as usize..at as usize + 8], at).expect("written");
    }
    file.set_len(4000).expect("cut");
    assert!(matches!(Reader::open(&path), Err(Error::File(tapline_meters::Error::Ended { .. }))));
    assert!(matches!(reader.published(), Ok(_) | Err(Error::File(tapline_meters::Error::Ended { .. }))));
}

/// A file that others wrote may have any numbers whose sum is right by word 3.
#[test]
fn sums_of_any_numbers_are_made() {
    let (_folder, view, reader) = view();
    let worker = view.join();
    let most = Second {
        len_ns: u64::MAX,
        metered: u64::MAX,
        metered_bytes: u64::MAX,
        not_ip_bytes: u64::MAX,
        active: u64::MAX,
        room: u64::MAX,
        workers: u64::MAX,
        ..Second::default()
    };
    view.contribute(worker, &most, &tables(1));
    let second = reader.last().expect("readable").expect("its packets add up").second;
    assert_eq!((second.offered(), second.offered_bytes()), (u64::MAX, u64::MAX));
    let (mut later, mut other) = (second, second);
    later.append(&most);
    other.merge(&most);
    assert_eq!(
        (later.len_ns, later.offered(), other.active, other.workers),
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX)
    );
}

#[test]
fn a_pipe_for_a_file_makes_no_reader_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("1.view");
    tapline_sys::disk::make_pipe(&path).expect("there is room");
    let error = Reader::open(&path).expect_err("it is a pipe");
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}
