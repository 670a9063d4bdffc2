//! Any bytes as a record of the log: an error, or a record that is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| countwheel::fuzz::record(bytes));
