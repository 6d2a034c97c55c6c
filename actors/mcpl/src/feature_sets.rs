//! Which feature sets are enabled at which server, published (MCPL §6).
