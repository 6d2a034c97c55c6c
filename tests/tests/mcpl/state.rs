//! State (MCPL §8).
