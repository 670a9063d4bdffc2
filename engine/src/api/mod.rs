//! The HTTP server: reads requests strictly, asks the engine, renders its answers.
//!
//! A handler parses, calls the handle and renders, nothing else: what is right is decided by the engine, and this room
//! sees only what any embedder sees. It promises that nothing a client sends is ignored in silence: a field that is
//! not known, not well formed or not built yet is refused by its path.
//!
//! It is not: TLS (that lies under it), or a place for policies. Who may call is checked before anything else, against
//! a file of tokens; without one the server binds loopback only.

pub(crate) mod admit;
pub(crate) mod auth;
pub(crate) mod calls;
pub(crate) mod duration;
pub(crate) mod errors;
pub(crate) mod fields;
pub(crate) mod handlers;
pub(crate) mod import;
pub(crate) mod json;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod render;
pub(crate) mod request;
pub(crate) mod routes;
pub(crate) mod rule_reader;
pub(crate) mod schemas;
pub(crate) mod server;
pub(crate) mod shape;
pub(crate) mod spec_reader;
pub(crate) mod words;
