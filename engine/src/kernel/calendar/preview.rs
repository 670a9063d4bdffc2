//! What a rule will do.
