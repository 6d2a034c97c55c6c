//! `context/*`, of agents that are MCPL hosts (MCPL §10).
