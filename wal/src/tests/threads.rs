//! An open log with its threads on a disk that fills up or fails.
