//! What the operator says of MCPL: `[mcpl]` of the configuration.
