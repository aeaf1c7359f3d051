//! What people and machines are told of a replay: the account, the rate, the gaps.

use std::fmt::Write as _;
use std::io::{self, Write};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tapline_capture::transmit::{PaceReport, Transmitter};
use tapline_graph::grouped;

use super::reader::Reader;
use super::timeline::{Rate, Timing};
use super::{Done, ReplayArgs, timing};

/// What a run leaves to tell.
pub(super) struct Outcome<'a> {
    pub(super) pacer: &'a PaceReport,
    pub(super) transmitter: &'a mut Transmitter,
    pub(super) done: &'a Done,
}

/// What is about to happen.
pub(super) fn begin(args: &ReplayArgs, reader: &Reader) {
    let how = match timing(args) {
        Timing::Top => "as fast as it goes".to_owned(),
        Timing::Rate(Rate::Packets(rate)) => format!("{} packets a second", grouped(rate.round() as u64)),
        Timing::Rate(Rate::Bits(rate)) => format!("{} bits a second", grouped(rate.round() as u64)),
        Timing::Original { speed: 1.0 } => "with the gaps of the file".to_owned(),
        Timing::Original { speed } => format!("{speed} times as fast as the file says"),
    };
    let mut stderr = io::stderr();
    for line in &reader.announcements {
        let _ = writeln!(stderr, "tapline: {line}");
    }
    let _ = writeln!(stderr, "tapline: sending on {} by AF_PACKET (sendmmsg), {how}", args.interface);
}

/// The numbers that are told.
struct Numbers {
    read: u64,
    sent: u64,
    bytes: u64,
    left: u64,
    unsent: u64,
    packet_rate: Option<f64>,
    bit_rate: Option<f64>,
    asked_rate: Option<f64>,
    seconds: f64,
    planned_seconds: Option<f64>,
    dropped_later: Option<u64>,
}

impl Numbers {
    fn of(args: &ReplayArgs, outcome: &mut Outcome<'_>) -> Numbers {
        let dropped_later = outcome.transmitter.dropped_later();
        let sent = outcome.transmitter.sent();
        let pace = outcome.pacer;
        let is_paced = timing(args) != Timing::Top;
        // Between the first frame and the last there is one gap less than there are frames.
        let gaps = pace.frames.saturating_sub(1) as f64;
        let seconds = pace.elapsed_ns as f64 / 1e9;
        let planned = pace.planned_ns as f64 / 1e9;
        let a_second = |count: f64, seconds: f64| (seconds > 0.0 && gaps > 0.0).then(|| count / seconds);
        let share = if sent.packets > 0 { (sent.packets - 1) as f64 / sent.packets as f64 } else { 0.0 };
        Numbers {
            read: outcome.done.read.packets,
            sent: sent.packets,
            bytes: sent.bytes,
            left: outcome.done.left,
            unsent: sent.causes.lost() + sent.causes.left(),
            packet_rate: a_second(gaps, seconds),
            bit_rate: a_second(sent.bytes as f64 * 8.0 * share, seconds),
            asked_rate: a_second(gaps, planned).filter(|_| is_paced),
            seconds,
            planned_seconds: is_paced.then_some(planned),
            dropped_later,
        }
    }

    fn is_balanced(&self) -> bool {
        self.read == self.sent + self.unsent + self.left
    }
}

/// Tells how it went: JSON on standard output, text on standard error.
pub(super) fn conclude(args: &ReplayArgs, outcome: &mut Outcome<'_>) -> Result<()> {
    let numbers = Numbers::of(args, outcome);
    if args.json {
        writeln!(io::stdout(), "{}", to_json(&numbers, outcome))?;
    } else {
        io::stderr().write_all(to_text(&args.interface, &numbers, outcome).as_bytes())?;
    }
    Ok(())
}

fn to_json(numbers: &Numbers, outcome: &Outcome<'_>) -> Value {
    let pace = outcome.pacer;
    let unsent: Map<String, Value> = outcome
        .transmitter
        .sent()
        .causes
        .iter()
        .map(|(cause, count)| (cause.name().to_owned(), count.into()))
        .collect();
    let paced = |value: Option<u64>| numbers.planned_seconds.and(value);
    json!({
        "rate": {
            "packets_per_second": numbers.packet_rate,
            "asked_packets_per_second": numbers.asked_rate,
            "bits_per_second": numbers.bit_rate,
            "seconds": numbers.seconds,
            "planned_seconds": numbers.planned_seconds,
            "gap_error_median_ns": paced(pace.gaps.percentile(0.5)),
            "gap_error_p99_ns": paced(pace.gaps.percentile(0.99)),
            "late_max_ns": paced(Some(pace.late_max_ns)),
        },
        "account": {
            "interface": outcome.transmitter.name(),
            "read": numbers.read,
            "passes": outcome.done.read.passes,
            "backwards": outcome.done.read.backwards,
            "sent": numbers.sent,
            "bytes": numbers.bytes,
            "unsent": unsent,
            "not_reached": numbers.left,
            "tx_dropped": numbers.dropped_later,
            "lost": outcome.transmitter.sent().causes.lost(),
            "balanced": numbers.is_balanced(),
        },
    })
}

fn to_text(interface: &str, numbers: &Numbers, outcome: &Outcome<'_>) -> String {
    let mut text = String::from("account                                              packets\n");
    let mut row = |place: &str, count: u64, remark: &str| {
        let gap = if remark.is_empty() { "" } else { "  " };
        let _ = writeln!(text, "  {place:<46}{:>12}{gap}{remark}", grouped(count));
    };
    let passes = outcome.done.read.passes;
    let repeated = if passes > 1 { format!("in {} passes", grouped(passes)) } else { String::new() };
    row("read", numbers.read, &repeated);
    row(&format!("{interface}  sent"), numbers.sent, &format!("{} bytes", grouped(numbers.bytes)));
    for (cause, count) in outcome.transmitter.sent().causes.iter() {
        row(&format!("{interface}  NOT SENT"), count, cause.words());
    }
    if numbers.left > 0 {
        row("not reached", numbers.left, "read ahead, and stopped before their time");
    }
    if let Some(dropped @ 1..) = numbers.dropped_later {
        row(
            &format!("{interface}  driver, tx_dropped"),
            dropped,
            "of all who send there, after the kernel took them",
        );
    }
    match numbers.is_balanced() {
        true => text += "  balanced: every packet is accounted for\n",
        false => {
            let Numbers { read, sent, unsent, left, .. } = numbers;
            let _ = writeln!(
                text,
                "  NOT BALANCED: read {read} but sent {sent} + not sent {unsent} + not reached {left}"
            );
        }
    }
    text + &times_text(numbers, outcome)
}

fn times_text(numbers: &Numbers, outcome: &Outcome<'_>) -> String {
    let mut text = String::new();
    let Some(rate) = numbers.packet_rate else { return text };
    let bits = numbers.bit_rate.unwrap_or(0.0) / 1e6;
    let _ = write!(text, "rate      {rate:.1} packets/s, {bits:.3} Mbit/s");
    if let Some(asked) = numbers.asked_rate {
        let _ = write!(text, "; asked for {asked:.1}: {:+.4} %", (rate / asked - 1.0) * 100.0);
    }
    let _ = write!(text, "\ntime      {:.6} s", numbers.seconds);
    if let Some(planned) = numbers.planned_seconds {
        let _ = write!(text, ", planned {planned:.6} s");
    }
    text.push('\n');
    let gaps = &outcome.pacer.gaps;
    if let (Some(_), Some(median), Some(p99)) =
        (numbers.planned_seconds, gaps.percentile(0.5), gaps.percentile(0.99))
    {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (median, p99, late) = (micros(median), micros(p99), micros(outcome.pacer.late_max_ns));
        let _ = writeln!(
            text,
            "gaps      off by {median:.2} us (median), {p99:.2} us (p99); the latest packet by {late:.1} us"
        );
    }
    if outcome.done.read.backwards > 0 {
        let count = grouped(outcome.done.read.backwards);
        let _ = writeln!(
            text,
            "order     {count} packets are earlier in the file than those before them; they followed at once"
        );
    }
    text
}
