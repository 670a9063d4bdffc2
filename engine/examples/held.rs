//! A payment that must not be made twice: its worker dies, nobody knows what it did, and a person decides.

use std::{sync::Arc, time::Duration};

use countwheel::{
    Engine, NewSchedule,
    engine::{
        Claim,
        runs::{Decided, Pile, Resolution, Speaking},
    },
    kernel::{policy::Misfire, time::UnixMs},
    shell::clock::Clock,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(Clock::standing(UnixMs(1_793_534_400_000)));
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).clock(Arc::clone(&clock)).open().await?;
    let payment = NewSchedule::at(engine.now().plus(1_000)).queue("payments").misfire(Misfire::Skip);
    engine.create(payment.non_idempotent("treasury")).await?;
    clock.step(1_000, 1_000);

    let claim = Claim { wait: Duration::from_secs(10), ..Claim::new("worker-1") };
    let run = engine.claim("payments", &claim).await?.remove(0);
    println!("attempt {} begins, its lease lasts a minute", run.attempt);
    clock.step(60_000, 60_000);
    let held = loop {
        let page = engine.pile(Pile::Held, None, 10, None).await?;
        match page.items.into_iter().next() {
            Some(held) => break held,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let reasons: Vec<&str> = held.holds.iter().map(|reason| reason.as_str()).collect();
    println!("{}: {}", held.state.as_str(), reasons.join(", "));
    let late = engine.complete(vec![Speaking::new(run.occurrence_id, run.lease_token, Some("tx-4711".into()))]).await?;
    println!("a late answer: {}", late[0].as_ref().map_or_else(ToString::to_string, |state| state.as_str().to_owned()));
    let (evidence, _) = engine.evidence(held.id).await?;
    println!("the evidence: owner {:?}, result {:?}", evidence.review_owner, evidence.result_ref);
    let note = "tx-4711 is in the bank's list".to_owned();
    let decided = Decided { resolution: Resolution::Succeeded, reviewer: "ada".into(), note };
    println!("resolved: {}", engine.resolve(held.id, decided).await?.state.as_str());
    engine.stop().await?;
    Ok(())
}
