//! What of MCPL is written to the audit log (MCPL §13.2).
