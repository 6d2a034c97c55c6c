//! The connected agents that are MCPL hosts.
