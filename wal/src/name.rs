//! Where everything lies in a log's directory, and which names are ours.

use std::path::{Path, PathBuf};

use crate::lsn::Lsn;

/// The places in a log's directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    pub(crate) wal: PathBuf,
    pub(crate) quarantine: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), wal: root.join("wal"), quarantine: root.join("quarantine") }
    }

    pub(crate) fn identity(&self) -> PathBuf {
        self.root.join("IDENTITY")
    }

    /// The file whose space is given up when the disk is full.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// The directories below the root, in the order in which they are made.
    pub(crate) fn directories(&self) -> [PathBuf; 4] {
        [self.wal.clone(), self.root.join("snap"), self.root.join("archive"), self.quarantine.clone()]
    }

    pub(crate) fn segment(&self, first_lsn: Lsn) -> PathBuf {
        self.wal.join(format!("{:020}.wal", first_lsn.0))
    }

    /// A segment that is still being made; deleted when a log is opened.
    pub(crate) fn unfinished(&self, first_lsn: Lsn) -> PathBuf {
        self.wal.join(format!("{:020}.tmp", first_lsn.0))
    }

    pub(crate) fn spare(&self, number: u64) -> PathBuf {
        self.wal.join(format!("spare-{number}.tmp"))
    }

    /// Bytes cut off the segment at `first_lsn`; the checksum keeps two cuts at one place apart.
    pub(crate) fn cut(&self, first_lsn: Lsn, offset: u64, crc: u32) -> PathBuf {
        self.quarantine.join(format!("{:020}-{offset:010}-{crc:08x}.cut", first_lsn.0))
    }
}

/// What a name in `wal/` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(Lsn),
    Temporary,
    Foreign,
}

impl Name {
    /// Strict: twenty digits and `.wal`, or anything that ends in `.tmp`.
    pub(crate) fn parse(name: &str) -> Self {
        if name.ends_with(".tmp") {
            return Self::Temporary;
        }
        let digits = match name.strip_suffix(".wal") {
            Some(digits) if digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()) => digits,
            _ => return Self::Foreign,
        };
        digits.parse().map_or(Self::Foreign, |lsn| Self::Segment(Lsn(lsn)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_segments() {
        assert_eq!(Name::parse("00000000000000000042.wal"), Name::Segment(Lsn(42)));
        assert_eq!(Name::parse("spare-1.tmp"), Name::Temporary);
        for name in
            ["42.wal", "0000000000000000004x.wal", "+0000000000000000042.wal", "99999999999999999999.wal", ".wal"]
        {
            assert_eq!(Name::parse(name), Name::Foreign, "{name}");
        }
    }
}
