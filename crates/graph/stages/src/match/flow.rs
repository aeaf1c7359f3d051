//! Patterns across the packets of a flow.
//!
//! ```text
//! TCP      SYN: a stream begins | next number as expected: its next piece | behind a gap: bytes are skipped, nothing matches across them
//!          a number that was before: searched alone; of what reaches beyond, the new bytes are the next piece
//! others   packet after packet, as they come
//! ```

use tapline_packet::Packet;
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::numbers::ip_protocol::TCP;
use tapline_search::{Patterns, StreamState};

use super::super::recent::Recent;

/// The protocol number of TCP. A number that is so far before the expected one is not a repetition: the flow goes on
/// there.
const JUMP_MIN: i32 = 1 << 24;
const FLAG_SYN: u8 = 0x02;
const FLAG_FIN: u8 = 0x01;

/// The streams of flows, one for each direction.
pub(super) struct Flows(Recent<FiveTuple, Flow>);

#[derive(Default)]
struct Flow {
    stream: StreamState,
    /// The sequence number of the next byte, once one is known.
    next: Option<u32>,
}

/// The payload that a packet adds to its flow.
struct Piece<'p> {
    /// TCP's sequence number of the first byte, and whether the flow begins here.
    sequence: Option<(u32, bool)>,
    bytes: &'p [u8],
    /// Bytes of the payload that were not captured.
    missing: u32,
    /// FIN takes a number.
    after: u32,
}

impl Flows {
    /// Remembers the last `room` for certain.
    pub(super) fn new(room: usize) -> Flows {
        Flows(Recent::new(room))
    }

    /// Searches a packet, and the data that it completes: each found pattern, and its start in the flow. `None` if
    /// the packet belongs to no flow.
    pub(super) fn search(
        &mut self,
        patterns: &Patterns,
        headers: &Headers,
        packet: Packet<'_>,
        found: impl FnMut(u32, u64),
    ) -> Option<()> {
        let tuple = headers.five_tuple(packet.data).filter(|_| headers.fragment().is_none())?;
        let piece = Piece::of(headers, tuple.protocol, packet)?;
        self.0.of(tuple, Flow::default).take(patterns, &piece, found);
        Some(())
    }
}

impl<'p> Piece<'p> {
    fn of(headers: &Headers, protocol: u8, packet: Packet<'p>) -> Option<Piece<'p>> {
        let data = packet.data;
        let end = headers.ip_end().min(data.len());
        let start = headers.payload()?.min(end);
        let missing = packet.meta.wire_len.saturating_sub(data.len() as u32);
        let header = headers.l4().and_then(|at| data.get(at..at + 14)).filter(|_| protocol == TCP);
        let mut piece = Piece { sequence: None, bytes: &data[start..end], missing, after: 0 };
        if let Some(header) = header {
            let is_begin = header[13] & FLAG_SYN != 0;
            let number = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            // SYN takes a number, before the first byte.
            piece.sequence = Some((number.wrapping_add(is_begin.into()), is_begin));
            piece.after = (header[13] & FLAG_FIN).into();
        }
        Some(piece)
    }
}

impl Flow {
    fn take(&mut self, patterns: &Patterns, piece: &Piece<'_>, mut found: impl FnMut(u32, u64)) {
        let mut bytes = piece.bytes;
        if let Some((number, is_begin)) = piece.sequence {
            if is_begin {
                *self = Flow::default();
            }
            let ahead = number.wrapping_sub(self.next.unwrap_or(number)) as i32;
            if ahead < 0 && ahead > -JUMP_MIN {
                bytes = self.repeated(patterns, bytes, ahead.unsigned_abs(), &mut found);
            } else {
                self.skip(ahead.unsigned_abs());
            }
            let end = number.wrapping_add(piece.bytes.len() as u32 + piece.missing + piece.after);
            let is_further =
                ahead <= -JUMP_MIN || self.next.is_none_or(|next| end.wrapping_sub(next) as i32 > 0);
            if !is_further {
                return;
            }
            self.next = Some(end);
        }
        self.stream.push(patterns, bytes, |each| found(each.id, each.start));
        self.skip(piece.missing);
    }

    /// Bytes of which the first `old` were there before, or are behind them: searched alone, as they may have come
    /// late. Returns the new ones.
    fn repeated<'b>(
        &self,
        patterns: &Patterns,
        bytes: &'b [u8],
        old: u32,
        found: &mut impl FnMut(u32, u64),
    ) -> &'b [u8] {
        let origin = self.stream.position().saturating_sub(old.into());
        patterns.for_each(bytes, |each| {
            // Matches that begin in the new bytes are found when these are searched.
            if each.start < old as usize {
                found(each.id, origin + each.start as u64);
            }
        });
        bytes.get(old as usize..).unwrap_or_default()
    }

    /// Skips bytes that were lost or not captured.
    fn skip(&mut self, bytes: u32) {
        if bytes > 0 {
            self.stream.skip(bytes.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::{LinkType, Meta};
    use tapline_search::Pattern;
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
    use tapline_testkit::random::Random;

    const FLAG_ACK: u8 = 0x10;

    fn frame(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (a, b) = (Host::number(1), Host::number(2));
        let ips = IpPair::between(&a, &b, IpVersion::V4);
        let tcp = Tcp { src: 1024, dst: 80, seq: sequence, flags, ..Tcp::default() };
        let mut frame = Ethernet::between(&a, &b).ip(&tcp.packet(ips, payload));
        // Padding of the link is not payload.
        frame.resize(frame.len().max(60), b'x');
        frame
    }

    /// Offsets at which `needle` begins, in the order in which they are found; `cut` bytes of each frame are not
    /// captured.
    fn found(frames: &[Vec<u8>], cut: usize) -> Vec<u64> {
        let patterns = Patterns::new(vec![Pattern::new(1, "needle")]).unwrap();
        let mut flows = Flows::new(10);
        let mut all = Vec::new();
        for frame in frames {
            let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
            let packet = Packet { data: &frame[..frame.len() - cut], meta: &meta };
            let headers = Headers::parse(LinkType::ETHERNET, packet);
            flows.search(&patterns, &headers, packet, |_, at| all.push(at)).expect("it has a flow");
        }
        all
    }

    #[test]
    fn segments_in_order_are_one_text() {
        let syn = frame(u32::MAX - 3, FLAG_SYN, b"");
        let [one, two, three] = [(u32::MAX - 2, "hay nee"), (4, "d"), (5, "le.needle")]
            .map(|(number, text)| frame(number, FLAG_ACK, text.as_bytes()));
        assert_eq!(found(&[syn.clone(), one.clone(), two.clone(), three.clone()], 0), [4, 11]);
        let again = [syn.clone(), one.clone(), two.clone(), two.clone(), one.clone(), three.clone()];
        assert_eq!(found(&again, 0), [4, 11], "sent twice");
        assert_eq!(found(&[one, three.clone()], 0), [11], "a byte is missing");
        assert_eq!(found(&[syn, three], 0), [11]);
    }

    #[test]
    fn overlapping_segments_are_searched_once() {
        let frames = [(100, "hay nee"), (104, "needle, and"), (100, "a needle late")]
            .map(|(number, text)| frame(number, FLAG_ACK, text.as_bytes()));
        assert_eq!(found(&frames, 0), [4, 4, 2]);
    }

    #[test]
    fn bytes_that_were_not_captured_match_nothing() {
        let frames = [(100, "aaaaaaaaaaaaaaaaaaaanee"), (123, "dleaaaaaaaaaaaaaaaaaneedle12")]
            .map(|(number, text)| frame(number, FLAG_ACK, text.as_bytes()));
        assert_eq!(found(&frames, 0), [20, 43]);
        assert_eq!(found(&frames, 2), [43]);
    }

    #[test]
    fn a_number_out_of_all_bounds_begins_anew() {
        let frames = [(100, "nee"), (0x7000_0000, "x"), (103, "nee"), (106, "dle")]
            .map(|(number, text)| frame(number, FLAG_ACK, text.as_bytes()));
        assert_eq!(found(&frames, 0).len(), 1);
    }

    /// However a text is cut into segments, and whichever are sent again, the needles are found where they are.
    #[test]
    fn any_segmentation_gives_the_same_matches() {
        let mut random = Random::new(3);
        for round in 0..300 {
            let text: Vec<u8> = (0..400).map(|_| b"nedl"[random.below(4) as usize]).collect();
            let mut text = text;
            for at in [17, 200, 390] {
                text[at..at + 6].copy_from_slice(b"needle");
            }
            let start = random.below(1 << 32) as u32;
            let (mut frames, mut at) = (Vec::new(), 0);
            while at < text.len() {
                let begin =
                    if random.one_of(1, 3) { at.saturating_sub(random.below(20) as usize) } else { at };
                let end = (at + 1 + random.below(30) as usize).min(text.len());
                frames.push(frame(start.wrapping_add(begin as u32), FLAG_ACK, &text[begin..end]));
                at = end;
            }
            let mut places = found(&frames, 0);
            places.sort_unstable();
            places.dedup();
            let wanted: Vec<u64> =
                (0..text.len() as u64).filter(|at| text[*at as usize..].starts_with(b"needle")).collect();
            assert_eq!(places, wanted, "round {round}");
        }
    }
}
