#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("tap_socket"), |data: &[u8]| tapline_fuzz::tap_socket(data));
