//! What is set for tenants and queues, over shards and restarts.

use std::time::Duration;

use countwheel::{
    Engine,
    engine::{QueueSettings, Quotas, TenantSettings},
    error::{CallError, OpenError},
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
    assert!(matches!(bound.tenant("other"), Err(CallError::NotFound)));
    assert!(matches!(bound.set_tenant("acme", heavy()).await, Err(CallError::NotFound)));
    assert!(matches!(bound.set_queue("mail", QueueSettings::default()).await, Err(CallError::NotFound)));
    assert!(matches!(bound.backlog(), Err(CallError::NotFound)));
    let backlog = engine.backlog().unwrap();
    assert_eq!((backlog.buckets.len(), backlog.drain_seconds), (6, Some(0.0)));
    engine.stop().await.unwrap();
}
