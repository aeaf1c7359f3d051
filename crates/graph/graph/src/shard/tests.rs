use tapline_packet::LinkType;

use super::*;

const LONG: usize = 8 << 20;
const PACKETS: u64 = 30;

/// Very long packets, each a batch.
struct LongPackets {
    interfaces: [Interface; 1],
    bytes: Vec<u8>,
    record: [Record; 1],
    lent: u64,
}

impl LongPackets {
    fn new() -> LongPackets {
        LongPackets {
            interfaces: [Interface::new("long", LinkType::ETHERNET)],
            bytes: vec![0; LONG],
            record: [Record { cap_len: LONG as u32, ..Record::default() }],
            lent: 0,
        }
    }
}

impl Source for LongPackets {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, _: Duration) -> Result<Advance, Error> {
        if self.lent == PACKETS {
            return Ok(Advance::End);
        }
        self.lent += 1;
        Ok(Advance::Batch)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.record)
    }

    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_file("long", self.lent)]
    }
}

#[test]
fn very_long_packets_take_bounded_memory() {
    let mut shares: Vec<_> = FlowShardSource::shares(Box::new(LongPackets::new()), 7).collect();
    let mut packets = 0;
    let mut step = |share: &mut FlowShardSource| {
        let step = share.advance(Duration::ZERO).expect("it does not fail");
        packets += share.batch().len() as u64;
        step
    };
    // The first one goes ahead of the others, until the reader waits for them.
    while !shares[0].desk.lock().is_full {
        step(&mut shares[0]);
    }
    let waiting: usize = shares[0].desk.lock().filled.iter().map(|block| block.bytes.len()).sum();
    assert_eq!(waiting, FILLED_LEN_MAX, "fewer blocks of greater length");
    let mut open = vec![true; shares.len()];
    while open.contains(&true) {
        for (share, open) in shares.iter_mut().zip(&mut open).filter(|(_, open)| **open) {
            *open = step(share) != Advance::End;
        }
    }
    assert_eq!(packets, PACKETS);
    let state = shares[0].desk.lock();
    assert!(!state.spare.is_empty() && state.spare.iter().all(|block| block.bytes.capacity() < LONG));
}
