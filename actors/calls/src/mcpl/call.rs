//! What MCPL adds to a call of a tool: its scope and its state (MCPL §7.7, §8.4).
