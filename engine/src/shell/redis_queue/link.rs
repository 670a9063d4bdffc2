//! One connection to Redis: what goes over it, and every way in which that can fail.
//!
//! It neither reconnects nor retries: after any [`Fault`] the link is dropped, and whoever owns it runs the procedure.

#[cfg(any(test, feature = "sim"))]
use std::sync::Arc;
use std::time::Duration;

use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError,
    Value,
};

use super::{
    config::RedisQueueError,
    reply::{Pace, Reaction, Scope, react},
    wire::Commands,
};

/// Why the procedure has to run again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Socket trouble: nobody there, cut, silent.
    #[error("{0}")]
    Unreachable(String),
    /// What answers does not speak the protocol, or not as it should.
    #[error("{0}")]
    Nonsense(String),
    /// An error reply.
    #[error("{}", .0.sentence)]
    Refused(Reaction),
    /// The keys belong to somebody else.
    #[error("{0}")]
    Foreign(String),
    /// Redis does not hold what it had accepted.
    #[error("{0}")]
    Lost(String),
    /// Somebody changed what we were about to decide upon.
    #[error("the keys of this shard changed while they were taken over")]
    Changed,
}

impl Fault {
    /// When to try again.
    pub(crate) fn pace(&self) -> Pace {
        match self {
            Self::Unreachable(_) | Self::Nonsense(_) | Self::Changed => Pace::BackOff,
            Self::Refused(reaction) => reaction.pace,
            Self::Foreign(_) => Pace::Slow,
            Self::Lost(_) => Pace::Now,
        }
    }
}

/// A simulated connection: bytes go in, answers come out.
#[cfg(any(test, feature = "sim"))]
pub(crate) trait Pipe: Send {
    /// See [`Link::send`].
    fn send(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// See [`Link::receive`].
    fn receive(&mut self) -> Result<Value, Fault>;
}

/// Opens simulated connections.
#[cfg(any(test, feature = "sim"))]
pub(crate) type Dial = Arc<dyn Fn() -> Result<Box<dyn Pipe>, Fault> + Send + Sync>;

/// What listens at an address.
#[derive(Clone)]
enum Server {
    Real(Box<Client>),
    #[cfg(any(test, feature = "sim"))]
    Simulated(Dial),
}

/// Where Redis is and how long it may take to answer.
#[derive(Clone)]
pub(crate) struct Address {
    server: Server,
    /// Host and port, for people; never a password.
    pub(crate) shown: String,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Address {
    /// Reads a Redis URL (`redis://`, `rediss://`, `unix:`).
    pub(crate) fn parse(
        url: &str,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Result<Self, RedisQueueError> {
        let info = connection_info(url)?;
        let shown = info.addr().to_string();
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let tcp = info
            .tcp_settings()
            .clone()
            .set_nodelay(true)
            .set_keepalive(redis::io::tcp::socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)))
            .set_user_timeout(response_timeout);
        let client =
            Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp)).map_err(|error| not_read(&error))?;
        Ok(Self { server: Server::Real(Box::new(client)), shown, connect_timeout, response_timeout })
    }

    /// A simulated server.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn simulated(dial: Dial, response_timeout: Duration) -> Self {
        let shown = "the simulated redis".to_owned();
        Self { server: Server::Simulated(dial), shown, connect_timeout: response_timeout, response_timeout }
    }
}

/// Whether a Redis URL can be used; nothing is connected.
pub(crate) fn check_url(url: &str) -> Result<(), RedisQueueError> {
    connection_info(url).map(drop)
}

fn connection_info(url: &str) -> Result<ConnectionInfo, RedisQueueError> {
    let info = url.into_connection_info();
    let wants_tls = url.starts_with("rediss:") || url.starts_with("valkeys:");
    if wants_tls && !cfg!(feature = "tls") {
        return Err(RedisQueueError::NoTls);
    }
    let info = info.map_err(|error| not_read(&error))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = info.addr() {
        let why = "#insecure would take any certificate".to_owned();
        return Err(RedisQueueError::Url(why));
    }
    #[cfg(feature = "tls")]
    if wants_tls {
        choose_provider();
    }
    Ok(info)
}

/// The redis crate takes the process' default provider of cryptography, and panics where none is set and several are
/// built in. A default that the embedding program has chosen stays.
#[cfg(feature = "tls")]
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else was quicker: theirs is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// The crate's sentence, which holds no part of the URL, without the kind that it adds.
fn not_read(error: &RedisError) -> RedisQueueError {
    let said = error.to_string();
    RedisQueueError::Url(said.split(" - ").next().unwrap_or_default().to_lowercase())
}

/// What an open connection runs over.
enum Wire {
    Socket(Connection),
    #[cfg(any(test, feature = "sim"))]
    Simulated(Box<dyn Pipe>),
}

/// An open connection, and what tells it from others.
pub(crate) struct Link {
    wire: Wire,
    shown: String,
    response_timeout: Duration,
    /// Names this connection within one run of the server.
    pub(crate) client_id: i64,
    /// Names one run of the server.
    pub(crate) run_id: String,
}

impl Link {
    /// Connects, and learns what tells this connection from others.
    pub(crate) fn open(address: &Address) -> Result<Self, Fault> {
        let mut link = Self::connect(address)?;
        link.introduce()?;
        Ok(link)
    }

    /// Connects and asks nothing.
    pub(crate) fn connect(address: &Address) -> Result<Self, Fault> {
        let Address { server, shown, connect_timeout, response_timeout } = address;
        let wire = match server {
            Server::Real(client) => client
                .get_connection_with_timeout(*connect_timeout)
                .and_then(|connection| {
                    connection.set_read_timeout(Some(*response_timeout))?;
                    connection.set_write_timeout(Some(*response_timeout))?;
                    Ok(Wire::Socket(connection))
                })
                .map_err(|error| fault(&error, shown, *connect_timeout))?,
            #[cfg(any(test, feature = "sim"))]
            Server::Simulated(dial) => Wire::Simulated(dial()?),
        };
        Ok(Self {
            wire,
            shown: shown.clone(),
            response_timeout: *response_timeout,
            client_id: 0,
            run_id: String::new(),
        })
    }

    fn introduce(&mut self) -> Result<(), Fault> {
        self.client_id = match self.ask(&[b"CLIENT", b"ID"])? {
            Value::Int(id) => id,
            other => return Err(self.nonsense("CLIENT ID", &other)),
        };
        let info = self.ask(&[b"INFO", b"server"])?;
        self.run_id = text(&info)
            .and_then(|info| info.lines().find_map(|line| line.strip_prefix("run_id:")))
            .ok_or_else(|| self.nonsense("INFO server", &info))?
            .trim()
            .to_owned();
        Ok(())
    }

    /// Writes and does not wait.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match &mut self.wire {
            Wire::Socket(connection) => {
                connection.send_packed_command(bytes).map_err(|error| fault(&error, &self.shown, self.response_timeout))
            }
            #[cfg(any(test, feature = "sim"))]
            Wire::Simulated(pipe) => pipe.send(bytes),
        }
    }

    /// The next answer; an error reply is a value here.
    pub(crate) fn receive(&mut self) -> Result<Value, Fault> {
        match &mut self.wire {
            Wire::Socket(connection) => {
                connection.recv_response().map_err(|error| fault(&error, &self.shown, self.response_timeout))
            }
            #[cfg(any(test, feature = "sim"))]
            Wire::Simulated(pipe) => pipe.receive(),
        }
    }

    /// One command and its answer; an error reply is a fault.
    pub(crate) fn ask(&mut self, parts: &[&[u8]]) -> Result<Value, Fault> {
        let mut one = Commands::default();
        one.add(parts);
        self.send(&one.bytes)?;
        refuse(self.receive()?)
    }

    /// Many commands and their answers, in order; error replies are values.
    pub(crate) fn ask_all(&mut self, commands: &Commands) -> Result<Vec<Value>, Fault> {
        if commands.count == 0 {
            return Ok(Vec::new());
        }
        self.send(&commands.bytes)?;
        (0..commands.count).map(|_| self.receive()).collect()
    }

    /// All of these or none, and nothing in between; `None` if what was watched changed.
    pub(crate) fn transact(&mut self, commands: &Commands) -> Result<Option<Vec<Value>>, Fault> {
        let mut bytes = Vec::with_capacity(commands.bytes.len() + 64);
        bytes.extend_from_slice(MULTI);
        bytes.extend_from_slice(&commands.bytes);
        bytes.extend_from_slice(EXEC);
        self.send(&bytes)?;
        self.receive_exec(commands.count)
    }

    /// The answers to `MULTI`, to `count` commands and to `EXEC`.
    pub(crate) fn receive_exec(&mut self, count: usize) -> Result<Option<Vec<Value>>, Fault> {
        // The reply to EXEC only says that something was wrong before; the first refusal says what.
        let mut refusal = None;
        for _ in 0..=count {
            if let Err(fault) = refuse(self.receive()?) {
                refusal.get_or_insert(fault);
            }
        }
        let answer = self.receive()?;
        match (refusal, answer) {
            (Some(fault), _) => Err(fault),
            (None, Value::Nil) => Ok(None),
            (None, Value::Array(answers)) if answers.len() == count => Ok(Some(answers)),
            (None, other) => Err(refuse(other).map_or_else(|fault| fault, |other| self.nonsense("EXEC", &other))),
        }
    }

    /// The fault of an answer that has not the shape it must have.
    pub(crate) fn nonsense(&self, question: &str, answer: &Value) -> Fault {
        let answer = super::reply::clipped(&format!("{answer:?}"));
        Fault::Nonsense(format!(
            "redis at {} answered {question} with {answer}: is this a redis 7 or newer",
            self.shown
        ))
    }
}

/// `MULTI` and `EXEC`, encoded.
pub(crate) const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
/// See [`MULTI`].
pub(crate) const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Turns an error reply into a fault.
pub(crate) fn refuse(answer: Value) -> Result<Value, Fault> {
    match answer {
        Value::ServerError(error) => Err(Fault::Refused(react(error.code(), error.details().unwrap_or_default()))),
        answer => Ok(answer),
    }
}

/// The text of an answer that is one.
pub(crate) fn text(answer: &Value) -> Option<&str> {
    match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn fault(error: &RedisError, shown: &str, waited: Duration) -> Fault {
    if error.is_timeout() {
        let seconds = waited.as_secs_f32();
        return Fault::Unreachable(format!(
            "redis at {shown} did not answer within {seconds} s: is it hung or overloaded"
        ));
    }
    if error.is_connection_refusal() {
        return Fault::Unreachable(format!("nothing listens at {shown}: start redis or correct the redis url"));
    }
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) => Fault::Refused(react("WRONGPASS", "")),
        (ErrorKind::Parse, _) => {
            Fault::Nonsense(format!("what answers at {shown} does not speak the redis protocol: correct the redis url"))
        }
        (ErrorKind::Io, _) => {
            Fault::Unreachable(format!("the connection to redis at {shown} broke: {}", io_cause(error)))
        }
        (_, Some(code)) => Fault::Refused(react(code, error.detail().unwrap_or_default())),
        (ErrorKind::InvalidClientConfig, None) => Fault::Refused(Reaction {
            scope: Scope::Connection,
            pace: Pace::Slow,
            sentence: format!("the redis url cannot be used: {error}"),
        }),
        (_, None) => Fault::Nonsense(format!("redis at {shown}: {}", error.category())),
    }
}

fn io_cause(error: &RedisError) -> String {
    super::reply::clipped(&error.to_string())
}
