//! What makes many schedules at once: a turn of a shard and a commit of its log carry a hundred of them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::{
    engine::{
        Engine, Made,
        schedules::{check_key, random_bytes},
    },
    error::CallError,
    kernel::{changes::NewSchedule, id::ScheduleId, resolve::resolve, shard::Creation},
    shell::{ask::Ask, creations::Created},
};

/// A turn makes at most so many: timers wait for its end.
const CREATIONS_A_TURN: usize = 128;
/// So many are resolved before they are handed to the shards.
const RESOLVED_AT_ONCE: usize = 1_024;
/// How long a shard that takes nothing is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// A schedule to be made, and the key that it may have.
pub type KeyedSchedule = (Option<String>, NewSchedule);

/// Schedules that were resolved and can be handed to their shards.
pub(crate) struct Prepared {
    asked: Vec<KeyedSchedule>,
    resolved: Vec<Result<Creation, CallError>>,
}

/// An answer that is still to come.
type Answers = oneshot::Receiver<Result<Vec<Created>, CallError>>;

impl Engine {
    /// Makes many schedules, each as [`Engine::create_keyed`] would, or under a random id where it has no key, in the
    /// order given. Where too much is under way it waits. What was made is durable when this returns.
    pub async fn create_many(&self, asked: Vec<KeyedSchedule>) -> Vec<Result<Made, CallError>> {
        let mut made = Vec::with_capacity(asked.len());
        let mut rest = asked.into_iter();
        loop {
            let some: Vec<KeyedSchedule> = rest.by_ref().take(RESOLVED_AT_ONCE).collect();
            if some.is_empty() {
                return made;
            }
            let (engine, count) = (self.clone(), some.len());
            match tokio::task::spawn_blocking(move || engine.prepare(some)).await {
                Ok(prepared) => made.extend(self.create_prepared(prepared).await),
                Err(_) => made.extend((0..count).map(|_| Err(CallError::Stopping))),
            }
        }
    }

    /// Resolves schedules: all of the work that needs no shard. It may walk years of days for each.
    pub(crate) fn prepare(&self, asked: Vec<KeyedSchedule>) -> Prepared {
        let resolved = asked.iter().map(|(key, new)| self.creation(key.as_deref(), new)).collect();
        Prepared { asked, resolved }
    }

    fn creation(&self, key: Option<&str>, new: &NewSchedule) -> Result<Creation, CallError> {
        self.check_tenant(&new.tenant)?;
        key.map_or(Ok(()), check_key)?;
        let id = match key {
            Some(key) => ScheduleId::from_key(&new.tenant, key),
            None => ScheduleId::from_random(random_bytes()?),
        };
        Ok(Creation { id, spec: resolve(new, self.now(), &self.running().rules)?, is_keyed: key.is_some() })
    }

    /// Hands resolved schedules to their shards and waits until what they made is durable.
    pub(crate) async fn create_prepared(&self, prepared: Prepared) -> Vec<Result<Made, CallError>> {
        let Prepared { asked, resolved } = prepared;
        let mut made: Vec<Option<Result<Made, CallError>>> = (0..asked.len()).map(|_| None).collect();
        let mut by_shard: Vec<(Vec<usize>, Vec<Creation>)> = Vec::new();
        by_shard.resize_with(self.shards(), Default::default);
        for (place, resolved) in resolved.into_iter().enumerate() {
            match resolved {
                Ok(creation) => {
                    let (places, creations) = &mut by_shard[self.shard_of(creation.id)];
                    places.push(place);
                    creations.push(creation);
                }
                Err(error) => made[place] = Some(self.despite(error, &asked[place]).await),
            }
        }
        let (places, creations): (Vec<_>, Vec<_>) = by_shard.into_iter().unzip();
        let asks = creations.into_iter().enumerate().map(|(shard, creations)| self.create_in(shard, creations));
        let created = join_all(asks).await;
        for (place, created) in places.into_iter().zip(created).flat_map(|(places, made)| places.into_iter().zip(made))
        {
            made[place] = Some(match created {
                Ok(Created::New(schedule)) => Ok(Made { schedule, is_new: true }),
                Ok(Created::Standing(schedule)) => self.as_described(schedule, &asked[place].1),
                Ok(Created::Refused(error)) => Err(error.into()),
                Err(error) => Err(error),
            });
        }
        made.into_iter().map(|made| made.unwrap_or(Err(CallError::Stopping))).collect()
    }

    /// What could not be made anew may be a repeated call all the same: a schedule that stands just as described.
    async fn despite(&self, error: CallError, (key, new): &KeyedSchedule) -> Result<Made, CallError> {
        match (key, error) {
            (Some(key), CallError::Refused(_)) => self.create_keyed(key, new.clone()).await,
            (_, error) => Err(error),
        }
    }

    /// Asks one shard for all of `creations`, a turn's worth after the other, without waiting for the log in between.
    async fn create_in(&self, shard: usize, creations: Vec<Creation>) -> Vec<Result<Created, CallError>> {
        let count = creations.len();
        let mut turns: Vec<(Arc<[Creation]>, Answers)> = Vec::new();
        let mut rest = creations.into_iter();
        loop {
            let turn: Arc<[Creation]> = rest.by_ref().take(CREATIONS_A_TURN).collect();
            if turn.is_empty() {
                break;
            }
            let answers = self.ask_for(shard, &turn).await;
            turns.push((turn, answers));
        }
        let mut created = Vec::with_capacity(count);
        for (turn, mut answers) in turns {
            loop {
                match answers.await.unwrap_or_else(|_| Err(self.ended())) {
                    Ok(answers) => created.extend(answers.into_iter().map(Ok)),
                    Err(CallError::Overloaded) => {
                        tokio::time::sleep(PAUSE).await;
                        answers = self.ask_for(shard, &turn).await;
                        continue;
                    }
                    Err(error) => created.extend(turn.iter().map(|_| Err(error.clone()))),
                }
                break;
            }
        }
        created
    }

    /// Waits for room in the shard's mailbox, but not for the answer.
    async fn ask_for(&self, shard: usize, creations: &Arc<[Creation]>) -> Answers {
        let (reply, answers) = oneshot::channel();
        let asked = self.running.shards[shard].send(Ask::CreateMany { creations: Arc::clone(creations), reply });
        // If the shard has ended, the reply ends with it.
        let _ = asked.await;
        answers
    }
}
