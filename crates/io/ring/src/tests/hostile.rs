//! The other side is dishonest: the checks of each side, case by case. The fuzz targets look for other cases.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use proptest::prelude::*;
use tapline_packet::Timestamp;
use tapline_sys::{Bell, Memfd, Seals, SharedWords};

use super::end_to_end::{Made, attach, drain, offer, writer};
use crate::layout::{Guarantee, HEADER_WORDS, buffer, index};
use crate::*;

/// A reader's parts, with the index's memory kept by the lying side.
pub(super) fn attached(writer: &mut Writer, policy: Policy, entries: u32) -> (ReaderId, Reader, SharedWords) {
    let attachment = writer.attach(&ReaderSpec { policy, entries }).unwrap();
    let copy = attachment.parts.index.try_clone().unwrap();
    let words = Memfd::from_descriptor(copy).map().unwrap();
    (attachment.id, Reader::open(attachment.parts).unwrap(), words)
}

fn leased() -> Policy {
    Policy::Leased { bytes: 8192, time: Duration::from_secs(1000) }
}

#[test]
fn counts_that_cannot_be_are_not_believed() {
    let mut writer = writer(4096, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 16);
    offer(&mut writer, &Made::new(0, 10, 60), &[id]);
    drain(&mut reader);
    let honest = writer.account(id).unwrap();
    for (word, value) in [
        (index::DELIVERED, 11),
        (index::DELIVERED, u64::MAX),
        (index::DELIVERED, 9),
        (index::OVERWRITTEN, 1),
        (index::DAMAGED, u64::MAX - 9),
    ] {
        let before = words[word].swap(value, SeqCst);
        let account = writer.account(id).unwrap();
        assert_eq!(Account { is_implausible: false, ..account }, honest, "{word} {value}");
        assert!(account.is_implausible && account.balances());
        words[word].store(before, SeqCst);
    }
    // The reader gets its room as believed, and no more.
    words[index::DELIVERED].store(u64::MAX, SeqCst);
    offer(&mut writer, &Made::new(10, 30, 60), &[id]);
    let account = writer.account(id).unwrap();
    assert_eq!((account.offered, account.lost.index_full, account.lost.unread), (40, 14, 16));
}

#[test]
fn blocks_held_by_a_reader_cost_others_no_packet() {
    let mut writer = writer(4096, 16);
    let (liar, _reader, words) = attached(&mut writer, leased(), 16);
    let (honest, mut reader, _) = attached(&mut writer, Policy::Lossy, 4096);
    for round in 0..300u64 {
        words[index::HELD].store(round.wrapping_mul(0x9e37_79b9) % 40 + round, SeqCst);
        offer(&mut writer, &Made::new(round * 20, 20, 60), &[liar, honest]);
        assert_eq!(drain(&mut reader).len(), 20);
    }
    assert_eq!((writer.unstored_packets(), writer.account(honest).unwrap().delivered), (0, 6000));
}

#[test]
fn concurrent_cursor_change_loses_no_packet() {
    let mut writer = writer(4096, 16);
    let (liar, _reader, words) = attached(&mut writer, leased(), 4096);
    let (honest, mut reader, _) = attached(&mut writer, Policy::Lossy, 4096);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Always the block that is looked for next, as far as it can tell.
        scope.spawn(|| {
            let mut mark = 0u64;
            while !stop.load(Relaxed) {
                mark = (mark + 1) % 4096;
                words[index::HELD].store(mark, Relaxed);
            }
        });
        for round in 0..2000 {
            offer(&mut writer, &Made::new(round * 20, 20, 60), &[liar, honest]);
            assert_eq!(drain(&mut reader).len(), 20);
        }
        stop.store(true, Relaxed);
    });
    assert_eq!((writer.unstored_packets(), writer.account(honest).unwrap().delivered), (0, 40_000));
}

#[test]
fn a_mark_that_follows_the_search_ends_in_refusal() {
    use crate::store::Holders;
    for blocks in [4, 8, 16, 64] {
        let (mut readers, words) = super::super::writer::tests_only_readers(blocks);
        let standing = |words: &SharedWords| Guarantee::from_word(words[index::STANDING].load(Relaxed));
        // The liars follow the search one after the other: that costs the most.
        let mut liars = words.iter();
        let mut liar = liars.next();
        let mut passed = 0;
        readers.begin(0);
        for sequence in 1..=u64::from(blocks) {
            let Some(words) = liar else { break };
            words[index::HELD].store(sequence, Relaxed);
            if readers.hold(sequence) {
                passed += 1;
                assert_eq!(standing(words), Guarantee::Leased);
            } else {
                assert_eq!(standing(words), Guarantee::Refused);
                liar = liars.next();
            }
        }
        assert_eq!(passed, blocks / 4, "one for each");
        // For good: what they hold does not count in another search either.
        readers.begin(0);
        assert!(!readers.hold(words[0][index::HELD].load(Relaxed)));
    }
}

#[test]
fn sleeping_readers_are_woken_once_a_batch() {
    let mut writer = writer(4096, 16);
    let (id, _reader, words) = attached(&mut writer, Policy::Lossy, 16);
    for round in 0..1000 {
        words[index::WAITING].store(1 + round % 3, SeqCst);
        offer(&mut writer, &Made::new(round, 1, 60), &[id]);
    }
    assert_eq!(writer.wake_count(id).unwrap(), 667);
}

#[test]
fn a_head_that_cannot_be_ends_reading() {
    let mut writer = writer(4096, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 16);
    offer(&mut writer, &Made::new(0, 10, 60), &[id]);
    drain(&mut reader);
    for head in [27, 9, u64::MAX] {
        words[index::HEAD].store(head, SeqCst);
        assert!(
            matches!(reader.advance(), Err(Error::IndexDamaged { room: 16, consumed: 10, .. })),
            "{head}"
        );
        assert!(reader.batch().is_empty() && reader.wait(Duration::ZERO).is_err());
    }
    let account = reader.finish();
    assert!(account.balances() && account.delivered == 10);
}

#[test]
fn losses_that_cannot_be_do_not_wrap_around() {
    let mut writer = writer(4096, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 16);
    offer(&mut writer, &Made::new(0, 10, 60), &[id]);
    words[index::INDEX_FULL].store(u64::MAX - 3, SeqCst);
    words[index::BYTES].store(u64::MAX, SeqCst);
    assert_eq!(drain(&mut reader).len(), 10);
    let mut account = reader.finish();
    assert!(account.balances(), "{account}");
    account.merge(&account.clone());
    assert!(account.balances(), "{account}");
}

#[test]
fn invalid_entries_count_as_damaged_or_overwritten() {
    for policy in [Policy::Lossy, leased()] {
        let mut writer = writer(4096, 16);
        let (id, mut reader, words) = attached(&mut writer, policy, 16);
        offer(&mut writer, &Made::new(0, 8, 60), &[id]);
        let entry = |at: usize| crate::layout::HEADER_WORDS + 2 * at;
        let good = words[entry(0)].load(SeqCst);
        for (at, (position, what)) in [
            (0, 60),
            (good + 8, 60),
            (good - 64, 60),
            (good + 64, 60),
            (good, 61),
            (good, u64::from(u32::MAX)),
            (good + 4096 * 16, 60),
            (!63, 60),
        ]
        .into_iter()
        .enumerate()
        {
            words[entry(at)].store(position, SeqCst);
            words[entry(at) + 1].store(what, SeqCst);
        }
        assert_eq!(reader.advance().unwrap(), 0);
        assert!(reader.batch().is_empty());
        let account = reader.finish();
        assert_eq!(
            (account.lost.damaged, account.lost.overwritten, account.delivered),
            (7, 1, 0),
            "{policy:?}"
        );
    }
}

#[test]
fn memory_without_seals_is_not_mapped() {
    let whole = crate::layout::index_len(16);
    let bell = || OwnedFd::from(Bell::pair().unwrap().0);
    let mut writer = writer(4096, 16);
    let attachment = writer.attach(&ReaderSpec { policy: Policy::Lossy, entries: 16 }).unwrap();
    let parts = |buffer: OwnedFd, index: OwnedFd| ReaderParts { buffer, index, bell: bell() };
    let (good_buffer, good_index) = (attachment.parts.buffer, attachment.parts.index);
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    let loose = || OwnedFd::from(Memfd::create(c"loose", whole).unwrap());
    let disk = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    for (parts, file) in [
        (parts(loose(), copy(&good_index)), "packet buffer"),
        (parts(copy(&good_buffer), loose()), "index"),
        (parts(disk(), copy(&good_index)), "packet buffer"),
        (parts(copy(&good_buffer), disk()), "index"),
        // An index is not sealed against writing, so it is not a buffer.
        (parts(copy(&good_index), copy(&good_index)), "packet buffer"),
    ] {
        match Reader::open(parts) {
            Err(Error::NotSealed { file: found }) => assert_eq!(found, file),
            other => panic!("{:?}", other.err()),
        }
    }
    let swapped = parts(copy(&good_buffer), copy(&good_buffer));
    assert!(Reader::open(swapped).is_err());
    // Another writer's index does not go with this buffer.
    let mut another = super::end_to_end::writer(4096, 16);
    let foreign = another.attach(&ReaderSpec { policy: Policy::Lossy, entries: 16 }).unwrap();
    let mixed = parts(copy(&good_buffer), foreign.parts.index);
    assert!(matches!(Reader::open(mixed), Err(Error::WrongHeader { file: "index", offset: 40, .. })));
    assert!(Reader::open(parts(good_buffer, good_index)).is_ok());
}

#[test]
fn headers_that_lie_are_refused() {
    for (word, value) in [
        (0, 1),
        (1, 0x0807_0605_0403_0201),
        (2, 2),
        (3, 8192),
        (buffer::BLOCK_LEN, 4095),
        (buffer::BLOCK_LEN, 1 << 31),
        (buffer::BLOCK_LEN, 8192),
        (buffer::BLOCKS, 0),
        (buffer::BLOCKS, u64::MAX),
        (buffer::BLOCKS, 32),
    ] {
        let mut writer = writer(4096, 16);
        let attachment = writer.attach(&ReaderSpec { policy: Policy::Lossy, entries: 16 }).unwrap();
        let original = Memfd::from_descriptor(attachment.parts.buffer).map_to_read().unwrap();
        let forged = Memfd::create(c"forged", original.len() as u64 * 8).unwrap();
        let words = forged.map().unwrap();
        (0..original.len()).for_each(|at| words[at].store(original.load(at), Relaxed));
        words[word].store(value, Relaxed);
        forged.seal(Seals::READ_ONLY).unwrap();
        let parts = ReaderParts { buffer: forged.into(), ..attachment.parts };
        let error = Reader::open(parts).err().expect("refused");
        assert!(!error.to_string().is_empty(), "{word} {value}");
    }
}

#[test]
fn a_reader_takes_no_more_than_its_terms() {
    let open = |terms: ReaderLimits| {
        let mut writer = writer(4096, 16);
        let attachment = writer.attach(&ReaderSpec { policy: leased(), entries: 32 }).unwrap();
        let opened = Reader::open_within(attachment.parts, &terms);
        (writer, attachment.id, opened)
    };
    for terms in [
        ReaderLimits { entries_max: 16, ..ReaderLimits::ANY },
        ReaderLimits { snap_len_max: 63, ..ReaderLimits::ANY },
    ] {
        assert!(matches!(open(terms).2, Err(Error::Size { .. })), "{terms:?}");
    }
    for in_place in [true, false] {
        let terms = ReaderLimits { in_place, entries_max: 32, ..ReaderLimits::ANY };
        let (mut writer, id, reader) = open(terms);
        let mut reader = reader.unwrap();
        offer(&mut writer, &Made::new(0, 10, 60), &[id]);
        assert_eq!(reader.advance().unwrap(), 10);
        assert_eq!(reader.is_in_place(), in_place, "the writer's word alone lends nothing in place");
    }
}

#[test]
fn nothing_is_taken_that_comes_after_the_last_look() {
    let mut writer = writer(4096, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 32);
    offer(&mut writer, &Made::new(0, 10, 60), &[id]);
    reader.stop_at_present();
    offer(&mut writer, &Made::new(10, 10, 60), &[id]);
    assert_eq!((drain(&mut reader).len(), reader.advance().unwrap()), (10, 0));
    words[index::HEAD].store(u64::MAX, SeqCst);
    assert_eq!(reader.advance().unwrap(), 0);
    let account = reader.finish();
    assert!(account.balances() && account.offered == 10, "{account}");
}

#[test]
fn false_entries_block_no_reader_for_long() {
    let mut writer = writer(1 << 20, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 1024);
    (0..4).for_each(|round| offer(&mut writer, &Made::new(round * 250, 250, 60), &[id]));
    // Each leads to a place where a large packet could be and none is.
    for at in 0..1000 {
        words[HEADER_WORDS + 2 * at].store((1 << 20) + 192, SeqCst);
        words[HEADER_WORDS + 2 * at + 1].store(60_000, SeqCst);
    }
    assert_eq!(reader.advance().unwrap(), 0);
    let first = reader.account().lost;
    assert!((1..1000).contains(&first.damaged) && first.unread > 0, "{first:?}");
    (0..100).for_each(|_| assert_eq!(reader.advance().unwrap(), 0));
    assert_eq!(reader.account().lost.damaged, 1000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever a reader writes into its index, its own packets are counted right and the other's come.
    #[test]
    fn no_reader_forges_its_offered_count(
        lies in prop::collection::vec((0usize..544, any::<u64>(), 0u8..4), 0..60),
    ) {
        let mut writer = writer(4096, 16);
        let (liar, _reader, words) = attached(&mut writer, leased(), 16);
        let (honest, mut reader, _) = attached(&mut writer, Policy::Lossy, 256);
        let mut offered = 0;
        for (word, value, how) in lies {
            let value = match how {
                0 => value,
                1 => value % 64,
                2 => words[word].load(Relaxed).wrapping_add(value % 3),
                _ => words[word].load(Relaxed).wrapping_sub(value % 3),
            };
            words[word].store(value, Relaxed);
            offer(&mut writer, &Made::new(offered, 7, 60), &[liar, honest]);
            offered += 7;
            let account = writer.account(liar).unwrap();
            prop_assert!(account.balances() && account.offered == offered, "{}", account);
            prop_assert_eq!(drain(&mut reader).len(), 7);
        }
        prop_assert_eq!(writer.unstored_packets(), 0);
    }
}

/// A packet older than the requested start costs a look too, and packets stored since a reader went on to the present
/// are not counted once more, whatever their time.
#[test]
fn times_out_of_order_do_not_block_readers() {
    let mut writer = writer(4096, 16);
    offer(&mut writer, &Made::new(100, 10, 60), &[]);
    offer(&mut writer, &Made::new(1, 20, 60), &[]);
    let (id, reader) = attach(&mut writer, Policy::Lossy, 64);
    writer.begin(id, StartPosition::Since(Timestamp::from_nanos(500))).unwrap();
    assert_eq!(
        (writer.replay_left(id).unwrap(), writer.replay(id, 15, |_| Some(1)).unwrap()),
        (30, ReplayProgress::More)
    );
    assert_eq!(writer.replay_left(id).unwrap(), 15, "as many looks as were allowed");
    writer.skip(id).unwrap();
    offer(&mut writer, &Made::new(110, 3, 60), &[id]);
    assert_eq!(writer.replay(id, 100, |_| Some(1)).unwrap(), ReplayProgress::Done);
    let account = writer.account(id).unwrap();
    assert_eq!((account.offered, account.lost.index_full), (13, 0), "10 of the past and 3 of the present");
    drop(reader);
}

/// A leased reader that holds another block each time one is looked for is found out: no block of the past is taken
/// that was not offered or counted.
#[test]
fn blocks_held_by_a_reader_cost_others_no_past() {
    for round in 0..200 {
        let mut writer = writer(1 << 16, 16);
        let spec = ReaderSpec { policy: leased(), entries: 16 };
        let leased = writer.attach(&spec).unwrap();
        let words = Memfd::from_descriptor(leased.parts.index.try_clone().unwrap()).map().unwrap();
        let blocks = Memfd::from_descriptor(leased.parts.buffer.try_clone().unwrap()).map_to_read().unwrap();
        // One packet a block.
        (0..16).for_each(|number| offer(&mut writer, &Made::new(number, 1, 60_000), &[]));
        let (id, reader) = attach(&mut writer, Policy::Lossy, 64);
        writer.begin(id, StartPosition::Oldest).unwrap();
        let made = Made::new(16, 6, 60_000);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // The block that is taken next.
                    let newest =
                        (0..16).map(|slot| blocks.load(HEADER_WORDS + slot * (1 << 13))).max().unwrap();
                    words[index::HELD].store((newest + 1).saturating_sub(16), SeqCst);
                }
            });
            writer.replay_before(id, &made.batch(), &made.all(), |_| Some(1)).unwrap();
            writer.store(&made.batch(), &made.all());
            writer.publish(round);
            stop.store(true, Relaxed);
        });
        while writer.replay(id, 100, |_| Some(1)).unwrap() != ReplayProgress::Done {}
        assert_eq!(writer.account(id).unwrap().offered, 22, "round {round}");
        drop(reader);
    }
}
