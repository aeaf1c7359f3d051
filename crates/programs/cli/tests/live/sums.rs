//! Tables of the view, second by second, while packets are lost: each adds up to the interface.
//!
//! ```text
//! near0 --bursts--> far0 --small ring, a meter that stands still now and then--> PID.view --> this test
//! ```
//!
//! `TAPLINE_VIEW_SECONDS=600` is the run of ten minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::support::*;
use tapline_meters::RunFolder;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::volume::volume;
use tapline_view::{Dimension, Reader, Reading, Second};

/// Frames of a burst: more than the ring has room for.
const BURST: u64 = 20_000;

fn check(reading: &Reading) {
    let second = &reading.second;
    for dimension in Dimension::ALL {
        let sum = reading.table(dimension).sum();
        let name = dimension.name();
        assert_eq!(sum.packets, second.metered, "{name}, second {}: packets", reading.number);
        assert_eq!(sum.bytes, second.flow_bytes, "{name}, second {}: bytes", reading.number);
    }
    check_totals(reading.number, second);
}

fn check_totals(number: u64, second: &Second) {
    let parts = second.metered + second.not_ip + second.cut + second.sampled_out + second.lost();
    assert_eq!(parts, second.offered(), "second {number}");
    assert!(second.flow_bytes <= second.metered_bytes, "second {number}");
}

#[test]
fn tables_add_up_each_second_under_loss() {
    const TEST: &str = "tables_add_up_each_second_under_loss";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("sums").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let graph = format!("device({FAR}, ring=1000000) -> flow(view=yes) -> view");
    let mut command = tapline(["run", "--netns", namespace.name(), "--json", "-e", &graph]);
    let live = Live::start_command(&namespace, 1, command.env("TAPLINE_RUN_DIR", folder.path()));
    let (sending, sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let sender = {
        let (sending, sent) = (Arc::clone(&sending), Arc::clone(&sent));
        let mut sender = Sender::near(&namespace).unwrap();
        thread::spawn(move || {
            let frames = frames(5, 5000);
            while sending.load(Relaxed) {
                sent.fetch_add(sender.send(&frames, 2000, Pace::PerSecond(20_000)).unwrap().packets, Relaxed);
                thread::sleep(Duration::from_millis(50));
            }
        })
    };
    let mut reader = None;
    wait_for("the view", || {
        let found = Reader::list_in(&RunFolder::of(folder.path()));
        reader = found.first().and_then(|process| Reader::open(&process.path).ok());
        reader.is_some()
    });
    let reader = reader.expect("it was waited for");
    let mut bursts = Sender::near(&namespace).unwrap();
    let wanted = volume("TAPLINE_VIEW_SECONDS", 4);
    let (mut last, mut checked, mut totals) = (None, 0, [0; 2]);
    while checked < wanted || totals[1] == 0 {
        wait_for("the next second", || reader.published().unwrap() > last.map_or(0, |last| last + 1));
        let Some(reading) = reader.last().unwrap() else { continue };
        check(&reading);
        totals[0] += reading.second.offered();
        totals[1] += reading.second.lost();
        (last, checked) = (Some(reading.number), checked + 1);
        // A meter that stands still is too slow by any measure.
        if checked % 3 == 1 {
            live.signal("STOP");
            let burst = bursts.send(&frames(6, 5000), BURST, Pace::Full).unwrap();
            sent.fetch_add(burst.packets, Relaxed);
            live.signal("CONT");
        }
    }
    sending.store(false, Relaxed);
    sender.join().unwrap();
    // Seconds whose tables went by unread are here: the file has the totals of an hour.
    let seconds = reader.seconds(0, usize::MAX).unwrap();
    seconds.iter().for_each(|(number, second)| check_totals(*number, second));
    let numbers: Vec<u64> = seconds.iter().map(|(number, _)| *number).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a second is missing: {numbers:?}");
    assert!(numbers.len() as u64 >= checked, "{} seconds are kept of {checked}", numbers.len());
    live.wait_until_idle();
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.ring("received"), sent.load(Relaxed));
    assert!(account.ring("dropped") >= totals[1], "{}", account.value);
    assert_eq!(
        account.count("delivered") + account.ring("dropped") + account.ring("unread"),
        sent.load(Relaxed)
    );
    eprintln!(
        "{checked} of {} seconds with their tables, {} packets, {} lost: every table is the interface",
        numbers.len(),
        totals[0],
        totals[1]
    );
}
