#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("ring_reader"), |data: &[u8]| tapline_fuzz::ring_reader(data));
