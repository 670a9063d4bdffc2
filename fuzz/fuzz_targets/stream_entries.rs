//! Any bytes as what stands in a stream: understood, or nonsense.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| countwheel::fuzz::stream_entries(bytes));
