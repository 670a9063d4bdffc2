//! Taking a shard's streams over: owner and fence, in one transaction.
//!
//! ```text
//! WATCH engine   HGETALL engine   XINFO STREAM each      -> verdict (owner.rs), or a generation that is too low
//! MULTI  HSET engine ...                                    unless the hash shows us already
//!        XINFO STREAM key   XSETID key <generation>-<H>     a stream that exists
//!        XADD key <generation>-<H>   XDEL   XINFO STREAM    a stream that does not
//! EXEC                                                   -> nil: somebody took over meanwhile; judge anew
//! ```
//!
//! H is the highest counter ever sent in this generation. After that nothing that was sent before can land any more,
//! from whatever connection: its id is not above the stream's last id. XSETID alone would move the last id of an empty
//! stream *back*; WATCH on the owner keeps that from happening to a newer owner.

use std::sync::PoisonError;

use countwheel_wal::crash_point;
use redis::Value;

use super::{
    answer::{Top, map},
    link::{Fault, Link, refuse, text},
    owner::Verdict,
    relay::Relay,
    reply::{Scope, react},
    stream::Standing,
    wire::{Commands, id_text},
};
use crate::kernel::occurrence::EntryId;

/// How often an owner may change under our eyes before we back off.
const ATTEMPTS: usize = 8;

/// Beyond this a generation could not grow for ever any more. Ids that Redis makes itself are milliseconds, far below.
const HIGHEST_GENERATION: u64 = u64::MAX / 2;

/// A fenced stream.
pub(super) struct Fenced {
    /// Which one.
    pub(super) at: usize,
    /// What the stream said right before the fence; `None`: there was no such key.
    pub(super) before: Option<Top>,
    /// How many entries had ever been added, the fence included.
    pub(super) added: u64,
}

/// What came of it.
pub(super) enum TakeOver {
    /// These are ours.
    Done(Vec<Fenced>),
    /// Our generation is too low.
    GenerationNeeded(u64),
    /// Somebody else took over.
    Fenced(String),
}

/// A stream before it is fenced.
#[derive(Clone, Copy)]
enum Found {
    Missing,
    Standing(Top),
    Foreign,
}

impl Relay {
    /// Ends the connection before this one, in case the server still holds it. Its absence, or a lack of permission,
    /// does not matter: the fence holds without it.
    pub(super) fn end_previous(&mut self, link: &mut Link) -> Result<(), Fault> {
        if let Some((run_id, client_id)) = &self.previous
            && *run_id == link.run_id
            && *client_id != link.client_id
        {
            let mut kill = Commands::default();
            kill.add(&[b"CLIENT", b"KILL", b"ID", client_id.to_string().as_bytes()]);
            link.ask_all(&kill)?;
        }
        // From here on this connection may have written.
        self.previous = Some((link.run_id.clone(), link.client_id));
        Ok(())
    }

    /// Notes settings under which Redis may lose what it accepted. Where they cannot be asked for, nothing is noted.
    pub(super) fn check_settings(&mut self, link: &mut Link) -> Result<(), Fault> {
        let mut questions = Commands::default();
        questions.add(&[b"CONFIG", b"GET", b"maxmemory-policy"]);
        questions.add(&[b"CONFIG", b"GET", b"appendonly"]);
        let answers = link.ask_all(&questions)?;
        let mut notes = Vec::new();
        for (name, answer) in ["maxmemory-policy", "appendonly"].into_iter().zip(&answers) {
            let Some(value) = map(answer).and_then(|settings| text(settings.get(name)?)) else { continue };
            match (name, value) {
                ("maxmemory-policy", policy) if policy != "noeviction" => notes.push(format!(
                    "redis runs with maxmemory-policy {policy}, which may evict whole streams: set noeviction"
                )),
                ("appendonly", "no") => notes.push(
                    "redis runs with appendonly no, so a restart loses what it accepted: set appendonly yes".to_owned(),
                ),
                _ => {}
            }
        }
        let mut shown = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes.iter().filter(|note| !shown.contains(note)) {
            tracing::warn!(shard = self.config.shard, "{note}");
        }
        *shown = notes;
        Ok(())
    }

    /// Takes over the tracks at `which`.
    pub(super) fn take_over(&mut self, link: &mut Link, which: &[usize]) -> Result<TakeOver, Fault> {
        if self.generation == 0 {
            return Ok(TakeOver::GenerationNeeded(1)); // 0-0 is no id
        }
        for _ in 0..ATTEMPTS {
            let (verdict, found) = self.survey(link, which)?;
            let claim = match verdict {
                Verdict::Ours => false,
                Verdict::Claim => true,
                Verdict::GenerationNeeded(at_least) => return Ok(TakeOver::GenerationNeeded(at_least)),
                Verdict::Fenced(reason) => return Ok(TakeOver::Fenced(reason)),
                Verdict::Foreign(reason) => return Err(Fault::Foreign(reason)),
            };
            if let Some(at_least) = self.generation_above(&found, claim && !self.claimed)? {
                return Ok(TakeOver::GenerationNeeded(at_least));
            }
            crash_point("relay.owner_judged");
            if let Some(fenced) = self.fence(link, which, &found, claim)? {
                self.claimed = true;
                return Ok(TakeOver::Done(fenced));
            }
        }
        Err(Fault::Changed)
    }

    /// Reads owner and tops, watching the owner.
    fn survey(&self, link: &mut Link, which: &[usize]) -> Result<(Verdict, Vec<Found>), Fault> {
        let mut questions = Commands::default();
        questions.add(&[b"WATCH", self.engine_key.as_bytes()]);
        questions.add(&[b"HGETALL", self.engine_key.as_bytes()]);
        for &at in which {
            questions.add(&[b"XINFO", b"STREAM", &self.tracks[at].key]);
        }
        let mut answers = link.ask_all(&questions)?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        refuse(next())?;
        let hash = refuse(next()).map_err(|fault| match fault {
            Fault::Refused(reaction) if reaction.scope == Scope::Stream => Fault::Foreign(format!(
                "{} is not our hash: rename or delete it, or use another --redis-prefix",
                self.engine_key
            )),
            fault => fault,
        })?;
        let fields = map(&hash).ok_or_else(|| link.nonsense("HGETALL", &hash))?;
        let verdict = self.identity.judge(&self.engine_key, &fields, self.generation, !self.claimed);
        let found = which.iter().map(|_| found(link, next())).collect::<Result<_, _>>()?;
        Ok((verdict, found))
    }

    /// The generation we need if a stream has seen ours, or a higher one, from somebody else.
    fn generation_above(&self, found: &[Found], new_here: bool) -> Result<Option<u64>, Fault> {
        let standing = found.iter().filter_map(|found| match found {
            Found::Standing(top) => Some(top.last.generation),
            Found::Missing | Found::Foreign => None,
        });
        let Some(highest) = standing.max() else { return Ok(None) };
        if highest > HIGHEST_GENERATION {
            return Err(Fault::Foreign(format!(
                "a stream under {} has an entry under {highest}-..., beyond all that an engine writes: somebody's XADD; \
                 delete that stream's key, and it is written anew",
                self.config.prefix
            )));
        }
        let too_high = if new_here { highest >= self.generation } else { highest > self.generation };
        Ok(too_high.then(|| highest.saturating_add(1)))
    }

    fn fence(
        &mut self,
        link: &mut Link,
        which: &[usize],
        found: &[Found],
        claim: bool,
    ) -> Result<Option<Vec<Fenced>>, Fault> {
        let mut commands = Commands::default();
        if claim {
            let fields = self.identity.fields(self.generation);
            let mut parts: Vec<&[u8]> = vec![b"HSET", self.engine_key.as_bytes()];
            for (name, value) in &fields {
                parts.extend([name.as_bytes(), value.as_bytes()]);
            }
            commands.add(&parts);
        }
        for (&at, found) in which.iter().zip(found) {
            self.push_fence(&mut commands, at, *found);
        }
        let Some(answers) = link.transact(&commands)? else { return Ok(None) };
        let mut answers = answers.into_iter().skip(usize::from(claim));
        let mut next = || refuse(answers.next().unwrap_or(Value::Nil));
        let mut fenced = Vec::new();
        for (&at, found) in which.iter().zip(found) {
            match found {
                Found::Missing => {
                    next()?;
                    next()?;
                    let after = read_top(link, &next()?)?;
                    fenced.push(Fenced { at, before: None, added: after.added });
                }
                Found::Standing(_) => {
                    let before = read_top(link, &next()?)?;
                    next()?;
                    fenced.push(Fenced { at, before: Some(before), added: before.added });
                }
                Found::Foreign => {
                    let reason = format!("{}: {}", self.tracks[at].shown(), react("WRONGTYPE", "").sentence);
                    self.shut(at, Standing::Shut, reason);
                }
            }
        }
        Ok(Some(fenced))
    }

    fn push_fence(&mut self, commands: &mut Commands, at: usize, found: Found) {
        let generation = self.generation;
        let track = &mut self.tracks[at];
        if let Found::Standing(top) = found
            && top.last.generation == generation
        {
            track.sent = track.sent.max(top.last.counter);
        }
        track.fences += 1;
        let id = id_text(EntryId { generation, counter: track.sent });
        match found {
            Found::Standing(_) => {
                commands.add(&[b"XINFO", b"STREAM", &track.key]);
                commands.add(&[b"XSETID", &track.key, &id]);
            }
            Found::Missing => {
                commands.add(&[b"XADD", &track.key, &id, b"fence", b""]);
                commands.add(&[b"XDEL", &track.key, &id]);
                commands.add(&[b"XINFO", b"STREAM", &track.key]);
            }
            Found::Foreign => {}
        }
    }
}

fn found(link: &Link, answer: Value) -> Result<Found, Fault> {
    match answer {
        Value::ServerError(error) if error.details().is_some_and(|detail| detail.contains("no such key")) => {
            Ok(Found::Missing)
        }
        answer => match refuse(answer) {
            Ok(answer) => Ok(Found::Standing(read_top(link, &answer)?)),
            Err(Fault::Refused(reaction)) if reaction.scope == Scope::Stream => Ok(Found::Foreign),
            Err(fault) => Err(fault),
        },
    }
}

/// What an answer to `XINFO STREAM` says.
pub(super) fn read_top(link: &Link, answer: &Value) -> Result<Top, Fault> {
    Top::read(answer).ok_or_else(|| link.nonsense("XINFO STREAM", answer))
}
