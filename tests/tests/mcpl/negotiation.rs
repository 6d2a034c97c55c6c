//! Who declares MCPL, and who hears a word of it (MCPL §3 to §5).
