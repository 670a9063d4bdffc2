//! What the engine says of the plan's schedules: their histories, each beside the instants that it must have.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::plan::{Plan, Planned, TENANT};
use crate::{
    engine::{Engine, HistoryFilter},
    error::CallError,
    kernel::{id::ScheduleId, occurrence::HistoryItem, schedule::Schedule, shard::ListingFilter, time::UnixMs},
};

/// How many items a page has.
const PAGE: usize = 500;
/// How many creates are under way at once: they share the syncs of the log.
const CREATES: usize = 64;

/// One schedule of the plan: what must be, and what is.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) row: &'static str,
    pub(crate) told: &'static str,
    pub(crate) name: String,
    pub(crate) expected: Vec<UnixMs>,
    pub(crate) history: Vec<HistoryItem>,
}

/// Makes what is not there yet; on return all of it is acknowledged.
pub(crate) async fn make_missing(engine: &Engine, plan: &Plan) -> Result<(), CallError> {
    let there = by_name(engine).await?;
    let missing = plan.planned.iter().filter(|planned| !there.contains_key(&planned.name));
    let creates = stream::iter(missing).map(|planned| engine.create(planned.new_schedule(plan.end_at)));
    creates.buffer_unordered(CREATES).map_ok(|_| ()).try_collect().await
}

/// All histories of the plan's schedules, in its order.
pub(crate) async fn lines(engine: &Engine, plan: &Plan) -> Result<Vec<Line>, CallError> {
    let there = by_name(engine).await?;
    let mut lines = Vec::with_capacity(plan.planned.len());
    for planned in &plan.planned {
        let history = match there.get(&planned.name) {
            Some(schedule) => history(engine, schedule.id).await?,
            None => Vec::new(),
        };
        lines.push(line(planned, there.get(&planned.name), plan, history));
    }
    Ok(lines)
}

/// A schedule that was acknowledged and is not there counts from the plan's beginning: all its instants are absent.
fn line(planned: &Planned, schedule: Option<&Schedule>, plan: &Plan, history: Vec<HistoryItem>) -> Line {
    let created_at = schedule.map_or(plan.from, |schedule| schedule.created_at);
    Line {
        row: planned.row,
        told: planned.told,
        name: planned.name.clone(),
        expected: planned.instants(created_at, plan.end_at),
        history,
    }
}

async fn by_name(engine: &Engine) -> Result<BTreeMap<String, Schedule>, CallError> {
    let filter = ListingFilter { tenant: Some(TENANT.to_owned()), ..ListingFilter::default() };
    let mut all = BTreeMap::new();
    let mut cursor = None;
    loop {
        let page = engine.schedules(filter.clone(), PAGE, cursor).await?;
        all.extend(page.items.into_iter().map(|schedule| (schedule.spec.name.clone().unwrap_or_default(), schedule)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

async fn history(engine: &Engine, id: ScheduleId) -> Result<Vec<HistoryItem>, CallError> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let page = engine.occurrences(id, HistoryFilter::default(), PAGE, cursor).await?;
        all.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}
