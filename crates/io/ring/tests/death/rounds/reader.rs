//! A child that reads.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tapline_ring::{Reader, WaitEnd, WakeThreshold};
use tapline_sys::SharedWords;

use super::child::{open, our_notes, our_socket};
use super::packets::number_in;

/// Words of a reader's notes: packets that were whole, those that were not, numbers skipped, the number after the
/// last one, packets lost by its account, batches in place.
pub(crate) const SEEN: usize = 0;
pub(crate) const FAULTS: usize = 1;
pub(crate) const GAPS: usize = 2;
pub(crate) const LAST: usize = 3;
pub(crate) const LOST: usize = 4;
pub(crate) const IN_PLACE: usize = 5;

/// Examines the packets of a batch and notes their kind. `pace` is the work for a packet.
pub(crate) fn take(reader: &Reader, notes: &SharedWords, pace: u64) {
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

pub(crate) fn as_reader(pace: u64) {
    let socket = our_socket();
    let notes = our_notes(&socket);
    let mut reader = open(&socket);
    if pace % 2 == 1 {
        reader.set_wake(WakeThreshold {
            min_bytes: 4096,
            min_packets: 0,
            max_delay: Duration::from_millis(1),
        });
    }
    loop {
        while reader.advance().expect("a sound index") > 0 {
            take(&reader, &notes, pace);
        }
        match reader.wait(Duration::from_secs(1)).expect("a sound index") {
            WaitEnd::Closed => break,
            WaitEnd::WriterGone => return,
            _ => {}
        }
    }
    let account = reader.finish();
    assert!(account.balances() && account.lost.unread == 0 && account.delivered == notes[SEEN].load(SeqCst));
    notes[LOST].store(account.lost.total(), SeqCst);
}
