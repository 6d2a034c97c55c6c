//! `[mcpl.servers.*]`: sets and scopes.
