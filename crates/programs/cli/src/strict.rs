//! Options of reports. `--strict`: lost packets are an error of the command.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use tapline_graph::{GraphAccount, StageAccount, grouped};
use tapline_source::{Count, InterfaceAccount, LossPoint, OutputAccount};

use crate::escape::plain;
use crate::report::AccountArgs;

/// The exit status of a run that ended normally with an incomplete result: packets were lost (with `--strict`), or
/// parts of a store could not be read.
pub(crate) const INCOMPLETE: u8 = 3;

/// The account, and whether lost packets are an error.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) account: AccountArgs,
    /// End with exit status 3 if packets were lost anywhere from the wire to the outputs, or were not sent, if a
    /// daemon or file does not say whether any were lost, or if an interface could not be captured for a second. Of the
    /// frames in rx_dropped, only those that a full backlog dropped count as lost; the others were captured.
    #[arg(long, help_heading = "Reports")]
    pub(crate) strict: bool,
}

/// Packets that were lost at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostPackets {
    pub(crate) place: String,
    pub(crate) count: Count,
}

impl LostPackets {
    pub(crate) fn new(place: &str, count: u64) -> LostPackets {
        LostPackets { place: place.to_owned(), count: Count::Known(count) }
    }
}

impl ReportArgs {
    /// The exit status, with the losses on standard error: `code` without any, without the option, and after an error.
    pub(crate) fn code(self, code: ExitCode, losses: &[LostPackets]) -> ExitCode {
        if !self.strict || losses.is_empty() || code != ExitCode::SUCCESS {
            return code;
        }
        let _ = writeln!(io::stderr(), "tapline: --strict: packets were lost: {}", text(losses));
        ExitCode::from(INCOMPLETE)
    }
}

fn text(losses: &[LostPackets]) -> String {
    let losses = losses.iter().map(|LostPackets { place, count }| {
        let count = count.known().map_or_else(|| "an unknown number".to_owned(), grouped);
        format!("{count} at {}", plain(place))
    });
    losses.collect::<Vec<_>>().join(", ")
}

/// Packets of an account that were lost, by place, also in recordings of stages.
pub(crate) fn losses_of(account: &GraphAccount) -> Vec<LostPackets> {
    let mut all = losses(&account.interfaces, account.outputs());
    all.extend(account.stages.iter().filter_map(of_recordings));
    all
}

/// Packets that were lost, by place.
pub(crate) fn losses<'a>(
    interfaces: impl IntoIterator<Item = &'a InterfaceAccount>,
    outputs: impl IntoIterator<Item = &'a OutputAccount>,
) -> Vec<LostPackets> {
    let outputs = outputs.into_iter().map(|output| LostPackets::new(&output.name, output.lost));
    let mut all: Vec<LostPackets> = interfaces.into_iter().flat_map(of_interface).collect();
    all.extend(outputs);
    all.retain(|lost| lost.count != Count::Known(0));
    all
}

/// Packets that are missing in recordings of a stage.
fn of_recordings(stage: &StageAccount) -> Option<LostPackets> {
    let lost = stage.counters.recordings_lost;
    (lost > 0).then(|| LostPackets::new(&format!("recordings of {}", stage.name), lost))
}

fn of_interface(interface: &InterfaceAccount) -> Vec<LostPackets> {
    let InterfaceAccount { name, ring, tap, .. } = interface;
    let mut all = Vec::new();
    if let Some(ring) = ring {
        all.push(LostPackets::new(&format!("{name} (kernel ring)"), ring.dropped));
    }
    if let Some(tap) = tap {
        all.push(LostPackets::new(&format!("{name} (reader)"), tap.lost()));
    }
    for loss in interface.losses.iter().filter(|loss| !loss.counts_unwanted_frames()) {
        // Many virtual interfaces count nothing in card and driver: that is not a loss.
        let is_certain = matches!(loss.place, LossPoint::Daemon | LossPoint::File | LossPoint::Uncaptured);
        let is_told = loss.count != Count::Unknown || is_certain;
        if is_told {
            let place = format!("{name} ({}, {})", loss.place.name(), loss.counter);
            all.push(LostPackets { place, count: loss.count });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use tapline_source::{Loss, RingAccount};

    use super::*;

    #[test]
    fn each_loss_has_its_place() {
        let loss = |place, counter: &str, count| Loss { place, counter: counter.to_owned(), count };
        let interface = InterfaceAccount {
            ring: Some(RingAccount { dropped: 1234, ..RingAccount::default() }),
            losses: vec![
                loss(LossPoint::Nic, "rx_dropped", Count::Known(7)),
                loss(LossPoint::Nic, "rx_missed_errors", Count::Known(5)),
                loss(LossPoint::Driver, "ethtool -S", Count::Unknown),
                loss(LossPoint::Daemon, "while there was no daemon", Count::Unknown),
                loss(LossPoint::Uncaptured, "no socket", Count::Unknown),
            ],
            ..InterfaceAccount::of_file("eth0", 9)
        };
        let output = OutputAccount { name: "a.pcap".into(), lost: 3, ..OutputAccount::default() };
        let whole = OutputAccount { name: "b.pcap".into(), written: 3, ..OutputAccount::default() };
        let lost = losses([&interface], [&output, &whole]);
        assert_eq!(
            text(&lost),
            "1,234 at eth0 (kernel ring), 5 at eth0 (nic, rx_missed_errors), an unknown number at eth0 (daemon, while there was \
             no daemon), an unknown number at eth0 (uncaptured, no socket), 3 at a.pcap"
        );
        assert_eq!(
            ReportArgs { strict: true, ..ReportArgs::default() }.code(ExitCode::SUCCESS, &lost),
            ExitCode::from(3)
        );
        assert_eq!(
            ReportArgs { strict: true, ..ReportArgs::default() }.code(ExitCode::SUCCESS, &[]),
            ExitCode::SUCCESS
        );
        assert_eq!(
            ReportArgs { strict: true, ..ReportArgs::default() }.code(ExitCode::FAILURE, &lost),
            ExitCode::FAILURE
        );
        assert_eq!(ReportArgs::default().code(ExitCode::SUCCESS, &lost), ExitCode::SUCCESS);
    }
}
