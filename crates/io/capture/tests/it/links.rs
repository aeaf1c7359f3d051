//! Links that go down, come up, go away and come back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tapline_bpf::Program;
use tapline_capture::af_packet::{AfPacket, AfPacketSettings};
use tapline_capture::af_xdp::{AfXdp, AfXdpSettings};
use tapline_packet::{Interface, InterfaceId};
use tapline_source::{Count, Event, LossPoint, Source};
use tapline_sys::NetNs;
use tapline_sys::bpf::{ProgramKind, probe};
use tapline_sys::capability::{Capability, keep_only};
use tapline_testkit::netns::{FAR, NEAR, Namespace};

use crate::bench::{
    Copy, PATIENCE, arrive, arrive_among, bench, drive, far, finish, numbered, ring_of, send, settings, told,
};
use crate::packets::odd_numbers;

#[test]
fn a_link_that_goes_down_and_up_is_captured_again() {
    let Some(namespace) = bench("a_link_that_goes_down_and_up_is_captured_again") else { return };
    let mut source = far(&namespace);
    send(&namespace, NEAR, 100, numbered);
    arrive(&mut source, 100);
    namespace.ip(&["link", "set", FAR, "down"]).unwrap();
    let (first, _) =
        drive(&mut source, |packets, events| packets.len() == 100 && told(events, FAR, "went down"));
    namespace.ip(&["link", "set", FAR, "up"]).unwrap();
    drive(&mut source, |_, events| told(events, FAR, "is up"));
    send(&namespace, NEAR, 50, numbered);
    arrive(&mut source, 150);
    let second = finish(&mut source);
    assert_eq!((first.len(), second.len()), (100, 50));
    assert_eq!(ring_of(&mut source).0.received, 150);
}

#[test]
fn a_capture_waits_for_an_interface_that_is_down() {
    let Some(namespace) = bench("a_capture_waits_for_an_interface_that_is_down") else { return };
    namespace.ip(&["link", "set", FAR, "down"]).unwrap();
    let mut source = far(&namespace);
    assert!(told(&source.events(), FAR, "is down"));
    namespace.ip(&["link", "set", FAR, "up"]).unwrap();
    drive(&mut source, |_, events| told(events, FAR, "is up"));
    send(&namespace, NEAR, 7, numbered);
    arrive(&mut source, 7);
    assert_eq!(finish(&mut source).len(), 7);
}

#[test]
fn an_interface_made_anew_is_captured_again() {
    let Some(namespace) = bench("an_interface_made_anew_is_captured_again") else { return };
    let mut source = far(&namespace);
    let mut packets = Vec::new();
    for round in 1..=3 {
        send(&namespace, NEAR, 100, numbered);
        arrive(&mut source, round * 100);
        namespace.ip(&["link", "delete", NEAR]).unwrap();
        namespace.add_pair(NEAR, FAR).unwrap();
        let is_back = |lent: &[Copy], events: &[Event]| lent.len() == 100 && told(events, FAR, "came back");
        let (lent, events) = drive(&mut source, is_back);
        assert!(told(&events, FAR, "was removed"));
        packets.extend(lent);
    }
    send(&namespace, NEAR, 1, numbered);
    arrive(&mut source, 301);
    let last = finish(&mut source);
    assert_eq!(ring_of(&mut source).0.received, 301);
    assert_eq!(source.interfaces().len(), 1, "it is the same interface to us");
    assert_ne!(last[0].meta.if_index, packets[0].meta.if_index, "but not to the kernel");
}

#[test]
fn it_is_captured_again_without_any_privilege() {
    let Some(namespace) = bench("it_is_captured_again_without_any_privilege") else { return };
    for workers in [1, 2] {
        let step = Barrier::new(2);
        let capture = || {
            let settings = AfPacketSettings { workers, ..settings(&namespace, &[FAR]) };
            let mut sources = AfPacket::open_workers(settings).unwrap();
            // Capabilities are a thread's own: only this one gives them up.
            tapline_sys::privilege::drop_to(None).unwrap();
            step.wait();
            for source in &mut sources {
                // Only the first tells; each has heard of all changes once it waits no more.
                step.wait();
                source.advance(Duration::from_millis(100)).unwrap();
            }
            let (_, events) = drive(&mut sources[0], |_, events| told(events, FAR, "came back"));
            assert!(!told(&events, FAR, "cannot"), "{events:?}");
            step.wait();
            step.wait();
            arrive_among(&mut sources, 100);
            sources.iter_mut().map(|source| finish(source).len()).sum::<usize>()
        };
        let captured = std::thread::scope(|scope| {
            let capture = scope.spawn(capture);
            step.wait();
            namespace.ip(&["link", "delete", NEAR]).unwrap();
            namespace.add_pair(NEAR, FAR).unwrap();
            for _ in 0..workers + 1 {
                step.wait();
            }
            send(&namespace, NEAR, 100, numbered);
            step.wait();
            capture.join().unwrap()
        });
        assert_eq!(captured, 100, "{workers} workers");
    }
}

/// Namespaces keep the numbers of interfaces that are moved to them, and `ip link add` takes one.
#[test]
fn an_interface_with_the_number_of_a_removed_one_is_captured() {
    let Some(namespace) = bench("an_interface_with_the_number_of_a_removed_one_is_captured") else { return };
    let settings = AfPacketSettings { workers: 2, ..settings(&namespace, &["far*"]) };
    let mut sources = AfPacket::open_workers(settings).unwrap();
    let number = sources[0].interfaces()[0].if_index.to_string();
    let mut before = FAR;
    for (round, name) in [FAR, FAR, "far7", FAR].into_iter().enumerate() {
        send(&namespace, NEAR, 100, numbered);
        arrive_among(&mut sources, 100 * (round as u64 + 1));
        namespace.ip(&["link", "delete", NEAR]).unwrap();
        drive(&mut sources[0], |_, events| told(events, before, "was removed"));
        let add = ["link", "add", name, "index", &number, "type", "veth", "peer", "name", NEAR];
        namespace.ip(&add).unwrap();
        for end in [name, NEAR] {
            namespace.ip(&["link", "set", end, "up"]).unwrap();
        }
        let is_captured =
            |events: &[Event]| told(events, name, "came back") || told(events, name, "captured too");
        let (_, events) = drive(&mut sources[0], |_, events| is_captured(events));
        assert!(!told(&events, name, "cannot"), "{events:?}");
        // The second worker was at work: it hears of both at once.
        sources[1].events();
        before = name;
    }
    send(&namespace, NEAR, 100, numbered);
    arrive_among(&mut sources, 500);
    sources.iter_mut().for_each(|source| drop(finish(source)));
    let ring =
        |source: &mut AfPacket| source.account().iter().map(|one| one.ring.unwrap().received).sum::<u64>();
    assert_eq!(sources.iter_mut().map(ring).sum::<u64>(), 500);
}

#[test]
fn an_interface_gone_for_good_ends_the_capture() {
    let Some(namespace) = bench("an_interface_gone_for_good_ends_the_capture") else { return };
    let settings = AfPacketSettings { return_timeout: Some(Duration::ZERO), ..settings(&namespace, &[FAR]) };
    let mut source = AfPacket::open(settings).unwrap();
    send(&namespace, NEAR, 100, numbered);
    arrive(&mut source, 100);
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    let mut lent = 0;
    let error = loop {
        match source.advance(Duration::from_millis(100)) {
            Ok(_) => lent += source.batch().len(),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(lent, 100, "what was captured before is lent first");
    assert!(error.contains("far0 has gone while capturing"), "{error}");
    assert_eq!(ring_of(&mut source).0.received, 100);
}

#[test]
fn any_follows_interfaces_that_appear() {
    let Some(namespace) = bench("any_follows_interfaces_that_appear") else { return };
    let mut source = AfPacket::open(settings(&namespace, &["any"])).unwrap();
    assert_eq!(source.interfaces().len(), 2, "lo is down and not yet among them");
    namespace.add_pair("late0", "late1").unwrap();
    drive(&mut source, |_, events| told(events, "late0", "appeared") && told(events, "late1", "appeared"));
    send(&namespace, "late0", 25, numbered);
    send(&namespace, NEAR, 5, numbered);
    arrive(&mut source, 60);
    let packets = finish(&mut source);
    // Each packet is seen where it is sent and where it is received.
    assert_eq!(packets.len(), 60);
    let accounts = source.account();
    let by_name = |name: &str| accounts.iter().find(|account| account.name == name).unwrap().delivered;
    assert_eq!(["late0", "late1", NEAR, FAR].map(by_name), [25, 25, 5, 5]);
}

/// Sockets are kept for a few of them only.
#[test]
fn interfaces_that_cannot_be_captured_are_in_the_account() {
    const PAIRS: usize = 12;
    let Some(namespace) = bench("interfaces_that_cannot_be_captured_are_in_the_account") else { return };
    let mut source = AfPacket::open(settings(&namespace, &["far*"])).unwrap();
    let step = Barrier::new(2);
    let accounts = std::thread::scope(|scope| {
        let capture = || {
            tapline_sys::privilege::drop_to(None).unwrap();
            step.wait();
            let mut named = BTreeSet::new();
            drive(&mut source, |_, events| {
                let is_end = |event: &&Event| event.text.contains("captured");
                named.extend(events.iter().filter(is_end).map(|event| event.interface.clone()));
                named.len() == 2 * PAIRS
            });
            // Those that are not captured are in the account after a second.
            let start = Instant::now();
            while source.account().len() < 1 + 2 * PAIRS {
                assert!(start.elapsed() < PATIENCE, "{:?}", source.account());
                std::thread::sleep(Duration::from_millis(10));
            }
            source.account()
        };
        let capture = scope.spawn(capture);
        step.wait();
        (0..PAIRS).for_each(|at| namespace.add_pair(&format!("far{at}a"), &format!("far{at}b")).unwrap());
        capture.join().unwrap()
    });
    let (missed, captured): (Vec<_>, Vec<_>) = accounts
        .iter()
        .partition(|account| account.losses.iter().any(|loss| loss.place == LossPoint::Uncaptured));
    assert_eq!((captured.len() + missed.len(), accounts.len()), (1 + 2 * PAIRS, 1 + 2 * PAIRS));
    assert!((1..2 * PAIRS).contains(&missed.len()), "{missed:?}");
    for account in missed {
        let loss = account.losses.last().unwrap();
        assert!(loss.counter.starts_with("no socket is left"), "{loss:?}");
        assert_eq!((loss.count, account.delivered), (Count::Unknown, 0));
    }
}

#[test]
fn a_renamed_interface_goes_on() {
    let Some(namespace) = bench("a_renamed_interface_goes_on") else { return };
    let mut source = far(&namespace);
    namespace.ip(&["link", "set", FAR, "down"]).unwrap();
    namespace.ip(&["link", "set", FAR, "name", "other0"]).unwrap();
    namespace.ip(&["link", "set", "other0", "up"]).unwrap();
    drive(&mut source, |_, events| {
        told(events, FAR, "is now called other0") && told(events, "other0", "is up")
    });
    send(&namespace, NEAR, 9, numbered);
    arrive(&mut source, 9);
    assert_eq!(finish(&mut source).len(), 9);
}

/// More messages than a netlink socket holds while it is not read: those of later changes are not among them.
fn change_too_fast(namespace: &Namespace) {
    let many = "for i in $(seq 400); do echo link set near0 mtu $((1400 + i % 100)); done | ip -batch -";
    assert!(namespace.command("sh").args(["-c", many]).status().unwrap().success());
}

#[test]
fn changes_that_came_too_fast_are_made_up_for() {
    let Some(namespace) = bench("changes_that_came_too_fast_are_made_up_for") else { return };
    let mut source = far(&namespace);
    change_too_fast(&namespace);
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    namespace.add_pair(NEAR, FAR).unwrap();
    let (_, events) = drive(&mut source, |_, events| told(events, FAR, "came back"));
    assert!(told(&events, FAR, "was removed"));
    send(&namespace, NEAR, 11, numbered);
    arrive(&mut source, 11);
    assert_eq!(finish(&mut source).len(), 11);
}

/// The engine filters its packets then, as those of another interface.
#[test]
fn an_interface_is_captured_though_its_filter_is_refused_later() {
    let test = "an_interface_is_captured_though_its_filter_is_refused_later";
    let Some(namespace) = bench(test) else { return };
    let within = NetNs::open(namespace.name()).unwrap();
    let is_long = Arc::new(AtomicBool::new(false));
    let program = Arc::clone(&is_long);
    let filter = move |_: &Interface| {
        let numbers = if program.load(Ordering::Relaxed) { 2_500 } else { 1 };
        Ok(Some(Program::new(odd_numbers(numbers)).unwrap().into()))
    };
    let settings = AfPacketSettings {
        netns: None,
        workers: 2,
        filter: Some(Arc::new(filter)),
        ..settings(&namespace, &[FAR])
    };
    // A user with the right to open sockets, but not to load programs.
    let open = || {
        keep_only(&[Capability::NetRaw]).unwrap();
        probe(ProgramKind::SocketFilter).is_err().then(|| AfPacket::open_workers(settings).unwrap())
    };
    let Some(mut sources) = within.run(open).unwrap() else {
        return eprintln!("skipped: {test}: here everyone may load programs");
    };
    is_long.store(true, Ordering::Relaxed);
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    namespace.add_pair(NEAR, FAR).unwrap();
    let come_back = || {
        keep_only(&[Capability::NetRaw]).unwrap();
        let is_back = |event: &Event| event.interface == FAR && event.text == "came back";
        drive(&mut sources[0], |_, events| events.iter().any(is_back));
        sources[1].events();
    };
    within.run(come_back).unwrap();
    send(&namespace, NEAR, 100, numbered);
    arrive_among(&mut sources, 100);
    let packets: usize = sources.iter_mut().map(|source| finish(source).len()).sum();
    assert_eq!(packets, 100, "the kernel filters no longer");
    for source in &sources {
        let is_filtered = |id| source.is_filtered(InterfaceId(id));
        assert_eq!((source.interfaces().len(), is_filtered(0), is_filtered(1)), (2, true, false));
    }
}

/// AF_XDP sockets stay with the interface that was removed.
#[test]
fn an_af_xdp_capture_ends_once_its_interface_is_replaced() {
    let test = "an_af_xdp_capture_ends_once_its_interface_is_replaced";
    let Some(namespace) = bench(test) else { return };
    let netns = Some(namespace.name().to_owned());
    let mut source = match AfXdp::open(&AfXdpSettings { netns, ..AfXdpSettings::new(&[FAR]) }) {
        Ok(source) => source,
        Err(error) => return eprintln!("skipped: {test}: {error}"),
    };
    let number = source.interfaces()[0].if_index.to_string();
    change_too_fast(&namespace);
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    let add = ["link", "add", "other0", "index", &number, "type", "veth", "peer", "name", NEAR];
    namespace.ip(&add).unwrap();
    let start = Instant::now();
    let end = loop {
        match source.advance(Duration::from_millis(100)) {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "the capture goes on"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(end.contains(FAR), "{end}");
    assert!(told(&source.events(), FAR, "was removed"));
}
