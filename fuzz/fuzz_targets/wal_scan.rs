//! Any bytes as a segment of the write-ahead log: the scan ends, within them.
//!
//! Start it from the golden segments:
//! `cargo fuzz run wal_scan fuzz/corpus/wal_scan wal/tests/golden/v1 -- -max_len=65536`.

#![no_main]

use countwheel_wal::fuzz::scan_bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    scan_bytes(bytes);
});
