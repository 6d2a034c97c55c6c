//! Feature sets (MCPL §6).
