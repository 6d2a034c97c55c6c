//! Checkpoints of stateful tools, as trees (MCPL §8): one for each server, feature set, agent and session, or shared
//! where the operator says so.

pub mod checkpoint_tree;
pub mod checkpoint_trees;
pub(crate) mod document;
pub mod patch;
pub mod record;
pub mod rules;

#[cfg(test)]
mod tests;
