//! The law of the reader of SIP, SDP and RTP.

use tapline_dissect::rtp::{Header, Stream};
use tapline_dissect::sip::{self, FORMATS_MAX, MEDIA_MAX, Message};

/// What a message says lies within it; descriptions give a bounded number of media; a stream never lost more packets
/// than were sent, whatever its numbers are.
///
/// ```text
/// input := message | packets of 12 bytes
/// ```
pub fn sip(data: &[u8]) {
    if let Some(message) = Message::parse(data) {
        for text in [message.call_id, message.from, message.to, message.method] {
            assert!(text.len() < data.len(), "a value is longer than its message");
        }
        media_are_bounded(message.sdp.unwrap_or_default());
    }
    media_are_bounded(&String::from_utf8_lossy(data));
    numbers_add_up(data);
}

fn media_are_bounded(sdp: &str) {
    let mut count = 0;
    sip::media(sdp, |media| {
        count += 1;
        assert!(media.formats().len() <= FORMATS_MAX && media.port > 0);
    });
    assert!(count <= MEDIA_MAX, "{count} media");
}

fn numbers_add_up(data: &[u8]) {
    let mut stream: Option<Stream> = None;
    for (number, packet) in (0..).zip(data.chunks_exact(12)) {
        let Some(header) = Header::parse(packet) else { continue };
        let time_ns = number * i64::from(packet[0]) * 1_000_000;
        match &mut stream {
            Some(stream) => stream.packet(&header, time_ns, u32::from(packet[1]) << (packet[2] % 16)),
            None => stream = Some(Stream::new(&header, time_ns)),
        }
    }
    if let Some(stream) = stream {
        assert!(stream.lost() <= stream.expected(), "more lost than sent");
        assert!(stream.duplicates() + stream.late() <= stream.received());
        assert!(stream.jitter_mean_ns() <= stream.jitter_max_ns());
    }
}

/// A call, and a stream whose numbers go round.
pub(crate) fn sip_seeds() -> Vec<Vec<u8>> {
    let call =
        b"INVITE sip:b@x SIP/2.0\r\nCall-ID: c1\r\nFrom: <sip:a@x>\r\nTo: <sip:b@x>\r\nCSeq: 1 INVITE\r\n\
        Content-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 4000 RTP/AVP 0 96\r\n\
        a=rtpmap:96 opus/48000/2\r\nm=video 5000 RTP/SAVPF 97\r\nc=IN IP6 ::1\r\n";
    let answer = b"SIP/2.0 200 OK\r\ni: c1\r\nf: a\r\nt: b\r\nCSeq: 2 BYE\r\n\r\n";
    let packets = |numbers: &[u16]| -> Vec<u8> {
        let packet =
            |number: &u16| [&[0x80, 0][..], &number.to_be_bytes(), &[0, 0, 0, 160, 0, 0, 0, 1]].concat();
        numbers.iter().flat_map(packet).collect()
    };
    let rounds = packets(&[65_534, 65_535, 0, 2, 1, 1, 40_000, 40_001, 3]);
    vec![call.to_vec(), answer.to_vec(), rounds]
}
