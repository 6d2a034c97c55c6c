//! `scope/*`: leave for what a list does not allow (MCPL §7).
