//! Pause, update and cancel, and what each receipt says of the occurrences.

use countwheel::{
    Changes, Engine, NewSchedule,
    engine::{Receipted, Update},
    kernel::{calendar::CronSpec, changes::NewRule},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let engine = Engine::builder(dir.path()).shards(1).reserve_bytes(0).open().await?;
    let new = NewSchedule::cron("0 9 * * MON-FRI", "Europe/Berlin")?.queue("invoices").payload("{}");
    let made = engine.create_keyed("invoice-run", new.clone()).await?;
    let id = made.schedule.id;
    let next = made.schedule.next_run_at.expect("a weekday comes");
    println!("made {id} v{}, next {next}", made.schedule.version);
    assert!(!engine.create_keyed("invoice-run", new).await?.is_new, "a repeated call makes nothing");

    show("pause", &engine.pause(id).await?);
    show("pause again", &engine.pause(id).await?);
    show("resume", &engine.resume(id).await?);

    let rule = Some(NewRule::from(CronSpec::new("0 7 * * MON-FRI", "Europe/Berlin")));
    let how = Update { if_version: Some(3), ..Update::default() };
    show("update", &engine.update(id, Changes { rule, ..Changes::default() }, how).await?);
    let stale = engine.update(id, Changes::default(), how).await;
    println!("update of version 3 again: {}", stale.expect_err("version 4 stands"));

    let manual = engine.trigger(id, Some("by hand")).await?;
    println!("triggered {}", manual.occurrence_id);
    show("cancel", &engine.cancel(id).await?);
    engine.stop().await?;
    Ok(())
}

fn show(call: &str, Receipted { schedule, receipt }: &Receipted) {
    println!(
        "{call}: v{} {}, {} canceled, {} kept, {} ranges",
        schedule.version,
        schedule.state.as_str(),
        receipt.canceled.len(),
        receipt.kept.len(),
        receipt.ranges.len()
    );
}
