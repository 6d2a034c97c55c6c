//! Messages that break the protocol, in both directions.

mod answers;
mod arguments;
mod frames;
mod line_ends;
mod lists;
mod noise;
