//! The list of all names: docs/reference/metrics.md, the dashboard and the alert rules are checked against it.

use std::fmt::Write as _;

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A number that only grows, until its process restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Labels that do not change; its value is 1.
    Info,
}

impl FamilyKind {
    /// Name in the text.
    pub fn name(self) -> &'static str {
        match self {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Info => "info",
        }
    }
}

/// A family of metrics: the same number of several processes, interfaces, stages or readers.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name without the ending of a counter or an info.
    pub name: &'static str,
    /// Kind of the family.
    pub kind: FamilyKind,
    /// Unit, which its name ends with; empty for none.
    pub unit: &'static str,
    /// Labels, in the order of the text.
    pub labels: &'static [&'static str],
    /// Meaning and origin of the number.
    pub help: &'static str,
}

impl Family {
    /// The name of its samples.
    pub fn sample_name(&self) -> String {
        let ending = match self.kind {
            FamilyKind::Counter => "_total",
            FamilyKind::Gauge => "",
            FamilyKind::Info => "_info",
        };
        format!("{}{ending}", self.name)
    }
}

/// The family of a name.
pub fn family(name: &str) -> Option<&'static Family> {
    position(name).map(|at| &FAMILIES[at])
}

/// Position in the list.
pub(crate) fn position(name: &str) -> Option<usize> {
    FAMILIES.iter().position(|family| family.name == name)
}

/// A table in Markdown with a row for each family.
pub fn reference() -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (family.sample_name(), family.kind.name());
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {} |", labels.join(", "), family.help);
    }
    text
}

const PROCESS: &[&str] = &["command", "meter"];
const INTERFACE: &[&str] = &["command", "meter", "interface", "kind"];
const INTERFACE_PLACE: &[&str] = &["command", "meter", "interface", "kind", "place"];
const STAGE: &[&str] = &["command", "meter", "stage", "class"];
const CAPTURE: &[&str] = &["capture"];
const CAPTURE_PLACE: &[&str] = &["capture", "place"];
const READER: &[&str] = &["capture", "reader", "program"];
const RECORDING: &[&str] = &["capture", "store"];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Counter, unit: "", labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Gauge, unit: "", labels, help }
}

const fn in_unit(family: Family, unit: &'static str) -> Family {
    Family { unit, ..family }
}

/// All families.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "tapline_build",
        kind: FamilyKind::Info,
        unit: "",
        labels: &["version"],
        help: "Version of the program that wrote this text.",
    },
    gauge("tapline_processes", &[], "Processes whose files of meters could be read."),
    in_unit(
        gauge(
            "tapline_process_start_time_seconds",
            PROCESS,
            "Time at which the process began to count, since 1970.",
        ),
        "seconds",
    ),
    counter(
        "tapline_interface_received_packets",
        INTERFACE,
        "Packets that passed the kernel's filter, with those lost in the ring; of a tap those offered to the reader.",
    ),
    counter(
        "tapline_interface_delivered_packets",
        INTERFACE,
        "Packets that the process got from the interface or file.",
    ),
    in_unit(
        counter(
            "tapline_interface_delivered_bytes",
            INTERFACE,
            "Their bytes on the wire; unknown in a process with several interfaces, and without a stage of class device or file.",
        ),
        "bytes",
    ),
    counter("tapline_interface_refused_packets", INTERFACE, "Packets that the filter in the kernel refused."),
    counter(
        "tapline_interface_lost_packets",
        INTERFACE_PLACE,
        "Packets lost before the process, by place: ring, nic, driver; of a tap index_full, overwritten, damaged, daemon; file.",
    ),
    gauge(
        "tapline_interface_unread_packets",
        INTERFACE,
        "Packets that wait in the kernel's ring or the daemon's buffer.",
    ),
    counter(
        "tapline_interface_ring_freezes",
        INTERFACE,
        "Times that the kernel's ring froze because it was full.",
    ),
    gauge(
        "tapline_interface_unknown",
        INTERFACE_PLACE,
        "1 for each number that cannot be known, by place: its sample is absent, not 0.",
    ),
    counter("tapline_stage_received_packets", STAGE, "Packets that the stage received, from its meter."),
    in_unit(counter("tapline_stage_received_bytes", STAGE, "Their bytes on the wire."), "bytes"),
    counter("tapline_stage_passed_packets", STAGE, "Packets that the stage handed on, over all outputs."),
    in_unit(counter("tapline_stage_passed_bytes", STAGE, "Their bytes on the wire."), "bytes"),
    counter("tapline_stage_batches", STAGE, "Batches that the stage received."),
    in_unit(
        counter(
            "tapline_stage_cpu_seconds",
            STAGE,
            "Time of the stage itself, from ticks of the processor's counter.",
        ),
        "seconds",
    ),
    gauge(
        "tapline_stage_value",
        &["command", "meter", "stage", "class", "name"],
        "Further numbers of a stage, by their own names.",
    ),
    counter("tapline_output_written_packets", STAGE, "Packets that the output stored, printed or sent."),
    counter("tapline_output_lost_packets", STAGE, "Packets that the output could not store, print or send."),
    gauge("tapline_output_buffered_packets", STAGE, "Packets on their way to the output."),
    gauge("tapline_flows_active", STAGE, "Flows in the table of the meter."),
    gauge("tapline_flows_max", STAGE, "Flows that the table has room for."),
    counter("tapline_flows_created", STAGE, "Flows that began."),
    counter(
        "tapline_flows_ended",
        &["command", "meter", "stage", "class", "reason"],
        "Flows that ended, by reason: idle, active, end (of the connection), full (no room).",
    ),
    gauge(
        "tapline_daemon_up",
        &[],
        "1 if tapline serve answers at its socket, 0 if the socket is there and it does not.",
    ),
    in_unit(gauge("tapline_daemon_uptime_seconds", &[], "Time since the daemon started."), "seconds"),
    counter(
        "tapline_daemon_refused_requests",
        &[],
        "Requests that the rules refused, and connections ended because they did not keep to the protocol.",
    ),
    counter("tapline_capture_packets", CAPTURE, "Packets that the daemon's capture got from its interfaces."),
    in_unit(counter("tapline_capture_bytes", CAPTURE, "Their captured bytes."), "bytes"),
    counter(
        "tapline_capture_lost_packets",
        CAPTURE_PLACE,
        "Packets lost, by place: before (nic, driver, kernel ring), buffer (no block was free).",
    ),
    counter(
        "tapline_capture_rx_dropped_packets",
        CAPTURE,
        "rx_dropped of the interfaces: frames of no use to the host, which were captured, or lost by the adapter.",
    ),
    gauge(
        "tapline_capture_uncaptured_interfaces",
        CAPTURE,
        "Interfaces that are meant and cannot be captured; nobody counts their packets.",
    ),
    counter("tapline_capture_unwanted_packets", CAPTURE, "Packets that no reader wanted."),
    gauge("tapline_capture_paused", CAPTURE, "1 while the capture is paused, else 0."),
    counter(
        "tapline_capture_paused_packets",
        CAPTURE,
        "Packets without a reader that came while the capture was paused.",
    ),
    counter(
        "tapline_capture_stored_packets",
        CAPTURE,
        "Packets stored, for each group of readers with the same rights.",
    ),
    in_unit(
        counter("tapline_capture_cpu_seconds", CAPTURE, "Processor time of the capture's threads."),
        "seconds",
    ),
    gauge("tapline_capture_readers", CAPTURE, "Readers of the capture."),
    in_unit(
        gauge(
            "tapline_capture_wait_seconds",
            CAPTURE,
            "Time for which the capture has waited for a lossless reader.",
        ),
        "seconds",
    ),
    gauge(
        "tapline_capture_unknown",
        CAPTURE_PLACE,
        "1 for each number that the rules withhold from this user: its sample is absent, not 0.",
    ),
    counter("tapline_reader_offered_packets", READER, "Packets that the daemon had for the reader."),
    counter(
        "tapline_reader_delivered_packets",
        READER,
        "Packets that the reader is done with, by its own count.",
    ),
    counter(
        "tapline_reader_lost_packets",
        &["capture", "reader", "program", "cause"],
        "Packets that the reader did not get, by cause: index_full, overwritten, damaged.",
    ),
    gauge("tapline_reader_unread_packets", READER, "Packets that the reader has not come to: its lag."),
    counter("tapline_reader_wakeups", READER, "Times that the reader was woken."),
    gauge("tapline_recording_up", RECORDING, "1 while the recording runs, 0 once an error has ended it."),
    counter("tapline_recording_written_packets", RECORDING, "Packets in the store."),
    counter("tapline_recording_lost_packets", RECORDING, "Packets that the store could not write."),
    counter("tapline_recording_cut_packets", RECORDING, "Packets beyond the cut-off of their flow."),
    gauge("tapline_recording_buffered_packets", RECORDING, "Packets that wait to be written to the store."),
    gauge("tapline_left_out", &["what"], "Processes, stages and readers beyond the limits of this text."),
    in_unit(
        gauge("tapline_scrape_duration_seconds", &[], "Time that collecting these samples took."),
        "seconds",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A file of the repository.
    fn file(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn boards_and_rules_use_names_that_exist() {
        let known: BTreeSet<String> = FAMILIES.iter().map(Family::sample_name).collect();
        for name in [
            "contrib/grafana/tapline.json",
            "contrib/prometheus/tapline.rules.yml",
            "contrib/prometheus/tapline.rules.test.yml",
        ] {
            let text = file(name);
            let used: BTreeSet<&str> = text
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .filter(|word| word.starts_with("tapline_"))
                .collect();
            assert!(used.len() > 3, "{name}");
            for word in used {
                assert!(known.contains(word), "{name}: {word}");
            }
        }
    }

    #[test]
    fn names_are_as_openmetrics_wants_them() {
        let names: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        for family in FAMILIES {
            assert!(family.name.starts_with("tapline_") && is_word(family.name), "{}", family.name);
            assert!(family.labels.iter().all(|label| is_word(label)), "{}", family.name);
            assert!(
                !["_total", "_info"].iter().any(|ending| family.name.ends_with(ending)),
                "{}",
                family.name
            );
            assert!(family.name.ends_with(family.unit) && family.help.ends_with('.'), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\', '|']), "{}", family.name);
        }
    }
}
