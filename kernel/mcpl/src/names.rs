//! Names of sets and channels for agents, which see the servers as one.
