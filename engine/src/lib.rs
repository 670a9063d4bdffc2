//! Countwheel turns "this should happen at 09:00 in Berlin" into one traceable, retryable, idempotent occurrence in
//! a durable queue, on time, and can prove afterwards that none was silently lost.
//!
//! It is not a container placer, not a workflow engine, and no place to run user scripts: a queue is the name of a
//! registered handler, and who runs the handler is the user's business.

#[cfg(feature = "server")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
mod api;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
pub mod builder;
#[cfg(feature = "server")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
pub mod cli;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
pub mod engine;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
#[cfg(any(feature = "server", feature = "worker"))]
#[allow(clippy::disallowed_methods, reason = "this room waits")]
mod http_trust;
pub mod kernel;
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
pub mod shell;

#[cfg(any(all(test, feature = "redis"), feature = "sim"))]
#[doc(hidden)]
#[allow(clippy::disallowed_types, reason = "stands in for what waits")]
#[allow(clippy::disallowed_methods, reason = "worlds count from an instant, and their tests start a server")]
pub mod sim;

#[cfg(feature = "worker")]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this room waits")]
pub mod worker;

pub use builder::Builder;
pub use engine::Engine;
pub use kernel::changes::{Changes, NewSchedule};
pub use shell::worker::{Run, Worker};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
