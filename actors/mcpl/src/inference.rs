//! Inferences that servers ask for (MCPL §11).

mod providers;
mod tokens;
