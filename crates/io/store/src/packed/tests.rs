//! Chunks that are compressed and unpacked again, whole and damaged.

use tapline_packet::{Interface, LinkType, Meta, Packet, Timestamp};
use tapline_testkit::random::Random;

use super::*;
use crate::chunk::{ChunkBuilder, is_intact, seal};

/// Bytes of a packet: noise, or as many of one kind.
fn data(random: &mut Random, len: usize, is_noise: bool) -> Vec<u8> {
    let kind = random.below(256) as u8;
    (0..len).map(|_| if is_noise { random.below(256) as u8 } else { kind }).collect()
}

/// A finished chunk of packets that fill `share` hundredths of a slot, not compressed yet.
fn chunk(random: &mut Random, share: usize, is_noise: bool) -> (ChunkBuffer, ChunkHead) {
    let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
    let mut builder = ChunkBuilder::new(65_535).packed(true);
    builder.begin(ChunkBuffer::of_slot(), SLOT_LEN, &interfaces);
    let mut left = SLOT_LEN / 100 * share;
    loop {
        let len = 1 + random.below(4000) as usize;
        if !builder.fits(len, 0) || left < len {
            break;
        }
        left -= len;
        let meta = Meta { wire_len: len as u32, ..Meta::default() };
        builder.push(&Packet { data: &data(random, len, is_noise), meta: &meta }, &interfaces[0], &[]);
    }
    let (buffer, mut head) = builder.finish(&[], Timestamp::EPOCH);
    head.number = 1;
    (buffer, head)
}

/// The section of a chunk that is not compressed yet.
fn section_of(buffer: &ChunkBuffer) -> Vec<u8> {
    let bytes = buffer.bytes();
    [&bytes[..blocks::SECTION_HEADER_LEN], &bytes[CHUNK_HEAD_LEN..]].concat()
}

#[test]
fn a_section_is_unpacked_as_it_was_packed() {
    let mut random = Random::new(45);
    for level in [1, 3, 19] {
        let mut packer = Packer::new(level).unwrap();
        for share in [0, 1, 30, 100, 200] {
            for is_noise in [false, true] {
                let (mut buffer, mut head) = chunk(&mut random, share, is_noise);
                let whole = section_of(&buffer);
                packer.pack_buffer(&mut buffer, &mut head);
                let stored = head.stored_len();
                assert_eq!(buffer.len(), stored);
                assert!(stored <= head.len as usize && head.len as usize <= SLOT_LEN, "{head:?}");
                assert!(is_noise || share < 30 || stored < head.len as usize / 10, "{head:?}");
                seal(buffer.bytes_mut(), &head);
                let parsed = ChunkHead::parse(buffer.bytes()).unwrap();
                assert_eq!(parsed.packing, head.packing);
                assert!(is_intact(buffer.bytes(), &parsed) && buffer.is_aligned());
                assert!(section(buffer.bytes(), &parsed).unwrap() == whole, "{level} {share} {is_noise}");
            }
        }
    }
}

#[test]
fn a_stored_frame_is_a_frame_of_zstd() {
    let mut random = Random::new(46);
    for len in [1, 2, BLOCK_LEN_MAX - 1, BLOCK_LEN_MAX, BLOCK_LEN_MAX + 1, 3 * BLOCK_LEN_MAX] {
        let whole = data(&mut random, len, true);
        let mut frame = vec![7; 3];
        store(&whole, &mut frame);
        assert_eq!(frame.len(), frame_len_max(len));
        assert!(zstd::decode_all(&frame[..]).unwrap() == whole, "{len}");
        let mut packer = Packer::new(1).unwrap();
        packer.compress(&whole);
        assert!(packer.frame.len() <= frame_len_max(len), "{len}");
    }
}

#[test]
fn damaged_chunks_are_refused() {
    let mut random = Random::new(47);
    let mut packer = Packer::new(1).unwrap();
    let (mut buffer, mut head) = chunk(&mut random, 3, false);
    packer.pack_buffer(&mut buffer, &mut head);
    seal(buffer.bytes_mut(), &head);
    let good = buffer.bytes().to_vec();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << random.below(8);
        if let Some(head) = ChunkHead::parse(&bad) {
            let bytes = bad.get(..head.stored_len()).unwrap_or(&bad);
            assert!(!is_intact(bytes, &head), "{place}");
            // Whatever it gives, it is no more than a chunk.
            assert!(section(bytes, &head).is_none_or(|section| section.len() <= head.len as usize));
        }
    }
    for len in 0..good.len() {
        let head = ChunkHead::parse(&good[..len]);
        assert!(head.is_none_or(|head| !is_intact(&good[..len], &head)), "{len}");
    }
}

#[test]
fn frames_that_declare_too_much_are_refused() {
    let mut random = Random::new(48);
    let (_, mut head) = chunk(&mut random, 1, true);
    let mut packer = Packer::new(1).unwrap();
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let gibibytes = [&FRAME_MAGIC[..], &[0xe0], &(3_u64 << 30).to_le_bytes(), &[1, 0, 0]].concat();
    // A window of 2 GiB, no length, one empty block.
    let window = [&FRAME_MAGIC[..], &[0, 0xa8, 1, 0, 0]].concat();
    for frame in [zeros, gibibytes, vec![0; 40], FRAME_MAGIC.to_vec()] {
        packer.frame = frame;
        let mut bytes = Vec::new();
        packer.write(&mut bytes, &mut head, 0);
        assert!(section(&bytes, &head).is_none(), "{:?}", head.packing);
    }
    packer.frame = window;
    let mut bytes = Vec::new();
    packer.write(&mut bytes, &mut head, 0);
    // Without a window to keep, it is an empty section.
    assert!(section(&bytes, &head).is_none_or(|section| section.is_empty()));
    for (stored, frame) in
        [(0, 1), (4096, 0), (4096, 4000), (4096, u32::MAX), (4097, 1), (8192, 1), (u32::MAX, 1)]
    {
        assert!(!Packing { stored, frame }.fits(4096), "{stored} {frame}");
    }
    assert!(Packing { stored: 4096, frame: 3840 }.fits(4096));
}
