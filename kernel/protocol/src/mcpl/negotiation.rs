//! `capabilities.experimental.mcpl` (MCPL §5).
