//! `countwheel serve`: the engine behind HTTP, until a signal ends it.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use actix_web::rt::System;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    redact::redacted,
    report::{failed, log_to_stderr, say},
    start::{self, Rehearse, Start},
    values,
};
use crate::{
    api::{
        auth::{TokenFile, TokensError},
        server::server,
    },
    builder::RedisOptions,
    engine::Engine,
    error::OpenError,
    kernel::time::UnixMs,
};

/// Options of `serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Data directory; made where it is missing
    #[arg(long, value_name = "DIR", default_value = "./countwheel-data")]
    data: PathBuf,
    /// Address of the HTTP API; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7171", value_parser = values::listen_address)]
    listen: SocketAddr,
    /// Tokens that are let in, a line each: `<role> <sha256 of the token in hex> [label]`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Queue on Redis Streams; without it the embedded queue
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Prefix of all keys in Redis
    #[arg(long, value_name = "P", default_value = "cw", requires = "redis")]
    redis_prefix: String,
    /// Take the prefix over from another data directory
    #[arg(long, requires = "redis")]
    adopt_redis: bool,
    /// Shards of a new data directory; default one a core, an existing directory has its own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,
    /// Zone rules from this directory instead of the newer of the system's and the bundled ones
    #[arg(long, value_name = "DIR")]
    tzdata: Option<PathBuf>,
    /// How long before its time an occurrence is written down
    #[arg(long, value_name = "D", value_parser = values::duration)]
    lead: Option<Duration>,
    /// How far ahead timers are kept in the wheel
    #[arg(long, value_name = "D", value_parser = values::duration)]
    horizon: Option<Duration>,
    /// Rehearsal: the clock starts at this instant
    #[arg(long, value_name = "T", value_parser = values::instant)]
    rehearse_from: Option<UnixMs>,
    /// Rehearsal: the clock runs this many times as fast
    #[arg(long, value_name = "X", default_value = "1", requires = "rehearse_from", value_parser = values::speed)]
    rehearse_speed: f64,
}

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(
        "{0} is not a loopback address: without tokens anyone who reaches it could do anything: listen on 127.0.0.1"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot listen on {address}: {source}: stop what uses it or choose another --listen")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot wait for signals: {0}: check the limits of the process")]
    Signals(io::Error),
    #[error(transparent)]
    Tokens(#[from] TokensError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the HTTP server failed: {0}: check the limits of the process")]
    Server(io::Error),
    #[error("the engine did not stop cleanly: {0}")]
    Stop(#[from] crate::error::CallError),
}

/// Runs the command.
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    log_to_stderr("info,actix_server=warn");
    match System::new().block_on(serve(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(error),
    }
}

async fn serve(args: ServeArgs) -> Result<(), ServeError> {
    let mut signals = Signals::new().map_err(ServeError::Signals)?;
    let tokens = args.tokens.as_ref().map(TokenFile::load).transpose()?.map(Arc::new);
    let listener = bind(args.listen, tokens.is_some())?;
    let address = listener.local_addr().map_err(|source| ServeError::Bind { address: args.listen, source })?;
    let engine = tokio::select! {
        opened = start::open(args.into_start()) => opened?,
        // Nothing was promised to anybody yet: what recovery has not finished, the next start finishes.
        name = signals.next() => {
            tracing::info!(signal = name, "stopped before the engine was open");
            return Ok(());
        }
    };
    tell_what_is_open(&engine);
    let server = server(engine.clone(), listener, tokens).map_err(ServeError::Server)?;
    let handle = server.handle();
    let mut running = actix_web::rt::spawn(server);
    say(format_args!("countwheel: listening on http://{address}"));
    tokio::select! {
        name = signals.next() => tracing::info!(signal = name, "draining"),
        ended = &mut running => {
            let ended = ended.unwrap_or_else(|lost| Err(io::Error::other(lost)));
            engine.stop().await?;
            return ended.map_err(ServeError::Server);
        }
    }
    handle.stop(true).await;
    engine.stop().await?;
    tracing::info!("stopped");
    Ok(())
}

fn bind(address: SocketAddr, is_guarded: bool) -> Result<TcpListener, ServeError> {
    if !is_guarded && !address.ip().is_loopback() {
        return Err(ServeError::NotLoopback(address));
    }
    TcpListener::bind(address).map_err(|source| ServeError::Bind { address, source })
}

fn tell_what_is_open(engine: &Engine) {
    let health = engine.health();
    tracing::info!(
        version = health.version,
        shards = health.shards,
        tz_release = health.tz_release,
        rehearsal = health.rehearsal,
        "engine open"
    );
    for reason in engine.readiness().reasons {
        tracing::warn!(reason, "not ready yet");
    }
}

impl ServeArgs {
    fn into_start(self) -> Start {
        if let Some(url) = &self.redis {
            tracing::info!(url = redacted(url), prefix = self.redis_prefix, "queue on Redis Streams");
        }
        let (prefix, adopt) = (self.redis_prefix, self.adopt_redis);
        Start {
            data: self.data,
            shards: self.shards,
            redis: self.redis.map(|url| RedisOptions { url, prefix, adopt }),
            rehearse: self.rehearse_from.map(|from| Rehearse { from, speed: self.rehearse_speed }),
            tzdata: self.tzdata,
            lead: self.lead,
            horizon: self.horizon,
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
