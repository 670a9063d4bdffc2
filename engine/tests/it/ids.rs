//! Occurrence ids against vectors that were computed elsewhere.

use countwheel::kernel::{
    id::{Kind, OccurrenceId, ScheduleId},
    time::UnixMs,
};

#[test]
fn occurrence_ids_match_the_published_vectors() {
    let vectors = include_str!("../corpus/occurrence_ids.jsonl");
    let mut checked = 0;
    for line in vectors.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| case[key].as_i64().unwrap_or_else(|| panic!("{key} in {line}"));
        let schedule: ScheduleId = case["schedule_id"].as_str().unwrap().parse().unwrap();
        let kind = [Kind::Regular, Kind::Manual, Kind::Backfill][usize::try_from(number("kind")).unwrap()];
        let at = UnixMs(number("scheduled_for_ms"));
        let version = u32::try_from(number("version")).unwrap();
        let id = OccurrenceId::of(schedule, version, at, kind, case["discriminator"].as_str().unwrap().as_bytes());
        assert_eq!(id.to_string(), case["occurrence_id"].as_str().unwrap(), "{line}");
        let window = u64::try_from(number("flexible_window_ms")).unwrap();
        assert_eq!(id.available_at(at, window).0, number("available_at_ms"), "{line}");
        checked += 1;
    }
    assert!(checked >= 20, "only {checked} vectors");
}
