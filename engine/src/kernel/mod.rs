//! Everything that decides: no IO, no clock, no await, no randomness, no iteration over hash maps.

pub mod time;
pub mod id;
pub mod refusal;
pub mod calendar;
pub mod wheel;
pub mod schedule;
pub mod occurrence;
pub mod resolve;
mod codec;
pub mod record;
mod names;
pub mod gate;
pub mod engine_time;
pub mod shard;
