//! What a log tells afterwards is what its shard knows.

use super::world::World;
use crate::kernel::{
    gate::Lsn,
    id::OccurrenceId,
    occurrence::Occurrence,
    shard::{
        Shard,
        chronicle::{Chronicle, Life, Maker},
    },
    time::UnixMs,
};

/// A log's records: kind and bytes.
pub(in crate::kernel::shard) type Log = [(u8, Vec<u8>)];

/// A schedule and one of its occurrences, as the log tells them and as the shard knows them. Which ones differs from
/// script to script.
pub(super) fn agrees(world: &World) {
    let draw = world.log.len();
    let draw_32 = u32::try_from(draw).expect("scripts are short");
    if let Some(number) = draw_32.checked_rem(world.shard.schedules.end()) {
        agrees_about(&world.shard, &world.log, number, draw);
    }
}

/// The same for one schedule, and for the occurrence of it that `draw` chooses.
pub(in crate::kernel::shard) fn agrees_about(shard: &Shard, log: &Log, number: u32, draw: usize) {
    let row = shard.schedule(number);
    let known: Vec<Occurrence> = shard
        .occurrences
        .iter()
        .filter(|(_, occurrence)| occurrence.schedule == number)
        .filter_map(|(number, _)| shard.occurrence(number))
        .collect();
    let mut lines: Vec<(UnixMs, OccurrenceId, String)> =
        known.iter().map(|occurrence| (occurrence.scheduled_for, occurrence.id, line(occurrence))).collect();
    lines.sort_unstable();
    let story = follow(log, Chronicle::of_schedule(0, row.id, (UnixMs::MIN, UnixMs::MAX))).into_story();
    let story = story.expect("a schedule that the shard knows was created");
    let told: Vec<String> = story.occurrences.iter().map(told_line).collect();
    assert_eq!(told, lines.iter().map(|(_, _, line)| line.clone()).collect::<Vec<_>>());
    let ranges: Vec<_> = story.ranges.iter().map(|told| told.what.range).collect();
    assert_eq!(ranges, row.text.ranges);
    assert_eq!(story.versions.last().map(|version| version.version), Some(row.version));
    assert_eq!(story.decided_through, row.decided_through);
    if let Some(occurrence) = known.get(draw % known.len().max(1)) {
        explains(log, occurrence);
    }
}

fn explains(log: &Log, known: &Occurrence) {
    let maker = follow(log, Chronicle::of_maker(0, known.id)).maker();
    let &Occurrence { id, schedule_id, version, kind, .. } = known;
    assert_eq!(maker, Some(Maker { schedule: schedule_id, version, kind }));
    let chronicle = Chronicle::of_occurrence(0, id, maker.expect("it was just found"));
    let story = follow(log, chronicle).into_story().expect("its schedule was created");
    let [life] = &story.occurrences[..] else { panic!("{id} is one occurrence: {story:?}") };
    assert_eq!(told_line(life), line(known));
    assert!(life.steps.is_sorted_by(|a, b| a.at <= b.at && a.lsn <= b.lsn) && !life.steps.is_empty(), "{life:?}");
}

fn follow(log: &Log, mut chronicle: Chronicle) -> Chronicle {
    for ((kind, body), lsn) in log.iter().zip(1..) {
        chronicle.take(Lsn(lsn), *kind, body).expect("what a shard wrote can be followed");
    }
    chronicle
}

fn line(known: &Occurrence) -> String {
    let Occurrence { id, version, tenant, queue, kind, lane, scheduled_for, available_at, enqueued_at, .. } = known;
    let Occurrence { state, reason, attempt_count, .. } = known;
    let whose = (id, version, tenant.as_str(), queue.as_str(), kind, lane);
    format!("{whose:?} {:?} {state:?} {reason:?} {attempt_count}", (scheduled_for, available_at, enqueued_at))
}

fn told_line(life: &Life) -> String {
    let Life { id, version, tenant, queue, kind, lane, scheduled_for, available_at, enqueued_at, .. } = life;
    let Life { state, reason, attempt_count, .. } = life;
    let whose = (id, version, &**tenant, &**queue, kind, lane);
    format!("{whose:?} {:?} {state:?} {reason:?} {attempt_count}", (scheduled_for, available_at, enqueued_at))
}
