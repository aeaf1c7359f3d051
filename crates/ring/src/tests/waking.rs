//! Who sleeps is woken when its wish is met, once, and nobody else is.

use std::thread;
use std::time::Duration;

use tapline_packet::LinkType;
use tapline_sys::Bell;

use super::end_to_end::{Made, drain, offer, writer};
use crate::*;

fn pair() -> (Writer, ReaderId, Reader) {
    let mut writer = writer(4096, 16);
    let attachment = writer.attach(&ReaderSpec::new(Policy::Lossy)).unwrap();
    let reader = Reader::open(attachment.parts).unwrap();
    (writer, attachment.id, reader)
}

/// Whether poll(2) would say that the reader's descriptor is readable.
fn rings(reader: &Reader) -> bool {
    let bell = Bell::from(reader.descriptor().try_clone_to_owned().unwrap());
    bell.wait(Duration::ZERO).unwrap()
}

#[test]
fn only_sleepers_are_woken_and_once_a_batch() {
    let (mut writer, id, mut reader) = pair();
    offer(&mut writer, &Made::new(0, 64, 60), &[id]);
    assert_eq!((writer.wakes(id).unwrap(), rings(&reader)), (0, false));
    assert_eq!(reader.arm().unwrap(), Some(Waited::Ready));
    assert_eq!(drain(&mut reader).len(), 64);
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(64, 64, 60), &[id]);
    offer(&mut writer, &Made::new(128, 64, 60), &[id]);
    assert_eq!((writer.wakes(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!(drain(&mut reader).len(), 128);
    assert_eq!(reader.arm().unwrap(), None);
    assert!(!rings(&reader));
}

#[test]
fn bytes_and_delay_are_wishes() {
    let (mut writer, id, mut reader) = pair();
    reader.set_wake(WakeWish { min_bytes: 1000, max_delay: Duration::from_nanos(500_000_000_000) });
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(0, 9, 100), &[id]);
    assert_eq!((writer.wakes(id).unwrap(), reader.arm().unwrap()), (0, None));
    offer(&mut writer, &Made::new(9, 1, 100), &[id]);
    assert_eq!((writer.wakes(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!(drain(&mut reader).len(), 10);
    assert_eq!(reader.arm().unwrap(), None);
    // Bytes that were read do not count again.
    offer(&mut writer, &Made::new(10, 9, 100), &[id]);
    assert_eq!(writer.wakes(id).unwrap(), 1);
    let due = writer.due_ns().unwrap();
    assert_eq!(due, 180 + 500_000_000_000, "counted from the batch at 180 ns");
    writer.tick(due - 1);
    assert_eq!(writer.wakes(id).unwrap(), 1);
    writer.tick(due);
    assert_eq!((writer.wakes(id).unwrap(), writer.due_ns()), (2, None));
}

#[test]
fn a_sleeper_on_the_futex_is_woken() {
    let (mut writer, id, mut reader) = pair();
    let sleeper = thread::spawn(move || {
        let mut found = Vec::new();
        while reader.wait(Duration::from_secs(600)).unwrap() == Waited::Ready {
            found.extend(drain(&mut reader));
        }
        (found, reader.wait(Duration::from_secs(600)).unwrap())
    });
    for number in 0..200 {
        offer(&mut writer, &Made::new(number, 1, 60), &[id]);
        if number % 16 == 0 {
            thread::yield_now();
        }
    }
    writer.end();
    assert_eq!(sleeper.join().unwrap(), ((0..200).collect(), Waited::Closed));
}

#[test]
fn the_writers_end_is_noticed_by_sleepers() {
    let (mut writer, id, mut reader) = pair();
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    let sleeper = thread::spawn(move || {
        assert_eq!(drain(&mut reader), [0, 1, 2]);
        let waited = reader.wait(Duration::from_secs(600)).unwrap();
        (waited, reader.arm().unwrap(), rings(&reader))
    });
    drop(writer);
    assert_eq!(sleeper.join().unwrap(), (Waited::WriterGone, Some(Waited::WriterGone), true));
}

#[test]
fn what_is_there_is_said_when_the_time_is_over() {
    let (mut writer, id, mut reader) = pair();
    reader.set_wake(WakeWish { min_bytes: 1 << 20, max_delay: Duration::from_millis(1) });
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    assert_eq!(reader.wait(Duration::from_secs(600)).unwrap(), Waited::Ready);
    assert_eq!(reader.wait(Duration::ZERO).unwrap(), Waited::Ready);
    reader.set_wake(WakeWish { min_bytes: 1 << 20, max_delay: Duration::from_secs(3600) });
    assert_eq!(reader.wait(Duration::ZERO).unwrap(), Waited::TimedOut);
    assert_eq!(drain(&mut reader).len(), 3);
    assert_eq!(reader.info().link_type, LinkType::ETHERNET);
}
