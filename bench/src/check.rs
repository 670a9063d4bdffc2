//! What was delivered against what should have been: absent, twice, early, or never asked for.

use countwheel::kernel::id::OccurrenceId;

/// How a delivery differs from what was expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// Expected and not there.
    pub(crate) absent: u64,
    /// There once more than once.
    pub(crate) duplicates: u64,
    /// There and not expected.
    pub(crate) unexpected: u64,
}

/// Compares ids in any order.
pub(crate) fn compare(mut expected: Vec<OccurrenceId>, mut delivered: Vec<OccurrenceId>) -> Differences {
    expected.sort_unstable();
    delivered.sort_unstable();
    let mut differences = Differences::default();
    let before = delivered.len();
    delivered.dedup();
    differences.duplicates = (before - delivered.len()) as u64;
    let mut delivered = delivered.into_iter().peekable();
    for id in expected {
        while delivered.next_if(|&other| other < id).is_some() {
            differences.unexpected += 1;
        }
        if delivered.next_if_eq(&id).is_none() {
            differences.absent += 1;
        }
    }
    differences.unexpected += delivered.count() as u64;
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[u8]) -> Vec<OccurrenceId> {
        of.iter().map(|&byte| OccurrenceId([byte; 16])).collect()
    }

    #[test]
    fn every_kind_of_difference_is_counted_for_itself() {
        let found = compare(ids(&[5, 1, 2, 9]), ids(&[2, 0, 5, 5, 5, 10]));
        assert_eq!(found, Differences { absent: 2, duplicates: 2, unexpected: 2 });
        assert_eq!(compare(ids(&[2, 1]), ids(&[1, 2])), Differences::default());
        assert_eq!(compare(ids(&[1]), Vec::new()).absent, 1);
    }
}
