//! Integration tests, linked once.

mod demo;
mod http;
mod ids;
mod server;
