//! Random signatures and payloads: the detector finds the same as trying every choice of occurrences.

use tapline_signature::{Detector, Ruleset, Variables};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};
use tapline_testkit::random::Random;

use crate::packets::sids_by;

/// A content with its place, as the test understands it.
struct Piece {
    bytes: Vec<u8>,
    nocase: bool,
    is_negated: bool,
    place: Position,
}

enum Position {
    Absolute(usize, Option<usize>),
    Relative(i64, Option<usize>),
}

impl Piece {
    fn random(random: &mut Random, is_first: bool) -> Piece {
        let len = 1 + random.below(3) as usize;
        let bytes = (0..len).map(|_| b"abA"[random.below(3) as usize]).collect();
        let room = random.one_of(1, 2).then(|| len + random.below(6) as usize);
        let place = match is_first || random.one_of(1, 2) {
            true => Position::Absolute(random.below(5) as usize, room),
            false => Position::Relative(random.below(7) as i64 - 3, room),
        };
        Piece { bytes, nocase: random.one_of(1, 2), is_negated: !is_first && random.one_of(1, 4), place }
    }

    fn text(&self) -> String {
        let sign = if self.is_negated { "!" } else { "" };
        let mut text = format!("content:{sign}\"{}\"; ", String::from_utf8_lossy(&self.bytes));
        if self.nocase {
            text += "nocase; ";
        }
        match self.place {
            Position::Absolute(offset, depth) => {
                text += &format!("offset:{offset}; ");
                text += &depth.map_or(String::new(), |depth| format!("depth:{depth}; "));
            }
            Position::Relative(distance, within) => {
                text += &format!("distance:{distance}; ");
                text += &within.map_or(String::new(), |within| format!("within:{within}; "));
            }
        }
        text
    }

    /// Every place where the bytes lie whole inside of their area.
    fn places(&self, payload: &[u8], cursor: usize) -> Vec<usize> {
        let (start, room) = match self.place {
            Position::Absolute(offset, depth) => (offset as i64, depth),
            Position::Relative(distance, within) => ((cursor as i64 + distance).max(0), within),
        };
        let end = room.map_or(payload.len() as i64, |room| (start + room as i64).min(payload.len() as i64));
        let is_equal = |at: &i64| {
            let part = &payload[*at as usize..*at as usize + self.bytes.len()];
            if self.nocase { part.eq_ignore_ascii_case(&self.bytes) } else { part == self.bytes }
        };
        (start..=end - self.bytes.len() as i64).filter(is_equal).map(|at| at as usize).collect()
    }
}

fn fits(pieces: &[Piece], payload: &[u8], cursor: usize) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return true };
    let places = piece.places(payload, cursor);
    match piece.is_negated {
        true => places.is_empty() && fits(rest, payload, cursor),
        false => places.iter().any(|at| fits(rest, payload, at + piece.bytes.len())),
    }
}

#[test]
fn any_choice_of_occurrences_is_found() {
    let mut random = Random::new(7);
    let (a, b) = (Host::number(1), Host::number(2));
    let (mut fitting, mut differing) = (0, 0);
    for round in 0..200 {
        let signatures: Vec<Vec<Piece>> = (0..12)
            .map(|_| (0..1 + random.below(4)).map(|at| Piece::random(&mut random, at == 0)).collect())
            .collect();
        let lines = signatures.iter().zip(1..).map(|(pieces, sid)| {
            let options: String = pieces.iter().map(Piece::text).collect();
            format!("alert udp any any -> any any ({options}sid:{sid};)\n")
        });
        let rules: String = lines.collect();
        let ruleset = Ruleset::parse(rules.as_bytes(), Variables::default());
        assert_eq!(ruleset.refusals, [], "{rules}");
        let (mut detector, _) = Detector::new(ruleset).expect("it can be searched");
        let payloads: Vec<Vec<u8>> = (0..20)
            .map(|_| (0..random.below(14)).map(|_| b"abAB"[random.below(4) as usize]).collect())
            .collect();
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let frames: Vec<Vec<u8>> = payloads
            .iter()
            .map(|payload| Ethernet::between(&a, &b).ip(&Udp { src: 1, dst: 2 }.packet(pair, payload)))
            .collect();
        for (found, payload) in sids_by(&mut detector, &frames).iter().zip(&payloads) {
            let wanted: Vec<u32> = signatures
                .iter()
                .zip(1..)
                .filter(|(pieces, _)| fits(pieces, payload, 0))
                .map(|(_, sid)| sid)
                .collect();
            assert_eq!(
                *found,
                wanted,
                "round {round}, payload {:?}\n{rules}",
                payload.escape_ascii().to_string()
            );
            fitting += wanted.len();
            differing += signatures.len() - wanted.len();
        }
    }
    assert!(fitting > 2_000 && differing > 2_000, "{fitting} {differing}");
}
