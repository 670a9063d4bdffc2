//! Any bytes as what happens to a shard: it keeps its promises.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| countwheel::fuzz::kernel(bytes));
