#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("store_files"), |data: &[u8]| tapline_fuzz::store_files(data));
