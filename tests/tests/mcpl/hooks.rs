//! Context hooks (MCPL §10).
