//! Integration tests, linked once.

mod ids;
