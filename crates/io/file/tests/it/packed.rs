//! Packed files as other programs write them, and cut, mutated, or joined.

use std::io::Write;

use crate::samples::{Bytes, Noise, mutate, read};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use tapline_file::ByteOrder;
use tapline_testkit::volume::volume;

/// A frame that decoders of zstd and lz4 pass over.
fn skippable(len: usize) -> Vec<u8> {
    [&[0x53, 0x2a, 0x4d, 0x18], &(len as u32).to_le_bytes()[..], &vec![7; len]].concat()
}

/// A capture of packets that end in zeros, as a block that is not packed then does, and where each packet ends.
fn capture() -> Bytes {
    let mut file = Bytes::new(ByteOrder::NATIVE);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 1000, 1);
    let mut noise = Noise(77);
    for i in 0..40 {
        let mut data: Vec<u8> = (0..50 + i).map(|_| noise.below(256) as u8).collect();
        data.extend([0; 8]);
        file.pcap_record((1_700_000_000, i as u32), data.len() as u32, &[], &data);
    }
    file
}

fn gzip(pieces: &[&[u8]]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for piece in pieces {
        packer.write_all(piece).unwrap();
        packer.flush().unwrap();
    }
    packer.finish().unwrap()
}

fn zstd(pieces: &[&[u8]]) -> Vec<u8> {
    let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for piece in pieces {
        packer.write_all(piece).unwrap();
        packer.flush().unwrap();
    }
    packer.finish().unwrap()
}

fn lz4(info: FrameInfo, pieces: &[&[u8]]) -> Vec<u8> {
    let mut packer = FrameEncoder::with_frame_info(info, Vec::new());
    for piece in pieces {
        packer.write_all(piece).unwrap();
        packer.flush().unwrap();
    }
    packer.finish().unwrap()
}

/// The stream in all forms: its name, and its frames.
fn forms(pieces: &[&[u8]]) -> Vec<(&'static str, Vec<u8>)> {
    let info = || FrameInfo::new().block_size(BlockSize::Max64KB);
    let sums = || info().block_checksums(true).content_checksum(true);
    vec![
        ("gzip", gzip(pieces)),
        ("zstd", zstd(pieces)),
        ("lz4", lz4(info(), pieces)),
        ("lz4 linked", lz4(info().block_mode(BlockMode::Linked), pieces)),
        ("lz4 checksums", lz4(sums(), pieces)),
        ("lz4 linked checksums", lz4(sums().block_mode(BlockMode::Linked), pieces)),
    ]
}

/// A packed file that is cut anywhere is reported as cut, and all packets before the cut are lent.
#[test]
fn every_cut_of_a_packed_file_is_told() {
    let file = capture();
    let whole = read(&file.bytes).packets;
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut from = 0;
    for &end in file.packet_ends.iter().step_by(3) {
        pieces.push(&file.bytes[from..end]);
        from = end;
    }
    pieces.push(&file.bytes[from..]);
    for (name, packed) in forms(&pieces) {
        assert_eq!(read(&packed).packets.len(), whole.len(), "{name}");
        for cut in 0..packed.len() {
            let found = read(&packed[..cut]);
            assert!(found.error.is_some(), "{name} cut at {cut} of {}", packed.len());
            assert!(whole.starts_with(&found.packets), "{name} cut at {cut}");
        }
    }
}

#[test]
fn frames_follow_each_other_in_any_way() {
    let file = capture();
    let whole = read(&file.bytes).packets;
    let (a, b) = file.bytes.split_at(file.bytes.len() / 2);
    let nothing = forms(&[]);
    for (index, (name, first)) in forms(&[a]).into_iter().enumerate() {
        let second = forms(&[b]).swap_remove(index).1;
        let empty = &nothing[index].1;
        let mut streams =
            vec![[&first[..], &second].concat(), [empty, &first[..], empty, &second, empty].concat()];
        if name != "gzip" {
            let skip = skippable;
            streams.extend([
                [&skip(0)[..], &first, &second].concat(),
                [&skip(12)[..], &first, &skip(12), &second, &skip(100_000)].concat(),
                [&skip(3)[..], &skip(70_000), &first, &skip(1), &skip(2), &second].concat(),
            ]);
        }
        for (number, stream) in streams.iter().enumerate() {
            let found = read(stream);
            assert!(found.error.is_none(), "{name} {number}: {:?}", found.error);
            assert_eq!(found.packets, whole, "{name} {number}");
        }
    }
}

/// Bytes behind the last frame are reported, once all packets have come.
#[test]
fn bytes_behind_the_last_frame_are_told() {
    let file = capture();
    for (name, packed) in forms(&[&file.bytes]) {
        for behind in [&b"garbage, of some length"[..], &[0; 20], &skippable(9)[..10], &skippable(9)[..3]] {
            let found = read(&[&packed, behind].concat());
            assert_eq!(found.packets.len(), 40, "{name} {behind:?}");
            assert!(found.error.is_some(), "{name} {behind:?}");
        }
    }
    for alone in [skippable(5), skippable(5)[..7].to_vec(), [skippable(5), b"no frame".to_vec()].concat()] {
        assert!(read(&alone).error.is_some());
    }
}

#[test]
fn mutated_packed_files_end_in_packets_or_an_error() {
    let file = capture();
    let forms = forms(&[&file.bytes[..1000], &file.bytes[1000..]]);
    for seed in 1..=volume("TAPLINE_FILE_MUTATIONS", 2_000) {
        let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = forms[noise.below(forms.len())].1.clone();
        if noise.below(4) == 0 {
            bytes.splice(0..0, skippable(noise.below(30)));
        }
        mutate(&mut bytes, &mut noise);
        let found = read(&bytes);
        assert!(found.packets.len() < 100_000, "seed {seed}");
    }
}
