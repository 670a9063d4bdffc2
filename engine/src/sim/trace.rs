//! What happened, as one number: two runs of a seed that differ anywhere differ here.

use std::fmt::Arguments;

use crate::kernel::record::Record;

/// A running hash of everything that happened (FNV-1a), printed as it happens if somebody wants to see it.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    hash: u64,
    is_shown: bool,
    text: String,
}

impl Trace {
    pub(super) const fn new(is_shown: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, is_shown, text: String::new() }
    }

    pub(super) fn note(&mut self, at_ms: u64, what: Arguments<'_>) {
        use std::fmt::Write as _;
        self.text.clear();
        let _ = write!(self.text, "{at_ms} {what}");
        if self.is_shown {
            println!("{}", self.text);
        }
        for byte in self.text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Prints a log, if somebody wants to see it.
    pub(super) fn show(&self, past: &[(u8, Vec<u8>)]) {
        for (number, (kind, body)) in past.iter().enumerate().filter(|_| self.is_shown) {
            println!("record {} {:?}", number + 1, Record::decode(*kind, body));
        }
    }

    pub(super) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }
}
