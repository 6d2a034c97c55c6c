//! Scopes (MCPL §7).
