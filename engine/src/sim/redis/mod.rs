//! A Redis in memory, as far as the relay and consumers of streams use one, with everything that can befall a server.
//!
//! What commands do is in `data`, `streams` and `groups`, pure functions of the data set; a test holds them against a
//! real server. What connections and machines do is in `server`.

mod data;
mod groups;
mod resp;
mod server;
mod streams;
#[cfg(test)]
mod tests;

pub(super) use self::{
    resp::command,
    server::{Client, Mood, Rates, Seen, SharedRedis},
};
