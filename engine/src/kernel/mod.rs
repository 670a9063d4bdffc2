//! Everything that decides: no IO, no clock, no await, no randomness, no iteration over hash maps.

pub mod id;
pub mod time;
pub mod wheel;
