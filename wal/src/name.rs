//! Where everything lies in a log's directory, and which names are ours.

use std::path::{Path, PathBuf};

use crate::lsn::Lsn;

/// The places in a log's directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    pub(crate) wal: PathBuf,
    pub(crate) snap: PathBuf,
    pub(crate) archive: PathBuf,
    pub(crate) quarantine: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            wal: root.join("wal"),
            snap: root.join("snap"),
            archive: root.join("archive"),
            quarantine: root.join("quarantine"),
        }
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
        [self.wal.clone(), self.snap.clone(), self.archive.clone(), self.quarantine.clone()]
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

    pub(crate) fn snapshot(&self, lsn: Lsn) -> PathBuf {
        self.snap.join(format!("{:020}.snap", lsn.0))
    }

    /// A snapshot that is still being written; deleted when a log is opened.
    pub(crate) fn unfinished_snapshot(&self, lsn: Lsn) -> PathBuf {
        self.snap.join(format!("{:020}.tmp", lsn.0))
    }

    pub(crate) fn archived_segment(&self, first: Lsn, last: Lsn) -> PathBuf {
        self.archive.join(format!("{:020}-{:020}.wal.zst", first.0, last.0))
    }

    pub(crate) fn archived_snapshot(&self, lsn: Lsn) -> PathBuf {
        self.archive.join(format!("{:020}.snap.zst", lsn.0))
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
        name.strip_suffix(".wal").and_then(lsn_in).map_or(Self::Foreign, Self::Segment)
    }
}

/// What a name in `snap/` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotName {
    Snapshot(Lsn),
    Temporary,
    Foreign,
}

impl SnapshotName {
    /// Strict, as [`Name::parse`].
    pub(crate) fn parse(name: &str) -> Self {
        if name.ends_with(".tmp") {
            return Self::Temporary;
        }
        name.strip_suffix(".snap").and_then(lsn_in).map_or(Self::Foreign, Self::Snapshot)
    }
}

/// What a name in `archive/` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveName {
    Segment(Lsn, Lsn),
    Snapshot(Lsn),
    Temporary,
    Foreign,
}

impl ArchiveName {
    /// Strict, as [`Name::parse`].
    pub(crate) fn parse(name: &str) -> Self {
        if name.ends_with(".tmp") {
            return Self::Temporary;
        }
        if let Some(lsn) = name.strip_suffix(".snap.zst").and_then(lsn_in) {
            return Self::Snapshot(lsn);
        }
        let range = name.strip_suffix(".wal.zst").and_then(|range| range.split_once('-'));
        let range = range.and_then(|(first, last)| Some((lsn_in(first)?, lsn_in(last)?)));
        range.map_or(Self::Foreign, |(first, last)| Self::Segment(first, last))
    }
}

/// Twenty digits.
fn lsn_in(digits: &str) -> Option<Lsn> {
    let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_ours.then(|| digits.parse().ok().map(Lsn)).flatten()
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
        assert_eq!(SnapshotName::parse("00000000000000000042.snap"), SnapshotName::Snapshot(Lsn(42)));
        assert_eq!(SnapshotName::parse("00000000000000000042.wal"), SnapshotName::Foreign);
        let segment = "00000000000000000001-00000000000000000042.wal.zst";
        assert_eq!(ArchiveName::parse(segment), ArchiveName::Segment(Lsn(1), Lsn(42)));
        assert_eq!(ArchiveName::parse("00000000000000000042.snap.zst"), ArchiveName::Snapshot(Lsn(42)));
        assert_eq!(ArchiveName::parse("notes.txt"), ArchiveName::Foreign);
    }
}
