//! Shared memory that no honest daemon gives.

use super::*;

fn given(change: fn(&mut Vec<OwnedFd>)) -> Vec<Step> {
    let mut parts = Ring::new().parts();
    change(&mut parts);
    vec![Hear, say(HELLO), Hear, say(ATTACHED), Give(BUFFER.to_owned(), parts), Hang]
}

fn open(path: &str) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Descriptors that are not sealed memory, or have a wrong size.
#[test]
fn files_that_are_no_buffers_are_refused() {
    let cases: &[Case] = &[
        ("a device for a buffer", CAPTURE, End::Alone, || given(|parts| parts[0] = open("/dev/zero"))),
        ("a folder for an index", CAPTURE, End::Alone, || given(|parts| parts[1] = open("/"))),
        ("a device for a bell", CAPTURE, End::Alone, || given(|parts| parts[2] = open("/dev/zero"))),
        ("a socket for a buffer", CAPTURE, End::Alone, || {
            given(|parts| parts[0] = UnixStream::pair().unwrap().0.into())
        }),
        ("no seals", CAPTURE, End::Alone, || {
            given(|parts| parts[0] = Memfd::create(c"loose", 4096 + 4 * BLOCK_LEN).unwrap().into())
        }),
        ("nothing in it", CAPTURE, End::Alone, || {
            given(|parts| {
                let file = File::from(OwnedFd::from(Memfd::create(c"empty", 4096).unwrap()));
                file.set_len(0).unwrap();
                let file = Memfd::from_descriptor(file.into());
                file.seal(Seals::READ_ONLY).unwrap();
                parts[1] = file.into();
            })
        }),
        ("terabytes", CAPTURE, End::Alone, || {
            given(|parts| {
                let file = File::from(OwnedFd::from(Memfd::create(c"large", 4096).unwrap()));
                file.set_len(1 << 45).unwrap();
                let file = Memfd::from_descriptor(file.into());
                file.seal(Seals::READ_ONLY).unwrap();
                parts[0] = file.into();
            })
        }),
        ("packets of a gigabyte", CAPTURE, End::Alone, || {
            honest(Ring::with(1 << 30, 4, ENTRIES, 1 << 30), |_| vec![Hang])
        }),
        ("an index larger than asked for", CAPTURE, End::Alone, || {
            honest(Ring::with(BLOCK_LEN, 4, 1 << 24, 65_536), |_| vec![Hang])
        }),
    ];
    run_all(cases);
}

/// Packets and interfaces that are none, or change while they are read.
#[test]
fn changing_packets_harm_no_reader() {
    let cases: &[Case] = &[
        ("snap length 0", CAPTURE, End::Interrupt, || {
            lie(
                Ring::with(BLOCK_LEN, 4, ENTRIES, 0),
                |ring, round| if round < 100 { ring.offer(|_| {}) } else { nap() },
            )
        }),
        ("packets without end", CAPTURE, End::Interrupt, || {
            lie(Ring::new(), |ring, _| {
                if ring.room() > 0 {
                    ring.offer(|_| {})
                }
            })
        }),
        ("packets that are none, without end", CAPTURE, End::Interrupt, || {
            lie(Ring::new(), |ring, round| {
                if ring.room() > 0 {
                    ring.entry(BLOCK_LEN + 128 + (round % 3) * 64, 262_144)
                }
            })
        }),
        ("packets that change between two looks", CAPTURE, End::Interrupt, || {
            lie(Ring::new(), |ring, round| {
                if ring.room() > 0 {
                    ring.offer(|head| head[0] = [60, 262_144, u64::from(u32::MAX), 0][round as usize % 4]);
                }
            })
        }),
        ("lent in place though copies were asked for", CAPTURE, End::Interrupt, || {
            let ring = Ring::new();
            ring.entries[word::STANDING].store(2, Relaxed);
            lie(ring, |ring, round| if round < 1000 { ring.offer(|_| {}) } else { nap() })
        }),
        ("lent in place, and changed", LEASED, End::Interrupt, || {
            let ring = Ring::new();
            ring.entries[word::STANDING].store(2, Relaxed);
            lie(ring, |ring, round| {
                ring.entries[word::STANDING].store(round % 8, Relaxed);
                if ring.room() > 0 {
                    ring.offer(|head| head[0] = 60 + round % 3);
                }
            })
        }),
        ("interfaces that are not there", CAPTURE, End::Interrupt, || {
            lie(
                Ring::new(),
                |ring, round| if round < 100 { ring.offer(|head| head[3] = u64::MAX - round) } else { nap() },
            )
        }),
        ("interfaces that are not there, printed", PRINT, End::Alone, || {
            let mut left = 300;
            lie(Ring::new(), move |ring, round| {
                if round < 100 {
                    ring.offer(|head| head[3] = u64::MAX - round);
                } else if left > 0 {
                    left -= 1;
                    nap();
                } else {
                    ring.packets[word::STATE].store(2, Relaxed);
                }
            })
        }),
    ];
    run_all(cases);
}

/// Times, counters and cursors without meaning.
#[test]
fn wild_counters_harm_no_reader() {
    let cases: &[Case] = &[
        ("wild times and drops", CAPTURE, End::Interrupt, || {
            lie(Ring::new(), |ring, round| {
                if round < 1000 {
                    ring.offer(|head| {
                        head[1] =
                            [0, i64::MAX as u64, i64::MIN as u64, u64::MAX, 1 << 62][round as usize % 5];
                        head[2] = u64::MAX - round;
                        head[5] = u64::MAX;
                        head[4] = u64::MAX;
                        head[0] |= (round % 5) << 32;
                    });
                } else {
                    nap();
                }
            })
        }),
        ("wild times, printed", PRINT, End::Alone, || {
            let mut left = 300;
            lie(Ring::new(), move |ring, round| {
                if round < 50 {
                    ring.offer(|head| {
                        head[1] = [0, i64::MAX as u64, i64::MIN as u64, u64::MAX][round as usize % 4]
                    });
                } else if left > 0 {
                    left -= 1;
                    nap();
                } else {
                    ring.packets[word::STATE].store(2, Relaxed);
                }
            })
        }),
        ("counters that go back, and without measure", CAPTURE, End::Interrupt, || {
            lie(Ring::new(), |ring, round| {
                for at in word::SOURCE..word::SOURCE + 10 {
                    ring.packets[at].store((u64::MAX - 1).wrapping_sub(round * 7919), Relaxed);
                }
                ring.entries[word::INDEX_FULL].store(u64::MAX - round, Relaxed);
                ring.entries[word::BYTES].store(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), Relaxed);
                nap();
            })
        }),
        ("a head that goes back", CAPTURE, End::Alone, || {
            lie(Ring::new(), |ring, round| match round {
                0..100 => ring.offer(|_| {}),
                // It goes back for a reader that has read more than three.
                _ if ring.room() < ENTRIES - 96 => nap(),
                _ => ring.entries[word::HEAD].store(3, Relaxed),
            })
        }),
        ("a bell without end", CAPTURE, End::Interrupt, || lie(Ring::new(), |ring, _| ring.ours.ring())),
        ("losses of one daemon after the other", AGAIN, End::Interrupt, || {
            let ring = Ring::new();
            ring.entries[word::INDEX_FULL].store(u64::MAX - 3, Relaxed);
            honest(ring, |_| Vec::new())
        }),
    ];
    run_all(cases);
}
