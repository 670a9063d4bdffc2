//! Any bytes as a rule and a window: the laws of the calendar hold, and what is shown is consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| countwheel::fuzz::preview(bytes));
