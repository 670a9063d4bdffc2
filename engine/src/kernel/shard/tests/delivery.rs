//! What the queue says: returned, found again, lost, away, fenced.

use super::rig::{Rig, at, cron, every};
use crate::kernel::{
    occurrence::{EntryId, OccurrenceNo, State},
    record::{Enqueued, Lost, Record},
    shard::{Config, Turn},
};

fn one_landed() -> Rig {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:10"));
    rig.land(at("08:00:10"));
    rig.records();
    rig
}

#[test]
fn what_comes_back_within_its_time_leaves_again_in_its_own_lane() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:10"));
    let handed = std::mem::take(&mut rig.handed);
    rig.shard.returned(&handed);
    assert_eq!(rig.shard.due_backlog(at("08:00:10")), (1, Some(at("08:00:10"))));
    rig.shard.returned(&handed);
    assert_eq!(rig.shard.outbox_len(), 1, "said twice, it waits once");
    rig.advance(at("08:00:11"));
    assert_eq!(rig.handed, handed);
    rig.land(at("08:00:11"));
    assert_eq!(rig.history(id)[0], "08:00:10 ENQUEUED strict");
}

#[test]
fn what_is_found_again_is_recorded_and_not_sent_twice() {
    let mut rig = Rig::new(at("08:00:00"));
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:02"));
    let ids: Vec<_> = (0..2).map(|n| rig.shard.occurrence(OccurrenceNo(n)).unwrap().id).collect();
    let stream = rig.stream(OccurrenceNo(0));
    let records = rig.log.len();
    rig.crash(records, at("08:00:03"));
    rig.records();
    let foreign = crate::kernel::id::OccurrenceId([9; 16]);
    let place = |counter| EntryId { generation: 1, counter };
    let entries = [(ids[0], 1, place(1)), (foreign, 1, place(2)), (ids[1], 1, place(3))];
    rig.turn(|shard, turn| shard.found(stream, &entries, 3, at("08:00:03"), turn));
    let run = |counter, number| {
        let runs = vec![(number, 1)];
        Record::Enqueued(Enqueued { stream: 0, generation: 1, first_counter: counter, added: 3, at: 0, runs })
    };
    assert_eq!(rig.records(), [run(1, 0), run(3, 1)]);
    assert_eq!(rig.shard.counters().conflicts, 1);
    rig.shard.queue_ready();
    rig.advance(at("08:00:03"));
    assert_eq!(rig.handed, [OccurrenceNo(2)]);
}

#[test]
fn what_the_queue_lost_is_sent_again_even_when_a_crash_comes_in_between() {
    let mut rig = one_landed();
    let stream = rig.stream(OccurrenceNo(0));
    rig.shard.queue_away(None, "cut".into(), at("08:00:12"));
    rig.turn(|shard, turn| shard.lost(stream, None, at("08:00:13"), turn));
    assert_eq!(rig.records(), [Record::Lost(Lost { stream: 0, survived: None, since: -600_000 })]);
    let records = rig.log.len();
    rig.crash(records, at("08:00:14"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:14"));
    assert_eq!((rig.handed.as_slice(), rig.shard.counters().resent), ([OccurrenceNo(0)].as_slice(), 1));
    rig.land(at("08:00:14"));
    let records = rig.log.len();
    rig.crash(records, at("08:00:15"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:15"));
    assert_eq!(rig.handed, [], "it has landed again");
}

#[test]
fn what_lands_again_while_a_second_loss_is_told_is_not_sent_a_third_time() {
    let mut rig = one_landed();
    let stream = rig.stream(OccurrenceNo(0));
    rig.turn(|shard, turn| shard.lost(stream, None, at("08:00:13"), turn));
    rig.shard.queue_ready();
    rig.advance(at("08:00:13"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
    rig.shard.queue_away(None, "cut".into(), at("08:00:14"));
    let survived = Some(EntryId { generation: 1, counter: 2 });
    rig.turn(|shard, turn| shard.lost(stream, survived, at("08:00:14"), turn));
    rig.land(at("08:00:14"));
    rig.shard.queue_ready();
    rig.advance(at("08:00:15"));
    assert_eq!(rig.handed, []);
}

#[test]
fn what_survived_and_what_is_older_than_the_window_is_not_sent_again() {
    let mut rig = one_landed();
    let stream = rig.stream(OccurrenceNo(0));
    let survived = Some(EntryId { generation: 1, counter: 1 });
    rig.turn(|shard, turn| shard.lost(stream, survived, at("08:00:13"), turn));
    rig.shard.queue_ready();
    rig.advance(at("08:00:13"));
    assert_eq!(rig.handed, []);
    rig.turn(|shard, turn| shard.lost(stream, None, at("08:10:10.001"), turn));
    assert!(rig.shard.resend.is_empty());
}

#[test]
fn a_worker_that_completes_what_is_about_to_be_sent_again_stops_it() {
    let mut rig = Rig::with(Config { is_embedded: true, ..Config::default() }, at("08:00:00"));
    rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
    rig.work_off(at("08:00:10"));
    rig.land(at("08:00:10"));
    let records = rig.log.len();
    rig.crash(records, at("08:00:11"));
    rig.shard.queue_ready();
    let run = rig.claim(0, at("08:00:11")).unwrap();
    rig.complete(&run, at("08:00:11")).unwrap();
    rig.advance(at("08:00:11"));
    assert_eq!((rig.handed.len(), rig.state(0)), (0, State::Succeeded));
}

#[test]
fn an_outage_within_the_lead_does_not_stop_what_comes() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("* * * * *", "UTC"), at("08:00:00"));
    rig.shard.queue_away(None, "cut".into(), at("08:00:57"));
    rig.advance(at("08:00:58"));
    assert_eq!(rig.history(id), ["08:01:00 SCHEDULED strict"]);
    rig.shard.queue_ready();
    rig.advance(at("08:01:00"));
    assert_eq!(rig.handed, [OccurrenceNo(0)]);
}

#[test]
fn a_schedule_that_was_parked_waits_for_its_own_instant_again() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &cron("0 9 * * *", "UTC"), at("08:00:00"));
    rig.shard.queue_away(None, "cut".into(), at("08:30:00"));
    rig.advance(at("09:10:00"));
    assert_eq!(rig.shard.parked.len(), 1);
    rig.shard.queue_ready();
    rig.advance(at("09:10:00"));
    rig.land(at("09:10:00"));
    rig.advance(at("09:20:00"));
    assert_eq!(rig.history(id), ["09:00:00 ENQUEUED catchup"], "tomorrow's is not made today");
}

#[test]
fn one_stream_that_is_away_holds_up_no_other() {
    let mut rig = Rig::new(at("08:00:00"));
    let mut other = every(1_000, at("08:00:00"));
    other.queue = "print".into();
    rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    let second = rig.create(2, &other, at("08:00:00"));
    rig.advance(at("08:00:00"));
    let stream = rig.stream(OccurrenceNo(0));
    rig.shard.queue_away(Some(stream), "a foreign key".into(), at("08:00:00"));
    assert_eq!(rig.shard.queue_troubles().collect::<Vec<_>>(), ["a foreign key"]);
    rig.live(at("08:05:00"));
    assert_eq!(rig.history(second).iter().filter(|line| line.contains("ENQUEUED")).count(), 300);
    assert!(rig.shard.occurrences.len() < 310, "nothing is materialised for it past the lead");
    rig.shard.queue_ready();
    rig.live(at("08:05:00"));
    assert_eq!(rig.shard.due_backlog(at("08:05:01")).1, Some(at("08:05:01")));
}

#[test]
fn a_fenced_shard_hands_nothing_over_any_more() {
    let mut rig = Rig::new(at("08:00:00"));
    let id = rig.create(1, &every(1_000, at("08:00:00")), at("08:00:00"));
    rig.shard.queue_fenced("another engine has it".into());
    rig.shard.queue_ready();
    rig.live(at("08:01:00"));
    assert_eq!((rig.handed.len(), rig.history(id).len()), (0, 0));
    assert_eq!(rig.shard.queue_troubles().count(), 1);
}

#[test]
fn a_generation_that_the_queue_has_seen_is_overtaken_and_never_comes_again() {
    let mut rig = Rig::new(at("08:00:00"));
    let turn = rig.turn(|shard, turn| shard.generation_needed(7, at("08:00:01"), turn));
    assert_eq!(turn.start, Some((rig.shard.lsn(), 7)));
    let records = rig.log.len();
    rig.crash(records, at("08:00:02"));
    assert_eq!(rig.shard.opened().unwrap().generation, 8);
    let mut turn = Turn::default();
    rig.shard.generation_needed(u64::MAX, at("08:00:03"), &mut turn);
    assert_eq!((turn.records.len(), rig.shard.queue_troubles().count()), (0, 1), "a prank fences the shard");
}

#[test]
fn what_somebody_removed_before_anyone_claimed_it_is_looked_for_however_old_it_is() {
    for is_tracked in [true, false] {
        let mut rig = if is_tracked { Rig::tracked(at("08:00:00")) } else { Rig::new(at("08:00:00")) };
        rig.create(1, &every(10_000, at("08:00:00")), at("08:00:00"));
        rig.work_off(at("08:00:10"));
        rig.land(at("08:00:10"));
        let (stream, late) = (rig.stream(OccurrenceNo(0)), at("09:30:00"));
        let turn = rig.turn(|shard, turn| shard.shortened(stream, late, turn));
        assert_eq!(turn.read_back, if is_tracked { vec![stream] } else { vec![] }, "plain consumers may remove");
        if is_tracked {
            rig.handed.clear();
            rig.turn(|shard, turn| shard.lost(stream, None, late, turn));
            rig.shard.queue_ready();
            rig.advance(late);
            assert!(rig.handed.contains(&OccurrenceNo(0)), "{:?}", rig.handed);
        }
    }
}
