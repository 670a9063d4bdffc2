//! Many schedules made in one turn of a shard.

use crate::kernel::{
    gate::Lsn,
    schedule::Schedule,
    shard::{CommandError, Creation, Shard, Target, Turn},
    time::UnixMs,
};

/// What became of one creation among many.
#[derive(Debug)]
pub(crate) enum Created {
    New(Schedule),
    /// The key has a schedule already: this one.
    Standing(Schedule),
    Refused(CommandError),
}

/// Makes many schedules in one turn; one that is refused keeps none of the others from being made.
pub(super) fn create_each(
    shard: &mut Shard,
    creations: &[Creation],
    now: UnixMs,
    turn: &mut Turn,
) -> (Vec<Created>, Lsn) {
    let mut rests_on = Lsn(0);
    let created = creations.iter().map(|creation| {
        let (created, lsn) = match shard.create(creation, now, turn) {
            Ok((schedule, lsn)) => (Created::New(schedule), lsn),
            Err(CommandError::KeyTaken { version }) => match shard.read(&Target::from(creation.id), now) {
                Some((schedule, lsn)) => (Created::Standing(schedule), lsn),
                None => (Created::Refused(CommandError::KeyTaken { version }), Lsn(0)),
            },
            Err(error) => (Created::Refused(error), Lsn(0)),
        };
        rests_on = rests_on.max(lsn);
        created
    });
    (created.collect(), rests_on)
}
