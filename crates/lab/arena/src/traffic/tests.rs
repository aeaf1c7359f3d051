use super::*;

fn first(seed: u64, count: usize) -> Vec<TimedFrame> {
    Traffic::new(seed).take(count).collect()
}

#[test]
fn a_seed_gives_the_same_frames() {
    assert_eq!(first(1, 2000), first(1, 2000));
    assert_ne!(first(1, 100), first(2, 100));
}

#[test]
fn times_ascend() {
    let frames = first(3, 20_000);
    assert!(frames.is_sorted_by_key(|(at, _)| *at));
}

#[test]
fn frames_fit_every_interface() {
    for (_, frame) in first(4, 20_000) {
        assert!((14..=FRAME_MAX).contains(&frame.len()), "{} bytes", frame.len());
        let is_tagged = frame[12..14] == [0x81, 0x00];
        assert!(frame.len() <= 1514 || is_tagged, "{} bytes, untagged", frame.len());
    }
}

#[test]
fn small_and_full_frames_both_abound() {
    let frames = first(5, 10_000);
    let small = frames.iter().filter(|(_, frame)| frame.len() < 128).count();
    let full = frames.iter().filter(|(_, frame)| frame.len() > 1400).count();
    assert!(small > 2_000 && full > 2_000, "{small} small, {full} full");
}

#[test]
fn every_kind_of_link_payload_comes_up() {
    let mut missing = vec![0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847, 0x8864];
    for (_, frame) in Traffic::new(6).take(200_000) {
        let found = u16::from_be_bytes([frame[12], frame[13]]);
        missing.retain(|kind| *kind != found);
        if missing.is_empty() {
            return;
        }
    }
    panic!("no frame of types {missing:#06x?}");
}
