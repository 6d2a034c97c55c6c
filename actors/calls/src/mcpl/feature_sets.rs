//! `featureSets/update`, of agents that are MCPL hosts (MCPL §6.7).
