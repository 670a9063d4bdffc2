//! Cursors of listings: opaque to callers, checked when they come back.

use crate::{
    error::{Refusal, RefusalCode},
    kernel::{id::OccurrenceId, occurrence::OccurrenceNo, shard::PilePlace, time::UnixMs},
};

/// Where a listing of schedules goes on: shard and row.
pub(crate) fn listing_cursor((shard, row): (usize, u32)) -> String {
    format!("{shard:x}.{row:x}")
}

pub(crate) fn listing_place(cursor: Option<&str>) -> Result<(usize, u32), Refusal> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let parse = || {
        let (shard, row) = cursor.split_once('.')?;
        Some((usize::from_str_radix(shard, 16).ok()?, u32::from_str_radix(row, 16).ok()?))
    };
    parse().ok_or_else(|| refused(cursor))
}

/// Where a history goes on: behind this instant and id.
pub(crate) fn history_cursor((at, id): (UnixMs, OccurrenceId)) -> String {
    format!("{:x}.{id}", at.0)
}

pub(crate) fn history_place(cursor: Option<&str>) -> Result<Option<(UnixMs, OccurrenceId)>, Refusal> {
    let Some(cursor) = cursor else { return Ok(None) };
    let parse = || {
        let (at, id) = cursor.split_once('.')?;
        Some((UnixMs(i64::from_str_radix(at, 16).ok()?), id.parse().ok()?))
    };
    parse().map(Some).ok_or_else(|| refused(cursor))
}

/// Where a list of what is DEAD or HELD goes on: shard, and behind which.
pub(crate) fn pile_cursor((shard, after): (usize, Option<PilePlace>)) -> String {
    let after = after.map(|PilePlace { tenant, at, number }| format!("{tenant:x}.{:x}.{:x}", at.0, number.0));
    format!("{shard:x}.{}", after.unwrap_or_default())
}

pub(crate) fn pile_place(cursor: Option<&str>, shards: usize) -> Result<(usize, Option<PilePlace>), Refusal> {
    let Some(cursor) = cursor else { return Ok((0, None)) };
    let parse = || {
        let (shard, after) = cursor.split_once('.')?;
        let shard = usize::from_str_radix(shard, 16).ok()?;
        if after.is_empty() {
            return Some((shard, None));
        }
        let mut parts = after.split('.');
        let tenant = u32::from_str_radix(parts.next()?, 16).ok()?;
        let at = UnixMs(i64::from_str_radix(parts.next()?, 16).ok()?);
        let number = OccurrenceNo(u64::from_str_radix(parts.next()?, 16).ok()?);
        parts.next().is_none().then_some((shard, Some(PilePlace { tenant, at, number })))
    };
    parse().filter(|(shard, _)| *shard < shards).ok_or_else(|| refused(cursor))
}

fn refused(cursor: &str) -> Refusal {
    let shown: String = cursor.chars().take(80).filter(|c| !c.is_control()).collect();
    let message = format!("cursor {shown:?} is not one that a page gave: pass next_cursor as it was, or leave it out");
    Refusal::new(RefusalCode::Invalid, "cursor", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_anything_else_is_refused() {
        assert_eq!(listing_place(Some(&listing_cursor((3, 77)))), Ok((3, 77)));
        assert_eq!(listing_place(None), Ok((0, 0)));
        let place = (UnixMs(1_793_511_000_000), OccurrenceId([9; 16]));
        assert_eq!(history_place(Some(&history_cursor(place))), Ok(Some(place)));
        let behind = PilePlace { tenant: 3, at: UnixMs(1_793_511_000_000), number: OccurrenceNo(77) };
        for place in [(2, None), (0, Some(behind))] {
            assert_eq!(pile_place(Some(&pile_cursor(place)), 3), Ok(place));
        }
        assert!(pile_place(Some(&pile_cursor((3, None))), 3).is_err(), "there is no such shard");
        for bad in ["", "1", "x.y", "1.2.3", "zz.00000000-0000-0000-0000-000000000000", "\u{1f}"] {
            assert!(listing_place(Some(bad)).is_err(), "{bad:?}");
            assert!(pile_place(Some(bad), 3).is_err(), "{bad:?}");
            assert_eq!(history_place(Some(bad)).unwrap_err().field, "cursor", "{bad:?}");
        }
    }
}
