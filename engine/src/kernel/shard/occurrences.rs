//! The table of occurrences: rows addressed by their growing number, in pages that go when all their rows are gone.

use std::collections::VecDeque;

use super::{by_id::ById, snapshot::cut::Cut};
use crate::kernel::{
    id::{Kind, OccurrenceId},
    occurrence::{EntryId, Lane, OccurrenceNo, QueueNo, Reason, State, Stream},
    time::UnixMs,
};

/// Rows a page: few enough that a straggler holds little, many enough that pages are cheap to find.
const PAGE_ROWS: u64 = 1_024;
/// Pages between the oldest row and the newest: 68 thousand million occurrences.
const MAX_PAGES: u64 = 1 << 26;

/// One occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OccurrenceRow {
    pub(super) id: OccurrenceId,
    pub(super) schedule: u32,
    pub(super) version: u32,
    pub(super) tenant: u32,
    pub(super) queue: u32,
    pub(super) kind: Kind,
    pub(super) scheduled_for: UnixMs,
    pub(super) available_at: UnixMs,
    /// When the queue first accepted it...
    pub(super) enqueued_at: Option<UnixMs>,
    /// ...and when the entry that it has now, if it has one: what is tried again is accepted again.
    pub(super) entry_at: UnixMs,
    pub(super) entry: Option<EntryId>,
    pub(super) state: State,
    /// Whether its queue followed what workers do with it when it was made; otherwise ENQUEUED is its end.
    pub(super) is_tracked: bool,
    /// Consumers acknowledged it without a claim: it is done, whatever the queue loses.
    pub(super) is_settled: bool,
    pub(super) reason: Option<Reason>,
    pub(super) lane: Lane,
    /// Not in the log: what was handed over when a process died is found out by reading the queue back. Changed by
    /// [`Occurrences::hold`] alone.
    pub(super) holder: Holder,
    /// Neighbours in its schedule's history.
    pub(super) older: Option<OccurrenceNo>,
    pub(super) newer: Option<OccurrenceNo>,
}

impl OccurrenceRow {
    /// Where it stands in its schedule's history.
    pub(super) const fn place(&self) -> (UnixMs, OccurrenceId) {
        (self.scheduled_for, self.id)
    }

    /// Where it goes.
    pub(super) const fn stream(&self) -> Stream {
        Stream { queue: QueueNo(self.queue), lane: self.lane }
    }
}

/// Who moves an occurrence on. An occurrence that is listed in several places is only where its holder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// It has landed or ended, or is still being replayed.
    Nobody,
    /// The outbox, until its instant; then it is judged for lateness.
    Outbox,
    /// The line of what is not judged again: admitted late, tried again, or sent again.
    Line,
    /// The shard, since the stream takes nothing: it goes back to where it waited when the queue is ready again.
    Withheld,
    /// The queue, which has not answered yet.
    Queue,
    /// The queue, which has not answered yet, though a worker has claimed it meanwhile.
    Claimed,
    /// The lobby, until a run of its schedule ends or its tenant may run one more.
    Lobby,
}

impl Holder {
    const fn is_queue(self) -> bool {
        matches!(self, Self::Queue | Self::Claimed)
    }
}

#[derive(Debug)]
struct Page {
    rows: Vec<Option<OccurrenceRow>>,
    live: u32,
}

/// All occurrences that are not yet forgotten.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    pages: VecDeque<Option<Page>>,
    cut: Option<Cut<OccurrenceNo>>,
    /// The page number of `pages[0]`.
    first_page: u64,
    next: u64,
    len: usize,
    by_id: ById,
    /// How many the queue holds and has not answered for, by lane.
    handed_over: [usize; Lane::ALL.len()],
}

impl Occurrences {
    /// The number that the next occurrence gets.
    pub(super) const fn next(&self) -> OccurrenceNo {
        OccurrenceNo(self.next)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, row: OccurrenceRow) -> OccurrenceNo {
        let number = OccurrenceNo(self.next);
        self.by_id.insert(row.id, number);
        if self.next.is_multiple_of(PAGE_ROWS) {
            self.pages.push_back(Some(Page { rows: Vec::with_capacity(PAGE_ROWS as usize), live: 0 }));
        }
        let page = self.pages.back_mut().and_then(Option::as_mut).expect("the page being filled is never dropped");
        page.rows.push(Some(row));
        page.live += 1;
        self.next += 1;
        self.len += 1;
        number
    }

    /// The occurrence that has this id.
    pub(super) fn number(&self, id: OccurrenceId) -> Option<OccurrenceNo> {
        self.by_id.find(id, |number| self.row(number).is_some_and(|row| row.id == id))
    }

    fn page_index(&self, number: OccurrenceNo) -> Option<usize> {
        usize::try_from((number.0 / PAGE_ROWS).checked_sub(self.first_page)?).ok()
    }

    pub(super) fn row(&self, number: OccurrenceNo) -> Option<&OccurrenceRow> {
        row_in(&self.pages, self.first_page, number)
    }

    pub(super) fn row_mut(&mut self, number: OccurrenceNo) -> Option<&mut OccurrenceRow> {
        self.keep(number);
        self.row_in_place(number)
    }

    /// For what is in no image.
    fn row_in_place(&mut self, number: OccurrenceNo) -> Option<&mut OccurrenceRow> {
        let index = self.page_index(number)?;
        let page = self.pages.get_mut(index)?.as_mut()?;
        page.rows.get_mut((number.0 % PAGE_ROWS) as usize)?.as_mut()
    }

    /// Gives an occurrence to another holder.
    pub(super) fn hold(&mut self, number: OccurrenceNo, holder: Holder) {
        let Some(row) = self.row_in_place(number) else { return };
        let (lane, before) = (row.lane as usize, std::mem::replace(&mut row.holder, holder));
        self.handed_over[lane] -= usize::from(before.is_queue());
        self.handed_over[lane] += usize::from(holder.is_queue());
    }

    /// How many were handed over and are not answered for, in the order of [`Lane::ALL`].
    pub(super) const fn handed_over(&self) -> [usize; Lane::ALL.len()] {
        self.handed_over
    }

    /// Forgets a row; its page goes with the last one.
    pub(super) fn remove(&mut self, number: OccurrenceNo) -> Option<OccurrenceRow> {
        self.keep(number);
        let index = self.page_index(number)?;
        let slot = self.pages.get_mut(index)?;
        let page = slot.as_mut()?;
        let row = page.rows.get_mut((number.0 % PAGE_ROWS) as usize)?.take()?;
        page.live -= 1;
        self.len -= 1;
        self.handed_over[row.lane as usize] -= usize::from(row.holder.is_queue());
        self.by_id.remove(row.id, number);
        if page.live == 0 && page.rows.len() as u64 == PAGE_ROWS {
            *slot = None;
            while self.pages.front().is_some_and(Option::is_none) {
                self.pages.pop_front();
                self.first_page += 1;
            }
        }
        Some(row)
    }

    /// All rows, oldest number first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (OccurrenceNo, &OccurrenceRow)> {
        let first_page = self.first_page;
        self.pages.iter().enumerate().filter_map(|(i, page)| Some((i, page.as_ref()?))).flat_map(move |(i, page)| {
            let first = (first_page + i as u64) * PAGE_ROWS;
            let rows = page.rows.iter().enumerate();
            rows.filter_map(move |(r, row)| Some((OccurrenceNo(first + r as u64), row.as_ref()?)))
        })
    }

    pub(super) fn set_cut(&mut self, cut: Option<Cut<OccurrenceNo>>) {
        self.cut = cut;
    }

    fn keep(&mut self, number: OccurrenceNo) {
        if let Some(cut) = &mut self.cut {
            cut.keep(number, row_in(&self.pages, self.first_page, number));
        }
    }

    /// Appends the image of the next row of the cut; false at its end.
    pub(super) fn sweep(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let from = OccurrenceNo(cut.reached().map_or(0, |reached| reached.0 + 1));
        let live = first_from(&self.pages, self.first_page, from).filter(|(number, _)| cut.is_ahead(*number));
        let is_more = cut.sweep(live, out);
        if !is_more {
            self.cut = None;
        }
        is_more
    }

    /// Puts a row back under the number that it had; false if that does not follow the one before.
    pub(super) fn restore(&mut self, number: OccurrenceNo, row: OccurrenceRow) -> bool {
        if number.0 < self.next || self.number(row.id).is_some() || !self.skip_to(number) {
            return false;
        }
        self.push(row);
        true
    }

    /// Numbers up to this were given to occurrences that are forgotten; false if it is out of reach.
    pub(super) fn skip_to(&mut self, number: OccurrenceNo) -> bool {
        let page = number.0 / PAGE_ROWS;
        let is_first = self.pages.is_empty();
        if is_first {
            self.first_page = page;
        }
        let pages = page.checked_sub(self.first_page).filter(|pages| *pages <= MAX_PAGES);
        let (Some(pages), true) = (pages.and_then(|pages| usize::try_from(pages).ok()), number.0 >= self.next) else {
            return false;
        };
        // The page that was being filled ends here, and goes if nothing is in it.
        if self.pages.len() <= pages && !is_first {
            self.close_page();
        }
        while self.pages.len() < pages {
            self.pages.push_back(None);
        }
        let place = usize::try_from(number.0 % PAGE_ROWS).expect("a page is small");
        if self.pages.len() == pages && place > 0 {
            self.pages.push_back(Some(Page { rows: Vec::with_capacity(PAGE_ROWS as usize), live: 0 }));
        }
        if self.pages.len() > pages
            && let Some(Some(page)) = self.pages.back_mut()
        {
            page.rows.resize_with(place, || None);
        }
        self.next = number.0;
        true
    }

    fn close_page(&mut self) {
        if let Some(last) = self.pages.back_mut()
            && let Some(page) = last
        {
            page.rows.resize_with(PAGE_ROWS as usize, || None);
            if page.live == 0 {
                *last = None;
            }
        }
    }
}

fn row_in(pages: &VecDeque<Option<Page>>, first_page: u64, number: OccurrenceNo) -> Option<&OccurrenceRow> {
    let index = usize::try_from((number.0 / PAGE_ROWS).checked_sub(first_page)?).ok()?;
    pages.get(index)?.as_ref()?.rows.get((number.0 % PAGE_ROWS) as usize)?.as_ref()
}

/// The first row from a number on.
fn first_from(
    pages: &VecDeque<Option<Page>>,
    first_page: u64,
    from: OccurrenceNo,
) -> Option<(OccurrenceNo, &OccurrenceRow)> {
    let skipped = (from.0 / PAGE_ROWS).saturating_sub(first_page);
    for (page, number) in pages.iter().skip(usize::try_from(skipped).ok()?).zip(first_page + skipped..) {
        let place = from.0.saturating_sub(number * PAGE_ROWS);
        let rows = page.as_ref().and_then(|page| page.rows.get(usize::try_from(place).ok()?..)).unwrap_or_default();
        if let Some((row, behind)) = rows.iter().zip(0_u64..).find_map(|(row, behind)| Some((row.as_ref()?, behind))) {
            return Some((OccurrenceNo(number * PAGE_ROWS + place + behind), row));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::ScheduleId;

    fn row(at: i64) -> OccurrenceRow {
        OccurrenceRow {
            id: OccurrenceId::of(ScheduleId([0; 16]), 1, UnixMs(at), Kind::Regular, b""),
            schedule: 0,
            version: 1,
            tenant: 0,
            queue: 0,
            kind: Kind::Regular,
            scheduled_for: UnixMs(at),
            available_at: UnixMs(at),
            enqueued_at: None,
            entry_at: UnixMs::MIN,
            entry: None,
            state: State::Scheduled,
            is_tracked: true,
            is_settled: false,
            reason: None,
            lane: Lane::Strict,
            holder: Holder::Nobody,
            older: None,
            newer: None,
        }
    }

    #[test]
    fn a_page_goes_with_its_last_row_and_numbers_never_come_again() {
        let mut table = Occurrences::default();
        for at in 0..3_000 {
            assert_eq!(table.push(row(at)), OccurrenceNo(at.unsigned_abs()));
        }
        assert!(table.remove(OccurrenceNo(1_500)).is_some());
        assert!(table.remove(OccurrenceNo(1_500)).is_none());
        for number in 0..2_048 {
            table.remove(OccurrenceNo(number));
        }
        assert_eq!((table.pages.len(), table.first_page, table.len()), (1, 2, 952));
        assert_eq!(table.row(OccurrenceNo(5)), None);
        assert_eq!(table.row(OccurrenceNo(2_500)).map(|r| r.scheduled_for), Some(UnixMs(2_500)));
        assert_eq!(table.iter().next().map(|(number, _)| number), Some(OccurrenceNo(2_048)));
        for number in 2_048..3_000 {
            table.remove(OccurrenceNo(number));
        }
        assert_eq!(table.push(row(0)), OccurrenceNo(3_000), "a page that is still being filled stays");
    }
}
