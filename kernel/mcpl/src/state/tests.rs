//! What the trees of a server promise.

mod attacks;
mod lineage;
mod suite;
