//! `state/*`: checkpoints of what tools change (MCPL §8).
