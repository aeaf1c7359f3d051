//! Rules in a graph: clocks that are wrong or go back, the account, files that are read again.

use std::time::{Duration, Instant};

use serde_json::Value;
use tapline_packet::{ClockReading, Meta, Timestamp};
use tapline_source::{InterfaceAccount, RingAccount};
use tapline_testkit::frames::*;
use tempfile::TempDir;

use crate::trial::{Trial, whole};
use tapline_graph::TickContext;

const SECOND: i64 = 1_000_000_000;
const MS: i64 = SECOND / 1000;
const HOUR: i64 = 3600;

/// Rules at work, and the folder of their files.
struct Case {
    trial: Trial,
    folder: TempDir,
}

impl Case {
    fn of_file(rules: &str) -> Case {
        Case::of_files(rules, &[])
    }

    /// With scripts: names and texts.
    fn of_files(rules: &str, scripts: &[(&str, &str)]) -> Case {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in scripts {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
        }
        let path = |name: &str| format!("{:?}", folder.path().join(name).display().to_string());
        std::fs::write(folder.path().join("rules.toml"), rules).expect("it can be written");
        let text = format!(
            "file(\"in\") -> w :: watch({}, to={}, json=yes, directory={})",
            path("rules.toml"),
            path("told"),
            path(".")
        );
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        trial.now = ClockReading::unset(Timestamp::from_nanos(0));
        Case { trial, folder }
    }

    fn live(rules: &str) -> Case {
        let mut case = Case::of_file(rules);
        case.trial.interfaces[0].if_index = 3;
        case
    }

    /// A datagram to port 53 with a time stamp in seconds.
    fn push(&mut self, src: u16, stamp: i64) {
        self.push_at(src, stamp * SECOND);
    }

    fn push_at(&mut self, src: u16, stamp_ns: i64) {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let frame = Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"));
        let meta = Meta { timestamp: Timestamp::from_nanos(stamp_ns), ..whole(&frame) };
        self.trial.push_all(&[(frame, meta)], 1);
    }

    /// A second of a live run, the wall clock so far from the steady one; a packet that is stamped rightly.
    fn second(&mut self, steady: i64, offset: i64, src: Option<u16>) {
        let now = |tenth: i64| ClockReading {
            wall: Timestamp::from_nanos((steady + offset) * SECOND + tenth * SECOND / 10),
            steady_ns: steady * SECOND + tenth * SECOND / 10,
        };
        self.trial.now = now(0);
        src.into_iter().for_each(|src| self.push(src, steady + offset));
        (1..10).for_each(|tenth| {
            self.trial.graph.idle().expect("nothing fails");
            self.trial.tick_at(now(tenth));
        });
    }

    /// Counters of the ring of an interface at a time, as the stage reads them.
    fn account(&self, second: i64, dropped: u64) -> (ClockReading, [InterfaceAccount; 1]) {
        let ring = RingAccount { received: 1_000_000, dropped, ..RingAccount::default() };
        let account = InterfaceAccount { ring: Some(ring), ..InterfaceAccount::of_file("eth0", 0) };
        (ClockReading::unset(Timestamp::from_nanos(second * SECOND)), [account])
    }

    /// Two ticks without packets, so that rules look at the account of the second before.
    fn lose(&mut self, second: i64, dropped: u64) {
        for later in [2, 3] {
            let (now, account) = self.account(second + later, dropped);
            self.trial.graph.idle().expect("nothing fails");
            self.trial.graph.tick(&TickContext::new(now, &account)).expect("nothing fails");
        }
    }

    /// Replaces the rules, as SIGHUP does; returns the message.
    fn reload(&mut self, rules: &str) -> String {
        std::fs::write(self.folder.path().join("rules.toml"), rules).expect("it can be written");
        self.trial.control().reloads().request();
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < end, "rules are not read");
            std::thread::sleep(Duration::from_millis(1));
            let now = self.trial.now;
            self.trial.tick_at(now);
            let mut said = self.trial.graph.events().into_iter();
            if let Some(said) = said.find(|event| event.text.contains("rules")) {
                assert_eq!(said.is_warning, said.text.contains("stay"), "{}", said.text);
                return said.text;
            }
        }
    }

    /// Reported events: seconds, rule and kind.
    fn told(&self) -> Vec<(i64, String, String)> {
        let text = std::fs::read_to_string(self.folder.path().join("told")).unwrap_or_default();
        let told = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        told.map(|event| {
            let word = |name: &str| event[name].as_str().expect("a word").to_owned();
            let time: jiff::Timestamp = word("time").parse().expect("a time");
            (time.as_second(), word("rule"), word("event"))
        })
        .collect()
    }

    /// The values of all events.
    fn values(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(self.folder.path().join("told")).unwrap_or_default();
        let told = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        told.map(|event| event["value"].as_u64().expect("a number")).collect()
    }

    /// The files that events named, without their folder.
    #[cfg(feature = "scripts")]
    fn recordings(&self) -> Vec<Option<String>> {
        let text = std::fs::read_to_string(self.folder.path().join("told")).unwrap_or_default();
        let told = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let name = |event: Value| {
            event["recording"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned)
        };
        told.map(name).collect()
    }

    /// Events of a rule: seconds and kind.
    fn told_by(&self, rule: &str) -> Vec<(i64, String)> {
        self.told().into_iter().filter(|event| event.1 == rule).map(|event| (event.0, event.2)).collect()
    }
}

fn event(second: i64, kind: &str) -> (i64, String) {
    (second, kind.to_owned())
}

const RULES: &str = r#"
[settings]
flow_idle = "5s"

[[rule]]
name = "many"
on = "packet"
window = "10s"
above = 3
below = 0

[[rule]]
name = "ended"
on = "flow ended"

[[rule]]
name = "quiet"
on = "silence 5s"
by = ["sport"]
"#;

/// One packet with a time stamp an hour ahead: rules go on by the time of the others.
#[test]
fn a_stamp_ahead_holds_no_rule_up() {
    let mut case = Case::live(RULES);
    case.second(HOUR, 0, Some(1));
    case.push(2, 2 * HOUR);
    (1..12).for_each(|second| case.second(HOUR + second, 0, None));
    assert_eq!(case.told_by("ended").len(), 2, "{:?}", case.told());
    assert_eq!(case.told_by("quiet").len(), 2, "{:?}", case.told());
    (12..60).for_each(|second| case.second(HOUR + second, 0, (second % 5 == 0).then_some(3)));
    assert_eq!(case.told_by("many"), [], "never three in ten seconds");
    let last = case.told_by("ended").pop().expect("flows that ended");
    assert!(last.0 < HOUR + 60, "{last:?}");
}

/// A packet comes in a new second, then the tick that still says that none had come in the one before: a flow ends by
/// the second in which its silence was over.
#[test]
fn no_second_is_done_twice() {
    let mut case = Case::live(RULES);
    case.second(HOUR, 0, None);
    case.push_at(1, HOUR * SECOND + 600 * MS);
    (1..5).for_each(|second| case.second(HOUR + second, 0, None));
    case.trial.now.wall = Timestamp::from_nanos((HOUR + 5) * SECOND + 700 * MS);
    case.push_at(2, (HOUR + 5) * SECOND + 700 * MS);
    (6..9).for_each(|second| case.second(HOUR + second, 0, None));
    assert_eq!(case.told_by("ended"), [event(HOUR + 6, "seen")]);
}

/// The wall clock goes back by an hour: flows end, and windows and silences go on.
#[test]
fn a_clock_set_back_holds_no_rule_up() {
    let mut case = Case::live(RULES);
    case.second(2 * HOUR, 0, Some(1));
    (1..4).for_each(|second| case.second(2 * HOUR + second, 0, None));
    (4..8).for_each(|second| case.second(2 * HOUR + second, -HOUR, None));
    assert_eq!(case.told_by("ended"), [event(HOUR + 2, "seen")]);
    assert_eq!(case.told_by("quiet"), [event(HOUR + 5, "raised")], "five seconds after the last packet");
    (10..60).for_each(|second| case.second(2 * HOUR + second, -HOUR, (second % 5 == 0).then_some(2)));
    assert_eq!(case.told_by("many"), []);
    (60..63).for_each(|second| case.second(2 * HOUR + second, -HOUR, Some(2)));
    (63..80).for_each(|second| case.second(2 * HOUR + second, -HOUR, None));
    assert_eq!(case.told_by("many"), [event(HOUR + 61, "raised"), event(HOUR + 72, "cleared")]);
    assert_eq!(case.told_by("ended").len(), 2);
    let said: Vec<String> = case.trial.graph.events().into_iter().map(|event| event.text).collect();
    assert_eq!(said, ["the clock of the packets was set back by 3600.0 s: flows end"]);
}

/// The first packet of a file is an hour ahead. Once the others have been behind it for ten seconds, they are right.
#[test]
fn the_clock_of_a_file_goes_back_with_its_packets() {
    let rules = RULES.replace("above = 3", "above = 6");
    let mut case = Case::of_file(&rules);
    case.push(1, 2 * HOUR);
    (0..20).for_each(|step| case.push(2, HOUR + 5 * step));
    case.push(3, HOUR + 120);
    assert_eq!(case.told_by("many"), [], "never six in ten seconds");
    let ended = case.told_by("ended");
    assert_eq!(ended.len(), 3, "both at the step, and the second once more: {ended:?}");
    assert!(ended.iter().all(|event| event.0 <= HOUR + 120), "{ended:?}");
    let quiet = case.told_by("quiet");
    assert!(quiet.iter().any(|event| (HOUR + 95..HOUR + 102).contains(&event.0)), "{quiet:?}");
}

/// Two clocks in turn are not a step back: limits and keys hold, as if all came at the later time.
#[test]
fn two_clocks_in_a_file_break_no_bound() {
    let rules = "[[rule]]\nname = \"all\"\non = \"packet\"\nlimit = \"3/1m\"\n
[[rule]]\nname = \"keys\"\non = \"packet\"\nby = [\"sport\"]\nwindow = \"1s\"\nabove = 100\nkeys = 10\n";
    let mut case = Case::of_file(rules);
    (0..50).for_each(|step| {
        case.push(step as u16 * 2, 2 * HOUR);
        case.push(step as u16 * 2 + 1, HOUR + step);
    });
    assert_eq!(case.told_by("all").len(), 3);
    assert_eq!(case.told_by("keys"), []);
    let keys = case.trial.numbers("w", Some("keys"));
    assert_eq!((keys[0], keys[3], keys[4]), (100, 10, 90), "matched, keys, no_room: {keys:?}");
}

const LOSSES: &str = r#"
[[rule]]
name = "losses"
on = "account lost"
"#;

/// Rings are read last: losses at the stop are reported, too.
#[test]
fn losses_at_the_stop_are_told() {
    let mut case = Case::live(LOSSES);
    case.push(1, HOUR);
    case.lose(HOUR, 5);
    assert_eq!(case.values(), [5]);
    let (now, account) = case.account(HOUR + 4, 12);
    case.trial.graph.finish(&TickContext::new(now, &account)).expect("nothing fails");
    assert_eq!(case.values(), [5, 7]);
}

/// A changed rule reports losses from then on, not those before.
#[test]
fn a_changed_rule_tells_no_losses_of_before() {
    let mut case = Case::live(LOSSES);
    case.push(1, HOUR);
    case.lose(HOUR, 5);
    assert_eq!(
        case.reload(&format!("{LOSSES}message = \"{{value}}\"\n")),
        "rules read again: 1 rule, 0 scripts"
    );
    case.lose(HOUR + 5, 6);
    assert_eq!(case.values(), [5]);
    case.lose(HOUR + 10, 9);
    assert_eq!(case.values(), [5, 3]);
}

/// Another rule comes before a script: the script goes on with its recording and with its limit of files.
#[cfg(feature = "scripts")]
#[test]
fn a_script_keeps_its_recordings_when_rules_change() {
    let script = "[[script]]\nname = \"s\"\nfile = \"s.rhai\"\nrecord = { after = \"5s\", files = 1 }\n";
    let other = "[[rule]]\nname = \"other\"\non = \"packet\"\nfilter = \"tcp\"\n";
    let code = "on_packet(\"udp\", \"f\"); fn f(p) { tell(\"one\", #{src: p.src, dst: p.dst}); }";
    let mut case = Case::of_files(script, &[("s.rhai", code)]);
    case.push(1, 10);
    case.reload(&format!("{other}{script}"));
    [12, 30].into_iter().for_each(|second| case.push(1, second));
    let [first, second, third] = &case.recordings()[..] else { panic!("{:?}", case.recordings()) };
    assert_eq!((first.is_some(), second), (true, first), "the recording goes on");
    assert_eq!(third, &None, "one file is the most");
}

/// A connection to a TLS server that sends a certificate of five bytes.
#[cfg(feature = "scripts")]
fn handshake() -> Vec<Vec<u8>> {
    let (client, server) = (Host::number(1), Host::number(2));
    let segment = |from: &Host, to: &Host, ports: (u16, u16), seq, ack, flags, payload: &[u8]| {
        let tcp = Tcp { src: ports.0, dst: ports.1, seq, ack, flags, window: 1000, ..Tcp::default() };
        Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), payload))
    };
    let (there, back) = ((4000, 443), (443, 4000));
    let message = [11, 0, 0, 11, 0, 0, 8, 0, 0, 5, 0x30, 1, 2, 3, 4];
    let record = [&[22, 3, 3, 0, message.len() as u8][..], &message].concat();
    vec![
        segment(&client, &server, there, 100, 0, flags::SYN, &[]),
        segment(&server, &client, back, 500, 101, flags::SYN | flags::ACK, &[]),
        segment(&client, &server, there, 101, 501, flags::ACK, &[]),
        segment(&server, &client, back, 501, 101, flags::ACK | flags::PSH, &record),
    ]
}

#[cfg(feature = "scripts")]
#[test]
fn two_scripts_get_the_same_certificate() {
    let script = |name: &str| format!("[[script]]\nname = \"{name}\"\nfile = \"s.rhai\"\n");
    let code = "on_certificate(\"tcp port 443\", \"f\"); fn f(c) { tell(c.sha256); }";
    let mut case = Case::of_files(&format!("{}{}", script("one"), script("two")), &[("s.rhai", code)]);
    case.trial.push_frames(&handshake());
    let told: Vec<String> = case.told().into_iter().map(|event| event.1).collect();
    assert_eq!(told, ["one", "two"]);
}

/// A mistake is a warning of one line; success is a notice.
#[test]
fn a_mistake_in_rules_read_again_is_one_line() {
    let mut case = Case::of_file(LOSSES);
    let said = case.reload(&format!("{LOSSES}filtr = \"tcp\"\n"));
    assert!(said.contains("unknown field `filtr`") && said.ends_with("; the rules before stay"), "{said}");
    assert!(!said.contains(['\n', '|']), "{said}");
}

/// Flows go on with their settings, and that is said.
#[test]
fn settings_that_keep_their_values_are_named() {
    let rules = "[[rule]]\nname = \"ended\"\non = \"flow ended\"\n";
    let mut case = Case::of_file(rules);
    let said = case.reload(&format!("[settings]\nhistory = \"1M\"\n{rules}"));
    assert_eq!(said, "rules read again: 1 rule, 0 scripts");
    let said = case.reload(&format!("[settings]\nflow_idle = \"1s\"\nflows_max = 9\n{rules}"));
    assert!(
        said.ends_with("; flows go on with the flow_idle and flows_max of before, until a restart"),
        "{said}"
    );
}
