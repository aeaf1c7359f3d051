#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("engines"), |data: &[u8]| tapline_fuzz::engines(data));
