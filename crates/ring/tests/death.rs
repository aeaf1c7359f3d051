//! Readers and writers in processes of their own, killed, stopped and slowed at random points. Each time the account must balance, no packet be torn,
//! and nobody pay for another.
//!
//! ```text
//! readers die   this process writes; children read, each with a policy; signals come between batches
//! writer dies   a child writes; this process reads, and kills it while it does
//! ```
//!
//! `TAPLINE_RING_DEATHS` rounds (100), from the seed `TAPLINE_RING_SEED`. What a child has seen it notes in memory that outlives it.

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() {
    rounds::main();
}

#[cfg(not(loom))]
mod rounds {
    use std::env;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, ExitStatus, Stdio};
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    use tapline_packet::{Batch, LinkType, Meta, Record, Selection, Timestamp};
    use tapline_ring::{
        Account, BufferSpec, Policy, Reader, ReaderId, ReaderParts, ReaderSpec, Replay, Room, Standing,
        Start, Waited, WakeWish, Writer,
    };
    use tapline_sys::{Memfd, SharedWords, clock, passing, process};
    use tapline_testkit::random::Random;

    const KILL: i32 = 9;
    const CONT: i32 = 18;
    const STOP: i32 = 19;

    /// What a reader has noted.
    const SEEN: usize = 0;
    const FAULTS: usize = 1;
    const GAPS: usize = 2;
    const LAST: usize = 3;
    const LOST: usize = 4;
    const IN_PLACE: usize = 5;
    /// What a writer has noted.
    const MEANT: usize = 0;
    const PUBLISHED: usize = 1;

    /// No batch has more packets, so no more can be on their way in a reader.
    const LENT_MAX: u64 = 256;
    /// A reader whose turn does not come is given up after so many naps.
    const NAPS_MAX: u32 = 3;

    pub(super) fn main() {
        let args: Vec<String> = env::args().collect();
        match args.get(1).map(String::as_str) {
            Some("as-reader") => as_reader(args[2].parse().expect("a pace")),
            Some("as-writer") => as_writer(args[2].parse().expect("a seed")),
            Some("--list") => {}
            _ => rounds(),
        }
    }

    fn number_of(name: &str, default: u64) -> u64 {
        env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    }

    fn rounds() {
        let (count, seed) = (number_of("TAPLINE_RING_DEATHS", 100), number_of("TAPLINE_RING_SEED", 1));
        println!("{count} rounds of death from seed {seed}");
        let mut sums = Sums::default();
        for round in seed..seed + count {
            let mut random = Random::new(round);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if random.one_of(3, 10) { writer_dies(&mut random) } else { readers_die(&mut random) }
            }));
            match outcome {
                Ok(found) => sums.add(&found),
                Err(_) => panic!("TAPLINE_RING_DEATHS=1 TAPLINE_RING_SEED={round} repeats it"),
            }
        }
        println!("{sums:?}");
        assert!(sums.delivered > 0 && sums.kills > 0, "nothing was tested");
        // Whether these come about is a matter of time: only so many rounds make it sure.
        if count >= 1000 {
            let Sums { stops, overwritten, index_full, unread, demoted, in_place, replayed, skipped, .. } =
                sums;
            let sums = [stops, overwritten, index_full, unread, demoted, in_place, replayed, skipped];
            assert!(sums.iter().all(|sum| *sum > 0));
        }
        println!("every account balanced");
    }

    /// What happened, so that nobody takes rounds without any event for a proof.
    #[derive(Debug, Default)]
    struct Sums {
        readers: u64,
        kills: u64,
        stops: u64,
        offered: u64,
        delivered: u64,
        overwritten: u64,
        index_full: u64,
        unread: u64,
        demoted: u64,
        in_place: u64,
        replayed: u64,
        skipped: u64,
    }

    impl Sums {
        fn add(&mut self, other: &Sums) {
            self.readers += other.readers;
            self.kills += other.kills;
            self.stops += other.stops;
            self.offered += other.offered;
            self.delivered += other.delivered;
            self.overwritten += other.overwritten;
            self.index_full += other.index_full;
            self.unread += other.unread;
            self.demoted += other.demoted;
            self.in_place += other.in_place;
            self.replayed += other.replayed;
            self.skipped += other.skipped;
        }

        fn account(&mut self, account: &Account) {
            self.readers += 1;
            self.offered += account.offered;
            self.delivered += account.delivered;
            self.overwritten += account.lost.overwritten;
            self.index_full += account.lost.index_full;
            self.unread += account.lost.unread;
        }
    }

    /// A batch whose packets tell their numbers.
    struct Made {
        base: Vec<u8>,
        records: Vec<Record>,
        all: Selection,
    }

    impl Made {
        fn new(first: u64, random: &mut Random) -> Made {
            let count = random.between(1..=64) as usize;
            let (mut base, mut records, mut all) = (Vec::new(), Vec::new(), Selection::none());
            all.select_all(count);
            for number in first..first + count as u64 {
                let len = random.heavy_tailed(8, 1500) as usize;
                let offset = base.len();
                base.resize(offset + len, number as u8);
                base[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
                let timestamp = Timestamp::from_nanos(number as i64);
                let meta = Meta { timestamp, wire_len: len as u32, ..Meta::default() };
                records.push(Record { offset, cap_len: len as u32, options_len: 0, meta });
            }
            Made { base, records, all }
        }

        fn batch(&self) -> Batch<'_> {
            Batch::new(&self.base, &self.records)
        }

        fn len(&self) -> u64 {
            self.records.len() as u64
        }
    }

    /// A packet's number, if it is whole.
    fn number_in(bytes: &[u8], meta: &Meta) -> Option<u64> {
        let number = u64::from_le_bytes(*bytes.first_chunk()?);
        let is_whole = bytes[8..].iter().all(|byte| *byte == number as u8)
            && meta.timestamp.as_nanos() == number as i64
            && meta.wire_len as usize == bytes.len();
        is_whole.then_some(number)
    }

    /// A child, what it notes, and the socket that it got things by.
    struct Other {
        child: Child,
        notes: SharedWords,
        socket: UnixStream,
    }

    impl Other {
        fn start(what: &str, number: u64) -> Other {
            let (socket, theirs) = UnixStream::pair().expect("a socket");
            let child = Command::new(env::current_exe().expect("our path"))
                .args([what, &number.to_string()])
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .spawn()
                .expect("a child");
            let memfd = Memfd::create(c"notes", 4096).expect("memory");
            let notes = memfd.map().expect("a mapping");
            passing::send(socket.as_fd(), b"n", &[memfd.as_fd()]).expect("passed on");
            Other { child, notes, socket }
        }

        fn note(&self, word: usize) -> u64 {
            self.notes[word].load(SeqCst)
        }

        fn signal(&self, signal: i32) {
            process::signal(self.child.id(), signal).expect("a child that is not waited for");
        }

        fn end(&mut self) -> ExitStatus {
            self.child.wait().expect("a child")
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// What a child was sent: its notes, and a reader's parts.
    fn received(socket: &UnixStream, count: usize) -> Vec<OwnedFd> {
        let (_, found) = passing::receive(socket.as_fd(), &mut [0]).expect("something sent");
        assert_eq!(found.len(), count);
        found
    }

    fn our_socket() -> UnixStream {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
        UnixStream::from(stdin)
    }

    fn our_notes(socket: &UnixStream) -> SharedWords {
        Memfd::adopt(received(socket, 1).remove(0)).map().expect("a mapping")
    }

    fn open(socket: &UnixStream) -> Reader {
        let [buffer, index, bell] = received(socket, 3).try_into().expect("three");
        Reader::open(ReaderParts { buffer, index, bell }).expect("a reader")
    }

    fn send(socket: &UnixStream, parts: &ReaderParts) {
        let descriptors = [parts.buffer.as_fd(), parts.index.as_fd(), parts.bell.as_fd()];
        passing::send(socket.as_fd(), b"r", &descriptors).expect("passed on");
    }

    /// Looks at the packets of a batch and notes what they are. `pace`: how much work a packet is.
    fn take(reader: &Reader, notes: &SharedWords, pace: u64) {
        let add = |word: usize, count: u64| notes[word].store(notes[word].load(SeqCst) + count, SeqCst);
        add(IN_PLACE, u64::from(reader.is_in_place()));
        for packet in reader.batch().iter() {
            (0..pace).for_each(|_| std::hint::spin_loop());
            match number_in(packet.data, packet.meta) {
                // LAST is the number after the last one.
                Some(number) if number >= notes[LAST].load(SeqCst) => {
                    add(GAPS, number - notes[LAST].load(SeqCst));
                    notes[LAST].store(number + 1, SeqCst);
                    add(SEEN, 1);
                }
                _ => add(FAULTS, 1),
            }
        }
    }

    fn as_reader(pace: u64) {
        let socket = our_socket();
        let notes = our_notes(&socket);
        let mut reader = open(&socket);
        if pace % 2 == 1 {
            reader.set_wake(WakeWish { min_bytes: 4096, max_delay: Duration::from_millis(1) });
        }
        loop {
            while reader.advance().expect("a sound index") > 0 {
                take(&reader, &notes, pace);
            }
            match reader.wait(Duration::from_secs(1)).expect("a sound index") {
                Waited::Closed => break,
                Waited::WriterGone => return,
                _ => {}
            }
        }
        let account = reader.finish();
        assert!(
            account.balances() && account.lost.unread == 0 && account.delivered == notes[SEEN].load(SeqCst)
        );
        notes[LOST].store(account.lost.total(), SeqCst);
    }

    /// A reader, as this process knows it.
    struct Known {
        id: ReaderId,
        other: Other,
        /// Packets offered to it, by our own count.
        offered: u64,
        /// Of these, from before it came.
        replayed: u64,
        /// The number of the first packet that it may be offered.
        first: u64,
        /// It has not come to the present, or not all of the past is counted.
        has_past: bool,
        /// It is offered what is stored.
        is_indexed: bool,
        policy: Policy,
        is_stopped: bool,
    }

    fn readers_die(random: &mut Random) -> Sums {
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
            let lagging: Vec<bool> =
                known.iter_mut().map(|reader| reader.rescue(&mut writer, &made)).collect();
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
        assert_eq!((writer.stored(), writer.not_stored()), (stored, 0));
        for reader in &mut known {
            // Who has no place for the rest by now has it counted.
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

    fn new_writer() -> Writer {
        let spec = BufferSpec {
            block_len: 16 << 10,
            blocks: 16,
            snap_len: 2048,
            ..BufferSpec::new(LinkType::ETHERNET)
        };
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
        let left = writer.past(attachment.id).expect("a reader");
        let other = Other::start("as-reader", random.below(400));
        other.notes[LAST].store(stored - left, SeqCst);
        send(&other.socket, &attachment.parts);
        let has_past = start != Start::Newest;
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
    fn start(stored: u64, random: &mut Random) -> Start {
        match random.below(3) {
            0 => Start::Newest,
            1 => Start::Oldest,
            _ => Start::Since(Timestamp::from_nanos(stored.saturating_sub(random.below(200)) as i64)),
        }
    }

    impl Known {
        /// How many packets from its first one on it was not offered: a block that was held outlived those after it, or they were too old for it.
        fn gone(&self, stored: u64) -> u64 {
            stored - self.first - self.offered
        }

        /// Offers it some more of the past, if it is there.
        fn catch_up(&mut self, writer: &mut Writer) {
            if !self.has_past {
                return;
            }
            let (offered, replayed) = (&mut self.offered, &mut self.replayed);
            let count = |_: &tapline_ring::Held<'_>| {
                (*offered, *replayed) = (*offered + 1, *replayed + 1);
                Some(1)
            };
            if writer.replay(self.id, 40, count).expect("a reader") == Replay::Done {
                writer.be_present(self.id).expect("a reader");
                (self.has_past, self.is_indexed) = (false, true);
            }
            writer.publish(clock::monotonic_ns());
        }

        /// Offers it what a batch may overwrite. Whether it loses some of it.
        fn rescue(&mut self, writer: &mut Writer, made: &Made) -> bool {
            let (offered, replayed) = (&mut self.offered, &mut self.replayed);
            let count = |_: &tapline_ring::Held<'_>| {
                (*offered, *replayed) = (*offered + 1, *replayed + 1);
                Some(1)
            };
            writer.replay_before(self.id, &made.batch(), &made.all, count).expect("a small batch") > 0
        }
    }

    /// Waits for lossless readers, a while; then they are lossy.
    fn make_room(writer: &mut Writer, made: &Made, known: &mut [Known]) {
        for _ in 0..NAPS_MAX {
            let Room::Blocked(id) = writer.make_room(&made.batch(), &made.all).expect("room some time")
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

    /// Something happens to somebody, or nothing.
    fn happen(
        writer: &mut Writer,
        known: &mut Vec<Known>,
        stored: u64,
        random: &mut Random,
        sums: &mut Sums,
    ) {
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
        let standing = writer.standing(reader.id).expect("a reader");
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
        let standing = writer.standing(reader.id).expect("a reader");
        let account = writer.detach(reader.id).expect("a reader");
        judge(&account, &reader, standing, sums);
        assert_eq!(account.delivered, reader.other.note(SEEN), "{account}");
        assert_eq!(account.lost.total(), reader.other.note(LOST), "{account}");
        assert_eq!(account.lost.unread, 0, "{account}");
        // What is missing behind the last packet that it saw does not show as a gap.
        assert!(reader.other.note(GAPS) <= reader.gone(stored) + account.lost.total());
    }

    /// What holds for every reader at every moment.
    fn judge(account: &Account, reader: &Known, standing: Standing, sums: &mut Sums) {
        sums.account(account);
        sums.replayed += reader.replayed;
        sums.in_place += reader.other.note(IN_PLACE);
        assert!(account.balances() && !account.is_implausible, "{account}");
        assert_eq!(account.offered, reader.offered, "{account}");
        assert_eq!((account.lost.damaged, reader.other.note(FAULTS)), (0, 0), "{account}");
        let is_demoted = standing == Standing::LossyByBytes;
        sums.demoted += u64::from(is_demoted);
        if reader.policy != Policy::Lossy && !is_demoted {
            assert_eq!(account.lost.overwritten, 0, "{account}: promised, not told, and not kept");
        }
        if reader.policy == Policy::Lossless && !is_demoted {
            assert_eq!(
                account.lost.total(),
                account.lost.unread,
                "{account}: promised, not told, and not kept"
            );
        }
    }

    fn as_writer(seed: u64) {
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
            // Who would kill us may have been killed itself.
            if round.is_multiple_of(256) && !writer.reap().is_empty() {
                return;
            }
            let made = Made::new(stored, &mut random);
            while writer.make_room(&made.batch(), &made.all).expect("room some time") != Room::Ready {
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

    fn writer_dies(random: &mut Random) -> Sums {
        let mut sums = Sums::default();
        let mut other = Other::start("as-writer", random.bits());
        let mut reader = open(&other.socket);
        let notes = SharedWords::private(512);
        let (until, pace) = (random.below(5000), random.below(400));
        while notes[SEEN].load(SeqCst) < until {
            while notes[SEEN].load(SeqCst) < until && reader.advance().expect("a sound index") > 0 {
                take(&reader, &notes, pace);
            }
            assert_eq!(reader.wait(Duration::from_secs(600)).expect("a sound index"), Waited::Ready);
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
        assert_eq!(reader.wait(Duration::from_secs(600)).expect("a sound index"), Waited::WriterGone);
        sums.in_place += notes[IN_PLACE].load(SeqCst);
        let account = reader.finish();
        sums.account(&account);
        let (meant, published) = (other.note(MEANT), other.note(PUBLISHED));
        assert!(
            published <= account.offered && account.offered <= meant,
            "{account}: {published} to {meant}"
        );
        assert_eq!(
            (account.delivered, notes[FAULTS].load(SeqCst)),
            (notes[SEEN].load(SeqCst), 0),
            "{account}"
        );
        assert!(account.balances() && account.lost.unread == 0 && account.lost.damaged == 0, "{account}");
        sums
    }
}
