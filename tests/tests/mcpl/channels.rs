//! Channels (MCPL §14).
