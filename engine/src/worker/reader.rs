//! The thread that reads: no more than there are idle handlers, in the lanes' order, and what consumers that died have
//! left.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use crossbeam::channel::{Receiver, Sender};
use redis::Value;

use super::{
    Shared,
    entry::{Content, Delivery, Place, entries, streams},
    shares::Shares,
    stats::count,
};
use crate::{
    kernel::occurrence::Lane,
    shell::redis_queue::{BackOff, Commands, Fault, Link, OnceASecond, refuse, text},
};

/// How long a read waits for something to come: below every time-out, and short enough to stop soon.
const BLOCK_MS: &[u8] = b"1000";
/// How long to wait for an idle handler before looking whether to stop.
const TICK: Duration = Duration::from_millis(100);
/// Entries a page of what this consumer was given before.
const PAGE: &[u8] = b"100";

/// The reading thread.
pub(super) struct Reader {
    shared: Arc<Shared>,
    idle: Receiver<()>,
    work: Sender<Delivery>,
    link: Option<Link>,
    /// By lane, a stream a shard.
    keys: [Vec<Arc<str>>; Lane::ALL.len()],
    shares: Shares,
    /// Idle handlers.
    room: usize,
    /// Read, and no handler is idle yet.
    held: VecDeque<Delivery>,
    /// Which shard is asked first.
    turn: usize,
    recover_at: Instant,
    back_off: BackOff,
    log_gate: OnceASecond,
}

/// Why a read has to begin anew.
enum Trouble {
    Fault(Fault),
    /// A stream or its group is gone.
    NoGroup,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>, idle: Receiver<()>, work: Sender<Delivery>) -> Self {
        Self {
            back_off: BackOff::new(shared.config.longest_back_off),
            shared,
            idle,
            work,
            link: None,
            keys: Default::default(),
            shares: Shares::default(),
            room: 0,
            held: VecDeque::new(),
            turn: 0,
            recover_at: Instant::now(),
            log_gate: OnceASecond::default(),
        }
    }

    /// Reads until the consumer is to stop. What is held then stays pending, and others take it over.
    pub(super) fn run(mut self) {
        while !self.shared.stopping.is_raised() {
            self.room += self.idle.try_iter().count();
            if self.room == 0 {
                self.room += usize::from(self.idle.recv_timeout(TICK).is_ok());
                continue;
            }
            if let Some(delivery) = self.held.pop_front() {
                self.room -= 1;
                if self.work.send(delivery).is_err() {
                    return;
                }
                continue;
            }
            match self.read() {
                Ok(()) => self.back_off.reset(),
                Err(trouble) => self.recover_from(trouble),
            }
        }
    }

    fn read(&mut self) -> Result<(), Trouble> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect()?,
        };
        if Instant::now() >= self.recover_at {
            self.take_over(&mut link)?;
            let period = self.shared.config.recover_after / 4;
            self.recover_at = Instant::now() + period.clamp(Duration::from_millis(50), Duration::from_secs(15));
        }
        if self.held.is_empty() && !self.read_lanes(&mut link)? {
            self.wait_for_entries(&mut link)?;
        }
        self.link = Some(link);
        Ok(())
    }

    fn recover_from(&mut self, trouble: Trouble) {
        let pause = match trouble {
            Trouble::NoGroup => {
                count(&self.shared.figures.healed);
                // The next connection makes the groups; a stream that keeps going away must not make it spin.
                self.back_off.next(crate::shell::redis_queue::Pace::Now)
            }
            Trouble::Fault(fault) => {
                if let Some(held_back) = self.log_gate.admit(Instant::now()) {
                    tracing::warn!(queue = self.shared.config.queue, held_back, "nothing can be read: {fault}");
                }
                self.back_off.next(fault.pace())
            }
        };
        count(&self.shared.figures.disconnects);
        self.link = None;
        self.shared.stopping.wait(pause);
    }

    /// Connects, makes groups where there are none, and takes up what this consumer was given and did not finish: an
    /// answer that was lost on the way may have brought entries.
    fn connect(&mut self) -> Result<Link, Trouble> {
        self.find_streams()?;
        let mut link = Link::connect(&self.shared.address)?;
        let mut commands = Commands::default();
        let group = self.shared.config.group.as_bytes();
        for key in self.keys.iter().flatten() {
            commands.add(&[b"XGROUP", b"CREATE", key.as_bytes(), group, b"0", b"MKSTREAM"]);
        }
        for answer in link.ask_all(&commands)? {
            let is_there = matches!(&answer, Value::ServerError(error) if error.code() == "BUSYGROUP");
            if !is_there {
                refuse(answer)?;
            }
        }
        for key in self.keys.clone().into_iter().flatten() {
            self.take_up(&mut link, &key)?;
        }
        Ok(link)
    }

    fn find_streams(&mut self) -> Result<(), Fault> {
        match self.shared.engine.shards() {
            Ok(shards) => {
                self.keys = Lane::ALL.map(|lane| {
                    let key = |shard| self.shared.key(shard, lane);
                    (0..shards).map(|shard| key(shard).into()).collect()
                });
                Ok(())
            }
            // The number never changes: what is known will do.
            Err(_) if !self.keys[0].is_empty() => Ok(()),
            Err(error) => Err(Fault::Unreachable(format!("the number of shards is not known: {error}"))),
        }
    }

    fn take_up(&mut self, link: &mut Link, key: &Arc<str>) -> Result<(), Trouble> {
        let mut from = b"0".to_vec();
        loop {
            let names = [key];
            let answer = self.ask_group(link, &[b"COUNT", PAGE], &names, &from)?;
            let found = self.parse(link, &answer, &names)?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            from = last.id.clone();
            self.accept(found, true);
        }
    }

    /// One round over the lanes without waiting; whether there was anything.
    fn read_lanes(&mut self, link: &mut Link) -> Result<bool, Trouble> {
        self.turn = self.turn.wrapping_add(1);
        let mut left = self.room;
        for (lane, limit) in self.shares.plan(self.room) {
            let asked = limit.min(left);
            if asked == 0 {
                continue;
            }
            let taken = self.read_lane(link, lane, asked)?;
            self.shares.took(lane, taken, asked);
            left -= taken.min(left);
        }
        Ok(left < self.room)
    }

    fn read_lane(&mut self, link: &mut Link, lane: Lane, asked: usize) -> Result<usize, Trouble> {
        let keys = self.keys[lane as usize].clone();
        let mut taken = 0;
        for step in 0..keys.len() {
            if taken >= asked {
                break;
            }
            let names = [&keys[(self.turn + step) % keys.len()]];
            let count = (asked - taken).to_string();
            let answer = self.ask_group(link, &[b"COUNT", count.as_bytes()], &names, b">")?;
            let found = self.parse(link, &answer, &names)?;
            taken += found.len();
            self.accept(found, false);
        }
        Ok(taken)
    }

    /// Waits until something comes, for a second at most.
    fn wait_for_entries(&mut self, link: &mut Link) -> Result<(), Trouble> {
        let keys: Vec<_> = self.keys.iter().flatten().cloned().collect();
        let names: Vec<_> = keys.iter().collect();
        let answer = self.ask_group(link, &[b"COUNT", b"1", b"BLOCK", BLOCK_MS], &names, b">")?;
        let found = self.parse(link, &answer, &names)?;
        self.accept(found, false);
        Ok(())
    }

    /// Takes over what a consumer was given and did not settle for long, as far as there is room.
    fn take_over(&mut self, link: &mut Link) -> Result<(), Trouble> {
        let config = &self.shared.config;
        let (group, name) = (config.group.clone(), self.shared.name.clone());
        let idle_ms = config.recover_after.as_millis().to_string();
        for key in self.keys.clone().into_iter().flatten() {
            let mut cursor = b"0-0".to_vec();
            while self.held.len() < self.room {
                let count = (self.room - self.held.len()).to_string();
                let parts: [&[u8]; 8] = [
                    b"XAUTOCLAIM",
                    key.as_bytes(),
                    group.as_bytes(),
                    name.as_bytes(),
                    idle_ms.as_bytes(),
                    &cursor,
                    b"COUNT",
                    count.as_bytes(),
                ];
                let answer = ask(link, &parts)?;
                let found = match &answer {
                    Value::Array(parts) => parts.get(1).and_then(|part| entries(part, &key)),
                    _ => None,
                };
                let next = match &answer {
                    Value::Array(parts) => parts.first().and_then(text),
                    _ => None,
                };
                let (Some(found), Some(next)) = (found, next) else {
                    return Err(link.nonsense("XAUTOCLAIM", &answer).into());
                };
                cursor = next.as_bytes().to_vec();
                self.accept(found, true);
                if cursor == b"0-0" {
                    break;
                }
            }
        }
        Ok(())
    }

    fn ask_group(&self, link: &mut Link, options: &[&[u8]], keys: &[&Arc<str>], from: &[u8]) -> Result<Value, Trouble> {
        let (group, name) = (self.shared.config.group.as_bytes(), self.shared.name.as_bytes());
        let mut parts: Vec<&[u8]> = vec![b"XREADGROUP", b"GROUP", group, name];
        parts.extend(options);
        parts.push(b"STREAMS");
        parts.extend(keys.iter().map(|key| key.as_bytes()));
        parts.extend(keys.iter().map(|_| from));
        ask(link, &parts)
    }

    fn parse(&self, link: &Link, answer: &Value, keys: &[&Arc<str>]) -> Result<Vec<(Place, Content)>, Trouble> {
        let keys: HashSet<Arc<str>> = keys.iter().map(|key| Arc::clone(key)).collect();
        Ok(streams(answer, &keys).ok_or_else(|| link.nonsense("XREADGROUP", answer))?)
    }

    /// Holds what was read, except what a handler has in hand already.
    fn accept(&mut self, found: Vec<(Place, Content)>, is_recovered: bool) {
        let figures = &self.shared.figures;
        for (place, content) in found {
            if self.shared.in_hand().contains(&place) {
                continue;
            }
            count(&figures.read);
            figures.recovered.fetch_add(u64::from(is_recovered), Relaxed);
            match content {
                Content::Told(told) => {
                    self.shared.in_hand().insert(place.clone());
                    self.held.push_back(Delivery { place, told });
                }
                // The engine sends again what still has to run.
                Content::Gone => {
                    count(&figures.skipped);
                    self.shared.acknowledge(&place);
                }
                // Perhaps a newer worker understands it: it stays pending.
                Content::Odd => {
                    count(&figures.skipped);
                    if let Some(held_back) = self.log_gate.admit(Instant::now()) {
                        let id = String::from_utf8_lossy(&place.id);
                        tracing::error!(stream = &*place.key, %id, held_back, "an entry is not understood");
                    }
                }
            }
        }
    }
}

/// One command; a missing stream or group is told apart from other trouble.
fn ask(link: &mut Link, parts: &[&[u8]]) -> Result<Value, Trouble> {
    let mut one = Commands::default();
    one.add(parts);
    let answer = link.ask_all(&one)?.pop().unwrap_or(Value::Nil);
    match &answer {
        Value::ServerError(error) if matches!(error.code(), "NOGROUP" | "UNBLOCKED") => Err(Trouble::NoGroup),
        _ => Ok(refuse(answer)?),
    }
}
