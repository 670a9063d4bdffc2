//! Tests that need more than one module: workloads, crashes, damage, full disks.

mod world;

mod crash;
mod damage;
mod full;
mod golden;
mod live;
mod rows;
mod snapshots;
mod threads;
