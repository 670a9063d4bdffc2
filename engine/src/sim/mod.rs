//! Whole engines in one thread, everything around them simulated.

mod redis;
