//! Samples of a process: the contents of docs/format/meters.md about its interfaces and stages.

use tapline_meters::{Kind, Process, Snapshot, UNKNOWN, command_of, merge_workers};

use crate::exposition::Exposition;

/// Stages and interfaces of a process of which there are samples.
const STAGES_MAX: usize = 256;
/// Ending of counters that all workers read at one place: card and driver.
const OF_ALL_WORKERS: &str = "_max";

/// Adds the samples of a process, whose meter has this name.
pub(crate) fn add(exposition: &mut Exposition, process: &Process, meter: &str, snapshots: &[Snapshot]) {
    let command = command_of(&process.title);
    let start = process.created_ns as f64 / 1e9;
    exposition.number("tapline_process_start_time_seconds", &[&command, meter], start);
    let merged = merge_workers(snapshots);
    let bytes = bytes_of_interface(&merged);
    for snapshot in merged.iter().take(STAGES_MAX) {
        let labels = [command.as_str(), meter, &snapshot.name, &snapshot.class];
        match snapshot.kind {
            Kind::Interface => interface(exposition, labels, snapshot, bytes),
            Kind::Stage | Kind::Source | Kind::Sink => {
                stage(exposition, labels, snapshot, process.frequency_hz);
            }
        }
    }
    if let Some(left_out) = merged.len().checked_sub(STAGES_MAX).filter(|count| *count > 0) {
        exposition.count("tapline_left_out", &["stages"], left_out as u64);
    }
}

/// Bytes of the packets that a process got from its interface: those of the stage that receives them. Of several
/// interfaces a stage knows the sum alone.
fn bytes_of_interface(merged: &[Snapshot]) -> Option<u64> {
    let (interfaces, stages): (Vec<&Snapshot>, Vec<&Snapshot>) =
        merged.iter().partition(|snapshot| snapshot.kind == Kind::Interface);
    let mut sources = stages.into_iter().filter(|stage| ["device", "file"].contains(&stage.class.as_str()));
    let source = sources.next().filter(|_| sources.next().is_none() && interfaces.len() == 1);
    source.map(|source| source.bytes_in)
}

fn interface(exposition: &mut Exposition, labels: [&str; 4], snapshot: &Snapshot, bytes: Option<u64>) {
    match bytes {
        Some(bytes) => exposition.count("tapline_interface_delivered_bytes", &labels, bytes),
        None => {
            let [command, meter, interface, kind] = labels;
            let labels = [command, meter, interface, kind, "delivered_bytes"];
            exposition.count("tapline_interface_unknown", &labels, 1);
        }
    }
    for (name, value) in &snapshot.extras {
        let name = name.strip_suffix(OF_ALL_WORKERS).unwrap_or(name);
        let place = name.strip_prefix("lost_");
        let [command, meter, interface, kind] = labels;
        if *value == UNKNOWN {
            let place = place.unwrap_or(name);
            exposition.count("tapline_interface_unknown", &[command, meter, interface, kind, place], 1);
            continue;
        }
        match (name, place) {
            (_, Some(place)) => {
                let labels = [command, meter, interface, kind, place];
                exposition.count("tapline_interface_lost_packets", &labels, *value);
            }
            ("received", _) => exposition.count("tapline_interface_received_packets", &labels, *value),
            ("delivered", _) => exposition.count("tapline_interface_delivered_packets", &labels, *value),
            ("refused", _) => exposition.count("tapline_interface_refused_packets", &labels, *value),
            ("unread", _) => exposition.count("tapline_interface_unread_packets", &labels, *value),
            ("freezes", _) => exposition.count("tapline_interface_ring_freezes", &labels, *value),
            // Of a later version.
            _ => {}
        }
    }
}

fn stage(exposition: &mut Exposition, labels: [&str; 4], snapshot: &Snapshot, frequency_hz: u64) {
    exposition.count("tapline_stage_received_packets", &labels, snapshot.packets_in);
    exposition.count("tapline_stage_received_bytes", &labels, snapshot.bytes_in);
    exposition.count("tapline_stage_passed_packets", &labels, snapshot.packets_out);
    exposition.count("tapline_stage_passed_bytes", &labels, snapshot.bytes_out);
    exposition.count("tapline_stage_batches", &labels, snapshot.batches);
    if frequency_hz > 0 {
        let seconds = snapshot.cycles as f64 / frequency_hz as f64;
        exposition.number("tapline_stage_cpu_seconds", &labels, seconds);
    }
    for (name, value) in &snapshot.extras {
        further(exposition, labels, snapshot.class == "flow", name, *value);
    }
}

/// A further counter: under a name of its own where it has one.
fn further(exposition: &mut Exposition, labels: [&str; 4], is_flow: bool, name: &str, value: u64) {
    let [command, meter, stage, class] = labels;
    match name {
        "written" => exposition.count("tapline_output_written_packets", &labels, value),
        "lost" => exposition.count("tapline_output_lost_packets", &labels, value),
        "buffered" => exposition.count("tapline_output_buffered_packets", &labels, value),
        "now" if is_flow => exposition.count("tapline_flows_active", &labels, value),
        "room" if is_flow => exposition.count("tapline_flows_max", &labels, value),
        "flows" if is_flow => exposition.count("tapline_flows_created", &labels, value),
        "idle" | "active" | "end" | "full" if is_flow => {
            exposition.count("tapline_flows_ended", &[command, meter, stage, class, name], value);
        }
        _ => exposition.count("tapline_stage_value", &[command, meter, stage, class, name], value),
    }
}

#[cfg(test)]
mod tests {
    use tapline_meters::{Cost, Meters, meter_name};

    use super::*;
    use crate::exposition::Format;

    fn text(meters: &Meters, title: &str) -> String {
        let process = Process {
            path: "7.meters".into(),
            pid: 7,
            title: title.to_owned(),
            created_ns: 1_500_000_000,
            clock: None,
            frequency_hz: 1000,
            read_ticks: 1.0,
        };
        let mut exposition = Exposition::new();
        add(&mut exposition, &process, &meter_name(title), &meters.snapshot());
        exposition.text(Format::Prometheus)
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
    }

    #[test]
    fn an_unknown_number_is_absent_and_marked() {
        let meters = Meters::private();
        let eth0 = meters.interface("eth0", "live", 0);
        for (name, value) in
            [("received", 12), ("lost_ring", 2), ("refused", UNKNOWN), ("lost_driver_max", UNKNOWN)]
        {
            eth0.extra(name).expect("room").set(value);
        }
        let text = text(&meters, "capture -i eth0 host 10.0.0.1");
        let labels = r#"command="capture",meter="capture eth0",interface="eth0",kind="live""#;
        has(&text, &format!("tapline_interface_received_packets_total{{{labels}}} 12"));
        has(&text, &format!("tapline_interface_lost_packets_total{{{labels},place=\"ring\"}} 2"));
        has(&text, &format!("tapline_interface_unknown{{{labels},place=\"refused\"}} 1"));
        has(&text, &format!("tapline_interface_unknown{{{labels},place=\"driver\"}} 1"));
        has(&text, &format!("tapline_interface_unknown{{{labels},place=\"delivered_bytes\"}} 1"));
        assert!(!text.contains("tapline_interface_refused_packets") && !text.contains("10.0.0.1"), "{text}");
    }

    #[test]
    fn workers_are_added_and_cards_are_not() {
        let meters = Meters::private();
        for worker in 0..2 {
            let eth0 = meters.interface("eth0", "live", worker);
            eth0.extra("received").expect("room").set(10);
            eth0.extra("lost_nic_max").expect("room").set(3);
        }
        meters.slot("device", "device", 0).add(&Cost { packets_in: 20, bytes_in: 3000, ..Cost::default() });
        let text = text(&meters, "record");
        let labels = r#"command="record",meter="record",interface="eth0",kind="live""#;
        has(&text, &format!("tapline_interface_received_packets_total{{{labels}}} 20"));
        has(&text, &format!("tapline_interface_lost_packets_total{{{labels},place=\"nic\"}} 3"));
        has(&text, &format!("tapline_interface_delivered_bytes_total{{{labels}}} 3000"));
    }

    #[test]
    fn stages_flows_and_outputs_have_their_families() {
        let meters = Meters::private();
        let flow = meters.slot("meter", "flow", 0);
        flow.add(&Cost { cycles: 500, packets_in: 4, bytes_in: 400, packets_out: 4, bytes_out: 400 });
        flow.extra("now").expect("room").set(3);
        flow.extra("idle").expect("room").set(1);
        meters.slot("out.pcapng", "output", 0).extra("lost").expect("room").set(9);
        meters.slot("x", "top", 0).extra("entries").expect("room").set(8);
        let text = text(&meters, "../../bin run");
        let labels = r#"command="other",meter="other",stage="meter",class="flow""#;
        has(&text, &format!("tapline_stage_cpu_seconds_total{{{labels}}} 0.5"));
        has(&text, &format!("tapline_flows_active{{{labels}}} 3"));
        has(&text, &format!("tapline_flows_ended_total{{{labels},reason=\"idle\"}} 1"));
        let output = r#"command="other",meter="other",stage="out.pcapng",class="output""#;
        has(&text, &format!("tapline_output_lost_packets_total{{{output}}} 9"));
        has(
            &text,
            r#"tapline_stage_value{command="other",meter="other",stage="x",class="top",name="entries"} 8"#,
        );
        has(&text, r#"tapline_process_start_time_seconds{command="other",meter="other"} 1.5"#);
    }

    #[test]
    fn a_process_has_a_bounded_number_of_series() {
        let meters = Meters::private();
        let stages: Vec<_> =
            (0..STAGES_MAX + 5).map(|at| meters.slot(&format!("s{at}"), "count", 0)).collect();
        let text = text(&meters, "run");
        has(&text, r#"tapline_left_out{what="stages"} 5"#);
        assert_eq!(text.matches("\ntapline_stage_batches_total{").count(), STAGES_MAX);
        drop(stages);
    }
}
