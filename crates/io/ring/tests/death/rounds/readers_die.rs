//! Readers that are killed, stopped and slowed, each with a policy, while this process writes.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tapline_packet::{LinkType, Timestamp};
use tapline_ring::{
    Account, BufferSpec, Guarantee, Policy, ReaderId, ReaderSpec, ReplayProgress, StartPosition, WriteRoom,
    Writer,
};
use tapline_sys::clock;
use tapline_testkit::random::Random;

use super::child::{CONT, KILL, Other, STOP, send};
use super::events::Sums;
use super::packets::Made;
use super::reader::{FAULTS, GAPS, IN_PLACE, LAST, LOST, SEEN};

/// No batch has more packets, so no more can be on their way in a reader.
const LENT_MAX: u64 = 256;
/// A reader whose turn does not come is given up after this many naps.
const NAPS_MAX: u32 = 3;

/// A reader, as this process knows it.
struct Known {
    id: ReaderId,
    other: Other,
    /// Packets offered to it, by our own count.
    offered: u64,
    /// Delivered packets from before the reader came.
    replayed: u64,
    /// The number of the first packet that it may be offered.
    first: u64,
    /// The reader has not come to the present, or not all of the past is counted.
    has_past: bool,
    /// The reader is offered the packets that are stored.
    is_indexed: bool,
    policy: Policy,
    is_stopped: bool,
}

pub(crate) fn readers_die(random: &mut Random) -> Sums {
    let mut sums = Sums::default();
    let mut writer = new_writer();
    let (mut known, mut stored) = (Vec::new(), 0);
    for _ in 0..random.between(1..=3) {
        known.push(new_reader(&mut writer, stored, random));
    }
    for _ in 0..random.between(10..=300) {
        let made = Made::new(stored, random);
        known.iter_mut().for_each(|reader| reader.catch_up(&mut writer));
        make_room(&mut writer, &made, &mut known);
        let lagging: Vec<bool> = known.iter_mut().map(|reader| reader.rescue(&mut writer, &made)).collect();
        writer.store(&made.batch(), &made.all);
        for reader in known.iter_mut().filter(|reader| reader.is_indexed) {
            writer.index(reader.id, &made.all, 1).expect("a reader");
            reader.offered += made.len();
        }
        writer.publish(clock::monotonic_ns());
        for (reader, _) in known.iter_mut().zip(lagging).filter(|(_, is_lagging)| *is_lagging) {
            writer.skip(reader.id).expect("a reader");
            (reader.is_indexed, sums.skipped) = (true, sums.skipped + 1);
        }
        stored += made.len();
        happen(&mut writer, &mut known, stored, random, &mut sums);
    }
    assert_eq!((writer.stored(), writer.unstored_packets()), (stored, 0));
    for reader in &mut known {
        // A reader without a place for the rest by now has it counted.
        reader.catch_up(&mut writer);
        writer.skip(reader.id).expect("a reader");
        while reader.has_past {
            reader.catch_up(&mut writer);
        }
    }
    writer.end();
    known.into_iter().for_each(|reader| finish(&mut writer, reader, stored, &mut sums));
    sums
}

pub(crate) fn new_writer() -> Writer {
    let spec =
        BufferSpec { block_len: 16 << 10, blocks: 16, snap_len: 2048, ..BufferSpec::new(LinkType::ETHERNET) };
    Writer::create(&spec, Timestamp::EPOCH).expect("a buffer")
}

fn new_reader(writer: &mut Writer, stored: u64, random: &mut Random) -> Known {
    let policy = match random.below(3) {
        0 => Policy::Lossy,
        1 => Policy::Leased { bytes: 4 * (16 << 10), time: Duration::from_secs(3600) },
        _ => Policy::Lossless,
    };
    let entries = *random.pick(&[64, 256, 4096]);
    let attachment = writer.attach(&ReaderSpec { policy, entries }).expect("a reader");
    let start = start(stored, random);
    writer.begin(attachment.id, start).expect("a reader");
    let left = writer.replay_left(attachment.id).expect("a reader");
    let other = Other::start("as-reader", random.below(400));
    other.notes[LAST].store(stored - left, SeqCst);
    send(&other.socket, &attachment.parts);
    let has_past = start != StartPosition::Newest;
    Known {
        id: attachment.id,
        other,
        offered: 0,
        replayed: 0,
        first: stored - left,
        has_past,
        is_indexed: !has_past,
        policy,
        is_stopped: false,
    }
}

/// Nothing, all that is there, or the latest of it.
fn start(stored: u64, random: &mut Random) -> StartPosition {
    match random.below(3) {
        0 => StartPosition::Newest,
        1 => StartPosition::Oldest,
        _ => StartPosition::Since(Timestamp::from_nanos(stored.saturating_sub(random.below(200)) as i64)),
    }
}

impl Known {
    /// Number of packets from its first one on that it was not offered: a block that was held outlived those after
    /// it, or they were too old for it.
    fn gone(&self, stored: u64) -> u64 {
        stored - self.first - self.offered
    }

    /// Offers it some more of the past, if it is there.
    fn catch_up(&mut self, writer: &mut Writer) {
        if !self.has_past {
            return;
        }
        let (offered, replayed) = (&mut self.offered, &mut self.replayed);
        let count = |_: &tapline_ring::HistoryPacket<'_>| {
            (*offered, *replayed) = (*offered + 1, *replayed + 1);
            Some(1)
        };
        if writer.replay(self.id, 40, count).expect("a reader") == ReplayProgress::Done {
            writer.finish_replay(self.id).expect("a reader");
            (self.has_past, self.is_indexed) = (false, true);
        }
        writer.publish(clock::monotonic_ns());
    }

    /// Offers it the packets that a batch may overwrite. Returns whether it loses some of them.
    fn rescue(&mut self, writer: &mut Writer, made: &Made) -> bool {
        let (offered, replayed) = (&mut self.offered, &mut self.replayed);
        let count = |_: &tapline_ring::HistoryPacket<'_>| {
            (*offered, *replayed) = (*offered + 1, *replayed + 1);
            Some(1)
        };
        writer.replay_before(self.id, &made.batch(), &made.all, count).expect("a small batch") > 0
    }
}

/// Waits for lossless readers, a while; then they are lossy.
fn make_room(writer: &mut Writer, made: &Made, known: &mut [Known]) {
    for _ in 0..NAPS_MAX {
        let WriteRoom::Blocked(id) = writer.make_room(&made.batch(), &made.all).expect("room some time")
        else {
            return;
        };
        // One that is in the past may be waited for because of that.
        known.iter_mut().filter(|reader| reader.id == id).for_each(|reader| reader.catch_up(writer));
        writer.wait_for(id, Duration::from_millis(1)).expect("a reader");
        // Ours are only killed in `happen`, which waits for their end.
        assert!(writer.reap().is_empty());
    }
}

/// At random, one reader is killed, stopped, continued, or none is.
fn happen(writer: &mut Writer, known: &mut Vec<Known>, stored: u64, random: &mut Random, sums: &mut Sums) {
    if known.is_empty() || !random.one_of(1, 6) {
        return;
    }
    let at = random.below(known.len() as u64) as usize;
    match random.below(8) {
        0 => {
            let reader = known.remove(at);
            kill(writer, reader, stored, sums);
            if random.one_of(1, 2) {
                known.push(new_reader(writer, stored, random));
            }
        }
        1..=3 if !known[at].is_stopped => {
            known[at].other.signal(STOP);
            known[at].is_stopped = true;
            sums.stops += 1;
        }
        4..=6 if known[at].is_stopped => {
            known[at].other.signal(CONT);
            known[at].is_stopped = false;
        }
        _ => std::thread::sleep(Duration::from_micros(random.below(2000))),
    }
}

/// Wherever it is in its work. The writer must notice by itself.
fn kill(writer: &mut Writer, mut reader: Known, stored: u64, sums: &mut Sums) {
    reader.other.signal(KILL);
    reader.other.end();
    sums.kills += 1;
    let standing = writer.guarantee(reader.id).expect("a reader");
    let departed = writer.reap();
    assert_eq!(departed.iter().map(|departed| departed.id).collect::<Vec<_>>(), [reader.id]);
    let account = departed[0].account;
    judge(&account, &reader, standing, sums);
    let (seen, gaps) = (reader.other.note(SEEN), reader.other.note(GAPS));
    assert!(account.delivered <= seen && seen <= account.delivered + LENT_MAX, "{account}, {seen} seen");
    let lost = account.lost.index_full + account.lost.overwritten;
    assert!(gaps <= reader.gone(stored) + lost + LENT_MAX, "{account}, {gaps} missed");
}

/// Lives to the end, and reads all that there is.
fn finish(writer: &mut Writer, mut reader: Known, stored: u64, sums: &mut Sums) {
    if reader.is_stopped {
        reader.other.signal(CONT);
    }
    assert!(reader.other.end().success());
    let standing = writer.guarantee(reader.id).expect("a reader");
    let account = writer.detach(reader.id).expect("a reader");
    judge(&account, &reader, standing, sums);
    assert_eq!(account.delivered, reader.other.note(SEEN), "{account}");
    assert_eq!(account.lost.total(), reader.other.note(LOST), "{account}");
    assert_eq!(account.lost.unread, 0, "{account}");
    // Packets missing behind the last one that the reader saw are not a gap.
    assert!(reader.other.note(GAPS) <= reader.gone(stored) + account.lost.total());
}

/// Invariants of every reader at every moment.
fn judge(account: &Account, reader: &Known, standing: Guarantee, sums: &mut Sums) {
    sums.account(account);
    sums.replayed += reader.replayed;
    sums.in_place += reader.other.note(IN_PLACE);
    assert!(account.balances() && !account.is_implausible, "{account}");
    assert_eq!(account.offered, reader.offered, "{account}");
    assert_eq!((account.lost.damaged, reader.other.note(FAULTS)), (0, 0), "{account}");
    let is_demoted = standing == Guarantee::LossyByBytes;
    sums.demoted += u64::from(is_demoted);
    if reader.policy != Policy::Lossy && !is_demoted {
        assert_eq!(account.lost.overwritten, 0, "{account}: promised, not told, and not kept");
    }
    if reader.policy == Policy::Lossless && !is_demoted {
        assert_eq!(account.lost.total(), account.lost.unread, "{account}: promised, not told, and not kept");
    }
}
