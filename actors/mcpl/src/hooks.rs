//! Context hooks, fanned out and chained (MCPL §10).
