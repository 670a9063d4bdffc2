//! Any bytes as a snapshot of the log: reading ends, within them.
//!
//! `cargo fuzz run wal_snapshot -- -max_len=65536`.

#![no_main]

use countwheel_wal::fuzz::snapshot_bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    snapshot_bytes(bytes);
});
