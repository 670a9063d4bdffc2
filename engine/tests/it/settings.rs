//! What is set for tenants and queues, over shards and restarts.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    engine::{QueueSettings, Quotas, TenantSettings},
    error::{CallError, OpenError},
    kernel::{schedule::ScheduleState, time::UnixMs},
    shell::clock::Clock,
};

async fn open(dir: &tempfile::TempDir) -> Engine {
    let builder = || Engine::builder(dir.path().join("data")).shards(3).segment_bytes(1 << 20).reserve_bytes(0);
    for _ in 0..1_000 {
        match builder().open().await {
            // The threads of an engine that was dropped end in their own time.
            Err(OpenError::Locked { .. } | OpenError::Log { .. }) => {
                tokio::time::sleep(Duration::from_millis(10)).await
            }
            engine => return engine.expect("an engine opens"),
        }
    }
    panic!("the directory stays locked");
}

fn heavy() -> TenantSettings {
    TenantSettings { weight: 7, quotas: Quotas { trigger_per_second: Some(50), ..Quotas::default() } }
}

#[tokio::test]
async fn what_was_set_holds_after_a_restart_and_after_a_process_that_died() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir).await;
    assert_eq!(engine.tenant("acme").unwrap(), TenantSettings::default());
    engine.set_tenant("acme", TenantSettings { weight: 3, ..TenantSettings::default() }).await.unwrap();
    engine.set_tenant("acme", heavy()).await.unwrap();
    let slow = QueueSettings { tracked: false, catch_up_per_second: Some(5) };
    engine.set_queue("mail", slow).await.unwrap();
    engine.stop().await.unwrap();

    let engine = open(&dir).await;
    assert_eq!((engine.tenant("acme").unwrap(), engine.queue("mail").unwrap()), (heavy(), slow));
    engine.set_tenant("acme", TenantSettings::default()).await.unwrap();
    drop(engine);

    let engine = open(&dir).await;
    assert_eq!(engine.tenant("acme").unwrap(), TenantSettings::default(), "the answer was durable");
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn settings_out_of_range_and_names_that_are_none_are_refused_by_field() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir).await;
    let refused = |error: CallError| match error {
        CallError::Refused(refusal) => refusal.field,
        other => panic!("{other}"),
    };
    let weightless = TenantSettings { weight: 0, ..heavy() };
    assert_eq!(refused(engine.set_tenant("acme", weightless).await.unwrap_err()), "weight");
    assert_eq!(refused(engine.set_tenant("Acme", heavy()).await.unwrap_err()), "tenant");
    assert_eq!(refused(engine.queue("a b").unwrap_err()), "queue");
    assert_eq!(engine.tenant("acme").unwrap(), TenantSettings::default());
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_tenant_reads_its_own_settings_and_sets_none() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir).await;
    engine.set_tenant("acme", heavy()).await.unwrap();
    let bound = engine.for_tenant("acme");
    assert_eq!(bound.tenant("acme").unwrap(), heavy());
    assert!(matches!(bound.tenant("other"), Err(CallError::ForeignTenant)));
    assert!(matches!(bound.set_tenant("acme", heavy()).await, Err(CallError::ForeignTenant)));
    assert!(matches!(bound.set_queue("mail", QueueSettings::default()).await, Err(CallError::ForeignTenant)));
    assert!(matches!(bound.backlog(), Err(CallError::ForeignTenant)));
    let backlog = engine.backlog().unwrap();
    assert_eq!((backlog.buckets.len(), backlog.drain_seconds), (6, Some(0.0)));
    engine.stop().await.unwrap();
}

const NOON: UnixMs = UnixMs(1_793_534_400_000);

fn quotas(quotas: Quotas) -> TenantSettings {
    TenantSettings { weight: 1, quotas }
}

/// An engine whose clock stands at noon.
async fn at_noon(dir: &tempfile::TempDir) -> (Engine, Arc<Clock>) {
    let clock = Arc::new(Clock::standing(NOON));
    let builder = Engine::builder(dir.path().join("data")).shards(3).segment_bytes(1 << 20).reserve_bytes(0);
    (builder.clock(Arc::clone(&clock)).open().await.expect("an engine opens"), clock)
}

fn in_a_minute(tenant: &str) -> NewSchedule {
    NewSchedule::at(NOON.plus(60_000)).tenant(tenant).queue("mail")
}

#[tokio::test]
async fn a_quota_of_schedules_holds_over_all_shards_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _) = at_noon(&dir).await;
    engine.set_tenant("acme", quotas(Quotas { schedules: Some(20), ..Quotas::default() })).await.unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let engine = engine.clone();
        callers.spawn(async move { engine.create(in_a_minute("acme")).await });
    }
    let mut made = Vec::new();
    while let Some(answer) = callers.join_next().await {
        match answer.unwrap() {
            Ok(described) => made.push(described.schedule.id),
            Err(CallError::QuotaSchedules { limit: 20 }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(made.len(), 20);
    engine.create(in_a_minute("other")).await.unwrap();
    engine.pause(made[0]).await.unwrap();
    assert!(engine.create(in_a_minute("acme")).await.is_err(), "a paused one counts");
    engine.stop().await.unwrap();

    let (engine, _) = at_noon(&dir).await;
    assert!(matches!(engine.create(in_a_minute("acme")).await, Err(CallError::QuotaSchedules { .. })));
    engine.cancel(made[1]).await.unwrap();
    engine.create(in_a_minute("acme")).await.unwrap();
    engine.set_tenant("acme", quotas(Quotas { schedules: Some(1), ..Quotas::default() })).await.unwrap();
    assert_eq!(
        engine.schedule(made[2]).await.unwrap().schedule.state,
        ScheduleState::Active,
        "lowering it ends nothing"
    );
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_trigger_rate_holds_for_all_shards_together() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, clock) = at_noon(&dir).await;
    engine.set_tenant("greedy", quotas(Quotas { trigger_per_second: Some(10), ..Quotas::default() })).await.unwrap();
    for tenant in ["greedy", "other"] {
        for _ in 0..50 {
            engine.create(in_a_minute(tenant)).await.unwrap();
        }
    }
    clock.step(60_000, 60_000);
    let mut worker = engine.worker("mail").await.unwrap();
    let mut taken = Vec::new();
    while let Ok(Some(run)) = tokio::time::timeout(Duration::from_secs(2), worker.next()).await {
        taken.push(run.tenant().to_owned());
    }
    let greedy = |taken: &[String]| taken.iter().filter(|tenant| *tenant == "greedy").count();
    assert_eq!((greedy(&taken), taken.len()), (10, 60));
    for _ in 0..4 {
        clock.step(1_000, 1_000);
        while let Ok(Some(run)) = tokio::time::timeout(Duration::from_millis(500), worker.next()).await {
            taken.push(run.tenant().to_owned());
        }
    }
    assert_eq!((greedy(&taken), taken.len()), (50, 100), "delayed and not lost");
    engine.stop().await.unwrap();
}
