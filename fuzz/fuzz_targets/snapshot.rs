//! Any bytes as chunks of a snapshot: refused, or a shard that opens and goes on.
#![no_main]

libfuzzer_sys::fuzz_target!(|chunks: &[u8]| countwheel::fuzz::snapshot(chunks));
