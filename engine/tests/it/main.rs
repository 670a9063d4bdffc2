//! Integration tests, linked once.

mod calendar;
mod ids;
