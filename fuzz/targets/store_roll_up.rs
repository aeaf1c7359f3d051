#![no_main]

mod seeds;

libfuzzer_sys::fuzz_target!(init: seeds::write_if_asked("store_roll_up"), |data: &[u8]| tapline_fuzz::store_roll_up(data));
