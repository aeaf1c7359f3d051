use std::sync::Arc;

use tapline_bpf::{Insn, Program, code};

use super::*;
use crate::engine::Engine;
use crate::fake::Fake;
use crate::query::pcap_close;

/// The next packet's byte, or what `pcap_next_ex` returned.
fn next(p: *mut Handle) -> Result<u8, c_int> {
    let (mut header, mut data) = (ptr::null_mut(), ptr::null());
    // SAFETY: the test's handle; packets have a byte.
    unsafe {
        match pcap_next_ex(p, &mut header, &mut data) {
            1 => Ok(*data),
            code => Err(code),
        }
    }
}

/// A break that comes while a packet is on its way is reported by the next call.
#[test]
fn a_break_is_not_lost_over_a_packet() {
    for with_ex in [true, false] {
        let fake = Fake::of(&[b"abc"]);
        let breaks = Arc::clone(&fake.breaks);
        let p = fake.into_handle();
        assert_eq!(next(p), Ok(b'a'));
        // Between the check and the hand-over, as another thread's may come.
        breaks.store(p, Ordering::Relaxed);
        let mut header = PacketHeader::ZERO;
        // SAFETY: the test's handle and a place of its own; packets have a byte.
        let got = if with_ex { next(p) } else { Ok(unsafe { *pcap_next(p, &mut header) }) };
        breaks.store(ptr::null_mut(), Ordering::Relaxed);
        assert_eq!(got, Ok(b'b'));
        assert_eq!(next(p), Err(ERROR_BREAK));
        assert_eq!(next(p), Ok(b'c'));
        // SAFETY: it is an open handle, and this is its last use.
        unsafe { pcap_close(p) };
    }
}

/// The timeout ends a call also while packets come without end, if none passes the filter.
#[test]
fn packets_that_do_not_pass_are_no_reason_to_stay() {
    let p = Fake { endless: Some(b"xyz".to_vec()), ..Fake::default() }.into_handle();
    let reject = Program::new(vec![Insn::new(code::RET | code::K, 0)]).expect("valid").into();
    // SAFETY: the test's handle.
    let state = unsafe { (*p).state() };
    state.engine = Some(Engine::new(reject));
    state.settings.timeout_ms = 1;
    assert_eq!(next(p), Err(0));
    // SAFETY: as above; the call has returned.
    unsafe { (*p).state() }.engine = None;
    assert_eq!(next(p), Ok(b'x'));
    // SAFETY: it is an open handle, and this is its last use.
    unsafe { pcap_close(p) };
}
