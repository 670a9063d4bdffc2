//! What reads: one schedule, listings, histories.

use crate::{
    engine::{Described, Engine},
    error::CallError,
    kernel::{
        id::ScheduleId,
        occurrence::{HistoryItem, State},
        schedule::Schedule,
        shard::ListingFilter,
        time::UnixMs,
    },
    shell::{
        ask::{Ask, HistoryQuery},
        paging,
    },
};

/// Which part of a history to show.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Only in this state.
    pub state: Option<State>,
    /// From this `scheduled_for` on.
    pub from: Option<UnixMs>,
    /// Before this `scheduled_for`.
    pub to: Option<UnixMs>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Opaque; `None` ends the listing. A page may be short while it is set.
    pub next_cursor: Option<String>,
}

impl Engine {
    /// Reads a schedule.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn schedule(&self, id: ScheduleId) -> Result<Described, CallError> {
        let schedule = self.read(id).await?;
        Ok(self.describe(schedule))
    }

    pub(super) async fn read(&self, id: ScheduleId) -> Result<Schedule, CallError> {
        let target = self.target(id);
        self.ask(self.shard_of(id), |reply| Ask::Read { target, reply }).await
    }

    /// Lists schedules, in an order that is stable. `limit` is 1 to 500.
    ///
    /// # Errors
    /// A cursor that is not one, or see [`CallError`].
    pub async fn schedules(
        &self,
        mut filter: ListingFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Schedule>, CallError> {
        let (shard, from) = paging::listing_place(cursor.as_deref())?;
        if shard >= self.shards() {
            return Ok(Page { items: Vec::new(), next_cursor: None });
        }
        if let Some(bound) = self.bound_tenant() {
            if filter.tenant.as_deref().is_some_and(|asked| asked != bound) {
                return Err(CallError::ForeignTenant);
            }
            filter.tenant = Some(bound.to_owned());
        }
        let limit = limit.clamp(1, 500);
        let page = self.ask(shard, |reply| Ask::List { filter, from, limit, reply }).await?;
        let next = match page.next_row {
            Some(row) => Some((shard, row)),
            None => Some((shard + 1, 0)).filter(|(shard, _)| *shard < self.shards()),
        };
        Ok(Page { items: page.schedules, next_cursor: next.map(paging::listing_cursor) })
    }

    /// A schedule's history, ascending by `scheduled_for`. `limit` is 1 to 500.
    ///
    /// # Errors
    /// A cursor that is not one, or see [`CallError`].
    pub async fn occurrences(
        &self,
        id: ScheduleId,
        filter: HistoryFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<HistoryItem>, CallError> {
        let after = paging::history_place(cursor.as_deref())?;
        let bounds = (filter.from.unwrap_or(UnixMs(i64::MIN)), filter.to.unwrap_or(UnixMs(i64::MAX)));
        let target = self.target(id);
        let query = HistoryQuery { target, state: filter.state, bounds, after, limit: limit.clamp(1, 500) };
        let page = self.ask(self.shard_of(id), |reply| Ask::History { query, reply }).await?;
        Ok(Page { items: page.items, next_cursor: page.next.map(paging::history_cursor) })
    }
}
