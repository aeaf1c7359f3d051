//! Samples of a daemon: its captures, their readers and recordings, from its status.

use tapline_tap_client::protocol::{CaptureStatus, ReaderStatus, RecordingStatus, Status};

use crate::exposition::Exposition;

/// Readers of which there are samples, in all captures.
const READERS_MAX: usize = 256;
/// Maximum number of captures, and of recordings of each.
const CAPTURES_MAX: usize = 64;
/// Letters of a reader's name: it is the reader's own word.
const PROGRAM_LEN_MAX: usize = 48;

/// Adds the samples of a daemon that answered.
pub(crate) fn add(exposition: &mut Exposition, status: &Status) {
    exposition.count("tapline_daemon_up", &[], 1);
    exposition.count("tapline_daemon_uptime_seconds", &[], status.seconds);
    exposition.count("tapline_daemon_refused_requests", &[], status.refused);
    let mut room = READERS_MAX;
    let mut left_out = 0;
    for capture in status.captures.iter().take(CAPTURES_MAX) {
        add_capture(exposition, capture);
        for recording in capture.recordings.iter().take(CAPTURES_MAX) {
            add_recording(exposition, &capture.name, recording);
        }
        let shown = capture.readers.len().min(room);
        capture.readers[..shown].iter().for_each(|reader| add_reader(exposition, &capture.name, reader));
        room -= shown;
        left_out += (capture.readers.len() - shown) as u64 + capture.readers_left_out;
    }
    if left_out > 0 {
        exposition.count("tapline_left_out", &["readers"], left_out);
    }
    if let Some(more) = status.captures.len().checked_sub(CAPTURES_MAX).filter(|more| *more > 0) {
        exposition.count("tapline_left_out", &["captures"], more as u64);
    }
}

fn add_capture(exposition: &mut Exposition, capture: &CaptureStatus) {
    let name = capture.name.as_str();
    exposition.count("tapline_capture_packets", &[name], capture.packets);
    exposition.count("tapline_capture_bytes", &[name], capture.bytes);
    exposition.count("tapline_capture_lost_packets", &[name, "before"], capture.lost_before);
    exposition.count("tapline_capture_rx_dropped_packets", &[name], capture.rx_dropped);
    exposition.count("tapline_capture_uncaptured_interfaces", &[name], capture.uncaptured);
    let readers = capture.readers.len() as u64 + capture.readers_left_out;
    exposition.count("tapline_capture_readers", &[name], readers);
    let waits_ms = if capture.waits_for.is_some() { capture.waits_ms } else { 0 };
    exposition.number("tapline_capture_wait_seconds", &[name], waits_ms as f64 / 1e3);
    exposition.count("tapline_capture_paused", &[name], u64::from(capture.is_paused));
    if capture.is_restricted {
        for place in ["unwanted", "paused", "stored", "buffer", "cpu"] {
            exposition.count("tapline_capture_unknown", &[name, place], 1);
        }
        return;
    }
    exposition.count("tapline_capture_unwanted_packets", &[name], capture.unwanted);
    exposition.count("tapline_capture_paused_packets", &[name], capture.paused);
    exposition.count("tapline_capture_stored_packets", &[name], capture.stored);
    exposition.count("tapline_capture_lost_packets", &[name, "buffer"], capture.not_stored);
    exposition.number("tapline_capture_cpu_seconds", &[name], capture.cpu_ns as f64 / 1e9);
}

fn add_reader(exposition: &mut Exposition, capture: &str, reader: &ReaderStatus) {
    let number = reader.number.to_string();
    let program: String = reader.program.chars().take(PROGRAM_LEN_MAX).collect();
    let labels = [capture, &number, &program];
    let counts = &reader.counts;
    exposition.count("tapline_reader_offered_packets", &labels, counts.offered);
    exposition.count("tapline_reader_delivered_packets", &labels, counts.delivered);
    exposition.count("tapline_reader_unread_packets", &labels, counts.unread);
    exposition.count("tapline_reader_wakeups", &labels, reader.wakes);
    for (cause, count) in
        [("index_full", counts.index_full), ("overwritten", counts.overwritten), ("damaged", counts.damaged)]
    {
        exposition.count("tapline_reader_lost_packets", &[capture, &number, &program, cause], count);
    }
}

fn add_recording(exposition: &mut Exposition, capture: &str, recording: &RecordingStatus) {
    let RecordingStatus { store, written, lost, cut, buffered, error } = recording;
    let labels = [capture, store.as_str()];
    exposition.count("tapline_recording_up", &labels, u64::from(error.is_empty()));
    exposition.count("tapline_recording_written_packets", &labels, *written);
    exposition.count("tapline_recording_lost_packets", &labels, *lost);
    exposition.count("tapline_recording_cut_packets", &labels, *cut);
    exposition.count("tapline_recording_buffered_packets", &labels, *buffered);
}

#[cfg(test)]
mod tests {
    use tapline_tap_client::protocol::ReaderCounts;

    use super::*;
    use crate::exposition::Format;

    fn capture(readers: usize) -> CaptureStatus {
        let counts = ReaderCounts { offered: 9, delivered: 5, overwritten: 4, ..ReaderCounts::default() };
        let reader =
            |number| ReaderStatus { number, program: "tcpdump".into(), counts, ..ReaderStatus::default() };
        CaptureStatus {
            name: "office".into(),
            packets: 100,
            lost_before: 7,
            readers: (0..readers as u64).map(reader).collect(),
            recordings: vec![RecordingStatus {
                store: "/srv/a".into(),
                lost: 3,
                error: "full".into(),
                ..RecordingStatus::default()
            }],
            ..CaptureStatus::default()
        }
    }

    fn text(captures: Vec<CaptureStatus>) -> String {
        let mut exposition = Exposition::new();
        add(&mut exposition, &Status { captures, ..Status::default() });
        exposition.text(Format::Prometheus)
    }

    #[test]
    fn losses_of_readers_and_recordings_have_a_cause() {
        let text = text(vec![capture(1)]);
        for line in [
            "tapline_daemon_up 1",
            r#"tapline_capture_lost_packets_total{capture="office",place="before"} 7"#,
            r#"tapline_reader_lost_packets_total{capture="office",reader="0",program="tcpdump",cause="overwritten"} 4"#,
            r#"tapline_recording_up{capture="office",store="/srv/a"} 0"#,
            r#"tapline_recording_lost_packets_total{capture="office",store="/srv/a"} 3"#,
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn numbers_that_rules_withhold_are_marked() {
        let text = text(vec![CaptureStatus { is_restricted: true, ..capture(0) }]);
        assert!(text.contains(r#"tapline_capture_unknown{capture="office",place="unwanted"} 1"#), "{text}");
        assert!(!text.contains("tapline_capture_unwanted_packets") && !text.contains(r#"place="buffer"} 0"#));
    }

    #[test]
    fn readers_beyond_the_limit_are_counted() {
        let text = text(vec![capture(READERS_MAX), capture(3)]);
        assert!(text.contains(r#"tapline_left_out{what="readers"} 3"#), "{text}");
    }
}
