//! Integration tests, linked once.

mod calendar;
mod embedded;
mod ids;
