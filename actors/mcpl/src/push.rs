//! Push events, delivered (MCPL §9).
