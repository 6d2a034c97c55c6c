//! Who must stay out, and who was let in and keeps to no rule: real processes on the one side, on the other one
//! nodes of `peers/hostile/`, which speak QUIC and our frames by themselves.

mod callers;
mod copies;
mod floods;
mod indexes;
mod keys;
mod logs;
mod multicast;
mod siege;
mod tickets;
