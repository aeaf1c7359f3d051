#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("pattern_search"), |data: &[u8]| tapline_fuzz::pattern_search(data));
