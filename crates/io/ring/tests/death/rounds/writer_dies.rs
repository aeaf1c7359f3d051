//! A writer that is killed while this process reads.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tapline_ring::{Policy, ReaderSpec, WaitEnd, WriteRoom};
use tapline_sys::{SharedWords, clock};
use tapline_testkit::random::Random;

use super::child::{KILL, Other, STOP, open, our_notes, our_socket, send};
use super::events::Sums;
use super::packets::Made;
use super::reader::{FAULTS, IN_PLACE, SEEN, take};
use super::readers_die::new_writer;

/// Words of a writer's notes: packets it was about to publish, those that it has published.
const MEANT: usize = 0;
const PUBLISHED: usize = 1;

pub(crate) fn as_writer(seed: u64) {
    let socket = our_socket();
    let notes = our_notes(&socket);
    let mut random = Random::new(seed);
    let mut writer = new_writer();
    let policy = *random.pick(&[
        Policy::Lossy,
        Policy::Leased { bytes: 4 * (16 << 10), time: Duration::from_secs(3600) },
        Policy::Lossless,
    ]);
    let attachment = writer.attach(&ReaderSpec { policy, entries: 4096 }).expect("a reader");
    send(&socket, &attachment.parts);
    drop(attachment.parts);
    let mut stored = 0;
    for round in 1_u64.. {
        // The process that would kill us may have been killed itself.
        if round.is_multiple_of(256) && !writer.reap().is_empty() {
            return;
        }
        let made = Made::new(stored, &mut random);
        while writer.make_room(&made.batch(), &made.all).expect("room some time") != WriteRoom::Ready {
            writer.wait_for(attachment.id, Duration::from_secs(1)).expect("a reader");
        }
        stored += made.len();
        notes[MEANT].store(stored, SeqCst);
        writer.store(&made.batch(), &made.all);
        writer.index(attachment.id, &made.all, 1).expect("a reader");
        writer.publish(clock::monotonic_ns());
        notes[PUBLISHED].store(stored, SeqCst);
    }
}

pub(crate) fn writer_dies(random: &mut Random) -> Sums {
    let mut sums = Sums::default();
    let mut other = Other::start("as-writer", random.bits());
    let mut reader = open(&other.socket);
    let notes = SharedWords::private(512);
    let (until, pace) = (random.below(5000), random.below(400));
    while notes[SEEN].load(SeqCst) < until {
        while notes[SEEN].load(SeqCst) < until && reader.advance().expect("a sound index") > 0 {
            take(&reader, &notes, pace);
        }
        assert_eq!(reader.wait(Duration::from_secs(600)).expect("a sound index"), WaitEnd::Ready);
    }
    if random.one_of(1, 3) {
        other.signal(STOP);
        sums.stops += 1;
    }
    other.signal(KILL);
    other.end();
    sums.kills += 1;
    while reader.advance().expect("a sound index") > 0 {
        take(&reader, &notes, 0);
    }
    assert_eq!(reader.wait(Duration::from_secs(600)).expect("a sound index"), WaitEnd::WriterGone);
    sums.in_place += notes[IN_PLACE].load(SeqCst);
    let account = reader.finish();
    sums.account(&account);
    let (meant, published) = (other.note(MEANT), other.note(PUBLISHED));
    assert!(published <= account.offered && account.offered <= meant, "{account}: {published} to {meant}");
    assert_eq!((account.delivered, notes[FAULTS].load(SeqCst)), (notes[SEEN].load(SeqCst), 0), "{account}");
    assert!(account.balances() && account.lost.unread == 0 && account.lost.damaged == 0, "{account}");
    sums
}
