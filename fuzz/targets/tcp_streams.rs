#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("tcp_streams"), |data: &[u8]| tapline_fuzz::tcp_streams(data));
