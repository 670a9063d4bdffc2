//! Connections, transactions, and what befalls a server: cuts, silence, moods, restarts that lose the last moments.
//!
//! A command is run when its answer is asked for, or later, when its connection was cut and nobody asks any more: bytes
//! that are under way still arrive, until CLIENT KILL or the end of the server.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use countwheel_wal::sim::Rng;
use redis::Value;

use super::{
    data::{Command, Data, EntryFields, is_write, name, takes_memory},
    resp::{bulk, error, split},
    streams,
};
use crate::{
    kernel::occurrence::EntryId,
    shell::redis_queue::{Dial, Fault, Pipe},
};

/// How a server is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sim) enum Mood {
    #[default]
    Well,
    /// Nothing listens.
    Away,
    /// Takes everything and answers nothing.
    Silent,
    Loading,
    ReadOnly,
    OutOfMemory,
    Busy,
}

/// How often connections break; once in so many sends or answers, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sim) struct Rates {
    pub(in crate::sim) cut_once_in: u64,
    /// How far back a restart or a fail-over may go.
    pub(in crate::sim) past_ms: u64,
}

/// What an onlooker sees.
#[derive(Clone, Debug)]
pub(in crate::sim) enum Seen {
    /// An entry was accepted from a connection of this peer.
    Added { peer: usize, key: Vec<u8>, id: EntryId, fields: EntryFields },
    /// A stream's last id was set, or entries were trimmed.
    Moved { peer: usize, command: Vec<Vec<u8>> },
    /// Who may write was written.
    Owned { fields: Vec<Vec<u8>> },
    /// Everything that was accepted for this key may be gone.
    Lost { key: Vec<u8> },
}

/// One client's connection.
#[derive(Default)]
struct Connection {
    peer: usize,
    input: VecDeque<Command>,
    output: VecDeque<Value>,
    queued: Option<Vec<Command>>,
    is_spoilt: bool,
    watched: Vec<(Vec<u8>, u64)>,
    /// Its client is gone; what it sent may still arrive.
    is_cut: bool,
}

/// The server.
pub(in crate::sim) struct SimRedis {
    data: Data,
    /// As it was `past_ms` ago, and what came since.
    past: Data,
    since: VecDeque<(u64, Vec<Command>)>,
    connections: BTreeMap<i64, Connection>,
    last_client: i64,
    run: u64,
    touched: BTreeMap<Vec<u8>, u64>,
    touches: u64,
    pub(in crate::sim) now_ms: u64,
    pub(in crate::sim) mood: Mood,
    pub(in crate::sim) rates: Rates,
    /// How many answers nobody got in time.
    pub(in crate::sim) timeouts: u64,
    pub(in crate::sim) seen: Vec<Seen>,
    rng: Rng,
}

/// A server that many hold.
#[derive(Clone)]
pub(in crate::sim) struct SharedRedis(Arc<Mutex<SimRedis>>);

impl SharedRedis {
    pub(in crate::sim) fn new(seed: u64, rates: Rates) -> Self {
        Self(Arc::new(Mutex::new(SimRedis {
            data: Data::default(),
            past: Data::default(),
            since: VecDeque::new(),
            connections: BTreeMap::new(),
            last_client: 0,
            run: 1,
            touched: BTreeMap::new(),
            touches: 0,
            now_ms: 0,
            mood: Mood::Well,
            rates,
            timeouts: 0,
            seen: Vec::new(),
            rng: Rng::new(seed),
        })))
    }

    pub(in crate::sim) fn lock(&self) -> MutexGuard<'_, SimRedis> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a peer connects.
    pub(in crate::sim) fn dial(&self, peer: usize) -> Dial {
        let redis = self.clone();
        Arc::new(move || Ok(Box::new(redis.connect(peer)?)))
    }

    pub(in crate::sim) fn connect(&self, peer: usize) -> Result<Client, Fault> {
        let mut redis = self.lock();
        if redis.mood == Mood::Away {
            return Err(Fault::Unreachable("nothing listens at the simulated redis".into()));
        }
        redis.last_client += 1;
        let id = redis.last_client;
        redis.connections.insert(id, Connection { peer, ..Connection::default() });
        Ok(Client { redis: self.clone(), id })
    }
}

/// A connection as its client holds it.
pub(in crate::sim) struct Client {
    redis: SharedRedis,
    id: i64,
}

impl Client {
    /// One command and its answer.
    pub(in crate::sim) fn ask(&mut self, command: Command) -> Result<Value, Fault> {
        self.redis.lock().take(self.id, vec![command])?;
        self.receive()
    }
}

impl Pipe for Client {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.redis.lock().take(self.id, split(bytes))
    }

    fn receive(&mut self) -> Result<Value, Fault> {
        self.redis.lock().answer(self.id)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.redis.lock().cut(self.id);
    }
}

fn broken() -> Fault {
    Fault::Unreachable("the connection to the simulated redis broke".into())
}

impl SimRedis {
    fn take(&mut self, client: i64, commands: Vec<Command>) -> Result<(), Fault> {
        let is_cut = self.breaks();
        let arriving = if is_cut { self.rng.below(commands.len() as u64 + 1) } else { u64::MAX };
        let connection = self.connections.get_mut(&client).filter(|one| !one.is_cut).ok_or_else(broken)?;
        let arriving = usize::try_from(arriving).unwrap_or(usize::MAX);
        connection.input.extend(commands.into_iter().take(arriving));
        if is_cut {
            self.cut(client);
            return Err(broken());
        }
        Ok(())
    }

    fn answer(&mut self, client: i64) -> Result<Value, Fault> {
        if self.mood == Mood::Silent {
            self.timeouts += 1;
            self.cut(client);
            return Err(Fault::Unreachable("the simulated redis did not answer".into()));
        }
        if self.breaks() {
            let waiting = self.connections.get(&client).map_or(0, |one| one.input.len());
            for _ in 0..self.rng.below(waiting as u64 + 1) {
                self.run_next(client);
            }
            self.cut(client);
            return Err(broken());
        }
        loop {
            let connection = self.connections.get_mut(&client).filter(|one| !one.is_cut).ok_or_else(broken)?;
            if let Some(answer) = connection.output.pop_front() {
                return Ok(answer);
            }
            if !self.run_next(client) {
                return Err(Fault::Nonsense("an answer was awaited to which no question had been asked".into()));
            }
        }
    }

    fn breaks(&mut self) -> bool {
        self.rates.cut_once_in > 0 && self.rng.one_in(self.rates.cut_once_in)
    }

    /// The client is gone. What it had sent may still be read.
    fn cut(&mut self, client: i64) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.is_cut = true;
            if connection.input.is_empty() {
                self.connections.remove(&client);
            }
        }
    }

    /// Something that was sent over a connection that is no more arrives.
    pub(in crate::sim) fn run_leftovers(&mut self) -> bool {
        let cut: Vec<i64> = self.connections.iter().filter(|(_, one)| one.is_cut).map(|(id, _)| *id).collect();
        if cut.is_empty() || matches!(self.mood, Mood::Silent | Mood::Away) {
            return false;
        }
        let client = cut[usize::try_from(self.rng.below(cut.len() as u64)).unwrap_or(0)];
        if self.rng.one_in(4) {
            self.connections.remove(&client);
        } else {
            for _ in 0..=self.rng.below(4) {
                self.run_next(client);
            }
            if self.connections.get(&client).is_some_and(|one| one.input.is_empty()) {
                self.connections.remove(&client);
            }
        }
        true
    }

    /// Runs a connection's next command; `false`: there is none.
    fn run_next(&mut self, client: i64) -> bool {
        let Some(command) = self.connections.get_mut(&client).and_then(|one| one.input.pop_front()) else {
            return false;
        };
        let answer = self.obey(client, command);
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.output.push_back(answer);
        }
        true
    }

    fn obey(&mut self, client: i64, command: Command) -> Value {
        let Some(connection) = self.connections.get_mut(&client) else { return Value::Nil };
        match name(&command).as_str() {
            "MULTI" => {
                connection.queued = Some(Vec::new());
                Value::Okay
            }
            "EXEC" => self.execute(client),
            "WATCH" => {
                for key in &command[1..] {
                    let touched = self.touched.get(key).copied().unwrap_or_default();
                    connection.watched.push((key.clone(), touched));
                }
                Value::Okay
            }
            _ if connection.queued.is_some() => {
                if let Some(refusal) = refusal(self.mood, &command) {
                    connection.is_spoilt = true;
                    return refusal;
                }
                connection.queued.as_mut().expect("it was just checked").push(command);
                Value::SimpleString("QUEUED".into())
            }
            "PING" => Value::SimpleString("PONG".into()),
            "CLIENT" => self.client_command(client, &command),
            "INFO" => bulk(format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{:040x}\r\n", self.run).as_bytes()),
            "CONFIG" => Value::Array(Vec::new()),
            _ => match refusal(self.mood, &command) {
                Some(refusal) => refusal,
                None => self.run_all(client, vec![command]).pop().unwrap_or(Value::Nil),
            },
        }
    }

    fn client_command(&mut self, client: i64, command: &Command) -> Value {
        match command.as_slice() {
            [_, what] if what.eq_ignore_ascii_case(b"ID") => Value::Int(client),
            [_, what, _, id] if what.eq_ignore_ascii_case(b"KILL") => {
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse::<i64>().ok());
                let killed = id.and_then(|id| self.connections.remove(&id));
                Value::Int(i64::from(killed.is_some()))
            }
            _ => error("ERR unknown subcommand"),
        }
    }

    fn execute(&mut self, client: i64) -> Value {
        let Some(connection) = self.connections.get_mut(&client) else { return Value::Nil };
        let watched = std::mem::take(&mut connection.watched);
        let is_spoilt = std::mem::take(&mut connection.is_spoilt);
        let Some(commands) = connection.queued.take() else { return error("ERR EXEC without MULTI") };
        if is_spoilt {
            return error("EXECABORT Transaction discarded because of previous errors.");
        }
        let touched = |key: &Vec<u8>| self.touched.get(key).copied().unwrap_or_default();
        if watched.iter().any(|(key, before)| touched(key) != *before) {
            return Value::Nil;
        }
        Value::Array(self.run_all(client, commands))
    }

    fn run_all(&mut self, client: i64, commands: Vec<Command>) -> Vec<Value> {
        let peer = self.connections.get(&client).map_or(usize::MAX, |one| one.peer);
        let mut answers = Vec::with_capacity(commands.len());
        for command in &commands {
            let answer = self.data.run(command, self.now_ms);
            if is_write(command) && !matches!(answer, Value::ServerError(_)) {
                self.touches += 1;
                let has_changed = !matches!(answer, Value::Int(0) | Value::Nil) || name(command) == "HSET";
                if let Some(key) = command.get(1).filter(|_| has_changed) {
                    self.touched.insert(key.clone(), self.touches);
                }
                self.look_on(peer, command, &answer);
            }
            answers.push(answer);
        }
        if self.rates.past_ms > 0 && commands.iter().any(is_write) {
            self.since.push_back((self.now_ms, commands));
            self.forget_past();
        }
        answers
    }

    fn look_on(&mut self, peer: usize, command: &Command, answer: &Value) {
        match (name(command).as_str(), answer) {
            ("XADD", Value::BulkString(id)) => {
                let id = streams::id(id, 0).unwrap_or_default();
                let from = if command[2].eq_ignore_ascii_case(b"NOMKSTREAM") { 4 } else { 3 };
                let fields = command[from..].to_vec();
                self.seen.push(Seen::Added { peer, key: command[1].clone(), id, fields });
            }
            ("XSETID" | "XTRIM", _) => self.seen.push(Seen::Moved { peer, command: command.clone() }),
            ("HSET", _) => self.seen.push(Seen::Owned { fields: command[2..].to_vec() }),
            _ => {}
        }
    }

    fn forget_past(&mut self) {
        while let Some((_, commands)) = self.since.pop_front_if(|(at_ms, _)| *at_ms + self.rates.past_ms < self.now_ms)
        {
            for command in &commands {
                self.past.run(command, self.now_ms);
            }
        }
    }

    /// The server starts anew, or another takes its place, without the last `lost_ms`.
    pub(in crate::sim) fn restart(&mut self, lost_ms: u64) {
        self.connections.clear();
        self.run += 1;
        if self.rates.past_ms == 0 {
            return;
        }
        self.forget_past();
        let mut kept = std::mem::take(&mut self.past);
        let mut is_whole = true;
        let before = std::mem::take(&mut self.data);
        for (at_ms, commands) in std::mem::take(&mut self.since) {
            if at_ms + lost_ms > self.now_ms {
                is_whole = false;
                break;
            }
            for command in &commands {
                kept.run(command, at_ms);
            }
        }
        if !is_whole {
            self.lose(before.keys.into_keys().collect());
        }
        self.past = kept.clone();
        self.data = kept;
    }

    /// Somebody deletes a key, or everything.
    pub(in crate::sim) fn delete(&mut self, key: Option<Vec<u8>>) {
        let keys = key.map_or_else(|| self.data.keys.keys().cloned().collect(), |key| vec![key]);
        let command = [vec![b"DEL".to_vec()], keys.clone()].concat();
        self.touches += 1;
        for key in &keys {
            self.touched.insert(key.clone(), self.touches);
        }
        self.data.run(&command, self.now_ms);
        if self.rates.past_ms > 0 {
            self.since.push_back((self.now_ms, vec![command]));
        }
        self.lose(keys);
    }

    /// A consumer group goes.
    pub(in crate::sim) fn destroy_group(&mut self, key: &[u8], group: &[u8]) {
        let command = vec![b"XGROUP".to_vec(), b"DESTROY".to_vec(), key.to_vec(), group.to_vec()];
        self.data.run(&command, self.now_ms);
        if self.rates.past_ms > 0 {
            self.since.push_back((self.now_ms, vec![command]));
        }
    }

    fn lose(&mut self, keys: Vec<Vec<u8>>) {
        for key in keys {
            self.touches += 1;
            self.touched.insert(key.clone(), self.touches);
            self.seen.push(Seen::Lost { key });
        }
    }

    /// All streams' keys.
    pub(in crate::sim) fn stream_keys(&self) -> Vec<Vec<u8>> {
        self.data.streams().map(|(key, _)| key.clone()).collect()
    }
}

/// Why a server in this mood does not run the command.
fn refusal(mood: Mood, command: &Command) -> Option<Value> {
    let text = match mood {
        Mood::Loading => "LOADING Redis is loading the dataset in memory",
        Mood::Busy => "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        Mood::ReadOnly if is_write(command) => "READONLY You can't write against a read only replica.",
        Mood::OutOfMemory if takes_memory(command) => "OOM command not allowed when used memory > 'maxmemory'.",
        _ => return None,
    };
    Some(error(text))
}
