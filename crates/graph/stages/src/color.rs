//! Colours for lines on a terminal: time stamps are dimmed, and packets that often matter are highlighted.

const RESET: &[u8] = b"\x1b[0m";
const DIM: &[u8] = b"\x1b[2m";

/// Texts in a packet's first line, and the colours (SGR) that they give the line. The first match wins.
const MARKS: &[(&[u8], &[u8])] = &[
    (b"incorrect", b"\x1b[31m"),
    (b"[bad", b"\x1b[31m"),
    (b"Flags [R", b"\x1b[31m"),
    (b"unreachable", b"\x1b[33m"),
    (b"Flags [S", b"\x1b[32m"),
    (b"Flags [F", b"\x1b[35m"),
    (b"ICMP", b"\x1b[33m"),
    (b"ARP", b"\x1b[36m"),
    (b"UDP", b"\x1b[34m"),
];

/// Colours the packet that has its text from `start` to the end of `buffer`.
pub(super) fn paint(buffer: &mut Vec<u8>, start: usize) {
    let end = buffer[start..].iter().position(|&byte| byte == b'\n').map_or(buffer.len(), |at| start + at);
    let time_end = buffer[start..end].iter().position(|&byte| byte == b' ').map_or(start, |at| start + at);
    let mark = MARKS.iter().find(|(word, _)| contains(&buffer[start..end], word)).map(|(_, sgr)| *sgr);
    if let Some(sgr) = mark {
        insert(buffer, end, RESET);
        insert(buffer, time_end, sgr);
    }
    insert(buffer, time_end, RESET);
    insert(buffer, start, DIM);
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}

fn insert(buffer: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    buffer.splice(at..at, bytes.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_itself_stays() {
        let line = b"12:00:00.000001 IP 10.0.0.1.80 > 10.0.0.2.99: Flags [R], length 0\n\t0x0000: 4500\n";
        let mut painted = b"before\n".to_vec();
        painted.extend_from_slice(line);
        paint(&mut painted, 7);
        let text = String::from_utf8(painted).unwrap();
        assert!(text.contains("\x1b[2m12:00:00.000001\x1b[0m\x1b[31m IP"), "{text:?}");
        let plain = ["\x1b[2m", "\x1b[0m", "\x1b[31m"].iter().fold(text, |text, sgr| text.replace(sgr, ""));
        assert_eq!(plain.as_bytes()[7..], *line);
    }
}
