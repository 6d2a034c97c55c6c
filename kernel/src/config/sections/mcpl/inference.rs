//! `[mcpl]`: who answers inferences.
