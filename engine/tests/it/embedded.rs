//! The engine as an embedder sees it, with the embedded queue.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    builder::SyncPolicy,
    engine::{HistoryFilter, Receipted},
    kernel::{
        calendar::Basis,
        occurrence::{HistoryItem, State},
        schedule::{RangeDisposition, ScheduleState},
        time::UnixMs,
    },
    shell::clock::Clock,
};

fn builder(dir: &std::path::Path) -> countwheel::Builder {
    Engine::builder(dir).shards(2).segment_bytes(1 << 20).snapshot_bytes(64 << 10).reserve_bytes(0).sync(SyncPolicy::Os)
}

const NOON: UnixMs = UnixMs(1_793_534_400_000);

#[tokio::test]
async fn a_one_off_is_taken_and_completed_and_stays_so_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path()).open().await.unwrap();
    let at = engine.now().plus(100);
    let made = engine.create(NewSchedule::at(at).tenant("acme").queue("mail").payload("hi")).await.unwrap();
    let mut worker = engine.worker("mail").await.unwrap();
    let run = worker.next().await.unwrap();
    assert!(engine.now() >= at, "it must not fire early");
    assert_eq!((run.payload(), run.scheduled_for(), run.tenant()), (&b"hi"[..], at, "acme"));
    run.complete().await.unwrap();
    let id = made.schedule.id;
    assert_eq!(engine.schedule(id).await.unwrap().schedule.state, ScheduleState::Completed);
    engine.stop().await.unwrap();

    let engine = builder(dir.path()).open().await.unwrap();
    let page = engine.occurrences(id, HistoryFilter::default(), 10, None).await.unwrap();
    let [HistoryItem::Occurrence(occurrence)] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!((occurrence.state, occurrence.scheduled_for), (State::Succeeded, at));
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_taken_and_not_completed_comes_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = builder(dir.path()).open().await.unwrap();
    engine.create(NewSchedule::at(engine.now().plus(50)).queue("mail")).await.unwrap();
    let taken = engine.worker("mail").await.unwrap().next().await.unwrap().occurrence_id();
    engine.stop().await.unwrap();

    let engine = builder(dir.path()).open().await.unwrap();
    let run = engine.worker("mail").await.unwrap().next().await.unwrap();
    assert_eq!(run.occurrence_id(), taken);
    run.complete().await.unwrap();
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_leaves_one_late_run_and_a_counted_range_of_misses() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock::standing(NOON));
    let engine = builder(dir.path()).clock(Arc::clone(&clock)).open().await.unwrap();
    let made = engine.create(NewSchedule::cron("* * * * *", "UTC").unwrap().queue("mail")).await.unwrap();
    assert_eq!(made.schedule.next[0], NOON.plus(60_000));
    engine.stop().await.unwrap();

    let clock = Arc::new(Clock::standing(NOON.plus(3_600_000 + 5_000)));
    let engine = builder(dir.path()).clock(clock).open().await.unwrap();
    let run = engine.worker("mail").await.unwrap().next().await.unwrap();
    assert_eq!(run.scheduled_for(), NOON.plus(3_600_000));
    run.complete().await.unwrap();
    let page = engine.occurrences(made.schedule.id, HistoryFilter::default(), 10, None).await.unwrap();
    let [HistoryItem::Range(missed), HistoryItem::Occurrence(ran)] = &page.items[..] else { panic!("{page:?}") };
    assert_eq!(missed.disposition, RangeDisposition::Missed);
    assert_eq!((missed.first, missed.last), (NOON.plus(60_000), NOON.plus(59 * 60_000)));
    assert_eq!(missed.count, 59);
    assert_eq!(ran.state, State::Succeeded);
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn an_interval_may_follow_the_end_or_the_claim_of_its_runs() {
    let (by_claim, by_end) = (Some(NOON.plus(120_000)), Some(NOON.plus(130_000)));
    for (basis, while_it_runs, after_it) in [(Basis::Completion, None, by_end), (Basis::Start, by_claim, by_claim)] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::standing(NOON));
        let engine = builder(dir.path()).clock(Arc::clone(&clock)).open().await.unwrap();
        let minutely = NewSchedule::every(Duration::from_secs(60)).basis(basis).queue("mail");
        let id = engine.create(minutely).await.unwrap().schedule.id;
        clock.step(60_000, 60_000);
        let run = engine.worker("mail").await.unwrap().next().await.unwrap();
        assert_eq!(run.scheduled_for(), NOON.plus(60_000));
        clock.step(10_000, 10_000);
        assert_eq!(engine.schedule(id).await.unwrap().schedule.next_run_at, while_it_runs, "{basis:?}");
        run.complete().await.unwrap();
        assert_eq!(engine.schedule(id).await.unwrap().schedule.next_run_at, after_it, "{basis:?}");
        engine.stop().await.unwrap();

        let engine = builder(dir.path()).clock(clock).open().await.unwrap();
        assert_eq!(engine.schedule(id).await.unwrap().schedule.next_run_at, after_it, "{basis:?} after a restart");
        engine.stop().await.unwrap();
    }
}

#[tokio::test]
async fn canceling_ends_what_is_ahead_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock::standing(NOON));
    let engine = builder(dir.path()).clock(Arc::clone(&clock)).open().await.unwrap();
    let made = engine.create(NewSchedule::every(Duration::from_secs(1)).queue("mail")).await.unwrap();
    let id = made.schedule.id;
    // The next second is within the lead: it has an occurrence already.
    while engine.occurrences(id, HistoryFilter::default(), 10, None).await.unwrap().items.is_empty() {
        tokio::task::yield_now().await;
    }
    let Receipted { schedule, receipt } = engine.cancel(id).await.unwrap();
    assert_eq!(schedule.state, ScheduleState::Canceled);
    assert!(!receipt.canceled.is_empty() && receipt.kept.is_empty(), "{receipt:?}");
    assert_eq!(schedule.next_run_at, None);
    let Receipted { schedule: again, receipt: empty } = engine.cancel(id).await.unwrap();
    assert_eq!((again.version, empty.canceled.len()), (schedule.version, 0));
    engine.stop().await.unwrap();
}
