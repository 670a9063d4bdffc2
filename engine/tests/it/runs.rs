//! Runs as an embedder's workers live them, with the embedded queue and a clock that moves when told to.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    builder::SyncPolicy,
    engine::{
        Claim, ClaimedRun, Quotas, TenantSettings,
        runs::{CLAIM_BYTES, Decided, FailedRun, FailureClass, Pile, Resolution, Speaking},
    },
    error::{CallError, RunError},
    kernel::{
        evidence::{Decision, HoldReason},
        id::OccurrenceId,
        occurrence::{Occurrence, State},
        policy::{Misfire, Overlap},
        shard::ClaimRefusal,
        time::UnixMs,
    },
    shell::clock::Clock,
};

const NOON: UnixMs = UnixMs(1_793_534_400_000);
const QUEUE: &str = "mail";

struct Rig {
    engine: Engine,
    clock: Arc<Clock>,
    dir: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::standing(NOON));
        Self { engine: open(dir.path(), &clock).await, clock, dir }
    }

    async fn restart(self) -> Self {
        let Self { engine, clock, dir } = self;
        engine.stop().await.unwrap();
        Self { engine: open(dir.path(), &clock).await, clock, dir }
    }

    fn pass(&self, ms: i64) {
        self.clock.step(ms, ms);
    }

    /// Claims until there is something: what time brought is on its way.
    async fn claim(&self, max: usize) -> Vec<ClaimedRun> {
        let claim = Claim { max, wait: Duration::from_secs(20), ..Claim::new("w1") };
        let runs = self.engine.claim(QUEUE, &claim).await.unwrap();
        assert!(!runs.is_empty(), "nothing came");
        runs
    }

    async fn claim_one(&self) -> ClaimedRun {
        self.claim(1).await.remove(0)
    }

    /// Whatever is there at once.
    async fn claim_now(&self, max: usize) -> Vec<ClaimedRun> {
        self.engine.claim(QUEUE, &Claim { max, ..Claim::new("w2") }).await.unwrap()
    }

    async fn complete(&self, run: &ClaimedRun) -> Result<State, RunError> {
        self.engine.complete(vec![speak(run, None)]).await.unwrap().remove(0)
    }

    async fn fail(&self, run: &ClaimedRun, class: FailureClass) -> State {
        let said = FailedRun { class, message: Some("no route".into()) };
        self.engine.fail(vec![speak(run, said)]).await.unwrap().remove(0).unwrap().state
    }

    async fn occurrence(&self, id: OccurrenceId) -> Occurrence {
        self.engine.occurrence(id).await.unwrap()
    }

    /// Waits until an occurrence is so.
    async fn until(&self, id: OccurrenceId, state: State) -> Occurrence {
        for _ in 0..2_000 {
            let occurrence = self.occurrence(id).await;
            if occurrence.state == state {
                return occurrence;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?} is not {state:?}", self.occurrence(id).await);
    }
}

async fn open(dir: &std::path::Path, clock: &Arc<Clock>) -> Engine {
    let builder = Engine::builder(dir)
        .shards(2)
        .segment_bytes(1 << 20)
        .snapshot_bytes(64 << 10)
        .reserve_bytes(0)
        .sync(SyncPolicy::Os);
    builder.clock(Arc::clone(clock)).open().await.unwrap()
}

fn speak<Said>(run: &ClaimedRun, said: Said) -> Speaking<Said> {
    Speaking::new(run.occurrence_id, run.lease_token, said)
}

fn at(ms: i64) -> NewSchedule {
    NewSchedule::at(NOON.plus(ms)).tenant("acme").queue(QUEUE)
}

#[tokio::test]
async fn a_failed_run_comes_again_and_its_history_shows_both_attempts() {
    let rig = Rig::new().await;
    rig.engine.create(at(1_000)).await.unwrap();
    rig.pass(1_000);
    let first = rig.claim_one().await;
    assert_eq!((first.attempt, first.scheduled_for, first.deadline), (1, NOON.plus(1_000), None));
    assert_eq!(rig.fail(&first, FailureClass::Transient).await, State::RetryWait);
    assert_eq!(rig.fail(&first, FailureClass::Transient).await, State::RetryWait, "said twice");
    assert_eq!(rig.complete(&first).await, Err(RunError::StaleLease));
    assert_eq!(rig.claim_now(9).await, [], "it waits for its back-off");
    rig.pass(1_000);
    let second = rig.claim_one().await;
    assert_eq!((second.occurrence_id, second.attempt), (first.occurrence_id, 2));
    assert!(second.lease_token != first.lease_token);
    let done = Some("s3://results/7".to_owned());
    assert_eq!(rig.engine.complete(vec![speak(&second, done)]).await.unwrap(), [Ok(State::Succeeded)]);
    assert_eq!(rig.complete(&second).await, Err(RunError::StaleLease), "another result is another answer");
    let done = || speak(&second, Some("s3://results/7".to_owned()));
    let said = rig.engine.complete(vec![done(), done()]).await.unwrap();
    assert_eq!(said, [Ok(State::Succeeded), Ok(State::Succeeded)], "said again");
    let (evidence, _) = rig.engine.evidence(second.occurrence_id).await.unwrap();
    assert_eq!(evidence.attempt, Some(2), "there is no next one");
    let rig = rig.restart().await;
    let ended = rig.occurrence(first.occurrence_id).await;
    let told: Vec<_> = ended.attempts.iter().map(|a| (a.number, &*a.worker, a.message.as_deref())).collect();
    assert_eq!(told, [(1, "w1", Some("no route")), (2, "w1", None)]);
    assert_eq!(ended.attempts[1].result_ref.as_deref(), Some("s3://results/7"));
    assert_eq!((ended.state, ended.enqueued_at), (State::Succeeded, Some(NOON.plus(1_000))));
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_ends_makes_its_worker_s_answer_worthless() {
    let rig = Rig::new().await;
    rig.engine.create(at(1_000)).await.unwrap();
    rig.pass(1_000);
    let stalled = rig.claim_one().await;
    rig.pass(59_000);
    let beat = rig.engine.heartbeat(vec![speak(&stalled, 60_000)]).await.unwrap().remove(0).unwrap();
    assert_eq!((beat.lease_expires_at, beat.cancel_requested), (NOON.plus(120_000), false));
    rig.pass(60_000);
    assert_eq!(rig.complete(&stalled).await, Err(RunError::StaleLease), "over at its end");
    let beats = rig.engine.heartbeat(vec![speak(&stalled, 60_000)]).await.unwrap();
    assert_eq!(beats, [Err(RunError::StaleLease)]);
    rig.until(stalled.occurrence_id, State::RetryWait).await;
    rig.pass(1_000);
    let next = rig.claim_one().await;
    assert_eq!(next.attempt, 2);
    assert_eq!(rig.complete(&stalled).await, Err(RunError::StaleLease), "another one runs it");
    assert_eq!(rig.complete(&next).await, Ok(State::Succeeded));
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_restart_leaves_leases_of_other_processes_whole_and_ends_those_of_its_own() {
    let rig = Rig::new().await;
    for ms in [1_000, 1_001] {
        rig.engine.create(at(ms)).await.unwrap();
    }
    rig.pass(1_001);
    let outside = rig.claim_one().await;
    let inside = rig.engine.worker(QUEUE).await.unwrap().next().await.unwrap().occurrence_id();
    let rig = rig.restart().await;
    assert_eq!(rig.complete(&outside).await, Ok(State::Succeeded));
    let ended = rig.until(inside, State::RetryWait).await;
    assert_eq!(ended.attempts[0].result.map(|result| result.as_str()), Some("restarted"));
    rig.pass(1_000);
    let again = rig.claim_one().await;
    assert_eq!((again.occurrence_id, again.attempt), (inside, 2));
    assert_eq!(rig.complete(&again).await, Ok(State::Succeeded));
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_of_the_process_hears_that_it_is_to_stop() {
    let rig = Rig::new().await;
    let made = rig.engine.create(at(1_000)).await.unwrap();
    rig.pass(1_000);
    let mut worker = rig.engine.worker(QUEUE).await.unwrap();
    let run = worker.next().await.unwrap();
    assert!(!run.is_cancel_requested());
    let canceled = rig.engine.cancel(made.schedule.id).await.unwrap();
    assert_eq!(canceled.receipt.cancel_requested, [run.occurrence_id()]);
    tokio::time::timeout(Duration::from_secs(20), run.stop_requested()).await.expect("a heartbeat tells");
    assert!(run.is_cancel_requested() && run.heartbeat().await.unwrap().cancel_requested);
    let id = run.occurrence_id();
    run.fail(FailureClass::Canceled, "asked to").await.unwrap();
    assert_eq!(rig.occurrence(id).await.state, State::Canceled);
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_s_lease_lives_as_long_as_its_run() {
    let rig = Rig::new().await;
    rig.engine.create(at(1_000)).await.unwrap();
    rig.pass(1_000);
    let mut worker = rig.engine.worker(QUEUE).await.unwrap();
    let run = worker.next().await.unwrap();
    for _ in 0..10 {
        rig.pass(30_000);
        run.heartbeat().await.unwrap();
    }
    let id = run.occurrence_id();
    drop(run);
    rig.pass(61_000);
    rig.until(id, State::RetryWait).await;
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn many_workers_never_hold_one_occurrence_twice() {
    let rig = Rig::new().await;
    for n in 0..200 {
        rig.engine.create(at(1_000 + n % 7)).await.unwrap();
    }
    rig.pass(2_000);
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let engine = rig.engine.clone();
        workers.spawn(async move {
            let claim = Claim { max: 7, wait: Duration::from_millis(500), ..Claim::new(format!("w{n}")) };
            let mut mine = Vec::new();
            loop {
                let runs = engine.claim(QUEUE, &claim).await.unwrap();
                if runs.is_empty() {
                    return mine;
                }
                mine.extend(runs.iter().map(|run| run.occurrence_id));
                let done = runs.iter().map(|run| speak(run, None)).collect();
                assert!(engine.complete(done).await.unwrap().iter().all(|state| *state == Ok(State::Succeeded)));
            }
        });
    }
    let mut all: Vec<_> = workers.join_all().await.concat();
    assert_eq!(all.len(), 200);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 200);
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_that_is_repeated_under_its_id_gets_the_same_runs() {
    let rig = Rig::new().await;
    for ms in 1_000..1_010 {
        rig.engine.create(at(ms)).await.unwrap();
    }
    rig.pass(2_000);
    let claim = |worker: &str, id: &str| Claim {
        max: 2,
        wait: Duration::from_secs(20),
        claim_id: Some(id.to_owned()),
        ..Claim::new(worker)
    };
    let (one, two) = (claim("w1", "a"), claim("w1", "a"));
    let (first, again) = tokio::join!(rig.engine.claim(QUEUE, &one), rig.engine.claim(QUEUE, &two));
    let first = first.unwrap();
    assert_eq!(first, again.unwrap());
    assert!(!first.is_empty());
    for other in [claim("w1", "b"), claim("w2", "a")] {
        let runs = rig.engine.claim(QUEUE, &other).await.unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|run| !first.contains(run)), "another claim");
    }
    rig.pass(60_000);
    let later = rig.engine.claim(QUEUE, &one).await.unwrap();
    assert!(later.iter().all(|run| !first.contains(run)), "the leases are over");
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_claims_answer_has_a_limit_in_bytes_and_the_next_gets_the_rest() {
    let rig = Rig::new().await;
    let payload = vec![7; 64 << 10];
    for ms in 1_000..1_600 {
        rig.engine.create(at(ms).payload(payload.clone())).await.unwrap();
    }
    rig.pass(2_000);
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 600 * payload.len() {
        sizes.push(rig.claim(1_000).await.iter().map(|run| run.payload.len()).sum());
    }
    assert!(sizes.iter().all(|bytes| *bytes <= CLAIM_BYTES) && sizes.len() >= 5, "{sizes:?}");
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_claims_id_outlives_the_engine_and_follows_heartbeats() {
    let rig = Rig::new().await;
    for ms in 1_000..1_008 {
        rig.engine.create(at(ms)).await.unwrap();
    }
    rig.pass(2_000);
    let claim = Claim { max: 2, wait: Duration::from_secs(20), claim_id: Some("a".to_owned()), ..Claim::new("w1") };
    let first = rig.engine.claim(QUEUE, &claim).await.unwrap();
    rig.pass(59_000);
    for run in &first {
        let beat = Speaking { occurrence: run.occurrence_id, token: run.lease_token, said: 60_000 };
        rig.engine.heartbeat(vec![beat]).await.unwrap().remove(0).unwrap();
    }
    rig.pass(59_000);
    let tokens = |runs: &[ClaimedRun]| runs.iter().map(|run| run.lease_token).collect::<Vec<_>>();
    let again = rig.engine.claim(QUEUE, &claim).await.unwrap();
    assert_eq!(tokens(&again), tokens(&first));
    assert!(again[0].lease_expires_at > first[0].lease_expires_at, "as heartbeats made it");
    let rig = rig.restart().await;
    let mut after = rig.engine.claim(QUEUE, &claim).await.unwrap();
    assert_eq!(tokens(&after), tokens(&first));
    for (run, before) in after.iter_mut().zip(&first) {
        run.lease_expires_at = before.lease_expires_at;
    }
    assert_eq!(after, first, "the same in everything else");
    for run in &first {
        assert_eq!(rig.complete(run).await, Ok(State::Succeeded));
    }
    let other = rig.engine.claim(QUEUE, &claim).await.unwrap();
    assert!(!other.is_empty() && other.iter().all(|run| !tokens(&first).contains(&run.lease_token)), "it is over");
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_tenant_runs_no_more_than_it_may_over_all_shards() {
    let rig = Rig::new().await;
    let quotas = Quotas { concurrent_runs: Some(3), ..Quotas::default() };
    rig.engine.set_tenant("acme", TenantSettings { weight: 1, quotas }).await.unwrap();
    for ms in 1_000..1_012 {
        rig.engine.create(at(ms)).await.unwrap();
    }
    rig.engine.create(at(1_020).tenant("other")).await.unwrap();
    rig.pass(2_000);
    let mut running = Vec::new();
    while running.len() < 4 {
        running.extend(rig.claim(100).await);
    }
    assert_eq!(running.iter().filter(|run| run.tenant == "acme").count(), 3);
    assert_eq!(rig.claim_now(100).await, []);
    let rig = rig.restart().await;
    assert_eq!(rig.claim_now(100).await, [], "what runs still counts");
    let (mut done, mut claimed) = (0, 4);
    while let Some(run) = running.pop() {
        assert_eq!(rig.complete(&run).await, Ok(State::Succeeded));
        done += 1;
        if run.tenant == "acme" && claimed < 13 {
            let next = rig.claim(100).await;
            claimed += next.len();
            running.extend(next);
            assert!(running.iter().filter(|run| run.tenant == "acme").count() <= 3);
        }
    }
    assert_eq!(done, 13);
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn overlap_is_decided_between_real_runs() {
    let rig = Rig::new().await;
    let every = |overlap| NewSchedule::every(Duration::from_secs(10)).tenant("acme").queue(QUEUE).overlap(overlap);
    let skip = rig.engine.create(every(Overlap::SkipIfRunning)).await.unwrap().schedule.id;
    rig.pass(10_000);
    let first = rig.claim_one().await;
    rig.pass(10_000);
    rig.pass(10_000);
    let states = async |id| {
        let page = rig.engine.occurrences(id, Default::default(), 100, None).await.unwrap();
        let states = page.items.iter().map(|item| match item {
            countwheel::kernel::occurrence::HistoryItem::Occurrence(occurrence) => occurrence.state,
            range => panic!("{range:?}"),
        });
        states.filter(|state| *state != State::Scheduled).collect::<Vec<_>>()
    };
    while states(skip).await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(states(skip).await, [State::Running, State::SkippedOverlap, State::SkippedOverlap]);
    assert_eq!(rig.complete(&first).await, Ok(State::Succeeded));
    rig.engine.cancel(skip).await.unwrap();

    let queue_one = rig.engine.create(every(Overlap::QueueOne)).await.unwrap().schedule.id;
    rig.pass(10_000);
    let first = rig.claim_one().await;
    for _ in 0..3 {
        rig.pass(10_000);
    }
    while states(queue_one).await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rig.claim_now(9).await, [], "the first waits in the shard, the others are skipped");
    assert_eq!(rig.complete(&first).await, Ok(State::Succeeded));
    let second = rig.claim_one().await;
    assert_eq!(second.scheduled_for, first.scheduled_for.plus(10_000));
    assert_eq!(rig.complete(&second).await, Ok(State::Succeeded));
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn what_must_not_repeat_is_held_and_a_person_decides() {
    let rig = Rig::new().await;
    let grave = at(1_000).non_idempotent("ops").misfire(Misfire::Skip);
    rig.engine.create(grave).await.unwrap();
    rig.pass(1_000);
    let lost = rig.claim_one().await;
    rig.pass(60_000);
    let held = rig.until(lost.occurrence_id, State::Held).await;
    assert_eq!(held.holds, [HoldReason::LeaseExpiredOutcomeUnknown]);
    let (evidence, decision) = rig.engine.evidence(held.id).await.unwrap();
    assert_eq!(evidence.review_owner.as_deref(), Some("ops"));
    assert!(matches!(decision, Decision::Hold(_)), "{decision:?}");
    let pile = rig.engine.pile(Pile::Held, Some("acme"), 10, None).await.unwrap();
    assert!(pile.items.iter().chain(&rest(&rig, Pile::Held, pile.next_cursor.clone()).await).any(|o| o.id == held.id));
    let late = rig.engine.complete(vec![speak(&lost, Some("it was done".into()))]).await.unwrap();
    assert_eq!(late, [Err(RunError::StaleLease)]);
    assert_eq!(rig.engine.evidence(held.id).await.unwrap().0.result_ref.as_deref(), Some("it was done"));
    let refused = rig.engine.replay(held.id).await;
    assert!(matches!(refused, Err(CallError::WrongState { state: State::Held, needed: State::Dead })), "{refused:?}");
    let decided = |resolution| Decided { resolution, reviewer: "ada".into(), note: "looked at the bank".into() };
    let retried = rig.engine.resolve(held.id, decided(Resolution::Retry)).await.unwrap();
    assert_eq!(retried.state, State::Enqueued);
    let again = rig.claim_one().await;
    assert_eq!((again.occurrence_id, again.attempt), (held.id, 2));
    assert_eq!(rig.complete(&again).await, Ok(State::Succeeded));
    let refused = rig.engine.resolve(held.id, decided(Resolution::Dead)).await;
    assert!(matches!(refused, Err(CallError::WrongState { needed: State::Held, .. })), "{refused:?}");
    rig.engine.stop().await.unwrap();
}

async fn rest(rig: &Rig, pile: Pile, cursor: Option<String>) -> Vec<Occurrence> {
    match cursor {
        Some(cursor) => rig.engine.pile(pile, Some("acme"), 10, Some(cursor)).await.unwrap().items,
        None => Vec::new(),
    }
}

#[tokio::test]
async fn what_is_dead_is_listed_replayed_and_runs_under_its_id() {
    let rig = Rig::new().await;
    let mut ids = Vec::new();
    for ms in 1_000..1_006 {
        rig.engine.create(at(ms)).await.unwrap();
    }
    rig.pass(2_000);
    for _ in 0..6 {
        let run = rig.claim_one().await;
        assert_eq!(rig.fail(&run, FailureClass::Permanent).await, State::Dead);
        ids.push(run.occurrence_id);
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = rig.engine.pile(Pile::Dead, None, 2, cursor).await.unwrap();
        listed.extend(page.items.iter().map(|dead| dead.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    listed.sort_unstable();
    ids.sort_unstable();
    assert_eq!(listed, ids);
    let foreign = rig.engine.for_tenant("other");
    assert!(foreign.pile(Pile::Dead, None, 9, None).await.unwrap().items.is_empty());
    assert!(matches!(foreign.replay(ids[0]).await, Err(CallError::NoOccurrence)));
    rig.engine.replay(ids[0]).await.unwrap();
    let run = rig.claim_one().await;
    assert_eq!((run.occurrence_id, run.attempt), (ids[0], 2));
    assert_eq!(rig.complete(&run).await, Ok(State::Succeeded));
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_handle_of_one_queue_touches_no_other() {
    let rig = Rig::new().await;
    let made = rig.engine.create(at(1_000)).await.unwrap();
    rig.pass(1_000);
    let run = rig.claim_one().await;
    let other = rig.engine.for_queue("bills");
    assert!(matches!(other.claim(QUEUE, &Claim::new("w")).await, Err(CallError::ForeignQueue)));
    let lease = Duration::from_secs(60);
    let refused = other.claim_occurrence(run.occurrence_id, made.schedule.id, "w", lease).await;
    assert!(matches!(refused, Err(CallError::ForeignQueue)), "{refused:?}");
    assert_eq!(other.complete(vec![speak(&run, None)]).await.unwrap(), [Err(RunError::StaleLease)]);
    assert_eq!(other.heartbeat(vec![speak(&run, 5_000)]).await.unwrap(), [Err(RunError::StaleLease)]);
    let own = rig.engine.for_queue(QUEUE);
    let refused = own.claim_occurrence(run.occurrence_id, made.schedule.id, "w", lease).await;
    assert!(matches!(refused, Err(CallError::NotClaimed(ClaimRefusal::AlreadyRunning))), "{refused:?}");
    assert_eq!(own.complete(vec![speak(&run, None)]).await.unwrap(), [Ok(State::Succeeded)]);
    rig.engine.stop().await.unwrap();
}

#[tokio::test]
async fn whoever_waits_for_work_is_woken_by_it_and_by_the_end() {
    let rig = Rig::new().await;
    rig.engine.create(at(1_000)).await.unwrap();
    let wait = Claim { wait: Duration::from_secs(50), ..Claim::new("w1") };
    let waiting = {
        let (engine, wait) = (rig.engine.clone(), wait.clone());
        tokio::spawn(async move { engine.claim(QUEUE, &wait).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.pass(1_000);
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is woken").unwrap().unwrap();
    assert_eq!(woken.len(), 1);
    let waiting = {
        let engine = rig.engine.clone();
        tokio::spawn(async move { engine.claim(QUEUE, &wait).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.engine.stop().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is woken").unwrap();
    assert!(matches!(ended, Ok(runs) if runs.is_empty()));
}
