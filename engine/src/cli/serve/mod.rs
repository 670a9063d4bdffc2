//! `countwheel serve`: the engine behind HTTP, until a signal ends it.
//!
//! In this order: settings, files that settings name, address, directory. What is wrong with the earlier is told
//! before the later is touched.

mod access;
mod args;
mod signals;
#[cfg(feature = "tls")]
mod tls;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
};

use actix_web::rt::System;

pub(crate) use self::args::ServeArgs;
use self::{
    access::Access,
    signals::{Asked, Signals},
};
use super::{
    redact::redacted,
    report::{failed, log_to_stderr, misused, say},
    settings::{Layers, Setting, SettingError, Settings},
    start::{self, Start},
};
use crate::{
    api::server::{Transport, server},
    engine::Engine,
    error::OpenError,
};

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("cannot listen on {address}: {source}: stop what uses it or choose another --listen")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot wait for signals: {0}: check the limits of the process")]
    Signals(io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the HTTP server failed: {0}: check the limits of the process")]
    Server(io::Error),
    #[error("the engine did not stop cleanly: {0}")]
    Stop(#[from] crate::error::CallError),
}

/// A server that may start: everything that was asked for has been checked.
struct Plan {
    start: Start,
    listen: SocketAddr,
    access: Access,
    transport: Transport,
}

/// Runs the command.
pub(crate) fn run(args: ServeArgs) -> ExitCode {
    log_to_stderr("info,actix_server=warn,actix_http=off");
    let done = match args.print_config {
        true => read(args).map(|(layers, _)| say(layers.to_toml().trim_end())),
        false => System::new().block_on(async {
            // Before anything else: whoever ends the process in its first moments ends it cleanly.
            let signals = Signals::new().map_err(ServeError::Signals)?;
            let (_, plan) = read(args)?;
            serve(plan, signals).await
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(ServeError::Setting(error)) => misused(error),
        Err(error) => failed(error),
    }
}

/// Reads and checks what was asked for. Nothing is made.
fn read(args: ServeArgs) -> Result<(Layers, Plan), ServeError> {
    let (rehearse, file) = (args.rehearse(), args.config.clone());
    let layers = Layers::read(args.into_flags(), |name| std::env::var_os(name), file.as_deref())?;
    let settings = Settings::check(&layers)?;
    let start = Start { rehearse, ..settings.start() };
    start::builder(start.clone()).check().map_err(|error| refused(&layers, error))?;
    let transport = transport(&layers, &settings)?;
    let access = Access::load(settings.tokens.as_deref());
    let access = access.map_err(|error| layers.refuse(Setting::Tokens, error.to_string()))?;
    if !access.allows(settings.listen) {
        let problem = format!(
            "{} is not a loopback address, and without tokens anyone who reaches it could do anything: listen on \
             127.0.0.1 or give tokens",
            settings.listen
        );
        return Err(layers.refuse(Setting::Listen, problem).into());
    }
    Ok((layers, Plan { start, listen: settings.listen, access, transport }))
}

/// What the builder refuses, told with the place where it was said.
fn refused(layers: &Layers, error: OpenError) -> ServeError {
    match error {
        OpenError::Setting { setting, problem } => match (Setting::of_builder(setting), setting) {
            (Some(key), _) => layers.refuse(key, problem).into(),
            (None, "rehearse-from") => SettingError::Flag { flag: "--rehearse-from", problem }.into(),
            (None, _) => SettingError::Flag { flag: "--rehearse-speed", problem }.into(),
        },
        OpenError::Zones(problem) => layers.refuse(Setting::Tzdata, problem).into(),
        error => error.into(),
    }
}

#[cfg(feature = "tls")]
fn transport(layers: &Layers, settings: &Settings) -> Result<Transport, SettingError> {
    let Some(files) = &settings.tls else { return Ok(Transport::Plain) };
    let config = tls::load(files).map_err(|error| layers.refuse(error.key, error.to_string()))?;
    Ok(Transport::Tls(Box::new(config)))
}

#[cfg(not(feature = "tls"))]
fn transport(layers: &Layers, settings: &Settings) -> Result<Transport, SettingError> {
    match settings.tls {
        None => Ok(Transport::Plain),
        Some(_) => {
            Err(layers.refuse(Setting::TlsCert, "this build has no TLS: build with the feature tls or leave it out"))
        }
    }
}

async fn serve(plan: Plan, mut signals: Signals) -> Result<(), ServeError> {
    let Plan { start, listen, access, transport } = plan;
    if let Some(redis) = &start.redis {
        tracing::info!(url = redacted(&redis.url), prefix = redis.prefix, "queue on Redis Streams");
    }
    let unreachable = |source| ServeError::Bind { address: listen, source };
    let listener = TcpListener::bind(listen).map_err(unreachable)?;
    let address = listener.local_addr().map_err(unreachable)?;
    let engine = tokio::select! {
        opened = start::open(start) => opened?,
        // Nothing was promised to anybody yet: what recovery has not finished, the next start finishes.
        name = ended(&mut signals, &access) => {
            tracing::info!(signal = name, "stopped before the engine was open");
            return Ok(());
        }
    };
    tell_what_is_open(&engine);
    let scheme = transport.scheme();
    if access.is_guarded() && !address.ip().is_loopback() && scheme == "http" {
        tracing::warn!(%address, "plain HTTP beyond loopback: tokens and payloads can be read on the way: give --tls-cert");
    }
    let server = server(engine.clone(), listener, transport, access.tokens()).map_err(ServeError::Server)?;
    let handle = server.handle();
    let mut running = actix_web::rt::spawn(server);
    say(format_args!("countwheel: listening on {scheme}://{address}"));
    tokio::select! {
        name = ended(&mut signals, &access) => tracing::info!(signal = name, "draining"),
        ended = &mut running => {
            let ended = ended.unwrap_or_else(|lost| Err(io::Error::other(lost)));
            engine.stop().await?;
            return ended.map_err(ServeError::Server);
        }
    }
    // Who waits for work is answered at once: the server would wait for them.
    engine.end_waiting();
    handle.stop(true).await;
    engine.stop().await?;
    tracing::info!("stopped");
    Ok(())
}

/// The name of the signal that ends the server; the others are acted on until then.
async fn ended(signals: &mut Signals, access: &Access) -> &'static str {
    loop {
        match signals.next().await {
            Asked::End(name) => return name,
            Asked::Reload => access.reload(),
        }
    }
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
