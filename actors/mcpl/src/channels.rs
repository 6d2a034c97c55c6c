//! The registry of channels, and what goes in and out through them (MCPL §14).
