//! Fuzz targets live in `fuzz_targets/`; their bodies in the crates they try.
