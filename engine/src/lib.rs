//! Countwheel turns "this should happen at 09:00 in Berlin" into one traceable, retryable, idempotent occurrence in
//! a durable queue, on time, and can prove afterwards that none was silently lost.
//!
//! It is not a container placer, not a workflow engine, and no place to run user scripts: a queue is the name of a
//! registered handler, and who runs the handler is the user's business.

#[cfg(feature = "server")]
pub mod cli;
pub mod kernel;
pub mod shell;
