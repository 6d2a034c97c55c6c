//! `inference/chunk`, of agents that are MCPL hosts (MCPL §11.4).
