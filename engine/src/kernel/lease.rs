//! Lease tokens: which claim a worker holds. Within a shard they only grow, so a later claim always has the larger one.

use std::{fmt, str::FromStr};

use super::gate::Lsn;

/// A claim's token: 24 hex digits that route the call to its shard (4) and sort by age within it (20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The shard that granted it.
    pub shard: u16,
    /// The record that granted it...
    pub lsn: Lsn,
    /// ...and its place among the claims of that record.
    pub index: u16,
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}{:016x}{:04x}", self.shard, self.lsn.0, self.index)
    }
}

/// Text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease token has 24 hex digits: give it as the claim answered it")]
pub struct NoLeaseToken;

impl FromStr for LeaseToken {
    type Err = NoLeaseToken;

    fn from_str(text: &str) -> Result<Self, NoLeaseToken> {
        let is_plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 24 || !text.bytes().all(is_plain) {
            return Err(NoLeaseToken);
        }
        let number = |from: usize, to: usize| u64::from_str_radix(&text[from..to], 16).map_err(|_| NoLeaseToken);
        let short = |n: u64| u16::try_from(n).map_err(|_| NoLeaseToken);
        Ok(Self { shard: short(number(0, 4)?)?, lsn: Lsn(number(4, 20)?), index: short(number(20, 24)?)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_anything_else_is_none() {
        let token = LeaseToken { shard: 3, lsn: Lsn(0x1234_5678_9abc), index: 999 };
        assert_eq!(token.to_string(), "00030000123456789abc03e7");
        assert_eq!(token.to_string().parse(), Ok(token));
        for bad in ["", "0003", "00030000123456789ABC03E7", "+0030000123456789abc03e7", "00030000123456789abc03e70"] {
            assert_eq!(bad.parse::<LeaseToken>(), Err(NoLeaseToken), "{bad:?}");
        }
        assert_eq!("0003000012345678\u{e4}bc03e7".parse::<LeaseToken>(), Err(NoLeaseToken));
    }

    #[test]
    fn a_later_claim_has_the_larger_token() {
        let token = |lsn, index| LeaseToken { shard: 1, lsn: Lsn(lsn), index };
        assert!(token(9, 999) < token(10, 0) && token(10, 0) < token(10, 1));
        assert!(token(9, 999).to_string() < token(10, 0).to_string());
    }
}
