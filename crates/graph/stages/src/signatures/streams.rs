//! The last bytes of each TCP stream, for contents that are spread over packets.
//!
//! ```text
//! stream  . . . . [ at most 2 KiB that came before | bytes of this packet ]
//!                   bytes                            from `fresh` on
//! ```

use std::collections::HashMap;

use tapline_packet::Packet;
use tapline_packet::headers::Headers;
use tapline_signature::StreamWindow;
use tapline_stream::{Event, Limits, Reassembler};

/// Bytes of a stream that are kept for the next packet.
const KEPT: usize = 2048;

/// One direction of a connection: its number, and whether the client sends.
type Key = (u64, bool);

pub(super) struct StreamWindows {
    reassembler: Reassembler,
    windows: HashMap<Key, Window>,
}

#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    /// The first byte is the first of the stream.
    has_start: bool,
}

/// The window of the packet at hand.
pub(super) struct FreshPiece {
    key: Key,
    window: Window,
    fresh: usize,
    /// End of the packet's bytes: bytes that waited for them follow.
    end: usize,
    /// The window for the next packet, if a gap is behind the packet.
    behind_gap: Option<Window>,
    /// Whether the stream ends with the packet, or with the bytes that waited for it.
    is_last: bool,
}

impl FreshPiece {
    pub(super) fn window(&self) -> StreamWindow<'_> {
        let Window { bytes, has_start } = &self.window;
        StreamWindow { bytes: &bytes[..self.end], fresh: self.fresh, has_start: *has_start }
    }
}

impl StreamWindows {
    /// Windows of at most `room` connections.
    pub(super) fn new(room: usize) -> StreamWindows {
        let limits = Limits { connections: room, ..Limits::default() };
        StreamWindows { reassembler: Reassembler::new(limits), windows: HashMap::new() }
    }

    /// Takes a packet. Returns its new bytes joined to the previous ones, to be [put back](Self::put_back)
    /// afterwards.
    pub(super) fn take(&mut self, headers: &Headers, packet: Packet<'_>) -> Option<FreshPiece> {
        let StreamWindows { reassembler, windows } = self;
        let mut taken = None;
        reassembler.push(headers, packet, &mut |stream, event| {
            let key = (stream.connection, stream.is_from_client);
            if let Some(taken) = taken.as_mut().filter(|taken: &&mut FreshPiece| taken.key == key) {
                taken.follow(&event);
                return;
            }
            match event {
                Event::Segment(piece) if !piece.bytes().is_empty() => {
                    let has_start = stream.has_syn && stream.offset == 0;
                    let window =
                        windows.entry(key).or_insert_with(|| Window { bytes: Vec::new(), has_start });
                    let fresh = window.bytes.len();
                    window.bytes.extend_from_slice(piece.bytes());
                    match piece.is_current && fresh > 0 {
                        true => {
                            taken = windows.remove(&key).map(|window| FreshPiece {
                                key,
                                end: window.bytes.len(),
                                window,
                                fresh,
                                behind_gap: None,
                                is_last: false,
                            })
                        }
                        false => window.trim(),
                    }
                }
                Event::Segment(_) | Event::Forgotten => {}
                Event::Gap { .. } => _ = windows.insert(key, Window::default()),
                Event::End(_) => _ = windows.remove(&key),
            }
        });
        taken
    }

    /// Keeps the end of a window for the next packet.
    pub(super) fn put_back(&mut self, piece: FreshPiece) {
        if !piece.is_last {
            let mut window = piece.behind_gap.unwrap_or(piece.window);
            window.trim();
            self.windows.insert(piece.key, window);
        }
    }
}

impl FreshPiece {
    /// An event of the same stream, by the same packet: bytes that waited for it, a gap, the end.
    fn follow(&mut self, event: &Event<'_>) {
        match event {
            Event::Segment(piece) => {
                let window = self.behind_gap.as_mut().unwrap_or(&mut self.window);
                window.bytes.extend_from_slice(piece.bytes());
            }
            Event::Gap { .. } => self.behind_gap = Some(Window::default()),
            Event::End(_) => self.is_last = true,
            Event::Forgotten => {}
        }
    }
}

impl Window {
    fn trim(&mut self) {
        if let Some(beyond) = self.bytes.len().checked_sub(KEPT).filter(|beyond| *beyond > 0) {
            self.bytes.drain(..beyond);
            self.has_start = false;
        }
        // After a segment of up to 64 KiB, which offloads put together.
        if self.bytes.capacity() > 4 * KEPT {
            self.bytes.shrink_to(2 * KEPT);
        }
    }
}
