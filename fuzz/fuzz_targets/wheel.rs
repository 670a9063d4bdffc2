//! Bytes as calls of the timing wheel, against a sorted map.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| countwheel::kernel::wheel::check_against_model(script));
