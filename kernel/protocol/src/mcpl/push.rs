//! `push/event`: what servers tell unasked (MCPL §9).
