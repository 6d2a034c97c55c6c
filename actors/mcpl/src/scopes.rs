//! Scopes that a person is asked about, and what was approved (MCPL §7).
