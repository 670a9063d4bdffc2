//! Every row of the recovery table.
