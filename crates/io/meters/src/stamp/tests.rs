//! Stamps on clocks that the test sets.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// Clocks that stop until the test advances them.
#[derive(Clone)]
struct Fake(Rc<RefCell<ClockState>>);

struct ClockState {
    ticks: u64,
    system_ns: i64,
    /// Frequency given to the stamp; the counter itself has `real_hz`.
    told_hz: f64,
    real_hz: f64,
    rest: f64,
}

impl Fake {
    fn new(told_hz: f64, real_hz: f64) -> Fake {
        let system_ns = 1_700_000_000 * SECOND;
        Fake(Rc::new(RefCell::new(ClockState {
            ticks: u64::MAX - 1000,
            system_ns,
            told_hz,
            real_hz,
            rest: 0.0,
        })))
    }

    fn pass(&self, nanos: i64) {
        let mut state = self.0.borrow_mut();
        state.system_ns += nanos;
        let ticks = nanos as f64 * state.real_hz / 1e9 + state.rest;
        state.ticks = state.ticks.wrapping_add(ticks as u64);
        state.rest = ticks.fract();
    }

    fn set(&self, step_ns: i64) {
        let mut state = self.0.borrow_mut();
        state.system_ns = state.system_ns.saturating_add(step_ns);
    }

    fn set_ticks(&self, ticks: u64) {
        self.0.borrow_mut().ticks = ticks;
    }

    fn system(&self) -> i64 {
        self.0.borrow().system_ns
    }
}

impl Clocks for Fake {
    fn ticks(&mut self) -> u64 {
        self.0.borrow().ticks
    }
    fn system_ns(&mut self) -> i64 {
        self.0.borrow().system_ns
    }
    fn frequency_hz(&self) -> f64 {
        self.0.borrow().told_hz
    }
}

fn stamp(mode: StampMode, clocks: &Fake) -> Stamp<Fake> {
    Stamp::with_clocks(mode, clocks.clone())
}

fn now(stamp: &mut Stamp<Fake>) -> i64 {
    stamp.stamp(Timestamp::EPOCH).as_nanos()
}

#[test]
fn names_are_read_as_they_are_written() {
    for mode in StampMode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("rdtsc".parse::<StampMode>().is_err_and(|error| error.to_string().contains("tsc-sync")));
}

#[test]
fn the_kernel_keeps_fields_of_the_packet() {
    let own = Timestamp::from_nanos(-7);
    assert_eq!(stamp(StampMode::Kernel, &Fake::new(3e9, 3e9)).stamp(own), own);
}

#[test]
fn batch_is_one_time_until_the_next() {
    let clocks = Fake::new(3e9, 3e9);
    let mut stamp = stamp(StampMode::Batch, &clocks);
    clocks.pass(500);
    stamp.begin_batch();
    let begun = clocks.system();
    clocks.pass(900);
    assert_eq!([now(&mut stamp), now(&mut stamp)], [begun; 2]);
    stamp.begin_batch();
    assert_eq!(now(&mut stamp), begun + 900);
}

#[test]
fn tsc_drifts_by_the_error_of_its_frequency() {
    let clocks = Fake::new(2_445_000_000.0, 2_445_000_000.0 * (1.0 + 20e-6));
    let mut stamp = stamp(StampMode::Tsc, &clocks);
    clocks.pass(10 * SECOND);
    let error = now(&mut stamp) - clocks.system();
    assert!((error - 200_000).abs() < 100, "{error}: 10 s at 20 parts in a million");
    clocks.set(-HOUR);
    assert!(now(&mut stamp) > clocks.system(), "it does not look at the system's clock again");
}

#[test]
fn tsc_sync_follows_the_system_clock() {
    for drift in [20e-6, -100e-6, 400e-6] {
        let clocks = Fake::new(2.4e9, 2.4e9 * (1.0 + drift));
        let mut stamp = stamp(StampMode::TscSync, &clocks);
        let mut worst_late = 0;
        for millisecond in 0..10_000 {
            clocks.pass(SECOND / 1000);
            let error = (now(&mut stamp) - clocks.system()).abs();
            assert!(error <= 50_000, "{drift}: {error} ns off after {millisecond} ms");
            if millisecond > 3000 {
                worst_late = worst_late.max(error);
            }
        }
        assert!(worst_late < 50, "{drift}: still {worst_late} ns off after 3 s");
    }
}

#[test]
fn tsc_sync_follows_a_clock_that_is_set_forward() {
    let clocks = Fake::new(1e9, 1e9);
    let mut stamp = stamp(StampMode::TscSync, &clocks);
    clocks.pass(SECOND);
    now(&mut stamp);
    clocks.set(HOUR);
    clocks.pass(SECOND);
    assert_eq!(now(&mut stamp), clocks.system());
}

#[test]
fn tsc_sync_waits_for_a_clock_that_is_set_back() {
    let clocks = Fake::new(1e9, 1e9);
    let mut stamp = stamp(StampMode::TscSync, &clocks);
    clocks.pass(SECOND);
    let mut last = now(&mut stamp);
    clocks.set(-2 * SECOND);
    for _ in 0..4300 {
        clocks.pass(SECOND / 1000);
        let next = now(&mut stamp);
        assert!(next > last, "it goes on, more slowly");
        last = next;
    }
    let error = last - clocks.system();
    assert!(error.abs() < 1000, "{error} ns off after twice the step");
}

#[test]
fn tsc_sync_survives_a_counter_that_starts_anew() {
    let clocks = Fake::new(1e9, 1e9);
    let mut stamp = stamp(StampMode::TscSync, &clocks);
    clocks.pass(SECOND);
    now(&mut stamp);
    clocks.set_ticks(0);
    clocks.set(HOUR);
    assert_eq!(now(&mut stamp), clocks.system());
    clocks.pass(SECOND);
    assert_eq!(now(&mut stamp), clocks.system());
}

#[test]
fn a_pause_does_not_stretch_a_correction() {
    let clocks = Fake::new(1e9, 1e9 * (1.0 + 100e-6));
    let mut stamp = stamp(StampMode::TscSync, &clocks);
    for _ in 0..100 {
        clocks.pass(SECOND / 10);
        now(&mut stamp);
    }
    clocks.pass(1000 * SECOND);
    let error = now(&mut stamp) - clocks.system();
    assert!(error.abs() < 1_100_000, "{error} ns off after a pause of 1000 s");
    clocks.pass(SECOND);
    now(&mut stamp);
    clocks.pass(SECOND);
    let error = now(&mut stamp) - clocks.system();
    assert!(error.abs() < 10_000, "{error} ns off after two anchors");
}

#[test]
fn threads_that_hand_it_on_never_go_backwards() {
    let stamp = std::sync::Mutex::new((Stamp::new(StampMode::TscSync), Timestamp::EPOCH));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let mut held = stamp.lock().expect("no other thread panics");
                    let next = held.0.stamp(Timestamp::EPOCH);
                    assert!(next >= held.1);
                    held.1 = next;
                }
            });
        }
    });
}

#[derive(Clone, Debug)]
enum Event {
    Pass(i64),
    Set(i64),
    Ticks(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0i64..SECOND).prop_map(Event::Pass),
        1 => any::<i64>().prop_map(Event::Set),
        1 => (-SECOND..SECOND).prop_map(Event::Set),
        1 => any::<u64>().prop_map(Event::Ticks),
    ]
}

proptest! {
    /// Whatever the clocks do: no panic, and `tsc-sync` never goes backwards.
    #[test]
    fn never_backwards(
        events in prop::collection::vec(event(), 0..60),
        hz in prop_oneof![Just(1e9), Just(24e6), Just(2.4e9), 1e3..1e11f64],
    ) {
        let clocks = Fake::new(hz, hz);
        let mut all = StampMode::ALL.map(|mode| stamp(mode, &clocks));
        let mut last = i64::MIN;
        for event in events {
            match event {
                Event::Pass(nanos) if clocks.system() < i64::MAX - nanos => clocks.pass(nanos),
                Event::Pass(_) => {}
                Event::Set(step) => clocks.set(step),
                Event::Ticks(ticks) => clocks.set_ticks(ticks),
            }
            for stamp in &mut all {
                stamp.begin_batch();
                let time = now(stamp);
                if stamp.mode() == StampMode::TscSync {
                    prop_assert!(time >= last);
                    last = time;
                }
            }
        }
    }

    /// On clocks that behave, it is off by no more than the drift of one interval, and the system's own rounding.
    #[test]
    fn near_on_steady_clocks(gaps in prop::collection::vec(1i64..300_000_000, 1..80), drift in -50e-6..50e-6f64) {
        let clocks = Fake::new(2.4e9, 2.4e9 * (1.0 + drift));
        let mut stamp = stamp(StampMode::TscSync, &clocks);
        for gap in gaps {
            clocks.pass(gap);
            let error = (now(&mut stamp) - clocks.system()).abs();
            prop_assert!(error <= 35_000, "{error}");
        }
    }
}
