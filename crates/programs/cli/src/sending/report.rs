//! Report on sent packets: the account, the rate, the gaps.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use tapline_graph::grouped;
use tapline_source::SkipCause;
use tapline_transmit::{PaceReport, SendCounts, SkippedBackend};

use super::SendTarget;
use crate::report::{AccountForm, Table, unsent_json};
use crate::strict::{LostPackets, ReportArgs};

/// Content of the report.
pub(crate) struct Outcome<'a> {
    pub(crate) pacer: &'a PaceReport,
    pub(crate) sent: &'a SendCounts,
    pub(crate) place: &'a SendTarget,
    /// Packets that the driver dropped after they were sent, if it counts them.
    pub(crate) dropped_later: Option<u64>,
    pub(crate) taken: SendInput,
    /// More will come.
    pub(crate) is_running: bool,
    /// Whether packets had times at which they were to go.
    pub(crate) is_paced: bool,
    /// As JSON on standard output instead of text on standard error.
    pub(crate) json: bool,
}

/// Packets to be sent.
#[derive(Clone, Copy)]
pub(crate) struct SendInput {
    /// The origin as a verb: `read`.
    pub(crate) verb: &'static str,
    /// Number.
    pub(crate) packets: u64,
    /// In how many passes.
    pub(crate) passes: u64,
    /// Packets with earlier times than those before them.
    pub(crate) backwards: u64,
    /// Packets that were not reached.
    pub(crate) left: u64,
}

impl Outcome<'_> {
    fn unsent(&self) -> u64 {
        self.sent.lost.total() + self.sent.own
    }

    fn seconds(&self) -> f64 {
        self.pacer.elapsed_ns as f64 / 1e9
    }

    fn planned_seconds(&self) -> Option<f64> {
        self.is_paced.then_some(self.pacer.planned_ns as f64 / 1e9)
    }

    /// Packets per second in this time.
    fn rate(&self, seconds: f64) -> Option<f64> {
        // Between the first frame and the last there is one gap less than there are frames.
        let gaps = self.pacer.frames.saturating_sub(1) as f64;
        (seconds > 0.0 && gaps > 0.0).then(|| gaps / seconds)
    }

    fn bit_rate(&self) -> Option<f64> {
        let packets = self.sent.packets;
        let share = if packets > 0 { (packets - 1) as f64 / packets as f64 } else { 0.0 };
        let seconds = self.seconds();
        self.rate(seconds).map(|_| self.sent.bytes as f64 * 8.0 * share / seconds)
    }

    fn asked_rate(&self) -> Option<f64> {
        self.planned_seconds().and_then(|seconds| self.rate(seconds))
    }

    /// Whether all was sent, as far as is counted.
    fn is_whole(&self) -> bool {
        self.taken.packets == self.sent.packets && self.dropped_later.unwrap_or(0) == 0
    }

    fn is_balanced(&self) -> bool {
        self.taken.packets == self.sent.packets + self.unsent() + self.taken.left
    }
}

/// Reports the result, and the failure that ended the run: in JSON as a key next to the account. Returns the exit
/// status.
pub(crate) fn conclude(outcome: &Outcome<'_>, failure: Option<&str>, report: ReportArgs) -> Result<ExitCode> {
    let none_sent = (outcome.sent.packets == 0 && outcome.unsent() > 0).then(|| {
        let packets = grouped(outcome.unsent());
        format!("nothing was sent: {packets} packets could not be, for the causes in the account")
    });
    let failure = failure.or(none_sent.as_deref());
    if outcome.json {
        let mut object = to_json(outcome);
        if let Some(failure) = failure {
            object["error"] = failure.into();
        }
        writeln!(io::stdout(), "{object}")?;
    } else {
        io::stderr().write_all(to_text(outcome, report.account.form(false)).as_bytes())?;
    }
    let Some(failure) = failure else { return Ok(report.code(ExitCode::SUCCESS, &losses(outcome))) };
    let _ = writeln!(io::stderr(), "tapline: {failure}");
    Ok(ExitCode::FAILURE)
}

/// Packets that were to be sent and were not, by cause, and those that the driver dropped.
fn losses(outcome: &Outcome<'_>) -> Vec<LostPackets> {
    let interface = &outcome.place.interface;
    let lost = outcome.sent.lost.iter();
    let mut losses: Vec<LostPackets> = lost
        .map(|(cause, packets)| LostPackets::new(&format!("{interface} ({})", cause.words()), packets))
        .collect();
    let dropped = outcome.dropped_later.filter(|packets| *packets > 0);
    losses.extend(dropped.map(|packets| LostPackets::new(&format!("{interface} (driver)"), packets)));
    losses
}

/// Reports the progress on standard error.
pub(super) fn tell(outcome: &Outcome<'_>) {
    let text = match outcome.json {
        true => format!("{}\n", to_json(outcome)),
        false => to_text(outcome, AccountForm::Full),
    };
    let _ = io::stderr().write_all(text.as_bytes());
}

fn to_json(outcome: &Outcome<'_>) -> Value {
    let pace = outcome.pacer;
    let skipped = Some((SkipCause::Own, outcome.sent.own));
    let skipped_backends = |over: &SkippedBackend| json!({ "name": over.backend.name(), "why": over.reason });
    let skipped_backends: Vec<Value> = outcome.place.skipped_backends.iter().map(skipped_backends).collect();
    let paced = |value: Option<u64>| outcome.planned_seconds().and(value);
    // The reader tells it when it is done.
    let at_end = |value: u64| (!outcome.is_running).then_some(value);
    json!({
        "backend": {
            "name": outcome.place.backend.name(),
            "remark": outcome.place.remark,
            "passed_over": skipped_backends,
        },
        "rate": {
            "packets_per_second": outcome.rate(outcome.seconds()),
            "asked_packets_per_second": outcome.asked_rate(),
            "bits_per_second": outcome.bit_rate(),
            "seconds": outcome.seconds(),
            "planned_seconds": outcome.planned_seconds(),
            "gap_error_median_ns": paced(pace.gaps.percentile(0.5)),
            "gap_error_p99_ns": paced(pace.gaps.percentile(0.99)),
            "late_max_ns": paced(Some(pace.late_max_ns)),
        },
        "account": {
            "interface": outcome.place.interface,
            outcome.taken.verb: outcome.taken.packets,
            "passes": at_end(outcome.taken.passes),
            "backwards": at_end(outcome.taken.backwards),
            "sent": outcome.sent.packets,
            "bytes": outcome.sent.bytes,
            "unsent": unsent_json(skipped, &outcome.sent.lost),
            "not_reached": outcome.taken.left,
            "tx_dropped": outcome.dropped_later,
            "lost": outcome.sent.lost.total(),
            "running": outcome.is_running,
            "balanced": outcome.is_balanced(),
        },
    })
}

fn to_text(outcome: &Outcome<'_>, form: AccountForm) -> String {
    let account = match form {
        AccountForm::None => String::new(),
        AccountForm::Auto if outcome.is_whole() => {
            let (packets, bytes) = (grouped(outcome.sent.packets), grouped(outcome.sent.bytes));
            format!("{packets} packets sent, {bytes} bytes, 0 dropped\n")
        }
        _ => account_text(outcome),
    };
    account + times_text(outcome).as_str()
}

fn account_text(outcome: &Outcome<'_>) -> String {
    let (interface, verb) = (&outcome.place.interface, outcome.taken.verb);
    let mut table = Table::new();
    let (sent, SendInput { packets: taken, passes, left, .. }) = (outcome.sent, outcome.taken);
    let repeated = if passes > 1 { format!("in {} passes", grouped(passes)) } else { String::new() };
    table.row(verb, taken, &repeated);
    table.row(&format!("{interface}  sent"), sent.packets, &format!("{} bytes", grouped(sent.bytes)));
    let unsent = format!("{interface}  NOT SENT");
    table.positive(&unsent, sent.own, SkipCause::Own.words());
    sent.lost.iter().for_each(|(cause, count)| table.row(&unsent, count, cause.words()));
    table.positive("not reached", left, &format!("{verb} ahead, and stopped before their time"));
    let dropped = outcome.dropped_later.unwrap_or(0);
    let remark = "of all senders there, after the kernel took them";
    table.positive(&format!("{interface}  driver, tx_dropped"), dropped, remark);
    if outcome.is_balanced() && outcome.is_running {
        let line = "balanced so far: still running, packets whose time has not come are not counted";
        return format!("{}  {line}\n", table.text);
    }
    let (sent, unsent) = (sent.packets, outcome.unsent());
    let fault = || format!("{verb} {taken} but sent {sent} + not sent {unsent} + not reached {left}");
    let faults: Vec<String> = (!outcome.is_balanced()).then(fault).into_iter().collect();
    table.end(&faults)
}

fn times_text(outcome: &Outcome<'_>) -> String {
    let mut text = String::new();
    let Some(rate) = outcome.rate(outcome.seconds()) else { return text };
    let bits = outcome.bit_rate().unwrap_or(0.0) / 1e6;
    let _ = write!(text, "rate      {rate:.1} packets/s, {bits:.3} Mbit/s");
    if let Some(asked) = outcome.asked_rate() {
        let _ = write!(text, "; asked for {asked:.1}: {:+.4} %", (rate / asked - 1.0) * 100.0);
    }
    let _ = write!(text, "\ntime      {:.6} s", outcome.seconds());
    if let Some(planned) = outcome.planned_seconds() {
        let _ = write!(text, ", planned {planned:.6} s");
    }
    text.push('\n');
    let gaps = &outcome.pacer.gaps;
    if let (Some(_), Some(median), Some(p99)) =
        (outcome.planned_seconds(), gaps.percentile(0.5), gaps.percentile(0.99))
    {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (median, p99, late) = (micros(median), micros(p99), micros(outcome.pacer.late_max_ns));
        let _ = writeln!(
            text,
            "gaps      off by {median:.2} us (median), {p99:.2} us (p99); the latest packet by {late:.1} us"
        );
    }
    if outcome.taken.backwards > 0 {
        let count = grouped(outcome.taken.backwards);
        let _ = writeln!(
            text,
            "order     {count} packets are earlier in the file than those before them; they followed at once"
        );
    }
    text
}
