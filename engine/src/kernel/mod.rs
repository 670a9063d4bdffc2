//! Everything that decides: no IO, no clock, no await, no randomness, no iteration over hash maps.

pub mod attempt;
pub mod calendar;
pub mod changes;
mod codec;
pub mod engine_time;
pub mod evidence;
pub mod gate;
pub mod id;
pub mod image;
pub mod lease;
mod names;
pub mod occurrence;
pub mod overlap;
pub mod permits;
pub mod policy;
pub mod record;
pub mod refusal;
pub mod resolve;
pub mod retry;
mod rule_record;
mod run_record;
pub mod schedule;
pub mod shard;
pub mod tenant;
pub mod time;
pub mod wheel;
