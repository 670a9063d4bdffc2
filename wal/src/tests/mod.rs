//! Tests that need more than one module: workloads, crashes, damage, full disks.

mod live;
