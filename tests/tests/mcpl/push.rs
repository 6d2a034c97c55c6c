//! Push events (MCPL §9).
