//! Everything that waits: clocks, files, sockets, threads and actors around the kernel.

pub mod tick;
