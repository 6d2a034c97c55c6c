//! `channels/*`, of agents that are MCPL hosts (MCPL §14).
