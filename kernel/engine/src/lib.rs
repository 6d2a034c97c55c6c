//! Pure decisions: an input and the time go in, effects come out.
pub mod spec;
