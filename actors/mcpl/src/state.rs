//! Checkpoints, kept (MCPL §8).
