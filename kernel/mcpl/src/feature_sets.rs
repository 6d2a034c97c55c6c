//! The feature sets that servers declare, and which of them are enabled (MCPL §6).
