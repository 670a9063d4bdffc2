//! Everything that decides: no IO, no clock, no await, no randomness, no iteration over hash maps.

pub mod calendar;
pub mod id;
pub mod time;
