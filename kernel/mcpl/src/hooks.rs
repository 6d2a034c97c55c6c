//! What hooks may add and change, and in which order (MCPL §10).
