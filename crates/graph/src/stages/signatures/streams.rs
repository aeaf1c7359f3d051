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

/// Windows of all streams.
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
    /// The stream ends with the packet.
    is_last: bool,
}

impl FreshPiece {
    pub(super) fn window(&self) -> StreamWindow<'_> {
        StreamWindow { bytes: &self.window.bytes, fresh: self.fresh, has_start: self.window.has_start }
    }
}

impl StreamWindows {
    /// Windows of at most `room` connections.
    pub(super) fn new(room: usize) -> StreamWindows {
        let limits = Limits { connections: room, ..Limits::default() };
        StreamWindows { reassembler: Reassembler::new(limits), windows: HashMap::new() }
    }

    /// Takes a packet. What it adds to bytes that came before is given, to be [put back](Self::put_back) afterwards.
    pub(super) fn take(&mut self, headers: &Headers, packet: Packet<'_>) -> Option<FreshPiece> {
        let StreamWindows { reassembler, windows } = self;
        let mut taken = None;
        reassembler.push(headers, packet, &mut |stream, event| {
            let key = (stream.connection, stream.is_from_client);
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
                                window,
                                fresh,
                                is_last: false,
                            })
                        }
                        false => window.trim(),
                    }
                }
                Event::Segment(_) => {}
                Event::Gap { .. } => _ = windows.insert(key, Window::default()),
                Event::End(_) => {
                    windows.remove(&key);
                    if let Some(piece) = taken.as_mut().filter(|piece: &&mut FreshPiece| piece.key == key) {
                        piece.is_last = true;
                    }
                }
            }
        });
        taken
    }

    /// Keeps the end of a window for the next packet.
    pub(super) fn put_back(&mut self, mut piece: FreshPiece) {
        if !piece.is_last {
            piece.window.trim();
            self.windows.insert(piece.key, piece.window);
        }
    }
}

impl Window {
    fn trim(&mut self) {
        if let Some(beyond) = self.bytes.len().checked_sub(KEPT).filter(|beyond| *beyond > 0) {
            self.bytes.drain(..beyond);
            self.has_start = false;
        }
    }
}
