//! What must be so once a server that was killed has been started again and has had time to settle.

use std::time::{Duration, Instant};

use countwheel::kernel::id::OccurrenceId;

use super::life::{Life, now};
use crate::server::Server;

/// How long everything due may take to stand in the streams.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until nothing due is absent, then judges.
pub(super) fn settle(life: &mut Life, server: &Server, what: &str) {
    let begun = Instant::now();
    loop {
        life.look();
        let absent: Vec<_> = life.promised.keys().filter(|id| !life.seen.contains_key(id)).collect();
        if absent.is_empty() {
            break;
        }
        if begun.elapsed() > PATIENCE {
            let first = server.call("GET", &format!("/v1/occurrences/{}", absent[0]), "").body;
            panic!("{what}: {} of {} are absent: {} {first}", absent.len(), life.promised.len(), absent[0]);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // What comes twice, or was called off, would come about now.
    std::thread::sleep(Duration::from_millis(100));
    life.look();
    judge(life, server, what);
}

fn judge(life: &Life, server: &Server, what: &str) {
    for (id, (times, first_seen)) in &life.seen {
        let at = life.known.get(id).unwrap_or_else(|| panic!("{what}: {id} was never asked for"));
        assert_eq!(*times, 1, "{what}: {id} stands in the streams {times} times");
        assert!(first_seen >= at, "{what}: {id} was seen at {first_seen}, due at {at}");
        assert!(!life.called_off.contains(id), "{what}: {id} was called off and stands in a stream");
    }
    for id in &life.granted {
        let (state, attempts) = state(server, *id);
        let fine = if life.completed.contains(id) { &["SUCCEEDED"][..] } else { &["RUNNING", "SUCCEEDED"][..] };
        assert!(fine.contains(&state.as_str()) && attempts == 1, "{what}: {id} is {state}, {attempts} attempts");
    }
    for id in life.promised.keys().filter(|id| !life.granted.contains(id)) {
        let (state, _) = state(server, *id);
        // The claim of one of them may have been under way.
        assert!(["ENQUEUED", "RUNNING"].contains(&state.as_str()), "{what}: {id} is {state}");
    }
    assert!(life.promised.values().any(|at| *at <= now()), "{what}: nothing was due");
}

fn state(server: &Server, id: OccurrenceId) -> (String, u64) {
    let reply = server.call("GET", &format!("/v1/occurrences/{id}"), "");
    assert_eq!(reply.status, 200, "{id}: {reply:?}");
    let shown = reply.json();
    let shown = if shown["occurrence"].is_object() { &shown["occurrence"] } else { &shown };
    let attempts = shown["attempts"].as_array().map_or(0, |attempts| attempts.len() as u64);
    (shown["state"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned(), attempts)
}
