//! `state/rollback`, of agents that are MCPL hosts (MCPL §8.5).
