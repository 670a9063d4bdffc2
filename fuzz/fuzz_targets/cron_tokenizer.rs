//! Any bytes as a cron expression: a rule or a sentence, and croner always reads what was understood.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| countwheel::fuzz::cron_tokenizer(bytes));
