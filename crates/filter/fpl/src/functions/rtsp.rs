//! `rtsp_ports`: learns the ports on which RTSP sessions agree (FFPF's Figure 7; RFC 2326, section 12.39).
//!
//! ```text
//! Transport: RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257
//!
//! input    0 where the TCP data start, 1 how many bytes they are, 2 a number for the direction of the connection, 3 sequence number
//! output   0 ports held, 1 ports ever learned, 2 to 65 the ports; the oldest gives way when all places are taken
//! value    ports that this packet told, known ones included
//! ```
//!
//! A line that goes on in the next segment is followed if that segment comes next: a segment out of order, or a line
//! of more than [`LINE_MAX`] bytes, ends it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::function::{Call, External};

/// Ports that `rtsp_ports` holds.
pub const RTSP_PORTS_MAX: u32 = 64;
/// Cells that `rtsp_ports` writes.
pub const RTSP_CELLS: u32 = 2 + RTSP_PORTS_MAX;

/// The longest beginning of a line that is kept for the next segment.
const LINE_MAX: usize = 512;
/// Directions of connections, at most, that wait for their next segment.
const WAITING_MAX: usize = 64;
/// The most ports of one range: an RTP session has two.
const RANGE_MAX: u64 = 16;

/// Learns the ports of RTSP sessions. Each call of this makes a function with a state of its own.
pub fn rtsp_ports() -> External {
    let waiting = Mutex::new(Waiting::default());
    External::new("rtsp_ports", 4, RTSP_CELLS, move |call| {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = waiting.ports(data_of(call), call.input(2), call.input(3) as u32);
        ports.iter().for_each(|port| learn(call, *port));
        ports.len() as u64
    })
}

fn data_of<'a>(call: &Call<'a>) -> &'a [u8] {
    let place = |cell| usize::try_from(call.input(cell)).unwrap_or(usize::MAX);
    let data = call.packet().data.get(place(0)..).unwrap_or_default();
    &data[..place(1).min(data.len())]
}

fn learn(call: &Call<'_>, port: u64) {
    let held = call.output(0).min(RTSP_PORTS_MAX.into()) as u32;
    if (0..held).any(|place| call.output(2 + place) == port) {
        return;
    }
    let learned = call.output(1);
    call.set_output(2 + (learned % u64::from(RTSP_PORTS_MAX)) as u32, port);
    call.set_output(1, learned.wrapping_add(1));
    call.set_output(0, u64::from(held + 1).min(RTSP_PORTS_MAX.into()));
}

/// Beginnings of lines, oldest first.
#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Line>,
}

#[derive(Debug)]
struct Line {
    connection: u64,
    next_seq: u32,
    text: Vec<u8>,
}

impl Waiting {
    /// The ports that the segment names, including those that it completes.
    fn ports(&mut self, data: &[u8], connection: u64, seq: u32) -> Vec<u64> {
        let mut text = self.take(connection, seq).unwrap_or_default();
        text.extend_from_slice(data);
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let ports = text[..complete].split(|byte| *byte == b'\n').flat_map(ports_of_line).collect();
        let rest = text.split_off(complete);
        if (1..=LINE_MAX).contains(&rest.len()) {
            self.keep(Line { connection, next_seq: seq.wrapping_add(data.len() as u32), text: rest });
        }
        ports
    }

    fn take(&mut self, connection: u64, seq: u32) -> Option<Vec<u8>> {
        let at = self.lines.iter().position(|line| line.connection == connection && line.next_seq == seq)?;
        self.lines.remove(at).map(|line| line.text)
    }

    fn keep(&mut self, line: Line) {
        self.lines.retain(|other| other.connection != line.connection);
        if self.lines.len() >= WAITING_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// The ports of a `Transport` header, of both sides; none of other lines.
fn ports_of_line(line: &[u8]) -> Vec<u64> {
    const NAME: &[u8] = b"transport:";
    match line.split_at_checked(NAME.len()) {
        Some((name, value)) if name.eq_ignore_ascii_case(NAME) => {
            value.split(|byte| matches!(byte, b';' | b',' | b'\r')).flat_map(ports_of_parameter).collect()
        }
        _ => Vec::new(),
    }
}

fn ports_of_parameter(parameter: &[u8]) -> Vec<u64> {
    let Some((name, value)) = std::str::from_utf8(parameter).ok().and_then(|text| text.split_once('='))
    else {
        return Vec::new();
    };
    if !["client_port", "server_port"].iter().any(|known| name.trim().eq_ignore_ascii_case(known)) {
        return Vec::new();
    }
    let port = |text: &str| text.trim().parse::<u16>().ok().map(u64::from);
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    match (port(first), port(last)) {
        (Some(first), Some(last)) => (first..=last.min(first + RANGE_MAX - 1)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Transport: RTP/AVP;unicast;client_port=4588-4589;server_port=6256-6257\r\n";

    #[test]
    fn a_line_split_at_any_place_is_understood() {
        for at in 0..=LINE.len() {
            let mut waiting = Waiting::default();
            let (one, two) = LINE.as_bytes().split_at(at);
            let mut ports = waiting.ports(one, 1, u32::MAX - 10);
            ports.extend(waiting.ports(two, 1, (u32::MAX - 10).wrapping_add(at as u32)));
            assert_eq!(ports, [4588, 4589, 6256, 6257], "split at {at}");
            assert!(waiting.lines.is_empty());
        }
    }

    #[test]
    fn the_next_segment_completes_a_line() {
        let (one, two) = LINE.as_bytes().split_at(45);
        for (connection, seq) in [(2, 45), (1, 46), (1, 44)] {
            let mut waiting = Waiting::default();
            assert_eq!(waiting.ports(one, 1, 0), []);
            assert_eq!(waiting.ports(two, connection, seq), []);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut waiting = Waiting::default();
        for connection in 0..1000 {
            waiting.ports(b"no end of line", connection, 0);
        }
        assert_eq!(waiting.lines.len(), WAITING_MAX);
        waiting.ports(&[b'x'; LINE_MAX + 1], 5000, 0);
        assert!(waiting.lines.iter().all(|line| line.connection != 5000));
    }

    #[test]
    fn invalid_ports_are_ignored() {
        for (line, ports) in [
            ("Transport: RTP/AVP;client_port=70000", &[][..]),
            ("transport:client_port=7", &[7]),
            ("TRANSPORT: x; Client_Port=7-6", &[]),
            ("Transport: client_port=", &[]),
            ("Session: client_port=7", &[]),
            (
                "Transport: port=7;client_port=1-65535",
                &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
            ),
        ] {
            assert_eq!(ports_of_line(line.as_bytes()), ports, "{line}");
        }
    }
}
