//! Scopes: what a label is, and whether a list lets it through (MCPL §7).
