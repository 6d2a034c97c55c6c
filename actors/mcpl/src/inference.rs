//! Inferences that servers ask for (MCPL §11).
