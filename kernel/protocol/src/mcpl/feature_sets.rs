//! `featureSets/*`: which parts of a server are in use (MCPL §6).
