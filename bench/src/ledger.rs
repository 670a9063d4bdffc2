//! What the engine itself says of each occurrence: whether it was enqueued, and when.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine,
    engine::HistoryFilter,
    error::CallError,
    kernel::{
        id::{OccurrenceId, ScheduleId},
        occurrence::{HistoryItem, Occurrence},
    },
};

use crate::{error::BenchError, rules::Made};

/// How many schedules are asked for at once.
const CALLERS: usize = 64;

/// The history of many schedules.
#[derive(Default)]
pub(crate) struct Ledger {
    /// What was enqueued.
    pub(crate) enqueued: Vec<OccurrenceId>,
    /// `enqueued_at - available_at` of each, in nanoseconds; the engine stamps whole milliseconds.
    pub(crate) lags_ns: Vec<i64>,
    /// How many of them were enqueued before they were available.
    pub(crate) early: u64,
}

impl Ledger {
    fn enter(&mut self, occurrence: &Occurrence) {
        let Some(at) = occurrence.enqueued_at else { return };
        let lag_ms = at.since(occurrence.available_at);
        self.enqueued.push(occurrence.id);
        self.lags_ns.push(lag_ms * 1_000_000);
        self.early += u64::from(lag_ms < 0);
    }

    fn add(&mut self, other: Self) {
        self.enqueued.extend(other.enqueued);
        self.lags_ns.extend(other.lags_ns);
        self.early += other.early;
    }
}

/// Asks for every occurrence of these schedules.
pub(crate) async fn read(engine: &Engine, schedules: &[Made]) -> Result<Ledger, BenchError> {
    let schedules: Arc<[Made]> = schedules.into();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (engine, schedules) = (engine.clone(), Arc::clone(&schedules));
        callers.spawn(async move {
            let mut ledger = Ledger::default();
            for made in schedules.iter().skip(caller).step_by(CALLERS) {
                read_one(&engine, made.id, &mut ledger).await?;
            }
            Ok::<_, CallError>(ledger)
        });
    }
    let mut all = Ledger::default();
    while let Some(ledger) = callers.join_next().await {
        all.add(ledger.map_err(|error| BenchError::Ended(error.to_string()))??);
    }
    Ok(all)
}

async fn read_one(engine: &Engine, id: ScheduleId, ledger: &mut Ledger) -> Result<(), CallError> {
    let mut cursor = None;
    loop {
        let page = match engine.occurrences(id, HistoryFilter::default(), 500, cursor.clone()).await {
            Err(CallError::Overloaded) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            page => page?,
        };
        for item in &page.items {
            if let HistoryItem::Occurrence(occurrence) = item {
                ledger.enter(occurrence);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
