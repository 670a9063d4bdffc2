//! The HTTP server itself: its limits, its headers, its one worker thread beside the shards.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use actix_web::{
    App, HttpServer,
    dev::Server,
    http::header,
    middleware::{DefaultHeaders, from_fn},
    web,
};

use super::{
    admit::{Guarded, admit},
    auth::TokenFile,
    routes::{nothing_here, routes},
};
use crate::engine::Engine;

/// Open connections at most; more wait in the backlog.
const CONNECTIONS: usize = 10_000;
/// Open files that connections never take: logs, queues and timers go on when the server is crowded.
const KEPT_FILES: usize = 512;
/// How long the head of a request may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may stay idle.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long requests that are under way may take once the server stops.
const DRAIN_SECONDS: u64 = 5;
/// Threads for what would hold the worker up (previews).
const BLOCKING_THREADS: usize = 2;

/// What lies under HTTP.
pub(crate) enum Transport {
    /// Nothing: bytes as they are.
    Plain,
    /// TLS with this certificate.
    #[cfg(feature = "tls")]
    Tls(Box<rustls::ServerConfig>),
}

impl Transport {
    /// How a URL of the server begins.
    pub(crate) const fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "http",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "https",
        }
    }
}

/// Serves `engine` on `listener` until the returned server is stopped, to whoever has a token if there are some. It
/// listens to no signals.
///
/// One worker is enough: a request costs the shard it asks more than it costs the server, and the cores belong to the
/// shards.
pub(crate) fn server(
    engine: Engine,
    listener: TcpListener,
    transport: Transport,
    tokens: Option<Arc<TokenFile>>,
) -> io::Result<Server> {
    let rehearsal = engine.health().rehearsal;
    let guarded = Guarded { engine, tokens };
    let app = move || {
        let door = guarded.clone();
        App::new()
            .app_data(web::Data::new(guarded.clone()))
            .wrap(from_fn(move |request, next| admit(door.clone(), request, next)))
            .wrap(headers(rehearsal))
            .configure(routes)
            .default_service(web::to(nothing_here))
    };
    let server = HttpServer::new(app)
        .workers(1)
        .worker_max_blocking_threads(BLOCKING_THREADS)
        .max_connections(connections())
        // Handshakes that are under way: one that never ends must not keep others from beginning.
        .max_connection_rate(connections())
        .client_request_timeout(HEAD_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        // A worker that went away while it waited must not be granted what another one could run.
        .h1_allow_half_closed(false)
        .shutdown_timeout(DRAIN_SECONDS)
        .disable_signals();
    let server = match transport {
        Transport::Plain => server.listen(listener)?,
        #[cfg(feature = "tls")]
        Transport::Tls(config) => server.tls_handshake_timeout(HEAD_TIMEOUT).listen_rustls_0_23(listener, *config)?,
    };
    Ok(server.run())
}

/// How many connections fit beside the files that the engine needs.
fn connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(KEPT_FILES).clamp(64, CONNECTIONS)
}

/// Answers are data, never pages, and a rehearsal says in each that it is one.
fn headers(rehearsal: bool) -> DefaultHeaders {
    let headers =
        DefaultHeaders::new().add((header::X_CONTENT_TYPE_OPTIONS, "nosniff")).add((header::CACHE_CONTROL, "no-store"));
    if rehearsal { headers.add(("Countwheel-Rehearsal", "true")) } else { headers }
}
