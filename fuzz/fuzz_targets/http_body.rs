//! Any bytes as the body of a request: understood, or refused with a code, a sentence and the field.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| countwheel::fuzz::http_body(bytes));
