//! Errors of captures that cannot start, and the list of interfaces.

use tapline_capture::af_packet::{AfPacket, AfPacketSettings, TimestampSource, list};
use tapline_testkit::netns::{FAR, NEAR};

use crate::bench::{bench, far, settings};

#[test]
fn a_wrong_name_is_answered_with_the_right_one() {
    let Some(namespace) = bench("a_wrong_name_is_answered_with_the_right_one") else { return };
    let text = AfPacket::open(settings(&namespace, &["fra0"])).unwrap_err().to_string();
    assert!(text.contains("there is no interface \"fra0\" (did you mean \"far0\"?)"), "{text}");
    assert!(text.contains("near0"), "{text}");
}

#[test]
fn a_missing_permission_is_named_with_its_remedy() {
    let Some(namespace) = bench("a_missing_permission_is_named_with_its_remedy") else { return };
    // Loopback of our own namespace: entering another one needs a right of its own.
    drop(namespace);
    let refusal = std::thread::spawn(|| {
        tapline_sys::privilege::drop_to(None).unwrap();
        AfPacket::open(AfPacketSettings::new(&["lo"])).unwrap_err().to_string()
    });
    let text = refusal.join().unwrap();
    for part in ["CAP_NET_RAW", "sudo", "setcap", "unshare"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn an_adapter_without_a_clock_is_told() {
    let Some(namespace) = bench("an_adapter_without_a_clock_is_told") else { return };
    let timestamps = TimestampSource::AdapterUnsynced;
    let text = AfPacket::open(AfPacketSettings { timestamps, ..settings(&namespace, &[FAR]) })
        .unwrap_err()
        .to_string();
    assert!(text.contains("cannot stamp all packets") && text.contains("-j host"), "{text}");
}

#[test]
fn interfaces_are_listed_with_capturing_processes() {
    let Some(namespace) = bench("interfaces_are_listed_with_capturing_processes") else { return };
    namespace.ip(&["address", "add", "192.0.2.1/24", "dev", NEAR]).unwrap();
    let _source = far(&namespace);
    let all = list(Some(namespace.name())).unwrap();
    let find = |name: &str| all.iter().find(|info| info.name == name).unwrap();
    let (near, far) = (find(NEAR), find(FAR));
    assert_eq!(near.addresses, [("192.0.2.1".parse().unwrap(), 24)]);
    assert!(near.captured_by.is_empty() && near.is_up && near.is_running && !near.is_loopback);
    assert_eq!((near.kind.as_str(), near.driver.as_ref().unwrap().driver.as_str()), ("veth", "veth"));
    assert_eq!((near.hardware_address.len(), near.mtu, near.speed), (6, 1500, Some(10_000_000_000)));
    let [capturer] = far.captured_by.as_slice() else { panic!("{:?}", far.captured_by) };
    assert_eq!(capturer.process.as_ref().unwrap().pid, std::process::id());
    assert!(far.is_promiscuous && !near.is_promiscuous && !capturer.is_everywhere);
}
