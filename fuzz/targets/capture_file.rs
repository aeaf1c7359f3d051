#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("capture_file"), |data: &[u8]| tapline_fuzz::capture_file(data));
