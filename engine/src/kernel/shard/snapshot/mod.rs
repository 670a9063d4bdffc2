//! A snapshot is one consistent cut through a shard, without a pause: the tables are swept a few rows at a time while
//! everything goes on, and whoever changes a row that the sweep has not reached leaves its old image first.
//!
//! ```text
//!   cut at LSN L        sweep .. sweep .. sweep .. end         restore, then replay from L + 1
//!   ----|--------------------------------------|-----> time    gives what replaying everything gives
//! ```
//!
//! Rows change only by `apply`, through their tables, and the tables keep the images: nobody who changes a row can
//! forget to. What follows from rows is not in a snapshot.

pub(super) mod cut;
mod restore;
mod rows;
mod sweep;

pub(super) use restore::Restoring;
pub(super) use sweep::Sweep;
