//! Checkpoints of stateful tools, as trees (MCPL §8).
